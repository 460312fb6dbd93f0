//! Reads the outcome of a mined transaction from the forwarder's and the registry's logs.
//!
//! `execute` reports a failed inner call without reverting, so status 1 says nothing about the request.

use alloy::{
    primitives::{Address, U256},
    rpc::types::Log,
    sol_types::SolEvent,
};
use registry_core::{
    eth::abi::{IAgentRegistry::AgentRegistered, IForwarder::RequestExecuted},
    eth::rpc::revert::Revert,
};

use crate::{
    chain::Receipt,
    outcome::{ErrorCode, Failure, MinedTransaction, RelayOutcome},
    store::{RelayTerms, TransactionPurpose},
};

/// The contracts that emit the logs.
#[derive(Debug, Clone, Copy)]
pub struct Contracts {
    /// The emitter of `RequestExecuted`.
    pub forwarder: Address,
    /// The emitter of `AgentRegistered`.
    pub registry: Address,
}

impl Contracts {
    /// Returns the outcome of `relay` by a transaction of this purpose with this receipt.
    pub fn outcome(
        &self,
        relay: &RelayTerms,
        purpose: TransactionPurpose,
        receipt: &Receipt,
    ) -> RelayOutcome {
        let failure = match purpose {
            TransactionPurpose::Relay => return self.executed(relay, receipt),
            TransactionPurpose::Superseded => Failure::of(ErrorCode::Superseded),
            TransactionPurpose::Gap => Failure::of(ErrorCode::InvalidSignatureOrNonce),
            TransactionPurpose::Cancelled => Failure::of(ErrorCode::Cancelled),
            TransactionPurpose::Expired => Failure::of(ErrorCode::DeadlinePassed),
            TransactionPurpose::Rejected => Failure::of(ErrorCode::TransactionRejected),
        };
        RelayOutcome::Dropped { failure }
    }

    fn executed(&self, relay: &RelayTerms, receipt: &Receipt) -> RelayOutcome {
        let mined = MinedTransaction {
            tx_hash: receipt.hash,
            block_number: receipt.block.number,
            gas_used: receipt.gas_used,
        };
        // Without the event this transaction has not used the request. The sender asks whether another has.
        let refused = RelayOutcome::Reverted { mined, failure: Failure::of(ErrorCode::ForwarderRefused) };
        if !receipt.status {
            return refused;
        }
        let event = events::<RequestExecuted>(self.forwarder, &receipt.logs)
            .find(|event| event.from == relay.signer && event.nonce == relay.forward_nonce);
        match event {
            Some(event) if event.success => {
                RelayOutcome::Executed { mined, agent_id: self.registered(receipt) }
            }
            Some(event) => {
                RelayOutcome::Reverted { mined, failure: Failure::reverted(inner_reason(&event.returnData)) }
            }
            None => refused,
        }
    }

    fn registered(&self, receipt: &Receipt) -> Option<U256> {
        events::<AgentRegistered>(self.registry, &receipt.logs).next().map(|event| event.agentId)
    }
}

/// Returns the reason in a failed inner call's return data.
pub fn inner_reason(return_data: &[u8]) -> String {
    Revert::from_data(return_data).message.unwrap_or_else(|| ErrorCode::CallReverted.wording().to_owned())
}

fn events<'a, E: SolEvent + 'a>(emitter: Address, logs: &'a [Log]) -> impl Iterator<Item = E> + 'a {
    logs.iter()
        .filter(move |log| log.address() == emitter)
        .filter_map(|log| E::decode_log(&log.inner).ok().map(|event| event.data))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::BlockId;
    use alloy::primitives::{B256, Bytes, Log as PrimitiveLog};
    use alloy::sol_types::{Revert as ErrorString, SolError};

    const CONTRACTS: Contracts =
        Contracts { forwarder: Address::repeat_byte(0xf0), registry: Address::repeat_byte(0xe0) };

    fn relay() -> RelayTerms {
        RelayTerms { signer: Address::repeat_byte(5), forward_nonce: U256::from(3), ..RelayTerms::default() }
    }

    fn log(emitter: Address, event: &impl SolEvent) -> Log {
        Log { inner: PrimitiveLog { address: emitter, data: event.encode_log_data() }, ..Log::default() }
    }

    fn executed(success: bool, return_data: impl Into<Bytes>) -> RequestExecuted {
        let RelayTerms { signer: from, forward_nonce: nonce, .. } = relay();
        RequestExecuted { from, nonce, success, returnData: return_data.into() }
    }

    /// Returns the forwarder's log of our request.
    fn ours() -> Log {
        log(CONTRACTS.forwarder, &executed(true, Bytes::new()))
    }

    /// Returns the log of an agent's registration by this contract.
    fn registered(emitter: Address) -> Log {
        let event = AgentRegistered {
            agentId: U256::from(42),
            agentWallet: relay().signer,
            creator: relay().signer,
            haftungsperson: relay().signer,
            parentAgentId: U256::ZERO,
            generation: U256::ZERO,
        };
        log(emitter, &event)
    }

    #[test]
    fn the_event_of_our_request_decides_and_a_mined_no_op_drops_its_relay() {
        use TransactionPurpose::{Expired, Rejected, Relay, Superseded};
        let reason = ErrorString { reason: "Agent not active".to_owned() }.abi_encode();
        let failed = log(CONTRACTS.forwarder, &executed(false, reason));
        let event = executed(true, Bytes::new());
        let other_nonce = RequestExecuted { nonce: U256::from(4), ..event.clone() };
        let other_signer = RequestExecuted { from: Address::ZERO, ..event.clone() };
        let block = BlockId { number: 1, hash: B256::ZERO };
        for (purpose, status, logs, expected) in [
            (Relay, true, vec![registered(CONTRACTS.registry), ours()], "executed, agent Some(42)"),
            (Relay, true, vec![ours()], "executed, agent None"),
            (Relay, true, vec![registered(Address::ZERO), ours()], "executed, agent None"),
            // The forwarder has used the request.
            (Relay, true, vec![failed], "reverted, 500 Agent not active"),
            (Relay, true, vec![], "reverted, repeatable"),
            (Relay, true, vec![log(CONTRACTS.forwarder, &other_nonce)], "reverted, repeatable"),
            (Relay, true, vec![log(CONTRACTS.forwarder, &other_signer)], "reverted, repeatable"),
            (Relay, true, vec![log(CONTRACTS.registry, &event)], "reverted, repeatable"),
            (Relay, false, vec![ours()], "reverted, repeatable"),
            (Superseded, true, vec![], "dropped, 409"),
            (Expired, true, vec![], "dropped, 401"),
            (Rejected, true, vec![], "dropped, 500"),
        ] {
            let hash = B256::ZERO;
            let receipt =
                Receipt { hash, block, status, gas_used: 1, gas_price: Some(1), l1_fee_wei: 0, logs };
            let outcome = CONTRACTS.outcome(&relay(), purpose, &receipt);
            let told = match &outcome {
                RelayOutcome::Executed { agent_id, .. } => format!("executed, agent {agent_id:?}"),
                RelayOutcome::Reverted { .. } if outcome.is_repeatable() => "reverted, repeatable".to_owned(),
                RelayOutcome::Reverted { failure, .. } => {
                    format!("reverted, {} {}", failure.code.status(), failure.message())
                }
                RelayOutcome::Dropped { failure } => format!("dropped, {}", failure.code.status()),
            };
            assert_eq!(told, expected);
        }
    }
}
