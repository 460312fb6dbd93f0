//! Which agents a route serves, once a signature has shown which wallet asks.

use std::sync::Arc;

use alloy_primitives::{Address, B256, keccak256};

use crate::{
    eth::timestamp::Timestamp,
    liability::{Acceptance, DomainName},
    registry::{
        kya::{Decision, Kya, KyaAnswer, Reason},
        liability::{Basis, Liability, PinnedRecord},
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
    /// The block that the registry was read at, or of the change that was announced since.
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
    /// What ties that wallet to the agent.
    pub basis: Basis,
    /// When that wallet last attested, where this is the basis.
    pub attested_at: Option<Timestamp>,
    /// The acceptance, where this is the basis.
    pub acceptance: Option<Arc<Acceptance>>,
    /// What the files of domains say of the liable wallet and the agent.
    pub domains: DomainWord,
    /// When it was registered.
    pub registered_at: Timestamp,
    /// The Keccak-256 of its operational scope.
    pub scope_hash: B256,
}

/// What the files of a gate's domains say of a liable wallet and an agent that names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DomainWord {
    /// Nothing.
    Silent,
    /// The wallet is that of a domain of the policy.
    Named,
    /// A domain of the wallet says that the agent is not its own.
    Disowned,
}

impl VerdictAgent {
    /// What ties the liable wallet to the agent, as it is stated.
    pub fn liability(&self) -> Liability {
        let Self { liable: wallet, basis, attested_at, .. } = *self;
        Liability { wallet, basis, attested_at, parent_basis: None }
    }

    /// The last second of the acceptance that the basis rests on.
    pub fn accepted_until(&self) -> Option<Timestamp> {
        self.acceptance.as_ref().map(|acceptance| Timestamp::from_seconds(acceptance.not_after))
    }

    /// `told` is the liability that a read API tells, beside the record. `None` where they contradict one another.
    /// An acceptance that the API saw is none that this gate's request presents.
    fn new(record: PinnedRecord, scope: &str, told: Option<Liability>) -> Option<Self> {
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

    /// What a token about `wallet` states of it.
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

    /// The verdict after a change that was announced at `block`. A change for the worse counts until a
    /// verdict of that block or a later one is known; one for the better is left to that verdict.
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

    /// The verdict with a change of its agent.
    fn with_agent(&self, change: impl FnOnce(&mut VerdictAgent)) -> Self {
        let mut verdict = self.clone();
        verdict.agent.as_mut().map(change);
        verdict
    }

    /// The verdict on an agent whose liable wallet has accepted it.
    #[must_use]
    pub fn accepted(&self, acceptance: Acceptance) -> Self {
        self.with_agent(|agent| {
            (agent.basis, agent.attested_at) = (Basis::Accepted, None);
            agent.acceptance = Some(Arc::new(acceptance));
        })
    }

    /// The verdict on an agent whose liable wallet last attested then.
    #[must_use]
    pub fn attested(&self, at: Timestamp) -> Self {
        self.with_agent(|agent| (agent.basis, agent.attested_at) = (Basis::Attested, Some(at)))
    }

    /// The verdict on an agent of which the files of domains say this. One that is disowned is only named.
    #[must_use]
    pub fn with_domains(&self, word: DomainWord) -> Self {
        self.with_agent(|agent| {
            agent.domains = word;
            if word == DomainWord::Disowned {
                (agent.basis, agent.attested_at) = (Basis::Named, None);
            }
        })
    }

    /// Whether the verdict still holds, by its own times.
    pub fn holds_at(&self, now: Timestamp) -> bool {
        self.compliant_until.is_none_or(|until| now.seconds() <= until.seconds())
    }
}

/// What a route asks of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentPolicy {
    /// The decisions that are served.
    pub allow: Vec<Decision>,
    /// Liable persons.
    pub liable: Wallets,
    /// The domains of further liable persons that are served.
    pub domains: Vec<DomainName>,
    /// What ties the liable wallet to the agent, where it matters.
    pub liability: Option<LiabilityRule>,
    /// Creators.
    pub creators: Wallets,
    /// Seconds for which the attestation has to be current.
    pub remaining_seconds: u64,
}

