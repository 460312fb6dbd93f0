//! A call of the registry, carried out once: signed, kept in the journal, sent, and settled. A command that is
//! repeated after a kill finds the journal, and sends the very same bytes again or nothing.

use std::{path::PathBuf, time::Duration};

use alloy::{
    consensus::{SignableTransaction as _, TxEip1559, TxEnvelope},
    eips::{
        eip2718::{Decodable2718 as _, Encodable2718 as _},
        eip2930::AccessList,
    },
    primitives::{Address, B256, Bytes, TxKind, U64, U256, aliases::U48},
    sol_types::{SolCall as _, SolEvent as _},
};
use clap::{Args, ValueEnum};
use registry_core::{
    eth::{
        abi::{
            AgentRecord,
            IAgentRegistry::{
                AgentRegistered, AgentTerminated, ComplianceAttested, attestComplianceCall, getAgentCall,
                registerAgentCall, terminateSelfCall,
            },
        },
        redact::public_origin,
        rpc::revert::Revert,
    },
    forward::{ForwardRequest, SignedRequest, TypedData, domain},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    chain::{Log, Node, Receipt},
    fees::Fees,
    journal::{Journal, Pending, Sent},
    place::Place,
    relayer::{Refusal, Relay, Relayer},
    report::{Exit, Failure, Result},
    signer::Signer,
};

/// How long a signed request is valid: a relayer cannot keep it for later.
const REQUEST_VALID: u64 = 3_600;
/// A repetition of a command within this time of the call is about that call, and later about a new one.
const REPETITION: u64 = 3_600;

/// How often the fees of a transaction that is not mined are compared with the chain's.
const FEES_EVERY: Duration = Duration::from_secs(20);

/// By how much the clock of a chain that is not asked may be behind.
const CHAIN_LATE: u64 = 600;

/// How long a receipt may come after the account's new count.
const RECEIPT_LATE: Duration = Duration::from_secs(60);
/// What nodes say, in lower case, of a transaction that they will not take later either.
const REFUSED_FOR_GOOD: [&str; 4] =
    ["insufficient funds", "intrinsic gas", "exceeds block gas limit", "invalid sender"];

/// How far a result has to be from being undone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Finality {
    /// Mined.
    #[default]
    Latest,
    /// In the chain's safe block.
    Safe,
    /// In the chain's finalized block.
    Finalized,
}

impl Finality {
    const fn tag(self) -> &'static str {
        match self {
            Self::Latest => "latest",
            Self::Safe => "safe",
            Self::Finalized => "finalized",
        }
    }
}

/// How a call is sent, and for what is waited.
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
    /// Give up waiting after so many seconds. Nothing is lost then: repeat the command.
    #[arg(long, value_name = "SECONDS", default_value_t = 180)]
    pub timeout: u64,
    /// The directory for what is in flight.
    #[arg(long, value_name = "DIR", env = "KYA_STATE_DIR", default_value_os_t = state_directory())]
    pub state: PathBuf,
}

fn state_directory() -> PathBuf {
    let var = |name| std::env::var_os(name).map(PathBuf::from);
    // systemd's own, the user's own, or beside the user's files.
    var("STATE_DIRECTORY")
        .or_else(|| Some(var("XDG_STATE_HOME")?.join("kya")))
        .or_else(|| Some(var("HOME")?.join(".local/state/kya")))
        .unwrap_or_else(|| ".kya".into())
}

/// A call that was carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executed {
    /// The transaction.
    pub transaction: B256,
    /// Its block.
    pub block: u64,
    /// Blocks from its own to the newest.
    pub confirmations: u64,
    /// The agent that it registered.
    pub agent: Option<u64>,
    /// Whether an earlier run of the command had sent it.
    pub is_repeated: bool,
}

impl Executed {
    /// In words.
    pub fn text(&self) -> String {
        let Self { transaction, block, confirmations, is_repeated, .. } = self;
        let earlier = if *is_repeated { ", sent by an earlier run of this command" } else { "" };
        format!("transaction {transaction} in block {block}, {confirmations} confirmations{earlier}")
    }

