//! How many files this process may have open at once, sockets included.

use rustix::process::{Resource, getrlimit};

/// The soft limit (`RLIMIT_NOFILE`, `ulimit -n`, systemd's `LimitNOFILE`); `u64::MAX` where there is none.
pub fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
