//! (being written)
use crate::context::Context;
use crate::failure::{Failure, Outcome};
pub(crate) fn init(_: &Context, _: &crate::args::InitArgs) -> Outcome {
    Err(Failure::new("not yet"))
}
