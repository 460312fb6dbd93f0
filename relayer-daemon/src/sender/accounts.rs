//! The daemon's accounts: each relay goes to the least loaded one that can pay for it.
//!
//! The order of a signer's requests does not depend on accounts: a request is handed over once the one before
//! it is mined, and the forwarder refuses it before that.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, VecDeque},
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
    time::Duration,
};

use alloy::primitives::Address;
use tokio::{
    sync::{oneshot, watch},
    time::{Instant, timeout},
};

use super::{
    SendJob, Sender,
    carrier::{Carrier, KnownStates},
    health::AccountState,
};
use crate::{chain::ChainNode, outcome::Failure, store::control::SharedOrders};

/// Interval at which a relay that waits for room looks at the accounts again, notified or not.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Time that a checked relay waits for an account with room. Then it is checked once more, after others: its
/// deadline, the market and the balances may have changed.
const WAIT_FOR_ROOM: Duration = Duration::from_secs(15);

/// The accounts that pay. In a fleet they come and go with their leases.
#[derive(Debug)]
pub struct Accounts<N> {
    senders: RwLock<Vec<Arc<Sender<N>>>>,
    /// All accounts of the fleet, with the states that other daemons have published.
    fleet: Mutex<BTreeMap<Address, AccountState>>,
    orders: SharedOrders,
    room: watch::Receiver<()>,
    /// Relays that wait for an account with room, in the order of arrival.
    waiting: Mutex<VecDeque<WaitingJob>>,
}

/// The place of a checked relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placed {
    /// An account has it.
    Queued,
    /// It must be checked once more, after others, or is not carried here any more.
    Again,
    /// It must be checked once more: no account here can pay for it, but one that can may come.
    Unpaid,
}

/// A relay that waits for an account with room.
#[derive(Debug)]
struct WaitingJob {
    job: SendJob,
    placed: oneshot::Sender<Result<Placed, Failure>>,
}

impl<N: ChainNode> Accounts<N> {
    /// Creates the accounts of these senders, all of which tell `room`. `configured` are those that this
    /// daemon has keys of.
    pub fn new(
        senders: Vec<Arc<Sender<N>>>,
        configured: &[Address],
        orders: SharedOrders,
        room: watch::Receiver<()>,
    ) -> Self {
        let fleet = configured.iter().map(|account| (*account, AccountState::Elsewhere)).collect();
        Self {
            senders: RwLock::new(senders),
            fleet: Mutex::new(fleet),
            orders,
            room,
            waiting: Mutex::default(),
        }
    }

