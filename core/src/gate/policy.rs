//! The policy that decides, once a signature has shown the wallet, whether a route serves its agent.

use std::time::Duration;

use alloy_primitives::Address;

use super::verdict::{DomainWord, Verdict, VerdictAgent};
use crate::{
    eth::timestamp::Timestamp,
    liability::DomainName,
    registry::{kya::Decision, liability::Basis},
};

/// The rules of a route for agents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentPolicy {
    /// The decisions that are served.
    pub allow: Vec<Decision>,
    /// Liable persons.
    pub liable: Wallets,
    /// The domains of further liable persons that are served.
    pub domains: Vec<DomainName>,
    /// Rule on the basis that ties the liable wallet to the agent; `None` accepts any.
    pub liability: Option<LiabilityRule>,
    /// Creators.
    pub creators: Wallets,
    /// Seconds for which the attestation has to be current.
    pub remaining_seconds: u64,
}

/// The bases that may tie a liable wallet to its agent. A registration can name any wallet, so that a name
/// alone proves nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiabilityRule {
    /// The bases that count.
    pub basis: Vec<Basis>,
    /// The greatest age of an attestation by the liable wallet, in seconds.
    pub attested_seconds: u64,
}

impl LiabilityRule {
    /// The bases that count where a policy names liable persons and no bases.
    pub const DEFAULT: [Basis; 3] = [Basis::Accepted, Basis::Registered, Basis::Attested];

    /// Returns the earliest time of an attestation that counts at `now`.
    pub(super) fn attested_since(&self, now: Timestamp) -> Timestamp {
        Timestamp::from_seconds(now.seconds().saturating_sub(self.attested_seconds))
    }

    fn is_met(&self, agent: &VerdictAgent, now: Timestamp) -> bool {
        let is_recent = |at: Timestamp| at >= self.attested_since(now);
        self.basis.contains(&agent.basis)
            && (agent.basis != Basis::Attested || agent.attested_at.is_some_and(is_recent))
    }
}

/// Allowed and denied wallets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wallets {
    /// The only wallets served; empty for all of them.
    pub allow: Vec<Address>,
    /// Wallets that are never served.
    pub deny: Vec<Address>,
}

impl Wallets {
    /// Returns whether a wallet is served. `or_else` decides on one that is neither denied nor allowed.
    fn serve(&self, wallet: Option<Address>, or_else: bool) -> bool {
        wallet.is_none_or(|wallet| !self.deny.contains(&wallet))
            && (or_else || wallet.is_some_and(|wallet| self.allow.contains(&wallet)))
    }
}

/// The reason for which an agent is not served. It does not reveal the wallets that a policy names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum AgentDenial {
    /// The decision is not one that the route serves.
    KyaNotAllowed,
    /// The attestation lapses too soon.
    AttestationTooShort,
    /// The liable person or the creator is not served.
    AgentNotAllowed,
    /// The basis that ties the liable wallet to the agent does not count here.
    #[strum(serialize = "principal_not_allowed")]
    LiableNotProved,
}

impl AgentDenial {
    /// Returns the stable code.
    pub fn code(self) -> &'static str {
        self.into()
    }
}

/// A rule of a policy about a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyRule {
    /// The decision is one that is served.
    Decision,
    /// The liable person is served.
    Liable,
    /// The creator is served.
    Creator,
    /// The basis that ties the liable wallet to the agent counts.
    Basis,
    /// The attestation holds for long enough.
    Remaining,
}

impl PolicyRule {
    /// Returns the names of its settings in a policy's table.
    pub const fn settings(self) -> &'static str {
        match self {
            Self::Decision => "allow",
            Self::Liable => "liable.allow, liable.deny, liable.domains",
            Self::Creator => "creators.allow, creators.deny",
            Self::Basis => "liable.basis, liable.attested-days",
            Self::Remaining => "remaining-seconds",
        }
    }

    /// Returns the denial of an agent that breaks it.
    const fn denial(self) -> AgentDenial {
        match self {
            Self::Decision => AgentDenial::KyaNotAllowed,
            Self::Liable | Self::Creator => AgentDenial::AgentNotAllowed,
            Self::Basis => AgentDenial::LiableNotProved,
            Self::Remaining => AgentDenial::AttestationTooShort,
        }
    }
}

impl AgentPolicy {
    /// Judges a verdict at `now`.
    ///
    /// # Errors
    ///
    /// [`AgentDenial`]: the route does not serve the agent.
    pub fn judge(&self, verdict: &Verdict, now: Timestamp) -> Result<(), AgentDenial> {
        let broken = self.findings(verdict, now).into_iter().find(|(_, holds)| !holds);
        broken.map_or(Ok(()), |(rule, _)| Err(rule.denial()))
    }

