//! A verdict as the gate judges it, with the findings on its agent's liable wallet.

use std::{sync::Arc, time::Duration};

use alloy_primitives::{Address, B256, keccak256};

use crate::{
    eth::timestamp::Timestamp,
    liability::Acceptance,
    registry::{
        kya::{Decision, Kya, KyaAnswer, Reason},
        liability::{ATTESTED_SECONDS, Basis, Liability, PinnedRecord},
    },
    token::{Stated, StatedAt},
};

/// The part of a verdict that policies and upstreams need, from the chain or from the read API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The decision.
    pub decision: Decision,
    /// Its reasons, the most important first.
    pub reasons: Vec<Reason>,
    /// The agent, where one is registered.
    pub agent: Option<VerdictAgent>,
    /// The last second at which the attestation is current; `None` where the agent is not compliant, and
    /// where the attestation never lapses.
    pub compliant_until: Option<Timestamp>,
    /// The block at which the registry was read, or the block of a change that was announced since.
    pub as_of: StatedAt,
}

/// The agent of a [`Verdict`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerdictAgent {
    /// Its id, in decimal.
    pub id: String,
    /// The wallet that registered it.
    pub creator: Address,
    /// The wallet of the liable person.
    pub liable: Address,
    /// Basis that ties that wallet to the agent.
    pub basis: Basis,
    /// Time of that wallet's last attestation, where this is the basis.
    pub attested_at: Option<Timestamp>,
    /// The acceptance, where this is the basis.
    pub acceptance: Option<Arc<Acceptance>>,
    /// Word of domains' files on the liable wallet and the agent.
    pub domains: DomainWord,
    /// Time of registration.
    pub registered_at: Timestamp,
    /// The Keccak-256 of its operational scope.
    pub scope_hash: B256,
}

/// The word of the files of a gate's domains on a liable wallet and an agent that names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DomainWord {
    /// No domain of the policy has the wallet, and none disowns the agent.
    Silent,
    /// The wallet is that of a domain of the policy.
    Named,
    /// A domain of the wallet says that the agent is not its own.
    Disowned,
}

impl VerdictAgent {
    /// Returns the liability as a token states it.
    pub fn liability(&self) -> Liability {
        let Self { liable: wallet, basis, attested_at, .. } = *self;
        Liability { wallet, basis, attested_at, parent_basis: None }
    }

    /// Returns the last second of the acceptance, where this is the basis.
    pub fn accepted_until(&self) -> Option<Timestamp> {
        self.acceptance.as_ref().map(|acceptance| Timestamp::from_seconds(acceptance.not_after))
    }

    /// Makes an agent of its record and of `told`, the liability by a read API; `None` where they contradict
    /// each other. An acceptance that the API saw does not count here: this gate's request may lack it.
    pub(super) fn new(record: PinnedRecord, scope: &str, told: Option<Liability>) -> Option<Self> {
        let (creator, liable) = (record.creator, record.haftungsperson);
        let is_registered = creator == liable;
        let contradicts =
            |told: Liability| told.wallet != liable || told.basis == Basis::Registered && !is_registered;
        if told.is_some_and(contradicts) {
            return None;
        }
        let basis = match told.map(|told| told.basis) {
            _ if is_registered => Basis::Registered,
            None | Some(Basis::Accepted) => Basis::Unknown,
            Some(basis) => basis,
        };
        Some(Self {
            id: record.agent_id.to_string(),
            creator,
            liable,
            basis,
            attested_at: told.filter(|_| basis == Basis::Attested).and_then(|told| told.attested_at),
            acceptance: None,
            domains: DomainWord::Silent,
            registered_at: Timestamp::from_seconds(record.registered_at),
            scope_hash: keccak256(scope),
        })
    }
}

impl From<&Kya> for Verdict {
    fn from(kya: &Kya) -> Self {
        let agent = kya.agent.as_ref();
        let agent = agent
            .and_then(|agent| VerdictAgent::new(agent.pinned(), &agent.operational_scope, kya.liability));
        Self {
            decision: kya.decision,
            reasons: kya.reasons.clone(),
            agent,
            compliant_until: kya.compliant_until,
            as_of: kya.as_of.into(),
        }
    }
}

