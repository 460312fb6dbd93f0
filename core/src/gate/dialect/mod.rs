//! The two forms of ERC-8128 that clients sign today. Each is in a file of its own that names its source;
//! what they share is in [`candidate`](super::candidate).

mod tagged;
mod untagged;

use alloy_primitives::{Address, hex};
use serde::Deserialize;
use sfv::Parameters;

use super::request::Request;

/// A form of ERC-8128.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, strum::VariantArray)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    /// `tag="erc8128"` and a CAIP-10 `keyid`: the draft of August 2026.
    Tagged,
    /// No tag, and a `keyid` that begins with `erc8128:`: the published clients of the earlier draft.
    Untagged,
}

/// The components that may have to be signed, in the order in which a challenge lists them.
const COMPONENTS: [&str; 7] =
    ["@scheme", "@authority", "@method", "@path", "@query", "content-digest", "content-type"];

impl Dialect {
    /// Both dialects.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns whether a signature with these parameters is of this dialect.
    pub(super) fn has_signed(self, parameters: &Parameters) -> bool {
        match self {
            Self::Tagged => tagged::has_signed(parameters),
            Self::Untagged => untagged::has_signed(parameters),
        }
    }

    /// Returns the components that bind a signature to this request, then the further ones that a route
    /// wants, each once (RFC 9421, section 2).
    pub(super) fn required<'a>(
        self,
        request: &Request<'_>,
        wanted: &'a [String],
    ) -> impl Iterator<Item = &'a str> {
        let binds = move |component: &&str| match self {
            Self::Tagged => tagged::requires(component, request),
            Self::Untagged => untagged::requires(component, request),
        };
        let besides = wanted.iter().map(String::as_str).filter(move |component| !binds(component));
        COMPONENTS.into_iter().filter(binds).chain(besides)
    }

    /// Parses the account that a `keyid` names.
    pub(super) fn account(self, keyid: &str) -> Option<Account> {
        let namespace = match self {
            Self::Tagged => tagged::NAMESPACE,
            Self::Untagged => untagged::NAMESPACE,
        };
        let (chain, address) = keyid.strip_prefix(namespace)?.split_once(':')?;
        let is_canonical = chain.bytes().all(|byte| byte.is_ascii_digit()) && !chain.starts_with('0');
        let chain = if is_canonical { chain.parse().ok()? } else { return None };
        let digits = address.strip_prefix("0x")?;
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if digits.len() != 40 || !digits.bytes().all(is_digit) {
            return None;
        }
        let address = Address::from(hex::decode_to_array(digits).ok()?);
        Some(Account { chain, address })
    }
}

/// An account on a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Account {
    /// The chain's id (EIP-155).
    pub chain: u64,
    /// The address.
    pub address: Address,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keyid_is_canonical_or_names_nothing() {
        let address = "0x7e5f4552091a69125d5dfcb7b8c2659029395bdf";
        for (dialect, namespace) in [(Dialect::Tagged, "eip155"), (Dialect::Untagged, "erc8128")] {
            let keyid =
                |chain: &str, address: &str| dialect.account(&format!("{namespace}:{chain}:{address}"));
            let account = Account { chain: 8453, address: address.parse().unwrap() };
            assert_eq!(keyid("8453", address), Some(account));
            for keyid in ["", namespace, &format!("{namespace}:8453")] {
                assert_eq!(dialect.account(keyid), None, "{keyid}");
            }
            for chain in ["", "0", "01", "+1", "1 ", "-1", "0x1", "18446744073709551616"] {
                assert_eq!(keyid(chain, address), None, "{chain}");
            }
            for address in [
                "",
                "7e5f4552091a69125d5dfcb7b8c2659029395bdf",
                "0X7e5f4552091a69125d5dfcb7b8c2659029395bdf",
                "0x7E5F4552091A69125d5DfCb7b8C2659029395Bdf",
                "0x7e5f4552091a69125d5dfcb7b8c2659029395bd",
                "0x7e5f4552091a69125d5dfcb7b8c2659029395bdf0",
                "0x7e5f4552091a69125d5dfcb7b8c2659029395bdg",
            ] {
                assert_eq!(keyid("1", address), None, "{address}");
            }
        }
        assert_eq!(Dialect::Tagged.account(&format!("erc8128:1:{address}")), None);
        assert_eq!(Dialect::Untagged.account(&format!("eip155:1:{address}")), None);
    }
}
