//! Know your agent: the verdict on a wallet.

mod answer;
mod list;
mod past;
mod range;

use alloy_primitives::{Address, U256};
use serde::{Deserialize, Serialize};

use crate::{
    eth::as_of::AsOf,
    eth::json::{self, is_false},
    eth::timestamp::Timestamp,
    registry::agent::{Agent, AgentId, Status},
    registry::compliance::{Compliance, lapses_at},
    registry::liability::{Liability, PinnedRecord},
};
pub use answer::{KyaAnswer, KyaAnswerAgent};
pub use list::{KyaFailure, KyaItem, KyaList, WalletInput};
pub use past::{
    FORMER_SHOWN, FormerAgent, InactiveAncestor, Known, Past, Registration, Unknown, UnknownBecause,
};
pub use range::KyaRange;

/// The verdict on a wallet (`service.md` section 2), the answer of `/kya/:wallet`.
///
/// How to read it: compliant means provision; registered but not compliant means request an attestation; not
/// registered means deny, or request a registration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Kya {
    /// The reason that the request's acceptance does not hold: the member that differs from the record or
    /// breaks a rule, `header`, `signature` or `time`. Absent if it holds, or the request has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acceptance_problem: Option<String>,
    /// The wallet.
    #[serde(with = "json::Checksummed")]
    pub wallet: Address,
    /// True if a live agent has this wallet.
    pub is_registered: bool,
    /// True if that agent is Active and its attestation is current.
    pub is_compliant: bool,
    /// The agent in brief; `null` if there is none.
    pub agent: Option<KyaAgent>,
    /// The agent's liable wallet and the basis of its liability; absent without an agent. It changes no
    /// decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub liability: Option<Liability>,
    /// Time of the verdict by the host's clock, or its block's time if that is later.
    pub checked_at: Timestamp,
    /// The decision. It follows from `isRegistered` and `isCompliant` alone.
    pub decision: Decision,
    /// The reasons for the decision, the most important first.
    pub reasons: Vec<Reason>,
    /// The last second at which the attestation is current; `null` if the agent is not compliant, or the
    /// attestation never lapses.
    pub compliant_until: Option<Timestamp>,
    /// The block the registry was read at.
    pub as_of: AsOf,
    /// The wallet's registration, now or before.
    pub registration: Registration,
    /// Ended agents that had the wallet, newest first; or `unknown`.
    pub former_agents: Known<Vec<FormerAgent>>,
    /// Present and true if there are more former agents than are shown.
    #[serde(skip_serializing_if = "is_false")]
    pub former_agents_truncated: bool,
    /// The agent's ancestors that are not Active, the nearest first; or `unknown`.
    pub ancestors_not_active: Known<Vec<InactiveAncestor>>,
    /// The reason that something is unknown; absent if nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown_because: Option<UnknownBecause>,
    /// The first second at which the attestation is no longer current; `None` if no time changes the verdict.
    #[serde(skip)]
    pub valid_until: Option<Timestamp>,
}

/// The action of a provider on a wallet (`service.md` section 4, the intended use of `/kya/:wallet`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Serve it: registered and compliant.
    Provision,
    /// Ask it to renew its attestation: registered, but not compliant.
    RequestRenewal,
    /// Refuse it, or ask it to register: not registered.
    Deny,
}

/// The reason for a decision, or a remark beside it. A closed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Reason {
    /// Decisive: no live agent has the wallet.
    NotRegistered,
    /// Decisive: a regulator has stopped the agent, which cannot attest until it is reactivated.
    Suspended,
    /// Decisive: a regulator has ended the agent, and the registry still names it for the wallet.
    Revoked,
    /// Decisive: the agent's own side has ended it, and the registry still names it for the wallet.
    Terminated,
    /// Decisive: the last attestation is older than the grace period.
    AttestationExpired,
    /// Remark without effect on the decision: a former agent of the wallet was revoked.
    FormerAgentRevoked,
    /// Remark without effect on the decision: a former agent of the wallet was terminated.
    FormerAgentTerminated,
    /// Remark without effect on the decision: an ancestor of the agent is not Active.
    AncestorNotActive,
}

/// An agent's record, reduced to the part that a verdict on its wallet needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct KyaAgent {
    /// The agent's id.
    pub agent_id: AgentId,
    /// The wallet that registered it.
    #[serde(with = "json::Checksummed")]
    pub creator: Address,
    /// The wallet of the liable person.
    #[serde(with = "json::Checksummed")]
    pub haftungsperson: Address,
    /// The agent's own wallet.
    #[serde(with = "json::Checksummed")]
    pub agent_wallet: Address,
    /// Its purpose: free text, given at registration.
    pub operational_scope: String,
    /// Its status.
    pub status: Status,
    /// Time of registration.
    pub registered_at: Timestamp,
    /// Time of its last attestation.
    pub last_attestation: Timestamp,
}

impl KyaAgent {
    /// Returns the members of the record that an acceptance pins.
    #[must_use]
    pub fn pinned(&self) -> PinnedRecord {
        PinnedRecord {
            agent_id: self.agent_id.0,
            creator: self.creator,
            agent_wallet: self.agent_wallet,
            haftungsperson: self.haftungsperson,
            registered_at: self.registered_at.seconds(),
        }
    }
}

