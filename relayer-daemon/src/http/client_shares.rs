//! Shares of a resource by client: connections, and places to wait.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

/// What clients hold, each at most its share.
#[derive(Debug)]
pub(super) struct ClientShares {
    limit: usize,
    open: Mutex<HashMap<IpAddr, usize>>,
}

/// One unit of a client's share, given back when dropped.
#[derive(Debug)]
pub(super) struct Share {
    shares: Arc<ClientShares>,
    client: IpAddr,
}

impl ClientShares {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, open: Mutex::default() }
    }

    /// One more unit for `client`, unless its share is used up.
    pub(super) fn take(self: &Arc<Self>, client: IpAddr) -> Option<Share> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(client).or_default();
        if *count >= self.limit {
            return None;
        }
        *count = count.saturating_add(1);
        Some(Share { shares: Arc::clone(self), client })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut open = self.shares.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.client) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                open.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_given_back() {
        let shares = Arc::new(ClientShares::new(2));
        let (alice, bob) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let held: Vec<_> = (0..2).map(|_| shares.take(alice).unwrap()).collect();
        assert!(shares.take(alice).is_none() && shares.take(bob).is_some());
        drop(held);
        assert!(shares.take(alice).is_some());
        assert!(shares.open.lock().unwrap().is_empty(), "nothing is kept of clients that are gone");
    }
}
