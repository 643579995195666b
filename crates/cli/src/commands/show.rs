//! (being written)
use crate::context::Context;
use crate::failure::{Failure, Outcome};
pub(crate) fn show(_: &Context, _: &str, _: Option<&str>) -> Outcome {
    Err(Failure::new("not yet"))
}
pub(crate) fn diff(_: &Context, _: &crate::args::DiffArgs) -> Outcome {
    Err(Failure::new("not yet"))
}
