//! What the two wasm modules of the browser package share: errors ([`error`]) and the conversion of values
//! ([`value`]).

pub mod error;
pub mod value;
