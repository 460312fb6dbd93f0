//! A fleet: several daemons on one store, which share its accounts.
//!
//! Each account is leased to one daemon, until the lease expires by the database's clock; the daemon renews
//! it all the time. Each new holder gets a higher epoch, a fencing token: what a former holder writes later
//! fails. [`assign`] says which daemon is to have which account; each works it out by itself, from the same
//! rows, and so they agree.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use alloy::primitives::{Address, B256, FixedBytes};

use super::AccountState;

/// Duration of a lease from its renewal on. A daemon that dies is replaced within this and one more [`BEAT`].
pub const LEASE: Duration = Duration::from_secs(10);
/// Interval at which leases are renewed.
pub const BEAT: Duration = Duration::from_secs(2);
/// Time before the end of its lease at which a daemon stops sending: room for the drift between its clock and
/// the database's, and for a transaction's way to the node.
pub const MARGIN: Duration = Duration::from_secs(2);
/// Not an account, but leased like one: the daemon that holds it delivers the events of webhooks.
pub const WEBHOOKS: Address = Address::ZERO;

/// A daemon of a fleet, in one run of its process.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DaemonId(pub Arc<str>);

impl DaemonId {
    /// Creates a random id.
    pub fn random() -> Self {
        Self(format!("{:x}", FixedBytes::<8>::random()).into())
    }
}

/// An account, with the epoch of its lease in a fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Payer {
    /// The account.
    pub account: Address,
    /// The lease's epoch; `None` where the store has one daemon, and of an account that no daemon holds.
    pub epoch: Option<u64>,
}

impl From<Address> for Payer {
    fn from(account: Address) -> Self {
        Self { account, epoch: None }
    }
}

/// A lease that a daemon holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldLease {
    /// The account and the lease's epoch.
    pub payer: Payer,
    /// True if the daemon is to keep it. If not, it gives the account back once nothing is in flight.
    pub is_wanted: bool,
}

/// The accounts that a daemon holds after it has renewed its leases.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Beat {
    /// Its leases.
    pub held: Vec<HeldLease>,
    /// The number of living daemons.
    pub daemons: usize,
    /// Time until which this daemon lives without another beat, by the database's clock, milliseconds.
    pub alive_until: i64,
    /// True if the store has lost commits: even an epoch may be one that was there before.
    pub has_lost: bool,
    /// The states of its accounts that this daemon has published.
    pub published: BTreeMap<Address, AccountState>,
    /// The accounts of all living daemons, each with the best state that another daemon has published of it;
    /// `Elsewhere` where none has published any.
    pub states: BTreeMap<Address, AccountState>,
}

/// The fleet as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FleetRecord {
    /// The number of living daemons.
    pub daemons: usize,
    /// The daemon that holds each account.
    pub holders: BTreeMap<Address, DaemonId>,
    /// The number of relays that have not ended.
    pub pending: u64,
}

/// The places that a daemon has for more relays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Room {
    /// All of them.
    pub places: usize,
    /// The places that each signer may have.
    pub per_signer: usize,
    /// The places that each signer has by now.
    pub of_signer: HashMap<Address, usize>,
    /// Other daemons' relays that have places by now, as clients or relays wait for them here.
    pub waited_for: HashSet<B256>,
}

impl Room {
    /// Takes a place for this relay of this signer, unless it has one. Returns whether it has one now.
    pub fn admit(&mut self, id: &B256, signer: Address) -> bool {
        self.waited_for.contains(id) || self.take(signer)
    }

    /// Takes a place for a relay of this signer. Returns whether there was one.
    pub fn take(&mut self, signer: Address) -> bool {
        let of_signer = self.of_signer.entry(signer).or_default();
        if self.places == 0 || *of_signer >= self.per_signer {
            return false;
        }
        self.places -= 1;
        *of_signer += 1;
        true
    }
}

