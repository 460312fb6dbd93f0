//! Evidence as an answer: two round trips. The first asks the contract, which tells the agent's id; the second asks for the proofs of
//! the slots that follow from it, at the same block.
//!
//! No document leaves that does not verify, and none that says another thing than the contract itself at that block: a wrong storage layout gives an
//! error, never a wrong proof.

use alloy_primitives::Address;
use serde::{Serialize, Serializer};

use super::Question;
use crate::{
    api::{
        document::{Document, Shape},
        error::Error,
        route::Route,
    },
    chain::{Halt, ProofKey, Query, View, reader::Registry},
    eth::{as_of::BlockId, timestamp::Timestamp},
    evidence::{self, Evidence, EvidenceError, Layout, MAX_SCOPE_BYTES, Material},
    registry::kya::Kya,
};

/// How often the slots may turn out to be others than those asked for: once, where a scope is no UTF-8 and longer than it reads.
const ATTEMPTS: usize = 2;

/// A document, and when its verdict lapses.
pub(super) struct Proved {
    evidence: Evidence,
    valid_until: Option<Timestamp>,
}

impl Serialize for Proved {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.evidence.serialize(serializer)
    }
}

impl Shape for Proved {
    // What was proved stays proved. Who asks for the newest evidence decides by it, and should not get yesterday's "provision".
    fn valid_until(&self) -> Option<Timestamp> {
        self.valid_until
    }

    fn size_hint(&self) -> usize {
        let nodes = self.evidence.storage_proof.iter().flat_map(|slot| &slot.proof);
        8 * 1024 + nodes.map(|node| node.len() * 2 + 8).sum::<usize>()
    }
}

/// What a host answers that only verifies evidence: in a page, making it would cost every visitor 10 KiB.
pub(super) const NOT_MADE_HERE: Error = Error::InvalidParameter {
    field: "evidence",
    rule: "must be 0 here: the API makes evidence, verifyEvidence verifies it",
};

/// A question of which the evidence, too, can be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithEvidence {
    /// The question.
    pub question: Question,
    /// The registry's storage layout, where its code is not this project's: the operator vouches for it.
    pub layout: Option<Layout>,
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
        self.question.block()
    }

    fn is_one_round(&self) -> bool {
        self.question.is_one_round()
    }
}

impl Question {
    pub(super) fn evidence(
        &self,
        registry: &Registry<'_>,
        wallet: Address,
        configured: Option<Layout>,
    ) -> Result<Proved, Halt<Error>> {
        let view = registry.view;
        let (grace, agent, as_of) = (registry.grace_period(), registry.agent_of(wallet), view.as_of());
        let (grace, agent, as_of) = (grace?, agent?, as_of?);
        let layout = configured.unwrap_or(Layout::AGENT_REGISTRY);
        let of_agent = match &agent {
            Some(agent) if agent.operational_scope.len() > MAX_SCOPE_BYTES => {
                return Err(Halt::Error(Error::ScopeTooLong(agent.agent_id)));
            }
            agent => agent.as_ref().map(|agent| (agent.agent_id.0, agent.operational_scope.len())),
        };
        let mut slots = evidence::slots(&layout, wallet, of_agent);
        for _ in 0..ATTEMPTS {
            let key = ProofKey { contract: registry.address, slots };
            let proof = view.proof(&key)?;
            let material = Material {
                wallet,
                registry: registry.address,
                chain_id: proof.chain_id,
                layout,
                slots: &key.slots,
                block: &proof.block,
                proof: &proof.proof,
                code: &proof.code,
            };
            let needed = material.needed_slots().map_err(|error| Halt::Error(reason(error, configured)))?;
            if needed != key.slots {
                slots = needed;
                continue;
            }
            let (evidence, verified) =
                evidence::make(&material).map_err(|error| Halt::Error(reason(error, configured)))?;
            // By the contract itself, at that block.
            let told = Kya::of(wallet, agent, grace, as_of.block_timestamp, as_of).as_proved();
            // As text: the document holds the other one's, and what compares structs would be one more kilobyte.
            if serde_json::to_string(&told).ok().as_deref() != Some(evidence.verdict.get()) {
                let reason = "the contract's own answer at this block is another than its storage gives";
                return Err(Halt::Error(Error::WrongLayout(reason)));
            }
            return Ok(Proved { evidence, valid_until: verified.verdict.valid_until });
        }
        Err(Halt::Error(Error::WrongLayout("its slots change while they are read")))
    }
}

fn reason(error: EvidenceError, configured: Option<Layout>) -> Error {
    match error {
        EvidenceError::OtherCode { .. } if configured.is_some() => {
            Error::WrongLayout("it holds for code with another hash")
        }
        EvidenceError::OtherCode { .. } | EvidenceError::UnknownLayout { .. } => Error::NoLayout,
        error => Error::Evidence(error.to_string()),
    }
}
