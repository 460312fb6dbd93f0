//! `kya register`: puts an agent on the registry, once.

use std::{fs, path::PathBuf};

use alloy::{
    primitives::{Address, B256, Bytes, U256, keccak256},
    sol_types::SolCall as _,
};
use clap::Args;
use registry_core::{
    eth::{
        abi::{AgentRecord, IAgentRegistry::registerAgentCall},
        address,
    },
    registry::agent::Status,
};
use serde_json::{Value, json};

use crate::{
    place::{RegistryAccess, RegistryAccessOptions, agent_id},
    report::{CommandFailure, Exit, Report, Result},
    sign::{self, Sign},
    signer::{KeyOptions, Signer},
    submit::{Caller, ExecutedCall, SendOptions},
};

/// Put an agent on the registry: its liable wallet, its documents' hashes, its scope
#[derive(Clone, Debug, Args)]
pub struct Register {
    #[command(flatten)]
    place: RegistryAccessOptions,
    #[command(flatten)]
    key: KeyOptions,
    #[command(flatten)]
    send: SendOptions,
    /// The wallet of the person who is liable for the agent. This command does not ask that person, who
    /// attests (`kya attest`) or accepts (`kya accept`).
    #[arg(long, value_name = "0x...", value_parser = address::parse)]
    liable: Address,
    /// The agent's own wallet, where it is not the key's.
    #[arg(long, value_name = "0x...", value_parser = address::parse)]
    wallet: Option<Address>,
    /// The purpose of the agent, in a sentence.
    #[arg(long, value_name = "TEXT")]
    scope: String,
    /// The agent's constitution. The Keccak-256 of its bytes goes to the registry: keep the file.
    #[arg(long, value_name = "FILE")]
    constitution: PathBuf,
    /// The agent's capability manifest, hashed likewise.
    #[arg(long, value_name = "FILE")]
    capabilities: PathBuf,
    /// The agent that made this one.
    #[arg(long, value_name = "ID", default_value_t, value_parser = agent_id)]
    parent: U256,
    /// The agent changes its own code or constitution.
    #[arg(long)]
    self_modifying: bool,
    /// Then send the request that --at names once more, signed by the agent, and print its answer. The key
    /// has to be the agent's own.
    #[arg(long, requires = "at")]
    then: bool,
}

impl Register {
    /// Registers the agent, unless this key has registered it with the same values. Errors: the wallet is
    /// registered with other values or by another key, or the registry refuses.
    pub async fn run(&self) -> Result<Report> {
        let signer = self.key.signer()?;
        if self.then && self.wallet.is_some_and(|wallet| wallet != signer.address()) {
            return Err(CommandFailure::usage(
                "--then signs as the agent, and --wallet is not the key's: leave --then out",
            ));
        }
        let call = self.call()?;
        let call = registerAgentCall { agentWallet: self.wallet.unwrap_or(signer.address()), ..call };
        let place = self.place.resolve().await?;
        let caller = Caller::new(&place, &signer, &self.send).await?;
        let data = Bytes::from(call.abi_encode());
        let (mut resumed, unsettled) = match caller.resume(&data).await {
            // Its relayer may not show the execution, while the record does.
            Err(failure) if failure.exit == Exit::Pending && caller.is_in_flight(&data)? => {
                (None, Some(failure))
            }
            resumed => (resumed?, None),
        };
        if let Some(executed) = &resumed
            && has_ended(&place, &call, executed).await?
        {
            caller.told(std::slice::from_ref(&data))?;
            resumed = None;
        }
        let executed = match resumed {
            Some(executed) => Some(executed),
            // The registry's record decides.
            None => match (place.record_of(call.agentWallet).await?, unsettled) {
                (Some(record), _) => {
                    agreed(&record, &call, signer.address())?;
                    caller.told(&[data])?;
                    caller
                        .wait_until_final(record.agentId, |found| found.agentWallet == call.agentWallet)
                        .await?;
                    return self
                        .reported(&signer, place.chain, &call, record.agentId.saturating_to(), None)
                        .await;
                }
                (None, Some(failure)) => return Err(failure),
                (None, None) => {
                    let gas = 700_000 + 1_500 * call.operationalScope.len() as u64;
                    let executed = caller.execute(&data, gas).await.map_err(|failure| match place.node() {
                        // A read API may serve a cached answer for a minute.
                        None if failure.text.contains("Wallet already registered") => CommandFailure::try_again(
                            "the wallet is registered already, which the read API does not show yet: repeat this in a minute",
                        ),
                        _ => failure,
                    })?;
                    Some(executed)
                }
            },
        };
        let told = executed.as_ref().and_then(|executed| executed.agent);
        let id = match (place.node(), told) {
            (Some(_), Some(id)) => id,
            _ => registered_as(&place, &call, signer.address(), told).await?,
        };
        let report = self.reported(&signer, place.chain, &call, id, executed.as_ref()).await?;
        Ok(report.telling_of(vec![data], caller.journal))
    }