    /// Returns whether a basis counts; without a rule, all do.
    pub fn counts(&self, basis: Basis) -> bool {
        self.liability.as_ref().is_none_or(|rule| rule.basis.contains(&basis))
    }

    /// Returns whether each rule holds for a verdict at `now`, in the order in which the rules decide.
    pub fn findings(&self, verdict: &Verdict, now: Timestamp) -> [(PolicyRule, bool); 5] {
        let (agent, now) = (verdict.agent.as_ref(), verdict.time(now, Duration::ZERO));
        let has_domain = agent.is_some_and(|agent| agent.domains != DomainWord::Silent);
        let serves_all = self.liable.allow.is_empty() && self.domains.is_empty();
        let serves_liable = self.liable.serve(agent.map(|agent| agent.liable), serves_all || has_domain);
        let serves_creator =
            self.creators.serve(agent.map(|agent| agent.creator), self.creators.allow.is_empty());
        // An agent that its domain disowns is refused under all policies.
        let is_disowned = agent.is_some_and(|agent| agent.domains == DomainWord::Disowned);
        let is_proved = |rule: &LiabilityRule| agent.is_some_and(|agent| rule.is_met(agent, now));
        let is_tied = !is_disowned && self.liability.as_ref().is_none_or(is_proved);
        let remaining = match (verdict.decision, verdict.compliant_until) {
            (Decision::Provision, Some(until)) => until.seconds().saturating_sub(now.seconds()),
            (Decision::Provision, None) => u64::MAX,
            _ => 0,
        };
        let lasts = verdict.holds_at(now, Duration::ZERO) && remaining >= self.remaining_seconds;
        [
            (PolicyRule::Decision, self.allow.contains(&verdict.decision)),
            (PolicyRule::Liable, serves_liable),
            (PolicyRule::Creator, serves_creator),
            (PolicyRule::Basis, is_tied),
            (PolicyRule::Remaining, lasts),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::kya::{Kya, Reason};
    use crate::{registry::liability::Liability, registry::liability::PinnedRecord, token::StatedAt};
    use alloy_primitives::U256;

    const LIABLE: Address = Address::repeat_byte(1);
    const CREATOR: Address = Address::repeat_byte(2);

    fn verdict(decision: Decision, until: Option<u64>) -> Verdict {
        let agent = VerdictAgent::new(registration(CREATOR), "", None).unwrap();
        let agent = (decision != Decision::Deny).then_some(agent);
        let (compliant_until, as_of) = (until.map(Timestamp::from_seconds), StatedAt::number(1));
        Verdict { decision, reasons: Vec::new(), agent, compliant_until, as_of }
    }

    fn provisioned() -> AgentPolicy {
        AgentPolicy { allow: vec![Decision::Provision], ..AgentPolicy::default() }
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
            let policy = AgentPolicy { liable, ..provisioned() };
            assert_eq!(judged(&policy, &verdict(Decision::Provision, None)).is_ok(), served, "{policy:?}");
        }
        let creators = Wallets { allow: vec![], deny: vec![CREATOR] };
        let policy = AgentPolicy { creators, ..provisioned() };
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
            for (rule, served) in [(Some(&default), by_default), (Some(&any), by_any), (None, true)] {
                let policy = AgentPolicy { liability: rule.cloned(), ..provisioned() };
                let refused = Err(AgentDenial::LiableNotProved);
                let expected = if served { Ok(()) } else { refused };
                assert_eq!(judged(&policy, &verdict), expected, "{basis:?} {attested_at:?} {rule:?}");
                // A disowned agent is refused with a rule on liability and without.
                assert_eq!(judged(&policy, &verdict.with_domains(DomainWord::Disowned)), refused);
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
        let (agent_id, agent_wallet) = (U256::from(7), Address::ZERO);
        PinnedRecord { agent_id, creator, agent_wallet, haftungsperson: LIABLE, registered_at: 1 }
    }

    #[test]
    fn an_attestation_has_to_be_current_for_long_enough() {
        let policy = AgentPolicy { remaining_seconds: 60, ..provisioned() };
        assert_eq!(judged(&policy, &verdict(Decision::Provision, None)), Ok(()), "it never lapses");
        let at_once = AgentPolicy { remaining_seconds: 0, ..policy.clone() };
        for (policy, first) in [(&policy, 1_060), (&at_once, 1_000)] {
            for (until, served) in [(first, Ok(())), (first - 1, Err(AgentDenial::AttestationTooShort))] {
                assert_eq!(judged(policy, &verdict(Decision::Provision, Some(until))), served, "{until}");
            }
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
