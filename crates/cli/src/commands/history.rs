//! (being written)
use crate::context::Context;
use crate::failure::{Failure, Outcome};
pub(crate) fn history(_: &Context, _: &crate::args::HistoryArgs) -> Outcome {
    Err(Failure::new("not yet"))
}
