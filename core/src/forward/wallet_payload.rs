//! A forward request as the payload of `eth_signTypedData_v4`, which a wallet shows and signs.

use alloy_primitives::Address;
use alloy_sol_types::Eip712Domain;
use serde::Serialize;

use crate::{
    eth::typed_data,
    eth::{abi::ForwardRequest, json},
};

/// The second parameter of `eth_signTypedData_v4` for a forward request.
pub type TypedData = typed_data::TypedData<Message>;

/// A forward request as the message of the payload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Message {
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
    /// Makes the payload of `request` for `domain` (see [`domain`](super::domain)).
    #[must_use]
    pub fn of(request: &ForwardRequest, domain: &Eip712Domain) -> Self {
        let message = Message {
            from: request.from,
            to: request.to,
            value: request.value.to_string(),
            gas: request.gas.to_string(),
            nonce: request.nonce.to_string(),
            deadline: request.deadline.to_string(),
            data: request.data.to_string(),
        };
        Self::new::<ForwardRequest>(domain, message)
    }
}

#[cfg(test)]
mod tests {
    use alloy_primitives::{U256, aliases::U48, bytes};
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
