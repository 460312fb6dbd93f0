//! What the two wasm modules of the browser package share: what is thrown ([`error`]), and how values come and go ([`value`]).

pub mod error;
pub mod value;
