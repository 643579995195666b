//! (being written)
use crate::context::Context;
use crate::failure::{Failure, Outcome};
pub(crate) fn logs(_: &Context, _: &crate::args::LogsArgs) -> Outcome {
    Err(Failure::new("not yet"))
}
