//! What the two Workers share, the one of the read API (`edge-api`) and the one that keeps its index
//! (`edge-index`): [settings], and the way to [RPC endpoints](chain), [bindings](binding), and the
//! [objects](index) that keep indexes.

pub mod binding;
pub mod chain;
pub mod index;
pub mod settings;
pub mod time;

use worker::js_sys::Date;

/// The clock, in unix milliseconds.
pub fn unix_millis() -> u64 {
    // A whole number of milliseconds, far below 2^53.
    Date::now() as u64
}