impl Verdict {
    /// Reads an answer of the read API about this wallet; `None` for anything else.
    pub fn from_api(body: &[u8], wallet: Address) -> Option<Self> {
        let answer = KyaAnswer::parse(body).filter(|answer| answer.wallet == wallet)?;
        let agent = match answer.agent {
            None => None,
            Some(agent) => {
                Some(VerdictAgent::new(agent.pinned()?, &agent.operational_scope, answer.liability)?)
            }
        };
        Some(Self {
            decision: answer.decision,
            reasons: answer.reasons,
            agent,
            compliant_until: answer.compliant_until,
            as_of: answer.as_of.into(),
        })
    }

    /// Returns the verdict as a token about `wallet` states it.
    pub fn stated(&self, wallet: Address) -> Stated {
        Stated {
            wallet,
            decision: self.decision,
            reasons: self.reasons.clone(),
            liable: self.agent.as_ref().map(|agent| agent.liable),
            compliant_until: self.compliant_until,
            as_of: self.as_of,
        }
    }

    /// Returns the verdict after a change that was announced at `block`. A change for the worse counts until
    /// a verdict of that block or a later one is known; one for the better waits for that verdict.
    #[must_use]
    pub fn changed_to(self, decision: Decision, reason: Option<Reason>, block: u64) -> Self {
        let rank = |decision| match decision {
            Decision::Provision => 2,
            Decision::RequestRenewal => 1,
            Decision::Deny => 0,
        };
        if self.as_of.block_number >= block || rank(decision) >= rank(self.decision) {
            return self;
        }
        let agent = self.agent.filter(|_| decision != Decision::Deny);
        Self {
            decision,
            reasons: reason.into_iter().collect(),
            agent,
            compliant_until: None,
            as_of: StatedAt::number(block),
        }
    }

    /// Returns the verdict with a changed agent.
    fn with_agent(&self, change: impl FnOnce(&mut VerdictAgent)) -> Self {
        let mut verdict = self.clone();
        verdict.agent.as_mut().map(change);
        verdict
    }

    /// Returns the verdict on an agent that its liable wallet has accepted.
    #[must_use]
    pub fn accepted(&self, acceptance: Acceptance) -> Self {
        self.with_agent(|agent| {
            (agent.basis, agent.attested_at) = (Basis::Accepted, None);
            agent.acceptance = Some(Arc::new(acceptance));
        })
    }

    /// Returns the verdict on an agent for which its liable wallet last attested at `at`. The verdict stays
    /// the same where that is too long before `now` to be a basis.
    #[must_use]
    pub fn attested(&self, at: Timestamp, now: Timestamp) -> Self {
        let age = self.time(now, Duration::ZERO).seconds().saturating_sub(at.seconds());
        if age > ATTESTED_SECONDS {
            return self.clone();
        }
        self.with_agent(|agent| (agent.basis, agent.attested_at) = (Basis::Attested, Some(at)))
    }

    /// Returns the verdict with the word of domains' files. The basis of a disowned agent becomes "named".
    #[must_use]
    pub fn with_domains(&self, word: DomainWord) -> Self {
        self.with_agent(|agent| {
            agent.domains = word;
            if word == DomainWord::Disowned {
                (agent.basis, agent.attested_at) = (Basis::Named, None);
            }
        })
    }

    /// Returns the clock's time or, where the clock is behind that, the time of the verdict's block plus the
    /// time since it was read.
    pub(super) fn time(&self, now: Timestamp, since_read: Duration) -> Timestamp {
        let block_time = self.as_of.block_timestamp.unwrap_or_default().as_millis();
        let passed = u64::try_from(since_read.as_millis()).unwrap_or(u64::MAX);
        now.max(Timestamp::from_millis(block_time.saturating_add(passed)))
    }

    /// Returns whether a verdict that was read `since_read` ago still holds by its own times.
    pub fn holds_at(&self, now: Timestamp, since_read: Duration) -> bool {
        let now = self.time(now, since_read);
        self.compliant_until.is_none_or(|until| now.seconds() <= until.seconds())
    }
}
