//! Shares of a resource by client: connections, and places to wait. One customer may be routed a whole
//! network of addresses, so each network has a share as well, [`OF_NETWORK`] times a client's.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

use crate::budget::share::site;

/// A network's share, as a multiple of a client's.
const OF_NETWORK: usize = 4;

/// Units that clients hold, each client at most its share.
#[derive(Debug)]
pub(super) struct ClientShares {
    limit: usize,
    open: Mutex<HashMap<ShareHolder, usize>>,
}

/// A client, an IPv4 address or an IPv6 /64, or the network around it, an IPv4 /24 or an IPv6 /48.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ShareHolder {
    Client(IpAddr),
    Network(IpAddr),
}

impl ShareHolder {
    fn of(client: IpAddr) -> [Self; 2] {
        [Self::Client(client), Self::Network(site(client.to_canonical()))]
    }
}

/// One unit of a client's share, given back when dropped.
#[derive(Debug)]
pub(super) struct ClientShare {
    shares: Arc<ClientShares>,
    client: IpAddr,
}

impl ClientShares {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, open: Mutex::default() }
    }

    /// Takes one more unit for `client`, unless its share or its network's is used up.
    pub(super) fn take(self: &Arc<Self>, client: IpAddr) -> Option<ClientShare> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        for (holder, times) in ShareHolder::of(client).into_iter().zip([1, OF_NETWORK]) {
            if open.get(&holder).is_some_and(|count| *count >= self.limit.saturating_mul(times)) {
                return None;
            }
        }
        for holder in ShareHolder::of(client) {
            let count = open.entry(holder).or_default();
            *count = count.saturating_add(1);
        }
        Some(ClientShare { shares: Arc::clone(self), client })
    }
}

impl Drop for ClientShare {
    fn drop(&mut self) {
        let mut open = self.shares.open.lock().unwrap_or_else(PoisonError::into_inner);
        for holder in ShareHolder::of(self.client) {
            if let Some(count) = open.get_mut(&holder) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    open.remove(&holder);
                }
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

    #[test]
    fn the_clients_of_a_network_share_four_times_a_clients_share() {
        let shares = Arc::new(ClientShares::new(2));
        let take = |client: String| shares.take(client.parse().unwrap());
        let mut held: Vec<_> = (0..16).filter_map(|index| take(format!("2001:db8:1:{index:x}::"))).collect();
        assert_eq!(held.len(), 8);
        held.extend((0..16).filter_map(|index| take(format!("192.0.2.{index}"))));
        assert_eq!(held.len(), 16);
        let others = (0..16).filter_map(|index| take(format!("2001:db8:{:x}::", index + 2)));
        assert_eq!(others.count(), 16, "networks of others");
        held.truncate(1);
        assert!(take("2001:db8:1:ff::".to_owned()).is_some());
    }
}
