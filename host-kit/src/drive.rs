//! The drive loop: batches to the network and replies back, until a run is done.

use registry_core::chain::{Batch, Failure, Query, Reply, Run, Step, Update};

/// The reply of an RPC endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RpcReply {
    /// The endpoint that sent it: the batch's, or another one that was asked as well.
    pub endpoint: usize,
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

/// A host, for the time of one run: its clock, its network, and what it knows of the endpoints.
pub trait RpcHost {
    /// True if a batch may go to another endpoint as well ([`hedge`](registry_core::chain::hedge)).
    const HEDGES: bool = false;

    /// Returns the milliseconds since the run began.
    fn elapsed_ms(&self) -> u32;

    /// Makes one round trip: waits for the batch's delay, sends it, and gives up at its timeout or its size
    /// cap. With `may_hedge`, another endpoint may be asked as well.
    fn round_trip(
        &mut self,
        batch: &Batch,
        may_hedge: bool,
    ) -> impl Future<Output = Result<RpcReply, Failure>>;

    /// Merges what a run has learned of the endpoints, after each round trip: a host that keeps it for later
    /// runs does not wait for a dead endpoint again. A host that keeps nothing ignores `update`.
    fn merge(&mut self, update: impl FnOnce() -> Update);
}

/// Runs a query to its output. Errors: the query's.
pub async fn drive<Q: Query, H: RpcHost>(mut run: Run<Q>, host: &mut H) -> Result<Q::Output, Q::Error> {
    loop {
        run.passed(host.elapsed_ms());
        match run.step()? {
            Step::Done(output) => return Ok(output),
            Step::Send(batch) => {
                let taken = match host.round_trip(&batch, H::HEDGES && run.may_hedge()).await {
                    Ok(RpcReply { endpoint, status, body }) => {
                        run.answered_by(endpoint);
                        run.feed(Reply { status, body: &body })
                    }
                    Err(failure) => run.fail(failure),
                };
                host.merge(|| run.update());
                taken?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::ready,
        pin::pin,
        task::{Context, Poll, Waker},
    };

    use alloy_primitives::Address;
    use registry_core::{
        api::health::{Readiness, ServiceStatus},
        chain::{Endpoints, Limits, QueryError, RunError},
        eth::{multicall::CANONICAL_ADDRESS, timestamp::Timestamp},
    };

    use super::*;

    /// A host of three endpoints, which are unreachable but for the one that answers. Each round trip takes
    /// `round_trip_ms`.
    #[derive(Default)]
    struct ScriptedHost {
        answers: Option<(usize, RpcReply)>,
        round_trip_ms: u32,
        asked: Vec<usize>,
        merged: usize,
    }

    impl RpcHost for ScriptedHost {
        fn elapsed_ms(&self) -> u32 {
            self.round_trip_ms * u32::try_from(self.asked.len()).unwrap()
        }

        fn round_trip(&mut self, batch: &Batch, _: bool) -> impl Future<Output = Result<RpcReply, Failure>> {
            self.asked.push(batch.endpoint);
            let answer = self.answers.as_ref().filter(|(endpoint, _)| *endpoint == batch.endpoint);
            ready(answer.map(|(_, reply)| reply.clone()).ok_or(Failure::Unreachable))
        }

        fn merge(&mut self, _: impl FnOnce() -> Update) {
            self.merged += 1;
        }
    }

    /// Returns the error of a question to the chain, and the endpoints that were asked.
    fn error(mut host: ScriptedHost) -> (QueryError, Vec<usize>) {
        let (registry, multicall3, now) = (Address::ZERO, CANONICAL_ADDRESS, Timestamp::default());
        let question = Readiness { registry, multicall3, now, service: ServiceStatus::default() };
        let run = Run::new(question, multicall3, Limits::default()).over(Endpoints::new(3, Some(1)));
        let Poll::Ready(output) = pin!(drive(run, &mut host)).poll(&mut Context::from_waker(Waker::noop()))
        else {
            panic!("the host is never pending");
        };
        assert_eq!(host.merged, host.asked.len(), "once after each round trip");
        (output.unwrap_err(), host.asked)
    }

    #[test]
    fn a_run_goes_from_endpoint_to_endpoint_until_its_time_is_over() {
        let whole = Limits::default().deadline_ms;
        for (round_trip_ms, tries, first) in [(0, 3, &[0, 1, 2][..]), (whole, 1, &[0])] {
            let (error, asked) = error(ScriptedHost { round_trip_ms, ..ScriptedHost::default() });
            let is_it =
                matches!(error, QueryError::Run(RunError::Unanswered { tried, .. }) if tried == tries);
            assert!(is_it && asked.get(..3).unwrap_or(&asked) == first, "{error:?} {asked:?}");
        }
    }

    #[test]
    fn a_fault_is_that_of_the_endpoint_that_replied() {
        let reply = RpcReply { endpoint: 2, status: 200, body: b"no JSON".to_vec() };
        let (_, asked) = error(ScriptedHost { answers: Some((1, reply)), ..ScriptedHost::default() });
        assert_eq!(asked.get(..3), Some([0, 1, 1].as_slice()), "{asked:?}");
    }
}
