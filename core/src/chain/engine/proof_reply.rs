//! Replies to batches that request a proof.

use super::Engine;
use crate::{
    chain::{
        batch::Reply,
        block::Header,
        error::{QueryError, RunError},
        node_error::may_pass,
        proof::{BLOCK, PROOF, PendingProof, ProofBlock, ProofKey, ProofParts},
    },
    eth::rpc::{
        self, BadReply, ErrorPayload,
        read_error::{Action, classify},
    },
};

impl Engine {
    /// Whether the proof that comes next also names the block to pin.
    pub(super) fn is_proof_of_newest(&self) -> bool {
        let of_newest =
            |pending: &PendingProof| matches!(pending.key.parts, ProofParts::Newest) && self.block.is_open();
        self.asked.is_none() && self.view.pending_proof.as_ref().is_some_and(of_newest)
    }

    /// The ids and the body of the batch for the pending proof, if its block is known.
    #[inline(never)]
    pub(super) fn batch_of_proof(&self, by_hash: bool) -> Option<(Vec<u64>, String)> {
        let pending = self.view.pending_proof.as_ref()?;
        let block = match self.block.pin() {
            Some(pin) if by_hash => ProofBlock::Hash(pin.header.hash),
            Some(pin) => ProofBlock::Number(pin.header.number),
            None if self.is_proof_of_newest() => ProofBlock::Newest,
            None => return None,
        };
        let ids = pending.missing(self.most_requests());
        let body = pending.body(&ids, block);
        Some((ids, body))
    }

    /// Starts a proof. A node that is known to serve none is not asked where the query can do without.
    pub(super) fn want_proof(&mut self, key: ProofKey) {
        match key.parts {
            ProofParts::Newest if self.rotation.traits().no_proofs => self.view.proofs.push((key, None)),
            _ => self.view.pending_proof = Some(PendingProof::new(key, self.rotation.knows_chain())),
        }
    }

    /// The node serves no proofs.
    fn go_without_proofs(&mut self) {
        let Some(pending) = self.view.pending_proof.take() else { return };
        self.rotation.update_traits(|traits| traits.no_proofs = true);
        self.view.proofs.push((pending.key, None));
    }

    /// Pins the newest block, which this header came with the proof of.
    fn pin_newest(&mut self, result: &str) -> Result<bool, RunError> {
        let Ok(header) = serde_json::from_str::<Header>(result) else { return Ok(false) };
        if let Some(freshness) = self.limits.freshness {
            let seconds = freshness.now.seconds().saturating_sub(header.timestamp);
            if seconds > freshness.max_age_seconds {
                return Err(RunError::StaleHead { seconds });
            }
        }
        self.block.pin_to(header, self.rotation.current(), false);
        Ok(true)
    }

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
        let pins = self.is_proof_of_newest();
        let Some(mut wanted) = self.view.pending_proof.take() else { return Ok(()) };
        let is_optional = wanted.key.parts == ProofParts::Newest;
        let (mut refusal, mut malformed) = (None, false);
        for (id, outcome) in outcomes {
            match outcome {
                Ok(result) if id == BLOCK && pins => match self.pin_newest(result) {
                    Ok(pinned) => malformed |= !pinned || !wanted.take(id, result),
                    Err(error) => {
                        self.view.pending_proof = Some(wanted.again());
                        return self.fault(error, true);
                    }
                },
                Ok(result) if id == PROOF && is_optional && !result.starts_with('{') => {
                    self.view.pending_proof = Some(wanted);
                    self.go_without_proofs();
                    return Ok(());
                }
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
            self.view.pending_proof = Some(wanted.again());
            return self.fault(RunError::Malformed, true);
        }
        if let Some(proof) = wanted.finished() {
            if let Some(id) = proof.chain_id
                && let Err(error) = self.rotation.check_chain(Some(id))
            {
                self.view.pending_proof = Some(wanted.again());
                return self.fault(error, true);
            }
            self.view.proofs.push((wanted.key, Some(proof)));
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
            _ if self.view.pending_proof.as_ref().is_some_and(|it| it.key.parts == ProofParts::Newest) => {
                self.go_without_proofs();
                Ok(())
            }
            _ => self.fault(RunError::node(error), !may_pass(status)),
        }
    }
}
