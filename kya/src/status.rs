//! `kya status`: shows the registry's record of a wallet or an agent, and whether it is compliant.

use std::{fmt, str::FromStr};

use alloy::primitives::{Address, U256};
use clap::Args;
use registry_core::{
    eth::{
        abi::AgentRecord,
        address::{self, AddressError},
        timestamp::Timestamp,
    },
    gate::AttestedQuery,
    liability::{self, Basis},
    registry::agent::Status as AgentStatus,
};
use reqwest::Url;
use serde_json::{Value, json};

use crate::{
    attest,
    chain::RpcNode,
    discovery,
    place::{Reader, RegistryAccess, RegistryAccessOptions, agent_id, from_api, registered_as},
    report::{CommandFailure, Exit, Report, Result},
};

/// Show the record of a wallet or an agent: exit status 0 where it is compliant, 1 where it is not
#[derive(Clone, Debug, Args)]
pub struct Status {
    /// A wallet, or an agent's id.
    subject: StatusSubject,
    #[command(flatten)]
    place: RegistryAccessOptions,
}

impl Status {
    /// Reads and shows the status. Errors: it cannot be read.
    pub async fn run(&self) -> Result<Report> {
        let place = self.place.resolve().await?;
        let found = match &place.reader {
            Reader::Node(node) => match self.subject.record(&place).await? {
                Some(record) => Some((AgentStanding::read(&place, node, &record).await?, record)),
                None => None,
            },
            Reader::Api(api) => AgentStanding::ask(&place, api, self.subject).await?,
        };
        let Some((standing, record)) = found else {
            let text = format!("{}: no agent is registered; kya register does that.", self.subject);
            let json =
                json!({ "subject": self.subject.to_string(), "isRegistered": false, "isCompliant": false });
            return Ok(Report { exit: Exit::Refused, ..Report::done(text, json) });
        };
        let AgentStanding { basis, is_compliant, until } = &standing;
        let status = AgentStatus::from_number(record.status);
        let next = match (is_compliant, status) {
            (true, _) => "compliant",
            (false, Some(AgentStatus::Active)) => {
                "not compliant: its attestation has lapsed; kya attest renews it"
            }
            (false, Some(AgentStatus::Suspended)) => "not compliant: a regulator has suspended it",
            (false, _) => "not compliant: it has ended for good",
        };
        let shown = attest::shown(&place, &record);
        let current = until.map(|until| format!("current     until {until}\n")).unwrap_or_default();
        let text = format!("{shown}basis       {}\n{current}{next}", basis.name());
        let json = json!({
            "agentId": record.agentId.to_string(), "wallet": record.agentWallet.to_string(),
            "creator": record.creator.to_string(), "haftungsperson": record.haftungsperson.to_string(), "status": status.map(AgentStatus::name), "isRegistered": true,
            "isCompliant": is_compliant, "basis": basis, "compliantUntil": until.map(|until| until.to_string()),
            "registeredAt": Timestamp::from_seconds(record.registeredAt),
            "lastAttestation": Timestamp::from_seconds(record.lastAttestation),
            "constitutionHash": record.constitutionHash, "capabilityHash": record.capabilityHash,
            "operationalScope": record.operationalScope, "chainId": place.chain, "registry": place.registry.to_string(),
        });
        Ok(Report {
            exit: if *is_compliant { Exit::Done } else { Exit::Refused },
            ..Report::done(text, json)
        })
    }
}

/// Wallet or agent that the command is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StatusSubject {
    Wallet(Address),
    Agent(U256),
}

impl FromStr for StatusSubject {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.bytes().all(|byte| byte.is_ascii_digit()).then(|| agent_id(text)) {
            Some(Ok(id)) => Ok(Self::Agent(id)),
            _ => address::parse(text).map(Self::Wallet),
        }
    }
}

impl fmt::Display for StatusSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wallet(wallet) => wallet.fmt(f),
            Self::Agent(id) => id.fmt(f),
        }
    }
}

impl StatusSubject {
    async fn record(self, place: &RegistryAccess) -> Result<Option<AgentRecord>> {
        match self {
            Self::Wallet(wallet) => place.record_of(wallet).await,
            Self::Agent(id) => place.record(id).await,
        }
    }
}

/// Facts about an agent beyond its record.
#[derive(Debug, PartialEq, Eq)]
struct AgentStanding {
    /// Tie between the liable wallet and the agent; unknown where it cannot be read.
    basis: Basis,
    is_compliant: bool,
    /// Last second of compliance; `None` where the agent is not compliant, or the read API does not say.
    until: Option<Timestamp>,
}

