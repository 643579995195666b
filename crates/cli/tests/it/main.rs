//! The one integration binary: each file is one subject.

mod attacks;
mod crash;
mod faults;
mod hostile;
mod line;
mod looks;
mod plans;
mod repairs;
mod seeds;
mod snapshots;
mod steer;
