//! What this instance knows of its clients, in memory.

use std::{cell::RefCell, collections::HashMap};

use registry_core::{
    timestamp::Timestamp,
    window::{Limit, Tally, Verdict},
};

/// Clients counted at once. Beyond it the quiet ones are forgotten, so that memory stays bounded.
const MAX_CLIENTS: usize = 50_000;
/// A client of no more requests than this is forgotten first.
const QUIET: u32 = 10;

thread_local! {
    /// Plain data only: an instance's requests must not hold on to one another's promises.
    static TALLIES: RefCell<HashMap<String, Tally>> = RefCell::new(HashMap::new());
}

/// Where the client stands as far as this instance knows, without counting. `None` where the limit is off.
pub(crate) fn peek(limit: Limit, client: &str, now: Timestamp) -> Option<Verdict> {
    limit.peek(&known(client), now.seconds())
}

/// What this instance knows of the client, which may be nothing, or of a window gone by.
pub(super) fn known(client: &str) -> Tally {
    TALLIES.with_borrow(|tallies| tallies.get(client).copied().unwrap_or_default())
}

/// Changes the client's tally, which begins empty; in a full house that is made room for.
pub(super) fn change<T>(
    limit: Limit,
    client: &str,
    now: Timestamp,
    change: impl FnOnce(&mut Tally) -> T,
) -> T {
    TALLIES.with_borrow_mut(|tallies| {
        if tallies.len() >= MAX_CLIENTS && !tallies.contains_key(client) {
            make_room(tallies, limit.window(now.seconds()));
        }
        change(tallies.entry(client.to_owned()).or_default())
    })
}

/// Changes the client's tally, if it is still remembered.
pub(super) fn change_known<T>(client: &str, change: impl FnOnce(&mut Tally) -> T) -> Option<T> {
    TALLIES.with_borrow_mut(|tallies| tallies.get_mut(client).map(change))
}

/// Forgets counts of windows gone by, then clients that hardly asked, then all.
fn make_room(tallies: &mut HashMap<String, Tally>, window: u64) {
    tallies.retain(|_, tally| tally.window() == window);
    if tallies.len() >= MAX_CLIENTS {
        tallies.retain(|_, tally| tally.own() > QUIET);
    }
    if tallies.len() >= MAX_CLIENTS {
        tallies.clear();
    }
}
