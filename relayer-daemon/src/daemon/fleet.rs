//! The keeper of this daemon's leases in a fleet: renews them, takes over what other daemons leave behind,
//! and starts and ends the accounts' senders with the leases.
//!
//! A sender lives as long as one lease. A new lease, also of the same account, gets a new sender, which
//! recovers from the store as after a restart: nothing that an earlier one remembers is used again.

use std::{collections::BTreeMap, mem, sync::Arc, time::Duration};

use alloy::primitives::Address;
use futures_util::future::join_all;
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, Interval, MissedTickBehavior, interval, sleep},
};

use crate::{
    chain::ChainNode,
    process::shutdown::{ShutdownSignal, stopped},
    relay::{Relayer, inflight::Runner},
    sender::{Sender, carrier::Carrier, health::AccountState, lease::Lease},
    store::{
        Payer, Store,
        fleet::{BEAT, Beat, LEASE, MARGIN, WEBHOOKS},
    },
};

/// Interval between looks for relays that no living daemon runs, and for leases that are to be renewed.
const LOOK: Duration = Duration::from_millis(500);
/// Interval between looks for relays past their deadline that no daemon carries.
const LOOK_FOR_EXPIRED: Duration = Duration::from_secs(5);
/// The pause after a failed recovery.
const PAUSE: Duration = Duration::from_secs(1);

/// Makes the sender of an account for one lease.
pub type MakeSender<N> = Arc<dyn Fn(Address, Lease) -> Option<Arc<Sender<N>>> + Send + Sync>;

/// Keeper of this daemon's leases.
pub struct LeaseKeeper<N> {
    relayer: Arc<Relayer<N>>,
    make: MakeSender<N>,
    accounts: Vec<Address>,
    /// The webhooks' lease.
    duty: Lease,
    running: BTreeMap<Address, LeasedSender>,
    /// Senders that finish the step in hand. The account's next one waits for it.
    ending: BTreeMap<Address, JoinHandle<()>>,
    /// The number of failed commits when the leases were last taken as good.
    doubts: u64,
    beat_at: Option<Instant>,
    /// Time until which this daemon counts as living since the last beat, by the database's clock.
    alive_until: Option<i64>,
    /// The states of the accounts that this daemon has published.
    published: BTreeMap<Address, AccountState>,
}