impl Kya {
    /// Judges `wallet` at `now` or the block's time, whichever is later: a clock that is behind makes no
    /// lapsed agent compliant. `agent` is its live agent at the block `as_of`. The past is unknown until
    /// [`with_past`](Self::with_past).
    pub fn of(
        wallet: Address,
        agent: Option<Agent>,
        grace_seconds: U256,
        now: Timestamp,
        as_of: AsOf,
    ) -> Self {
        let now = now.max(as_of.block_timestamp);
        let compliance = agent.as_ref().map(|agent| Compliance::of(agent, U256::ZERO, grace_seconds, now));
        let is_compliant = compliance.is_some_and(|compliance| compliance.is_compliant());
        let valid_until =
            agent.as_ref().filter(|_| is_compliant).and_then(|agent| lapses_at(agent, grace_seconds));
        let is_root = agent.as_ref().is_none_or(|agent| agent.parent_agent_id.0.is_zero());
        let ancestors = if is_root { Ok(Vec::new()) } else { Err(UnknownBecause::NotScanned) };
        Self {
            acceptance_problem: None,
            wallet,
            is_registered: agent.is_some(),
            is_compliant,
            liability: agent.as_ref().map(Liability::of_record),
            agent: agent.map(KyaAgent::from),
            checked_at: now,
            decision: Decision::of(compliance.is_some(), is_compliant),
            reasons: Reason::of(compliance),
            compliant_until: valid_until.map(|end| Timestamp::from_seconds(end.seconds().saturating_sub(1))),
            as_of,
            registration: if compliance.is_some() { Registration::Current } else { Registration::Unknown },
            former_agents: Known::Unknown(Unknown::Unknown),
            former_agents_truncated: false,
            ancestors_not_active: ancestors.into(),
            unknown_because: Some(UnknownBecause::NotScanned),
            valid_until,
        }
    }

    /// Reduces the verdict to the part that evidence proves: without the events of the liable wallet, the
    /// wallet's past and the agent's ancestors.
    #[must_use]
    pub fn as_proved(mut self) -> Self {
        if self.is_registered {
            self.ancestors_not_active = Known::Unknown(Unknown::Unknown);
        }
        self.liability = self.liability.map(Liability::as_proved);
        self.unknown_because = Some(UnknownBecause::NotProved);
        self
    }

    /// Adds the wallet's past, which changes no decision.
    #[must_use]
    pub fn with_past(mut self, past: Past) -> Self {
        let Past { former, ancestors } = past;
        // A root has no ancestors, even where the past is unknown.
        let ancestors = match self.ancestors_not_active {
            Known::Known(none) => Ok(none),
            Known::Unknown(_) => ancestors,
        };
        let ended = |status| former.iter().flatten().any(|agent: &FormerAgent| agent.status == status);
        let is_below = ancestors.as_ref().is_ok_and(|ancestors| !ancestors.is_empty());
        let remarks = [
            (ended(Status::Revoked), Reason::FormerAgentRevoked),
            (ended(Status::Terminated), Reason::FormerAgentTerminated),
            (is_below, Reason::AncestorNotActive),
        ];
        self.reasons.extend(remarks.into_iter().filter_map(|(holds, remark)| holds.then_some(remark)));
        self.registration = match &former {
            _ if self.is_registered => Registration::Current,
            Ok(former) if former.is_empty() => Registration::Never,
            Ok(_) => Registration::Former,
            Err(_) => Registration::Unknown,
        };
        self.unknown_because = former.as_ref().err().or(ancestors.as_ref().err()).copied();
        self.former_agents_truncated = former.as_ref().is_ok_and(|former| former.len() > FORMER_SHOWN);
        let shown = former.map(|mut former| {
            former.truncate(FORMER_SHOWN);
            former
        });
        self.former_agents = shown.into();
        self.ancestors_not_active = ancestors.into();
        self
    }
}

impl Decision {
    /// Returns the decision on a wallet.
    pub(crate) const fn of(is_registered: bool, is_compliant: bool) -> Self {
        match (is_registered, is_compliant) {
            (true, true) => Self::Provision,
            (true, false) => Self::RequestRenewal,
            (false, _) => Self::Deny,
        }
    }
}

impl Reason {
    /// Returns the reasons against serving a wallet; none if its agent is compliant.
    fn of(agent: Option<Compliance>) -> Vec<Self> {
        let Some(Compliance { status, attestation_current, .. }) = agent else {
            return vec![Self::NotRegistered];
        };
        let of_status = match status {
            Status::Active => None,
            Status::Suspended => Some(Self::Suspended),
            Status::Revoked => Some(Self::Revoked),
            Status::Terminated => Some(Self::Terminated),
        };
        of_status.into_iter().chain((!attestation_current).then_some(Self::AttestationExpired)).collect()
    }
}

