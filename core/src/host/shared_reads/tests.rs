//! Tests of the cache's promises, by example and for any order of events.

use super::{entry::OVERHEAD, *};
use proptest::prelude::*;

const LEASE: u64 = 5_000;
const MINUTE: u64 = 60_000;

impl CacheKey for u8 {
    fn heap_bytes(&self) -> usize {
        0
    }
}

fn cache() -> Cache<u8, &'static str> {
    Cache::new(1 << 20)
}

/// Looks the key up at `now` as a new caller.
fn come(cache: &mut Cache<u8, &'static str>, now: u64) -> CacheLookup<&'static str> {
    let arrival = cache.arrive();
    cache.look_up(&1, arrival, now, LEASE)
}

fn lease(lookup: CacheLookup<&'static str>) -> ReadLease {
    match lookup {
        CacheLookup::Read(lease) | CacheLookup::Renew(_, lease) => lease,
        other => panic!("{other:?}"),
    }
}

fn value(made_at: u64, millis: u64) -> ReadOutcome {
    ReadOutcome::Value { bytes: 10, made_at, millis, renewal: Renewal::IfHot }
}

/// Makes a cache with a value that was read at once, at 0.
fn keeping(text: &'static str, millis: u64) -> Cache<u8, &'static str> {
    let mut cache = cache();
    let reader = lease(come(&mut cache, 0));
    cache.finish(&1, &reader, text, value(0, millis), 0);
    cache
}

/// Lets 99 callers arrive.
fn crowd(cache: &mut Cache<u8, &'static str>) -> Vec<Arrival> {
    (0..99).map(|_| cache.arrive()).collect()
}

#[track_caller]
fn all_get(cache: &mut Cache<u8, &'static str>, crowd: &[Arrival], now: u64, text: &'static str) {
    let expected = if text.is_empty() { CacheLookup::Wait } else { CacheLookup::Found(text) };
    assert!(crowd.iter().all(|arrival| cache.look_up(&1, *arrival, now, LEASE) == expected), "{now}");
}

#[test]
fn of_a_crowd_one_reads_and_the_others_get_what_it_read_after_they_came() {
    let mut cache = cache();
    let reader = lease(come(&mut cache, 0));
    let first = crowd(&mut cache);
    all_get(&mut cache, &first, 1, "");
    cache.finish(&1, &reader, "answer", value(40, MINUTE), 40);
    all_get(&mut cache, &first, 41, "answer");

    // A value that is not kept is read once more for all callers that came meanwhile.
    let mut cache = self::cache();
    let first = lease(come(&mut cache, 0));
    let crowd = crowd(&mut cache);
    cache.finish(&1, &first, "before they came", value(10, 0), 10);
    let second = lease(cache.look_up(&1, crowd[0], 11, LEASE));
    all_get(&mut cache, &crowd[1..], 12, "");
    cache.finish(&1, &second, "theirs", value(20, 0), 20);
    all_get(&mut cache, &crowd[1..], 21, "theirs");
    assert!(matches!(come(&mut cache, 21), CacheLookup::Read(_)), "a later caller reads anew");
}

#[test]
fn a_failure_goes_to_all_who_waited_and_to_newcomers_only_where_it_is_certain_to_repeat() {
    let mut cache = cache();
    let reader = lease(come(&mut cache, 0));
    let waiting = cache.arrive();
    cache.finish(&1, &reader, "no answer", ReadOutcome::Failure { millis: 0 }, 10);
    assert_eq!(cache.look_up(&1, waiting, 11, LEASE), CacheLookup::Found("no answer"));
    let reader = lease(come(&mut cache, 12));
    cache.finish(&1, &reader, "too large", ReadOutcome::Failure { millis: 5_000 }, 20);
    assert_eq!(come(&mut cache, 5_019), CacheLookup::Found("too large"));
    assert!(matches!(come(&mut cache, 5_020), CacheLookup::Read(_)));
}

#[test]
fn a_reader_that_is_lost_is_replaced_when_its_lease_is_over() {
    let mut cache = cache();
    let lost = lease(come(&mut cache, 0));
    cache.extend(&1, &lost, 7_000);
    assert_eq!(come(&mut cache, 6_999), CacheLookup::Wait);
    let next = lease(come(&mut cache, 7_000));
    cache.finish(&1, &lost, "late", value(7_001, MINUTE), 7_001);
    assert_eq!(come(&mut cache, 7_002), CacheLookup::Wait, "what the lost one read is ignored");
    cache.finish(&1, &next, "answer", value(7_003, MINUTE), 7_003);
    assert_eq!(come(&mut cache, 7_004), CacheLookup::Found("answer"));
}

#[test]
fn who_waits_looks_soon_at_first_and_four_times_a_second_in_the_end() {
    let looks_within = |millis: u64| {
        let (mut at, mut pause, mut looks) = (0, FIRST_PAUSE_MILLIS, 0);
        while at + pause <= millis {
            (at, looks, pause) = (at + pause, looks + 1, next_pause(pause));
        }
        looks
    };
    assert_eq!([10, 100, 1_000, 10_000].map(looks_within), [2, 8, 17, 53]);
}

#[test]
fn a_value_asked_for_all_the_time_or_in_its_last_third_is_renewed_once_before_its_end() {
    let in_last_third =
        ReadOutcome::Value { bytes: 10, made_at: 0, millis: 20_100, renewal: Renewal::InLastThird };
    for (outcome, earlier, due) in
        [(value(0, MINUTE), &[1, 20_000, 53_999][..], 54_000), (in_last_third, &[13_399], 13_400)]
    {
        let mut cache = cache();
        let reader = lease(come(&mut cache, 0));
        cache.finish(&1, &reader, "old", outcome, 0);
        for now in earlier {
            assert_eq!(come(&mut cache, *now), CacheLookup::Found("old"));
        }
        let CacheLookup::Renew("old", renewal) = come(&mut cache, due) else { panic!("is not renewed") };
        assert_eq!(come(&mut cache, due + 1), CacheLookup::Found("old"), "one renews, the others are served");
        cache.finish(&1, &renewal, "new", value(due + 2, MINUTE), due + 2);
        assert_eq!(come(&mut cache, due + 6_001), CacheLookup::Found("new"));
    }
}

#[test]
fn a_value_hardly_asked_for_or_made_of_another_is_not_renewed() {
    let mut kept = keeping("old", MINUTE);
    for now in 59_000..59_003 {
        assert_eq!(come(&mut kept, now), CacheLookup::Found("old"));
    }
    let mut derived = cache();
    let mut derive = |now, value| derived.get_or_derive(&1, now, || Ok::<_, ()>((value, 10, MINUTE)));
    assert_eq!(derive(0, "made"), Ok("made"));
    for now in (59_000..MINUTE).step_by(10) {
        assert_eq!(derive(now, "again"), Ok("made"));
    }
    for mut cache in [kept, derived] {
        assert!(matches!(come(&mut cache, MINUTE), CacheLookup::Read(_)));
    }
}

#[test]
fn peek_makes_no_caller_read() {
    let mut cache = cache();
    let reader = lease(come(&mut cache, 0));
    assert_eq!((cache.peek(&2, 0), cache.peek(&1, 0)), (None, None), "it is being read");
    cache.finish(&1, &reader, "answer", value(0, MINUTE), 0);
    assert_eq!((cache.peek(&1, MINUTE - 1), cache.peek(&1, MINUTE)), (Some("answer"), None));
}

#[test]
fn a_renewal_that_fails_leaves_the_value_until_its_end_and_is_tried_again_after_a_pause() {
    let mut cache = keeping("old", MINUTE);
    let renewal = (0..4).map(|_| come(&mut cache, 55_000)).last().map(lease).unwrap();
    cache.finish(&1, &renewal, "no answer", ReadOutcome::Failure { millis: 0 }, 55_100);
    assert_eq!(come(&mut cache, 56_099), CacheLookup::Found("old"));
    let renewal = lease(come(&mut cache, 56_100));
    cache.finish(&1, &renewal, "no answer", ReadOutcome::Failure { millis: 5_000 }, 56_200);
    assert_eq!(come(&mut cache, 57_199), CacheLookup::Found("old"));
    assert!(matches!(come(&mut cache, MINUTE), CacheLookup::Read(_)), "never beyond its end");
}

#[test]
fn the_least_recently_used_is_evicted_and_a_value_larger_than_the_cache_evicts_nothing() {
    let mut cache: Cache<u8, &'static str> = Cache::new(3 * (OVERHEAD + 10));
    let keep = |cache: &mut Cache<_, _>, key, bytes| {
        let arrival = cache.arrive();
        let lease = lease(cache.look_up(&key, arrival, 0, LEASE));
        let outcome = ReadOutcome::Value { bytes, made_at: 0, millis: MINUTE, renewal: Renewal::IfHot };
        cache.finish(&key, &lease, "answer", outcome, 0);
    };
    (1..=3).for_each(|key| keep(&mut cache, key, 10));
    assert_eq!(come(&mut cache, 1), CacheLookup::Found("answer"));
    keep(&mut cache, 4, 10);
    assert_eq!([1, 2, 3, 4].map(|key| cache.peek(&key, 1).is_some()), [true, false, true, true]);
    let mut roomy = self::cache();
    keep(&mut roomy, 1, 10);
    for (mut cache, room) in [(cache, 3 * (OVERHEAD + 10)), (roomy, 1 << 20)] {
        keep(&mut cache, 5, 2 << 20);
        assert!(cache.bytes() <= room && cache.peek(&1, 1).is_some());
        assert!(matches!(cache.look_up(&5, Arrival(u64::MAX), 1, LEASE), CacheLookup::Read(_)));
    }
}

/// Actions of callers and readers, by their indices.
#[derive(Clone, Copy, Debug)]
enum CacheAction {
    Come(u8),
    Again(prop::sample::Index),
    Finish { reader: prop::sample::Index, bytes: usize, millis: u64, fails: bool },
    Wait(u64),
}

fn event() -> impl Strategy<Value = CacheAction> {
    prop_oneof![
        4 => (0u8..4).prop_map(CacheAction::Come),
        3 => any::<prop::sample::Index>().prop_map(CacheAction::Again),
        3 => (any::<prop::sample::Index>(), 0usize..2_000, 0u64..500, prop::bool::weighted(0.2))
            .prop_map(|(reader, bytes, millis, fails)| CacheAction::Finish { reader, bytes, millis, fails }),
        2 => (0u64..300).prop_map(CacheAction::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Values are the time they end at, and the time at which their read began.
    #[test]
    fn no_order_of_events_serves_a_value_beyond_its_ttl_or_lets_two_read_at_once(
        events in prop::collection::vec(event(), 1..120),
        capacity in 0usize..6_000,
    ) {
        #[derive(Clone, Copy, Debug, PartialEq)]
        struct Value { until: u64, began: u64, failed: bool }
        let mut cache = Cache::<u8, Value>::new(capacity);
        let mut now = 1_000_000;
        let mut callers = Vec::<(u8, Arrival, u64)>::new();
        let mut readers = Vec::<(u8, ReadLease, u64)>::new();
        for event in events {
            let (key, arrival, came) = match event {
                CacheAction::Wait(millis) => { now += millis; continue; }
                CacheAction::Finish { reader, bytes, millis, fails } => {
                    if readers.is_empty() { continue; }
                    let (key, lease, began) = readers.swap_remove(reader.index(readers.len()));
                    let outcome = if fails {
                        ReadOutcome::Failure { millis }
                    } else {
                        ReadOutcome::Value { bytes, made_at: began, millis, renewal: Renewal::IfHot }
                    };
                    let until = if fails { now } else { began } + millis;
                    cache.finish(&key, &lease, Value { until, began, failed: fails }, outcome, now);
                    prop_assert!(cache.bytes() <= capacity);
                    continue;
                }
                CacheAction::Come(key) => {
                    let arrival = cache.arrive();
                    callers.push((key, arrival, now));
                    (key, arrival, now)
                }
                CacheAction::Again(caller) => match callers.is_empty() {
                    true => continue,
                    false => callers[caller.index(callers.len())],
                },
            };
            match cache.look_up(&key, arrival, now, 200) {
                CacheLookup::Found(value) => {
                    let own = value.failed || came <= value.began;
                    prop_assert!(now < value.until || (own && now < value.began + 100_000));
                }
                CacheLookup::Renew(value, lease) => {
                    prop_assert!(now < value.until);
                    readers.push((key, lease, now));
                }
                CacheLookup::Read(lease) => {
                    // If there is room, no entry is evicted, and there is one reader at a time.
                    let others = readers.iter().filter(|(of, held, _)| *of == key && now < held.until);
                    prop_assert!(capacity < 4 * (OVERHEAD + 2_000) || others.count() == 0);
                    readers.push((key, lease, now));
                }
                CacheLookup::Wait => {
                    let reading = readers.iter().any(|(of, held, _)| *of == key && now < held.until);
                    prop_assert!(reading, "a caller waits for a reader");
                }
            }
            prop_assert!(cache.bytes() <= capacity);
        }
    }
}
