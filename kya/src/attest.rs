//! `kya attest`: attests that agents comply, once or whenever an attestation is due.

use std::{collections::BTreeSet, net::SocketAddr};

use alloy::{
    primitives::{Bytes, U256},
    sol_types::SolCall as _,
};
use clap::Args;
use registry_core::eth::{
    abi::{AgentRecord, IAgentRegistry::attestComplianceCall},
    timestamp::Timestamp,
};
use registry_core::registry::agent::Status;
use serde_json::json;

use crate::{
    place::{RegistryAccess, RegistryAccessOptions, agent_id},
    report::{CommandFailure, Exit, Report, Result, say},
    signer::{KeyOptions, Signer},
    submit::{Caller, SendOptions},
    watch,
};

/// Gas of a relayed attestation.
pub(crate) const GAS: u64 = 150_000;

/// Attest for the agents of these ids, and with --watch again whenever it is due
#[derive(Clone, Debug, Args)]
pub struct Attest {
    /// The agents' ids: those that you answer for. A list that others can add to is no source of them.
    #[arg(required = true, value_parser = agent_id)]
    pub ids: Vec<U256>,
    #[command(flatten)]
    pub(crate) place: RegistryAccessOptions,
    #[command(flatten)]
    pub(crate) key: KeyOptions,
    #[command(flatten)]
    pub(crate) send: SendOptions,
    /// Attest without asking, also as a liable wallet for agents that others have registered.
    #[arg(long)]
    pub(crate) yes: bool,
    /// Stay, and attest at a random time in the last third of each grace period.
    #[arg(long, requires = "rpc")]
    watch: bool,
    /// Address at which Prometheus reads metrics.
    #[arg(long, value_name = "ADDRESS:PORT", requires = "watch")]
    pub(crate) metrics: Option<SocketAddr>,
    /// Interval at which the records are read.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) every: u64,
}

impl Attest {
    /// Attests for all of the agents. Errors: the key may not attest for one of them, or the registry
    /// refuses.
    pub async fn run(&self) -> Result<Report> {
        self.place.reads_where_the_user_says()?;
        let (signer, place) = (self.key.signer()?, self.place.resolve().await?);
        let mut records = Vec::new();
        for id in &self.ids.iter().collect::<BTreeSet<_>>() {
            let record = place.record(**id).await?;
            let record = record.ok_or_else(|| CommandFailure::refused(format!("there is no agent {id}")))?;
            is_party(&record, &signer)?;
            // A watched agent may be suspended or have ended: the others are still attested for.
            if !self.watch {
                is_active(&record)?;
            }
            say(shown(&place, &record));
            self.confirmed(&record, &signer)?;
            records.push(record);
        }
        if self.watch {
            return watch::run(self, &place, &signer, records).await;
        }
        let caller = Caller::new(&place, &signer, &self.send).await?;
        let (mut lines, mut documents, mut calls) = (Vec::new(), Vec::new(), Vec::new());
        for record in &records {
            let (id, data) = (record.agentId, call(record.agentId));
            let executed = match caller.resume(&data).await? {
                Some(executed) => executed,
                // One attestation more does no harm.
                None => caller.execute(&data, GAS).await?,
            };
            calls.push(data);
            lines.push(format!("Attested for agent {id}: {}.", executed.text()));
            documents.push(json!({ "agentId": id.to_string(), "transaction": executed.json() }));
            if self.ids.len() > 1 {
                say(format_args!("{}\n", lines.last().map_or("", String::as_str)));
            }
        }
        lines.push("An attestation holds for the registry's grace period, 7 days by default.".to_owned());
        let report = Report::done(lines.join("\n"), json!({ "attested": documents }));
        Ok(report.telling_of(calls, caller.journal))
    }

    /// Asks for confirmation where a liable wallet would tie itself to an agent that others have registered.
    fn confirmed(&self, record: &AgentRecord, signer: &Signer) -> Result<()> {
        let by = signer.address();
        let is_stranger = by == record.haftungsperson && by != record.creator && by != record.agentWallet;
        if !is_stranger || self.yes {
            return Ok(());
        }
        typed(&record.agentId, "You will stand behind this agent, which others have registered")
    }
}

/// Asks the user to type the agent's id on the terminal. Errors: it was not typed.
pub(crate) fn typed(id: &U256, words: &str) -> Result<()> {
    let asked = || -> std::io::Result<String> {
        say(format_args!("{words}. Type its id to go on: "));
        let mut line = String::new();
        std::io::stdin().read_line(&mut line)?;
        Ok(line)
    };
    match asked().is_ok_and(|line| line.trim() == id.to_string()) {
        true => Ok(()),
        false => Err(CommandFailure::new(Exit::NotConfirmed, "nothing was done: not confirmed")),
    }
}

pub(crate) fn call(id: U256) -> Bytes {
    attestComplianceCall { agentId: id }.abi_encode().into()
}

/// Checks that the agent is Active, as the registry does.
fn is_active(record: &AgentRecord) -> Result<()> {
    let (id, status) = (record.agentId, Status::from_number(record.status));
    if status == Some(Status::Active) {
        return Ok(());
    }
    let status = status.map_or("of an unknown status", Status::name);
    Err(CommandFailure::refused(format!("agent {id} is {status}: only Active agents can be attested")))
}

/// Checks that the signer is a party to the agent, as the registry does.
fn is_party(record: &AgentRecord, signer: &Signer) -> Result<()> {
    let (by, id) = (signer.address(), record.agentId);
    match [record.agentWallet, record.creator, record.haftungsperson].contains(&by) {
        true => Ok(()),
        false => Err(CommandFailure::refused(format!(
            "{by} is neither wallet nor creator nor liable wallet of agent {id}"
        ))),
    }
}

/// Renders a record, one line per member. Texts of others are quoted, so that none of their lines reads as
/// one of these.
pub(crate) fn shown(place: &RegistryAccess, record: &AgentRecord) -> String {
    let status = Status::from_number(record.status).map_or("unknown", Status::name);
    format!(
        "chain       {}\nregistry    {}\nagent       {}, {status}\nwallet      {}\ncreator     {}\nliable      {}\n\
         registered  {}\nattested    {}\nscope       {:?}\n",
        place.chain,
        place.registry,
        record.agentId,
        record.agentWallet,
        record.creator,
        record.haftungsperson,
        Timestamp::from_seconds(record.registeredAt),
        Timestamp::from_seconds(record.lastAttestation),
        record.operationalScope,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::register::tests::record;

    #[test]
    fn a_watch_begins_with_a_suspended_agent_and_a_single_attestation_does_not() {
        let key = alloy::signers::local::PrivateKeySigner::random();
        let suspended = AgentRecord { status: 1, agentWallet: key.address(), ..record() };
        let signer = Signer::Local(key);
        is_party(&suspended, &signer).unwrap();
        assert!(is_active(&suspended).unwrap_err().text.contains("Suspended"));
        is_active(&record()).unwrap();
        assert!(is_party(&record(), &signer).unwrap_err().text.contains("is neither wallet"));
    }
}
