//! A local chain node: anvil on a free port, with its clock and its miner in the caller's hands.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use alloy::primitives::{Address, Bytes, U256};
use alloy::providers::{DynProvider, Provider as _, ProviderBuilder};
use alloy::rpc::types::{BlockNumberOrTag, TransactionReceipt, TransactionRequest};
use alloy::signers::local::PrivateKeySigner;
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::process::{PATIENCE, Process, Spawn, eventually};
use crate::{http, repo};

/// Pause between searches of the pool for transactions that anvil forgot.
const POOL_WATCH: Duration = Duration::from_secs(1);
/// States of earlier blocks that anvil keeps on disk, beside those in memory: it answers calls at these
/// blocks.
const PERSISTED_STATES: usize = 200;
/// Default id of a local chain.
pub const CHAIN_ID: u64 = 31_337;

#[derive(Debug, Clone, Default)]
pub struct AnvilOptions {
    /// The port; 0 is any free one.
    pub port: u16,
    /// The genesis block's time in unix seconds; `None` is the present.
    pub genesis_time: Option<u64>,
    /// The time between blocks; `None` mines a block per transaction.
    pub block_time: Option<Duration>,
    /// The chain's id; `None` is [`CHAIN_ID`].
    pub chain_id: Option<u64>,
    pub log: Option<PathBuf>,
}

impl AnvilOptions {
    pub fn since(genesis_time: u64) -> Self {
        Self { genesis_time: Some(genesis_time), ..Self::default() }
    }
}

#[derive(Debug)]
pub struct Anvil {
    process: Process,
    url: String,
    _pool_watch: JoinSet<()>,
    /// Talks to the node as an unlocked wallet would: transactions go out through `eth_sendTransaction`.
    pub provider: DynProvider,
}

