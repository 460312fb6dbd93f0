//! Sharing of counts among instances that count the same client, through a store that all read and write.
//!
//! Every instance writes its own count under a key of its own and adds up the others'. So no instance
//! overwrites another's count, and a sum that misses the latest writes is too low, never too high: a client
//! that keeps to its limit is never refused. In return the store takes writes only at a limited rate, and a
//! client of few requests is not worth one: [`Sharing`] holds these thresholds.
//!
//! The host asks for a [`SyncTask`] after each request it admitted, and runs it once the answer is sent:
//!
//! 1. wait [`after_millis`](SyncTask::after_millis);
//! 2. if the sync task publishes: write what [`WindowTally::publish`] returns, and call
//!    [`WindowTally::retract`] if that fails;
//! 3. if [`WindowTally::begin_read`] says so: read the counts of the others, and pass their sum to
//!    [`WindowTally::merge`].
//!
//! Steps 2 and 3 are operations that the store's provider bills. The [`Ceiling`] must have room for each;
//! otherwise the step counts as failed.
//!
//! The write comes before the read: of two instances that do this at once, at least one sees the other,
//! unless one of them has read the counts just before.

use super::window::{WindowLimit, WindowTally};

/// The thresholds for writing and reading a client's counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// A client's count is not written while it is this or lower.
    pub quiet: u32,
    /// Number of requests, at least 1, between two reads of the others' counts for such a client: it may have
    /// sent more to them.
    pub listen_every: u32,
    /// Milliseconds between two writes for a client by one instance; between two reads at least half of it.
    pub pause_millis: u64,
    /// Milliseconds between a request that is worth a write and the write, which includes the rest of a
    /// burst.
    pub gather_millis: u64,
}

impl Sharing {
    /// Returns the thresholds for this limit and a store that takes one write a second. A client that has
    /// used less than a quarter of its limit is not worth a write.
    pub const fn of(limit: &WindowLimit) -> Self {
        let (quiet, listen_every) = (limit.requests / 4, limit.requests / 12);
        Self {
            quiet: quiet.saturating_sub(1),
            listen_every: if listen_every == 0 { 1 } else { listen_every },
            pause_millis: 1_000,
            gather_millis: 100,
        }
    }
}

/// An instance's task for a client after its answer is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncTask {
    /// The window of the counts.
    pub window: u64,
    /// True if the own count is written before the others' are read.
    pub publishes: bool,
    /// Milliseconds to wait first.
    pub after_millis: u64,
}

/// A limit on an instance's operations on the store in a minute of the clock. It bounds the cost of sharing,
/// however many clients there are. Above it, the instance counts by itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ceiling {
    minute: u64,
    used: u32,
    /// The part of `used` for clients of few requests.
    for_quiet: u32,
}

impl Ceiling {
    /// Writes and reads together.
    pub const OPERATIONS_PER_MINUTE: u32 = 60;
    /// The most of these operations for clients of few requests: however many they are, counts that are worth
    /// a write are still shared.
    pub const FOR_QUIET_CLIENTS: u32 = 20;

    /// Takes room for one operation of a task at `now` (unix milliseconds). Returns false if there is none.
    pub const fn take(&mut self, task: &SyncTask, now: u64) -> bool {
        let minute = now / 60_000;
        if minute != self.minute {
            *self = Self { minute, used: 0, for_quiet: 0 };
        }
        let has_share = task.publishes || self.for_quiet < Self::FOR_QUIET_CLIENTS;
        let is_free = has_share && self.used < Self::OPERATIONS_PER_MINUTE;
        self.used += is_free as u32;
        self.for_quiet += (is_free && !task.publishes) as u32;
        is_free
    }
}

