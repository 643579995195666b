//! Turns a PRD's answers or somebody's task file into a plan, and a plan into their files. Pure:
//! text in, text out.
//!
//! Modules stand in reading order: finding JSON in what a model said, what it must look like, how
//! answers become one plan, who is asked for them and when, what is new in a second plan; then other tools' files: what they are read from, the readers, what is
//! written back into them, the writers; last, hints at edges that nobody wrote down.

pub mod extract;
pub mod schema;
pub mod text_forms;
mod strong_components;
pub mod plan_assembly;
pub mod draft;
pub mod revise;
pub mod estimate;
pub mod import_source;
mod lenient_tree;
pub mod import;
pub mod gate_import;
pub mod status_push;
pub mod export;
pub mod suggest;
