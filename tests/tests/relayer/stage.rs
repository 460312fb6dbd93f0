//! The fixture of most tests, and the audit of what has to be true in the end, whatever went wrong.

use std::cell::RefCell;

use alloy::consensus::TxEnvelope;
use alloy::eips::eip2718::Decodable2718 as _;
use e2e::client::HttpAnswer;
pub(crate) use e2e::process::PATIENCE;
use e2e::proxy::{Post, Proxy};
use e2e::relay::RequestFactory;
use e2e::seed::wallet;
use tokio::task::JoinHandle;

use crate::prelude::*;

/// Message for a request with a wrong signature, a used nonce or a deadline in the past.
pub(crate) const MISMATCH: &str = "Invalid signature or nonce mismatch";

pub(crate) type PendingAnswer = JoinHandle<reqwest::Result<HttpAnswer>>;

/// A chain, a proxy before its node, and the settings of a daemon that knows the node by the proxy alone.
pub(crate) struct RelayerFixture {
    pub(crate) chain: Chain,
    pub(crate) proxy: Proxy,
    pub(crate) desk: RequestFactory,
    pub(crate) options: DaemonOptions,
    pub(crate) accounts: Vec<Address>,
    /// Requests that the chain has to have executed in the end.
    expected: RefCell<Vec<RelayRequest>>,
}

impl RelayerFixture {
    pub(crate) async fn set() -> Self {
        Self::on(AnvilOptions::default()).await
    }

    pub(crate) async fn on(options: AnvilOptions) -> Self {
        let chain = Chain::start(options).await.unwrap();
        let proxy = Proxy::start(chain.node.url()).await.unwrap();
        let options = DaemonOptions::new(proxy.url(), chain.contracts, &relayer());
        let accounts = vec![relayer().address()];
        Self {
            desk: RequestFactory::of(&chain),
            chain,
            proxy,
            options,
            accounts,
            expected: RefCell::default(),
        }
    }

    pub(crate) fn var(self, name: &'static str, value: impl std::fmt::Display) -> Self {
        Self { options: self.options.var(name, value), ..self }
    }

    pub(crate) fn keys(self, count: usize) -> Self {
        let keys: Vec<PrivateKeySigner> = (1..=count).map(dev_key).collect();
        let accounts = keys.iter().map(PrivateKeySigner::address).collect();
        Self { options: self.options.keys(&keys), accounts, ..self }
    }

    pub(crate) async fn daemon(&self) -> (RelayerDaemon, Client) {
        start(&self.options).await
    }

    pub(crate) fn registration(&self, name: &str) -> RelayRequest {
        self.desk.registration(&agent(name), 0)
    }

    pub(crate) fn registrations(&self, name: &str, count: usize) -> Vec<RelayRequest> {
        (0..count).map(|index| self.registration(&format!("{name} {index}"))).collect()
    }

    /// Has a request executed, and returns the answer.
    pub(crate) async fn relay(&self, client: &Client, request: &RelayRequest) -> Value {
        let answer = client.relay(request).await.ok();
        self.expect([request]);
        answer
    }

    pub(crate) async fn register(&self, client: &Client, name: &str) -> Value {
        self.relay(client, &self.registration(name)).await
    }

