//! What can go wrong between us and a forge, ordered by a test.

use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForgeFaultKind {
    /// This status, and nothing was done.
    Status(u16),
    /// The connection breaks before anything was done.
    DropBefore,
    /// It was done, and the connection breaks before anybody hears of it.
    DropAfter,
    /// It was done, and the answer is this status all the same.
    StatusAfter(u16),
    /// The answer takes this long.
    Slow(Duration),
    /// A limit that names how many seconds it lasts.
    RetryAfter(u64),
    /// A limit that says no more than that it is one.
    Limited,
}

/// Something that goes wrong with some requests.
#[derive(Debug, Clone)]
pub struct ForgeFault {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) kind: ForgeFaultKind,
    pub(super) skip: u32,
    pub(super) times: u32,
}

impl ForgeFault {
    /// With the next request of this method whose path contains this.
    pub fn once(method: &str, path: &str, kind: ForgeFaultKind) -> Self {
        Self { method: method.to_owned(), path: path.to_owned(), kind, skip: 0, times: 1 }
    }

    /// The same so many times.
    #[must_use]
    pub fn times(self, times: u32) -> Self {
        Self { times, ..self }
    }

    /// After so many that go well.
    #[must_use]
    pub fn after(self, skip: u32) -> Self {
        Self { skip, ..self }
    }
}

/// The fault that this request meets.
pub(super) fn due(
    faults: &mut Vec<ForgeFault>,
    method: &str,
    path: &str,
) -> Option<ForgeFaultKind> {
    let at = faults.iter().position(|f| f.method == method && path.contains(&f.path))?;
    let fault = &mut faults[at];
    if fault.skip > 0 {
        fault.skip -= 1;
        return None;
    }
    fault.times = fault.times.saturating_sub(1);
    let kind = fault.kind.clone();
    if fault.times == 0 {
        faults.remove(at);
    }
    Some(kind)
}
