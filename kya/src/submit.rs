//! A call of the registry, carried out once: signed, kept in the journal, sent, and [settled](crate::settle).
//! A command that is repeated after a kill finds the journal, and sends the very same bytes again or nothing.

use std::{fmt::Write as _, path::PathBuf, time::Duration};

use alloy::{
    consensus::{SignableTransaction as _, TxEip1559, TxEnvelope},
    eips::{eip2718::Encodable2718 as _, eip2930::AccessList},
    primitives::{B256, Bytes, TxKind, U64, U256, aliases::U48},
};
use clap::{Args, ValueEnum};
use registry_core::{
    eth::{
        abi::{AgentRecord, IAgentRegistry::getAgentCall},
        redact::public_origin,
        rpc::revert::Revert,
    },
    forward::{ForwardRequest, SignedRequest, TypedData, domain},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    chain::RpcNode,
    fees::Fees,
    journal::{Journal, JournaledCall, SentCall},
    place::RegistryAccess,
    relayer::Relayer,
    report::{CommandFailure, Result},
    settle::{SettledCall, in_time},
    signer::Signer,
};

/// Seconds for which a signed request is valid, so that a relayer cannot keep it for later.
const REQUEST_VALID: u64 = 3_600;

/// Finality that a result has to have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Finality {
    /// Mined.
    #[default]
    Latest,
    /// Mined, at or below the chain's safe block.
    Safe,
    /// Mined, at or below the chain's finalized block.
    Finalized,
}

impl Finality {
    pub(crate) const fn tag(self) -> &'static str {
        match self {
            Self::Latest => "latest",
            Self::Safe => "safe",
            Self::Finalized => "finalized",
        }
    }
}

/// Options of sending a call, and of waiting for its result.
#[derive(Clone, Debug, Args)]
pub struct SendOptions {
    /// Send a transaction of the key's own, which pays its gas, in place of a relayer's.
    #[arg(long, conflicts_with = "relayer", requires = "rpc")]
    pub direct: bool,
    /// Wait until the result is this final.
    #[arg(long, value_enum, default_value_t)]
    pub finality: Finality,
    /// Wait for so many blocks, the result's own counted.
    #[arg(long, value_name = "BLOCKS", default_value_t = 1)]
    pub confirmations: u64,
    /// Give up waiting after so many seconds, a year at most. Nothing is lost then: repeat the command.
    #[arg(long, value_name = "SECONDS", default_value_t = 180, value_parser = clap::value_parser!(u64).range(..=31_536_000))]
    pub timeout: u64,
    /// The directory for what is in flight, by default kya in the user's directory for state.
    #[arg(long, value_name = "DIR", env = "KYA_STATE_DIR")]
    pub state: Option<PathBuf>,
}

/// Returns the default directory. A relative path would be another for each working directory.
fn state_directory() -> Option<PathBuf> {
    let var = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    // systemd's own, the user's own, or beside the user's files.
    var("STATE_DIRECTORY")
        .or_else(|| Some(var("XDG_STATE_HOME")?.join("kya")))
        .or_else(|| Some(var("HOME")?.join(".local/state/kya")))
}

/// A call that was executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutedCall {
    /// Transaction hash.
    pub transaction: B256,
    /// Number of the transaction's block.
    pub block: u64,
    /// Blocks from the transaction's own to the newest.
    pub confirmations: u64,
    /// Agent that the registry's event or the relayer names.
    pub agent: Option<u64>,
    /// True if an earlier run of the command had sent it.
    pub is_repeated: bool,
}

impl ExecutedCall {
    /// Describes it for people.
    pub fn text(&self) -> String {
        let Self { transaction, block, confirmations, is_repeated, .. } = self;
        let earlier = if *is_repeated { ", sent by an earlier run of this command" } else { "" };
        format!("transaction {transaction} in block {block}, {confirmations} confirmations{earlier}")
    }

    /// Returns it as JSON for programs.
    pub fn json(&self) -> Value {
        json!({
            "txHash": self.transaction, "blockNumber": self.block, "confirmations": self.confirmations,
            "repeated": self.is_repeated,
        })
    }
}

/// Makes calls of the registry for one signer.
#[derive(Debug)]
pub struct Caller<'a> {
    pub(crate) place: &'a RegistryAccess,
    pub(crate) signer: &'a Signer,
    pub(crate) options: &'a SendOptions,
    pub(crate) journal: Journal,
}

