//! The one integration binary: each file is one subject.

mod attacks;
mod clashes;
mod clones;
mod crash;
mod doubts;
mod draft;
mod drive;
mod faults;
mod formats;
mod hostile;
mod limits;
mod line;
mod looks;
mod mcp;
mod neighbours;
mod plans;
mod pulls;
mod pushes;
mod real;
mod repairs;
mod review;
mod seeds;
mod snapshots;
mod stacked;
mod steer;
mod workers;
