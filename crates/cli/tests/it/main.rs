//! The one integration binary: each file is one subject.

mod crash;
mod looks;
mod plans;
mod seeds;
mod hostile;
mod line;
mod steer;