impl WindowTally {
    /// Returns the task after a request that was admitted at `now` (unix milliseconds) and counted as `cost`.
    /// A sync task publishes all that is counted until it runs, so one at a time is enough.
    pub fn sync_task(&mut self, sharing: &Sharing, now: u64, cost: u32) -> Option<SyncTask> {
        if self.own <= sharing.quiet {
            let before = self.own.saturating_sub(cost.max(1));
            let listens =
                self.own.checked_div(sharing.listen_every) != before.checked_div(sharing.listen_every);
            return listens.then_some(SyncTask { window: self.window, publishes: false, after_millis: 0 });
        }
        let publication = &mut self.publication;
        if self.own <= publication.published || now < publication.under_way_until {
            return None;
        }
        let gathered = now.saturating_add(sharing.gather_millis);
        let begins = gathered.max(publication.published_at.saturating_add(sharing.pause_millis));
        publication.under_way_until = begins.saturating_add(sharing.pause_millis);
        Some(SyncTask { window: self.window, publishes: true, after_millis: begins - now })
    }

    /// Returns the count to write at `now` (unix milliseconds) for that window; `None` if nothing is new, the
    /// pause is not over, or the window has ended.
    pub fn publish(&mut self, sharing: &Sharing, window: u64, now: u64) -> Option<u32> {
        let publication = &mut self.publication;
        let early = now < publication.published_at.saturating_add(sharing.pause_millis);
        if self.window != window || self.own <= publication.published || early {
            return None;
        }
        publication.published = self.own;
        publication.published_at = now;
        publication.under_way_until = 0;
        Some(self.own)
    }

    /// Begins a read of the others' counts for that window at `now` (unix milliseconds). Returns false, and
    /// begins none, just after another one and once the window has ended.
    pub fn begin_read(&mut self, sharing: &Sharing, window: u64, now: u64) -> bool {
        let publication = &mut self.publication;
        let is_due = now >= publication.read_at.saturating_add(sharing.pause_millis / 2);
        let reads = self.window == window && is_due;
        if reads {
            publication.read_at = now;
        }
        reads
    }

    /// Reverts [`publish`](Self::publish), for a write that failed. The next sync task publishes the count.
    pub fn retract(&mut self, window: u64) {
        if self.window == window {
            self.publication.published = 0;
        }
    }