    /// Builds the call, without the agent's wallet.
    fn call(&self) -> Result<registerAgentCall> {
        let hash = |file: &PathBuf| -> Result<B256> {
            let bytes = fs::read(file);
            bytes
                .map(keccak256)
                .map_err(|error| CommandFailure::refused(format!("{}: {error}", file.display())))
        };
        Ok(registerAgentCall {
            haftungsperson: self.liable,
            agentWallet: Address::ZERO,
            constitutionHash: hash(&self.constitution)?,
            capabilityHash: hash(&self.capabilities)?,
            operationalScope: self.scope.clone(),
            parentAgentId: self.parent,
            selfModifying: self.self_modifying,
        })
    }

    async fn reported(
        &self,
        signer: &Signer,
        chain: u64,
        call: &registerAgentCall,
        id: u64,
        executed: Option<&ExecutedCall>,
    ) -> Result<Report> {
        let (wallet, liable) = (call.agentWallet, call.haftungsperson);
        let done = match executed {
            Some(executed) => format!("Registered: agent {id}, wallet {wallet}, by {}.", executed.text()),
            None => format!("Registered already, with the same values: agent {id}, wallet {wallet}."),
        };
        let next = match liable == signer.address() {
            true if liable == wallet => {
                "The agent names itself as liable: no other person stands behind it.".to_owned()
            }
            true => format!("The liable wallet {liable} has registered it itself."),
            false => format!(
                "{liable} is only named as liable until it acts itself: kya attest {id} --key LIABLE, or kya accept {wallet}."
            ),
        };
        let keep =
            "The registration counts as the first attestation; keep it current with kya attest --watch.";
        let mut report = Report::done(
            format!("{done}\n{next}\n{keep}"),
            json!({
                "agentId": id, "wallet": wallet.to_string(), "haftungsperson": liable.to_string(), "chainId": chain,
                "constitutionHash": call.constitutionHash, "capabilityHash": call.capabilityHash,
                "already": executed.is_none(), "transaction": executed.map(ExecutedCall::json),
            }),
        );
        if let (true, Some(url)) = (self.then, &self.place.at) {
            let answer = sign::send(&Sign::get(url.clone()), signer, chain).await?;
            report.text = format!("{}\n{}", report.text, answer.text);
            if let Value::Object(members) = &mut report.json {
                members.insert("answer".to_owned(), answer.json);
            }
            report.exit = answer.exit;
        }
        Ok(report)
    }
}

/// Returns whether the agent that an earlier run has registered has ended since: its wallet is free again.
async fn has_ended(
    place: &RegistryAccess,
    call: &registerAgentCall,
    executed: &ExecutedCall,
) -> Result<bool> {
    let Some(id) = executed.agent else { return Ok(false) };
    let record = place.record(U256::from(id)).await?.filter(|record| record.agentWallet == call.agentWallet);
    Ok(record.and_then(|record| Status::from_number(record.status)).is_some_and(Status::has_ended))
}

