//! This instance's tallies of its clients, in memory.

use std::{cell::RefCell, collections::HashMap};

use registry_core::{
    eth::timestamp::Timestamp,
    host::rate_limit::{ClientKey, RateLimitVerdict, WindowLimit, WindowTally},
};

/// Clients counted at once. Above it quiet ones are evicted, so that memory stays bounded.
const MAX_CLIENTS: usize = 50_000;
/// Clients of no more requests than this are evicted first.
const QUIET: u32 = 10;

thread_local! {
    /// Plain data only: an instance's requests must not hold on to one another's promises.
    static TALLIES: RefCell<HashMap<ClientKey, WindowTally>> = RefCell::new(HashMap::new());
}

/// Returns the verdict by this instance's tally; counts nothing. `None` where the limit is off.
pub(crate) fn peek(limit: WindowLimit, client: &ClientKey, now: Timestamp) -> Option<RateLimitVerdict> {
    // It may be empty, or of an earlier window.
    let tally = TALLIES.with_borrow(|tallies| tallies.get(client).copied().unwrap_or_default());
    limit.peek(&tally, now.seconds())
}

/// Changes the client's tally; inserts an empty one first where there is none, evicting others when full.
pub(super) fn change<T>(
    limit: WindowLimit,
    client: &ClientKey,
    now: Timestamp,
    change: impl FnOnce(&mut WindowTally) -> T,
) -> T {
    TALLIES.with_borrow_mut(|tallies| {
        if let Some(tally) = tallies.get_mut(client) {
            return change(tally);
        }
        if tallies.len() >= MAX_CLIENTS {
            evict(tallies, limit.window(now.seconds()));
        }
        change(tallies.entry(client.clone()).or_default())
    })
}

/// Changes the client's tally, if there is one.
pub(super) fn change_known<T>(client: &ClientKey, change: impl FnOnce(&mut WindowTally) -> T) -> Option<T> {
    TALLIES.with_borrow_mut(|tallies| tallies.get_mut(client).map(change))
}

/// Evicts tallies of earlier windows, then those of quiet clients, then all.
fn evict(tallies: &mut HashMap<ClientKey, WindowTally>, window: u64) {
    tallies.retain(|_, tally| tally.window() >= window);
    if tallies.len() >= MAX_CLIENTS {
        tallies.retain(|_, tally| tally.own() > QUIET);
    }
    if tallies.len() >= MAX_CLIENTS {
        tallies.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: WindowLimit = WindowLimit { requests: 60, window_seconds: 60 };

    fn ask(client: &ClientKey, times: u32, now: Timestamp) {
        for _ in 0..times {
            change(LIMIT, client, now, |tally| LIMIT.charge(tally, now.seconds()));
        }
    }

    #[test]
    fn when_full_quiet_clients_are_evicted_and_busy_ones_kept() {
        let now = Timestamp::from_seconds(60);
        let busy = ClientKey::Zone("busy.example".to_owned());
        ask(&busy, 40, now);
        for number in 1..MAX_CLIENTS + 10 {
            ask(&ClientKey::Zone(number.to_string()), 1, now);
        }
        assert!(TALLIES.with_borrow(HashMap::len) < MAX_CLIENTS);
        assert_eq!(peek(LIMIT, &busy, now).unwrap().remaining, 20);
        assert_eq!(peek(LIMIT, &busy, Timestamp::from_seconds(120)).unwrap().remaining, 60);
    }
}
