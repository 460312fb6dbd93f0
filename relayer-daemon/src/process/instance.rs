//! The name of this run of the process, and of its machine, by which operators tell daemons apart.

use std::{fs, sync::LazyLock};

use alloy::primitives::FixedBytes;

/// Returns the id of this run of the process.
pub fn id() -> &'static str {
    static ID: LazyLock<String> = LazyLock::new(|| format!("{:x}", FixedBytes::<8>::random()));
    &ID
}

/// Returns the name of this machine.
pub fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { "localhost".to_owned() } else { name.trim().to_owned() }
}
