//! Evidence takes two round trips. The first reads the agent's record; the second reads the proofs of the
//! slots that follow from its id, at the same block.
//!
//! A document is sent only if it verifies and agrees with the contract's own answer at that block: a wrong
//! storage layout gives an error, never a wrong proof.

use alloy_primitives::Address;
use serde::{Serialize, Serializer};

use super::{LateExcerpt, Question, past::liability};
use crate::{
    api::{
        document::{Document, DocumentMetadata, Shape},
        error::Error,
        route::Route,
    },
    chain::{Halt, ProofKey, ProofParts, Query, RunError, View, reader::Registry},
    eth::{
        as_of::{AsOf, BlockId},
        timestamp::Timestamp,
    },
    evidence::{self, Evidence, EvidenceError, Indexed, Layout, MAX_SCOPE_BYTES, Material, SCOPE_TOO_LONG},
    registry::{agent::AgentId, kya::Kya, liability::Liability},
};

/// Attempts to read the right slots. The second one is for a scope that is not UTF-8: its text has another
/// length than its bytes.
const ATTEMPTS: usize = 2;

/// Evidence, its block, and the moment at which its verdict lapses.
pub(super) struct ProvedEvidence {
    evidence: Evidence,
    as_of: AsOf,
    valid_until: Option<Timestamp>,
}

impl Serialize for ProvedEvidence {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.evidence.serialize(serializer)
    }
}

impl Shape for ProvedEvidence {
    fn about(&self, _: &Route) -> DocumentMetadata {
        let nodes = self.evidence.storage_proof.iter().flat_map(|slot| &slot.proof);
        DocumentMetadata {
            size_hint: 8 * 1024 + nodes.map(|node| node.len() * 2 + 8).sum::<usize>(),
            // Evidence stays true, but clients decide by the newest one: a lapsed "provision" must not be
            // served from a cache.
            valid_until: self.valid_until,
            block: Some(self.as_of.into()),
            ..DocumentMetadata::default()
        }
    }
}

/// The error of hosts that only verify evidence: code to make it would cost visitors of a page 10 KiB.
pub(super) const NOT_MADE_HERE: Error = Error::InvalidParameter {
    field: "evidence",
    rule: "must be 0 here: the API makes evidence, verifyEvidence verifies it",
};

/// A question that may also ask for evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithEvidence {
    /// The question.
    pub question: Question,
    /// The storage layout that the operator vouches for, if the registry's code is not this project's.
    pub layout: Option<Layout>,
    /// The block of evidence, if the host names one; else that of the question.
    pub block: Option<BlockId>,
}

impl WithEvidence {
    /// Makes the query for the evidence of a wallet's verdict at this block, or the newest, for hosts that
    /// compare it with data of their own. `now` is the time that the verdict is judged at.
    pub fn at(
        registry: Address,
        wallet: Address,
        layout: Option<Layout>,
        block: Option<u64>,
        now: Timestamp,
    ) -> Self {
        let route = Route::Evidence(wallet);
        let question = Question { route, registry, chain: String::new(), now, scan: None, excerpt: None };
        Self { question, layout, block: block.map(BlockId::Number) }
    }
}

impl Query for WithEvidence {
    type Output = Document;
    type Error = Error;

    fn resolve(&self, view: &View) -> Result<Document, Halt<Error>> {
        let question = &self.question;
        let Route::Evidence(wallet) = question.route else { return question.resolve(view) };
        let registry = Registry { view, address: question.registry };
        Ok(Document::of(question.evidence(&registry, wallet, self.layout)?, &question.route))
    }

    fn block(&self) -> Option<BlockId> {
        self.block.or_else(|| self.question.block())
    }

    fn is_one_round(&self) -> bool {
        self.question.is_one_round()
    }

    fn reads_proofs(&self) -> bool {
        true
    }
}

