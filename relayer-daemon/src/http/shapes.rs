//! The JSON of answers, one struct each, as the README documents them. Addresses are checksummed, wei are
//! decimal strings, all other numbers are JSON numbers.

use alloy::primitives::{Address, B256, U256};
use registry_core::{eth::json, eth::timestamp::Timestamp, registry::agent::AgentId};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    outcome::{ErrorCode, MinedTransaction, RelayState},
    sender::health::AccountState,
    store::RelayRecord,
};

/// The pattern of wei.
const WHOLE: &str = r"^\d+$";

/// The EIP-712 domain to sign for, and nothing else.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Domain")]
pub(crate) struct DomainBody {
    /// The domain's name.
    pub(crate) name: &'static str,
    /// Its version.
    pub(crate) version: &'static str,
    /// The chain's id (EIP-155).
    pub(crate) chain_id: u64,
    /// The forwarder.
    #[serde(with = "json::Checksummed")]
    pub(crate) verifying_contract: Address,
}

/// A signer's nonces.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Nonce")]
pub(crate) struct NonceBody {
    /// The signer.
    #[serde(with = "json::Checksummed")]
    pub(crate) address: Address,
    /// The forwarder's nonce on chain.
    #[serde(with = "json::Integer")]
    pub(crate) nonce: U256,
    /// The nonce of the next request, relays in flight counted.
    #[serde(with = "json::Integer")]
    pub(crate) next: U256,
}

/// The relayer's accounts, budget, limits and queue.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Status")]
pub(crate) struct StatusBody {
    /// The first account that pays.
    #[serde(with = "json::Checksummed")]
    pub(crate) relayer: Address,
    /// Its balance in ETH.
    #[schemars(extend("pattern" = r"^\d+\.\d{18}$"))]
    pub(crate) balance: String,
    /// Its balance in wei.
    #[schemars(extend("pattern" = WHOLE))]
    pub(crate) balance_wei: String,
    /// All accounts that pay.
    pub(crate) accounts: Vec<AccountBody>,
    /// The chain's id (EIP-155).
    pub(crate) chain_id: u64,
    /// The only contract that requests may call.
    #[serde(with = "json::Checksummed")]
    pub(crate) registry: Address,
    /// The forwarder.
    #[serde(with = "json::Checksummed")]
    pub(crate) forwarder: Address,
    /// What may be spent on gas.
    pub(crate) gas_budget: GasBudgetBody,
    /// What a client and a request may ask for.
    pub(crate) limits: LimitsBody,
    /// The relays in flight at this daemon.
    pub(crate) queue: QueueBody,
    /// The fleet that this daemon belongs to; absent for a daemon with a journal of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fleet: Option<FleetBody>,
    /// The daemon's version.
    pub(crate) version: &'static str,
}

/// Several daemons that share a journal.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Fleet")]
pub(crate) struct FleetBody {
    /// How many daemons live.
    pub(crate) daemons: usize,
    /// The accounts that any of them sends from now.
    pub(crate) leases: usize,
    /// The relays of all daemons that have not ended.
    pub(crate) pending: u64,
}

/// An account that pays.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Account")]
pub(crate) struct AccountBody {
    /// The account.
    #[serde(with = "json::Checksummed")]
    pub(crate) address: Address,
    /// Whether it gets requests.
    pub(crate) state: AccountState,
    /// Its balance in ETH.
    #[schemars(extend("pattern" = r"^\d+\.\d{18}$"))]
    pub(crate) balance: String,
    /// Its balance in wei.
    #[schemars(extend("pattern" = WHOLE))]
    pub(crate) balance_wei: String,
    /// Its transactions that wait to be mined.
    pub(crate) pending: usize,
}

/// Requests make sense now.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Ready")]
pub(crate) struct ReadyBody {
    /// Always true.
    #[schemars(extend("const" = true))]
    pub(crate) ready: bool,
    /// The accounts that pay, with whether each gets requests.
    pub(crate) accounts: Vec<AccountStateBody>,
}

/// Whether an account gets requests.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "AccountReadiness")]
pub(crate) struct AccountStateBody {
    /// The account.
    #[serde(with = "json::Checksummed")]
    pub(crate) address: Address,
    /// Whether it gets requests.
    pub(crate) state: AccountState,
}

/// What may be spent on gas in 24 hours.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "GasBudget")]
pub(crate) struct GasBudgetBody {
    /// The budget.
    #[schemars(extend("pattern" = WHOLE))]
    pub(crate) limit_wei: String,
    /// What was paid, and what transactions in flight may cost at worst.
    #[schemars(extend("pattern" = WHOLE))]
    pub(crate) used_wei: String,
    /// What is left.
    #[schemars(extend("pattern" = WHOLE))]
    pub(crate) remaining_wei: String,
    /// When the window ends; `null` while nothing is used.
    pub(crate) resets_at: Option<Timestamp>,
}

