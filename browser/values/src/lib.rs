//! What the two wasm modules of the browser package share: errors ([`error`]), the conversion of values
//! ([`value`]), and reading options ([`member`]).

pub mod error;
pub mod member;
pub mod value;
