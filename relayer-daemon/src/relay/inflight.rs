//! Relays in flight: copies of a request are coalesced, and a signer's requests wait for one another.
//!
//! In a fleet some of them are other daemons' to run: a client of this one waits for them, or a signer's next
//! request does. They are followed in the store.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use alloy::primitives::{Address, B256, U256};
use tokio::{sync::watch, time::Instant};

use super::patience::Patience;
use crate::{outcome::RelayOutcome, store::fleet::Room};

/// The most relays of one signer in flight, so that one signer cannot fill the queue.
const PER_SIGNER: usize = 64;

/// Receives a relay's outcome; `None` until it has ended.
pub type Waiting = watch::Receiver<Option<RelayOutcome>>;

/// The result of starting a relay.
#[derive(Debug)]
pub enum InflightStart {
    /// The relay is new: the caller runs it.
    New(Waiting),
    /// The same request is in flight: the caller only waits.
    Joined(Waiting),
    /// The queue, or the signer's part of it, is full.
    Full,
}

/// The part that runs a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runner {
    /// Nothing yet: it is being admitted, and the store may have how the same request ended before.
    Admission,
    /// This daemon, which has it in the store.
    Here,
    /// Another daemon.
    Elsewhere,
}

#[derive(Debug)]
struct InflightEntry {
    signer: Address,
    nonce: U256,
    since: Instant,
    patience: Patience,
    runner: Runner,
    /// True if it has the turn, as nothing came before it when it last looked: it is checked, or has been
    /// sent. Of relays with one nonce, one has the turn at a time.
    has_turn: bool,
    /// True if it came without an API key.
    without_key: bool,
    outcome: watch::Sender<Option<RelayOutcome>>,
}

impl InflightEntry {
    fn new(signer: Address, nonce: U256, outcome: watch::Sender<Option<RelayOutcome>>) -> Self {
        Self {
            signer,
            nonce,
            since: Instant::now(),
            patience: Patience::default(),
            runner: Runner::Admission,
            has_turn: false,
            without_key: false,
            outcome,
        }
    }
}

#[derive(Debug, Default)]
struct Inner {
    relays: HashMap<B256, InflightEntry>,
    /// Relays of each signer by nonce, then in order of arrival.
    signers: HashMap<Address, BTreeMap<U256, Vec<B256>>>,
    /// The number of relays that came without an API key.
    without_key: usize,
}

impl Inner {
    fn insert(&mut self, id: B256, nonce: U256, entry: InflightEntry) {
        self.signers.entry(entry.signer).or_default().entry(nonce).or_default().push(id);
        self.relays.insert(id, entry);
    }

    fn predecessor(&self, id: B256) -> Option<(&B256, &InflightEntry)> {
        let entry = self.relays.get(&id)?;
        let nonces = self.signers.get(&entry.signer)?;
        let same = nonces.get(&entry.nonce).map_or(&[][..], Vec::as_slice);
        let has_turn = |other: &&B256| self.relays.get(*other).is_some_and(|entry| entry.has_turn);
        let with_turn = same.iter().filter(|other| **other != id).find(has_turn);
        let earlier = || same.iter().take_while(|other| **other != id).last();
        let before = || nonces.get(&entry.nonce.checked_sub(U256::from(1))?)?.last();
        let waited_for = with_turn.or_else(earlier).or_else(before)?;
        self.relays.get_key_value(waited_for)
    }
}

/// All relays in flight.
#[derive(Debug)]
pub struct Inflight {
    inner: Mutex<Inner>,
    limit: usize,
    /// Counts arrivals, so that a request can wait for its predecessor to arrive.
    arrivals: watch::Sender<u64>,
}

impl Inflight {
    /// Creates an empty set with room for `limit` relays.
    pub fn new(limit: usize) -> Self {
        Self { inner: Mutex::default(), limit, arrivals: watch::Sender::new(0) }
    }

    /// Adds a relay, or joins it.
    pub fn start(&self, id: B256, signer: Address, nonce: U256) -> InflightStart {
        self.start_within(id, signer, nonce, None)
    }

    /// Adds a relay that came without an API key, or joins it. All of these together may use `percent` of the
    /// places.
    pub fn start_without_key(&self, id: B256, signer: Address, nonce: U256, percent: u8) -> InflightStart {
        let limit = self.limit.saturating_mul(percent.into()).div_ceil(100);
        self.start_within(id, signer, nonce, Some(limit))
    }