/// What a client and a request may ask for.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Limits")]
pub(crate) struct LimitsBody {
    /// Requests an hour from one address; 0 is no limit.
    pub(crate) per_ip_per_hour: u32,
    /// Requests an hour by one signer; 0 is no limit.
    pub(crate) per_signer_per_hour: u32,
    /// The largest `request.gas`.
    pub(crate) max_request_gas: u64,
    /// The largest body.
    pub(crate) max_body_bytes: usize,
}

/// The relays in flight.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Queue")]
pub(crate) struct QueueBody {
    /// How many.
    pub(crate) depth: usize,
    /// Since when the oldest waits; `null` where there is none.
    pub(crate) oldest_pending_seconds: Option<u64>,
}

/// A request that was executed.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Executed")]
pub(crate) struct ExecutedBody {
    /// Always true.
    success: bool,
    /// The request's EIP-712 digest.
    #[serde(with = "json::Hash")]
    id: B256,
    #[serde(flatten)]
    mined: MinedTransaction,
    /// The agent that the call registered, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_id: Option<AgentId>,
}

impl ExecutedBody {
    pub(crate) fn new(id: B256, mined: &MinedTransaction, agent_id: Option<U256>) -> Self {
        Self { success: true, id, mined: *mined, agent_id: agent_id.map(AgentId) }
    }
}

/// What became of a request.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Relay")]
pub(crate) struct RelayBody<'a> {
    #[serde(flatten)]
    state: RelayState<'a>,
    /// Blocks from its own to the newest, both counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    confirmations: Option<u64>,
    /// Every transaction tried, oldest first.
    #[schemars(with = "Vec<json::Hash>")]
    tx_hashes: &'a [B256],
}

impl<'a> RelayBody<'a> {
    pub(crate) fn new(id: B256, record: &'a RelayRecord, head: u64) -> Self {
        let state = RelayState::new(id, record.outcome.as_ref(), record.finality);
        // The head may have been read before the block was made.
        let confirmations = state.block_number().map(|block| head.saturating_sub(block).saturating_add(1));
        Self { state, confirmations, tx_hashes: &record.hashes }
    }
}

/// An error.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Error")]
pub(crate) struct FailureBody<'a> {
    /// What is wrong, in words that may change.
    pub(crate) error: &'a str,
    /// What is wrong, to a program.
    pub(crate) code: ErrorCode,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Failure, Finality, RelayOutcome};
    use alloy::primitives::address;

    const MINED: MinedTransaction =
        MinedTransaction { tx_hash: B256::repeat_byte(2), block_number: 7, gas_used: 9 };

    fn text(value: &impl Serialize) -> String {
        serde_json::to_string(value).unwrap()
    }

    fn hash(byte: u8) -> String {
        B256::repeat_byte(byte).to_string()
    }

    #[test]
    fn large_numbers_keep_their_digits_and_addresses_their_checksum() {
        let address = address!("D9d5aF831afD4Df6ce4d6f8063cBDf32Cb9A17a0");
        let nonce = NonceBody { address, nonce: U256::MAX, next: U256::from(3) };
        let expected = format!(r#"{{"address":"{address}","nonce":{},"next":3}}"#, U256::MAX);
        assert_eq!(text(&nonce), expected);
    }

    #[test]
    fn an_executed_relay_shows_its_agent_only_if_it_registered_one() {
        let id = B256::repeat_byte(1);
        let with = ExecutedBody::new(id, &MINED, Some(U256::from(42)));
        let (id_text, tx) = (hash(1), hash(2));
        let common =
            format!(r#""success":true,"id":"{id_text}","txHash":"{tx}","blockNumber":7,"gasUsed":9"#);
        assert_eq!(text(&with), format!(r#"{{{common},"agentId":42}}"#));
        assert_eq!(text(&ExecutedBody::new(id, &MINED, None)), format!("{{{common}}}"));
    }

    #[test]
    fn a_relay_shows_what_its_state_has() {
        let id = B256::repeat_byte(1);
        let (id_text, tx) = (hash(1), hash(2));
        let show = |outcome, hashes| {
            let finality = Some(Finality::Safe);
            text(&RelayBody::new(id, &RelayRecord { outcome, finality, hashes }, 9))
        };
        assert_eq!(show(None, vec![]), format!(r#"{{"id":"{id_text}","state":"pending","txHashes":[]}}"#));
        let failure = Failure::reverted("Agent not active");
        let reverted = Some(RelayOutcome::Reverted { mined: MINED, failure: failure.clone() });
        assert_eq!(
            show(reverted, vec![MINED.tx_hash]),
            format!(
                r#"{{"id":"{id_text}","state":"reverted","txHash":"{tx}","blockNumber":7,"gasUsed":9,"finality":"safe","error":"Agent not active","code":"CALL_REVERTED","confirmations":3,"txHashes":["{tx}"]}}"#
            )
        );
        let dropped = Some(RelayOutcome::Dropped { failure });
        assert_eq!(
            show(dropped, vec![]),
            format!(
                r#"{{"id":"{id_text}","state":"dropped","error":"Agent not active","code":"CALL_REVERTED","txHashes":[]}}"#
            )
        );
    }
}
