//! (being written)
use crate::context::Context;
use crate::failure::{Failure, Outcome};
pub(crate) fn demo(_: &Context, _: &crate::args::DemoArgs) -> Outcome {
    Err(Failure::new("not yet"))
}
