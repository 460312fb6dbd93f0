//! The times for which a relay has been held up, by cause.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use super::backoff::RelayStep;

/// The event that a relay waits for before it is dropped, because of a transaction that was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LateWait {
    /// The transaction has executed the relay, and the account's sender, if any, is to settle it.
    Settlement,
    /// The transaction may have executed the relay, and its receipt may be late: all endpoints answer that
    /// they do not have it.
    Receipt,
    /// The transaction may have executed the relay, and an endpoint that is silent may have its receipt.
    Answer,
    /// The request is refused, and the transaction may still execute it: a block's time may be before this
    /// daemon's, and of two requests the first may be dropped.
    Refusal,
    /// The transaction may be mined.
    Mining,
}

impl LateWait {
    /// Returns the longest time that a relay waits for this.
    const fn longest(self) -> Duration {
        Duration::from_secs(match self {
            Self::Settlement => 60,
            Self::Receipt | Self::Refusal => 600,
            // Bounded: an endpoint may be gone for good, and the signer's next requests wait behind this one.
            Self::Answer => 3_600,
            // As long as the account's sender looks the transaction up.
            Self::Mining => 24 * 60 * 60,
        })
    }

    /// Returns the waits that this one is a part of: an endpoint that denies a receipt after it was silent
    /// has the time of a late receipt yet, within the time of all endpoints.
    const fn parts(self) -> &'static [Self] {
        match self {
            Self::Settlement => &[Self::Settlement],
            Self::Receipt => &[Self::Receipt, Self::Answer],
            Self::Answer => &[Self::Answer],
            Self::Refusal => &[Self::Refusal],
            Self::Mining => &[Self::Mining],
        }
    }

    /// Returns whether the request is used while the relay waits for this.
    const fn is_of_used_request(self) -> bool {
        matches!(self, Self::Settlement | Self::Receipt | Self::Answer)
    }
}

/// The time that a relay has waited for each event before it is dropped, as far as looks at its transactions
/// were answered.
#[derive(Debug, Default)]
struct LateTimes {
    waited: BTreeMap<LateWait, Duration>,
    /// The last look, if it was answered.
    looked_at: Option<Instant>,
}

impl LateTimes {
    /// Notes what an answered look found that the relay waits for, and returns whether it has waited as long
    /// as it may. Events that alternate, as at endpoints of different blocks, do not begin anew.
    fn has_waited_for(&mut self, wait: LateWait) -> bool {
        let since_look = self.looked_at.replace(Instant::now()).map_or(Duration::ZERO, |look| look.elapsed());
        if !wait.is_of_used_request() {
            // A reorganisation has undone it.
            self.waited.retain(|wait, _| !wait.is_of_used_request());
        }
        let mut is_over = false;
        for part in wait.parts() {
            let waited = self.waited.entry(*part).and_modify(|waited| *waited += since_look).or_default();
            is_over |= *waited >= part.longest();
        }
        is_over
    }
}

/// Times since which a relay has been held up, by cause.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// The step that transient failures block, and the time of the first one.
    blocked_since: Option<(RelayStep, Instant)>,
    /// Time since which it would have been dropped, but for transactions that were given up.
    refused_since: Option<Instant>,
    /// The time that it has waited before it is dropped.
    late: LateTimes,
    /// The number of its transactions that were given up, and the time since which there are that many.
    given_up: Option<(usize, Instant)>,
    /// Time since which no account could pay for it, of this daemon or of those that handed it over.
    unpaid_since: Option<Instant>,
}

impl Patience {
    /// Notes a transient failure of a step, and returns how long such failures have blocked the relay.
    pub(super) fn blocked(&mut self, step: RelayStep) -> Duration {
        self.blocked_since.get_or_insert_with(|| (step, Instant::now())).1.elapsed()
    }

    /// Notes that the relay got beyond a step: failures of this one and of earlier ones no longer block it.
    pub(super) fn passed(&mut self, step: RelayStep) {
        self.blocked_since = self.blocked_since.filter(|(blocked, _)| *blocked > step);
    }

    /// Notes that other daemons had the relay, maybe for long. Failures to send still count: they bring it
    /// from one daemon to the other and back.
    pub(super) fn returned(&mut self) {
        self.passed(RelayStep::Check);
        self.refused_since = None;
        self.late = LateTimes::default();
        self.given_up = None;
    }

    /// Notes that no account can pay for the relay, and returns how long none could.
    pub(super) fn unpaid(&mut self) -> Duration {
        self.unpaid_since.get_or_insert_with(Instant::now).elapsed()
    }

    /// Notes that an account took the relay.
    pub(super) fn placed(&mut self) {
        self.unpaid_since = None;
        self.late = LateTimes::default();
    }

    /// Notes a reason to drop the relay, and returns how long there has been one.
    pub(super) fn refused(&mut self) -> Duration {
        self.refused_since.get_or_insert_with(Instant::now).elapsed()
    }

    /// Notes the number of the relay's transactions that were given up.
    pub(super) fn gave_up(&mut self, count: usize) {
        let before = self.given_up.filter(|(before, _)| count <= *before);
        let since = before.map_or_else(Instant::now, |(_, since)| since);
        self.given_up = Some((count, since));
    }

    /// Notes that no endpoint answered what the relay waits for. The time until the next answer does not
    /// count, or that one would end the relay after an outage.
    pub(super) fn unknown(&mut self) {
        self.late.looked_at = None;
    }

