//! Hedged requests: a request that has waited for too long is sent to the next endpoint as well, and the
//! first good answer wins. That cuts the tail latency of an endpoint that is slow now and then, which
//! failover does not. The wait is the 95th percentile of recent answers' times, but at least `LEAST_MEDIANS`
//! and at most `MOST_MEDIANS` times their median.
//!
//! A budget bounds the cost: extra requests are at most one for every `PRIMARY_PER_HEDGE`. Replies that are
//! expected to be large (`MAX_HEDGED_BYTES`) are never asked for twice.
//!
//! ```text
//!   begin: after how long --+--> the answer: answered
//!                           +--> no answer: take from the budget --+--> none left: wait on
//!                                                                  +--> ask the next endpoint, Race
//! ```

use std::collections::VecDeque;

use serde::{Deserialize, de::IgnoredAny};

use super::batch::{Batch, Reply};

/// Number of recent answers that the percentile is taken of.
const WINDOW: usize = 128;
/// Minimum number of answers for a percentile.
const LEAST_ANSWERS: usize = 20;
/// Requests that pay for one extra request: 5 %.
const PRIMARY_PER_HEDGE: u32 = 20;
/// Extra requests that may be saved up for a bad minute.
const MOST_SAVED: u32 = 10;
/// The earliest hedge, in medians. The other endpoint takes about one more median, so an earlier hedge gains
/// nothing on an answer that is about to come, and leaves nothing in the budget for late ones.
const LEAST_MEDIANS: u32 = 2;
/// The latest hedge, in medians. Where more than one answer in twenty is late, the percentile is a late
/// answer's time.
const MOST_MEDIANS: u32 = 8;
/// Largest expected reply of a hedged request, in bytes.
pub(super) const MAX_HEDGED_BYTES: usize = 64 * 1024;

/// The times of the last answers, and the budget of extra requests. A host keeps one for all its runs.
#[derive(Clone, Debug, Default)]
pub struct Hedging {
    /// The last answers' times in milliseconds, the oldest first.
    millis: VecDeque<u32>,
    /// Remaining budget, in requests that pay for it.
    budget: u32,
}

impl Hedging {
    /// Counts a request that [may be hedged](super::Run::may_hedge), and returns the milliseconds without an
    /// answer after which to hedge it, if at all.
    pub fn begin(&mut self, batch: &Batch, endpoints: usize) -> Option<u32> {
        if endpoints < 2 {
            return None;
        }
        self.budget = (self.budget + 1).min(MOST_SAVED * PRIMARY_PER_HEDGE);
        self.delay().filter(|millis| *millis < batch.timeout_ms)
    }

    /// Takes an extra request from the budget; false if none is left.
    pub fn take(&mut self) -> bool {
        let left = self.budget.checked_sub(PRIMARY_PER_HEDGE);
        self.budget = left.unwrap_or(self.budget);
        left.is_some()
    }

    /// Records the time from sending a request that [may be hedged](super::Run::may_hedge) to its first good
    /// answer.
    pub fn answered(&mut self, millis: u32) {
        if self.millis.len() == WINDOW {
            self.millis.pop_front();
        }
        self.millis.push_back(millis);
    }

    /// Returns the milliseconds without an answer after which a request is hedged.
    fn delay(&self) -> Option<u32> {
        if self.millis.len() < LEAST_ANSWERS {
            return None;
        }
        let mut sorted: Vec<u32> = self.millis.iter().copied().collect();
        sorted.sort_unstable();
        let [median, p95] = [50, 95].map(|percent| percentile(&sorted, percent));
        Some(p95.clamp(median.saturating_mul(LEAST_MEDIANS), median.saturating_mul(MOST_MEDIANS)))
    }
}

/// Returns a percentile of sorted times by nearest rank; 0 of none.
fn percentile(sorted: &[u32], percent: usize) -> u32 {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

/// Returns the endpoint for the extra request of a batch.
pub const fn next_endpoint(batch: &Batch, endpoints: usize) -> usize {
    if batch.endpoint + 1 < endpoints { batch.endpoint + 1 } else { 0 }
}

/// One of the two requests of a race.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Racer {
    /// The request that was sent first.
    Primary,
    /// The extra request.
    Hedge,
}

/// Returns the winner, or `None` while it is undecided. An argument tells whether that request's answer is
/// [good](is_good), `None` before it arrives. If neither is good, the primary's counts.
pub const fn winner(primary: Option<bool>, hedge: Option<bool>) -> Option<Racer> {
    match (primary, hedge) {
        (Some(true), _) | (Some(false), Some(false)) => Some(Racer::Primary),
        (_, Some(true)) => Some(Racer::Hedge),
        (None, _) | (_, None) => None,
    }
}

