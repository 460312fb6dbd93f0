//! The times for which a relay has been held up, by cause.

use std::time::Duration;

use tokio::time::Instant;

use super::backoff::RelayStep;

/// Times since which a relay has been held up, by cause.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// The step that transient failures block, and the time of the first one.
    blocked_since: Option<(RelayStep, Instant)>,
    /// Time since which it would have been dropped, but for transactions that were given up.
    refused_since: Option<Instant>,
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
    }

    /// Notes that no account can pay for the relay, and returns how long none could.
    pub(super) fn unpaid(&mut self) -> Duration {
        self.unpaid_since.get_or_insert_with(Instant::now).elapsed()
    }

    /// Notes that an account took the relay.
    pub(super) fn placed(&mut self) {
        self.unpaid_since = None;
    }

    /// Notes a reason to drop the relay, and returns how long there has been one.
    pub(super) fn refused(&mut self) -> Duration {
        self.refused_since.get_or_insert_with(Instant::now).elapsed()
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
}
