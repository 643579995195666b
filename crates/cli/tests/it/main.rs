//! The one integration binary: each file is one subject.

mod crash;
mod seeds;