impl<'a> Caller<'a> {
    /// Opens the journal once no other command of this signer is running. Errors: there is no directory for
    /// the journal, or it cannot be opened.
    pub async fn new(
        place: &'a RegistryAccess,
        signer: &'a Signer,
        options: &'a SendOptions,
    ) -> Result<Self> {
        let missing = "no directory for what is in flight: give --state, as HOME is no absolute path";
        let state =
            options.state.clone().or_else(state_directory).ok_or_else(|| CommandFailure::usage(missing))?;
        let journal = Journal::open(&state, place.chain, place.registry, signer.address()).await?;
        Ok(Self { place, signer, options, journal })
    }

    /// Settles the calls of earlier runs, and returns the execution of this very call if it was not long ago.
    /// Another executed call is kept for its own command's repetition. Errors: a call is not settled yet.
    pub async fn resume(&self, call: &Bytes) -> Result<Option<ExecutedCall>> {
        for kept in self.journal.calls()? {
            let is_this = kept.call == *call;
            if kept.is_executed && !is_this {
                continue;
            }
            let settled = self.settle(kept.clone(), false).await?;
            let is_recent = kept.is_recent_at(self.time().await?);
            match settled {
                SettledCall::Executed(executed) if is_recent => {
                    self.journal.executed(&kept.call)?;
                    if is_this {
                        return Ok(Some(ExecutedCall { is_repeated: true, ..executed }));
                    }
                }
                _ => self.journal.forget(&[kept.call])?,
            }
        }
        Ok(None)
    }

    /// Returns whether the journal has this call: sent, and not printed. Errors: the journal cannot be read.
    pub fn is_in_flight(&self, call: &Bytes) -> Result<bool> {
        Ok(self.journal.calls()?.iter().any(|kept| kept.call == *call))
    }

    /// Executes a call, of which nothing is in flight. Errors: it is refused, fails, or is not settled yet:
    /// then the journal has it.
    pub async fn execute(&self, call: &Bytes, gas: u64) -> Result<ExecutedCall> {
        for _ in 0..2 {
            let until = Instant::now() + Duration::from_secs(self.options.timeout);
            let pending = in_time(until, self.signed(call.clone(), gas)).await?;
            let granted = pending.sent.relayed_gas().filter(|granted| *granted < gas);
            self.journal.keep(&pending)?;
            crash_point("before_send");
            match self.settle(pending, true).await {
                Ok(SettledCall::Executed(executed)) => {
                    crash_point("before_report");
                    self.journal.executed(call)?;
                    return Ok(executed);
                }
                Ok(SettledCall::Failed(mut failure)) => {
                    self.journal.forget(std::slice::from_ref(call))?;
                    if let Some(granted) = granted {
                        let bytes = call.len();
                        let _ = write!(
                            failure.text,
                            "; the relayer gives {granted} gas, which may be too little for {bytes} bytes of data"
                        );
                    }
                    return Err(failure);
                }
                // Another program of this key was faster.
                Ok(SettledCall::Lost) => self.journal.forget(std::slice::from_ref(call))?,
                Err(failure) => return Err(failure),
            }
        }
        Err(CommandFailure::try_again(
            "the key's nonce was used by something else, or the request's time was over: repeat the command",
        ))
    }

    /// Waits until an agent's record fulfils `holds` at the finality asked for; not at all without an RPC
    /// endpoint. Errors: it takes too long.
    pub async fn wait_until_final(&self, agent: U256, holds: impl Fn(&AgentRecord) -> bool) -> Result<()> {
        let (Some(node), tag) = (self.place.node(), self.options.finality.tag()) else { return Ok(()) };
        let until = Instant::now() + Duration::from_secs(self.options.timeout);
        loop {
            let found = node.call_at(self.place.registry, &getAgentCall { agentId: agent }, tag).await;
            // Before the registry's first block there is no such contract.
            if found.is_ok_and(|found| found.is_ok_and(|record| holds(&record))) {
                return Ok(());
            }
            if Instant::now() >= until {
                return Err(CommandFailure::pending(
                    "done, and not as final yet as asked: repeat the command",
                ));
            }
            sleep(Duration::from_secs(1)).await;
        }
    }

    /// Forgets executed calls, once they are printed. Errors: the journal cannot be written.
    pub fn told(&self, calls: &[Bytes]) -> Result<()> {
        self.journal.forget(calls)
    }

    async fn signed(&self, call: Bytes, gas: u64) -> Result<JournaledCall> {
        let at = self.time().await?;
        let sent = match &self.place.relayer {
            Some(relayer) if !self.options.direct => self.relayed(relayer, &call, gas, at).await?,
            _ => self.transaction(&call).await?,
        };
        Ok(JournaledCall { call, at, sent, is_executed: false })
    }

