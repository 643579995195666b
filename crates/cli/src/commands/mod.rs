//! One file per command, or per family of commands that share everything.

pub(crate) mod agents;
pub(crate) mod care;
pub(crate) mod cost;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod draft;
pub(crate) mod formats;
pub(crate) mod gates;
pub(crate) mod history;
pub(crate) mod init;
pub(crate) mod lessons;
pub(crate) mod logs;
pub(crate) mod merge;
pub(crate) mod plan;
pub(crate) mod proposals;
pub(crate) mod reference;
pub(crate) mod restore;
pub(crate) mod run;
pub(crate) mod settings;
pub(crate) mod diff;
pub(crate) mod show;
pub(crate) mod status;
pub(crate) mod steer;
pub(crate) mod worker;
