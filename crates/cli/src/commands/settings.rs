//! (being written)
use crate::context::Context;
use crate::failure::{Failure, Outcome};
pub(crate) fn config(_: &Context, _: &crate::args::ConfigArgs) -> Outcome {
    Err(Failure::new("not yet"))
}
