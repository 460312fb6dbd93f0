//! `kya terminate`: ends an agent for good.

use alloy::{
    primitives::{Bytes, U256},
    sol_types::SolCall as _,
};
use clap::Args;
use registry_core::{
    eth::abi::{AgentRecord, IAgentRegistry::terminateSelfCall},
    registry::agent::Status,
};
use serde_json::json;

use crate::{
    attest::{shown, typed},
    place::{RegistryAccessOptions, agent_id},
    report::{CommandFailure, Report, Result, say},
    signer::KeyOptions,
    submit::{Caller, ExecutedCall, SendOptions},
};

/// Gas of the relayed call.
const GAS: u64 = 200_000;

/// End an agent for good: its wallet is free again
#[derive(Clone, Debug, Args)]
pub struct Terminate {
    /// The agent's id.
    #[arg(value_parser = agent_id)]
    id: U256,
    #[command(flatten)]
    place: RegistryAccessOptions,
    #[command(flatten)]
    key: KeyOptions,
    #[command(flatten)]
    send: SendOptions,
    /// End it without asking.
    #[arg(long)]
    yes: bool,
}

impl Terminate {
    /// Ends the agent, unless it has ended. Errors: it is not confirmed, or the registry refuses.
    pub async fn run(&self) -> Result<Report> {
        self.place.reads_where_the_user_says()?;
        let (signer, place, id) = (self.key.signer()?, self.place.resolve().await?, self.id);
        let caller = Caller::new(&place, &signer, &self.send).await?;
        let data = Bytes::from(terminateSelfCall { agentId: id }.abi_encode());
        let executed = match caller.resume(&data).await? {
            Some(executed) => Some(executed),
            None => {
                let record = place.record(id).await?;
                let record =
                    record.ok_or_else(|| CommandFailure::refused(format!("there is no agent {id}")))?;
                say(shown(&place, &record));
                match Status::from_number(record.status) {
                    Some(status) if status.has_ended() => {
                        let has_ended = |record: &AgentRecord| {
                            Status::from_number(record.status).is_some_and(Status::has_ended)
                        };
                        caller.wait_until_final(id, has_ended).await?;
                        None
                    }
                    _ => {
                        if !self.yes {
                            typed(&id, "This agent will end for good")?;
                        }
                        Some(caller.execute(&data, GAS).await?)
                    }
                }
            }
        };
        let done = match &executed {
            Some(executed) => format!("Ended agent {id}: {}.", executed.text()),
            None => format!("Agent {id} has ended already."),
        };
        let json =
            json!({ "agentId": id.to_string(), "transaction": executed.as_ref().map(ExecutedCall::json) });
        let report = Report::done(format!("{done} Its wallet can be registered again."), json);
        Ok(report.telling_of(vec![data], caller.journal))
    }
}
