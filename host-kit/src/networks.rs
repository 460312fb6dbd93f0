//! The networks of peers that a daemon trusts.

use std::net::IpAddr;

use ipnet::IpNet;

/// Parses a network of peers, an address or CIDR notation. Its addresses are IPv4 where they can be, as
/// those of peers are in their canonical form. Errors: what is wrong with the setting of this name.
pub fn parse_network(setting: &str, text: &str) -> Result<IpNet, String> {
    let fault = |rule: &str| format!("{setting}: {text:?} {rule}");
    let network = text.trim().parse::<IpNet>().or_else(|_| text.trim().parse::<IpAddr>().map(IpNet::from));
    let network = network.map_err(|_| fault("must be an IP address or a network, such as 10.0.0.0/8"))?;
    let network = match network.addr().to_canonical() {
        IpAddr::V4(address) if matches!(network, IpNet::V6(_)) => {
            let length = network.prefix_len().checked_sub(96);
            let network = length.and_then(|length| IpNet::new(address.into(), length).ok());
            network.ok_or_else(|| fault("has IPv4 addresses and others: name each network"))?
        }
        _ => network,
    };
    match network.prefix_len() {
        0 => Err(fault("would believe every client: name the proxies' own networks")),
        _ => Ok(network.trunc()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_one_of_addresses_as_peers_have_them_and_not_the_whole_internet() {
        for (text, network) in [
            ("10.0.0.7", "10.0.0.7/32"),
            (" 10.1.2.3/8 ", "10.0.0.0/8"),
            ("::1", "::1/128"),
            ("::ffff:127.0.0.1", "127.0.0.1/32"),
            ("::ffff:127.0.0.1/128", "127.0.0.1/32"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
        ] {
            assert_eq!(parse_network("proxies", text).unwrap().to_string(), network, "{text}");
        }
        for (text, words) in [
            ("", "must be an IP address"),
            ("proxy.example", "must be an IP address"),
            ("10.0.0.0/33", "must be an IP address"),
            ("0.0.0.0/0", "every client"),
            ("::/0", "every client"),
            ("::ffff:0:0/96", "every client"),
            ("::ffff:0:0/95", "and others"),
        ] {
            let error = parse_network("proxies", text).unwrap_err();
            assert!(error.starts_with("proxies: ") && error.contains(words), "{text}: {error}");
        }
    }
}
