//! `kya status`: what the registry says of a wallet or an agent.

use alloy::primitives::{Address, U256};
use clap::Args;
use registry_core::{
    eth::{abi::IAgentRegistry::attestationGracePeriodCall, timestamp::Timestamp},
    gate::AttestedQuery,
    registry::agent::Status as AgentStatus,
};
use serde_json::json;

use crate::{
    attest, discovery,
    place::{Place, PlaceOptions, Reader},
    report::{Exit, Failure, Report, Result},
};

/// Say what the registry says of a wallet or an agent: exit status 0 where it is compliant, 1 where it is not
#[derive(Clone, Debug, Args)]
pub struct Status {
    /// A wallet, or an agent's id.
    subject: String,
    #[command(flatten)]
    place: PlaceOptions,
}

impl Status {
    /// Reads and shows it.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn run(&self) -> Result<Report> {
        let place = self.place.resolve().await?;
        let (wallet, id) = (self.subject.parse::<Address>().ok(), self.subject.parse::<U256>().ok());
        let record = match (wallet, id) {
            (Some(wallet), _) if self.subject.len() == 42 => place.record_of(wallet).await?,
            (_, Some(id)) => place.record(id).await?,
            _ => return Err(Failure::refused("neither a wallet nor an agent's id")),
        };
        let Some(record) = record else {
            let text = format!("{}: no agent is registered; kya register does that.", self.subject);
            let json = json!({ "subject": self.subject, "isRegistered": false, "isCompliant": false });
            return Ok(Report { exit: Exit::Refused, ..Report::done(text, json) });
        };
        let (basis, grace, time) = basis_and_time(&place, &record).await?;
        let until = record.lastAttestation + grace;
        let status = AgentStatus::from_number(record.status);
        let is_compliant = status == Some(AgentStatus::Active) && time <= until;
        let next = match (is_compliant, status) {
            (true, _) => "compliant",
            (false, Some(AgentStatus::Active)) => {
                "not compliant: its attestation has lapsed; kya attest renews it"
            }
            (false, Some(AgentStatus::Suspended)) => "not compliant: a regulator has suspended it",
            (false, _) => "not compliant: it has ended for good",
        };
        let shown = attest::shown(&place, &record);
        let until = Timestamp::from_seconds(until);
        let text = format!("{shown}basis       {basis}\ncurrent     until {until}\n{next}");
        let json = json!({
            "agentId": record.agentId.to_string(), "wallet": record.agentWallet, "creator": record.creator,
            "haftungsperson": record.haftungsperson, "status": status.map(AgentStatus::name), "isRegistered": true,
            "isCompliant": is_compliant, "basis": basis, "compliantUntil": until,
            "registeredAt": Timestamp::from_seconds(record.registeredAt),
            "lastAttestation": Timestamp::from_seconds(record.lastAttestation),
            "constitutionHash": record.constitutionHash, "capabilityHash": record.capabilityHash,
            "operationalScope": record.operationalScope, "chainId": place.chain, "registry": place.registry,
        });
        Ok(Report { exit: if is_compliant { Exit::Done } else { Exit::Refused }, ..Report::done(text, json) })
    }
}

/// What ties the liable wallet to the agent; the grace period; and the time.
async fn basis_and_time(
    place: &Place,
    record: &registry_core::eth::abi::AgentRecord,
) -> Result<(String, u64, u64)> {
    let now = crate::now().seconds();
    match &place.reader {
        Reader::Node(node) => {
            let grace = node.call(place.registry, &attestationGracePeriodCall {}).await?;
            let grace =
                grace.map_err(|revert| Failure::refused(format!("the registry refuses: {revert}")))?;
            let block = node.block("latest").await?;
            let time = now.max(block.timestamp.to());
            let query = AttestedQuery {
                registry: place.registry,
                agent: record.agentId,
                liable: record.haftungsperson,
                block: block.number.to(),
            };
            let basis = match record.creator == record.haftungsperson {
                true => "registered",
                // A node that does not list the events leaves it unknown.
                false => match node.ask(query).await {
                    Ok(Some(at)) if time <= at.seconds() + registry_core::liability::ATTESTED_SECONDS => {
                        "attested"
                    }
                    _ => "unknown",
                },
            };
            Ok((basis.to_owned(), grace.saturating_to(), time))
        }
        Reader::Api(api) => {
            let agent = discovery::api(api, &format!("agent/{}", record.agentId)).await?.unwrap_or_default();
            let basis =
                agent.pointer("/liability/basis").and_then(serde_json::Value::as_str).unwrap_or("unknown");
            let until = agent.pointer("/compliance/attestationCurrent").and_then(serde_json::Value::as_bool);
            // The API says whether it is current, and not for how long.
            let grace = if until == Some(true) { now.saturating_sub(record.lastAttestation) } else { 0 };
            Ok((basis.to_owned(), grace, now))
        }
    }
}
