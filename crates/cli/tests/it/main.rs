//! The one integration binary: each file is one subject.

mod crash;
mod drive;
mod faults;
mod hostile;
mod line;
mod looks;
mod plans;
mod real;
mod repairs;
mod seeds;
mod snapshots;
mod steer;
