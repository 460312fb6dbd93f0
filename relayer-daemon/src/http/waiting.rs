//! `GET /relay/:id?wait=`: the answer comes once the relay is as final as the client wants, or after a while.

use std::{sync::Arc, time::Duration};

use alloy::primitives::B256;
use tokio::time::{Instant, sleep};

use crate::{
    outcome::{ErrorCode, Failure, Finality, RelayOutcome},
    process::shutdown::{ShutdownSignal, stopped},
    relay::store_failed,
    store::{RelayRecord, Store},
};

/// Interval between reads of the store: finality changes once a minute.
const POLL: Duration = Duration::from_secs(1);

/// The finality that a query's `wait` names; `None` without one.
///
/// # Errors
/// 400 `INVALID_WAIT`.
pub(super) fn wanted(query: &str) -> Result<Option<Finality>, Failure> {
    let named = query.split('&').find_map(|pair| pair.strip_prefix("wait="));
    named.map_or(Ok(None), |name| match name {
        "latest" => Ok(Some(Finality::Latest)),
        "safe" => Ok(Some(Finality::Safe)),
        "finalized" => Ok(Some(Finality::Finalized)),
        _ => Err(Failure::of(ErrorCode::InvalidWait)),
    })
}

/// Returns whether there is nothing to wait for.
fn is_reached(record: &RelayRecord, wanted: Option<Finality>) -> bool {
    let is_dropped = matches!(record.outcome, Some(RelayOutcome::Dropped { .. }));
    let reached = |wanted| record.outcome.is_some() && record.finality >= Some(wanted);
    is_dropped || wanted.is_none_or(reached)
}

/// A relay, as soon as it is as final as `wanted`, at the latest after `limit` or at shutdown. `None` for an
/// unknown one.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::MinedTransaction;

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