    /// Notes what the relay waits for before it is dropped, and returns whether it has waited for that as
    /// long as it may.
    pub(super) fn has_waited_for(&mut self, wait: LateWait) -> bool {
        let is_over = self.late.has_waited_for(wait);
        match wait {
            // Since the last one was given up, whatever was answered.
            LateWait::Mining => {
                let (_, since) = *self.given_up.get_or_insert_with(|| (0, Instant::now()));
                since.elapsed() >= wait.longest()
            }
            LateWait::Settlement | LateWait::Receipt | LateWait::Answer | LateWait::Refusal => is_over,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn failures_count_from_the_first_one_until_the_relay_gets_beyond_the_step_that_failed() {
        let mut patience = Patience::default();
        let mut waited = async |step| {
            tokio::time::advance(SECOND).await;
            patience.blocked(step)
        };
        assert_eq!(
            [waited(RelayStep::Check).await, waited(RelayStep::Check).await],
            [Duration::ZERO, SECOND]
        );
        assert_eq!(waited(RelayStep::Send).await, SECOND * 2);
        patience.passed(RelayStep::Check);
        assert_eq!(patience.blocked(RelayStep::Send), Duration::ZERO);
        tokio::time::advance(SECOND).await;
        // It is checked each time before it is to be sent.
        patience.passed(RelayStep::Check);
        assert_eq!(patience.blocked(RelayStep::Send), SECOND);
        assert_eq!(patience.refused(), Duration::ZERO, "another clock");
        patience.passed(RelayStep::Send);
        assert_eq!(patience.blocked(RelayStep::Check), Duration::ZERO);
        tokio::time::advance(SECOND).await;
        assert_eq!(patience.refused(), SECOND);
        patience.returned();
        assert_eq!((patience.blocked(RelayStep::Send), patience.refused()), (Duration::ZERO, Duration::ZERO));
        tokio::time::advance(SECOND).await;
        patience.returned();
        assert_eq!(patience.blocked(RelayStep::Send), SECOND, "it was not sent elsewhere either");

        let mut patience = Patience::default();
        assert_eq!(patience.unpaid(), Duration::ZERO);
        tokio::time::advance(SECOND).await;
        patience.returned();
        assert_eq!(patience.unpaid(), SECOND, "two daemons without funds hand it to one another");
        assert_eq!(patience.blocked(RelayStep::Send), Duration::ZERO, "another clock");
        patience.placed();
        assert_eq!(patience.unpaid(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn each_wait_of_a_relay_that_is_about_to_be_dropped_has_its_whole_time() {
        use LateWait::{Answer, Mining, Receipt, Refusal, Settlement};
        let mut patience = Patience::default();
        for (seconds, wait, is_over) in [
            (0, Mining, false),
            (80_000, Mining, false),
            (0, Refusal, false),
            (599, Refusal, false),
            // The nonces are used by now.
            (1, Receipt, false),
            (599, Receipt, false),
            (1, Settlement, false),
            (59, Settlement, false),
            (1, Settlement, true),
            // A reorganisation: the day began with the first look.
            (5_000, Mining, false),
            (140, Mining, true),
            (0, Receipt, false),
            (600, Receipt, true),
            // An endpoint that does not answer may have it.
            (0, Answer, false),
            (2_999, Answer, false),
            (1, Answer, true),
            (0, Receipt, true),
        ] {
            tokio::time::advance(SECOND * seconds).await;
            assert_eq!(patience.has_waited_for(wait), is_over, "{wait:?} after {seconds} s more");
        }
        patience.gave_up(1);
        assert!(!patience.has_waited_for(Mining));
        tokio::time::advance(SECOND * 90_000).await;
        patience.gave_up(1);
        assert!(patience.has_waited_for(Mining));
        patience.placed();
        patience.gave_up(2);
        assert!(!patience.has_waited_for(Mining), "that of the second one begins");
        for begin_anew in [Patience::placed, Patience::returned] {
            begin_anew(&mut patience);
            assert!(!patience.has_waited_for(Receipt));
            tokio::time::advance(SECOND * 600).await;
            assert!(patience.has_waited_for(Receipt));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_answer_after_a_silence_ends_no_wait_and_nothing_makes_one_endless() {
        use LateWait::{Answer, Receipt, Settlement};
        let mut patience = Patience::default();
        for (seconds, look, is_over) in [
            // One endpoint is silent, and then lacks the receipt.
            (0, Some(Answer), false),
            (2_000, Some(Answer), false),
            (0, Some(Receipt), false),
            (500, Some(Receipt), false),
            // None answers.
            (0, None, false),
            (9_000, Some(Receipt), false),
            (99, Some(Receipt), false),
            (1, Some(Receipt), true),
        ] {
            tokio::time::advance(SECOND * seconds).await;
            match look {
                Some(wait) => {
                    assert_eq!(patience.has_waited_for(wait), is_over, "{wait:?} after {seconds} s")
                }
                None => patience.unknown(),
            }
        }
        for (alternates, longest) in [([Answer; 3], 90), ([Settlement, Receipt, Answer], 40)] {
            let (mut patience, mut looks) = (Patience::default(), 0);
            while !patience.has_waited_for(alternates[looks % 3]) {
                looks += 1;
                assert!(looks <= longest, "waits without end");
                tokio::time::advance(SECOND * 60).await;
                if looks % 3 == 0 {
                    patience.unknown();
                }
            }
        }
    }
}
