//! (being written)
use crate::context::Context;
use crate::failure::{Failure, Outcome};
pub(crate) fn completions(_: clap_complete::Shell) -> Outcome {
    Err(Failure::new("not yet"))
}
pub(crate) fn man(_: &Context, _: &crate::args::ManArgs) -> Outcome {
    Err(Failure::new("not yet"))
}
pub(crate) fn write(_: &std::path::Path) -> Outcome {
    Err(Failure::new("not yet"))
}
