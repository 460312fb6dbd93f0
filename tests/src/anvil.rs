//! A local chain node: anvil on a free port, with its clock and its miner in the caller's hands.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use alloy::primitives::{Address, Bytes, U256};
use alloy::providers::{DynProvider, Provider as _, ProviderBuilder};
use alloy::rpc::types::BlockNumberOrTag;
use alloy::signers::local::PrivateKeySigner;
use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::process::{Process, Spawn};
use crate::{http, repo};

/// How long anvil may take to listen.
const START: Duration = Duration::from_secs(20);

/// What to start; the default is a chain of id 31337 on a free port, at the wall clock's time.
#[derive(Debug, Clone, Default)]
pub struct AnvilOptions {
    /// The port; 0 is any free one.
    pub port: u16,
    /// The genesis block's time in unix seconds; `None` is now.
    pub genesis_time: Option<u64>,
    /// The time between blocks; `None` mines a block per transaction.
    pub block_time: Option<Duration>,
    /// The chain's id; `None` is anvil's 31337.
    pub chain_id: Option<u64>,
    /// Where anvil's output is kept.
    pub log: Option<PathBuf>,
}

/// A running anvil.
#[derive(Debug)]
pub struct Anvil {
    process: Process,
    options: AnvilOptions,
    url: String,
    /// What a stopped node had.
    state: Option<Value>,
    /// Talks to the node as an unlocked wallet would: transactions go out through `eth_sendTransaction`.
    pub provider: DynProvider,
}

impl Anvil {
    /// Starts a node and waits until it listens.
    ///
    /// # Errors
    /// When anvil is not installed, or ends before it listens: a taken port, for one.
    pub async fn start(options: AnvilOptions) -> Result<Self> {
        let mut spawn = Spawn::new("anvil", repo::node_tool("anvil")?).args([
            "--port",
            &options.port.to_string(),
            "--order",
            "fifo",
        ]);
        if let Some(time) = options.genesis_time {
            spawn = spawn.args(["--timestamp", &time.to_string()]);
        }
        if let Some(time) = options.block_time {
            spawn = spawn.args(["--block-time", &time.as_secs_f64().to_string()]);
        }
        if let Some(id) = options.chain_id {
            spawn = spawn.args(["--chain-id", &id.to_string()]);
        }
        if let Some(log) = &options.log {
            spawn = spawn.log(log);
        }
        let mut process = spawn.start()?;
        let address = process
            .until("listening", START, async |log| {
                log.lines().find_map(|line| line.strip_prefix("Listening on ").map(str::to_owned))
            })
            .await?;
        let url = format!("http://{address}");
        let provider = connect(&url)?;
        Ok(Self { process, options, url, state: None, provider })
    }

    /// The node's JSON-RPC endpoint.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The port the node listens on.
    pub fn port(&self) -> u16 {
        self.url
            .rsplit(':')
            .next()
            .and_then(|port| port.parse().ok())
            .expect("the address ends with the port")
    }

    /// Stops the node; its port refuses connections until [`resume`](Self::resume).
    ///
    /// # Errors
    /// When the node will not hand out its state.
    pub async fn stop(&mut self) -> Result<()> {
        self.state = Some(self.request("anvil_dumpState", json!([])).await?);
        self.process.kill();
        Ok(())
    }

    /// Starts a stopped node again, on its port and with the state it had.
    ///
    /// # Errors
    /// When the node was not stopped, its port is taken, or it will not take its state back.
    pub async fn resume(&mut self) -> Result<()> {
        let state = self.state.take().context("the node was not stopped")?;
        let options = AnvilOptions { port: self.port(), ..self.options.clone() };
        *self = Self::start(options).await?;
        let _: bool = self.request("anvil_loadState", json!([state])).await?;
        Ok(())
    }

