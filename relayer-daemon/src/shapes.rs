//! The JSON of good answers, one struct each: the shapes that the README documents. Addresses are
//! checksummed, wei are decimal strings, everything else that is a number is a JSON number.

use alloy::primitives::{Address, B256, U256};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::{
    journal::RelayRecord,
    outcome::{Mined, Outcome},
};

/// `GET /domain`: exactly the EIP-712 domain.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Domain {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    pub(crate) chain_id: u64,
    #[serde(serialize_with = "checksummed")]
    pub(crate) verifying_contract: Address,
}

/// `GET /nonce/:address`.
#[derive(Debug, Serialize)]
pub(crate) struct Nonce {
    #[serde(serialize_with = "checksummed")]
    pub(crate) address: Address,
    /// The forwarder's nonce on chain.
    #[serde(serialize_with = "number")]
    pub(crate) nonce: U256,
    /// The nonce of the next request, relays in flight counted.
    #[serde(serialize_with = "number")]
    pub(crate) next: U256,
}

/// `GET /status`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Status {
    #[serde(serialize_with = "checksummed")]
    pub(crate) relayer: Address,
    /// ETH.
    pub(crate) balance: String,
    pub(crate) balance_wei: String,
    pub(crate) chain_id: u64,
    #[serde(serialize_with = "checksummed")]
    pub(crate) registry: Address,
    #[serde(serialize_with = "checksummed")]
    pub(crate) forwarder: Address,
    pub(crate) gas_budget: GasBudget,
    pub(crate) limits: Limits,
    pub(crate) queue: Queue,
    pub(crate) version: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GasBudget {
    pub(crate) limit_wei: String,
    pub(crate) used_wei: String,
    pub(crate) remaining_wei: String,
    /// ISO 8601; `null` while nothing is used.
    pub(crate) resets_at: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Limits {
    pub(crate) per_ip_per_hour: u32,
    pub(crate) per_signer_per_hour: u32,
    pub(crate) max_request_gas: u64,
    pub(crate) max_body_bytes: usize,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Queue {
    pub(crate) depth: usize,
    pub(crate) oldest_pending_seconds: Option<u64>,
}

/// `POST /relay`, executed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Executed {
    success: bool,
    id: B256,
    #[serde(flatten)]
    mined: MinedShape,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "optional_number")]
    agent_id: Option<U256>,
}

impl Executed {
    pub(crate) fn new(id: B256, mined: &Mined, agent_id: Option<U256>) -> Self {
        Self { success: true, id, mined: mined.into(), agent_id }
    }
}

/// `GET /relay/:id`, and `POST /relay` where the receipt did not come in time.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Relay<'a> {
    id: B256,
    state: &'static str,
    #[serde(flatten)]
    mined: Option<MinedShape>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "optional_number")]
    agent_id: Option<U256>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a str>,
    /// Every transaction tried, oldest first.
    tx_hashes: &'a [B256],
}

impl<'a> Relay<'a> {
    pub(crate) fn new(id: B256, record: &'a RelayRecord) -> Self {
        let (state, mined, failure, agent_id) = match &record.outcome {
            None => ("pending", None, None, None),
            Some(outcome) => match outcome {
                Outcome::Executed { mined, agent_id } => (outcome.state(), Some(mined), None, *agent_id),
                Outcome::Reverted { mined, failure } => (outcome.state(), Some(mined), Some(failure), None),
                Outcome::Dropped { failure } => (outcome.state(), None, Some(failure), None),
            },
        };
        Self {
            id,
            state,
            mined: mined.map(MinedShape::from),
            agent_id,
            error: failure.map(|failure| failure.message.as_str()),
            code: failure.map(|failure| failure.code.as_ref()),
            tx_hashes: &record.hashes,
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct MinedShape {
    tx_hash: B256,
    block_number: u64,
    gas_used: u64,
}

impl From<&Mined> for MinedShape {
    fn from(mined: &Mined) -> Self {
        Self { tx_hash: mined.tx_hash, block_number: mined.block_number, gas_used: mined.gas_used }
    }
}

fn checksummed<S: Serializer>(address: &Address, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(address)
}

/// A JSON number with all its digits, however many.
fn number<S: Serializer>(value: &U256, serializer: S) -> Result<S::Ok, S::Error> {
    RawValue::from_string(value.to_string()).map_err(serde::ser::Error::custom)?.serialize(serializer)
}

fn optional_number<S: Serializer>(value: &Option<U256>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => number(value, serializer),
        None => serializer.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Failure;
    use alloy::primitives::address;

    const MINED: Mined = Mined { tx_hash: B256::repeat_byte(2), block_number: 7, gas_used: 9 };

    fn text(value: &impl Serialize) -> String {
        serde_json::to_string(value).unwrap()
    }

    fn hash(byte: u8) -> String {
        B256::repeat_byte(byte).to_string()
    }

    #[test]
    fn large_numbers_keep_their_digits_and_addresses_their_checksum() {
        let address = address!("D9d5aF831afD4Df6ce4d6f8063cBDf32Cb9A17a0");
        let nonce = Nonce { address, nonce: U256::MAX, next: U256::from(3) };
        let expected = format!(r#"{{"address":"{address}","nonce":{},"next":3}}"#, U256::MAX);
        assert_eq!(text(&nonce), expected);
    }

    #[test]
    fn an_executed_relay_shows_its_agent_only_if_it_registered_one() {
        let id = B256::repeat_byte(1);
        let with = Executed::new(id, &MINED, Some(U256::from(42)));
        let (id_text, tx) = (hash(1), hash(2));
        let common =
            format!(r#""success":true,"id":"{id_text}","txHash":"{tx}","blockNumber":7,"gasUsed":9"#);
        assert_eq!(text(&with), format!(r#"{{{common},"agentId":42}}"#));
        assert_eq!(text(&Executed::new(id, &MINED, None)), format!("{{{common}}}"));
    }

    #[test]
    fn a_relay_shows_what_its_state_has() {
        let id = B256::repeat_byte(1);
        let (id_text, tx) = (hash(1), hash(2));
        let show = |outcome, hashes| text(&Relay::new(id, &RelayRecord { outcome, hashes }));
        assert_eq!(show(None, vec![]), format!(r#"{{"id":"{id_text}","state":"pending","txHashes":[]}}"#));
        let failure = Failure::reverted("Agent not active");
        let reverted = Some(Outcome::Reverted { mined: MINED, failure: failure.clone() });
        assert_eq!(
            show(reverted, vec![MINED.tx_hash]),
            format!(
                r#"{{"id":"{id_text}","state":"reverted","txHash":"{tx}","blockNumber":7,"gasUsed":9,"error":"Agent not active","code":"CALL_REVERTED","txHashes":["{tx}"]}}"#
            )
        );
        let dropped = Some(Outcome::Dropped { failure });
        assert_eq!(
            show(dropped, vec![]),
            format!(
                r#"{{"id":"{id_text}","state":"dropped","error":"Agent not active","code":"CALL_REVERTED","txHashes":[]}}"#
            )
        );
    }
}
