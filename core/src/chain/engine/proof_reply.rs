//! Replies to batches that request a proof.

use super::Engine;
use crate::{
    chain::{
        batch::Reply,
        block::Header,
        error::{QueryError, RunError},
        node_error::{is_about_the_batch, is_overload, may_pass},
        node_traits::NodeTraits,
        proof::{BLOCK, PROOF, PendingProof, Proof, ProofBlock, ProofKey, ProofParts},
    },
    eth::redact::without_secrets,
    eth::rpc::{
        self, BadReply, ErrorPayload,
        read_error::{Action, classify, is_unclear},
    },
};

/// Attempts to take the newest block and its proof in one batch.
const PROOFS_OF_NEWEST: u32 = 3;

/// The ids and the body of a batch for a proof.
type ProofBatch = (Vec<u64>, String);

/// Functions that request proofs. An engine refers to them only if its query reads proofs: a host without
/// such queries does not link them.
#[derive(Debug)]
pub(super) struct ProofReader {
    pub(super) want: fn(&mut Engine, ProofKey),
    /// Rules out the endpoint of a proof that does not verify, for this reason.
    pub(super) refuse: fn(&mut Engine, &ProofKey, String) -> Result<(), QueryError>,
    /// Returns the next batch, if the proof's block is known.
    pub(super) batch: fn(&Engine, bool) -> Option<ProofBatch>,
    pub(super) feed: fn(&mut Engine, &[u64], bool, Reply<'_>) -> Result<(), QueryError>,
}

impl ProofReader {
    pub(super) const READER: Self = Self {
        want: Engine::want_proof,
        refuse: Engine::rule_out_prover,
        batch: Engine::batch_of_proof,
        feed: Engine::feed_proof,
    };
}

impl Engine {
    /// Returns whether the next proof also names the block to pin.
    pub(super) fn is_proof_of_newest(&self) -> bool {
        let of_newest = |pending: &PendingProof| {
            self.block.is_open() && (pending.key.parts == ProofParts::Newest || self.proofs_of_newest > 0)
        };
        self.asked.is_none() && self.view.pending_proof.as_ref().is_some_and(of_newest)
    }

