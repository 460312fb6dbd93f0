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
    /// The outcome of `relay` by a transaction of this purpose with this receipt.
    pub fn outcome(
        &self,
        relay: &RelayTerms,
        purpose: TransactionPurpose,
        receipt: &Receipt,
    ) -> RelayOutcome {
        let failure = match purpose {
            TransactionPurpose::Relay => return self.executed(relay, receipt),
            TransactionPurpose::Superseded | TransactionPurpose::Gap => {
                Failure::of(ErrorCode::InvalidSignatureOrNonce)
            }
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
        // Without the event the forwarder has not used the request, whatever the reason.
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

/// The reason in a failed inner call's return data.
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
    use alloy::{
        primitives::{B256, Bytes, Log as PrimitiveLog},
        sol_types::{Revert as ErrorString, SolError},
    };

    const CONTRACTS: Contracts =
        Contracts { forwarder: Address::repeat_byte(0xf0), registry: Address::repeat_byte(0xe0) };

    const BLOCK: BlockId = BlockId { number: 1, hash: B256::ZERO };

    fn relay() -> RelayTerms {
        RelayTerms { signer: Address::repeat_byte(5), forward_nonce: U256::from(3), ..RelayTerms::default() }
    }

    fn log(emitter: Address, event: &impl SolEvent) -> Log {
        Log { inner: PrimitiveLog { address: emitter, data: event.encode_log_data() }, ..Log::default() }
    }

    fn executed(success: bool, return_data: impl Into<Bytes>) -> RequestExecuted {
        RequestExecuted {
            from: relay().signer,
            nonce: relay().forward_nonce,
            success,
            returnData: return_data.into(),
        }
    }

    fn registered() -> AgentRegistered {
        AgentRegistered {
            agentId: U256::from(42),
            agentWallet: relay().signer,
            creator: relay().signer,
            haftungsperson: relay().signer,
            parentAgentId: U256::ZERO,
            generation: U256::ZERO,
        }
    }

    fn judge(status: bool, logs: Vec<Log>) -> RelayOutcome {
        let receipt = Receipt { hash: B256::ZERO, block: BLOCK, status, gas_used: 1, paid_wei: 1, logs };
        CONTRACTS.outcome(&relay(), TransactionPurpose::Relay, &receipt)
    }

    #[test]
    fn the_event_of_our_request_makes_it_executed() {
        let logs = vec![
            log(CONTRACTS.registry, &registered()),
            log(CONTRACTS.forwarder, &executed(true, Bytes::new())),
        ];
        assert!(
            matches!(judge(true, logs), RelayOutcome::Executed { agent_id: Some(id), .. } if id == U256::from(42))
        );
        let without = vec![log(CONTRACTS.forwarder, &executed(true, Bytes::new()))];
        assert!(matches!(judge(true, without), RelayOutcome::Executed { agent_id: None, .. }));
    }

    #[test]
    fn status_1_with_a_failed_inner_call_is_no_success() {
        let reason = ErrorString { reason: "Agent not active".to_owned() }.abi_encode();
        let logs = vec![log(CONTRACTS.forwarder, &executed(false, reason))];
        let outcome = judge(true, logs);
        assert!(!outcome.is_repeatable(), "the forwarder has used the request");
        let RelayOutcome::Reverted { failure, .. } = outcome else { panic!("not reverted") };
        assert_eq!((failure.code.status(), failure.message()), (500, "Agent not active"));
    }

    #[test]
    fn events_of_others_do_not_count() {
        let other_nonce = RequestExecuted { nonce: U256::from(4), ..executed(true, Bytes::new()) };
        let other_signer = RequestExecuted { from: Address::ZERO, ..executed(true, Bytes::new()) };
        for logs in [
            vec![],
            vec![log(CONTRACTS.forwarder, &other_nonce)],
            vec![log(CONTRACTS.forwarder, &other_signer)],
            vec![log(CONTRACTS.registry, &executed(true, Bytes::new()))],
        ] {
            let outcome = judge(true, logs);
            assert!(matches!(outcome, RelayOutcome::Reverted { .. }) && outcome.is_repeatable());
        }
        let elsewhere =
            vec![log(Address::ZERO, &registered()), log(CONTRACTS.forwarder, &executed(true, Bytes::new()))];
        assert!(matches!(judge(true, elsewhere), RelayOutcome::Executed { agent_id: None, .. }));
    }

    #[test]
    fn status_0_is_a_revert_whatever_the_logs_say_and_the_request_may_be_sent_again() {
        let logs = vec![log(CONTRACTS.forwarder, &executed(true, Bytes::new()))];
        let outcome = judge(false, logs);
        assert!(matches!(outcome, RelayOutcome::Reverted { .. }) && outcome.is_repeatable());
    }

    #[test]
    fn a_mined_no_op_drops_its_relay() {
        let logs = vec![];
        let receipt =
            Receipt { hash: B256::ZERO, block: BLOCK, status: true, gas_used: 1, paid_wei: 1, logs };
        for (purpose, status) in [
            (TransactionPurpose::Superseded, 401),
            (TransactionPurpose::Expired, 401),
            (TransactionPurpose::Rejected, 500),
        ] {
            let RelayOutcome::Dropped { failure } = CONTRACTS.outcome(&relay(), purpose, &receipt) else {
                panic!("not dropped");
            };
            assert_eq!(failure.code.status(), status);
        }
    }
}
