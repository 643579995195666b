//! (being written)
use crate::context::Context;
use crate::failure::{Failure, Outcome};
pub(crate) fn doctor(_: &Context) -> Outcome {
    Err(Failure::new("not yet"))
}
