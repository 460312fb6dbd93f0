//! Spent nonces in the memory of this process.
//!
//! Memory is bounded: an entry is a hash, and a full store takes no further nonce. None is forgotten before
//! its signature has expired, nor in the [`SKEW`] seconds after that, as a request is judged by the second in
//! which it came. Only admitted requests add entries. A million of them take about 100 MB.
//!
//! A restart forgets them. Signatures that were made before the store are therefore refused, with a reason of
//! their own, and signers sign again. One gap is left: a signature by a clock ahead of this one can be
//! admitted once more in the seconds that it is ahead.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Mutex,
};

use alloy_primitives::B256;
use host_kit::native::lock;
use registry_core::gate::{Attempt, SKEW, Spending};

/// Spent nonces.
#[derive(Debug)]
pub struct Nonces {
    capacity: usize,
    /// The first unix second of signatures of which the store knows all nonces.
    began: i64,
    spent: Mutex<NonceEntries>,
}

#[derive(Debug, Default)]
struct NonceEntries {
    keys: HashSet<B256>,
    /// Keys by the last unix second at which their signature is valid.
    ends: BTreeMap<u64, Vec<B256>>,
}

impl Nonces {
    /// Makes room for `capacity` nonces of signatures made after the unix second `now`: signatures have no
    /// fractions, and one of this second may have been admitted before.
    pub fn new(capacity: usize, now: u64) -> Self {
        Self { capacity, began: now.saturating_add(1).cast_signed(), spent: Mutex::default() }
    }

    /// Spends the nonce of an attempt at the unix second `now`: of any number of calls with one nonce, a
    /// single one is [`Spending::Spent`].
    pub fn spend(&self, attempt: &Attempt, now: u64) -> Spending {
        if attempt.created < self.began {
            return Spending::SignedBeforeStart;
        }
        let key = attempt.nonce_key();
        let mut entries = lock(&self.spent);
        entries.forget_before(now.saturating_sub(SKEW));
        if entries.keys.contains(&key) {
            return Spending::Reused;
        }
        if entries.keys.len() >= self.capacity {
            return Spending::Full;
        }
        entries.keys.insert(key);
        entries.ends.entry(attempt.valid_until).or_default().push(key);
        Spending::Spent
    }

    /// Returns the result that spending the nonce of an attempt would have, as far as known.
    pub fn look_up(&self, attempt: &Attempt) -> Spending {
        if attempt.created < self.began {
            return Spending::SignedBeforeStart;
        }
        let key = attempt.nonce_key();
        let is_spent = lock(&self.spent).keys.contains(&key);
        if is_spent { Spending::Reused } else { Spending::Spent }
    }

    /// Returns whether a further nonce can be spent at the unix second `now`.
    pub fn has_room(&self, now: u64) -> bool {
        let mut entries = lock(&self.spent);
        entries.forget_before(now.saturating_sub(SKEW));
        entries.keys.len() < self.capacity
    }

    /// Returns the number of nonces that are remembered.
    pub fn count(&self) -> usize {
        lock(&self.spent).keys.len()
    }
}

impl NonceEntries {
    fn forget_before(&mut self, now: u64) {
        while let Some(first) = self.ends.first_entry().filter(|first| *first.key() < now) {
            for key in first.remove() {
                self.keys.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::tests::attempt;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn of_many_threads_with_one_nonce_a_single_one_spends_it() {
        let (nonces, spent) = (Nonces::new(10, 0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        if nonces.spend(&attempt("n", 1_000), 900) == Spending::Spent {
                            spent.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert_eq!((spent.into_inner(), nonces.count()), (1, 1));
    }

    #[test]
    fn a_full_store_refuses_and_forgets_none_before_its_end() {
        let nonces = Nonces::new(2, 0);
        assert_eq!(nonces.spend(&attempt("a", 1_000), 900), Spending::Spent);
        assert_eq!(nonces.spend(&attempt("b", 1_001), 900), Spending::Spent);
        assert_eq!(nonces.spend(&attempt("c", 1_002), 1_030), Spending::Full);
        assert_eq!(nonces.spend(&attempt("a", 1_000), 1_000), Spending::Reused, "by an earlier second");
        assert_eq!(nonces.spend(&attempt("c", 1_002), 1_031), Spending::Spent, "the first has ended");
        assert_eq!(nonces.look_up(&attempt("c", 1_002)), Spending::Reused);
        assert_eq!(nonces.look_up(&attempt("d", 1_002)), Spending::Spent);
        assert_eq!([1_031, 1_032].map(|now| nonces.has_room(now)), [false, true]);
    }

    #[test]
    fn a_signature_from_before_the_start_is_refused_and_said_to_be_one() {
        let nonces = Nonces::new(10, 950);
        // Signed at 950: before the store began in that second, or after.
        assert_eq!(nonces.spend(&attempt("a", 1_040), 960), Spending::SignedBeforeStart);
        assert_eq!(nonces.look_up(&attempt("a", 1_040)), Spending::SignedBeforeStart);
        assert_eq!(nonces.spend(&attempt("a", 1_041), 960), Spending::Spent);
    }

    #[test]
    fn nonces_of_different_accounts_are_different() {
        let nonces = Nonces::new(10, 0);
        let mut other = attempt("a", 1_000);
        other.account.chain = 2;
        assert_eq!(nonces.spend(&attempt("a", 1_000), 900), Spending::Spent);
        assert_eq!(nonces.spend(&other, 900), Spending::Spent);
    }
}
