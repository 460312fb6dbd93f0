//! Puts a daemon's senders and its pipeline together, over the chain or a test's model of it.

use std::sync::Arc;

use alloy::primitives::Address;
use anyhow::Context as _;
use registry_core::forward::domain;
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
    time::Instant,
};

use crate::{
    chain::ChainNode,
    daemon::{check::CheckedKey, fleet::MakeSender, keyless::MakeFollower},
    metrics::Metrics,
    process::{clock::SharedClock, shutdown::ShutdownSignal},
    relay::{
        Reads, Relayer, RequestTerms,
        backoff::SharedBackoff,
        check_permits::CheckPermits,
        gas_price::GasPrice,
        inflight::Inflight,
        policy::{SharedPolicy, decision::DecisionClient},
        rate_limits::RateLimits,
    },
    sender::{
        Parts, Sender, SenderEvent, accounts::Accounts, lease::Lease, receipt_reader::Contracts,
        signing::Wallet,
    },
    signer::TxSigner,
    store::{Store, control::SharedOrders},
};

/// Parts of the senders and the pipeline.
pub struct DaemonParts<N> {
    /// The chain.
    pub chain: Arc<N>,
    /// The chain's id.
    pub chain_id: u64,
    /// The contracts on it.
    pub contracts: Contracts,
    /// The store.
    pub store: Arc<Store>,
    /// The keys that pay.
    pub keys: Vec<CheckedKey>,
    /// The gas limit of no-ops.
    pub no_op_gas: u64,
    /// The most transactions of an account in the pool.
    pub max_pending: usize,
    /// The most relays in flight.
    pub max_queue: usize,
    /// Rules for requests, and limits on their cost.
    pub terms: RequestTerms,
    /// The rate limits.
    pub limits: RateLimits,
    /// The sponsorship policy.
    pub policy: Arc<SharedPolicy>,
    /// The client of the decision webhook.
    pub decisions: DecisionClient,
    /// The clock.
    pub clock: SharedClock,
    /// The metrics.
    pub metrics: Metrics,
    /// Set at shutdown.
    pub stopping: ShutdownSignal,
    /// Set while the daemon drains.
    pub draining: ShutdownSignal,
}

/// The pipeline, and the functions that make the senders below it.
pub struct Assembly<N> {
    /// The pipeline.
    pub relayer: Arc<Relayer<N>>,
    /// Makes an account's sender for a lease.
    pub make: MakeSender<N>,
    /// Makes the sender of an account without its key.
    pub make_follower: MakeFollower<N>,
    /// The senders of a daemon that is alone. In a fleet they come with the leases.
    pub senders: Vec<Arc<Sender<N>>>,
    events: mpsc::UnboundedReceiver<SenderEvent>,
}

impl<N: ChainNode> Assembly<N> {
    /// Puts the parts together. Nothing runs yet.
    ///
    /// # Errors
    /// Fails if there is no key.
    pub fn new(parts: DaemonParts<N>) -> anyhow::Result<Self> {
        let DaemonParts { chain, chain_id, contracts, store, keys, no_op_gas, terms, clock, metrics, .. } =
            parts;
        let wallet = move |key: &CheckedKey| {
            Wallet::new(key.signer.clone(), chain_id, contracts.forwarder).with_no_op_gas(no_op_gas)
        };
        let any_wallet = wallet(keys.first().context("no key")?);
        let configured: Vec<Address> = keys.iter().map(|key| key.signer.address()).collect();
        let (events_in, events) = mpsc::unbounded_channel();
        let (room, has_room) = watch::channel(());
        let (block, _) = watch::channel(Instant::now());
        let (orders, spending, max_pending) = (SharedOrders::default(), terms.spending, parts.max_pending);
        let new_sender = {
            let (node, store, orders) = (Arc::clone(&chain), Arc::clone(&store), orders.clone());
            let (clock, metrics) = (clock.clone(), metrics.clone());
            Arc::new(move |wallet: Wallet, lease: Lease| {
                Sender::new(Parts {
                    node: Arc::clone(&node),
                    store: Arc::clone(&store),
                    wallet,
                    lease,
                    contracts,
                    spending,
                    orders: orders.clone(),
                    max_pending,
                    room: room.clone(),
                    block: block.clone(),
                    clock: clock.clone(),
                    metrics: metrics.clone(),
                    events: events_in.clone(),
                })
            })
        };
        let make_follower: MakeFollower<N> = {
            let new_sender = Arc::clone(&new_sender);
            Arc::new(move |account| {
                let wallet = Wallet::new(TxSigner::absent(account), chain_id, contracts.forwarder);
                Arc::new(new_sender(wallet, Lease::forever()))
            })
        };
        let make: MakeSender<N> = Arc::new(move |account, lease| {
            let key = keys.iter().find(|key| key.signer.address() == account)?;
            let sender = new_sender(wallet(key), lease);
            sender.saw_code(key.has_code);
            if let Some(why) = &key.unsigned {
                sender.signer_failed(why);
            }
            Some(Arc::new(sender))
        });
        let own = configured.iter().filter(|_| !store.is_shared());
        let senders: Vec<_> = own.filter_map(|account| make(*account, Lease::forever())).collect();
        let relayer = Arc::new(Relayer {
            contracts,
            domain: domain(chain_id, contracts.forwarder),
            terms,
            limits: parts.limits,
            policy: parts.policy,
            decisions: parts.decisions,
            gas_price: GasPrice::default(),
            wallet: any_wallet,
            inflight: Inflight::new(parts.max_queue),
            reads: Reads::default(),
            clock,
            metrics,
            accounts: Accounts::new(senders.clone(), &configured, orders.clone(), has_room),
            orders,
            checks: CheckPermits::for_accounts(configured.len()),
            configured,
            backoff: SharedBackoff::default(),
            stopping: parts.stopping,
            draining: parts.draining,
            handed_over: Default::default(),
            chain,
            store,
        });
        Ok(Self { relayer, make, make_follower, senders, events })
    }

    /// Accounts for every stored nonce, and runs the relays again that have none, before any request is
    /// accepted. In a fleet this comes with the leases.
    ///
    /// # Errors
    /// Errors of the store and the chain.
    pub async fn recover(&self) -> anyhow::Result<()> {
        let (relayer, store) = (&self.relayer, &self.relayer.store);
        relayer.orders.replace(store.run(|store| store.orders()).await?);
        for sender in &self.senders {
            let recovered = sender.recover().await;
            let in_flight = recovered
                .with_context(|| format!("journal not recovered for account {}", sender.account()))?;
            in_flight.iter().for_each(|relay| relayer.takes_over(relay));
        }
        if !store.is_shared() {
            let now = relayer.clock.now();
            let unsent = store.run(move |store| store.unsent(now)).await?;
            unsent.into_iter().for_each(|relay| relayer.resume(relay));
        }
        Ok(())
    }

    /// Passes the senders' events to the pipeline.
    pub fn listen(self) -> JoinHandle<()> {
        let Self { relayer, mut events, .. } = self;
        tokio::spawn(async move {
            while let Some(event) = events.recv().await {
                relayer.on_event(event).await;
            }
        })
    }
}
