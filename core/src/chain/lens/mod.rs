//! The lens: a read-only contract (`contracts/src/RegistryLens.sol`) that reads many agents in one `eth_call`
//! without being deployed. Its packed answer takes 124 hexadecimal digits an agent, or 182 and the scope in
//! full detail; the getters' ABI-encoded answers take thousands.
//!
//! | method | the `eth_call` | the answer's size |
//! |---|---|---|
//! | `Method::Override` | to an unused address, with the lens as its code (state override) | unlimited |
//! | `Method::Create` | without `to`: `Deployless` creates the lens and calls it | 24,576 bytes (EIP-170) |
//! | `Method::Multicall` | the getters through `aggregate3`, no lens | thousands of bytes an agent |
//!
//! The next method is tried when a node refuses one or ignores it.

mod slice;

use std::fmt::Write;

use alloy_primitives::{Address, U256, hex};
use alloy_sol_types::SolCall;

use crate::eth::abi::IRegistryLens::walkCall;
pub(crate) use slice::Slice;

/// Runtime bytecode of `RegistryLens`, as hexadecimal digits.
pub const LENS_CODE: &str = include_str!("registry_lens.hex");
/// Creation bytecode of `Deployless`, as hexadecimal digits; its constructor's arguments follow.
pub const DEPLOYLESS_CODE: &str = include_str!("deployless.hex");

/// The lens's address during a call, without a known private key: the last 20 bytes of `keccak256("agent
/// registry lens")`.
pub const LENS_ADDRESS: Address = alloy_primitives::address!("0x0611417b2e6256e3316664d7ea2451610afa5fb6");

/// Method of reading many agents. Each requires less of the node than the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Method {
    #[default]
    Override,
    Create,
    Multicall,
}

impl Method {
    /// Returns the method to fall back to.
    pub(crate) const fn next(self) -> Option<Self> {
        match self {
            Self::Override => Some(Self::Create),
            Self::Create => Some(Self::Multicall),
            Self::Multicall => None,
        }
    }
}

/// Agents with consecutive ids, or with consecutive numbers of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) first: u64,
    /// A single agent gets all the gas of the call.
    pub(crate) count: u64,
}

/// Data read of each agent; the values are the lens's own numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Detail {
    /// The row.
    Rows = 0,
    /// The row, and the revenue summed over all agents of a call.
    Revenue = 1,
    /// All that an index keeps: row, wallets, scope, and the agent's own revenue.
    Full = 2,
}

impl Detail {
    pub(crate) const fn has_revenue(self) -> bool {
        !matches!(self, Self::Rows)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LensTarget<'a> {
    pub(crate) registry: Address,
    pub(crate) detail: Detail,
    /// Ids of the span's agents, if they are listed.
    pub(crate) listed: Option<&'a [u64]>,
}

/// Returns the `eth_call` parameters that read `span` through the lens at the JSON block parameter `block`.
pub(crate) fn params(subject: LensTarget<'_>, span: Span, method: Method, block: &str) -> String {
    // Deploying code costs 200 gas a byte, for 24,576 bytes at most (EIP-170). The other methods are bounded
    // by gas alone.
    let (max_bytes, gas_per_byte) = if method == Method::Create { (24_000, 200) } else { (10_000_000, 0) };
    let call = walkCall {
        registry: subject.registry,
        first: U256::from(span.first),
        count: U256::from(span.count),
        detail: U256::from(subject.detail as u8),
        maxBytes: U256::from(max_bytes),
        gasPerByte: U256::from(gas_per_byte),
    };
    let mut data = call.abi_encode();
    data.extend(subject.listed.unwrap_or_default().iter().flat_map(|id| id.to_be_bytes()));
    run((LENS_ADDRESS, LENS_CODE), &data, method, block)
}

/// Returns the parameters of the `eth_call` that runs a contract which is not deployed: its address during
/// the call and its runtime bytecode, the calldata, and the JSON block parameter.
pub(super) fn run((address, code): (Address, &str), data: &[u8], method: Method, block: &str) -> String {
    let data = hex::encode(data);
    if method != Method::Create {
        return format!(
            r#"[{{"to":"{address:#x}","data":"0x{data}"}},{block},{{"{address:#x}":{{"code":"0x{code}"}}}}]"#
        );
    }
    let mut creation = String::with_capacity(DEPLOYLESS_CODE.len() + code.len() + data.len() + 512);
    creation.push_str(DEPLOYLESS_CODE);
    let code_size = code.len() / 2;
    let _ = write!(creation, "{:064x}{:064x}", 64, 96 + code_size.next_multiple_of(32));
    for text in [code, &data] {
        let padding = text.len().next_multiple_of(64) - text.len();
        let _ = write!(creation, "{:064x}{text}{}", text.len() / 2, "0".repeat(padding));
    }
    format!(r#"[{{"data":"0x{creation}"}},{block}]"#)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloy_primitives::keccak256;

    #[test]
    fn each_lens_stands_where_its_name_hashes_to() {
        use crate::chain::account_lens;
        for (lens, name) in [(LENS_ADDRESS, "agent registry lens"), (account_lens::ADDRESS, "account lens")] {
            assert_eq!(lens.as_slice(), &keccak256(name)[12..]);
        }
    }
}