    /// For programs.
    pub fn json(&self) -> Value {
        json!({
            "txHash": self.transaction, "blockNumber": self.block, "confirmations": self.confirmations,
            "repeated": self.is_repeated,
        })
    }
}

/// What became of a call that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Settled {
    /// It was carried out.
    Executed(Executed),
    /// It was not, and will not be.
    Failed(String),
    /// Its nonce was used by something else, or its time is over: what the chain says decides.
    Lost,
}

/// How far a relay is.
enum Progress {
    Settled(Settled),
    /// Carried out, and not as final yet as asked.
    Executed,
    Open,
}

/// Makes calls of the registry for one signer.
#[derive(Debug)]
pub struct Caller<'a> {
    place: &'a Place,
    signer: &'a Signer,
    options: &'a SendOptions,
    journal: Journal,
}

impl<'a> Caller<'a> {
    /// Waits until no other command of this signer is at work.
    ///
    /// # Errors
    /// The journal cannot be opened.
    pub async fn new(place: &'a Place, signer: &'a Signer, options: &'a SendOptions) -> Result<Self> {
        let journal = Journal::open(&options.state, place.chain, place.registry, signer.address()).await?;
        Ok(Self { place, signer, options, journal })
    }

    /// Settles what an earlier run has sent: what was carried out, if that was this very call, and not long ago.
    ///
    /// # Errors
    /// It is not settled yet.
    pub async fn resume(&self, call: &[u8]) -> Result<Option<Executed>> {
        let Some(pending) = self.journal.pending()? else { return Ok(None) };
        let is_this = pending.call[..] == *call && crate::now().seconds() <= pending.at + REPETITION;
        match self.settle(pending, false).await? {
            Settled::Executed(executed) if is_this => Ok(Some(Executed { is_repeated: true, ..executed })),
            _ => self.journal.settled().map(|()| None),
        }
    }

    /// Carries out a call, of which nothing is in flight.
    ///
    /// # Errors
    /// It is refused, fails, or is not settled yet: then the journal has it.
    pub async fn execute(&self, call: Vec<u8>, gas: u64) -> Result<Executed> {
        for _ in 0..2 {
            let pending = self.signed(call.clone().into(), gas).await?;
            self.journal.keep(&pending)?;
            crash_point("before_send");
            match self.settle(pending, true).await {
                Ok(Settled::Executed(executed)) => {
                    crash_point("before_report");
                    return Ok(executed);
                }
                Ok(Settled::Failed(why)) => {
                    self.journal.settled()?;
                    return Err(Failure::refused(why));
                }
                // Another program of this key was faster.
                Ok(Settled::Lost) => self.journal.settled()?,
                Err(failure) => return Err(failure),
            }
        }
        Err(Failure::try_again(
            "the key's nonce was used by something else, or the request's time was over: repeat the command",
        ))
    }

    /// Waits until what an RPC endpoint shows of an agent now is as final as asked.
    ///
    /// # Errors
    /// It takes too long.
    pub async fn is_final(&self, agent: U256, holds: impl Fn(&AgentRecord) -> bool) -> Result<()> {
        let (Some(node), tag) = (self.place.node(), self.options.finality.tag()) else { return Ok(()) };
        let until = Instant::now() + Duration::from_secs(self.options.timeout);
        loop {
            let found = node.call_at(self.place.registry, &getAgentCall { agentId: agent }, tag).await;
            // A block before the registry has no such contract.
            if found.is_ok_and(|found| found.is_ok_and(|record| holds(&record))) {
                return Ok(());
            }
            if Instant::now() >= until {
                return Err(Failure::pending("done, and not as final yet as asked: repeat the command"));
            }
            sleep(Duration::from_secs(1)).await;
        }
    }

