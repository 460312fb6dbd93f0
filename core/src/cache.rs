//! Answers kept in memory, and shared by those who ask for the same thing at once. Plain data: a clock reading in, a
//! decision out; the host does the reading and the waiting.
//!
//! A host looks a key up ([`Cache::look_up`]) with a [`Ticket`] that says when the asker came. Whoever gets a [`Lease`]
//! reads the value and [`finish`](Cache::finish)es; the others wait with timers of their own and look it up again. A lease
//! has an end, so a reader that is lost costs the others no more than that.
//!
//! ```text
//!             look_up: Read              finish
//!   (absent) ---------------> Reading --------------> Kept <----------------------+
//!                              |   ^                   |                          |
//!                              +---+                   | look_up: Read (ended),   | finish
//!                    look_up: Read (lease is over)     | or Renew (in its last    |
//!                                                      v  tenth, often asked)     |
//!                                                   Renewing ---------------------+
//! ```
//!
//! Any of them becomes absent when it is the least recently used and the room is needed.
//!
//! A value is given out until its end. Beyond it, or where there is no keeping at all, only those get it who came before
//! its reading began: it is as fresh as if they had read it themselves. A failure goes to everybody who waited for it.

use core::hash::Hash;

use lru::LruCache;

/// What an entry costs beside its value, in bytes: key, links and table.
const OVERHEAD: usize = 256;
/// For how long after a reading its value is there for those who waited for it, in milliseconds.
const HANDOVER_MILLIS: u64 = 2_000;
/// A value is asked for often if it was given out this many times before its last tenth.
const HOT: u32 = 3;
/// Milliseconds between two attempts to renew a value, where the first failed.
const RENEWAL_PAUSE_MILLIS: u64 = 1_000;

/// When a value of that age is due for renewal, if it is asked for often: the last tenth of its time. Unix milliseconds.
pub const fn due_for_renewal(made_at: u64, millis: u64) -> u64 {
    made_at.saturating_add(millis - millis / 10)
}

/// When an asker came, in the order of all askers of one [`Cache`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// The right to read a key's value, until a certain time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    began: Ticket,
    /// Unix milliseconds.
    until: u64,
}

/// What an asker is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup<V> {
    /// Take this.
    Found(V),
    /// Take this, and read the key again behind the answer's back, for those who come later.
    Renew(V, Lease),
    /// Read it, and [`finish`](Cache::finish).
    Read(Lease),
    /// Somebody else is reading it: look again a little later.
    Wait,
}

/// What a reading came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A value of that many bytes, which may be given out for so many milliseconds.
    Value {
        /// What it takes in memory.
        bytes: usize,
        /// From when it was made, unix milliseconds; may lie before the reading where somebody else made it.
        made_at: u64,
        /// From then on; 0 is for nobody but those who waited.
        millis: u64,
    },
    /// A value made of another in no time, which may be given out until then (unix milliseconds). It is never renewed by
    /// itself: what it is made of is.
    Derived {
        /// What it takes in memory.
        bytes: usize,
        /// Unix milliseconds.
        until: u64,
    },
    /// A failure, which will repeat itself for so many milliseconds; 0 where it may pass at once.
    Failure {
        /// From now on.
        millis: u64,
    },
}

#[derive(Clone, Debug)]
struct Kept<V> {
    value: V,
    bytes: usize,
    /// Given out to everybody before this unix millisecond.
    until: u64,
    /// From this unix millisecond on it may be renewed.
    renew_from: u64,
    /// How often it was given out.
    asked: u32,
    /// Askers up to this one may have it beyond its end, until the handover is over.
    shared_with: Ticket,
    handed_over: u64,
}

impl<V> Kept<V> {
    const fn is_for(&self, asker: Ticket, now: u64) -> bool {
        now < self.until || (asker.0 <= self.shared_with.0 && now < self.handed_over)
    }
}

#[derive(Clone, Debug)]
enum State<V> {
    /// Nobody has read it yet.
    Reading(Lease),
    /// It is known, though its time may be over.
    Kept(Kept<V>),
    /// It is known and being read again.
    Renewing(Kept<V>, Lease),
}

