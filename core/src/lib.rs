//! The agent registry's rules, without I/O, clock or global state.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod abi;
pub mod forward;
