//! What this instance knows of its clients, in memory.

use std::{cell::RefCell, collections::HashMap};

use registry_core::{
    eth::timestamp::Timestamp,
    host::rate_limit::{Client, Limit, Tally, Verdict},
};

/// Clients counted at once. Beyond it the quiet ones are forgotten, so that memory stays bounded.
const MAX_CLIENTS: usize = 50_000;
/// A client of no more requests than this is forgotten first.
const QUIET: u32 = 10;

thread_local! {
    /// Plain data only: an instance's requests must not hold on to one another's promises.
    static TALLIES: RefCell<HashMap<Client, Tally>> = RefCell::new(HashMap::new());
}

/// Where the client stands as far as this instance knows, without counting. `None` where the limit is off.
pub(crate) fn peek(limit: Limit, client: &Client, now: Timestamp) -> Option<Verdict> {
    limit.peek(&known(client), now.seconds())
}

/// What this instance knows of the client, which may be nothing, or of a window gone by.
pub(super) fn known(client: &Client) -> Tally {
    TALLIES.with_borrow(|tallies| tallies.get(client).copied().unwrap_or_default())
}

/// Changes the client's tally, which begins empty; in a full house that is made room for.
pub(super) fn change<T>(
    limit: Limit,
    client: &Client,
    now: Timestamp,
    change: impl FnOnce(&mut Tally) -> T,
) -> T {
    TALLIES.with_borrow_mut(|tallies| {
        if let Some(tally) = tallies.get_mut(client) {
            return change(tally);
        }
        if tallies.len() >= MAX_CLIENTS {
            make_room(tallies, limit.window(now.seconds()));
        }
        change(tallies.entry(client.clone()).or_default())
    })
}

/// Changes the client's tally, if it is still remembered.
pub(super) fn change_known<T>(client: &Client, change: impl FnOnce(&mut Tally) -> T) -> Option<T> {
    TALLIES.with_borrow_mut(|tallies| tallies.get_mut(client).map(change))
}

/// Forgets counts of windows gone by, then clients that hardly asked, then all.
fn make_room(tallies: &mut HashMap<Client, Tally>, window: u64) {
    tallies.retain(|_, tally| tally.window() == window);
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

    const LIMIT: Limit = Limit { requests: 60, window_seconds: 60 };

    fn ask(client: &Client, times: u32, now: Timestamp) {
        for _ in 0..times {
            change(LIMIT, client, now, |tally| LIMIT.charge(tally, now.seconds()));
        }
    }

    #[test]
    fn a_full_house_forgets_the_quiet_and_keeps_the_busy() {
        let now = Timestamp::from_seconds(60);
        let busy = Client::Zone("busy.example".to_owned());
        ask(&busy, 40, now);
        for number in 1..MAX_CLIENTS + 10 {
            ask(&Client::Zone(number.to_string()), 1, now);
        }
        assert!(TALLIES.with_borrow(HashMap::len) < MAX_CLIENTS);
        assert_eq!(peek(LIMIT, &busy, now).unwrap().remaining, 20);
        assert_eq!(peek(LIMIT, &busy, Timestamp::from_seconds(120)).unwrap().remaining, 60);
    }
}
