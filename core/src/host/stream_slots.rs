//! Long-lived responses: how many of them an instance holds open, for one client and for all.
//!
//! After its client has gone, a stream is closed when it is next written to. Where the host is stopped before
//! that, the slot expires: a stream that lives extends its slot each time that it is written to.

/// How many streams may be open at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLimits {
    /// For one client.
    pub per_client: usize,
    /// For all clients of an instance.
    pub per_instance: usize,
}

/// The slots of an instance.
#[derive(Debug)]
pub struct StreamSlots<K> {
    open: Vec<Slot<K>>,
    last: u64,
}

#[derive(Debug)]
struct Slot<K> {
    number: u64,
    client: K,
    /// When it expires, unix milliseconds.
    until: u64,
}

impl<K> Default for StreamSlots<K> {
    fn default() -> Self {
        Self { open: Vec::new(), last: 0 }
    }
}

impl<K: PartialEq> StreamSlots<K> {
    /// Opens a slot for a client and returns its number; `None` where the client, or the instance, has as
    /// many streams as it may have. `now` and `until`, when the slot expires, are unix milliseconds.
    pub fn open(&mut self, limits: StreamLimits, client: K, now: u64, until: u64) -> Option<u64> {
        self.open.retain(|slot| now < slot.until);
        let own = self.open.iter().filter(|slot| slot.client == client).count();
        if own >= limits.per_client || self.open.len() >= limits.per_instance {
            return None;
        }
        self.last += 1;
        self.open.push(Slot { number: self.last, client, until });
        Some(self.last)
    }

    /// Postpones the expiry of a slot.
    pub fn extend(&mut self, number: u64, until: u64) {
        if let Some(slot) = self.open.iter_mut().find(|slot| slot.number == number) {
            slot.until = until;
        }
    }

    /// Closes a slot.
    pub fn close(&mut self, number: u64) {
        self.open.retain(|slot| slot.number != number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: StreamLimits = StreamLimits { per_client: 2, per_instance: 3 };

    #[test]
    fn a_client_and_an_instance_hold_as_many_streams_as_they_may_and_no_more() {
        let mut slots = StreamSlots::default();
        let first = slots.open(LIMITS, 'a', 0, 100).unwrap();
        assert!(slots.open(LIMITS, 'a', 0, 100).is_some());
        assert_eq!(slots.open(LIMITS, 'a', 0, 100), None, "the client's third");
        assert!(slots.open(LIMITS, 'b', 0, 100).is_some());
        assert_eq!(slots.open(LIMITS, 'c', 0, 100), None, "the instance's fourth");
        slots.close(first);
        assert!(slots.open(LIMITS, 'a', 0, 100).is_some());
    }

    #[test]
    fn a_lost_stream_frees_its_slot_and_a_living_one_keeps_it() {
        let mut slots = StreamSlots::default();
        let living = slots.open(LIMITS, 'a', 0, 100).unwrap();
        assert!(slots.open(LIMITS, 'a', 0, 100).is_some());
        slots.extend(living, 200);
        assert!(slots.open(LIMITS, 'a', 100, 200).is_some(), "in place of the lost one");
        assert_eq!(slots.open(LIMITS, 'a', 199, 300), None);
    }
}