impl<V> State<V> {
    const fn bytes(&self) -> usize {
        match self {
            Self::Reading(_) => OVERHEAD,
            Self::Kept(kept) | Self::Renewing(kept, _) => kept.bytes,
        }
    }

    const fn lease(&self) -> Option<&Lease> {
        match self {
            Self::Reading(lease) | Self::Renewing(_, lease) => Some(lease),
            Self::Kept(_) => None,
        }
    }
}

/// Values by key, bounded in bytes; the least recently used go first.
#[derive(Debug)]
pub struct Cache<K: Hash + Eq, V> {
    states: LruCache<K, State<V>>,
    capacity: usize,
    bytes: usize,
    last: u64,
}

impl<K: Hash + Eq + Clone, V: Clone> Cache<K, V> {
    /// An empty cache of at most `capacity` bytes.
    pub fn new(capacity: usize) -> Self {
        Self { states: LruCache::unbounded(), capacity, bytes: 0, last: 0 }
    }

    /// A ticket for somebody who has just come.
    pub const fn ticket(&mut self) -> Ticket {
        self.last += 1;
        Ticket(self.last)
    }

    /// What the asker with that ticket is to do at `now` (unix milliseconds). Where it is to read, nobody else will before
    /// `lease_millis` are over.
    pub fn look_up(&mut self, key: &K, asker: Ticket, now: u64, lease_millis: u64) -> Lookup<V> {
        // A reading that begins now serves whoever came until now. Each has a number of its own.
        self.last += 1;
        let lease = Lease { began: Ticket(self.last), until: now.saturating_add(lease_millis) };
        let Some(state) = self.states.get_mut(key) else {
            self.put(key.clone(), State::Reading(lease));
            return Lookup::Read(lease);
        };
        let being_read = state.lease().is_some_and(|lease| now < lease.until);
        let kept = match state {
            State::Reading(_) if being_read => return Lookup::Wait,
            State::Reading(held) => {
                *held = lease;
                return Lookup::Read(lease);
            }
            State::Kept(kept) | State::Renewing(kept, _) => kept,
        };
        if !kept.is_for(asker, now) {
            if being_read {
                return Lookup::Wait;
            }
            *state = State::Renewing(kept.clone(), lease);
            return Lookup::Read(lease);
        }
        kept.asked = kept.asked.saturating_add(1);
        let value = kept.value.clone();
        let is_hot = kept.asked > HOT && (kept.renew_from..kept.until).contains(&now);
        if is_hot && !being_read {
            *state = State::Renewing(kept.clone(), lease);
            return Lookup::Renew(value, lease);
        }
        Lookup::Found(value)
    }

    /// Gives the holder of a lease more time, where nobody else has taken over.
    pub fn extend(&mut self, key: &K, lease: &Lease, until: u64) {
        if let Some(State::Reading(held) | State::Renewing(_, held)) = self.states.peek_mut(key)
            && held.began == lease.began
        {
            held.until = held.until.max(until);
        }
    }

    /// Takes what the holder of a lease has read at `now` (unix milliseconds). Ignored where somebody else has taken over. A
    /// failure takes nothing away: a value that still may be given out stays, and is renewed a little later.
    pub fn finish(&mut self, key: &K, lease: &Lease, value: V, outcome: Outcome, now: u64) {
        let Some(state) = self.states.peek_mut(key) else { return };
        if state.lease().is_none_or(|held| held.began != lease.began) {
            return;
        }
        let handed_over = now.saturating_add(HANDOVER_MILLIS);
        let kept = match outcome {
            Outcome::Value { bytes, made_at, millis } => {
                let until = made_at.saturating_add(millis);
                let renew_from = due_for_renewal(made_at, millis);
                let bytes = bytes.saturating_add(OVERHEAD);
                Kept { value, bytes, until, renew_from, asked: 0, shared_with: lease.began, handed_over }
            }
            Outcome::Derived { bytes, until } => {
                let bytes = bytes.saturating_add(OVERHEAD);
                let (renew_from, shared_with) = (u64::MAX, lease.began);
                Kept { value, bytes, until, renew_from, asked: 0, shared_with, handed_over }
            }
            Outcome::Failure { millis } => match state {
                State::Kept(kept) | State::Renewing(kept, _) if now < kept.until => {
                    kept.renew_from = now.saturating_add(RENEWAL_PAUSE_MILLIS);
                    let kept = kept.clone();
                    *state = State::Kept(kept);
                    return;
                }
                _ => {
                    let (until, shared_with) = (now.saturating_add(millis), Ticket(self.last));
                    Kept {
                        value,
                        bytes: OVERHEAD,
                        until,
                        renew_from: until,
                        asked: 0,
                        shared_with,
                        handed_over,
                    }
                }
            },
        };
        self.put(key.clone(), State::Kept(kept));
    }

