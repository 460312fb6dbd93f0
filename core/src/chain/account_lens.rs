//! The account lens: a read-only contract (`contracts/src/AccountLens.sol`) that reports in one `eth_call`
//! what no contract on a chain does: whether an account has code. Like the [lens](super::lens) over agents it
//! is never deployed, and runs by the same methods.
//!
//! It answers `aggregate3` as Multicall3 does, so that a chunk with a call to [`ADDRESS`] goes to the lens as
//! it is, other calls included. All calls are static: an account's code that checks a signature cannot change
//! what the calls after it read.

use alloy_primitives::Address;

/// Runtime bytecode of `AccountLens`, as hexadecimal digits.
pub(super) const CODE: &str = include_str!("account_lens.hex");

/// The lens's own address in its calls: the last 20 bytes of `keccak256("account lens")`.
pub(crate) const ADDRESS: Address = alloy_primitives::address!("0x02f9e34504a5c63486edd977e036cc4cc5f4363c");
