//! The checks before a request is accepted: one line each, a tick or a cross, and for each account that alone
//! gets no relays, because it is empty, has code or a signer that does not sign, an exclamation mark. No
//! usable account is a cross.
//!
//! `check` prints them; `serve` and `drain` refuse to start on a cross. They cost about a dozen RPC calls,
//! once. `check` may run beside a running daemon: it takes no lock, opens the store for reading only and
//! creates no file. After a cross, `serve` and `drain` create none either, and ask no daemon to drain.

mod journal;

use std::{error::Error as _, sync::Arc};

use alloy::{
    primitives::{
        Address, B256, U256,
        utils::{format_ether, format_units},
    },
    signers::{SignerSync, local::PrivateKeySigner},
};
use futures_util::future::join_all;
use registry_core::{
    eth::abi::{IAgentRegistry, IForwarder},
    forward::{ForwardRequest, SignedRequest, domain},
};

use self::journal::{
    LOCK_IS_FREE, foresee, look_at_locks, look_at_store, open, other_keys_are_drained, pending_are_ours,
    place, take_lock,
};
use super::report::{AccountCheck, CheckReport, tell_accounts};
use crate::{
    chain::{Chain, ChainNode, Rpc, RpcError},
    daemon::settings::Settings,
    gas,
    metrics::Metrics,
    process::{clock::SharedClock, lock::ProcessLock},
    relay::policy::SharedPolicy,
    sender::health::MINIMUM_BALANCE_WEI,
    signer::TxSigner,
    store::{Identity, Store, files::StoreFiles},
};

/// The largest difference between our clock and the chain's, seconds.
const CLOCK_SKEW: u64 = 60;

/// The command that the checks are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckMode {
    /// `check`: changes nothing.
    Look,
    /// `serve`.
    Serve,
    /// `drain`: takes over from a running daemon once that has drained.
    Drain,
}

/// The parts that `serve` and `drain` start with after good checks.
#[derive(Debug)]
pub struct StartParts {
    /// The chain.
    pub chain: Arc<Chain>,
    /// The chain's id.
    pub chain_id: u64,
    /// The policy: which requests are sponsored.
    pub policy: Arc<SharedPolicy>,
    /// The accounts' signers.
    pub keys: Vec<CheckedKey>,
    /// The store: this relayer's, or a new one.
    pub store: Arc<Store>,
    /// The owner that the store gets.
    pub identity: Identity,
    /// True if the chain charges an L1 data fee.
    pub has_l1_fee: bool,
    /// The gas limit of no-ops.
    pub no_op_gas: u64,
    /// Held as long as the process lives: one process per key and chain.
    pub locks: Vec<ProcessLock>,
}

/// The signer of an account.
#[derive(Debug, Clone)]
pub struct CheckedKey {
    /// The signer.
    pub signer: TxSigner,
    /// True if the account has code.
    pub has_code: bool,
    /// The reason why the signer did not sign, if it did not: the account gets no relays until it does.
    pub unsigned: Option<String>,
}

/// Checks everything. The second value is there only if the report is good, and not for [`CheckMode::Look`].
pub async fn run(
    mode: CheckMode,
    settings: &Settings,
    keys: &[TxSigner],
    clock: &SharedClock,
    metrics: &Metrics,
) -> (CheckReport, Option<StartParts>) {
    let mut report = CheckReport::default();
    keys.iter().for_each(|key| report.tick("key", key));
    let checked = examine(mode, settings, keys, clock, metrics, &mut report).await;
    let checked = checked.filter(|_| report.is_good());
    (report, checked)
}