/// Returns whether each response has a result. Another reply may have one where this has an error.
pub fn is_good(reply: Reply<'_>) -> bool {
    #[derive(Deserialize)]
    struct RpcOutcome {
        #[serde(default)]
        result: Option<IgnoredAny>,
        #[serde(default)]
        error: Option<IgnoredAny>,
    }
    let is_answered = |entry: &RpcOutcome| entry.result.is_some() && entry.error.is_none();
    if reply.status != 200 {
        return false;
    }
    match serde_json::from_slice::<Vec<RpcOutcome>>(reply.body) {
        Ok(entries) => !entries.is_empty() && entries.iter().all(is_answered),
        Err(_) => serde_json::from_slice::<RpcOutcome>(reply.body).is_ok_and(|entry| is_answered(&entry)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn batch() -> Batch {
        Batch { endpoint: 0, body: String::new(), delay_ms: 0, timeout_ms: 4_000, max_reply_bytes: 1 << 20 }
    }

    /// Asks two endpoints, of which the first takes `millis(request)` and the second `second`, and gives the
    /// times to the answers and the number of extra requests.
    fn ask(requests: u32, second: u32, mut millis: impl FnMut(u32) -> u32) -> (Vec<u32>, u32) {
        let (mut hedging, mut extra, mut took) = (Hedging::default(), 0, Vec::new());
        for request in 0..requests {
            let alone = millis(request);
            let delay = hedging.begin(&batch(), 2).filter(|delay| alone > *delay);
            let time = match delay.filter(|_| hedging.take()) {
                None => alone,
                Some(delay) => {
                    extra += 1;
                    alone.min(delay + second)
                }
            };
            hedging.answered(time);
            took.push(time);
        }
        took.sort_unstable();
        (took, extra)
    }

    /// Returns a number of a sequence without a pattern.
    fn scrambled(number: u32) -> u32 {
        number.wrapping_mul(2_654_435_761) >> 16
    }

    #[test]
    fn one_slow_answer_in_twenty_is_no_tail_any_more_and_a_little_longer_is_left_alone() {
        let late = |one_in| {
            move |request| {
                if scrambled(request).is_multiple_of(one_in) { 2_000 } else { 20 + scrambled(request) % 7 }
            }
        };
        let p99 = |took: &[u32]| took[took.len() * 99 / 100];
        let mut before: Vec<u32> = (0..2_000).map(late(20)).collect();
        before.sort_unstable();
        assert_eq!(p99(&before), 2_000);
        let (took, extra) = ask(2_000, 22, late(20));
        assert!(p99(&took) < 200 && extra <= 100, "{} {extra}", p99(&took));
        // Late more often than the budget allows: hedged as far as it goes.
        for one_in in [4, 8, 12, 16] {
            let (_, extra) = ask(2_000, 22, late(one_in));
            assert!((90..=100).contains(&extra), "late in one of {one_in}: {extra}");
        }
        assert_eq!(ask(2_000, 22, |request| 20 + scrambled(request) % 20).1, 0);
    }

    #[test]
    fn nothing_is_hedged_with_one_endpoint_too_few_answers_or_too_little_time() {
        let mut hedging = Hedging::default();
        for _ in 0..LEAST_ANSWERS {
            assert_eq!(hedging.begin(&batch(), 2), None, "what is usual is not known yet");
            hedging.answered(20);
        }
        assert_eq!(hedging.begin(&batch(), 2), Some(40));
        assert_eq!(hedging.begin(&batch(), 1), None);
        assert_eq!(hedging.begin(&Batch { timeout_ms: 40, ..batch() }, 2), None);
        assert!(hedging.take() && !hedging.take(), "22 requests of two endpoints pay for one");
    }

    #[test]
    fn the_first_good_answer_wins_and_without_one_the_primarys_counts() {
        for (primary, hedge, expected) in [
            (None, None, None),
            (None, Some(false), None),
            (Some(false), None, None),
            (Some(true), None, Some(Racer::Primary)),
            (None, Some(true), Some(Racer::Hedge)),
            (Some(false), Some(true), Some(Racer::Hedge)),
            (Some(true), Some(true), Some(Racer::Primary)),
            (Some(false), Some(false), Some(Racer::Primary)),
        ] {
            assert_eq!(winner(primary, hedge), expected, "{primary:?} {hedge:?}");
        }
        for (status, body, good) in [
            (200, r#"[{"id":0,"result":"0x"},{"id":1,"result":null}]"#, false),
            (200, r#"[{"id":0,"result":"0x"},{"id":1,"result":{}}]"#, true),
            (200, r#"{"id":0,"result":"0x"}"#, true),
            (200, r#"[{"id":0,"result":"0x"},{"id":1,"error":{"code":-32000}}]"#, false),
            (200, r#"{"error":"rate limited"}"#, false),
            (200, "[]", false),
            (200, "<html>", false),
            (429, r#"{"id":0,"result":"0x"}"#, false),
        ] {
            assert_eq!(is_good(Reply { status, body: body.as_bytes() }), good, "{body}");
        }
        assert_eq!([0, 1, 2].map(|endpoint| next_endpoint(&Batch { endpoint, ..batch() }, 3)), [1, 2, 0]);
    }

    proptest! {
        #[test]
        fn whatever_the_endpoints_do_extra_requests_are_five_percent_at_most(
            times in prop::collection::vec(0u32..5_000, 1..600),
            second in 0u32..5_000,
        ) {
            let requests = times.len() as u32;
            let (_, extra) = ask(requests, second, |request| times[request as usize]);
            prop_assert!(extra * PRIMARY_PER_HEDGE <= requests, "{} of {}", extra, requests);
        }
    }
}
