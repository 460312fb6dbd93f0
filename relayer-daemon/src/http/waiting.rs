//! `GET /relay/:id?wait=`: the answer comes once the relay is as final as the client wants, or after a while.
//!
//! An answer that waits holds a connection. So that answers that do not wait always find one, only some may
//! wait: without a place the answer comes at once.

use std::{net::IpAddr, sync::Arc, time::Duration};

use alloy::primitives::B256;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep},
};

use super::{
    client_shares::{ClientShare, ClientShares},
    connections::ConnectionLimits,
};
use crate::{
    outcome::{ErrorCode, Failure, Finality, RelayOutcome},
    process::shutdown::{ShutdownSignal, stopped},
    relay::{inflight::Waiting, store_failed},
    store::{RelayRecord, Store},
};

/// Interval between reads of the store: finality changes once a minute.
const POLL: Duration = Duration::from_secs(1);

/// Number of questions of one client that wait at the same time.
const PER_CLIENT: usize = 8;

/// Places for answers that wait: a quarter of the connections for questions and half of them for relays,
/// where there are API keys at most half of that for relays without one.
#[derive(Debug)]
pub struct WaitingPlaces {
    by_client: Arc<ClientShares>,
    questions: Arc<Semaphore>,
    relays: Arc<Semaphore>,
    without_key: Arc<Semaphore>,
}

/// A place, given back when dropped.
#[derive(Debug)]
pub(super) struct WaitingPlace {
    _permits: [Option<OwnedSemaphorePermit>; 2],
    _share: Option<ClientShare>,
}

impl WaitingPlaces {
    /// Creates the places within these limits on connections.
    pub fn new(connections: ConnectionLimits) -> Self {
        let part = |of: usize| Arc::new(Semaphore::new(connections.total.div_ceil(of)));
        Self {
            by_client: Arc::new(ClientShares::new(PER_CLIENT)),
            questions: part(4),
            relays: part(2),
            without_key: part(4),
        }
    }

    /// Takes a place for a question about a relay, if one is free.
    pub(super) fn for_question(&self, client: IpAddr) -> Option<WaitingPlace> {
        let share = self.by_client.take(client)?;
        let permit = Arc::clone(&self.questions).try_acquire_owned().ok()?;
        Some(WaitingPlace { _permits: [Some(permit), None], _share: Some(share) })
    }

    /// Takes a place for a relay, if one is free. Those that are `limited` leave places to the others.
    pub(super) fn for_relay(&self, limited: bool) -> Option<WaitingPlace> {
        let limited = limited.then(|| Arc::clone(&self.without_key).try_acquire_owned());
        let permits = [Some(Arc::clone(&self.relays).try_acquire_owned().ok()?), limited.transpose().ok()?];
        Some(WaitingPlace { _permits: permits, _share: None })
    }
}

/// Parses the finality that a query's `wait` names; `None` without one.
///
/// # Errors
/// 400 `INVALID_WAIT`.
pub(super) fn wanted(query: &str) -> Result<Option<Finality>, Failure> {
    let named = query.split('&').find_map(|pair| pair.strip_prefix("wait="));
    named.map(|name| name.parse().map_err(|_| Failure::of(ErrorCode::InvalidWait))).transpose()
}

/// Returns whether there is nothing to wait for.
fn is_reached(record: &RelayRecord, wanted: Option<Finality>) -> bool {
    let is_dropped = matches!(record.outcome, Some(RelayOutcome::Dropped { .. }));
    let reached = |wanted| record.outcome.is_some() && record.finality >= Some(wanted);
    is_dropped || wanted.is_none_or(reached)
}

/// Returns a relay as soon as it is as final as `wanted`, at the latest after `limit` or at shutdown; `None`
/// for an unknown one.
///
/// # Errors
/// [`Failure`] if the store fails.
pub(super) async fn relay(
    store: &Arc<Store>,
    id: B256,
    wanted: Option<Finality>,
    limit: Duration,
    mut stopping: ShutdownSignal,
) -> Result<Option<RelayRecord>, Failure> {
    let deadline = Instant::now() + limit;
    loop {
        let record = store.run(move |store| store.relay(id)).await.map_err(store_failed)?;
        let waits = record.as_ref().is_some_and(|record| !is_reached(record, wanted));
        if !waits || Instant::now() >= deadline || *stopping.borrow() {
            return Ok(record);
        }
        tokio::select! { () = sleep(POLL) => {}, () = stopped(&mut stopping) => {} }
    }
}

/// Waits for a relay's outcome, at most `limit`, and at shutdown at most two seconds.
pub(super) async fn outcome_within(
    mut waiting: Waiting,
    mut stopping: ShutdownSignal,
    limit: Duration,
) -> Option<RelayOutcome> {
    const LAST_MOMENTS: Duration = Duration::from_secs(2);
    let stop = async {
        stopped(&mut stopping).await;
        tokio::time::sleep(LAST_MOMENTS).await;
    };
    let limit = async {
        tokio::select! { () = tokio::time::sleep(limit) => {}, () = stop => {} }
    };
    tokio::select! {
        biased;
        outcome = waiting.wait_for(Option::is_some) => outcome.ok().and_then(|outcome| outcome.clone()),
        () = limit => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::MinedTransaction;

    #[test]
    fn answers_that_wait_leave_connections_to_others_and_a_client_has_few_of_their_places() {
        let places = WaitingPlaces::new(ConnectionLimits { total: 64, per_client: 64 });
        let count =
            |take: &dyn Fn(u8) -> Option<WaitingPlace>| (0..64).filter_map(take).collect::<Vec<_>>().len();
        let of = |last| IpAddr::from([192, 0, 2, last]);
        assert_eq!(count(&|_| places.for_question(of(1))), PER_CLIENT);
        assert_eq!(count(&|last| places.for_question(of(last))), 16);
        let limited: Vec<_> = (0..64).filter_map(|_| places.for_relay(true)).collect();
        assert_eq!((limited.len(), count(&|_| places.for_relay(false))), (16, 16));
        drop(limited);
        assert_eq!(count(&|_| places.for_relay(false)), 32);
    }

    #[test]
    fn a_relay_is_waited_for_until_it_is_as_final_as_wanted() {
        let record = |outcome, finality| RelayRecord { outcome, finality, hashes: Vec::new() };
        let mined = MinedTransaction { tx_hash: B256::ZERO, block_number: 1, gas_used: 1 };
        let executed = || Some(RelayOutcome::Executed { mined, agent_id: None });
        let dropped = Some(RelayOutcome::Dropped { failure: Failure::of(ErrorCode::DeadlinePassed) });
        let [latest, safe, finalized] =
            ["latest", "safe", "finalized"].map(|name| wanted(&format!("a=b&wait={name}")).unwrap());
        assert_eq!(wanted("a=wait"), Ok(None));
        for bad in ["wait=", "wait=final", "wait=Safe"] {
            assert_eq!(wanted(bad).unwrap_err().code, ErrorCode::InvalidWait, "{bad}");
        }
        assert!(is_reached(&record(None, None), None));
        assert!(!is_reached(&record(None, None), latest));
        assert!(is_reached(&record(executed(), Some(Finality::Latest)), latest));
        assert!(!is_reached(&record(executed(), Some(Finality::Latest)), safe));
        assert!(is_reached(&record(executed(), Some(Finality::Finalized)), safe));
        assert!(is_reached(&record(dropped, None), finalized));
    }
}