    /// The bytes all entries take.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    fn put(&mut self, key: K, state: State<V>) {
        self.bytes = self.bytes.saturating_add(state.bytes());
        if let Some((_, before)) = self.states.push(key, state) {
            self.bytes = self.bytes.saturating_sub(before.bytes());
        }
        while self.bytes > self.capacity
            && let Some((_, state)) = self.states.pop_lru()
        {
            self.bytes = self.bytes.saturating_sub(state.bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LEASE: u64 = 5_000;
    const MINUTE: u64 = 60_000;

    fn cache() -> Cache<u8, &'static str> {
        Cache::new(1 << 20)
    }

    /// Comes and looks at `now`.
    fn come(cache: &mut Cache<u8, &'static str>, now: u64) -> Lookup<&'static str> {
        let ticket = cache.ticket();
        cache.look_up(&1, ticket, now, LEASE)
    }

    fn lease(lookup: Lookup<&'static str>) -> Lease {
        match lookup {
            Lookup::Read(lease) | Lookup::Renew(_, lease) => lease,
            other => panic!("{other:?}"),
        }
    }

    fn value(made_at: u64, millis: u64) -> Outcome {
        Outcome::Value { bytes: 10, made_at, millis }
    }

    #[test]
    fn of_a_crowd_one_reads_and_the_others_get_what_it_read() {
        let mut cache = cache();
        let reader = lease(come(&mut cache, 0));
        let crowd: Vec<Ticket> = (0..99).map(|_| cache.ticket()).collect();
        assert!(crowd.iter().all(|asker| cache.look_up(&1, *asker, 1, LEASE) == Lookup::Wait));
        cache.finish(&1, &reader, "answer", value(40, MINUTE), 40);
        assert!(crowd.iter().all(|asker| cache.look_up(&1, *asker, 41, LEASE) == Lookup::Found("answer")));
    }

    #[test]
    fn what_is_not_kept_is_read_once_more_for_all_who_came_meanwhile() {
        let mut cache = cache();
        let first = lease(come(&mut cache, 0));
        let crowd: Vec<Ticket> = (0..99).map(|_| cache.ticket()).collect();
        cache.finish(&1, &first, "before they came", value(10, 0), 10);
        let second = lease(cache.look_up(&1, crowd[0], 11, LEASE));
        assert!(crowd[1..].iter().all(|asker| cache.look_up(&1, *asker, 12, LEASE) == Lookup::Wait));
        cache.finish(&1, &second, "theirs", value(20, 0), 20);
        assert!(
            crowd[1..].iter().all(|asker| cache.look_up(&1, *asker, 21, LEASE) == Lookup::Found("theirs"))
        );
        assert!(matches!(come(&mut cache, 21), Lookup::Read(_)), "whoever comes later reads anew");
    }

    #[test]
    fn a_failure_goes_to_all_who_waited_and_to_newcomers_only_where_it_is_certain_to_repeat() {
        let mut cache = cache();
        let reader = lease(come(&mut cache, 0));
        let waiting = cache.ticket();
        cache.finish(&1, &reader, "no answer", Outcome::Failure { millis: 0 }, 10);
        assert_eq!(cache.look_up(&1, waiting, 11, LEASE), Lookup::Found("no answer"));
        let reader = lease(come(&mut cache, 12));
        cache.finish(&1, &reader, "too large", Outcome::Failure { millis: 5_000 }, 20);
        assert_eq!(come(&mut cache, 5_019), Lookup::Found("too large"));
        assert!(matches!(come(&mut cache, 5_020), Lookup::Read(_)));
    }

    #[test]
    fn a_reader_that_is_lost_is_replaced_when_its_lease_is_over() {
        let mut cache = cache();
        let lost = lease(come(&mut cache, 0));
        cache.extend(&1, &lost, 7_000);
        assert_eq!(come(&mut cache, 6_999), Lookup::Wait);
        let next = lease(come(&mut cache, 7_000));
        cache.finish(&1, &lost, "late", value(7_001, MINUTE), 7_001);
        assert_eq!(come(&mut cache, 7_002), Lookup::Wait, "the lost one's word counts no more");
        cache.finish(&1, &next, "answer", value(7_003, MINUTE), 7_003);
        assert_eq!(come(&mut cache, 7_004), Lookup::Found("answer"));
    }

    #[test]
    fn a_value_asked_for_all_the_time_is_renewed_once_before_its_end() {
        let mut cache = cache();
        let reader = lease(come(&mut cache, 0));
        cache.finish(&1, &reader, "old", value(0, MINUTE), 0);
        for now in [1, 20_000, 53_999] {
            assert_eq!(come(&mut cache, now), Lookup::Found("old"));
        }
        let Lookup::Renew("old", renewal) = come(&mut cache, 54_000) else { panic!("is not renewed") };
        assert_eq!(
            come(&mut cache, 54_001),
            Lookup::Found("old"),
            "one renews, the others take what there is"
        );
        cache.finish(&1, &renewal, "new", value(54_002, MINUTE), 54_002);
        assert_eq!(come(&mut cache, 60_001), Lookup::Found("new"));
    }

    #[test]
    fn a_value_hardly_asked_for_is_not_renewed() {
        let mut cache = cache();
        let reader = lease(come(&mut cache, 0));
        cache.finish(&1, &reader, "old", value(0, MINUTE), 0);
        for now in 59_000..59_003 {
            assert_eq!(come(&mut cache, now), Lookup::Found("old"));
        }
        assert!(matches!(come(&mut cache, MINUTE), Lookup::Read(_)));
    }

    #[test]
    fn a_value_made_of_another_is_not_renewed_however_often_it_is_asked_for() {
        let mut cache = cache();
        let reader = lease(come(&mut cache, 0));
        cache.finish(&1, &reader, "made", Outcome::Derived { bytes: 10, until: MINUTE }, 0);
        for now in (59_000..MINUTE).step_by(10) {
            assert_eq!(come(&mut cache, now), Lookup::Found("made"));
        }
        assert!(matches!(come(&mut cache, MINUTE), Lookup::Read(_)));
    }

    #[test]
    fn a_renewal_that_fails_leaves_the_value_until_its_end_and_is_tried_again_after_a_pause() {
        let mut cache = cache();
        let reader = lease(come(&mut cache, 0));
        cache.finish(&1, &reader, "old", value(0, MINUTE), 0);
        let renewal = (0..4).map(|_| come(&mut cache, 55_000)).last().map(lease).unwrap();
        cache.finish(&1, &renewal, "no answer", Outcome::Failure { millis: 0 }, 55_100);
        assert_eq!(come(&mut cache, 56_099), Lookup::Found("old"));
        let renewal = lease(come(&mut cache, 56_100));
        cache.finish(&1, &renewal, "no answer", Outcome::Failure { millis: 5_000 }, 56_200);
        assert_eq!(come(&mut cache, 57_199), Lookup::Found("old"));
        assert!(matches!(come(&mut cache, MINUTE), Lookup::Read(_)), "never beyond its end");
    }

    #[test]
    fn the_least_recently_used_makes_room_and_what_is_too_large_is_not_kept() {
        let mut cache: Cache<u8, &'static str> = Cache::new(3 * (OVERHEAD + 10));
        let keep = |cache: &mut Cache<_, _>, key, bytes| {
            let ticket = cache.ticket();
            let lease = lease(cache.look_up(&key, ticket, 0, LEASE));
            cache.finish(&key, &lease, "answer", Outcome::Value { bytes, made_at: 0, millis: MINUTE }, 0);
        };
        for key in 1..=3 {
            keep(&mut cache, key, 10);
        }
        assert_eq!(come(&mut cache, 1), Lookup::Found("answer"));
        keep(&mut cache, 4, 10);
        let mut is_kept = |key| {
            let ticket = cache.ticket();
            matches!(cache.look_up(&key, ticket, 1, LEASE), Lookup::Found(_))
        };
        assert!(is_kept(1) && is_kept(3) && is_kept(4) && !is_kept(2));
        keep(&mut cache, 5, 1 << 20);
        assert!(cache.bytes() <= 3 * (OVERHEAD + 10));
        assert!(matches!(cache.look_up(&5, Ticket(u64::MAX), 1, LEASE), Lookup::Read(_)));
    }

    #[derive(Clone, Copy, Debug)]
    enum Event {
        /// Somebody comes for the key.
        Come(u8),
        /// The asker of that place looks again.
        Again(prop::sample::Index),
        /// The reader of that place has read.
        Finish {
            reader: prop::sample::Index,
            bytes: usize,
            millis: u64,
            fails: bool,
        },
        Wait(u64),
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            4 => (0u8..4).prop_map(Event::Come),
            3 => any::<prop::sample::Index>().prop_map(Event::Again),
            3 => (any::<prop::sample::Index>(), 0usize..2_000, 0u64..500, prop::bool::weighted(0.2))
                .prop_map(|(reader, bytes, millis, fails)| Event::Finish { reader, bytes, millis, fails }),
            2 => (0u64..300).prop_map(Event::Wait),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        /// Values are the time they end at, and when their reading began.
        #[test]
        fn no_order_of_events_gives_a_value_out_beyond_its_time_or_lets_two_read_at_once(
            events in prop::collection::vec(event(), 1..120),
            capacity in 0usize..6_000,
        ) {
            #[derive(Clone, Copy, Debug, PartialEq)]
            struct Value { until: u64, began: u64, failed: bool }
            let mut cache = Cache::<u8, Value>::new(capacity);
            let mut now = 1_000_000;
            let mut askers = Vec::<(u8, Ticket, u64)>::new();
            let mut readers = Vec::<(u8, Lease, u64)>::new();
            for event in events {
                let (key, ticket, came) = match event {
                    Event::Wait(millis) => { now += millis; continue; }
                    Event::Finish { reader, bytes, millis, fails } => {
                        if readers.is_empty() { continue; }
                        let (key, lease, began) = readers.swap_remove(reader.index(readers.len()));
                        let outcome = if fails {
                            Outcome::Failure { millis }
                        } else {
                            Outcome::Value { bytes, made_at: began, millis }
                        };
                        let until = if fails { now } else { began } + millis;
                        cache.finish(&key, &lease, Value { until, began, failed: fails }, outcome, now);
                        prop_assert!(cache.bytes() <= capacity);
                        continue;
                    }
                    Event::Come(key) => {
                        let ticket = cache.ticket();
                        askers.push((key, ticket, now));
                        (key, ticket, now)
                    }
                    Event::Again(asker) => match askers.is_empty() {
                        true => continue,
                        false => askers[asker.index(askers.len())],
                    },
                };
                match cache.look_up(&key, ticket, now, 200) {
                    Lookup::Found(value) => {
                        let own = value.failed || came <= value.began;
                        prop_assert!(now < value.until || (own && now < value.began + 100_000));
                    }
                    Lookup::Renew(value, lease) => {
                        prop_assert!(now < value.until);
                        readers.push((key, lease, now));
                    }
                    Lookup::Read(lease) => {
                        // Where there is room nobody is forgotten, and then there is one reader at a time.
                        let others = readers.iter().filter(|(of, held, _)| *of == key && now < held.until);
                        prop_assert!(capacity < 4 * (OVERHEAD + 2_000) || others.count() == 0);
                        readers.push((key, lease, now));
                    }
                    Lookup::Wait => {
                        let reading = readers.iter().any(|(of, held, _)| *of == key && now < held.until);
                        prop_assert!(reading, "nobody waits for nothing");
                    }
                }
                prop_assert!(cache.bytes() <= capacity);
            }
        }
    }
}