    pub(crate) fn expect<'a>(&self, requests: impl IntoIterator<Item = &'a RelayRequest>) {
        self.expected.borrow_mut().extend(requests.into_iter().cloned());
    }

    pub(crate) async fn leave_pending(&self, client: &Client, request: &RelayRequest) -> PendingAnswer {
        self.leave_all_pending(client, std::slice::from_ref(request)).await.remove(0)
    }

    /// Posts requests that have to be executed in the end, while the chain makes no blocks; returns once the
    /// node has their transactions.
    pub(crate) async fn leave_all_pending(
        &self,
        client: &Client,
        requests: &[RelayRequest],
    ) -> Vec<PendingAnswer> {
        self.chain.node.set_automine(false).await.unwrap();
        let before = self.waiting().await;
        let posted = requests.iter().map(|request| post(client, request)).collect();
        self.expect(requests);
        let all = before + requests.len() as u64;
        wait_until("in the pool", PATIENCE, async || self.waiting().await == all).await;
        posted
    }

    /// Returns each account's number of mined transactions, and of all.
    async fn counts(&self) -> Vec<(u64, u64)> {
        join_all(self.accounts.iter().map(async |account| self.chain.nonces_of(*account).await.unwrap()))
            .await
    }

    pub(crate) async fn waiting(&self) -> u64 {
        self.counts().await.into_iter().map(|(mined, all)| all - mined).sum()
    }

    pub(crate) async fn sent_by_each(&self) -> Vec<u64> {
        self.counts().await.into_iter().map(|(_, all)| all).collect()
    }

    /// Mines all pending transactions in one block, and lets the chain make blocks again.
    pub(crate) async fn mine(&self) {
        self.chain.node.mine(1).await.unwrap();
        self.chain.node.set_automine(true).await.unwrap();
    }

    pub(crate) async fn gas_costs(&self, wei: u128) {
        self.chain.node.command("anvil_setNextBlockBaseFeePerGas", json!([U256::from(wei)])).await.unwrap();
    }

    /// Returns the posts to the node except those of an idle daemon's rounds: the head, and each account's
    /// balance and count.
    pub(crate) fn asked(&self) -> Vec<Value> {
        let is_of_round = |post: &Post| {
            let about = &post.body["params"][0];
            match post.body["method"].as_str() {
                Some("eth_getBlockByNumber") => about == "latest",
                Some("eth_getBalance" | "eth_getTransactionCount") => {
                    self.accounts.iter().any(|account| *about == json!(account))
                }
                _ => false,
            }
        };
        self.proxy.log().into_iter().filter(|post| !is_of_round(post)).map(|post| post.body).collect()
    }

    /// Returns every transaction that was sent through the proxy, in order, without repetitions.
    pub(crate) fn sent(&self) -> Vec<TxEnvelope> {
        self.sent_in(|_| true)
    }

    /// Waits until the node has answered this many different transactions: before it has them, a block may
    /// be made without them.
    pub(crate) async fn until_sent(&self, count: usize) {
        let is_sent = || self.sent_in(|post| post.answer.get().is_some()).len() == count;
        wait_until("sent", PATIENCE, async || is_sent()).await;
    }

    fn sent_in(&self, is_counted: impl Fn(&Post) -> bool) -> Vec<TxEnvelope> {
        let mut sent: Vec<TxEnvelope> = Vec::new();
        let is_send = |post: &&Post| post.body["method"] == "eth_sendRawTransaction" && is_counted(post);
        for post in self.proxy.log().iter().filter(is_send) {
            let raw = hex::decode(post.body["params"][0].as_str().unwrap()).unwrap();
            let transaction = TxEnvelope::decode_2718_exact(&raw).unwrap();
            if sent.iter().all(|other| other.tx_hash() != transaction.tx_hash()) {
                sent.push(transaction);
            }
        }
        sent
    }

    pub(crate) async fn paid_by(&self, accounts: &[Address]) -> u128 {
        let mut paid = 0;
        for account in accounts {
            let transactions = self.chain.transactions_of(*account).await.unwrap();
            paid += transactions.values().map(|transaction| transaction.paid_wei).sum::<u128>();
        }
        paid
    }

    /// Checks, once nothing is in flight, that exactly the expected requests were executed, each once, as the
    /// daemon reports; that no transaction waits; and that the budget counts all payments to the wei.
    pub(crate) async fn audit(&self, client: &Client) {
        self.audit_after_reorganisation(client, 0).await;
    }

    /// Audits after a reorganisation: the charges of the lost block are not refunded where the new one is
    /// cheaper, so the budget may count more than was paid in the end, but no more than was paid in both.
    pub(crate) async fn audit_after_reorganisation(&self, client: &Client, undone_wei: u128) {
        wait_until("settled", PATIENCE, async || {
            let status = client.get("/status").await.ok();
            let of_fleet = status["fleet"]["pending"].as_u64();
            of_fleet.or(status["queue"]["depth"].as_u64()) == Some(0)
        })
        .await;
        let expected = self.expected.borrow().clone();
        let terms = |request: &RelayRequest| {
            let request = &request.signed.request;
            (request.from, request.nonce.to::<u64>(), true)
        };
        let mut terms: Vec<_> = expected.iter().map(terms).collect();
        let mut found = self.chain.executions().await.unwrap();
        terms.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, terms, "executions on chain");
        for request in &expected {
            assert_eq!(state(client, request).await, "executed");
        }
        assert_eq!(self.waiting().await, 0, "nothing waits");
        let (used, paid) = (client.used_wei().await, self.paid_by(&self.accounts).await);
        assert!((paid..=paid + undone_wei).contains(&used), "used {used}, paid {paid}, undone {undone_wei}");
    }
}

pub(crate) async fn start(options: &DaemonOptions) -> (RelayerDaemon, Client) {
    let daemon = RelayerDaemon::start(options).await.unwrap();
    let client = daemon.client();
    (daemon, client)
}

/// Returns the key that pays in most tests.
pub(crate) fn relayer() -> PrivateKeySigner {
    dev_key(9)
}

/// Derives a key without any ETH from its name.
pub(crate) fn agent(name: &str) -> PrivateKeySigner {
    wallet(&format!("relayed {name}"))
}

pub(crate) fn post(client: &Client, request: &RelayRequest) -> PendingAnswer {
    let (client, request) = (client.clone(), request.clone());
    tokio::spawn(async move { client.try_relay(&request).await })
}

pub(crate) async fn answer(posted: PendingAnswer) -> HttpAnswer {
    posted.await.unwrap().unwrap()
}

pub(crate) async fn state(client: &Client, request: &RelayRequest) -> Value {
    client.state(request).await.ok()["state"].clone()
}

pub(crate) async fn until_executed(client: &Client, requests: &[RelayRequest]) {
    for request in requests {
        let is_executed = async || client.state(request).await.json()["state"] == "executed";
        wait_until("executed", PATIENCE, is_executed).await;
    }
}

/// Waits until `/readyz` reports that requests are refused with this code.
pub(crate) async fn until_refusing(client: &Client, code: &str) {
    let refusing = async || client.get("/readyz").await.ok()["refusing"] == code;
    wait_until("of that refusal", PATIENCE, refusing).await;
}

/// Waits until `/readyz` has this status, and returns its answer.
pub(crate) async fn until_ready_is(client: &Client, status: u16) -> HttpAnswer {
    let answer = async || Some(client.get("/readyz").await).filter(|answer| answer.status == status);
    eventually("of that readiness", PATIENCE, answer).await.unwrap()
}
