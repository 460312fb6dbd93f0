//! What has to be true in the end, whatever went wrong on the way, and the stage most tests play on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use alloy::primitives::Address;
use alloy::signers::local::PrivateKeySigner;
use e2e::anvil::{AnvilOptions, dev_key};
use e2e::chain::Chain;
use e2e::daemon::{Daemon, DaemonOptions};
use e2e::process::eventually;
use e2e::proxy::Proxy;
use e2e::relay::{Desk, RelayClient, Signed};
use e2e::seed::wallet;
use serde_json::{Value, json};

/// How long anything may take that the daemon does by itself.
pub(crate) const PATIENCE: Duration = Duration::from_secs(45);

/// A chain, a proxy before its node, and the settings of a daemon that sees the node through the proxy only.
pub(crate) struct Stage {
    pub(crate) chain: Chain,
    pub(crate) proxy: Proxy,
    pub(crate) desk: Desk,
    pub(crate) options: DaemonOptions,
}

impl Stage {
    pub(crate) async fn set() -> Self {
        Self::on(AnvilOptions::default()).await
    }

    /// On a chain of this kind.
    pub(crate) async fn on(options: AnvilOptions) -> Self {
        let chain = Chain::start(options).await.unwrap();
        let proxy = Proxy::start(chain.node.url()).await.unwrap();
        let options = DaemonOptions::new(proxy.url(), chain.contracts, &relayer());
        Self { desk: Desk::of(&chain), chain, proxy, options }
    }

    /// Starts the daemon.
    pub(crate) async fn daemon(&self) -> (Daemon, RelayClient) {
        let daemon = Daemon::start(&self.options).await.unwrap();
        let client = daemon.client();
        (daemon, client)
    }

    /// Posts without waiting for the answer; returns once the transaction is on its way to the node.
    pub(crate) async fn post_and_see_sent(
        &self,
        client: &RelayClient,
        request: &Signed,
    ) -> tokio::task::JoinHandle<reqwest::Result<e2e::client::Answer>> {
        let sent = self.proxy.calls("eth_sendRawTransaction");
        let answer = post(client, request);
        eventually("sent", PATIENCE, async || {
            (self.proxy.calls("eth_sendRawTransaction") > sent).then_some(())
        })
        .await
        .unwrap();
        // What the proxy has seen, the node has a moment later.
        eventually("in the pool", PATIENCE, async || {
            let (mined, pending) = self.chain.nonces_of(self.options.relayer()).await.unwrap();
            (pending > mined).then_some(())
        })
        .await
        .unwrap();
        answer
    }

    /// The next block's base fee, wei.
    pub(crate) async fn gas_costs(&self, wei: u64) {
        let params = json!([format!("{wei:#x}")]);
        let _: Value = self.chain.node.request("anvil_setNextBlockBaseFeePerGas", params).await.unwrap();
    }

    /// The same after a reorganisation: what the lost block had charged is not given back where the new one
    /// is cheaper, so the budget may count more than was paid in the end, but no more than was paid in both.
    pub(crate) async fn audit_after_reorganisation(
        &self,
        client: &RelayClient,
        executed: &[&Signed],
        undone_wei: u128,
    ) {
        let (used, paid) = accounts(&self.chain, &self.options, client, executed).await;
        assert!((paid..=paid + undone_wei).contains(&used), "{used} {paid} {undone_wei}");
    }

    /// See [`audit`].
    pub(crate) async fn audit(&self, client: &RelayClient, executed: &[&Signed]) {
        audit(&self.chain, &self.options, client, executed).await;
    }
}

/// The account that pays in these tests.
pub(crate) fn relayer() -> PrivateKeySigner {
    dev_key(9)
}

/// A key without any ETH.
pub(crate) fn agent(name: &str) -> PrivateKeySigner {
    wallet(&format!("relayed {name}"))
}

/// Posts in the background.
pub(crate) fn post(
    client: &RelayClient,
    request: &Signed,
) -> tokio::task::JoinHandle<reqwest::Result<e2e::client::Answer>> {
    let (client, request) = (client.clone(), request.clone());
    tokio::spawn(async move { client.try_relay(&request).await })
}

/// When a request of a stream was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Answered {
    /// Since the stream began.
    pub(crate) at: Duration,
    /// Since it was posted.
    pub(crate) took: Duration,
}