impl Anvil {
    pub async fn start(options: AnvilOptions) -> Result<Self> {
        let mut spawn = Spawn::new("anvil", repo::node_tool("anvil")?);
        // Without these, states of up to 3,600 blocks stay in the user's home after each killed node: 30 GB
        // after 10,000 blocks with 10,000 agents.
        let states = spawn.scratch().to_owned();
        spawn = spawn.arg("--cache-path").arg(states);
        for (option, value) in [
            ("--max-persisted-states", Some(PERSISTED_STATES.to_string())),
            ("--order", Some("fifo".to_owned())),
            ("--port", Some(options.port.to_string())),
            ("--timestamp", options.genesis_time.map(|time| time.to_string())),
            ("--block-time", options.block_time.map(|time| time.as_secs_f64().to_string())),
            ("--chain-id", options.chain_id.map(|id| id.to_string())),
        ] {
            spawn = spawn.args(value.iter().flat_map(|value| [option, value]));
        }
        let mut process = spawn.log(options.log.as_deref()).start()?;
        let url = format!("http://{}", process.announced("Listening on ", PATIENCE).await?);
        let provider = connect(&url)?;
        let mut pool_watch = JoinSet::new();
        pool_watch.spawn(watch_pool(provider.clone()));
        Ok(Self { process, url, _pool_watch: pool_watch, provider })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub async fn request<T>(&self, method: &'static str, params: Value) -> Result<T>
    where
        T: serde::de::DeserializeOwned + std::fmt::Debug + Send + Sync + Unpin + 'static,
    {
        self.provider.raw_request(method.into(), params).await.with_context(|| format!("{method} failed"))
    }

    pub async fn command(&self, method: &'static str, params: Value) -> Result<()> {
        self.request::<Value>(method, params).await.map(drop)
    }

    /// Returns a block as the node describes it, without its transactions; `Null` where there is none.
    pub async fn block(&self, number: impl Into<BlockNumberOrTag>) -> Result<Value> {
        self.request("eth_getBlockByNumber", json!([number.into(), false])).await
    }

    pub async fn execute(&self, request: TransactionRequest) -> Result<TransactionReceipt> {
        let hash = *self.provider.send_transaction(request).await?.tx_hash();
        // alloy's own wait runs on one runtime; tests with a chain in common have several.
        let mined = async || self.provider.get_transaction_receipt(hash).await.transpose();
        Ok(eventually("mined", PATIENCE, mined).await??)
    }

    pub async fn height(&self) -> Result<u64> {
        Ok(self.provider.get_block_number().await?)
    }

    pub async fn time(&self) -> Result<u64> {
        quantity(&self.block(BlockNumberOrTag::Latest).await?["timestamp"]).context("a block has a time")
    }

    pub async fn reorganise(&self, depth: u64) -> Result<()> {
        self.command("anvil_reorg", json!([depth, []])).await
    }

    /// Mines a block with the present time: a Worker takes an old head for a node that is stuck.
    pub async fn freshen(&self) -> Result<()> {
        if self.time().await? < wall_clock() {
            self.set_next_block_time(wall_clock()).await?;
        }
        self.mine(1).await
    }

    /// Sets the time of the next block, in unix seconds; the clock runs on from there.
    pub async fn set_next_block_time(&self, unix_seconds: u64) -> Result<()> {
        self.command("evm_setNextBlockTimestamp", json!([unix_seconds])).await
    }

    pub async fn advance(&self, seconds: u64) -> Result<()> {
        self.command("evm_increaseTime", json!([seconds])).await?;
        self.mine(1).await
    }

    pub async fn mine(&self, blocks: u64) -> Result<()> {
        self.command("anvil_mine", json!([format!("{blocks:#x}")])).await
    }

    /// Sets whether each transaction gets a block of its own at once, or waits for [`mine`](Self::mine).
    pub async fn set_automine(&self, on: bool) -> Result<()> {
        self.command("evm_setAutomine", json!([on])).await
    }

    pub async fn set_balance(&self, account: Address, wei: U256) -> Result<()> {
        self.command("anvil_setBalance", json!([account, wei])).await
    }

    pub async fn set_code(&self, account: Address, code: &Bytes) -> Result<()> {
        self.command("anvil_setCode", json!([account, code])).await
    }

    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}

/// Refills anvil's pool where it keeps a transaction queued that has its sender's next nonce.
///
/// Anvil looks up the sender's nonce before it adds a transaction to the pool. After a block in between, the
/// transaction waits for ever for one that is mined already, and sending it again changes nothing.
async fn watch_pool(provider: DynProvider) {
    let mut seen = BTreeSet::new();
    loop {
        sleep(POOL_WATCH).await;
        // A node that is stopped or does not answer is searched later.
        let forgotten = forgotten(&provider).await.unwrap_or_default();
        if !forgotten.is_disjoint(&seen) {
            println!("anvil had forgotten queued transactions: {:?}", fill_pool_anew(&provider).await);
        }
        seen = forgotten;
    }
}

type Pool = BTreeMap<String, BTreeMap<Address, BTreeMap<u64, Value>>>;

async fn pool(provider: &DynProvider) -> Result<Pool> {
    Ok(provider.raw_request("txpool_content".into(), json!([])).await?)
}

/// Returns the hashes of the queued transactions that have their senders' next nonces.
async fn forgotten(provider: &DynProvider) -> Result<BTreeSet<String>> {
    let mut forgotten = BTreeSet::new();
    for (sender, transactions) in pool(provider).await?.remove("queued").unwrap_or_default() {
        let next = provider.get_transaction_count(sender).await?;
        forgotten.extend(transactions.get(&next).map(|transaction| transaction["hash"].to_string()));
    }
    Ok(forgotten)
}

/// Drops all transactions and sends them again: anvil cannot drop a single queued one.
async fn fill_pool_anew(provider: &DynProvider) -> Result<()> {
    let senders = pool(provider).await?.into_values().flat_map(BTreeMap::into_values);
    let mut raw = Vec::<Bytes>::new();
    for transaction in senders.flat_map(BTreeMap::into_values) {
        let hash = json!([transaction["hash"]]);
        raw.push(provider.raw_request("eth_getRawTransactionByHash".into(), hash).await?);
    }
    let _: Value = provider.raw_request("anvil_dropAllTransactions".into(), json!([])).await?;
    for raw in raw {
        // It was mined meanwhile, or its sender has sent it again.
        if let Err(error) = provider.send_raw_transaction(&raw).await {
            println!("anvil does not take a transaction again: {error}");
        }
    }
    Ok(())
}

/// Returns a provider without fillers: the node gets each request as it is given.
pub fn connect(url: &str) -> Result<DynProvider> {
    let url = url.parse().with_context(|| "the RPC URL is not a URL")?;
    let client = http::client(Duration::from_secs(60));
    Ok(ProviderBuilder::new().disable_recommended_fillers().connect_reqwest(client, url).erased())
}

/// Returns the key of one of the ten accounts that anvil funds and unlocks. These keys are public.
pub fn dev_key(index: usize) -> PrivateKeySigner {
    /// Derived from the mnemonic `test test test test test test test test test test test junk`.
    const KEYS: [&str; 10] = [
        "ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80",
        "59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d",
        "5de4111afa1a4b94908f83103eb1f1706367c2e68ca870fc3fb9a804cdab365a",
        "7c852118294e51e653712a81e05800f419141751be58f605c371e15141b007a6",
        "47e179ec197488593b187f80a00eb0da91f1b9d0b13f8733639f19c30a34926a",
        "8b3a350cf5c34c9194ca85829a2df0ec3153be0318b5e2d3348e872092edffba",
        "92db14e403b83dfe3df233f83dfa3a0d7096f21ca9b0d6d6b8d88b2b4ec1564e",
        "4bbbf85ce3377467afe5d46f804f221813b2bb87f24d81f60f1fcdbf7cbf4356",
        "dbda1821b80551c9d65939329250298aa3472ba22feea921c0cf5d620ea67b97",
        "2a871d0798f97d79848a013d4936a73bf4cc922c825d33c1cf7073dff6d409c6",
    ];
    KEYS[index].parse().expect("a well-formed key")
}

pub fn dev_account(index: usize) -> Address {
    dev_key(index).address()
}

/// Parses a number as JSON-RPC writes it: hexadecimal digits in a string.
pub fn quantity(value: &Value) -> Option<u64> {
    u64::from_str_radix(value.as_str()?.strip_prefix("0x")?, 16).ok()
}

pub fn wall_clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}
