//! A request's client address: the socket's peer, or what a trusted proxy names in `X-Forwarded-For`.
//!
//! Any client can write that header, so it counts only from peers inside `TRUSTED_PROXIES`. Proxies append
//! the peer they see at the right end: the first entry from the right that is no trusted proxy is the client,
//! and what the client wrote itself stands further left. With `TRUSTED_PROXY_HOPS` the entry's position
//! counts instead, for chains with outer proxies without fixed addresses. A header without a usable entry
//! counts for the peer: its clients then share one limit, and none gets around it.

use std::{net::IpAddr, net::SocketAddr, num::NonZeroUsize};

use ipnet::IpNet;
use registry_core::host::rate_limit::network;
use warp::http::HeaderMap;

/// The trusted proxies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustedProxies {
    networks: Vec<IpNet>,
    hops: Option<NonZeroUsize>,
}

impl TrustedProxies {
    /// Trusts `networks`; takes the `hops`-th entry from the right, or with 0 the first outside them.
    pub fn new(networks: Vec<IpNet>, hops: usize) -> Self {
        Self { networks, hops: NonZeroUsize::new(hops) }
    }

    /// Returns the networks.
    pub fn networks(&self) -> &[IpNet] {
        &self.networks
    }

    /// Returns whether an address is a trusted proxy's.
    pub fn trusts(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.networks.iter().any(|network| network.contains(&address))
    }

    /// Returns the client behind a peer, as limits count it: an IPv4 address or an IPv6 /64.
    pub fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let named = if self.trusts(peer) { self.named(headers) } else { None };
        network(named.unwrap_or(peer))
    }

    fn named(&self, headers: &HeaderMap) -> Option<IpAddr> {
        let values = headers.get_all("x-forwarded-for").iter();
        // Whatever bytes a client has written, the proxy's own entries stand behind them.
        let values: Vec<_> = values.map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
        let entries = values.iter().flat_map(|value| value.split(','));
        let mut entries = entries.rev().map(|entry| address(entry.trim()));
        match self.hops {
            Some(hops) => entries.nth(hops.get().saturating_sub(1))?,
            // A malformed entry ends the chain of trust.
            None => entries.find(|entry| entry.is_none_or(|address| !self.trusts(address)))?,
        }
    }
}

/// Parses an entry of `X-Forwarded-For`: an address, with or without a port.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    bare.parse().ok().or_else(|| text.parse().ok().map(|socket: SocketAddr| socket.ip()))
}

/// Parses an entry of `TRUSTED_PROXIES`: an address or a network in CIDR notation.
///
/// # Errors
/// The reason why it is refused.
pub(crate) fn parse_network(text: &str) -> Result<IpNet, String> {
    host_kit::parse_network("TRUSTED_PROXIES", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROXY: &str = "10.0.0.7";
    /// The address that a client claims or has.
    const CLIENT: &str = "203.0.113.9";

    fn client(networks: &[&str], hops: usize, peer: &str, forwarded_for: &[&str]) -> String {
        let networks = networks.iter().map(|text| parse_network(text).unwrap()).collect();
        let values =
            forwarded_for.iter().map(|text| ("x-forwarded-for".parse().unwrap(), text.parse().unwrap()));
        TrustedProxies::new(networks, hops).client(peer.parse().unwrap(), &values.collect()).to_string()
    }

    #[test]
    fn only_a_trusted_peer_is_believed_and_ipv6_counts_by_64_and_mapped_ipv4_as_ipv4() {
        for hops in [0, 1] {
            for peer in [PROXY, "fd00::7", "::ffff:10.0.0.7"] {
                for network in ["10.0.0.0/8", "::ffff:10.0.0.0/104"] {
                    assert_eq!(client(&[network, "fd00::/8"], hops, peer, &[CLIENT]), CLIENT);
                }
            }
        }
        let trusted: [&[&str]; 2] = [&["10.0.0.0/8", "fd00::/8"], &[]];
        for (networks, peer, expected) in [
            (trusted[0], "192.0.2.1", "192.0.2.1"),
            (trusted[1], PROXY, PROXY),
            (trusted[1], "2001:db8:1:2:aaaa::1", "2001:db8:1:2::"),
            (trusted[1], "2001:db8:1:2:bbbb::2", "2001:db8:1:2::"),
            (trusted[1], "2001:db8:1:3::1", "2001:db8:1:3::"),
            (trusted[1], "::ffff:192.0.2.1", "192.0.2.1"),
        ] {
            for hops in [0, 1, 2] {
                assert_eq!(client(networks, hops, peer, &[CLIENT]), expected, "{hops}");
            }
        }
    }

    #[test]
    fn the_client_is_the_last_entry_that_is_no_proxy_or_counted_from_the_right_or_else_the_peer() {
        let two = ["6.6.6.6, 203.0.113.9", "198.51.100.7"];
        for (hops, headers, expected) in [
            (0, &["6.6.6.6, 203.0.113.9"][..], CLIENT),
            (0, &["6.6.6.6, 203.0.113.9, 192.0.2.1"], CLIENT),
            (0, &["10.0.0.1, 203.0.113.9", "192.0.2.1, 10.9.9.9"], CLIENT),
            (0, &["nonsense, 203.0.113.9"], CLIENT),
            (0, &["\u{ff}, 203.0.113.9"], CLIENT),
            (0, &["203.0.113.9, \u{ff}"], PROXY),
            (0, &["203.0.113.9:4711"], CLIENT),
            (0, &["[2001:db8:1:2:3::4]:80"], "2001:db8:1:2::"),
            (0, &["[2001:db8:1:2:3::4]"], "2001:db8:1:2::"),
            (0, &[], PROXY),
            (0, &[""], PROXY),
            (0, &["nonsense"], PROXY),
            (0, &["203.0.113.9, nonsense"], PROXY),
            (0, &["10.0.0.1, 10.0.0.2"], PROXY),
            (1, &two, "198.51.100.7"),
            (2, &two, CLIENT),
            (3, &two, "6.6.6.6"),
            (4, &two, PROXY),
            (2, &[], PROXY),
            (2, &[CLIENT], PROXY),
            (2, &["nonsense, 203.0.113.9"], PROXY),
            (2, &[",1.2.3.4"], PROXY),
        ] {
            let found = client(&["10.0.0.0/8", "192.0.2.1"], hops, PROXY, headers);
            assert_eq!(found, expected, "{hops} {headers:?}");
        }
    }
}
