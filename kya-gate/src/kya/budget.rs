//! The budget for reads that strangers can cause: reads in flight and per second, for all requests together.
//! The operator's own reads are not part of it.

use std::sync::Mutex;

use host_kit::native::lock;
use registry_core::gate::{ReadRate, reserve};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::Instant,
};

use crate::{metrics::Metrics, settings::ReadLimits};

/// The cause of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReadCause {
    /// A request. A signature by another key than it names gets at most half of the budget: such signatures
    /// cost nothing to make.
    Request {
        /// The key signed that the signature names.
        is_of_key: bool,
    },
    /// The operator, by the configuration or a command: such reads are few, and no request can use them up.
    Operator,
}

/// A read, which ends when this value is dropped.
#[derive(Debug)]
pub(super) struct ReadPermit<'a> {
    _in_flight: Option<SemaphorePermit<'a>>,
}

/// The reads that are left to all requests.
#[derive(Debug)]
pub(super) struct ReadBudget {
    most_in_flight: u32,
    in_flight: Semaphore,
    began: Instant,
    rate: Mutex<ReadRate>,
    metrics: Metrics,
}

impl ReadBudget {
    pub(super) fn new(limits: ReadLimits, metrics: Metrics) -> Self {
        let ReadLimits { in_flight, per_second } = limits;
        Self {
            most_in_flight: in_flight,
            in_flight: Semaphore::new(in_flight as usize),
            began: Instant::now(),
            rate: Mutex::new(ReadRate::new(per_second, 0.0)),
            metrics,
        }
    }

    /// Takes a read; `None` where none is left for this cause.
    pub(super) fn take(&self, cause: ReadCause) -> Option<ReadPermit<'_>> {
        let ReadCause::Request { is_of_key } = cause else { return Some(ReadPermit { _in_flight: None }) };
        let refused = |limit| self.metrics.reads_refused.with_label_values(&[limit]).inc();
        let is_free = self.in_flight.available_permits() > reserve(self.most_in_flight, is_of_key) as usize;
        let Some(permit) = self.in_flight.try_acquire().ok().filter(|_| is_free) else {
            refused("in_flight");
            return None;
        };
        let mut rate = lock(&self.rate);
        if !rate.take(is_of_key, self.began.elapsed().as_secs_f64()) {
            refused("per_second");
            return None;
        }
        Some(ReadPermit { _in_flight: Some(permit) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use registry_core::gate::Allowance;
    use std::time::Duration;

    fn budget(in_flight: u32, per_second: u32) -> ReadBudget {
        ReadBudget::new(ReadLimits { in_flight, per_second }, Metrics::new().unwrap())
    }

    /// Returns the number of reads, of a hundred that end at once, for which the budget suffices.
    fn taken(budget: &ReadBudget, is_of_key: bool) -> usize {
        (0..100).filter(|_| budget.take(ReadCause::Request { is_of_key }).is_some()).count()
    }

    #[tokio::test(start_paused = true)]
    async fn reads_are_bounded_by_the_second_and_in_flight_and_half_is_for_those_that_a_key_signed() {
        let by_second = budget(100, 10);
        assert_eq!((taken(&by_second, false), taken(&by_second, true), taken(&by_second, true)), (5, 5, 0));
        tokio::time::advance(Duration::from_millis(300)).await;
        assert_eq!((taken(&by_second, false), taken(&by_second, true)), (0, 3));
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(taken(&by_second, true), 10, "a minute without reads leaves a second's");
        let refused = by_second.metrics.reads_refused.with_label_values(&["per_second"]).get();
        assert_eq!(refused, 95 + 95 + 100 + 100 + 97 + 90);

        let in_flight = budget(4, 1_000);
        let take = |is_of_key| in_flight.take(ReadCause::Request { is_of_key });
        let strangers: Vec<_> = (0..4).map_while(|_| take(false)).collect();
        let signed: Vec<_> = (0..4).map_while(|_| take(true)).collect();
        assert_eq!((strangers.len(), signed.len()), (2, 2));
        assert!(in_flight.take(ReadCause::Operator).is_some(), "requests leave the operator's reads");
        drop(strangers);
        assert!(take(false).is_none() && take(true).is_some());

        let mut allowance = Allowance::of_a_request();
        assert_eq!([(); 3].map(|()| allowance.take()), [true, true, false]);
    }
}