    /// Merges the sum of the counts that the other instances have written for that window.
    pub fn merge(&mut self, window: u64, others: u32) {
        if self.window == window {
            // Counts only grow within a window: a lower sum is an older one.
            self.others = self.others.max(others);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    const PER_MINUTE: WindowLimit = WindowLimit { requests: 60, window_seconds: 60 };
    const SHARING: Sharing = Sharing::of(&PER_MINUTE);
    /// The beginning of the tests' window, in unix milliseconds.
    const START: u64 = 60_000;

    fn admit(tally: &mut WindowTally, now: u64) -> Option<SyncTask> {
        assert!(PER_MINUTE.charge(tally, now / 1_000).unwrap().admitted);
        tally.sync_task(&SHARING, now, 1)
    }

    /// Makes a tally after this many requests at once.
    fn after(requests: u32) -> WindowTally {
        let mut tally = WindowTally::default();
        for _ in 0..requests {
            admit(&mut tally, START);
        }
        tally
    }

    #[test]
    fn what_is_worth_a_write_follows_the_limit() {
        assert_eq!((SHARING.quiet, SHARING.listen_every), (14, 5));
        for (requests, quiet, listen_every) in [(600, 149, 50), (5, 0, 1)] {
            let sharing = Sharing::of(&WindowLimit { requests, window_seconds: 60 });
            assert_eq!((sharing.quiet, sharing.listen_every), (quiet, listen_every));
        }
    }

    #[test]
    fn a_quiet_client_is_listened_for_now_and_then_and_never_published() {
        let mut tally = WindowTally::default();
        let listened: Vec<u32> = (1..=14)
            .filter(|_| {
                admit(&mut tally, START).is_some_and(|task| !task.publishes && task.after_millis == 0)
            })
            .collect();
        assert_eq!(listened, [5, 10]);
        assert!(admit(&mut tally, START).unwrap().publishes, "the fifteenth is worth a write");
    }

    #[test]
    fn a_burst_of_forty_requests_is_one_read_and_one_write() {
        let mut tally = WindowTally::default();
        let (mut reads, mut writes) = (0, 0);
        let mut tasks = Vec::new();
        for millisecond in 0..40 {
            let now = START + millisecond;
            tasks.extend(admit(&mut tally, now).map(|task| (now + task.after_millis, task)));
        }
        tasks.sort_unstable_by_key(|(then, _)| *then);
        for (then, task) in tasks {
            writes += usize::from(task.publishes && tally.publish(&SHARING, 1, then) == Some(40));
            reads += usize::from(tally.begin_read(&SHARING, 1, then));
        }
        assert_eq!((reads, writes), (1, 1));
        // For a client that goes on, each write is followed by a read.
        let task = admit(&mut tally, START + 300).unwrap();
        let then = START + 300 + task.after_millis;
        assert_eq!(tally.publish(&SHARING, 1, then), Some(41));
        assert!(tally.begin_read(&SHARING, 1, then + 50));
        admit(&mut tally, then + 60);
        let begins = tally.begin_read(&SHARING, 1, then + SHARING.pause_millis);
        assert!(begins, "however long the first one took");
    }

    #[test]
    fn a_lost_sync_task_and_a_failed_write_are_made_up_for() {
        let mut tally = after(15);
        let lost = START + SHARING.gather_millis + SHARING.pause_millis;
        assert_eq!(admit(&mut tally, lost - 1), None);
        assert!(admit(&mut tally, lost).is_some());
        let mut tally = after(15);
        assert_eq!(tally.publish(&SHARING, 1, START), Some(15));
        tally.retract(1);
        assert_eq!(tally.publish(&SHARING, 1, START + 500), None);
        assert_eq!(tally.publish(&SHARING, 1, START + 1_000), Some(15));
    }

    #[test]
    fn what_200_busy_clients_cost_an_instance_in_a_minute_has_a_ceiling() {
        let (mut ceiling, mut tallies) = (Ceiling::default(), vec![WindowTally::default(); 200]);
        let (mut writes, mut reads, mut last_minute) = (0, 0, 0);
        // For a minute each client sends a request a second, and its task runs.
        for second in 0..60 {
            let now = START + second * 1_000;
            for tally in &mut tallies {
                let Some(task) = admit(tally, now) else { continue };
                if task.publishes && tally.publish(&SHARING, 1, now).is_some() && ceiling.take(&task, now) {
                    writes += 1;
                }
                if tally.begin_read(&SHARING, 1, now) && ceiling.take(&task, now) {
                    reads += 1;
                }
            }
            last_minute = now;
        }
        assert_eq!(writes + reads, Ceiling::OPERATIONS_PER_MINUTE, "without it, some 18,000");
        assert!(writes >= 20, "reads for clients of few requests leave room for counts: {writes}");
        let task = SyncTask { window: 1, publishes: true, after_millis: 0 };
        assert!(!ceiling.take(&task, last_minute) && ceiling.take(&task, START + 60_000), "each minute anew");
    }

    #[test]
    fn a_window_gone_by_is_neither_published_nor_read_nor_merged() {
        let mut tally = after(15);
        admit(&mut tally, START + 60_000);
        assert!(!tally.begin_read(&SHARING, 1, START + 60_000));
        assert_eq!(tally.publish(&SHARING, 1, START + 60_000), None);
        tally.merge(1, 60);
        tally.retract(1);
        assert_eq!(PER_MINUTE.peek(&tally, START / 1_000 + 60).unwrap().remaining, 59);
    }

    /// An event of the simulation below.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    enum SimulatedEvent {
        Request,
        /// A publishing sync task writes, and reads after that time.
        Write {
            latency: u64,
        },
        Read,
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(800))]

