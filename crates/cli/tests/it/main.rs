//! The one integration binary: each file is one subject.

mod crash;
mod doubts;
mod faults;
mod hostile;
mod line;
mod looks;
mod neighbours;
mod plans;
mod repairs;
mod seeds;
mod snapshots;
mod steer;
