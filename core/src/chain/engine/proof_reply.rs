//! Replies to batches that request a proof.

use super::Engine;
use crate::{
    chain::{
        batch::Reply,
        error::{QueryError, RunError},
        node_error::may_pass,
        proof::{BLOCK, PendingProof},
    },
    eth::rpc::{
        self, BadReply, ErrorPayload,
        read_error::{Action, classify},
    },
};

impl Engine {
    #[inline(never)]
    pub(super) fn feed_proof(
        &mut self,
        ids: &[u64],
        by_hash: bool,
        reply: Reply<'_>,
    ) -> Result<(), QueryError> {
        let outcomes = match rpc::decode(reply.body, ids) {
            Ok(outcomes) => outcomes,
            Err(BadReply::Refused(error)) => {
                return self.refuse_proof(ids.len(), by_hash, reply.status, &error);
            }
            Err(BadReply::Malformed) => {
                let error = match reply.status {
                    200..300 => RunError::Malformed,
                    status => RunError::Http(status),
                };
                return self.fault(error, false);
            }
        };
        let Some(mut wanted) = self.view.pending_proof.take() else { return Ok(()) };
        let (mut refusal, mut malformed) = (None, false);
        for (id, outcome) in outcomes {
            match outcome {
                // A node behind a load balancer that has not seen the block answers null.
                Ok("null") if id == BLOCK => {
                    self.view.pending_proof = Some(wanted);
                    return self.repin();
                }
                Ok(result) => malformed |= !wanted.take(id, result),
                Err(error) => refusal = Some(error),
            }
        }
        if malformed {
            self.view.pending_proof = Some(PendingProof::new(wanted.key));
            return self.fault(RunError::Malformed, true);
        }
        if let Some(proof) = wanted.finished() {
            if let Err(error) = self.rotation.check_chain(Some(proof.chain_id)) {
                self.view.pending_proof = Some(PendingProof::new(wanted.key));
                return self.fault(error, true);
            }
            self.view.proofs.push((wanted.key, proof));
            return Ok(());
        }
        self.view.pending_proof = Some(wanted);
        match refusal {
            Some(error) => self.refuse_proof(ids.len(), by_hash, reply.status, &error),
            None => Ok(()),
        }
    }

    /// Handles a node's error.
    fn refuse_proof(
        &mut self,
        requests: usize,
        by_hash: bool,
        status: u16,
        error: &ErrorPayload,
    ) -> Result<(), QueryError> {
        match classify(error) {
            Action::SmallerBatch if requests > 1 => {
                self.rotation.update_traits(|traits| traits.requests_per_batch = 1);
                Ok(())
            }
            Action::PinByNumber if by_hash => {
                self.rotation.update_traits(|traits| traits.by_number = true);
                if self.block.pin().is_some_and(|pin| pin.source != self.rotation.current()) {
                    // A number is not the same block at every endpoint.
                    self.restart();
                }
                Ok(())
            }
            Action::Repin => self.repin(),
            Action::Retry => self.fault(RunError::node(error), false),
            _ => self.fault(RunError::node(error), !may_pass(status)),
        }
    }
}