/// What has to tie a liable wallet to its agent. A registration can name any wallet, so that a name alone
/// proves nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiabilityRule {
    /// The bases that count.
    pub basis: Vec<Basis>,
    /// How old an attestation by the liable wallet may be, in seconds.
    pub attested_seconds: u64,
}

impl LiabilityRule {
    /// The rule wherever a policy names liable persons and says no more.
    pub const DEFAULT: [Basis; 3] = [Basis::Accepted, Basis::Registered, Basis::Attested];

    fn is_met(&self, agent: &VerdictAgent, now: Timestamp) -> bool {
        let is_recent = |at: Timestamp| now.seconds().saturating_sub(at.seconds()) <= self.attested_seconds;
        agent.domains != DomainWord::Disowned
            && self.basis.contains(&agent.basis)
            && (agent.basis != Basis::Attested || agent.attested_at.is_some_and(is_recent))
    }
}

/// Wallets that are served, or not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wallets {
    /// The only ones served; empty for all of them.
    pub allow: Vec<Address>,
    /// Those not served, whatever else is said.
    pub deny: Vec<Address>,
}

impl Wallets {
    /// `or_else` is whether a wallet is served that is neither denied nor among those allowed.
    fn serve(&self, wallet: Option<Address>, or_else: bool) -> bool {
        wallet.is_none_or(|wallet| !self.deny.contains(&wallet))
            && (or_else || wallet.is_some_and(|wallet| self.allow.contains(&wallet)))
    }
}

/// Why an agent is not served. Which wallets a policy names is not told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum AgentDenial {
    /// The decision is not one that the route serves.
    KyaNotAllowed,
    /// The attestation lapses too soon.
    AttestationTooShort,
    /// The liable person or the creator is not served.
    AgentNotAllowed,
    /// What ties the liable wallet to the agent does not count here.
    #[strum(serialize = "principal_not_allowed")]
    LiableNotProved,
}

impl AgentDenial {
    /// The stable code.
    pub fn code(self) -> &'static str {
        self.into()
    }
}

impl AgentPolicy {
    /// Judges a verdict at this time.
    ///
    /// # Errors
    ///
    /// [`AgentDenial`]: the route does not serve the agent.
    pub fn judge(&self, verdict: &Verdict, now: Timestamp) -> Result<(), AgentDenial> {
        let broken = self.findings(verdict, now).into_iter().find(|(.., holds)| !holds);
        broken.map_or(Ok(()), |(_, denial, _)| Err(denial))
    }