async fn examine(
    mode: CheckMode,
    settings: &Settings,
    keys: &[TxSigner],
    clock: &SharedClock,
    metrics: &Metrics,
    report: &mut CheckReport,
) -> Option<StartParts> {
    report.add("proxies", proxies(settings));
    report.add("telemetry", telemetry(settings));
    let policy = SharedPolicy::load(settings.policy_file.as_deref());
    let policy = report.pass("policy", policy).map(Arc::new);
    if let Some(policy) = &policy {
        report.tick("policy", policy.current());
    }
    let rpc = report.pass("rpc", endpoints(settings, metrics))?;
    let chain_id = chain_id(settings, &rpc, report).await?;
    let signing = all(keys, async |key| signs(key, chain_id).await).await;
    tell_accounts(report, "signer", &signing);
    let chain = Chain::new(
        rpc,
        settings.forwarder_address,
        settings.registry_address,
        settings.max_priority_fee_per_gas.0,
    );
    let chain = Arc::new(chain.with_block_receipts_from(settings.block_receipts_from));

    let registry = code(&chain, "registry", chain.registry, report).await;
    let forwarder = code(&chain, "forwarder", chain.forwarder, report).await;
    if forwarder {
        report.add("domain", same_domain(&chain, chain_id).await);
    }
    if registry && forwarder {
        report.add("trust", trusted(&chain).await);
    }
    let funded = all(keys, async |key| balance(&chain, key.address()).await).await;
    if mode == CheckMode::Drain {
        // Transactions in flight were paid for when they were sent.
        let texts = funded.iter().map(|(_, found)| found.as_ref().unwrap_or_else(|text| text));
        texts.for_each(|text| report.tick("balance", text));
    } else {
        tell_accounts(report, "balance", &funded);
    }
    report.add("fees", fees(&chain).await);
    report.add("clock", clock_skew(&chain, clock.now()).await);
    let has_l1_fee = report.pass("l1 fee", chain.has_l1_fee().await).unwrap_or_default();
    let undelegated = all(keys, async |key| undelegated(&chain, key.address()).await).await;
    let no_op_gas = match undelegated.iter().find(|(_, found)| found.is_ok()).or(undelegated.first()) {
        Some((account, _)) => report.pass("no-op gas", chain.estimated_no_op(*account).await),
        None => None,
    };
    let no_op_gas = no_op_gas.map(gas::no_op_limit);
    if let Some(gas) = no_op_gas {
        report.tick("no-op gas", format!("{gas} for a transaction that only fills a nonce"));
    }
    let no_op_gas = no_op_gas.unwrap_or_default();
    tell_accounts(report, "delegation", &undelegated);
    let able = [&signing, &funded, &undelegated].map(|found| found.iter().map(|(_, found)| found.is_ok()));
    let [signs, holds, has_none] = able;
    let mut able =
        signs.zip(holds).zip(has_none).map(|((signs, holds), has_none)| signs && holds && has_none);
    if report.is_good() && mode != CheckMode::Drain && !able.any(|able| able) {
        report.cross(
            "accounts",
            "no account can be used: each is empty, has code, or a signer that does not sign",
        );
    }

    let accounts: Vec<Address> = keys.iter().map(TxSigner::address).collect();
    let mut files = StoreFiles::new(&settings.data_dir, chain_id, chain.forwarder, &accounts);
    if settings.store_url.is_some() {
        // Leases take their place.
        files.key_locks.clear();
    }
    let genesis = report.pass("journal", chain.genesis().await)?;
    let identity = Identity { chain_id, genesis, forwarder: chain.forwarder };
    // A start that fails already must not bring the journal to a format that the version before cannot read,
    // nor end the running daemon.
    if mode == CheckMode::Look || !report.is_good() {
        look_at_locks(&files, report);
        let hash = policy.map(|policy| policy.current().hash().to_owned()).unwrap_or_default();
        look_at_store(settings, &files, &identity, &chain, &accounts, &hash, report).await;
        return None;
    }
    let foreseen = foresee(mode, settings, &files, identity, &chain, &accounts).await;
    if !foreseen.is_good() {
        look_at_locks(&files, report);
        report.append(foreseen);
        return None;
    }
    // Always in this order, so that two processes do not deadlock.
    let mut locks = Vec::new();
    for path in files.locks() {
        locks.push(report.pass("lock", take_lock(mode, path.clone()).await)?);
    }
    report.tick("lock", LOCK_IS_FREE);
    let store = open(settings, &files, identity).await;
    let store: Arc<Store> = Arc::new(report.pass("journal", store)?);
    report.tick("journal", place(settings, &files));
    pending_are_ours(&chain, &accounts, Some(&store), report).await;
    report.add("other keys", other_keys_are_drained(&store, &accounts).await);
    let keys =
        keys.iter().cloned().zip(undelegated).zip(signing).map(|((signer, (_, code)), (_, signed))| {
            CheckedKey { signer, has_code: code.is_err(), unsigned: signed.err() }
        });
    let keys = keys.collect();
    Some(StartParts { chain, chain_id, policy: policy?, keys, store, identity, has_l1_fee, no_op_gas, locks })
}