    /// Any JSON-RPC call.
    ///
    /// # Errors
    /// When the node answers an error, or something that is no `T`.
    pub async fn request<T>(&self, method: &'static str, params: Value) -> Result<T>
    where
        T: serde::de::DeserializeOwned + std::fmt::Debug + Send + Sync + Unpin + 'static,
    {
        self.provider.raw_request(method.into(), params).await.with_context(|| format!("{method} failed"))
    }

    /// The latest block's time, unix seconds.
    ///
    /// # Errors
    /// When the node does not answer.
    pub async fn time(&self) -> Result<u64> {
        let latest = self.provider.get_block_by_number(BlockNumberOrTag::Latest).await?;
        Ok(latest.context("a chain has a latest block")?.header.timestamp)
    }

    /// Gives the next block this time, unix seconds, and lets the clock run on from there.
    ///
    /// # Errors
    /// When it is not after the latest block's.
    pub async fn set_next_block_time(&self, unix_seconds: u64) -> Result<()> {
        let _: Value = self.request("evm_setNextBlockTimestamp", json!([unix_seconds])).await?;
        Ok(())
    }

    /// Moves the clock forward and mines a block there.
    ///
    /// # Errors
    /// When the node does not answer.
    pub async fn advance(&self, seconds: u64) -> Result<()> {
        let _: Value = self.request("evm_increaseTime", json!([seconds])).await?;
        self.mine(1).await
    }

    /// Mines blocks.
    ///
    /// # Errors
    /// When the node does not answer.
    pub async fn mine(&self, blocks: u64) -> Result<()> {
        let _: Value = self.request("anvil_mine", json!([format!("{blocks:#x}")])).await?;
        Ok(())
    }

    /// Whether each transaction gets a block of its own at once; off, transactions wait for [`mine`](Self::mine).
    ///
    /// # Errors
    /// When the node does not answer.
    pub async fn set_automine(&self, on: bool) -> Result<()> {
        let _: Value = self.request("evm_setAutomine", json!([on])).await?;
        Ok(())
    }

    /// From now on makes a block every so many seconds.
    ///
    /// # Errors
    /// When the node does not answer.
    pub async fn set_block_seconds(&self, seconds: u64) -> Result<()> {
        let _: Value = self.request("evm_setIntervalMining", json!([seconds])).await?;
        Ok(())
    }

    /// Sets an account's balance in wei.
    ///
    /// # Errors
    /// When the node does not answer.
    pub async fn set_balance(&self, account: Address, wei: U256) -> Result<()> {
        let _: Value = self.request("anvil_setBalance", json!([account, wei])).await?;
        Ok(())
    }

    /// Puts code at an address.
    ///
    /// # Errors
    /// When the node does not answer.
    pub async fn set_code(&self, account: Address, code: &Bytes) -> Result<()> {
        let _: Value = self.request("anvil_setCode", json!([account, code])).await?;
        Ok(())
    }

    /// Lets the node send transactions from any account without its key; the account still pays for its gas.
    ///
    /// # Errors
    /// When the node does not answer.
    pub async fn impersonate_anyone(&self) -> Result<()> {
        let _: Value = self.request("anvil_autoImpersonateAccount", json!([true])).await?;
        Ok(())
    }

    /// The process behind the node, for its log and for signals.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}

/// A provider without fillers: what it is given is what the node gets.
///
/// # Errors
/// When `url` is none.
pub fn connect(url: &str) -> Result<DynProvider> {
    let url = url.parse().with_context(|| "the RPC URL is not a URL")?;
    let client = http::client(Duration::from_secs(60));
    Ok(ProviderBuilder::new().disable_recommended_fillers().connect_reqwest(client, url).erased())
}

/// The key of one of the ten accounts anvil funds and unlocks. Everybody knows these keys.
///
/// # Panics
/// When `index` is above 9.
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

/// The address of one of the ten accounts anvil funds and unlocks.
///
/// # Panics
/// When `index` is above 9.
pub fn dev_account(index: usize) -> Address {
    dev_key(index).address()
}

/// The wall clock, unix seconds.
pub fn wall_clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}