    /// Forgets what was carried out, once that was told.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub fn told(&self) -> Result<()> {
        self.journal.settled()
    }

    async fn signed(&self, call: Bytes, gas: u64) -> Result<Pending> {
        let at = crate::now().seconds();
        let sent = match &self.place.relayer {
            Some(relayer) if !self.options.direct => self.relayed(relayer, &call, gas, at).await?,
            _ => self.transaction(&call).await?,
        };
        Ok(Pending { call, at, sent })
    }

    async fn relayed(&self, relayer: &Relayer, call: &Bytes, gas: u64, now: u64) -> Result<Sent> {
        let (place, from) = (self.place, self.signer.address());
        let terms = relayer.terms().await?;
        if (terms.chain, terms.registry) != (place.chain, place.registry) {
            let (chain, registry) = (terms.chain, terms.registry);
            return Err(Failure::refused(format!(
                "the relayer {} is for the registry {registry} of chain {chain}, not for {} of chain {}",
                public_origin(relayer.url()),
                place.registry,
                place.chain,
            )));
        }
        let time = match place.node() {
            Some(node) => now.max(node.block("latest").await?.timestamp.to()),
            None => now,
        };
        let request = ForwardRequest {
            from,
            to: place.registry,
            value: U256::ZERO,
            gas: U256::from(gas.min(terms.max_gas)),
            nonce: U256::from(relayer.next_nonce(from).await?),
            deadline: U48::from(time + REQUEST_VALID),
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
        Ok(Sent::Relay { relayer: relayer.url().to_owned(), id, body })
    }

    async fn transaction(&self, call: &Bytes) -> Result<Sent> {
        let (node, from, to) = (self.node()?, self.signer.address(), self.place.registry);
        let asked = json!([{ "from": from, "to": to, "data": call }]);
        let gas: U64 = match node.request("eth_estimateGas", asked).await? {
            Ok(gas) => serde_json::from_value(gas).unwrap_or_default(),
            Err(error) => {
                return Err(match Revert::from_error(&error) {
                    Some(revert) => Failure::refused(format!("the registry refuses: {revert}")),
                    None => {
                        let why = node.clean(&error.message);
                        Failure::try_again(format!("the gas cannot be estimated: {why}"))
                    }
                });
            }
        };
        let fees = Fees::now(node).await?;
        let nonce = node.transaction_count(from, "pending").await?;
        let transaction = TxEip1559 {
            chain_id: self.place.chain,
            nonce,
            gas_limit: gas.to::<u64>() * 5 / 4,
            max_fee_per_gas: fees.most(),
            max_priority_fee_per_gas: fees.tip,
            to: TxKind::Call(to),
            value: U256::ZERO,
            access_list: AccessList::default(),
            input: call.clone(),
        };
        self.own(transaction, Vec::new()).await
    }

    async fn own(&self, mut transaction: TxEip1559, replaced: Vec<B256>) -> Result<Sent> {
        let (nonce, signature) = (transaction.nonce, self.signer.transaction(&mut transaction).await?);
        let envelope = TxEnvelope::from(transaction.into_signed(signature));
        let (hash, raw) = (*envelope.tx_hash(), envelope.encoded_2718().into());
        Ok(Sent::Transaction { hash, nonce, raw, replaced })
    }

    /// The same transaction with higher fees, where the present base fee keeps it from being mined.
    async fn raised(&self, sent: &Sent) -> Result<Option<Sent>> {
        let Sent::Transaction { hash, raw, replaced, .. } = sent else { return Ok(None) };
        let Ok(TxEnvelope::Eip1559(signed)) = TxEnvelope::decode_2718_exact(raw) else { return Ok(None) };
        let (old, fees) = (signed.tx(), Fees::now(self.node()?).await?);
        let Some((most, tip)) = fees.raised(old.max_fee_per_gas, old.max_priority_fee_per_gas) else {
            return Ok(None);
        };
        let transaction = TxEip1559 { max_fee_per_gas: most, max_priority_fee_per_gas: tip, ..old.clone() };
        self.own(transaction, [&replaced[..], &[*hash]].concat()).await.map(Some)
    }

    fn node(&self) -> Result<&Node> {
        self.place
            .node()
            .ok_or_else(|| Failure::refused("without a relayer an RPC endpoint is needed: --rpc"))
    }

    /// Waits until a call is settled, and sends it where it is not known: with `is_new` at once.
    async fn settle(&self, mut pending: Pending, is_new: bool) -> Result<Settled> {
        let until = Instant::now() + Duration::from_secs(self.options.timeout);
        let mut fees_at = Instant::now() + if is_new { FEES_EVERY } else { Duration::ZERO };
        let (mut pause, mut sends, mut missing) = (Duration::from_millis(100), is_new, None);
        let mut trouble = None;
        loop {
            let step = match &pending.sent {
                Sent::Relay { relayer, id, body } => {
                    let relayer = self.relayer(relayer)?;
                    self.settle_relay(&relayer, *id, body, &pending.call, &mut sends).await
                }
                Sent::Transaction { hash, nonce, raw, replaced } => {
                    let hashes = replaced.iter().chain([hash]);
                    self.settle_transaction(hashes, *nonce, raw, &pending.call, &mut sends, &mut missing)
                        .await
                }
            };
            match step {
                Ok(Some(settled)) => return Ok(settled),
                Ok(None) => {}
                Err(Failure { exit: Exit::TryAgain, text, retry_after }) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if let Some(after) = retry_after.filter(|after| after > &left) {
                        let seconds = after.as_secs();
                        return Err(Failure::pending(format!(
                            "not settled ({text}): repeat the command in {seconds} s"
                        )));
                    }
                    pause = pause.max(retry_after.unwrap_or_default());
                    trouble = Some(text);
                }
                Err(failure) => return Err(failure),
            }
            if Instant::now() >= fees_at {
                fees_at = Instant::now() + FEES_EVERY;
                match self.raised(&pending.sent).await {
                    Ok(Some(sent)) => {
                        pending.sent = sent;
                        self.journal.keep(&pending)?;
                    }
                    Ok(None) => {}
                    Err(failure) => trouble = Some(failure.text),
                }
            }
            if Instant::now() >= until {
                let why = trouble.unwrap_or_else(|| "it is not as final yet as asked".to_owned());
                return Err(Failure::pending(format!("sent, and not settled ({why}): repeat the command")));
            }
            sleep(pause).await;
            pause = pause.saturating_mul(2).min(Duration::from_secs(2));
        }
    }

    fn relayer(&self, url: &str) -> Result<Relayer> {
        if let Some(relayer) = self.place.relayer.as_ref().filter(|relayer| relayer.url() == url) {
            return Ok(relayer.clone());
        }
        let url = url.parse().map_err(|_| Failure::refused("the journal names no relayer's URL"))?;
        Relayer::new(&url, None)
    }

    /// A relay that the forwarder does not take any longer is lost, whatever its relayer says or does not say.
    async fn settle_relay(
        &self,
        relayer: &Relayer,
        id: B256,
        body: &Value,
        call: &[u8],
        sends: &mut bool,
    ) -> Result<Option<Settled>> {
        match self.progress(relayer, id, body, call, sends).await {
            Ok(Progress::Settled(settled)) => Ok(Some(settled)),
            Ok(Progress::Executed) => Ok(None),
            Ok(Progress::Open) | Err(_) if self.has_expired(body).await => Ok(Some(Settled::Lost)),
            Ok(Progress::Open) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Whether the chain's time is past a request's deadline.
    async fn has_expired(&self, body: &Value) -> bool {
        let deadline = body.pointer("/request/deadline").and_then(Value::as_str);
        let Some(deadline) = deadline.and_then(|deadline| deadline.parse::<u64>().ok()) else { return false };
        match self.place.node() {
            Some(node) => {
                node.block("latest").await.is_ok_and(|block| block.timestamp.to::<u64>() > deadline)
            }
            None => crate::now().seconds() > deadline.saturating_add(CHAIN_LATE),
        }
    }

    async fn progress(
        &self,
        relayer: &Relayer,
        id: B256,
        body: &Value,
        call: &[u8],
        sends: &mut bool,
    ) -> Result<Progress> {
        if *sends {
            match relayer.send(body).await? {
                Ok(_) => {}
                Err(Refusal { code, .. })
                    if matches!(
                        code.as_str(),
                        "ALREADY_RELAYED" | "DEADLINE_PASSED" | "INVALID_SIGNATURE_OR_NONCE" | "SUPERSEDED"
                    ) =>
                {
                    // It may have been taken, and carried out, meanwhile.
                    let Some(known) = relayer.relay(id, "latest").await? else {
                        return Ok(Progress::Settled(Settled::Lost));
                    };
                    *sends = false;
                    return self.ended(&known, call).await;
                }
                Err(refusal) => {
                    let failure = refusal.failure();
                    // The relayer has said that it did not take the request; one that reverts does so again.
                    let is_final = failure.exit == Exit::Refused || refusal.code == "CALL_REVERTED";
                    return match is_final {
                        true => Ok(Progress::Settled(Settled::Failed(failure.text))),
                        false => Err(failure),
                    };
                }
            }
            *sends = false;
            crash_point("after_send");
        }
        match relayer.relay(id, self.options.finality.tag()).await? {
            Some(relay) => self.ended(&relay, call).await,
            None => {
                *sends = true;
                Ok(Progress::Open)
            }
        }
    }

    /// What a relayer says of a relay; of one that was carried out the RPC endpoint, where there is one.
    async fn ended(&self, relay: &Relay, call: &[u8]) -> Result<Progress> {
        let settled = match (relay.state.as_str(), relay.tx_hash, relay.block_number) {
            ("executed", Some(transaction), Some(block)) => {
                let executed = match self.place.node() {
                    Some(node) => {
                        let Some(receipt) = node.receipt(transaction).await? else {
                            let text =
                                "the relayer says executed, and the RPC endpoint does not show that yet";
                            return Err(Failure::try_again(text));
                        };
                        if receipt.status.is_zero() || self.event(&receipt, call).is_none() {
                            return Err(Failure::try_again(format!(
                                "the relayer says executed, and its transaction {transaction} does not carry out this call"
                            )));
                        }
                        self.mined(node, transaction, &receipt, call).await?
                    }
                    None => {
                        let finality = relay.finality.as_deref();
                        let finality = finality.and_then(|finality| Finality::from_str(finality, true).ok());
                        let is_final = finality >= Some(self.options.finality)
                            && relay.confirmations >= self.options.confirmations;
                        is_final.then_some(Executed {
                            transaction,
                            block,
                            confirmations: relay.confirmations,
                            agent: relay.agent_id,
                            is_repeated: false,
                        })
                    }
                };
                let Some(executed) = executed else { return Ok(Progress::Executed) };
                Settled::Executed(executed)
            }
            ("reverted", ..) if matches!(relay.code.as_deref(), Some("SUPERSEDED" | "FORWARDER_REFUSED")) => {
                Settled::Lost
            }
            ("reverted" | "dropped", ..) => {
                let why = relay.error.as_deref().unwrap_or("no reason given");
                Settled::Failed(format!("the relay was {}: {why}", relay.state))
            }
            _ => return Ok(Progress::Open),
        };
        Ok(Progress::Settled(settled))
    }

    /// A call that was mined, once it is as final as asked.
    async fn mined(
        &self,
        node: &Node,
        transaction: B256,
        receipt: &Receipt,
        call: &[u8],
    ) -> Result<Option<Executed>> {
        let block = receipt.block_number.to::<u64>();
        let head: u64 = node.block("latest").await?.number.to();
        let confirmations = (head + 1).saturating_sub(block);
        let finality = self.options.finality;
        let is_final =
            finality == Finality::Latest || node.block(finality.tag()).await?.number.to::<u64>() >= block;
        let agent = self.event(receipt, call);
        let executed = Executed { transaction, block, confirmations, agent, is_repeated: false };
        Ok((is_final && confirmations >= self.options.confirmations).then_some(executed))
    }

    /// The agent of the event by which the registry tells that this call of the signer was carried out.
    fn event(&self, receipt: &Receipt, call: &[u8]) -> Option<u64> {
        receipt.logs.iter().find_map(|log| told_by(log, self.place.registry, self.signer.address(), call))
    }

    async fn settle_transaction(
        &self,
        hashes: impl Iterator<Item = &B256>,
        nonce: u64,
        raw: &Bytes,
        call: &[u8],
        sends: &mut bool,
        missing: &mut Option<Instant>,
    ) -> Result<Option<Settled>> {
        let node = self.node()?;
        for &hash in hashes {
            let Some(receipt) = node.receipt(hash).await? else { continue };
            if receipt.status.is_zero() {
                return Ok(Some(Settled::Failed(format!("the transaction {hash} was mined and reverted"))));
            }
            return Ok(self.mined(node, hash, &receipt, call).await?.map(Settled::Executed));
        }
        // Some nodes have the new count before the receipt, and others behind the same address later still.
        if node.transaction_count(self.signer.address(), "latest").await? > nonce {
            let patience = RECEIPT_LATE.min(Duration::from_secs(self.options.timeout) / 2);
            let since = missing.get_or_insert_with(Instant::now);
            return Ok((since.elapsed() >= patience).then_some(Settled::Lost));
        }
        // Again and again: nodes forget.
        if let Err(error) = node.request("eth_sendRawTransaction", json!([raw])).await? {
            let text = error.message.to_ascii_lowercase();
            let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
            let why = format!("the node refuses the transaction: {}", node.clean(&error.message));
            if *sends && says(&REFUSED_FOR_GOOD) {
                return Ok(Some(Settled::Failed(why)));
            }
            if !says(&["known", "imported", "nonce too low"]) {
                return Err(Failure::try_again(why));
            }
        }
        *sends = false;
        crash_point("after_send");
        Ok(None)
    }
}

/// The agent of an event, if it is the one of this call by this signer. The last indexed member of each is who acted.
fn told_by(log: &Log, registry: Address, signer: Address, call: &[u8]) -> Option<u64> {
    let (kind, arguments) = call.split_at_checked(4)?;
    let &[event, id, .., by] = log.topics.as_slice() else { return None };
    let of_id = |expected: B256| event == expected && arguments.get(..32) == Some(id.as_slice());
    let is_it = match kind {
        kind if kind == registerAgentCall::SELECTOR => {
            // Its second argument is the agent's wallet, the event's second indexed member.
            event == AgentRegistered::SIGNATURE_HASH
                && arguments.get(32..64) == log.topics.get(2).map(|wallet| wallet.as_slice())
        }
        kind if kind == attestComplianceCall::SELECTOR => of_id(ComplianceAttested::SIGNATURE_HASH),
        kind if kind == terminateSelfCall::SELECTOR => of_id(AgentTerminated::SIGNATURE_HASH),
        _ => false,
    };
    (is_it && log.address == registry && by == signer.into_word())
        .then(|| U256::from_be_bytes(id.0).saturating_to())
}

/// A point at which a build with debug assertions dies where `KYA_CRASH_AT` names it. A release reads nothing.
pub fn crash_point(name: &str) {
    if cfg!(debug_assertions) && std::env::var("KYA_CRASH_AT").is_ok_and(|point| point == name) {
        std::process::abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_told_by_the_registrys_event_of_it_by_its_signer_alone() {
        let (registry, signer, wallet) =
            (Address::repeat_byte(1), Address::repeat_byte(2), Address::repeat_byte(3));
        let (id, other) = (U256::from(7), B256::repeat_byte(9));
        let attest = attestComplianceCall { agentId: id }.abi_encode();
        let end = terminateSelfCall { agentId: id }.abi_encode();
        let register =
            registerAgentCall { agentWallet: wallet, ..crate::register::tests::call() }.abi_encode();
        let (by, id) = (signer.into_word(), B256::from(id));
        for (call, topics) in [
            (attest, vec![ComplianceAttested::SIGNATURE_HASH, id, by]),
            (end, vec![AgentTerminated::SIGNATURE_HASH, id, by]),
            (register, vec![AgentRegistered::SIGNATURE_HASH, id, wallet.into_word(), by]),
        ] {
            let log = Log { address: registry, topics };
            assert_eq!(told_by(&log, registry, signer, &call), Some(7));
            assert_eq!(told_by(&log, wallet, signer, &call), None);
            assert_eq!(told_by(&log, registry, wallet, &call), None);
            assert_eq!(told_by(&log, registry, signer, &call[..3]), None);
            for changed in (0..log.topics.len()).filter(|at| *at != 1 || log.topics.len() == 3) {
                let mut log = log.clone();
                log.topics[changed] = other;
                assert_eq!(told_by(&log, registry, signer, &call), None, "{changed}");
            }
        }
    }
}