fn proxies(settings: &Settings) -> Result<String, String> {
    let proxies = settings.proxies().map_err(|error| error.to_string())?;
    let networks: Vec<String> = proxies.networks().iter().map(ToString::to_string).collect();
    Ok(if networks.is_empty() {
        "X-Forwarded-For is not believed".to_owned()
    } else {
        format!("X-Forwarded-For is believed from {}", networks.join(", "))
    })
}

fn telemetry(settings: &Settings) -> Result<String, String> {
    let target = settings.telemetry().map_err(|error| error.to_string())?;
    let exported =
        target.map_or("traces and metrics are not exported", |_| "traces and metrics are exported");
    Ok(exported.to_owned())
}

fn endpoints(settings: &Settings, metrics: &Metrics) -> Result<Rpc, String> {
    let urls = settings.endpoints().map_err(|error| error.to_string())?;
    Rpc::new(&urls, settings.rpc_timeout, metrics.clone()).map_err(|error| {
        // Most often the bundle of CA certificates is missing. The cause names no URL.
        let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
        format!("no HTTP client can be built{cause}")
    })
}

/// Returns the chain's id. All endpoints that answer must have it, and at least one must answer.
async fn chain_id(settings: &Settings, rpc: &Rpc, report: &mut CheckReport) -> Option<u64> {
    let mut found = settings.chain_id;
    let mut alive = false;
    let mut problems = Vec::new();
    for (label, id) in rpc.chain_ids().await {
        match (id, found) {
            (Ok(id), Some(expected)) if id != expected => {
                report.cross("chain id", format!("{label} is of chain {id}, not {expected}"));
                return None;
            }
            (Ok(id), _) => {
                found = Some(id);
                alive = true;
            }
            (Err(error), _) => {
                tracing::warn!(endpoint = %label, %error, "endpoint does not answer");
                problems.push(format!("{label}: {error}"));
            }
        }
    }
    if !alive {
        report.cross("rpc", format!("no RPC endpoint answers: {}", problems.join("; ")));
        return None;
    }
    report.tick("rpc", rpc.label());
    if let Some(id) = found {
        rpc.expect_chain(id);
        report.tick("chain id", id);
    }
    found
}

async fn code(chain: &Chain, name: &'static str, address: Address, report: &mut CheckReport) -> bool {
    match chain.has_code(address).await {
        Ok(true) => {
            report.tick(name, address);
            return true;
        }
        Ok(false) => report.cross(name, format!("no contract at {address}")),
        Err(error) => report.cross(name, error),
    }
    false
}

/// Checks that the key signs for its own address.
async fn signs(key: &TxSigner, chain_id: u64) -> Result<String, String> {
    let tried = key.try_out(chain_id).await;
    tried.map(|()| "the key signs".to_owned()).map_err(|error| error.to_string())
}

