//! A message as the payload of `eth_signTypedData_v4` (EIP-712): what a wallet shows and signs.
//!
//! The types come from the ABI's own EIP-712 type strings, so they cannot differ from those in the digest.

use std::borrow::Cow;

use alloy_primitives::{Address, U256};
use alloy_sol_types::{Eip712Domain, SolStruct};
use serde::{Serialize, Serializer, ser::SerializeMap as _};

use super::json;

/// The second parameter of `eth_signTypedData_v4` for a message `M`, in which integers that a double may not
/// hold are decimal strings, so that the payload survives `JSON.stringify`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TypedData<M> {
    types: Types,
    primary_type: &'static str,
    domain: Domain,
    message: M,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Types {
    domain: Vec<TypeMember>,
    primary: (&'static str, Vec<TypeMember>),
}

impl Serialize for Types {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut types = serializer.serialize_map(Some(2))?;
        types.serialize_entry("EIP712Domain", &self.domain)?;
        let (name, members) = &self.primary;
        types.serialize_entry(name, members)?;
        types.end()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct TypeMember {
    name: String,
    r#type: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Domain {
    name: Cow<'static, str>,
    version: Cow<'static, str>,
    #[serde(with = "json::Integer")]
    chain_id: U256,
    #[serde(with = "json::Checksummed")]
    verifying_contract: Address,
}

impl<M> TypedData<M> {
    /// Creates the payload of a message of the type `T` for a domain.
    pub(crate) fn new<T: SolStruct>(domain: &Eip712Domain, message: M) -> Self {
        Self {
            types: Types {
                domain: members(&domain.encode_type()),
                primary: (T::NAME, members(&T::eip712_encode_type())),
            },
            primary_type: T::NAME,
            domain: Domain {
                name: domain.name.clone().unwrap_or_default(),
                version: domain.version.clone().unwrap_or_default(),
                chain_id: domain.chain_id.unwrap_or_default(),
                verifying_contract: domain.verifying_contract.unwrap_or_default(),
            },
            message,
        }
    }
}

/// Parses the members in a type string such as `Mail(address from,string contents)`.
fn members(encoded: &str) -> Vec<TypeMember> {
    let (_, list) = encoded.split_once('(').unwrap_or_default();
    let pairs = list.trim_end_matches(')').split(',').filter_map(|member| member.split_once(' '));
    pairs.map(|(kind, name)| TypeMember { name: name.to_string(), r#type: kind.to_string() }).collect()
}