impl Question {
    pub(super) fn evidence(
        &self,
        registry: &Registry<'_>,
        wallet: Address,
        configured: Option<Layout>,
    ) -> Result<ProvedEvidence, Halt<Error>> {
        let view = registry.view;
        let (grace, agent, as_of) = (registry.grace_period(), registry.agent_of(wallet), view.as_of());
        let (grace, agent, as_of) = (grace?, agent?, as_of?);
        let excerpt = self.excerpt.as_ref().and_then(LateExcerpt::get);
        let indexed = agent.as_ref().and_then(|agent| {
            let liability = liability(excerpt, agent, as_of);
            (liability != Liability::of_record(agent)).then_some(Indexed { liability })
        });
        let layout = configured.unwrap_or(Layout::AGENT_REGISTRY);
        // The text may have more bytes than the contract, and only the storage tells.
        let long_scope = agent.as_ref().filter(|agent| agent.operational_scope.len() > MAX_SCOPE_BYTES);
        let long_scope = long_scope.map(|agent| agent.agent_id);
        let of_agent = match &agent {
            Some(agent) if least_bytes(&agent.operational_scope) > MAX_SCOPE_BYTES => {
                return Err(Halt::Error(Error::ScopeTooLong(agent.agent_id)));
            }
            agent => agent
                .as_ref()
                .map(|agent| (agent.agent_id.0, agent.operational_scope.len().min(MAX_SCOPE_BYTES))),
        };
        let mut slots = evidence::slots(&layout, wallet, of_agent);
        for _ in 0..ATTEMPTS {
            let key = ProofKey { contract: registry.address, slots, parts: ProofParts::Evidence };
            let proof = view.proof(&key)?.ok_or_else(malformed)?;
            let material = Material {
                wallet,
                registry: registry.address,
                chain_id: proof.chain_id.ok_or_else(malformed)?,
                layout,
                slots: &key.slots,
                block: &proof.block,
                proof: &proof.proof,
                code: &proof.code,
            };
            let refused = |error| match fault(error, &material, configured, long_scope) {
                Ok(error) => Halt::Error(error),
                Err(reason) => view.refuse_proof(&key, reason).into(),
            };
            let (mut evidence, verified) = match evidence::make(&material) {
                Ok(made) => made,
                Err(EvidenceError::OtherSlot { .. } | EvidenceError::TooManySlots(_)) => {
                    slots = material.needed_slots().map_err(refused)?;
                    continue;
                }
                Err(error) => return Err(refused(error)),
            };
            // The contract's own answer at that block.
            let verdict = Kya::of(wallet, agent, grace, as_of.block_timestamp, as_of).as_proved();
            // Compared as text, which the document holds: comparing structs takes one more kilobyte of code.
            if serde_json::to_string(&verdict).ok().as_deref() != Some(evidence.verdict.get()) {
                let reason = "the contract's own answer at this block is another than its storage gives";
                return Err(Halt::Error(Error::WrongLayout(reason)));
            }
            evidence.indexed = indexed;
            return Ok(ProvedEvidence { evidence, as_of, valid_until: verified.verdict.valid_until });
        }
        Err(Halt::Error(Error::WrongLayout("its slots change while they are read")))
    }
}

/// Returns the fewest bytes that a decoded text can have in the contract: in place of one to three bytes that
/// are not UTF-8 the decoder writes U+FFFD, which has three.
fn least_bytes(text: &str) -> usize {
    text.len() - 2 * text.matches(char::REPLACEMENT_CHARACTER).count()
}

fn malformed() -> Halt<Error> {
    Halt::Error(RunError::Malformed.into())
}

/// Returns the error for the operator if the layout is at fault, or for the client if the scope of the agent
/// `long_scope` is too long. If the endpoint is at fault, because its answers do not prove one another,
/// returns the reason as `Err`.
fn fault(
    error: EvidenceError,
    material: &Material<'_>,
    configured: Option<Layout>,
    long_scope: Option<AgentId>,
) -> Result<Error, String> {
    match error {
        EvidenceError::OtherCode { .. } if !material.is_code_of_account() => {
            Err("its code is not that of the proved account".to_owned())
        }
        EvidenceError::OtherCode { .. } if configured.is_some() => {
            Ok(Error::WrongLayout("it holds for code with another hash"))
        }
        EvidenceError::OtherCode { .. } => Ok(Error::NoLayout),
        EvidenceError::Record(rule) => Ok(match long_scope.filter(|_| rule == SCOPE_TOO_LONG) {
            Some(agent) => Error::ScopeTooLong(agent),
            None => Error::WrongLayout(rule),
        }),
        // Some chains have headers with other fields than Ethereum's (AuRa, zkSync), and some nodes omit
        // fields.
        EvidenceError::HeaderHash { .. } => {
            Err("the fields of its block's header do not have the block's hash".to_owned())
        }
        error => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloy_primitives::U256;

    #[test]
    fn a_scope_that_the_storage_has_too_long_is_the_layouts_fault_only_where_its_text_is_not() {
        let (wallet, layout) = (Address::ZERO, Layout::AGENT_REGISTRY);
        let (block, proof, code) = ("", "", "");
        let material =
            Material { wallet, registry: wallet, chain_id: 1, layout, slots: &[], block, proof, code };
        let id = AgentId(U256::from(7));
        for (rule, long_scope, expected) in [
            (SCOPE_TOO_LONG, Some(id), Error::ScopeTooLong(id)),
            (SCOPE_TOO_LONG, None, Error::WrongLayout(SCOPE_TOO_LONG)),
            ("a time is out of range", Some(id), Error::WrongLayout("a time is out of range")),
        ] {
            assert_eq!(fault(EvidenceError::Record(rule), &material, None, long_scope), Ok(expected));
        }
    }
}
