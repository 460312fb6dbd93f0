//! Parts that two Workers share, that of the read API (`edge-api`) and that of its index (`edge-index`):
//! [settings], and access to [RPC endpoints](chain), [bindings](binding), and the [objects](index) that keep
//! indexes.

pub mod binding;
pub mod chain;
pub mod index;
pub mod settings;
pub mod time;

use worker::js_sys::Date;

/// Returns the clock's time in unix milliseconds.
pub fn unix_millis() -> u64 {
    // A whole number of milliseconds, far below 2^53.
    Date::now() as u64
}