    fn start_within(
        &self,
        id: B256,
        signer: Address,
        nonce: U256,
        limit_without_key: Option<usize>,
    ) -> InflightStart {
        let mut inner = self.lock();
        if let Some(entry) = inner.relays.get(&id) {
            return InflightStart::Joined(entry.outcome.subscribe());
        }
        if limit_without_key.is_some_and(|limit| inner.without_key >= limit) {
            return InflightStart::Full;
        }
        let of_signer =
            inner.signers.get(&signer).map(|nonces| nonces.values().map(Vec::len).sum()).unwrap_or(0);
        if inner.relays.len() >= self.limit || of_signer >= PER_SIGNER {
            return InflightStart::Full;
        }
        let (outcome, waiting) = watch::channel(None);
        let without_key = limit_without_key.is_some();
        inner.without_key = inner.without_key.saturating_add(without_key.into());
        inner.insert(id, nonce, InflightEntry { without_key, ..InflightEntry::new(signer, nonce, outcome) });
        drop(inner);
        self.arrived();
        InflightStart::New(waiting)
    }

    /// Adds a relay that the store has and this daemon runs, unless it is in flight here. No limit applies:
    /// claims are bounded, and the relay must have its place in the order and be waited for. One without an
    /// API key counts as such.
    pub fn run_stored(&self, id: B256, signer: Address, nonce: U256, without_key: bool) {
        let mut inner = self.lock();
        let is_new = !inner.relays.contains_key(&id);
        if is_new {
            inner.insert(id, nonce, InflightEntry::new(signer, nonce, watch::Sender::new(None)));
        }
        if let Some(entry) = inner.relays.get_mut(&id) {
            entry.runner = Runner::Here;
            let is_counted_now = without_key && !entry.without_key;
            entry.without_key |= without_key;
            inner.without_key = inner.without_key.saturating_add(is_counted_now.into());
        }
        drop(inner);
        if is_new {
            self.arrived();
        }
    }

    /// Returns the places for relays of the store: those that are free, and those of other daemons' relays.
    pub fn room(&self) -> Room {
        let inner = self.lock();
        let elsewhere = inner.relays.iter().filter(|(_, entry)| entry.runner == Runner::Elsewhere);
        let count = |nonces: &BTreeMap<U256, Vec<B256>>| nonces.values().map(Vec::len).sum();
        Room {
            places: self.limit.saturating_sub(inner.relays.len()),
            per_signer: PER_SIGNER,
            of_signer: inner.signers.iter().map(|(signer, nonces)| (*signer, count(nonces))).collect(),
            waited_for: elsewhere.map(|(id, _)| *id).collect(),
        }
    }

