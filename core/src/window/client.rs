//! Whom a request counts as: an address, or the network it is of.

use alloc::{format, string::String};
use core::net::{IpAddr, Ipv6Addr};

/// The network a client counts as. IPv6 clients count by /64, the smallest block a site is given, so that
/// nobody gets 2^64 quotas; an IPv4 address mapped into IPv6 counts as itself.
pub const fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64))),
        address => address,
    }
}

/// The [`network`] a client counts as, as text.
pub fn client_key(address: IpAddr) -> String {
    match network(address) {
        IpAddr::V4(address) => format!("{address}"),
        IpAddr::V6(prefix) => format!("{prefix}/64"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv6_counts_by_64_and_mapped_ipv4_as_ipv4() {
        let key = |text: &str| client_key(text.parse().unwrap());
        assert_eq!(key("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
        assert_eq!(key("2001:db8:1:2::"), key("2001:db8:1:2:ffff:ffff:ffff:ffff"));
        assert_ne!(key("2001:db8:1:2::"), key("2001:db8:1:3::"));
        assert_eq!(key("::ffff:192.0.2.7"), key("192.0.2.7"));
    }
}
