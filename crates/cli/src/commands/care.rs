//! (being written)
use crate::context::Context;
use crate::failure::{Failure, Outcome};
pub(crate) fn restore(_: &Context, _: &crate::args::RestoreArgs) -> Outcome {
    Err(Failure::new("not yet"))
}
pub(crate) fn undo(_: &Context, _: &crate::args::UndoArgs) -> Outcome {
    Err(Failure::new("not yet"))
}
pub(crate) fn clean(_: &Context, _: &crate::args::CleanArgs) -> Outcome {
    Err(Failure::new("not yet"))
}
