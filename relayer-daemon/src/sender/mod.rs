//! x
pub mod slot;