    /// What each rule finds of a verdict at this time, in the order in which they decide: the settings, why the
    /// agent is not served where one is broken, and whether it holds.
    pub fn findings(&self, verdict: &Verdict, now: Timestamp) -> [(&'static str, AgentDenial, bool); 5] {
        let agent = verdict.agent.as_ref();
        let has_domain = agent.is_some_and(|agent| agent.domains != DomainWord::Silent);
        let serves_all = self.liable.allow.is_empty() && self.domains.is_empty();
        let serves_liable = self.liable.serve(agent.map(|agent| agent.liable), serves_all || has_domain);
        let serves_creator =
            self.creators.serve(agent.map(|agent| agent.creator), self.creators.allow.is_empty());
        let is_proved = |rule: &LiabilityRule| agent.is_some_and(|agent| rule.is_met(agent, now));
        let remaining = match (verdict.decision, verdict.compliant_until) {
            (Decision::Provision, Some(until)) => until.seconds().saturating_sub(now.seconds()),
            (Decision::Provision, None) => u64::MAX,
            _ => 0,
        };
        let lasts = verdict.holds_at(now) && remaining >= self.remaining_seconds;
        [
            ("allow", AgentDenial::KyaNotAllowed, self.allow.contains(&verdict.decision)),
            ("liable.allow, liable.deny, liable.domains", AgentDenial::AgentNotAllowed, serves_liable),
            ("creators.allow, creators.deny", AgentDenial::AgentNotAllowed, serves_creator),
            (
                "liable.basis, liable.attested-days",
                AgentDenial::LiableNotProved,
                self.liability.as_ref().is_none_or(is_proved),
            ),
            ("remaining-seconds", AgentDenial::AttestationTooShort, lasts),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloy_primitives::U256;

    const LIABLE: Address = Address::repeat_byte(1);
    const CREATOR: Address = Address::repeat_byte(2);

    fn verdict(decision: Decision, until: Option<u64>) -> Verdict {
        let agent = VerdictAgent::new(registration(CREATOR), "", None).unwrap();
        Verdict {
            decision,
            reasons: Vec::new(),
            agent: (decision != Decision::Deny).then_some(agent),
            compliant_until: until.map(Timestamp::from_seconds),
            as_of: StatedAt::number(1),
        }
    }

    fn judged(policy: &AgentPolicy, verdict: &Verdict) -> Result<(), AgentDenial> {
        policy.judge(verdict, Timestamp::from_seconds(1_000))
    }

    #[test]
    fn only_allowed_decisions_are_served() {
        use Decision::{Deny, Provision, RequestRenewal};
        for (allow, served) in [
            (vec![Provision], [true, false, false]),
            (vec![Provision, RequestRenewal], [true, true, false]),
            (vec![Provision, RequestRenewal, Deny], [true, true, true]),
        ] {
            let policy = AgentPolicy { allow, ..AgentPolicy::default() };
            let judged =
                [Provision, RequestRenewal, Deny].map(|decision| judged(&policy, &verdict(decision, None)));
            assert_eq!(judged.map(|judged| judged.is_ok()), served, "{policy:?}");
        }
    }

    #[test]
    fn liable_persons_and_creators_are_allowed_or_refused() {
        let other = Address::repeat_byte(9);
        for (allow, deny, served) in [
            (vec![], vec![], true),
            (vec![LIABLE], vec![], true),
            (vec![other], vec![], false),
            (vec![LIABLE], vec![LIABLE], false),
            (vec![], vec![other], true),
        ] {
            let liable = Wallets { allow, deny };
            let policy = AgentPolicy { allow: vec![Decision::Provision], liable, ..AgentPolicy::default() };
            assert_eq!(judged(&policy, &verdict(Decision::Provision, None)).is_ok(), served, "{policy:?}");
        }
        let creators = Wallets { allow: vec![], deny: vec![CREATOR] };
        let policy = AgentPolicy { allow: vec![Decision::Provision], creators, ..AgentPolicy::default() };
        assert_eq!(judged(&policy, &verdict(Decision::Provision, None)), Err(AgentDenial::AgentNotAllowed));
    }

    #[test]
    fn a_liable_wallet_that_is_only_named_is_refused_unless_the_policy_says_that_it_counts() {
        let default = LiabilityRule { basis: LiabilityRule::DEFAULT.to_vec(), attested_seconds: 90 };
        let any = LiabilityRule { basis: vec![Basis::Named, Basis::Unknown], ..default.clone() };
        for (basis, attested_at, by_default, by_any) in [
            (Basis::Accepted, None, true, false),
            (Basis::Registered, None, true, false),
            (Basis::Attested, Some(910), true, false),
            (Basis::Attested, Some(909), false, false),
            (Basis::Attested, None, false, false),
            (Basis::Named, None, false, true),
            (Basis::Unknown, None, false, true),
        ] {
            let mut verdict = verdict(Decision::Provision, None);
            let attested_at = attested_at.map(Timestamp::from_seconds);
            verdict.agent = verdict.agent.map(|agent| VerdictAgent { basis, attested_at, ..agent });
            for (rule, served) in [(&default, by_default), (&any, by_any)] {
                let liability = Some(rule.clone());
                let policy =
                    AgentPolicy { allow: vec![Decision::Provision], liability, ..AgentPolicy::default() };
                let expected = if served { Ok(()) } else { Err(AgentDenial::LiableNotProved) };
                assert_eq!(judged(&policy, &verdict), expected, "{basis:?} {attested_at:?} {rule:?}");
            }
        }
    }

    #[test]
    fn the_api_proves_no_more_than_the_record_and_its_events() {
        let said = |wallet, basis| Liability { basis, ..told(wallet) };
        for (creator, said, expected) in [
            (CREATOR, None, Some(Basis::Unknown)),
            (LIABLE, None, Some(Basis::Registered)),
            (LIABLE, Some(said(LIABLE, Basis::Named)), Some(Basis::Registered)),
            (CREATOR, Some(said(LIABLE, Basis::Attested)), Some(Basis::Attested)),
            (CREATOR, Some(said(LIABLE, Basis::Named)), Some(Basis::Named)),
            (CREATOR, Some(said(LIABLE, Basis::Accepted)), Some(Basis::Unknown)),
            (CREATOR, Some(said(LIABLE, Basis::Registered)), None),
            (LIABLE, Some(said(CREATOR, Basis::Registered)), None),
        ] {
            let agent = VerdictAgent::new(registration(creator), "", said);
            assert_eq!(agent.map(|agent| agent.basis), expected, "{creator} {said:?}");
        }
    }

    fn told(wallet: Address) -> Liability {
        Liability { wallet, basis: Basis::Unknown, attested_at: None, parent_basis: None }
    }

    fn registration(creator: Address) -> PinnedRecord {
        PinnedRecord {
            agent_id: U256::from(7),
            creator,
            agent_wallet: Address::ZERO,
            haftungsperson: LIABLE,
            registered_at: 1,
        }
    }

    #[test]
    fn an_attestation_has_to_be_current_for_long_enough() {
        let policy =
            AgentPolicy { allow: vec![Decision::Provision], remaining_seconds: 60, ..AgentPolicy::default() };
        assert_eq!(judged(&policy, &verdict(Decision::Provision, Some(1_060))), Ok(()));
        assert_eq!(
            judged(&policy, &verdict(Decision::Provision, Some(1_059))),
            Err(AgentDenial::AttestationTooShort)
        );
        assert_eq!(judged(&policy, &verdict(Decision::Provision, None)), Ok(()), "it never lapses");
        let policy = AgentPolicy { remaining_seconds: 0, ..policy };
        for (until, served) in [(1_000, Ok(())), (999, Err(AgentDenial::AttestationTooShort))] {
            assert_eq!(judged(&policy, &verdict(Decision::Provision, Some(until))), served, "{until}");
        }
    }

    #[test]
    fn a_change_for_the_worse_counts_until_a_verdict_of_its_block() {
        use Decision::{Deny, Provision, RequestRenewal};
        let before = verdict(Provision, Some(2_000));
        let suspended = before.clone().changed_to(RequestRenewal, Some(Reason::Suspended), 2);
        assert_eq!((suspended.decision, suspended.compliant_until), (RequestRenewal, None));
        assert_eq!(suspended.reasons, [Reason::Suspended]);
        assert_eq!(before.clone().changed_to(RequestRenewal, None, 1), before, "the verdict knows of it");
        assert_eq!(suspended.clone().changed_to(Provision, None, 3), suspended, "for the better");
        assert_eq!(before.changed_to(Deny, None, 2).agent, None);
    }

    #[test]
    fn a_verdict_of_the_api_is_read_as_one_of_the_chain() {
        use crate::{eth::as_of::AsOf, registry::fixture::agent};
        let registered = agent(7);
        let (wallet, grace) = (registered.agent_wallet, U256::from(604_800));
        for (agent, now) in [(Some(registered.clone()), 10), (Some(registered), 900_000), (None, 10)] {
            let kya = Kya::of(wallet, agent, grace, Timestamp::from_seconds(now), AsOf::default());
            let body = serde_json::to_vec(&kya).unwrap();
            assert_eq!(Verdict::from_api(&body, wallet), Some(Verdict::from(&kya)));
            assert_eq!(Verdict::from_api(&body, LIABLE), None, "of another wallet");
            // An API of an earlier version says nothing of the basis.
            let mut older: serde_json::Value = serde_json::from_slice(&body).unwrap();
            older.as_object_mut().unwrap().remove("liability");
            assert_eq!(Verdict::from_api(older.to_string().as_bytes(), wallet), Some(Verdict::from(&kya)));
        }
        assert_eq!(Verdict::from_api(b"{}", wallet), None);
    }
}