    fn arrived(&self) {
        self.arrivals.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Puts the relays that come before `behind` by the store ahead of it, and all others with its nonce
    /// after it. Relays not known here are run by other daemons, or by none yet, and bounded there: they get
    /// places even if all are taken here, so that what comes after them does not end without them.
    ///
    /// In a fleet the order is the store's. The order of arrival differs between daemons, so that two relays
    /// could wait for one another.
    pub fn follow_ahead_of(&self, behind: B256, ahead: &[(B256, U256)]) {
        let mut inner = self.lock();
        let Some((signer, own_nonce)) = inner.relays.get(&behind).map(|entry| (entry.signer, entry.nonce))
        else {
            return;
        };
        let mut has_arrived = false;
        for (id, nonce) in ahead {
            if inner.relays.contains_key(id) {
                continue;
            }
            let entry = InflightEntry {
                runner: Runner::Elsewhere,
                ..InflightEntry::new(signer, *nonce, watch::Sender::new(None))
            };
            inner.insert(*id, *nonce, entry);
            has_arrived = true;
        }
        if let Some(same) = inner.signers.get_mut(&signer).and_then(|nonces| nonces.get_mut(&own_nonce)) {
            let place = |id: &B256| match ahead.iter().position(|(other, _)| other == id) {
                Some(place) => place,
                None if *id == behind => ahead.len(),
                None => usize::MAX,
            };
            // Stable: the others keep their order.
            same.sort_by_key(place);
        }
        drop(inner);
        if has_arrived {
            self.arrived();
        }
    }

    /// Sets what runs a relay. At another daemon it waits for its turn anew.
    pub fn set_runner(&self, id: B256, runner: Runner) {
        if let Some(entry) = self.lock().relays.get_mut(&id) {
            entry.runner = runner;
            entry.has_turn &= runner != Runner::Elsewhere;
        }
    }

    /// Returns the relays that are in the store, each with whether this daemon runs it.
    pub fn stored(&self) -> Vec<(B256, bool)> {
        let inner = self.lock();
        let stored = inner.relays.iter().filter(|(_, entry)| entry.runner != Runner::Admission);
        stored.map(|(id, entry)| (*id, entry.runner == Runner::Here)).collect()
    }

    /// Returns the relays that this daemon runs or admits.
    pub fn run_here(&self) -> HashSet<B256> {
        let inner = self.lock();
        let here = inner.relays.iter().filter(|(_, entry)| entry.runner != Runner::Elsewhere);
        here.map(|(id, _)| *id).collect()
    }

    /// Returns the signer of a relay in flight.
    pub fn signer(&self, id: B256) -> Option<Address> {
        self.lock().relays.get(&id).map(|entry| entry.signer)
    }

    /// Returns the time that a relay has been in flight.
    pub fn age(&self, id: B256) -> Option<Duration> {
        self.lock().relays.get(&id).map(|entry| entry.since.elapsed())
    }

    /// Applies `change` to a relay's patience and returns the result; the default if it is not in flight.
    pub(super) fn patience<T: Default>(&self, id: B256, change: impl FnOnce(&mut Patience) -> T) -> T {
        self.lock().relays.get_mut(&id).map(|entry| change(&mut entry.patience)).unwrap_or_default()
    }

    /// Ends a relay: all that wait for it get the outcome.
    pub fn finish(&self, id: B256, outcome: RelayOutcome) {
        let mut inner = self.lock();
        let Some(entry) = inner.relays.remove(&id) else { return };
        inner.without_key = inner.without_key.saturating_sub(entry.without_key.into());
        if let Some(nonces) = inner.signers.get_mut(&entry.signer) {
            nonces.retain(|_, ids| {
                ids.retain(|other| *other != id);
                !ids.is_empty()
            });
            if nonces.is_empty() {
                inner.signers.remove(&entry.signer);
            }
        }
        drop(inner);
        entry.outcome.send_replace(Some(outcome));
    }

    /// Returns the relay to wait for: one with the same nonce that has the turn or comes before this one,
    /// else one with the nonce before.
    pub fn predecessor(&self, id: B256) -> Option<Waiting> {
        self.lock().predecessor(id).map(|(_, before)| before.outcome.subscribe())
    }

    /// Returns whether another daemon runs any of the relays that come before this one.
    pub fn waits_for_another_daemon(&self, id: B256) -> bool {
        let inner = self.lock();
        // Bounded: one that has the turn may come after what waits for it.
        let all = std::iter::successors(inner.predecessor(id), |(before, _)| inner.predecessor(**before));
        all.take(PER_SIGNER).any(|(_, before)| before.runner == Runner::Elsewhere)
    }

    /// Gives a relay the turn, if nothing comes before it; else returns what to wait for.
    pub fn take_turn(&self, id: B256) -> Option<Waiting> {
        let mut inner = self.lock();
        let before = inner.predecessor(id).map(|(_, before)| before.outcome.subscribe());
        if let Some(entry) = inner.relays.get_mut(&id) {
            entry.has_turn = before.is_none();
        }
        before
    }

    /// Gives a relay's turn back: it looks anew for what comes before it.
    pub fn give_turn_back(&self, id: B256) {
        if let Some(entry) = self.lock().relays.get_mut(&id) {
            entry.has_turn = false;
        }
    }

    /// Returns the nonce of `signer`'s next request, from its nonce on chain, if all relays in flight
    /// succeed: those here, and those with the nonces `elsewhere` at other daemons.
    pub fn next_nonce(&self, signer: Address, on_chain: U256, elsewhere: &BTreeSet<U256>) -> U256 {
        let inner = self.lock();
        let nonces = inner.signers.get(&signer);
        let mut next = on_chain;
        while elsewhere.contains(&next) || nonces.is_some_and(|nonces| nonces.contains_key(&next)) {
            next = next.saturating_add(U256::from(1));
        }
        next
    }

    /// Subscribes to a counter that changes whenever a relay arrives.
    pub fn arrivals(&self) -> watch::Receiver<u64> {
        self.arrivals.subscribe()
    }

    /// Returns the number of relays in flight.
    pub fn len(&self) -> usize {
        self.lock().relays.len()
    }

    /// Returns whether no relay is in flight.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{ErrorCode, Failure};

    const ALICE: Address = Address::repeat_byte(0xa1);

    fn id(byte: u8) -> B256 {
        B256::repeat_byte(byte)
    }

    fn nonce(nonce: u64) -> U256 {
        U256::from(nonce)
    }

    /// Relays of Alice in flight, each with its nonce, in the order of their arrival.
    fn holding(limit: usize, relays: &[(u8, u64)]) -> Inflight {
        let inflight = Inflight::new(limit);
        for (byte, value) in relays {
            assert!(matches!(inflight.start(id(*byte), ALICE, nonce(*value)), InflightStart::New(_)));
        }
        inflight
    }

    fn dropped() -> RelayOutcome {
        RelayOutcome::Dropped { failure: Failure::of(ErrorCode::InvalidSignatureOrNonce) }
    }

    #[test]
    fn a_copy_joins_and_learns_the_one_outcome() {
        let inflight = Inflight::new(10);
        let InflightStart::New(first) = inflight.start(id(1), ALICE, nonce(0)) else { panic!() };
        let InflightStart::Joined(copy) = inflight.start(id(1), ALICE, nonce(0)) else { panic!() };
        inflight.finish(id(1), dropped());
        assert_eq!(*first.borrow(), Some(dropped()));
        assert_eq!(*copy.borrow(), Some(dropped()));
        assert!(inflight.is_empty());
        assert!(matches!(inflight.start(id(1), ALICE, nonce(0)), InflightStart::New(_)));
    }

    #[test]
    fn a_request_waits_for_the_one_before_it_and_of_two_with_one_nonce_the_later() {
        let inflight = holding(10, &[(2, 8)]);
        assert!(inflight.predecessor(id(2)).is_none());
        let mut arrivals = inflight.arrivals();
        let _kept = [(1, ALICE, 7), (3, ALICE, 7), (4, Address::repeat_byte(0xb0), 8)]
            .map(|(byte, signer, value)| inflight.start(id(byte), signer, nonce(value)));
        assert!(arrivals.has_changed().unwrap());
        arrivals.mark_unchanged();
        let waits = [1, 2, 3, 4].map(|byte| inflight.predecessor(id(byte)).is_some());
        assert_eq!(waits, [false, true, true, false]);
        let before = inflight.predecessor(id(2)).unwrap();
        [1, 3].into_iter().for_each(|byte| inflight.finish(id(byte), dropped()));
        assert!(before.borrow().is_some() && inflight.predecessor(id(2)).is_none());
    }

    #[test]
    fn what_comes_first_by_the_store_comes_first_here_and_of_those_with_one_nonce_one_has_the_turn() {
        let inflight = holding(10, &[(2, 7), (1, 7)]);
        assert!(inflight.predecessor(id(1)).is_some(), "by arrival");
        inflight.follow_ahead_of(id(1), &[]);
        assert!(inflight.predecessor(id(1)).is_none());
        assert!(inflight.predecessor(id(2)).is_some());
        let mut arrivals = inflight.arrivals();
        inflight.follow_ahead_of(id(2), &[(id(1), nonce(7)), (id(3), nonce(7)), (id(4), nonce(6))]);
        assert!(arrivals.has_changed().unwrap());
        arrivals.mark_unchanged();
        inflight.finish(id(3), dropped());
        let before = inflight.predecessor(id(2)).unwrap();
        inflight.finish(id(1), dropped());
        assert!(before.borrow().is_some(), "the other of the same nonce");
        assert!(inflight.predecessor(id(2)).is_some(), "the one with the nonce before");
        assert!(!arrivals.has_changed().unwrap());

        let inflight = holding(10, &[(2, 7), (1, 7)]);
        assert!(inflight.take_turn(id(2)).is_none());
        // The other one comes first, and waits all the same.
        inflight.follow_ahead_of(id(1), &[]);
        assert!(inflight.take_turn(id(1)).is_some());
        inflight.give_turn_back(id(2));
        assert!(inflight.take_turn(id(1)).is_none());
        assert!(inflight.take_turn(id(2)).is_some());
        inflight.set_runner(id(1), Runner::Elsewhere);
        inflight.follow_ahead_of(id(2), &[]);
        assert!(inflight.take_turn(id(2)).is_none(), "the other one waits at another daemon");
    }

    #[test]
    fn next_counts_an_unbroken_row_and_the_queue_is_bounded_in_all_and_per_signer() {
        let row = holding(10, &[(1, 5), (2, 6), (3, 8)]);
        for (signer, on_chain, next) in [(ALICE, 5, 7), (ALICE, 4, 4), (Address::ZERO, 9, 9)] {
            assert_eq!(row.next_nonce(signer, nonce(on_chain), &BTreeSet::new()), nonce(next));
        }
        let inflight = Inflight::new(2);
        let _kept: Vec<_> = (0..2).map(|byte| inflight.start(id(byte), ALICE, nonce(byte.into()))).collect();
        assert!(matches!(inflight.start(id(9), Address::ZERO, nonce(0)), InflightStart::Full));

        // Half of the places are for requests without a key, and are free again once one has ended.
        let inflight = Inflight::new(4);
        let start = |byte| inflight.start_without_key(id(byte), Address::repeat_byte(byte), nonce(0), 50);
        let kept = [1, 2, 3].map(|byte| matches!(start(byte), InflightStart::New(_)));
        assert_eq!(kept, [true, true, false]);
        assert!(matches!(inflight.start(id(4), ALICE, nonce(0)), InflightStart::New(_)));
        inflight.finish(id(1), dropped());
        assert!(matches!(start(3), InflightStart::New(_)));

        // What is taken over from the store without a key has its places of these, once each.
        let inflight = Inflight::new(4);
        let bob = Address::repeat_byte(0xb0);
        let is_full = || {
            let started = inflight.start_without_key(id(9), bob, nonce(0), 50);
            inflight.finish(id(9), dropped());
            matches!(started, InflightStart::Full)
        };
        for (byte, without_key, fills) in
            [(1, false, false), (2, true, false), (2, true, false), (1, true, true)]
        {
            inflight.run_stored(id(byte), ALICE, nonce(byte.into()), without_key);
            assert_eq!(is_full(), fills, "{byte}");
        }
        inflight.finish(id(2), dropped());
        assert!(!is_full());

        let inflight = Inflight::new(1_000);
        for byte in 0..PER_SIGNER as u8 {
            assert!(matches!(inflight.start(id(byte), ALICE, nonce(byte.into())), InflightStart::New(_)));
        }
        assert!(matches!(inflight.start(id(200), ALICE, nonce(200)), InflightStart::Full));
        assert!(matches!(inflight.start(id(201), Address::ZERO, nonce(0)), InflightStart::New(_)));

        // What the store has is not refused, and has its place in the order.
        let full = holding(1, &[(1, 5)]);
        full.run_stored(id(2), ALICE, nonce(6), false);
        assert!(full.predecessor(id(2)).is_some());
        assert_eq!(full.run_here().len(), 2);
        let mut room = holding(3, &[(1, 5)]).room();
        assert_eq!([ALICE, ALICE, ALICE].map(|signer| room.take(signer)), [true, true, false]);
        let mut room = inflight.room();
        assert!(!room.take(ALICE) && room.take(Address::ZERO), "one signer's part is full");
        let full = holding(4, &[(1, 1), (2, 3)]);
        full.follow_ahead_of(id(1), &[(id(3), nonce(0))]);
        full.follow_ahead_of(id(2), &[(id(4), nonce(2))]);
        let mut room = full.room();
        assert_eq!([3, 4, 5, 1].map(|byte| room.admit(&id(byte), ALICE)), [true, true, false, false]);
        full.follow_ahead_of(id(3), &[(id(6), nonce(0))]);
        assert!(full.predecessor(id(3)).is_some(), "also where no place is left");
        assert!(full.room().admit(&id(6), ALICE));
    }
}
