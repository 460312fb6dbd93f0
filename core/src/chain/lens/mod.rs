//! The lens: a read-only contract (`contracts/src/RegistryLens.sol`) that walks many agents in one `eth_call`, without being
//! deployed. Its answer is packed: 124 hexadecimal digits an agent, 182 and its scope in full detail, where the getters' own answers take
//! thousands.
//!
//! | method | the `eth_call` | the answer's size |
//! |---|---|---|
//! | [`Method::Override`] | to an unused address, with the lens as its code (state override) | unlimited |
//! | [`Method::Create`] | without `to`: `Deployless` creates the lens and calls it | 24,576 bytes (EIP-170) |
//! | [`Method::Multicall`] | no lens: the getters themselves, through `aggregate3` | thousands of bytes an agent |
//!
//! A node that refuses a method, or ignores it, is asked by the next one.

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

/// Where the lens stands for the time of a call: an address that nobody has the key of, the end of
/// `keccak256("agent registry lens")`.
pub const LENS_ADDRESS: Address = alloy_primitives::address!("0x0611417b2e6256e3316664d7ea2451610afa5fb6");

/// How a node reads many agents; each method needs less of the node than the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Method {
    #[default]
    Override,
    Create,
    Multicall,
}

impl Method {
    /// The method for a node that does not take this one.
    pub(crate) const fn next(self) -> Option<Self> {
        match self {
            Self::Override => Some(Self::Create),
            Self::Create => Some(Self::Multicall),
            Self::Multicall => None,
        }
    }
}

/// Agents with consecutive ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) first: u64,
    /// Where it is 1, the agent gets all the gas of the call.
    pub(crate) count: u64,
}

/// What is read of each agent; the numbers are the lens's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Detail {
    /// Its row.
    Rows = 0,
    /// Its row and its revenue, added up over all agents of a call.
    Revenue = 1,
    /// All that an index keeps: its row, its wallets, its scope, and its own revenue.
    Full = 2,
}

impl Detail {
    /// Whether revenue is read.
    pub(crate) const fn has_revenue(self) -> bool {
        !matches!(self, Self::Rows)
    }
}

/// Which registry is walked, and what is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    pub(crate) registry: Address,
    pub(crate) detail: Detail,
}

/// The parameters of the `eth_call` that walks `span` with the lens, at the JSON block parameter `block`.
pub(crate) fn params(subject: Subject, span: Span, method: Method, block: &str) -> String {
    // Code of 24,576 bytes costs 200 gas a byte (EIP-170). The other answers are bounded by the gas.
    let (max_bytes, gas_per_byte) = if method == Method::Create { (24_000, 200) } else { (10_000_000, 0) };
    let call = walkCall {
        registry: subject.registry,
        first: U256::from(span.first),
        count: U256::from(span.count),
        detail: U256::from(subject.detail as u8),
        maxBytes: U256::from(max_bytes),
        gasPerByte: U256::from(gas_per_byte),
    };
    let data = hex::encode(call.abi_encode());
    if method != Method::Create {
        return format!(
            r#"[{{"to":"{LENS_ADDRESS:#x}","data":"0x{data}"}},{block},{{"{LENS_ADDRESS:#x}":{{"code":"0x{LENS_CODE}"}}}}]"#
        );
    }
    let mut creation = String::with_capacity(DEPLOYLESS_CODE.len() + LENS_CODE.len() + data.len() + 512);
    creation.push_str(DEPLOYLESS_CODE);
    let code_size = LENS_CODE.len() / 2;
    let _ = write!(creation, "{:064x}{:064x}", 64, 96 + code_size.next_multiple_of(32));
    for text in [LENS_CODE, &data] {
        let padding = text.len().next_multiple_of(64) - text.len();
        let _ = write!(creation, "{:064x}{text}{}", text.len() / 2, "0".repeat(padding));
    }
    format!(r#"[{{"data":"0x{creation}"}},{block}]"#)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloy_primitives::{Bytes, keccak256};
    use alloy_sol_types::SolValue;

    #[test]
    fn the_lens_stands_where_its_name_hashes_to() {
        assert_eq!(LENS_ADDRESS.as_slice(), &keccak256("agent registry lens")[12..]);
    }

    #[test]
    fn creation_code_ends_with_the_constructors_arguments() {
        let subject = Subject { registry: Address::repeat_byte(7), detail: Detail::Revenue };
        let params = params(subject, Span { first: 3, count: 9 }, Method::Create, "\"latest\"");
        let params: serde_json::Value = serde_json::from_str(&params).unwrap();
        let data = hex::decode(params[0]["data"].as_str().unwrap()).unwrap();
        let arguments = &data[DEPLOYLESS_CODE.len() / 2..];
        let (code, call) = <(Bytes, Bytes)>::abi_decode_params(arguments).unwrap();
        assert_eq!(hex::encode(code), LENS_CODE);
        let call = walkCall::abi_decode(&call).unwrap();
        assert_eq!((call.registry, call.first, call.count), (subject.registry, U256::from(3), U256::from(9)));
    }
}