/// A lease with the task of its sender.
struct LeasedSender {
    payer: Payer,
    lease: Lease,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl<N: ChainNode> LeaseKeeper<N> {
    /// Creates a keeper for the relayer's accounts, without a lease yet. `duty` is the lease of the webhooks.
    pub fn new(relayer: Arc<Relayer<N>>, make: MakeSender<N>, duty: Lease) -> Self {
        let doubts = relayer.store.doubts();
        let accounts = relayer.configured.iter().copied().chain([WEBHOOKS]).collect();
        Self {
            relayer,
            make,
            accounts,
            duty,
            running: BTreeMap::new(),
            ending: BTreeMap::new(),
            doubts,
            beat_at: None,
            alive_until: None,
            published: BTreeMap::new(),
        }
    }

    /// Keeps the leases until shutdown; then gives them back.
    pub async fn run(mut self, stop: ShutdownSignal) {
        // Concurrently: what a claim waits for must not delay a renewal.
        let claiming = claim_all(Arc::clone(&self.relayer), self.duty.clone(), stop.clone());
        tokio::join!(self.renew(stop), claiming);
        for account in self.running.keys().copied().collect::<Vec<_>>() {
            self.end(account);
        }
        join_all(mem::take(&mut self.ending).into_values()).await;
        if let Err(error) = self.relayer.store.run(|store| store.leave()).await {
            tracing::warn!(%error, "leases not given back: they end by themselves");
        }
    }

    /// Renews the leases in time, and at once after a failed commit, until shutdown.
    async fn renew(&mut self, stop: ShutdownSignal) {
        let mut looks = PollTicks::until(stop);
        while looks.next().await {
            let has_failed = self.relayer.store.doubts() != self.doubts;
            if has_failed || self.beat_at.is_none_or(|at| at.elapsed() >= BEAT) {
                self.beat().await;
            }
            self.publish_states().await;
        }
    }

    /// Publishes the states of this daemon's accounts that have changed. A draining daemon publishes none: it
    /// takes no relays of others, and its accounts, which pass to other daemons, send only its own relays.
    async fn publish_states(&mut self) {
        let mut states = self.relayer.accounts.lasting_states();
        if *self.relayer.draining.borrow() {
            states.clear();
        }
        let state = |states: &BTreeMap<Address, AccountState>, account: &Address| {
            states.get(account).copied().unwrap_or(AccountState::Elsewhere)
        };
        let accounts = self.accounts.iter().filter(|account| **account != WEBHOOKS);
        let changed: Vec<(Address, AccountState)> = accounts
            .filter(|&account| state(&states, account) != state(&self.published, account))
            .map(|account| (*account, state(&states, account)))
            .collect();
        if changed.is_empty() {
            return;
        }
        let written = changed.clone();
        match self.relayer.store.run_at_once(move |store| store.publish_states(written)).await {
            Ok(()) => self.published.extend(changed),
            Err(error) => tracing::debug!(%error, "states of accounts not published"),
        }
    }

    async fn beat(&mut self) {
        // Taken before the question: the lease lasts at least as long as counted from here.
        let asked = Instant::now();
        self.beat_at = Some(asked);
        let doubts = self.relayer.store.doubts();
        // A failed commit may have written or not: every sender starts anew from the store.
        let renounce = doubts != self.doubts;
        let (accounts, alive_until) = (self.accounts.clone(), self.alive_until);
        let beat = move |store: &Store| store.beat(&accounts, renounce, alive_until);
        match self.relayer.store.run_at_once(beat).await {
            Ok(mut beat) => {
                self.doubts = doubts;
                self.published = mem::take(&mut beat.published);
                self.relayer.accounts.set_fleet_states(mem::take(&mut beat.states));
                self.alive_until = Some(beat.alive_until);
                self.follow(beat, asked + LEASE - MARGIN).await;
            }
            Err(error) => tracing::error!(%error, "leases not renewed"),
        }
    }

    /// Starts, renews and ends senders as the leases say.
    async fn follow(&mut self, beat: Beat, until: Instant) {
        self.relayer.metrics.fleet_daemons.set(i64::try_from(beat.daemons).unwrap_or(i64::MAX));
        let held: BTreeMap<Address, _> = beat.held.iter().map(|held| (held.payer.account, *held)).collect();
        let is_over = |running: &LeasedSender| {
            let held = held.get(&running.payer.account);
            beat.has_lost || held.is_none_or(|held| held.payer != running.payer)
        };
        let over: Vec<Address> = self
            .running
            .iter()
            .filter(|(_, running)| is_over(running))
            .map(|(account, _)| *account)
            .collect();
        for account in over {
            tracing::warn!(%account, "the account's lease is over");
            self.relayer.metrics.leases_lost.inc();
            self.end(account);
        }
        match held.get(&WEBHOOKS) {
            Some(held) if held.is_wanted => self.duty.renewed(until),
            Some(held) => {
                self.duty.renewed(Instant::now());
                self.release(held.payer).await;
            }
            None => self.duty.renewed(Instant::now()),
        }
        for held in held.into_values().filter(|held| held.payer.account != WEBHOOKS) {
            let account = held.payer.account;
            let Some(running) = self.running.get(&account) else {
                self.start(held.payer, until);
                continue;
            };
            running.lease.renewed(until);
            if held.is_wanted {
                running.lease.keep();
            } else if !running.lease.is_ending() {
                tracing::info!(%account, "the account goes to another daemon once nothing is in flight");
                running.lease.end();
            } else if self.is_idle(account) {
                self.end(account);
                self.release(held.payer).await;
            }
        }
        let leases = i64::try_from(self.running.len()).unwrap_or(i64::MAX);
        self.relayer.metrics.leases.set(leases);
    }

    /// Starts the sender of a lease. It takes relays once it has recovered.
    fn start(&mut self, payer: Payer, until: Instant) {
        let Payer { account, epoch } = payer;
        let lease = Lease::until(until, epoch.unwrap_or_default());
        let (stop, stopping) = watch::channel(false);
        let (relayer, make) = (Arc::clone(&self.relayer), Arc::clone(&self.make));
        tracing::info!(%account, ?epoch, "the account is this daemon's");
        let before = self.ending.remove(&account);
        let serving = serve_account(relayer, make, account, lease.clone(), stopping);
        let task = tokio::spawn(async move {
            if let Some(before) = before {
                // A panic was reported by the task itself.
                let _ = before.await;
            }
            serving.await;
        });
        self.running.insert(account, LeasedSender { payer, lease, stop, task });
    }

    fn is_idle(&self, account: Address) -> bool {
        let senders = self.relayer.accounts.senders();
        let sender = senders.iter().find(|sender| sender.account() == account);
        sender.is_some_and(|sender| sender.load() == 0 && sender.pending() == 0)
    }

    /// Ends a sender: it sends nothing from now on.
    fn end(&mut self, account: Address) {
        if let Some(LeasedSender { lease, stop, task, .. }) = self.running.remove(&account) {
            lease.renewed(Instant::now());
            self.relayer.accounts.remove(account);
            let _ = stop.send(true);
            self.ending.insert(account, task);
        }
    }

    async fn release(&self, payer: Payer) {
        if let Err(error) = self.relayer.store.run_at_once(move |store| store.release(payer)).await {
            tracing::warn!(%error, account = %payer.account, "lease not given back");
        }
    }
}

/// Ticks of a loop, at intervals until shutdown.
struct PollTicks {
    ticks: Interval,
    stop: ShutdownSignal,
}

impl PollTicks {
    fn until(stop: ShutdownSignal) -> Self {
        let mut ticks = interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { ticks, stop }
    }