    async fn relayed(&self, relayer: &Relayer, call: &Bytes, gas: u64, time: u64) -> Result<SentCall> {
        let (place, from) = (self.place, self.signer.address());
        let terms = relayer.terms().await?;
        if (terms.chain, terms.registry) != (place.chain, place.registry) {
            let (chain, registry) = (terms.chain, terms.registry);
            return Err(CommandFailure::refused(format!(
                "the relayer {} is for the registry {registry} of chain {chain}, not for {} of chain {}",
                public_origin(relayer.url()),
                place.registry,
                place.chain,
            )));
        }
        let request = ForwardRequest {
            from,
            to: place.registry,
            value: U256::ZERO,
            gas: U256::from(gas.min(terms.max_gas)),
            nonce: U256::from(relayer.next_nonce(from).await?),
            deadline: U48::saturating_from(time.saturating_add(REQUEST_VALID)),
            data: call.clone(),
        };
        let domain = domain(terms.chain, terms.forwarder);
        let typed = serde_json::to_string(&TypedData::of(&request, &domain)).unwrap_or_default();
        let mut signed = SignedRequest { request, signature: Bytes::new() };
        let id = signed.digest(&domain);
        signed.signature = self.signer.typed_data(&typed, id).await?;
        let request = &signed.request;
        let body = json!({
            "request": {
                "from": request.from, "to": request.to, "value": "0", "gas": request.gas.to_string(),
                "nonce": request.nonce.to_string(), "deadline": request.deadline.to_string(), "data": request.data,
            },
            "signature": signed.signature,
        });
        Ok(SentCall::Relay { relayer: relayer.url().to_owned(), id, body })
    }

    async fn transaction(&self, call: &Bytes) -> Result<SentCall> {
        let (node, from, to) = (self.node()?, self.signer.address(), self.place.registry);
        let asked = json!([{ "from": from, "to": to, "data": call }]);
        let gas: U64 = match node.request("eth_estimateGas", asked).await? {
            Ok(gas) => serde_json::from_value(gas).unwrap_or_default(),
            Err(error) => {
                return Err(match Revert::from_error(&error) {
                    Some(revert) => CommandFailure::refused(format!("the registry refuses: {revert}")),
                    None => {
                        let why = node.clean(&error.message);
                        CommandFailure::try_again(format!("the gas cannot be estimated: {why}"))
                    }
                });
            }
        };
        let fees = Fees::now(node).await?;
        let nonce = node.transaction_count(from, "pending").await?;
        let transaction = TxEip1559 {
            chain_id: self.place.chain,
            nonce,
            gas_limit: gas.to::<u64>().saturating_mul(5) / 4,
            max_fee_per_gas: fees.most(),
            max_priority_fee_per_gas: fees.tip,
            to: TxKind::Call(to),
            value: U256::ZERO,
            access_list: AccessList::default(),
            input: call.clone(),
        };
        self.own(transaction, Vec::new()).await
    }

    pub(crate) async fn own(&self, mut transaction: TxEip1559, replaced: Vec<B256>) -> Result<SentCall> {
        let (nonce, signature) = (transaction.nonce, self.signer.transaction(&mut transaction).await?);
        let envelope = TxEnvelope::from(transaction.into_signed(signature));
        let (hash, raw) = (*envelope.tx_hash(), envelope.encoded_2718().into());
        Ok(SentCall::Transaction { hash, nonce, raw, replaced })
    }

    /// Returns the later of the machine's time and the newest block's, in unix seconds: the clock by which
    /// calls are signed and age.
    pub(crate) async fn time(&self) -> Result<u64> {
        let now = crate::now().seconds();
        match self.place.node() {
            Some(node) => Ok(now.max(node.block("latest").await?.timestamp.to())),
            None => Ok(now),
        }
    }

    pub(crate) fn node(&self) -> Result<&RpcNode> {
        self.place
            .node()
            .ok_or_else(|| CommandFailure::usage("without a relayer an RPC endpoint is needed: --rpc"))
    }
}

/// Aborts a build with debug assertions where `KYA_CRASH_AT` names this point. A release reads nothing.
pub fn crash_point(name: &str) {
    if cfg!(debug_assertions) && std::env::var("KYA_CRASH_AT").is_ok_and(|point| point == name) {
        std::process::abort();
    }
}
