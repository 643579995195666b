//! (being written)
use crate::context::Context;
use crate::failure::{Failure, Outcome};
pub(crate) fn status(_: &Context, _: Option<&str>) -> Outcome {
    Err(Failure::new("not yet"))
}
pub(crate) fn questions(_: &Context, _: Option<&str>) -> Outcome {
    Err(Failure::new("not yet"))
}
pub(crate) fn train(_: &Context, _: Option<&str>) -> Outcome {
    Err(Failure::new("not yet"))
}
pub(crate) fn table(_: &mainstem_core::machine::Machine, _: bool) -> String {
    String::new()
}
