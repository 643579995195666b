//! The state of the machine, by owner. The fields of an owner are private: only its own file writes them.
//! Each owner folds its facts (`apply…`) and forgets at the start of an epoch (`begin_epoch`) what is not
//! journaled.

mod inbox;
mod providers;
mod spending;

pub(crate) use inbox::{Inbox, QueuedQuestion};
pub(crate) use providers::ProviderTable;
pub(crate) use spending::{SpenderKey, Spending};