impl From<Agent> for KyaAgent {
    fn from(agent: Agent) -> Self {
        Self {
            agent_id: agent.agent_id,
            creator: agent.creator,
            haftungsperson: agent.haftungsperson,
            agent_wallet: agent.agent_wallet,
            operational_scope: agent.operational_scope,
            status: agent.status,
            registered_at: agent.registered_at,
            last_attestation: agent.last_attestation,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::fixture::agent;
    use Decision::{Deny, Provision, RequestRenewal};
    use Reason::{AttestationExpired, NotRegistered, Revoked, Suspended, Terminated};

    const GRACE: u64 = 604_800;

    /// Returns the verdict on an agent of this status, `age` seconds after its attestation.
    fn verdict(status: Status, age: u64) -> Kya {
        let mut agent = agent(1);
        agent.status = status;
        agent.last_attestation = Timestamp::from_seconds(1_000);
        let now = Timestamp::from_seconds(1_000 + age);
        Kya::of(agent.agent_wallet, Some(agent), U256::from(GRACE), now, AsOf::default())
    }

    #[test]
    fn every_decision_has_its_reasons() {
        for (status, age, decision, reasons) in [
            (Status::Active, 0, Provision, vec![]),
            (Status::Active, GRACE, Provision, vec![]),
            (Status::Active, GRACE + 1, RequestRenewal, vec![AttestationExpired]),
            (Status::Suspended, 0, RequestRenewal, vec![Suspended]),
            (Status::Suspended, GRACE + 1, RequestRenewal, vec![Suspended, AttestationExpired]),
            (Status::Revoked, 0, RequestRenewal, vec![Revoked]),
            (Status::Terminated, 0, RequestRenewal, vec![Terminated]),
        ] {
            let kya = verdict(status, age);
            assert_eq!((kya.decision, kya.reasons), (decision, reasons), "{status:?} after {age} s");
        }
        let expired = serde_json::to_value(verdict(Status::Suspended, GRACE + 1)).unwrap();
        assert_eq!(expired["reasons"].to_string(), r#"["SUSPENDED","ATTESTATION_EXPIRED"]"#);
        assert_eq!(expired["decision"], "request_renewal");
        assert!(expired["compliantUntil"].is_null());
        let unregistered = unregistered();
        assert_eq!((unregistered.decision, unregistered.reasons), (Deny, vec![NotRegistered]));
        assert_eq!(unregistered.compliant_until, None);
    }

    fn unregistered() -> Kya {
        Kya::of(Address::ZERO, None, U256::from(GRACE), Timestamp::default(), AsOf::default())
    }

    #[test]
    fn an_unknown_past_is_unknown_and_never_a_clean_record() {
        let unknown = unregistered().with_past(Past::unknown(UnknownBecause::TooManyAgents));
        assert_eq!(unknown.registration, Registration::Unknown);
        for (kya, because) in [(unknown, "TOO_MANY_AGENTS"), (unregistered(), "NOT_SCANNED")] {
            let json = serde_json::to_value(&kya).unwrap();
            let members = ["registration", "formerAgents", "unknownBecause"].map(|member| &json[member]);
            assert_eq!(members, ["unknown", "unknown", because]);
        }
        let root = serde_json::to_value(unregistered()).unwrap();
        assert_eq!(root["ancestorsNotActive"].to_string(), "[]", "a root, or no agent, has none");
    }

    #[test]
    fn a_verdict_says_what_its_record_proves_of_the_liable_wallet() {
        let id = U256::from;
        let own = Agent { haftungsperson: agent(1).creator, ..agent(1) };
        let child = Agent { parent_agent_id: AgentId(id(2)), ..own.clone() };
        for (agent, members, proved) in [
            (agent(1), r#""basis":"unknown""#, r#""basis":"unknown""#),
            (own, r#""basis":"registered""#, r#""basis":"registered""#),
            (child, r#""basis":"registered","parentBasis":"unknown""#, r#""basis":"registered""#),
        ] {
            let wallet = agent.haftungsperson.to_checksum(None);
            let kya =
                Kya::of(agent.agent_wallet, Some(agent), id(GRACE), Timestamp::default(), AsOf::default());
            for (kya, members) in [(kya.clone(), members), (kya.as_proved(), proved)] {
                let json = serde_json::to_string(&kya).unwrap();
                let liability = format!(r#""liability":{{"wallet":"{wallet}",{members}}}"#);
                assert!(json.contains(&liability), "{json}");
            }
        }
        assert_eq!(unregistered().liability, None);
    }

    #[test]
    fn a_wallet_registered_too_often_is_cut_and_says_so() {
        let former = |id: u64| FormerAgent {
            agent_id: id.into(),
            status: Status::Terminated,
            registered_at: Timestamp::from_seconds(id),
            ended_at: None,
        };
        let past = Past { former: Ok((1..=21).rev().map(former).collect()), ancestors: Ok(Vec::new()) };
        let kya = unregistered().with_past(past);
        let Known::Known(shown) = &kya.former_agents else { panic!("unknown") };
        assert_eq!((shown.len(), shown[0].agent_id.0), (FORMER_SHOWN, U256::from(21)));
        assert!(kya.former_agents_truncated);
    }
}