    /// Returns the senders, in the order of the settings, or in a fleet of their leases.
    pub fn senders(&self) -> Vec<Arc<Sender<N>>> {
        self.senders.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the accounts, in the same order.
    pub fn addresses(&self) -> Vec<Address> {
        self.senders().iter().map(|sender| sender.account()).collect()
    }

    /// Adds an account that was leased.
    pub fn add(&self, sender: Arc<Sender<N>>) {
        self.senders.write().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&sender));
        sender.made_room();
    }

    /// Removes an account with a lease that is over.
    pub fn remove(&self, account: Address) {
        let mut senders = self.senders.write().unwrap_or_else(PoisonError::into_inner);
        senders.retain(|sender| sender.account() != account);
    }

    /// Notes the states of the fleet's accounts as other daemons have published them.
    pub fn set_fleet_states(&self, states: BTreeMap<Address, AccountState>) {
        *self.fleet.lock().unwrap_or_else(PoisonError::into_inner) = states;
    }

    /// Returns the states of this daemon's accounts, as it publishes them.
    pub fn lasting_states(&self) -> BTreeMap<Address, AccountState> {
        self.senders().iter().map(|sender| (sender.account(), sender.lasting_state())).collect()
    }

    /// Returns which daemon carries relays now.
    pub fn carrier(&self) -> Carrier {
        self.known().carrier()
    }

    fn known(&self) -> KnownStates {
        let own = self.lasting_states();
        let orders = self.orders.current();
        let mut others = self.fleet.lock().unwrap_or_else(PoisonError::into_inner).clone();
        others.retain(|account, _| !own.contains_key(account));
        for (account, state) in &mut others {
            if orders.cordoned.contains_key(account) {
                *state = AccountState::Cordoned;
            }
        }
        let best = |states: &BTreeMap<Address, AccountState>| {
            states.values().copied().min().unwrap_or(AccountState::Elsewhere)
        };
        let is_any_unknown =
            own.values().chain(others.values()).any(|state| *state == AccountState::Elsewhere);
        KnownStates { own: best(&own), others: best(&others), is_any_unknown }
    }

    /// Returns the account that would get the next relay if it has room.
    pub fn next(&self) -> Option<Arc<Sender<N>>> {
        self.by_load(0).into_iter().next()
    }

    /// Returns why a relay ends that no account can pay for; `None` if it waits or is carried elsewhere.
    pub fn ends(&self) -> Option<Failure> {
        self.known().ends().map(Failure::of)
    }

    /// Returns the accounts that can pay `wei` more, least loaded first, of these the richest first, so that
    /// they spend alike. Stuck ones are among them only if no other account can, and those with signers that
    /// do not sign only if no account can sign.
    fn by_load(&self, wei: u128) -> Vec<Arc<Sender<N>>> {
        let leased = self.senders().into_iter().filter(|sender| sender.parts.lease.takes_relays());
        let states = leased.map(|sender| (sender.account_state(), sender));
        let able: Vec<_> = states.filter(|(state, sender)| state.is_able() && sender.can_pay(wei)).collect();
        let best = able.iter().map(|(state, _)| *state).min();
        let mut best: Vec<_> =
            able.into_iter().filter(|(state, _)| Some(*state) == best).map(|(_, sender)| sender).collect();
        best.sort_by_key(|sender| (sender.load(), Reverse(sender.balance_wei())));
        best
    }

    /// Puts a checked relay into the queue of the least loaded account that can pay for it. Waits a while if
    /// all of these are full, or if there is none and another one may come; relays that other accounts can
    /// pay for do not wait behind it. Returns the relay's place then. The `permit` is held while the pools of
    /// all accounts that get relays are full, so that no more is checked than will soon be sent.
    ///
    /// # Errors
    /// If no account can pay for it.
    pub async fn dispatch<P: Send>(&self, job: SendJob, permit: P) -> Result<Placed, Failure> {
        let mut permit = Some(permit);
        let worst_wei = job.worst_wei();
        let (placed, mut answer) = oneshot::channel();
        self.waiting().push_back(WaitingJob { job, placed });
        let deadline = Instant::now() + WAIT_FOR_ROOM;
        let mut room = self.room.clone();
        loop {
            room.mark_unchanged();
            self.place();
            // Those that get no relays now, such as cordoned ones, have room all the time.
            if self.by_load(0).iter().any(|sender| sender.has_room()) {
                permit = None;
            }
            tokio::select! {
                biased;
                // It is gone without an answer only once its sender is.
                placed = &mut answer => return placed.unwrap_or(Ok(Placed::Queued)),
                // Time alone may make a full account a stuck one.
                _ = timeout(LOOK_AGAIN, room.changed()) => {}
            }
            if Instant::now() >= deadline && !self.withdraw(&mut answer) {
                drop(permit);
                let is_unpaid = self.by_load(worst_wei).is_empty() && self.known().awaits_account();
                return Ok(if is_unpaid { Placed::Unpaid } else { Placed::Again });
            }
        }
    }

    /// Gives each relay that waits to an account with room, in the order of arrival.
    fn place(&self) {
        let mut waiting = self.waiting();
        for WaitingJob { job, placed } in mem::take(&mut *waiting) {
            if placed.is_closed() {
                continue;
            }
            let able = self.by_load(job.worst_wei());
            let answer = if let Some(sender) = able.iter().find(|sender| sender.has_room()) {
                sender.enqueue(job);
                Ok(Placed::Queued)
            } else if !able.is_empty() || self.known().awaits_account() {
                waiting.push_back(WaitingJob { job, placed });
                continue;
            } else {
                self.unpaid(job.worst_wei())
            };
            // Its task ended meanwhile: the store has the relay.
            let _ = placed.send(answer);
        }
    }

    /// Decides on a relay that may cost more than each account here can pay: it ends, or is not carried here
    /// any more. If another daemon's account is ready, relays go to that one for a while; an account that has
    /// fallen short itself would not pay either.
    fn unpaid(&self, wei: u128) -> Result<Placed, Failure> {
        if self.known().others != AccountState::Ready {
            return self.ends().map_or(Ok(Placed::Again), Err);
        }
        self.senders().iter().for_each(|sender| sender.fell_short(wei));
        Ok(Placed::Again)
    }

    /// Takes a relay back, unless an account has it already. Returns whether one has.
    fn withdraw(&self, answer: &mut oneshot::Receiver<Result<Placed, Failure>>) -> bool {
        let _waiting = self.waiting();
        answer.close();
        !answer.is_empty()
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<WaitingJob>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether any account can sign and pay.
    pub fn can_sign(&self) -> bool {
        let state = |sender: &Arc<Sender<N>>| sender.account_state();
        self.senders().iter().map(state).any(|state| state.is_able() && state != AccountState::SignerFailed)
    }

    /// Checks that some account, here or at another daemon, can take relays.
    ///
    /// # Errors
    /// The reason why none can.
    pub fn check(&self) -> Result<(), Failure> {
        self.known().refuses().map_or(Ok(()), |code| Err(Failure::of(code)))
    }
}

impl<N: ChainNode> Sender<N> {
    /// Takes a checked relay, to be sent when the pool has room.
    fn enqueue(&self, job: SendJob) {
        let mut state = self.state();
        if state.is_retired {
            // Its lease ended since it was chosen.
            drop(state);
            self.give_back(vec![job]);
            return;
        }
        state.queue.push_back(job);
        drop(state);
        self.may_submit.notify_one();
    }
}