    /// Waits for the next tick. Returns `false` at shutdown.
    async fn next(&mut self) -> bool {
        tokio::select! {
            biased;
            () = stopped(&mut self.stop) => false,
            _ = self.ticks.tick() => true,
        }
    }
}

/// Takes over what others have left behind, until shutdown.
async fn claim_all<N: ChainNode>(relayer: Arc<Relayer<N>>, duty: Lease, stop: ShutdownSignal) {
    let mut looks = PollTicks::until(stop);
    let mut looked_at: Option<Instant> = None;
    while looks.next().await {
        let is_due = looked_at.is_none_or(|at| at.elapsed() >= LOOK_FOR_EXPIRED);
        if is_due {
            looked_at = Some(Instant::now());
        }
        claim(&relayer, is_due && duty.is_valid()).await;
    }
}

/// Takes over relays that no living daemon runs. If another daemon carries relays, hands over those that this
/// one has by the store and does not run, as after a failover that lost a hand-over. With `ends_expired`,
/// takes those past their deadline in any case, to end them.
async fn claim<N: ChainNode>(relayer: &Arc<Relayer<N>>, ends_expired: bool) {
    let carries = relayer.accounts.carrier() != Carrier::Others;
    if !carries {
        let known = relayer.inflight.run_here();
        let left = relayer.store.run(move |store| store.left_with(known)).await;
        for id in left.unwrap_or_default() {
            relayer.hand_over(id).await;
        }
    }
    // Alone it finishes what others have left.
    let takes_all = carries && !relayer.drains_beside_others().await;
    if !takes_all && !ends_expired {
        return;
    }
    let (known, room) = (relayer.inflight.run_here(), relayer.inflight.room());
    if room.places == 0 && room.waited_for.is_empty() {
        return;
    }
    let now = relayer.clock.now();
    let claim = move |store: &Store| {
        if takes_all { store.claim(known, room, now) } else { store.claim_expired(known, room, now) }
    };
    match relayer.store.run(claim).await {
        Ok(claimed) => {
            for relay in claimed {
                tracing::info!(relay = %relay.id, "taken over");
                relayer.metrics.relays_claimed.inc();
                relayer.run_claimed(relay);
            }
        }
        Err(error) => tracing::debug!(%error, "no relays taken over"),
    }
}

/// Recovers an account and runs its sender, for as long as its lease lasts.
async fn serve_account<N: ChainNode>(
    relayer: Arc<Relayer<N>>,
    make: MakeSender<N>,
    account: Address,
    lease: Lease,
    mut stopping: ShutdownSignal,
) {
    let sender = loop {
        let Some(sender) = make(account, lease.clone()) else { return };
        let recovered = tokio::select! {
            biased;
            () = stopped(&mut stopping) => return relayer.metrics.forget_account(account),
            recovered = sender.recover() => recovered,
        };
        match recovered {
            Ok(in_flight) => {
                in_flight.iter().for_each(|relay| relayer.takes_over(relay));
                break sender;
            }
            Err(error) => {
                tracing::error!(%account, %error, "journal not recovered, tries again");
                sleep(PAUSE).await;
            }
        }
    };
    relayer.accounts.add(Arc::clone(&sender));
    Arc::clone(&sender).run(stopping).await;
    for relay in sender.retire() {
        relayer.inflight.set_runner(relay, Runner::Elsewhere);
    }
    relayer.metrics.forget_account(account);
}