    /// Returns the ids and the body of the batch for the pending proof, if its block is known.
    fn batch_of_proof(&self, by_hash: bool) -> Option<ProofBatch> {
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

    /// Starts a proof. A node that is known to serve none is not asked if the query can do without.
    fn want_proof(&mut self, key: ProofKey) {
        match key.parts {
            ProofParts::Newest | ProofParts::Pinned if self.rotation.traits().proofs == Some(false) => {
                self.view.proofs.push((key, None));
            }
            _ => self.view.pending_proof = Some(PendingProof::new(key, self.rotation.knows_chain())),
        }
    }

    fn rule_out_prover(&mut self, key: &ProofKey, message: String) -> Result<(), QueryError> {
        self.view.proofs.retain(|(known, _)| !Proof::answers(known, key));
        self.fault(RunError::NoProof { message }, true)
    }

    /// Pins the newest block by the header that came with its proof; false if the header is malformed.
    fn pin_newest(&mut self, result: &str) -> Result<bool, RunError> {
        let Some(header) = header(result) else { return Ok(false) };
        if let Some(freshness) = self.limits.freshness {
            let seconds = freshness.now.seconds().saturating_sub(header.timestamp);
            if seconds > freshness.max_age_seconds {
                return Err(RunError::StaleHead { seconds });
            }
        }
        self.block.pin_to(header, self.rotation.current(), false);
        Ok(true)
    }

    fn feed_proof(&mut self, ids: &[u64], by_hash: bool, reply: Reply<'_>) -> Result<(), QueryError> {
        let outcomes = match rpc::decode(reply.body, ids) {
            Ok(outcomes) => outcomes,
            Err(BadReply::Refused(error)) => {
                let of_newest = self.is_proof_of_newest();
                return self.refuse_proof(ids.len(), (by_hash, of_newest), reply.status, &error);
            }
            Err(BadReply::Malformed) => return self.refuse_proof_by_status(ids, by_hash, reply.status),
        };
        let answered = outcomes.values().filter(|outcome| outcome.is_ok()).count();
        self.rotation.learn_batch(answered, ids.len());
        if answered == 0 && self.may_be_too_many(ids.len()) {
            // The same error for each: it may be the batch that is refused.
            self.requests_per_batch = ids.len() / 2;
            return Ok(());
        }
        let pins = self.is_proof_of_newest();
        let Some(mut wanted) = self.view.pending_proof.take() else { return Ok(()) };
        let (mut refusal, mut malformed) = (None, false);
        let pinned = self.block.pin().map(|pin| pin.header);
        for (id, outcome) in outcomes {
            match outcome {
                Ok(result) if id == BLOCK && pins => match self.pin_newest(result) {
                    Ok(pinned) => malformed |= !pinned || !wanted.take(id, result),
                    Err(error) => {
                        self.view.pending_proof = Some(wanted.again());
                        return self.fault(error, true);
                    }
                },
                Ok(result) if id == PROOF && !result.starts_with('{') => {
                    self.view.pending_proof = Some(wanted);
                    return self.prove_newest(pins, "it answers no proof".to_owned());
                }
                // A node behind a load balancer that has not seen the block answers null.
                Ok("null") if id == BLOCK => {
                    self.view.pending_proof = Some(wanted);
                    return self.repin();
                }
                Ok(result) => {
                    let named = Some(result).filter(|_| id == BLOCK).and_then(header).zip(pinned);
                    if named.is_some_and(|(named, pinned)| named.hash != pinned.hash) {
                        self.view.pending_proof = Some(wanted.again());
                        return if by_hash {
                            self.fault(RunError::OtherBlock, true)
                        } else {
                            self.leave_block()
                        };
                    }
                    malformed |= !wanted.take(id, result);
                }
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
            let is_evidence = wanted.key.parts == ProofParts::Evidence;
            if (self.proofs_of_newest > 0 || is_evidence) && !proof.is_of_its_block() {
                if self.proofs_of_newest == 0 {
                    self.view.pending_proof = Some(wanted.again());
                    return self.fault(RunError::OtherBlock, true);
                }
                // A block was mined between the two.
                self.view.pending_proof = Some(wanted);
                return self.prove_newest(false, "it answers the proof of another block".to_owned());
            }
            self.rotation.learn_answer(by_hash, !pins);
            self.rotation.learn(NodeTraits { proofs: Some(true), ..NodeTraits::default() });
            self.view.proofs.push((wanted.key, Some(proof)));
            return Ok(());
        }
        self.view.pending_proof = Some(wanted);
        match refusal {
            Some(error) => self.refuse_proof(ids.len(), (by_hash, pins), reply.status, &error),
            None => Ok(()),
        }
    }

    /// Handles a node's error. `of_newest`: the proof was to be of the newest block.
    fn refuse_proof(
        &mut self,
        requests: usize,
        (by_hash, of_newest): (bool, bool),
        status: u16,
        error: &ErrorPayload,
    ) -> Result<(), QueryError> {
        let may_be_hash = by_hash && self.rotation.may_try_numbers();
        let (is_unclear, has_refused) = (is_unclear(error), self.rotation.has_refused());
        let is_refused = !is_unclear || has_refused;
        match classify(error) {
            Action::SmallerBatch if requests > 1 => self.halve_proof(requests),
            Action::Repin if self.repins == 0 => return self.repin(),
            action if action != Action::Repin && may_be_hash && is_refused && !may_pass(status) => {
                self.rotation.try_numbers(true);
                if self.block.pin().is_some_and(|pin| pin.source != self.rotation.current()) {
                    // A number is not the same block at every endpoint.
                    self.restart();
                }
            }
            Action::Retry if !is_unclear || !has_refused => {
                self.rotation.refused();
                return self.fault(RunError::node(error), false);
            }
            Action::GiveUp if may_pass(status) => return self.fault(RunError::node(error), false),
            _ => return self.prove_newest(of_newest, without_secrets(&error.message)),
        }
        Ok(())
    }

    /// Handles a reply that is not JSON-RPC. It is about one of the requests, or about batches: smaller ones
    /// are tried in this run alone.
    fn refuse_proof_by_status(&mut self, ids: &[u64], by_hash: bool, status: u16) -> Result<(), QueryError> {
        let is_success = (200..300).contains(&status);
        let error = if is_success { RunError::Malformed } else { RunError::Http(status) };
        let may_pass = is_success || (may_pass(status) && !is_about_the_batch(status));
        if is_overload(status) || (may_pass && !self.rotation.has_refused()) {
            self.rotation.refused();
            return self.fault(error, false);
        }
        match ids {
            [PROOF] => {
                let error = ErrorPayload { code: 0, message: error.to_string().into(), data: None };
                let of_newest = self.is_proof_of_newest() || self.proofs_of_newest > 0;
                self.refuse_proof(1, (by_hash, of_newest), 0, &error)
            }
            [_] => self.fault(error, false),
            _ => {
                self.requests_per_batch = ids.len() / 2;
                Ok(())
            }
        }
    }

    fn halve_proof(&mut self, requests: usize) {
        let requests_per_batch = Some((requests / 2).max(1));
        self.rotation.learn(NodeTraits { requests_per_batch, ..NodeTraits::default() });
    }

    /// Handles a node that does not prove the block: many prove only the newest (reth by default, erigon).
    /// Block and proof of the newest are then requested in one batch, and all other results are read again at
    /// that block.
    fn prove_newest(&mut self, of_newest: bool, message: String) -> Result<(), QueryError> {
        let Some(pending) = self.view.pending_proof.take() else { return Ok(()) };
        let is_optional = pending.key.parts == ProofParts::Newest;
        let is_last = of_newest || self.asked.is_some() || self.proofs_of_newest >= PROOFS_OF_NEWEST;
        if is_last {
            let proofs = of_newest.then_some(false);
            self.rotation.learn(NodeTraits { proofs, ..NodeTraits::default() });
            if is_optional {
                self.view.proofs.push((pending.key, None));
                return Ok(());
            }
            self.view.pending_proof = Some(pending.again());
            return self.fault(RunError::NoProof { message }, true);
        }
        self.proofs_of_newest += 1;
        let parts = match pending.key.parts {
            ProofParts::Evidence => ProofParts::Evidence,
            ProofParts::Newest | ProofParts::Pinned => ProofParts::Newest,
        };
        self.restart();
        self.rotation.try_numbers(false);
        let key = ProofKey { parts, ..pending.key };
        self.view.pending_proof = Some(PendingProof::new(key, self.rotation.knows_chain()));
        Ok(())
    }
}

/// Parses a block's header from its JSON.
fn header(text: &str) -> Option<Header> {
    serde_json::from_str(text).ok()
}