impl AgentStanding {
    /// Reads the standing and the record from a read API, at the block of its verdict on the wallet; `None`
    /// where there is no agent.
    async fn ask(
        place: &RegistryAccess,
        api: &Url,
        subject: StatusSubject,
    ) -> Result<Option<(Self, AgentRecord)>> {
        let no_verdict = || CommandFailure::try_again("the read API gives no verdict");
        let wallet = match subject {
            StatusSubject::Wallet(wallet) => wallet,
            StatusSubject::Agent(id) => match place.record(id).await? {
                Some(record) => record.agentWallet,
                None => return Ok(None),
            },
        };
        let kya = discovery::api(api, &format!("kya/{wallet}"), None).await?.ok_or_else(no_verdict)?;
        let block = kya.pointer("/asOf/blockNumber").and_then(Value::as_u64).ok_or_else(no_verdict)?;
        let id = match (subject, registered_as(&kya)?) {
            (StatusSubject::Agent(id), _) | (StatusSubject::Wallet(_), Some(id)) => id,
            (StatusSubject::Wallet(_), None) => return Ok(None),
        };
        let agent = discovery::api(api, &format!("agent/{id}"), Some(block)).await?.ok_or_else(no_verdict)?;
        let record = from_api(&agent)?;
        Ok(Some((Self::of(&record, &kya, &agent), record)))
    }

    async fn read(place: &RegistryAccess, node: &RpcNode, record: &AgentRecord) -> Result<Self> {
        let until = record.lastAttestation.saturating_add(node.grace_period(place.registry).await?);
        let block = node.block("latest").await?;
        let time = crate::now().seconds().max(block.timestamp.to());
        let is_active = AgentStatus::from_number(record.status) == Some(AgentStatus::Active);
        let is_compliant = is_active && time <= until;
        let query = AttestedQuery {
            registry: place.registry,
            agent: record.agentId,
            liable: record.haftungsperson,
            block: block.number.to(),
            since: Timestamp::default(),
        };
        let basis = match record.creator == record.haftungsperson {
            true => Basis::Registered,
            // A node that does not list the events leaves it unknown.
            false => match node.ask(query).await {
                Ok(Some(at)) if time <= at.seconds().saturating_add(liability::ATTESTED_SECONDS) => {
                    Basis::Attested
                }
                _ => Basis::Unknown,
            },
        };
        let until = is_compliant.then(|| Timestamp::from_seconds(until));
        Ok(Self { basis, is_compliant, until })
    }

    /// Combines a read API's answers on the wallet, which another agent may have by now, and on the agent.
    fn of(record: &AgentRecord, kya: &Value, agent: &Value) -> Self {
        let is_present =
            kya.pointer("/agent/agentId").and_then(Value::as_u64).map(U256::from) == Some(record.agentId);
        let is_compliant = is_present && kya.get("isCompliant") == Some(&Value::Bool(true));
        let until = kya.get("compliantUntil").and_then(Value::as_str).and_then(Timestamp::parse);
        let basis = agent.pointer("/liability/basis").and_then(Value::as_str).and_then(Basis::from_name);
        let basis = basis.unwrap_or(Basis::Unknown);
        Self { basis, is_compliant, until: until.filter(|_| is_compliant) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::register::tests::record;

    #[test]
    fn of_a_read_api_until_when_is_what_its_verdict_on_this_agent_says() {
        let until = "2026-11-29T12:00:00.000Z";
        let agent = json!({ "liability": { "basis": "attested" } });
        let kya = json!({ "isCompliant": true, "compliantUntil": until, "agent": { "agentId": 7 } });
        let standing = AgentStanding::of(&record(), &kya, &agent);
        assert_eq!((standing.basis, standing.is_compliant), (Basis::Attested, true));
        assert_eq!(standing.until.unwrap().to_string(), until);
        let lapsed = json!({ "isCompliant": false, "compliantUntil": null, "agent": { "agentId": 7 } });
        let another = json!({ "isCompliant": true, "compliantUntil": until, "agent": { "agentId": 8 } });
        let forged = json!({ "liability": { "basis": "attested\ncompliant" } });
        for (kya, agent) in [(lapsed, Value::Null), (another, Value::Null), (Value::Null, forged)] {
            let expected = AgentStanding { basis: Basis::Unknown, is_compliant: false, until: None };
            assert_eq!(AgentStanding::of(&record(), &kya, &agent), expected, "{kya} {agent}");
        }
    }
}
