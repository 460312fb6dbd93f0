//! Leases on an instance's scarce resources: open streams, bytes of replies in flight. There is a limit for
//! each holder, and one for all holders together.
//!
//! A lease is given back when its holder ends. A host may be stopped before that, so leases also expire; a
//! live holder extends its own.

/// Limits on the amounts leased at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseLimits {
    /// The most for one holder.
    pub per_holder: usize,
    /// The most for all holders of an instance together.
    pub per_instance: usize,
}

/// The leases of an instance.
#[derive(Debug)]
pub struct Leases<K> {
    open: Vec<LeaseEntry<K>>,
    last: u64,
}

#[derive(Debug)]
struct LeaseEntry<K> {
    number: u64,
    holder: K,
    amount: usize,
    /// Time of expiry, unix milliseconds.
    until: u64,
}

impl<K> Default for Leases<K> {
    fn default() -> Self {
        Self { open: Vec::new(), last: 0 }
    }
}

impl<K: PartialEq> Leases<K> {
    /// Leases an amount, and returns the lease's number; `None` if it would exceed the holder's or the
    /// instance's limit. An amount above a limit counts as all of it, and so fits only when the others have
    /// ended. `now` and `until`, the time of expiry, are unix milliseconds.
    pub fn open(
        &mut self,
        limits: LeaseLimits,
        holder: K,
        amount: usize,
        now: u64,
        until: u64,
    ) -> Option<u64> {
        self.open.retain(|lease| now < lease.until);
        let sum = |is_counted: &dyn Fn(&LeaseEntry<K>) -> bool| {
            self.open.iter().filter(|lease| is_counted(lease)).map(|lease| lease.amount).sum::<usize>()
        };
        let fits = |used: usize, limit: usize| used.saturating_add(amount.min(limit)) <= limit && limit > 0;
        if !fits(sum(&|lease| lease.holder == holder), limits.per_holder)
            || !fits(sum(&|_| true), limits.per_instance)
        {
            return None;
        }
        self.last += 1;
        let amount = amount.min(limits.per_instance);
        self.open.push(LeaseEntry { number: self.last, holder, amount, until });
        Some(self.last)
    }

    /// Postpones the expiry of a lease.
    pub fn extend(&mut self, number: u64, until: u64) {
        if let Some(lease) = self.open.iter_mut().find(|lease| lease.number == number) {
            lease.until = until;
        }
    }

    /// Gives a lease back.
    pub fn close(&mut self, number: u64) {
        self.open.retain(|lease| lease.number != number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: LeaseLimits = LeaseLimits { per_holder: 2, per_instance: 3 };

    #[test]
    fn a_holder_and_an_instance_lease_as_much_as_they_may_and_no_more() {
        let mut leases = Leases::default();
        let first = leases.open(LIMITS, 'a', 1, 0, 100).unwrap();
        assert!(leases.open(LIMITS, 'a', 1, 0, 100).is_some());
        assert_eq!(leases.open(LIMITS, 'a', 1, 0, 100), None, "the holder's third");
        assert_eq!(leases.open(LIMITS, 'b', 2, 0, 100), None, "the instance's fourth");
        assert!(leases.open(LIMITS, 'b', 1, 0, 100).is_some());
        assert_eq!(leases.open(LIMITS, 'c', 1, 0, 100), None, "the instance's fourth");
        leases.close(first);
        assert!(leases.open(LIMITS, 'a', 1, 0, 100).is_some());
        let limits = LeaseLimits { per_holder: 9, per_instance: 4 };
        let mut leases = Leases::default();
        let all = leases.open(limits, 'a', 7, 0, 100).unwrap();
        assert_eq!(leases.open(limits, 'b', 1, 0, 100), None, "what is larger than all has all");
        leases.close(all);
        assert!(leases.open(limits, 'b', 1, 0, 100).is_some());
        assert_eq!(leases.open(LeaseLimits { per_holder: 0, ..limits }, 'c', 1, 0, 100), None);
    }

    #[test]
    fn a_lost_holder_loses_its_lease_and_a_living_one_keeps_it() {
        let mut leases = Leases::default();
        let living = leases.open(LIMITS, 'a', 1, 0, 100).unwrap();
        assert!(leases.open(LIMITS, 'a', 1, 0, 100).is_some());
        leases.extend(living, 200);
        assert!(leases.open(LIMITS, 'a', 1, 100, 200).is_some(), "in place of the lost one");
        assert_eq!(leases.open(LIMITS, 'a', 1, 199, 300), None);
    }
}