/// Assigns each account to a daemon. A holder keeps its accounts, up to an equal share; the others go to the
/// daemon that has the fewest, of those that have the key. The webhooks stay with their holder.
pub(super) fn assign(
    members: &BTreeMap<DaemonId, BTreeSet<Address>>,
    holders: &BTreeMap<Address, DaemonId>,
) -> BTreeMap<Address, DaemonId> {
    let mut accounts: BTreeSet<Address> = members.values().flatten().copied().collect();
    let has_webhooks = accounts.remove(&WEBHOOKS);
    let share = accounts.len().div_ceil(members.len().max(1));
    let mut loads: BTreeMap<&DaemonId, usize> = members.keys().map(|daemon| (daemon, 0)).collect();
    let mut assigned = BTreeMap::new();
    for account in &accounts {
        let Some(holder) = holders.get(account) else { continue };
        let has_key = members.get(holder).is_some_and(|keys| keys.contains(account));
        if let Some(load) = loads.get_mut(holder).filter(|load| has_key && **load < share) {
            *load += 1;
            assigned.insert(*account, holder.clone());
        }
    }
    for account in &accounts {
        if assigned.contains_key(account) {
            continue;
        }
        let able = members.iter().filter(|(_, keys)| keys.contains(account)).map(|(daemon, _)| daemon);
        if let Some(daemon) = able.min_by_key(|daemon| loads.get(daemon).copied().unwrap_or_default()) {
            *loads.entry(daemon).or_default() += 1;
            assigned.insert(*account, daemon.clone());
        }
    }
    let holder = holders.get(&WEBHOOKS).filter(|holder| members.contains_key(*holder));
    if let Some(daemon) = holder.or(members.keys().next()).filter(|_| has_webhooks) {
        assigned.insert(WEBHOOKS, daemon.clone());
    }
    assigned
}

#[cfg(test)]
mod tests {
    use super::*;

    fn daemon(name: &str) -> DaemonId {
        DaemonId(name.into())
    }

    fn account(byte: u8) -> Address {
        Address::repeat_byte(byte)
    }

    fn members(keys: &[(&str, &[u8])]) -> BTreeMap<DaemonId, BTreeSet<Address>> {
        let member =
            |(name, keys): &(&str, &[u8])| (daemon(name), keys.iter().copied().map(account).collect());
        keys.iter().map(member).collect()
    }

    fn held(holders: &[(u8, &str)]) -> BTreeMap<Address, DaemonId> {
        holders.iter().map(|(byte, name)| (account(*byte), daemon(name))).collect()
    }

    #[test]
    fn accounts_are_shared_alike_and_move_no_more_than_they_must_and_webhooks_are_no_share() {
        const ALL: &[u8] = &[1, 2, 3, 4, 5, 6];
        let one = assign(&members(&[("a", ALL)]), &BTreeMap::new());
        assert_eq!(one, held(&[(1, "a"), (2, "a"), (3, "a"), (4, "a"), (5, "a"), (6, "a")]));
        let two = assign(&members(&[("a", ALL), ("b", ALL)]), &one);
        assert_eq!(two, held(&[(1, "a"), (2, "a"), (3, "a"), (4, "b"), (5, "b"), (6, "b")]));
        let three = assign(&members(&[("a", ALL), ("b", ALL), ("c", ALL)]), &two);
        assert_eq!(three, held(&[(1, "a"), (2, "a"), (3, "c"), (4, "b"), (5, "b"), (6, "c")]));
        assert_eq!(assign(&members(&[("a", ALL), ("b", ALL), ("c", ALL)]), &three), three, "nothing moves");
        let after = assign(&members(&[("a", ALL), ("c", ALL)]), &three);
        assert_eq!(after, held(&[(1, "a"), (2, "a"), (3, "c"), (4, "a"), (5, "c"), (6, "c")]));
        let mut members = members(&[("a", &[1]), ("b", &[1])]);
        for accounts in members.values_mut() {
            accounts.insert(WEBHOOKS);
        }
        let mut both = held(&[(1, "a")]);
        both.insert(WEBHOOKS, daemon("a"));
        assert_eq!(assign(&members, &both), both, "nothing moves");
        members.remove(&daemon("a"));
        assert_eq!(assign(&members, &both)[&WEBHOOKS], daemon("b"));
    }

    #[test]
    fn a_daemon_gets_only_accounts_it_has_the_key_of_and_there_may_be_more_daemons_than_accounts() {
        let owners = members(&[("a", &[1, 2, 3, 4]), ("b", &[4])]);
        let all_of_a = held(&[(1, "a"), (2, "a"), (3, "a"), (4, "a")]);
        assert_eq!(assign(&owners, &held(&[(4, "a")])), all_of_a, "within its share");
        assert_eq!(assign(&owners, &held(&[(1, "b")]))[&account(1)], daemon("a"), "the key was taken out");
        let more = members(&[("a", &[1]), ("b", &[1]), ("c", &[1])]);
        assert_eq!(assign(&more, &held(&[(1, "b")])), held(&[(1, "b")]));
    }
}
