//! How large a file of this process may become.

/// The largest size in bytes; none if there is no limit.
pub fn limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current
}
