//! The state of the machine, by owner. The fields of an owner are private: only its own file writes them.
//! Each owner folds its facts (`apply…`) and forgets at the start of an epoch (`begin_epoch`) what is not
//! journaled.

mod adopted_plan;
mod engine_epoch;
mod forge_pulls;
mod inbox;
mod issued_effects;
mod landing_train;
mod providers;
mod run_control;
mod run_record;
mod spending;
mod target_health;

pub(crate) use adopted_plan::AdoptedPlan;
pub(crate) use engine_epoch::EngineEpoch;
pub(crate) use forge_pulls::ForgePulls;
pub(crate) use inbox::{Inbox, QueuedQuestion};
pub(crate) use issued_effects::{IssuedEffects, ReviewerAtWork};
pub(crate) use landing_train::LandingTrain;
pub(crate) use providers::ProviderTable;
pub(crate) use run_control::RunControl;
pub(crate) use run_record::RunRecord;
pub(crate) use spending::{SpenderKey, Spending};
pub(crate) use target_health::TargetHealth;