/// Returns the id of the registered agent. The relayer's word, `told`, is checked against the record where
/// one is shown; without it the wallet's record has the id.
async fn registered_as(
    place: &RegistryAccess,
    call: &registerAgentCall,
    creator: Address,
    told: Option<u64>,
) -> Result<u64> {
    match told {
        Some(id) => match place.record(U256::from(id)).await? {
            Some(record) if record.agentWallet != call.agentWallet => Err(CommandFailure::refused(format!(
                "registered, and the relayer tells the id {id}, which is of another wallet: {}",
                record.agentWallet
            ))),
            Some(record) => agreed(&record, call, creator).map(|()| id),
            None => Ok(id),
        },
        None => match place.record_of(call.agentWallet).await? {
            Some(record) if agreed(&record, call, creator).is_ok() => Ok(record.agentId.saturating_to()),
            _ => {
                Err(CommandFailure::try_again("registered, which is not shown yet: repeat this in a minute"))
            }
        },
    }
}

/// Checks that a record, which has no setters, has a call's values and this creator, who may end the agent.
fn agreed(record: &AgentRecord, call: &registerAgentCall, creator: Address) -> Result<()> {
    let differs = [
        ("the creator", record.creator == creator),
        ("the liable wallet", record.haftungsperson == call.haftungsperson),
        ("the constitution's hash", record.constitutionHash == call.constitutionHash),
        ("the capability manifest's hash", record.capabilityHash == call.capabilityHash),
        ("the scope", record.operationalScope == call.operationalScope),
        ("the parent", record.parentAgentId == call.parentAgentId),
        ("self-modifying", record.selfModifying == call.selfModifying),
    ];
    let names: Vec<&str> =
        differs.into_iter().filter(|(_, is_same)| !is_same).map(|(name, _)| name).collect();
    if names.is_empty() {
        return Ok(());
    }
    let (id, wallet, names) = (record.agentId, record.agentWallet, names.join(", "));
    Err(CommandFailure::refused(format!(
        "the wallet {wallet} is registered as agent {id}, with other values: {names}. A record cannot be changed: end it with \
         kya terminate {id}, or register another wallet"
    )))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn call() -> registerAgentCall {
        registerAgentCall {
            haftungsperson: Address::repeat_byte(1),
            agentWallet: Address::repeat_byte(2),
            constitutionHash: keccak256("a"),
            capabilityHash: keccak256("b"),
            operationalScope: "c".to_owned(),
            parentAgentId: U256::ZERO,
            selfModifying: false,
        }
    }

    /// An active agent, number 7, as [`call`] registers it.
    pub(crate) fn record() -> AgentRecord {
        let call = call();
        AgentRecord {
            agentId: U256::from(7),
            creator: Address::ZERO,
            haftungsperson: call.haftungsperson,
            agentWallet: call.agentWallet,
            constitutionHash: call.constitutionHash,
            capabilityHash: call.capabilityHash,
            operationalScope: call.operationalScope,
            parentAgentId: U256::ZERO,
            generation: U256::ZERO,
            selfModifying: false,
            registeredAt: 1,
            lastAttestation: 1,
            lastRevenueReport: 0,
            status: 0,
        }
    }

    #[test]
    fn a_record_with_another_value_is_refused_by_its_name() {
        let (call, record) = (call(), record());
        let creator = record.creator;
        agreed(&record, &call, creator).unwrap();
        for (other, name) in [
            (registerAgentCall { haftungsperson: Address::ZERO, ..call.clone() }, "the liable wallet"),
            (registerAgentCall { constitutionHash: B256::ZERO, ..call.clone() }, "the constitution's hash"),
            (
                registerAgentCall { capabilityHash: B256::ZERO, ..call.clone() },
                "the capability manifest's hash",
            ),
            (registerAgentCall { operationalScope: "d".to_owned(), ..call.clone() }, "the scope"),
            (registerAgentCall { parentAgentId: U256::ONE, ..call.clone() }, "the parent"),
            (registerAgentCall { selfModifying: true, ..call.clone() }, "self-modifying"),
        ] {
            let refused = agreed(&record, &other, creator).unwrap_err().text;
            assert!(refused.contains(&format!("other values: {name}. ")), "{refused}");
        }
    }
}
