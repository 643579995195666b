//! (being written)
use crate::context::Context;
use crate::failure::{Failure, Outcome};
pub(crate) fn plan(_: &Context, _: &crate::args::PlanCommand) -> Outcome {
    Err(Failure::new("not yet"))
}
pub(crate) fn graph(_: &Context, _: &crate::args::GraphArgs) -> Outcome {
    Err(Failure::new("not yet"))
}
