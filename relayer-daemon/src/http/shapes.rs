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

/// The forwarder's EIP-712 domain, for which requests are signed.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Domain")]
pub(crate) struct DomainBody {
    /// The name of the domain.
    pub(crate) name: &'static str,
    /// The version of the domain.
    pub(crate) version: &'static str,
    /// The chain's id (EIP-155).
    pub(crate) chain_id: u64,
    /// The address of the forwarder contract.
    #[serde(with = "json::Checksummed")]
    pub(crate) verifying_contract: Address,
}

/// The nonces of a signer.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Nonce")]
pub(crate) struct NonceBody {
    /// The address of the signer.
    #[serde(with = "json::Checksummed")]
    pub(crate) address: Address,
    /// The signer's nonce in the forwarder contract.
    #[serde(with = "json::Integer")]
    pub(crate) nonce: U256,
    /// The nonce to sign the next request with: relays in flight are counted.
    #[serde(with = "json::Integer")]
    pub(crate) next: U256,
}

/// The relayer's accounts, budget, limits and queue.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Status")]
pub(crate) struct StatusBody {
    /// The address of the first paying account.
    #[serde(with = "json::Checksummed")]
    pub(crate) relayer: Address,
    /// The account's balance in ETH.
    #[schemars(extend("pattern" = r"^\d+\.\d{18}$"))]
    pub(crate) balance: String,
    /// The account's balance in wei.
    #[schemars(extend("pattern" = WHOLE))]
    pub(crate) balance_wei: String,
    /// All paying accounts.
    pub(crate) accounts: Vec<AccountBody>,
    /// The chain's id (EIP-155).
    pub(crate) chain_id: u64,
    /// The address of the registry, the only contract that requests may call.
    #[serde(with = "json::Checksummed")]
    pub(crate) registry: Address,
    /// The address of the forwarder contract.
    #[serde(with = "json::Checksummed")]
    pub(crate) forwarder: Address,
    /// The budget for gas.
    pub(crate) gas_budget: GasBudgetBody,
    /// The limits for clients and requests.
    pub(crate) limits: LimitsBody,
    /// The relays in flight at this daemon.
    pub(crate) queue: QueueBody,
    /// The fleet that this daemon belongs to; absent for a daemon with a journal of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fleet: Option<FleetBody>,
    /// The operator's orders.
    pub(crate) operator: OperatorBody,
    /// The hash of the policy in force: daemons with the same one sponsor the same.
    pub(crate) policy_hash: String,
    /// The hash of the settings that daemons of a fleet must have alike.
    pub(crate) settings_hash: String,
    /// The daemon's version.
    pub(crate) version: &'static str,
}

/// The operator's orders.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Operator")]
pub(crate) struct OperatorBody {
    /// State of the intake of new requests.
    pub(crate) intake: Intake,
    /// The time at which the intake was paused; absent while it is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) paused_since: Option<Timestamp>,
    /// The addresses of the accounts that get no relays by the operator's order.
    pub(crate) cordoned: Vec<String>,
    /// The last order; absent if none was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_order: Option<OrderBody>,
}

/// State of the intake of new requests.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Intake {
    /// New requests are taken.
    Open,
    /// New requests are refused with `INTAKE_PAUSED`; relays in flight go on.
    Paused,
}

/// An order of the operator.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Order")]
pub(crate) struct OrderBody {
    /// The name of the order.
    pub(crate) command: String,
    /// The time at which the order was given.
    pub(crate) at: Timestamp,
}

/// A fleet: several daemons that share a journal.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Fleet")]
pub(crate) struct FleetBody {
    /// The id of this daemon, in this run of its process.
    pub(crate) daemon: String,
    /// The number of daemons that are running.
    pub(crate) daemons: usize,
    /// The number of accounts that one of the daemons holds and sends from.
    pub(crate) leases: usize,
    /// The number of relays of all daemons that have not ended.
    pub(crate) pending: u64,
}

/// An account that pays for transactions.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Account")]
pub(crate) struct AccountBody {
    /// The address of the account.
    #[serde(with = "json::Checksummed")]
    pub(crate) address: Address,
    /// The state of the account: `ready` if it gets new requests, or else the reason why it gets none.
    pub(crate) state: AccountState,
    /// The account's balance in ETH.
    #[schemars(extend("pattern" = r"^\d+\.\d{18}$"))]
    pub(crate) balance: String,
    /// The account's balance in wei.
    #[schemars(extend("pattern" = WHOLE))]
    pub(crate) balance_wei: String,
    /// The number of the account's transactions that wait to be mined.
    pub(crate) pending: usize,
}

/// The relayer answers requests.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Ready")]
pub(crate) struct ReadyBody {
    /// Always true.
    #[schemars(extend("const" = true))]
    pub(crate) ready: bool,
    /// The code that new requests are refused with: the balance or the day's budget is spent, or
    /// the operator has paused the intake.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) refusing: Option<ErrorCode>,
    /// All paying accounts with their states.
    pub(crate) accounts: Vec<AccountStateBody>,
}

/// The state of a paying account.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "AccountReadiness")]
pub(crate) struct AccountStateBody {
    /// The address of the account.
    #[serde(with = "json::Checksummed")]
    pub(crate) address: Address,
    /// The state of the account: `ready` if it gets new requests, or else the reason why it gets none.
    pub(crate) state: AccountState,
}