/// Checks that the forwarder has our domain separator: whether it accepts a signature made with it, since a
/// getter is optional. A key for this alone signs: the account's may sign nothing but transactions.
async fn same_domain(chain: &Chain, chain_id: u64) -> Result<String, String> {
    let key = PrivateKeySigner::from_bytes(&B256::repeat_byte(1)).map_err(|error| error.to_string())?;
    let says = |error: RpcError| format!("the forwarder does not answer like one: {error}");
    let request = ForwardRequest {
        from: key.address(),
        to: chain.registry,
        value: U256::ZERO,
        gas: U256::ZERO,
        nonce: chain.forwarder_nonce(key.address()).await.map_err(says)?,
        deadline: alloy::primitives::aliases::U48::ZERO,
        data: alloy::primitives::Bytes::new(),
    };
    let domain = domain(chain_id, chain.forwarder);
    let mut signed = SignedRequest { request, signature: alloy::primitives::Bytes::new() };
    let digest = signed.digest(&domain);
    let signature = key.sign_hash_sync(&digest).map_err(|_| "the key cannot sign".to_owned())?;
    signed.signature = signature.as_bytes().into();
    let execute = IForwarder::executeCall { req: signed.request, signature: signed.signature };
    if chain.verify(&execute).await.map_err(says)? {
        return Ok(format!("separator {}", domain.separator()));
    }
    let mut text =
        "the forwarder's EIP-712 domain is not MinimalForwarder, version 1, on this chain".to_owned();
    if let Ok(real) = chain.view(chain.forwarder, &IForwarder::eip712DomainCall {}).await {
        text = format!(
            "the forwarder's EIP-712 domain is {}, version {}, chain {}, {}",
            real.name, real.version, real.chainId, real.verifyingContract
        );
    }
    Err(text)
}

async fn trusted(chain: &Chain) -> Result<String, String> {
    let call = IAgentRegistry::isTrustedForwarderCall { forwarder: chain.forwarder };
    match chain.view(chain.registry, &call).await {
        Ok(true) => Ok("the registry trusts the forwarder".to_owned()),
        Ok(false) => Err("the registry does not trust this forwarder".to_owned()),
        Err(error) => Err(format!("the registry does not say whether it trusts the forwarder: {error}")),
    }
}

/// Asks about all accounts at once.
async fn all(keys: &[TxSigner], ask: impl AsyncFn(&TxSigner) -> Result<String, String>) -> Vec<AccountCheck> {
    join_all(keys.iter().map(async |key| (key.address(), ask(key).await))).await
}

async fn balance(chain: &Chain, account: Address) -> Result<String, String> {
    let wei = chain.balance(account).await.map_err(|error| error.to_string())?;
    let text = format!("{} ETH", format_ether(wei));
    if wei < MINIMUM_BALANCE_WEI {
        return Err(format!("{text}: less than {} ETH", format_ether(MINIMUM_BALANCE_WEI)));
    }
    Ok(text)
}

/// Checks base fee and fee history: the daemon sends transactions of type 2 only, and prices them by these.
async fn fees(chain: &Chain) -> Result<String, String> {
    let header = chain.header("latest").await.map_err(|error| error.to_string())?;
    if header.is_some_and(|header| header.base_fee_per_gas.is_none()) {
        return Err("the chain's blocks have no base fee: it needs EIP-1559 (London)".to_owned());
    }
    let market = chain.market().await.map_err(|error| format!("no fees are told: {error}"))?;
    let gwei = |wei| format_units(wei, "gwei").unwrap_or_default();
    Ok(format!("base fee {} gwei, tip {} gwei", gwei(market.next_base_fee), gwei(market.tip)))
}

/// Checks that the account has no code (EIP-7702), with which nodes keep only one of its transactions.
async fn undelegated(chain: &Chain, account: Address) -> Result<String, String> {
    match chain.has_code(account).await {
        Ok(false) => Ok("the account has no code".to_owned()),
        Ok(true) => {
            Err("the account has code (an EIP-7702 delegation): nodes keep one pending transaction of it, \
                         and the code may spend its balance"
                .to_owned())
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Compares our clock with the pending block: its time is current even where blocks come only on demand.
async fn clock_skew(chain: &Chain, now: u64) -> Result<String, String> {
    let mut chain_time = None;
    for block in ["pending", "latest"] {
        if let Some(header) = chain.header(block).await.map_err(|error| error.to_string())? {
            chain_time = chain_time.max(Some(header.timestamp.to::<u64>()));
        }
    }
    let chain_time = chain_time.ok_or_else(|| "the chain has no block".to_owned())?;
    let skew = chain_time.abs_diff(now);
    if skew > CLOCK_SKEW {
        let side = if now > chain_time { "ahead of" } else { "behind" };
        return Err(format!("our clock is {skew} s {side} the chain's (or the chain stands still)"));
    }
    Ok(format!("within {skew} s of the chain's"))
}
