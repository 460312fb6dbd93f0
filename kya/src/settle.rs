//! Settlement of a sent call: asks for its outcome, sends it again where it is unknown, and compares it with
//! the chain where there is an RPC endpoint.

use std::time::Duration;

use alloy::{
    consensus::{TxEip1559, TxEnvelope},
    eips::eip2718::Decodable2718 as _,
    primitives::{Address, B256, U256},
    sol_types::{SolCall as _, SolEvent as _},
};
use clap::ValueEnum as _;
use registry_core::eth::abi::IAgentRegistry::{
    AgentRegistered, AgentTerminated, ComplianceAttested, attestComplianceCall, registerAgentCall,
    terminateSelfCall,
};
use serde_json::{Value, json};
use tokio::time::{Instant, error::Elapsed, sleep, timeout_at};

use crate::{
    chain::{Receipt, ReceiptLog, RpcNode},
    fees::Fees,
    journal::{JournaledCall, SentCall},
    relayer::{RelayStatus, Relayer, RelayerRefusal},
    report::{CommandFailure, Exit, Result},
    submit::{Caller, ExecutedCall, Finality, crash_point},
};

/// Extra wait for an answer beyond `--timeout`.
const LAST_ANSWER: Duration = Duration::from_secs(10);

/// Interval at which the fees of an unmined transaction are compared with the chain's.
const FEES_EVERY: Duration = Duration::from_secs(20);

/// Seconds by which the clock of a chain that is not asked may be behind.
const CHAIN_LATE: u64 = 600;

/// Longest delay of a receipt after the account's new transaction count.
const RECEIPT_LATE: Duration = Duration::from_secs(60);
/// Parts of nodes' errors, in lower case, about transactions that they will never accept.
const REFUSED_FOR_GOOD: [&str; 3] = ["intrinsic gas", "exceeds block gas limit", "invalid sender"];

/// Runs a step, which is given up [`LAST_ANSWER`] after `until`.
pub(crate) async fn in_time<T>(until: Instant, step: impl Future<Output = Result<T>>) -> Result<T> {
    let late = |_: Elapsed| CommandFailure::try_again("no answer came in time");
    timeout_at(until + LAST_ANSWER, step).await.map_err(late).flatten()
}

/// Outcome of a call that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SettledCall {
    /// It was executed.
    Executed(ExecutedCall),
    /// It was not executed, and will not be.
    Failed(CommandFailure),
    /// Its nonce was used by another call, or its time is over: the chain's state decides.
    Lost,
}

/// Progress of a call that was sent.
enum CallProgress {
    Settled(SettledCall),
    /// Its nonce is used: by its own execution, which is not as final yet as asked, or by a transaction of
    /// which the node does not have the receipt yet.
    Mined,
    /// Not executed yet, with the obstacle where one is known.
    Open(Option<String>),
}