/// So many clients post one of these requests after the other, all of which are executed; when each was
/// answered, in this order.
pub(crate) async fn stream(client: &RelayClient, requests: Vec<Signed>, clients: usize) -> Vec<Answered> {
    let requests = Arc::new(requests);
    let (next, started) = (Arc::new(AtomicUsize::new(0)), Instant::now());
    let waiting: Vec<_> = (0..clients)
        .map(|_| {
            let (client, requests, next) = (client.clone(), Arc::clone(&requests), Arc::clone(&next));
            tokio::spawn(async move {
                let mut done = Vec::new();
                while let Some(request) = requests.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let posted = Instant::now();
                    client.relay(request).await.ok();
                    done.push(Answered { at: started.elapsed(), took: posted.elapsed() });
                }
                done
            })
        })
        .collect();
    let mut done = Vec::new();
    for client in waiting {
        done.extend(client.await.unwrap());
    }
    done.sort_unstable();
    done
}

/// Posts these requests while the chain makes no block, and waits until all their transactions are in the
/// pool, sent from these accounts.
pub(crate) async fn leave_pending(
    stage: &Stage,
    client: &RelayClient,
    accounts: &[Address],
    requests: &[Signed],
) {
    stage.chain.node.set_automine(false).await.unwrap();
    for request in requests {
        drop(post(client, request));
    }
    eventually("pending", PATIENCE, async || {
        let mut waiting = 0;
        for account in accounts {
            let (mined, pending) = stage.chain.nonces_of(*account).await.unwrap();
            waiting += pending - mined;
        }
        (waiting == requests.len() as u64).then_some(())
    })
    .await
    .unwrap();
}

/// Has one block mine all that is pending, lets the chain make blocks again, and waits until all these
/// requests are executed.
pub(crate) async fn executed(stage: &Stage, client: &RelayClient, requests: &[Signed]) {
    stage.chain.node.mine(1).await.unwrap();
    stage.chain.node.set_automine(true).await.unwrap();
    eventually("executed", PATIENCE, async || {
        for request in requests {
            if client.state(request).await.ok()["state"] != "executed" {
                return None;
            }
        }
        Some(())
    })
    .await
    .unwrap();
}

/// Waits until the daemon has nothing in flight.
pub(crate) async fn settled(client: &RelayClient) {
    eventually("settled", PATIENCE, async || (client.depth().await == 0).then_some(())).await.unwrap();
}

/// Waits until the daemon says that it is ready.
pub(crate) async fn ready(client: &RelayClient, patience: Duration) {
    eventually("ready", patience, async || (client.get("/readyz").await.status == 200).then_some(()))
        .await
        .unwrap();
}

/// Once everything is settled: exactly these requests were executed, each once; the relayer's nonces have no
/// gap and nothing waits; and the budget counts what was really paid, to the wei.
pub(crate) async fn audit(
    chain: &Chain,
    options: &DaemonOptions,
    client: &RelayClient,
    executed: &[&Signed],
) {
    let (used, paid) = accounts(chain, options, client, executed).await;
    assert_eq!(used, paid, "the budget counts what was paid");
}

/// All of [`audit`] but its last line: what the budget counts, and what was paid.
async fn accounts(
    chain: &Chain,
    options: &DaemonOptions,
    client: &RelayClient,
    executed: &[&Signed],
) -> (u128, u128) {
    settled(client).await;
    let mut expected: Vec<(Address, u64, bool)> = executed
        .iter()
        .map(|request| (request.signed.request.from, request.signed.request.nonce.to(), true))
        .collect();
    let mut found = chain.executions().await.unwrap();
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected, "executions on chain");

    for request in executed {
        assert_eq!(client.state(request).await.ok()["state"], "executed");
    }
    let (mined, pending) = chain.nonces_of(options.relayer()).await.unwrap();
    assert_eq!(mined, pending, "nothing waits");
    let transactions = chain.transactions_of(options.relayer()).await.unwrap();
    assert_eq!(transactions.keys().copied().collect::<Vec<_>>(), (0..mined).collect::<Vec<_>>(), "no gap");
    (client.used_wei().await, transactions.values().map(|transaction| transaction.paid_wei).sum())
}