        /// Any number of instances, any interleaving of requests, writes and reads, writes that fail.
        #[test]
        fn sharing_loses_no_count_refuses_no_client_too_early_and_keeps_its_pace(
            instances in 1usize..6,
            requests in prop::collection::vec((any::<prop::sample::Index>(), 0u64..150), 1..390),
            latencies in prop::collection::vec(0u64..400, 1..20),
            failures in prop_oneof![Just(BTreeSet::new()), prop::collection::btree_set(0usize..60, 0..5)],
        ) {
            let mut tallies = vec![WindowTally::default(); instances];
            let mut store = BTreeMap::<usize, u32>::new();
            let mut admitted = vec![0; instances];
            let mut writes = vec![Vec::<(u64, u32)>::new(); instances];
            let mut unpublished_since = vec![None; instances];
            let mut attempts = 0;
            let mut latency = latencies.iter().copied().cycle();
            // Ordered by time; a counter orders events at the same time.
            let mut events = BTreeSet::new();
            let mut time = START;
            for (place, (instance, gap)) in requests.iter().enumerate() {
                time += gap;
                events.insert((time, place, instance.index(instances), SimulatedEvent::Request));
            }
            let mut place = requests.len();

            while let Some((now, _, instance, event)) = events.pop_first() {
                let (tally, unpublished) = (&mut tallies[instance], &mut unpublished_since[instance]);
                place += 1;
                // If no write fails, the store has a busy client's count at most a second late.
                let is_late = unpublished.is_some_and(|since| now - since > SHARING.pause_millis);
                prop_assert!(!failures.is_empty() || !is_late);
                match event {
                    SimulatedEvent::Request => {
                        let total: u32 = admitted.iter().sum();
                        if !PER_MINUTE.charge(tally, now / 1_000).unwrap().admitted {
                            prop_assert!(total >= PER_MINUTE.requests, "refused after {total} in all");
                            continue;
                        }
                        admitted[instance] += 1;
                        if tally.own() > SHARING.quiet {
                            unpublished.get_or_insert(now);
                        }
                        let Some(task) = tally.sync_task(&SHARING, now, 1) else { continue };
                        let then = now + task.after_millis;
                        let latency = latency.next().unwrap();
                        let event = if task.publishes {
                            SimulatedEvent::Write { latency }
                        } else {
                            SimulatedEvent::Read
                        };
                        events.insert((then, place, instance, event));
                    }
                    SimulatedEvent::Write { latency } => {
                        if let Some(count) = tally.publish(&SHARING, 1, now) {
                            attempts += 1;
                            writes[instance].push((now, count));
                            if failures.contains(&attempts) {
                                tally.retract(1);
                            } else {
                                store.insert(instance, count);
                                *unpublished = None;
                            }
                        }
                        events.insert((now + latency, place, instance, SimulatedEvent::Read));
                    }
                    SimulatedEvent::Read if !tally.begin_read(&SHARING, 1, now) => {}
                    SimulatedEvent::Read => {
                        let others = store.iter().filter(|(writer, _)| **writer != instance);
                        tally.merge(1, others.map(|(_, count)| count).sum());
                    }
                }
            }

            let total: u32 = admitted.iter().sum();
            let asked = u32::try_from(requests.len()).unwrap();
            prop_assert!(total >= asked.min(PER_MINUTE.requests));
            for (instance, tally) in tallies.iter().enumerate() {
                prop_assert_eq!(tally.own(), admitted[instance]);
                prop_assert!(tally.own() <= PER_MINUTE.requests);
                for pair in writes[instance].windows(2) {
                    prop_assert!(pair[1].0 - pair[0].0 >= SHARING.pause_millis, "{pair:?}");
                    prop_assert!(pair[1].1 >= pair[0].1);
                }
                prop_assert!(writes[instance].iter().all(|(_, count)| *count > SHARING.quiet));
                if failures.is_empty() && tally.own() > SHARING.quiet {
                    prop_assert_eq!(store.get(&instance), Some(&tally.own()), "all is published in the end");
                }
            }
        }
    }
}