impl Caller<'_> {
    /// Waits until a call is settled. Sends it at once with `is_new`, and again where it is not known.
    pub(crate) async fn settle(&self, mut pending: JournaledCall, is_new: bool) -> Result<SettledCall> {
        let until = Instant::now() + Duration::from_secs(self.options.timeout);
        let mut fees_at = Instant::now() + if is_new { FEES_EVERY } else { Duration::ZERO };
        let (mut pause, mut sends, mut missing) = (Duration::from_millis(100), is_new, None);
        let mut trouble = None;
        loop {
            let step = match &pending.sent {
                SentCall::Relay { relayer, id, body } => {
                    let relayer = self.relayer(relayer)?;
                    let step = self.settle_relay(&relayer, *id, body, &pending.call, &mut sends);
                    match in_time(until, step).await {
                        // The forwarder no longer accepts it, whatever the relayer says.
                        Ok(CallProgress::Open(_)) | Err(_) if self.has_expired(body).await => {
                            Ok(CallProgress::Settled(SettledCall::Lost))
                        }
                        step => step,
                    }
                }
                SentCall::Transaction { .. } => {
                    let step = self.settle_transaction(&pending, &mut sends, &mut missing);
                    in_time(until, step).await
                }
            };
            // A mined transaction needs no replacement, and a person may have to confirm each signature.
            let is_open = matches!(step, Ok(CallProgress::Open(_)));
            match step {
                Ok(CallProgress::Settled(settled)) => return Ok(settled),
                Ok(CallProgress::Open(Some(why))) => trouble = Some(why),
                Ok(CallProgress::Open(None)) => {}
                // What kept it from being mined does so no more.
                Ok(CallProgress::Mined) => trouble = None,
                Err(CommandFailure { exit: Exit::TryAgain, text, retry_after }) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if let Some(after) = retry_after.filter(|after| after > &left) {
                        let seconds = after.as_secs();
                        return Err(CommandFailure::pending(format!(
                            "not settled ({text}): repeat the command in {seconds} s"
                        )));
                    }
                    pause = pause.max(retry_after.unwrap_or_default());
                    trouble = Some(text);
                }
                Err(failure) => return Err(failure),
            }
            if is_open && Instant::now() >= fees_at {
                fees_at = Instant::now() + FEES_EVERY;
                let raised = in_time(until, self.raised(&pending.sent)).await;
                match raised {
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
                return Err(CommandFailure::pending(format!(
                    "sent, and not settled ({why}): repeat the command"
                )));
            }
            sleep(pause).await;
            pause = pause.saturating_mul(2).min(Duration::from_secs(2));
        }
    }

    /// Signs the same transaction with higher fees, where the present base fee keeps it from being mined.
    async fn raised(&self, sent: &SentCall) -> Result<Option<SentCall>> {
        let SentCall::Transaction { hash, raw, replaced, .. } = sent else { return Ok(None) };
        let Ok(TxEnvelope::Eip1559(signed)) = TxEnvelope::decode_2718_exact(raw) else { return Ok(None) };
        let (old, fees) = (signed.tx(), Fees::now(self.node()?).await?);
        let Some((most, tip)) = fees.raised(old.max_fee_per_gas, old.max_priority_fee_per_gas) else {
            return Ok(None);
        };
        let transaction = TxEip1559 { max_fee_per_gas: most, max_priority_fee_per_gas: tip, ..old.clone() };
        self.own(transaction, [&replaced[..], &[*hash]].concat()).await.map(Some)
    }

    fn relayer(&self, url: &str) -> Result<Relayer> {
        if let Some(relayer) = self.place.relayer.as_ref().filter(|relayer| relayer.url() == url) {
            return Ok(relayer.clone());
        }
        let url = url.parse().map_err(|_| CommandFailure::refused("the journal names no relayer's URL"))?;
        Relayer::new(&url, None)
    }

    /// Returns whether the chain's time is past a request's deadline.
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

    async fn settle_relay(
        &self,
        relayer: &Relayer,
        id: B256,
        body: &Value,
        call: &[u8],
        sends: &mut bool,
    ) -> Result<CallProgress> {
        if *sends {
            match relayer.send(body).await? {
                Ok(_) => {}
                Err(RelayerRefusal { code, .. })
                    if matches!(
                        code.as_str(),
                        "ALREADY_RELAYED" | "DEADLINE_PASSED" | "INVALID_SIGNATURE_OR_NONCE" | "SUPERSEDED"
                    ) =>
                {
                    // It may have been taken, and carried out, meanwhile.
                    let Some(known) = relayer.relay(id, "latest").await? else {
                        return Ok(CallProgress::Settled(SettledCall::Lost));
                    };
                    *sends = false;
                    return self.ended(&known, call).await;
                }
                Err(refusal) => {
                    let failure = refusal.failure();
                    // The relayer did not take the request; a call that reverts now reverts again.
                    let is_final = failure.exit == Exit::Refused || refusal.code == "CALL_REVERTED";
                    return match is_final {
                        true => Ok(CallProgress::Settled(SettledCall::Failed(CommandFailure::refused(
                            failure.text,
                        )))),
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
                Ok(CallProgress::Open(None))
            }
        }
    }

    /// Judges a relayer's word on a relay. An execution is checked at the RPC endpoint, where there is one.
    async fn ended(&self, relay: &RelayStatus, call: &[u8]) -> Result<CallProgress> {
        let settled = match (relay.state.as_str(), relay.tx_hash, relay.block_number) {
            ("executed", Some(transaction), Some(block)) => {
                let executed = match self.place.node() {
                    Some(node) => {
                        let Some(receipt) = node.receipt(transaction).await? else {
                            let text =
                                "the relayer says executed, and the RPC endpoint does not show that yet";
                            return Err(CommandFailure::try_again(text));
                        };
                        let agent = self.event(&receipt, call).filter(|_| !receipt.status.is_zero());
                        let agent = agent.ok_or_else(|| {
                            CommandFailure::try_again(format!(
                                "the relayer says executed, and its transaction {transaction} does not carry out this call"
                            ))
                        })?;
                        self.mined(node, transaction, &receipt, Some(agent)).await?
                    }
                    None => {
                        let finality = relay.finality.as_deref();
                        let finality = finality.and_then(|finality| Finality::from_str(finality, true).ok());
                        let is_final = finality >= Some(self.options.finality)
                            && relay.confirmations >= self.options.confirmations;
                        is_final.then_some(ExecutedCall {
                            transaction,
                            block,
                            confirmations: relay.confirmations,
                            agent: relay.agent_id,
                            is_repeated: false,
                        })
                    }
                };
                let Some(executed) = executed else { return Ok(CallProgress::Mined) };
                SettledCall::Executed(executed)
            }
            ("reverted", ..) if matches!(relay.code.as_deref(), Some("SUPERSEDED" | "FORWARDER_REFUSED")) => {
                SettledCall::Lost
            }
            ("reverted" | "dropped", ..) => {
                let why = relay.error.as_deref().unwrap_or("no reason given");
                SettledCall::Failed(CommandFailure::refused(format!("the relay was {}: {why}", relay.state)))
            }
            _ => return Ok(CallProgress::Open(None)),
        };
        Ok(CallProgress::Settled(settled))
    }

    /// Returns a call that was mined, once it is as final as asked.
    async fn mined(
        &self,
        node: &RpcNode,
        transaction: B256,
        receipt: &Receipt,
        agent: Option<u64>,
    ) -> Result<Option<ExecutedCall>> {
        let block = receipt.block_number.to::<u64>();
        let head: u64 = node.block("latest").await?.number.to();
        let confirmations = head.saturating_add(1).saturating_sub(block);
        let finality = self.options.finality;
        let is_final =
            finality == Finality::Latest || node.block(finality.tag()).await?.number.to::<u64>() >= block;
        let executed = ExecutedCall { transaction, block, confirmations, agent, is_repeated: false };
        Ok((is_final && confirmations >= self.options.confirmations).then_some(executed))
    }

    /// Returns the agent of the registry's event that shows the execution of this call of the signer.
    fn event(&self, receipt: &Receipt, call: &[u8]) -> Option<u64> {
        receipt.logs.iter().find_map(|log| told_by(log, self.place.registry, self.signer.address(), call))
    }

    async fn settle_transaction(
        &self,
        pending: &JournaledCall,
        sends: &mut bool,
        missing: &mut Option<Instant>,
    ) -> Result<CallProgress> {
        let SentCall::Transaction { hash, nonce, raw, replaced } = &pending.sent else {
            return Ok(CallProgress::Open(None));
        };
        let (node, nonce) = (self.node()?, *nonce);
        for &hash in replaced.iter().chain([hash]) {
            let Some(receipt) = node.receipt(hash).await? else { continue };
            if receipt.status.is_zero() {
                let why = format!("the transaction {hash} was mined and reverted");
                return Ok(CallProgress::Settled(SettledCall::Failed(CommandFailure::refused(why))));
            }
            let agent = self.event(&receipt, &pending.call);
            let executed = self.mined(node, hash, &receipt, agent).await?;
            let settled = executed.map(|executed| CallProgress::Settled(SettledCall::Executed(executed)));
            return Ok(settled.unwrap_or(CallProgress::Mined));
        }
        // Some nodes have the new count before the receipt, and others behind the same address later still.
        let next = node.transaction_count(self.signer.address(), "latest").await?;
        if next > nonce {
            let patience = RECEIPT_LATE.min(Duration::from_secs(self.options.timeout) / 2);
            let since = missing.get_or_insert_with(Instant::now);
            return Ok(match since.elapsed() >= patience {
                true => CallProgress::Settled(SettledCall::Lost),
                false => CallProgress::Mined,
            });
        }
        let waits =
            (next < nonce).then(|| format!("it has nonce {nonce}, and the account is at nonce {next}"));
        // Sent in every round: nodes drop transactions.
        if let Err(error) = node.request("eth_sendRawTransaction", json!([raw])).await? {
            let text = error.message.to_ascii_lowercase();
            let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
            let refusal = format!("the node refuses the transaction: {}", node.clean(&error.message));
            if *sends && says(&["insufficient funds"]) {
                return Ok(CallProgress::Settled(SettledCall::Failed(CommandFailure::try_again(refusal))));
            }
            if *sends && says(&REFUSED_FOR_GOOD) {
                return Ok(CallProgress::Settled(SettledCall::Failed(CommandFailure::refused(refusal))));
            }
            if !says(&["known", "imported", "nonce too low"]) {
                return self.unmined(pending, nonce, refusal).await;
            }
        }
        *sends = false;
        crash_point("after_send");
        match waits {
            Some(why) => self.unmined(pending, nonce, why).await,
            None => Ok(CallProgress::Open(None)),
        }
    }

    /// Judges a transaction that is not mined, for the reason `why`. It is lost once the time of a repetition
    /// is over and the node's pool does not have it in the order of nonces: otherwise it would block the key
    /// for good. Each call of the registry may be made again.
    async fn unmined(&self, pending: &JournaledCall, nonce: u64, why: String) -> Result<CallProgress> {
        let (node, is_old) = (self.node()?, !pending.is_recent_at(self.time().await?));
        let is_left = is_old && node.transaction_count(self.signer.address(), "pending").await? <= nonce;
        Ok(if is_left { CallProgress::Settled(SettledCall::Lost) } else { CallProgress::Open(Some(why)) })
    }
}

/// Returns the agent of an event, if it is the one of this call by this signer. The last indexed member of
/// each event is the acting account.
fn told_by(log: &ReceiptLog, registry: Address, signer: Address, call: &[u8]) -> Option<u64> {
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

#[cfg(test)]
mod tests;
