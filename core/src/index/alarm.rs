//! The alarm of the object that keeps an index: when it is set. The host sets it; one is pending at a time.

/// Milliseconds after which failed work is retried, and an alarm that has not fired is set again.
pub const RETRY_MILLIS: u64 = 5_000;
/// Milliseconds for which an object without requests keeps its rows, so that earlier settings and an earlier
/// release find them again: 30 days.
pub const KEPT_MILLIS: u64 = 30 * 86_400_000;
/// Milliseconds after which a resting object checks again: an earlier release that is deployed again sets no
/// alarm, and so does no work, while one is pending.
pub const RESTS_MILLIS: u64 = 3_600_000;

/// A request for an alarm, in unix milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlarmRequest {
    /// An alarm at this time, unless an earlier one is pending.
    By(u64),
    /// An alarm at this time, also if one is pending more than [`RESTS_MILLIS`] before it: that one would
    /// delete the rows.
    Postponed(u64),
}

impl AlarmRequest {
    /// Returns the request of an object of an earlier format while another one takes over its rows. In the
    /// hour before they would be deleted, they are kept for another [`KEPT_MILLIS`], for the next parts and
    /// for the earlier release. `asked_at` is the time of the last request to that release.
    pub const fn of_takeover(asked_at: u64, now: u64) -> Self {
        match asked_at.saturating_add(KEPT_MILLIS) > now + RESTS_MILLIS {
            true => Self::By(now + RESTS_MILLIS),
            false => Self::Postponed(now + KEPT_MILLIS),
        }
    }

    /// Returns the time for which to set the alarm; `None` if the pending one stays.
    pub fn at(self, pending: Option<u64>, now: u64) -> Option<u64> {
        // An alarm that is due and has not fired for a while is lost.
        let pending = pending.filter(|pending| *pending > now.saturating_sub(RETRY_MILLIS));
        let (Self::By(at) | Self::Postponed(at)) = self;
        let at = at.max(now);
        let stays = |pending| match self {
            Self::By(_) => pending <= at,
            // Each part asks again, and each alarm that is set is billed: one an hour is enough.
            Self::Postponed(_) => pending >= at.saturating_sub(RESTS_MILLIS),
        };
        (!pending.is_some_and(stays)).then_some(at)
    }
}
