//! The key under which a request is counted: the network of its address, or the zone of the Worker that sent
//! it.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
};

/// The address of all requests that Workers send, whatever their account.
const WORKERS: Ipv6Addr = Ipv6Addr::new(0x2a06, 0x98c0, 0x3600, 0, 0, 0, 0, 0x103);

/// The longest name of a zone: that of a domain (RFC 1035 section 2.3.4).
const LONGEST_ZONE: usize = 253;

/// Returns the network under which an address is counted. IPv6 addresses count by /64, the smallest block a
/// site is given, so that no client has 2^64 quotas; an IPv4 address mapped into IPv6 counts as IPv4.
pub const fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(prefix(address, 64)),
        address => address,
    }
}

/// The key under which a request is counted. Its text form is a key of the shared store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ClientKey {
    /// The [`network`] of an address.
    Network(IpAddr),
    /// A /48 of IPv6, the largest block a site is given, with a limit beside those of its networks.
    Site(Ipv6Addr),
    /// The zone of a Worker. All Workers have one address.
    Zone(String),
    /// All requests without an address.
    Unknown,
}

impl ClientKey {
    /// Makes the key of a request: `address` is its `CF-Connecting-IP`, and `zone` its `CF-Worker`, the zone
    /// of the Worker that sent it. The zone is trusted only if the address is the one that all Workers share.
    pub fn of<Z: AsRef<str>>(address: Option<&str>, zone: impl FnOnce() -> Option<Z>) -> Self {
        match address.and_then(|text| text.trim().parse::<IpAddr>().ok()) {
            Some(address) if address == IpAddr::V6(WORKERS) => {
                let zone = zone().and_then(|zone| plain(zone.as_ref()));
                zone.map_or_else(|| Self::Network(network(address)), Self::Zone)
            }
            Some(address) => Self::Network(network(address)),
            None => Self::Unknown,
        }
    }

    /// Returns the site of an IPv6 network; `None` for other keys.
    pub const fn site(&self) -> Option<Self> {
        match self {
            Self::Network(IpAddr::V6(address)) => Some(Self::Site(prefix(*address, 48))),
            _ => None,
        }
    }
}

impl fmt::Display for ClientKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(IpAddr::V4(address)) => write!(f, "{address}"),
            Self::Network(IpAddr::V6(prefix)) => write!(f, "{prefix}/64"),
            Self::Site(prefix) => write!(f, "{prefix}/48"),
            Self::Zone(zone) => write!(f, "zone {zone}"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

const fn prefix(address: Ipv6Addr, bits: u32) -> Ipv6Addr {
    Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << (128 - bits)))
}

/// Returns a zone's name in lower case; `None` if it is not a domain name.
fn plain(zone: &str) -> Option<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let zone = zone.trim();
    let is_name = (1..=LONGEST_ZONE).contains(&zone.len()) && zone.bytes().all(is_plain);
    is_name.then(|| zone.to_string().to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(address: &str) -> ClientKey {
        ClientKey::of(Some(address), || None::<&str>)
    }

    fn from_a_worker(zone: Option<&str>) -> String {
        ClientKey::of(Some("2a06:98c0:3600::103"), || zone).to_string()
    }

    #[test]
    fn ipv6_counts_by_64_and_mapped_ipv4_as_ipv4() {
        assert_eq!(client("2001:db8:1:2:3:4:5:6").to_string(), "2001:db8:1:2::/64");
        assert_eq!(client("2001:db8:1:2::"), client("2001:db8:1:2:ffff:ffff:ffff:ffff"));
        assert_ne!(client("2001:db8:1:2::"), client("2001:db8:1:3::"));
        assert_eq!(client("::ffff:192.0.2.7"), client("192.0.2.7"));
        assert_eq!(client("192.0.2.7").to_string(), "192.0.2.7");
        assert_eq!(client("nonsense"), ClientKey::Unknown);
    }

    #[test]
    fn the_networks_of_a_48_are_one_site() {
        let site = client("2001:db8:1:2::1").site().unwrap();
        assert_eq!(site.to_string(), "2001:db8:1::/48");
        assert_eq!(client("2001:db8:1:ffff::9").site(), Some(site.clone()));
        assert_ne!(client("2001:db8:2::9").site(), Some(site));
        assert_eq!(client("192.0.2.7").site(), None);
        assert_eq!(client("::ffff:192.0.2.7").site(), None);
    }

    #[test]
    fn requests_of_workers_count_by_their_zone() {
        assert_eq!(from_a_worker(Some("Example.org")), "zone example.org");
        let one = ClientKey::of(Some("2a06:98c0:3600::103"), || Some("one.example"));
        assert_ne!(one, ClientKey::of(Some("2a06:98c0:3600::103"), || Some("two.example")));
        assert_eq!(one.site(), None, "all zones are in one /48");
        for no_zone in [None, Some(""), Some("a:b"), Some("a b"), Some(&*"x".repeat(254))] {
            assert_eq!(from_a_worker(no_zone), "2a06:98c0:3600::/64", "{no_zone:?}");
        }
        let claimed = ClientKey::of(Some("192.0.2.7"), || Some("one.example"));
        assert_eq!(claimed, client("192.0.2.7"), "not to be claimed");
    }
}
