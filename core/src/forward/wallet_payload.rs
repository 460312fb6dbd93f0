//! A forward request as the payload of `eth_signTypedData_v4`: what a wallet shows and signs.
//!
//! The types come from the ABI's own EIP-712 type strings, so they cannot differ from those in the digest.

use std::borrow::Cow;

use alloy_primitives::{Address, U256};
use alloy_sol_types::{Eip712Domain, SolStruct};
use serde::Serialize;

use crate::{eth::abi::ForwardRequest, eth::json};

/// The second parameter of `eth_signTypedData_v4` (EIP-712). Integers that a double may not hold are decimal
/// strings, so that the payload survives `JSON.stringify`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TypedData {
    types: Types,
    primary_type: &'static str,
    domain: Domain,
    message: Message,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Types {
    #[serde(rename = "EIP712Domain")]
    domain: Vec<Member>,
    #[serde(rename = "ForwardRequest")]
    request: Vec<Member>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Member {
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

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Message {
    #[serde(with = "json::Checksummed")]
    from: Address,
    #[serde(with = "json::Checksummed")]
    to: Address,
    value: String,
    gas: String,
    nonce: String,
    deadline: String,
    data: String,
}

impl TypedData {
    /// The payload of `request` for `domain` (see [`domain`](super::domain)).
    #[must_use]
    pub fn of(request: &ForwardRequest, domain: &Eip712Domain) -> Self {
        Self {
            types: Types {
                domain: members(&domain.encode_type()),
                request: members(&ForwardRequest::eip712_encode_type()),
            },
            primary_type: ForwardRequest::NAME,
            domain: Domain {
                name: domain.name.clone().unwrap_or_default(),
                version: domain.version.clone().unwrap_or_default(),
                chain_id: domain.chain_id.unwrap_or_default(),
                verifying_contract: domain.verifying_contract.unwrap_or_default(),
            },
            message: Message {
                from: request.from,
                to: request.to,
                value: request.value.to_string(),
                gas: request.gas.to_string(),
                nonce: request.nonce.to_string(),
                deadline: request.deadline.to_string(),
                data: request.data.to_string(),
            },
        }
    }
}

/// The members in a type string such as `Mail(address from,string contents)`.
fn members(encoded: &str) -> Vec<Member> {
    let (_, list) = encoded.split_once('(').unwrap_or_default();
    let pairs = list.trim_end_matches(')').split(',').filter_map(|member| member.split_once(' '));
    pairs.map(|(kind, name)| Member { name: name.to_string(), r#type: kind.to_string() }).collect()
}

#[cfg(test)]
mod tests {
    use alloy_primitives::{aliases::U48, bytes};
    use serde_json::{Value, json};

    use super::*;
    use crate::forward::domain;

    #[test]
    fn a_request_becomes_what_wallets_sign() {
        let request = ForwardRequest {
            from: Address::repeat_byte(0xaa),
            to: Address::repeat_byte(0xbb),
            value: U256::ZERO,
            gas: U256::from(500_000),
            nonce: U256::MAX,
            deadline: U48::MAX,
            data: bytes!("00ff"),
        };
        let typed = TypedData::of(&request, &domain(84_532, Address::repeat_byte(0xcc)));
        let member = |kind: &str, name: &str| json!({ "name": name, "type": kind });
        assert_eq!(
            serde_json::from_str::<Value>(&serde_json::to_string(&typed).unwrap()).unwrap(),
            json!({
                "types": {
                    "EIP712Domain": [
                        member("string", "name"), member("string", "version"),
                        member("uint256", "chainId"), member("address", "verifyingContract"),
                    ],
                    "ForwardRequest": [
                        member("address", "from"), member("address", "to"), member("uint256", "value"),
                        member("uint256", "gas"), member("uint256", "nonce"), member("uint48", "deadline"),
                        member("bytes", "data"),
                    ],
                },
                "primaryType": "ForwardRequest",
                "domain": {
                    "name": "MinimalForwarder", "version": "1", "chainId": 84_532,
                    "verifyingContract": "0xCcCCccccCCCCcCCCCCCcCcCccCcCCCcCcccccccC",
                },
                "message": {
                    "from": Address::repeat_byte(0xaa).to_checksum(None),
                    "to": Address::repeat_byte(0xbb).to_checksum(None),
                    "value": "0", "gas": "500000", "nonce": U256::MAX.to_string(),
                    "deadline": "281474976710655", "data": "0x00ff",
                },
            })
        );
    }
}