/// The budget for gas in a window of 24 hours, which begins with the first use.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "GasBudget")]
pub(crate) struct GasBudgetBody {
    /// The whole budget, wei.
    #[schemars(extend("pattern" = WHOLE))]
    pub(crate) limit_wei: String,
    /// The used part, wei: fees paid in this window, and fees reserved for relays in flight and, for a day,
    /// for nonces that were given up.
    #[schemars(extend("pattern" = WHOLE))]
    pub(crate) used_wei: String,
    /// The unused part, wei.
    #[schemars(extend("pattern" = WHOLE))]
    pub(crate) remaining_wei: String,
    /// The end of the window; `null` while nothing is used.
    pub(crate) resets_at: Option<Timestamp>,
}

/// The limits for clients and requests.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Limits")]
pub(crate) struct LimitsBody {
    /// Requests per hour from one IP address; 0 means no limit.
    pub(crate) per_ip_per_hour: u32,
    /// Requests per hour by one signer; 0 means no limit.
    pub(crate) per_signer_per_hour: u32,
    /// The largest `request.gas`, gas units.
    pub(crate) max_request_gas: u64,
    /// The largest body of a request, bytes.
    pub(crate) max_body_bytes: usize,
}

/// The relays in flight.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Queue")]
pub(crate) struct QueueBody {
    /// The number of relays in flight.
    pub(crate) depth: usize,
    /// Seconds for which the oldest of them has waited; `null` if none is in flight.
    pub(crate) oldest_pending_seconds: Option<u64>,
}

/// The result of a request that was executed.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Executed")]
pub(crate) struct ExecutedBody {
    /// Always true.
    success: bool,
    /// The relay's id: the EIP-712 digest of its request.
    #[serde(with = "json::Hash")]
    id: B256,
    #[serde(flatten)]
    mined: MinedTransaction,
    /// The id of the agent that the call registered; absent if it registered none.
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_id: Option<AgentId>,
}

impl ExecutedBody {
    pub(crate) fn new(id: B256, mined: &MinedTransaction, agent_id: Option<U256>) -> Self {
        Self { success: true, id, mined: *mined, agent_id: agent_id.map(AgentId) }
    }
}

/// A relay: a request, its state and its transactions.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Relay")]
pub(crate) struct RelayBody<'a> {
    #[serde(flatten)]
    state: RelayState<'a>,
    /// The number of blocks from the relay's own to the newest one, both counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    confirmations: Option<u64>,
    /// The hashes of all transactions that were signed for the relay, oldest first.
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

/// An error, as a message and as a stable code.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Error")]
pub(crate) struct FailureBody<'a> {
    /// The message, for people; its wording may change.
    pub(crate) error: &'a str,
    /// The code, for programs; its meaning never changes.
    pub(crate) code: ErrorCode,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Failure, Finality, RelayOutcome};
    use alloy::primitives::address;
    use serde_json::{Value, json};

    const ID: B256 = B256::repeat_byte(1);
    const MINED: MinedTransaction =
        MinedTransaction { tx_hash: B256::repeat_byte(2), block_number: 7, gas_used: 9 };

    fn parsed(value: &impl Serialize) -> Value {
        serde_json::to_value(value).unwrap()
    }

    #[test]
    fn large_numbers_keep_their_digits_and_addresses_their_checksum() {
        let address = address!("D9d5aF831afD4Df6ce4d6f8063cBDf32Cb9A17a0");
        let nonce = NonceBody { address, nonce: U256::MAX, next: U256::from(3) };
        let expected = format!(r#"{{"address":"{address}","nonce":{},"next":3}}"#, U256::MAX);
        assert_eq!(serde_json::to_string(&nonce).unwrap(), expected);
    }

    #[test]
    fn a_relay_shows_what_its_state_has() {
        let show = |outcome, hashes| {
            let finality = Some(Finality::Safe);
            parsed(&RelayBody::new(ID, &RelayRecord { outcome, finality, hashes }, 9))
        };
        assert_eq!(show(None, vec![]), json!({ "id": ID, "state": "pending", "txHashes": [] }));
        let failure = Failure::reverted("Agent not active");
        let reverted = Some(RelayOutcome::Reverted { mined: MINED, failure: failure.clone() });
        let expected = json!({
            "id": ID, "state": "reverted", "txHash": MINED.tx_hash, "blockNumber": 7, "gasUsed": 9,
            "finality": "safe", "error": "Agent not active", "code": "CALL_REVERTED", "confirmations": 3,
            "txHashes": [MINED.tx_hash],
        });
        assert_eq!(show(reverted, vec![MINED.tx_hash]), expected);
        let expected = json!({
            "id": ID, "state": "dropped", "error": "Agent not active", "code": "CALL_REVERTED", "txHashes": [],
        });
        assert_eq!(show(Some(RelayOutcome::Dropped { failure }), vec![]), expected);
        let mut expected =
            json!({ "success": true, "id": ID, "txHash": MINED.tx_hash, "blockNumber": 7, "gasUsed": 9 });
        assert_eq!(parsed(&ExecutedBody::new(ID, &MINED, None)), expected);
        expected["agentId"] = json!(42);
        assert_eq!(parsed(&ExecutedBody::new(ID, &MINED, Some(U256::from(42)))), expected);
    }
}
