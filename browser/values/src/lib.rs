//! The shared code of the browser package's wasm modules: errors ([`error`]), the conversion of values
//! ([`value`]), and reading options ([`member`]).

pub mod error;
pub mod member;
pub mod value;
