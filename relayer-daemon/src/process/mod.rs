//! What the daemon has of its process and its machine.

pub mod clock;
pub mod faults;
pub mod lock;
pub mod logging;
pub mod shutdown;
