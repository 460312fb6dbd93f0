//! Shares of the daily budget: no signer, no client and no network can spend all of it.
//!
//! A party's share covers what it was charged in the window and what it has reserved. New signers cost
//! nothing, nor do new addresses in an IPv6 site, hence three kinds of party: the signer, the client (an IPv4
//! address or an IPv6 /64) and its network (an IPv4 /24 or an IPv6 /48, the smallest blocks routed to one
//! customer). Networks cost little as well, so all requests without an API key are one more party. A party
//! that uses nothing yet is always allowed one relay, whatever its share.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use alloy::primitives::Address;
use strum::EnumDiscriminants;

/// A party that spends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumDiscriminants)]
#[strum_discriminants(name(PartyKind), doc = "A kind of party.")]
pub enum Party {
    /// `request.from`.
    Signer(Address),
    /// All requests without an API key.
    WithoutKey,
    /// An IPv4 address or an IPv6 /64.
    Client(IpAddr),
    /// An IPv4 /24 or an IPv6 /48.
    Network(IpAddr),
}

impl Party {
    /// Returns the parties charged for a request: its signer, and without an API key the client, its network
    /// and [`Party::WithoutKey`].
    pub fn of(signer: Address, client: Option<IpAddr>) -> impl Iterator<Item = Self> {
        let client = client.map(|client| client.to_canonical());
        let from = client
            .into_iter()
            .flat_map(|client| [Self::WithoutKey, Self::Client(client), Self::Network(site(client))]);
        std::iter::once(Self::Signer(signer)).chain(from)
    }
}

/// Returns the network around an address: an IPv4 /24 or an IPv6 /48.
pub(crate) const fn site(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, _] = address.octets();
            IpAddr::V4(Ipv4Addr::new(a, b, c, 0))
        }
        IpAddr::V6(address) => {
            let [a, b, c, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0))
        }
    }
}

/// Percent of the daily budget that one party of each kind may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    /// A signer's share.
    pub signer: u8,
    /// The share of all requests without an API key.
    pub without_key: u8,
    /// A client's share.
    pub client: u8,
    /// A network's share.
    pub network: u8,
}

/// The limits of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// The limit of all parties together, wei.
    pub limit_wei: u128,
    /// The limits of one party.
    pub shares: Shares,
}

impl Allowance {
    /// Returns the limit of one party of a kind, wei.
    pub const fn of(&self, kind: PartyKind) -> u128 {
        let percent = match kind {
            PartyKind::Signer => self.shares.signer,
            PartyKind::WithoutKey => self.shares.without_key,
            PartyKind::Client => self.shares.client,
            PartyKind::Network => self.shares.network,
        };
        if percent >= 100 {
            return self.limit_wei;
        }
        // Divided first where the product would overflow.
        match self.limit_wei.checked_mul(percent as u128) {
            Some(product) => product / 100,
            None => (self.limit_wei / 100).saturating_mul(percent as u128),
        }
    }
}

/// The used part of a limit, wei.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BudgetUsage {
    /// Paid in this window.
    pub settled_wei: u128,
    /// Reserved by relays in flight.
    pub reserved_wei: u128,
}

/// The reason why nothing may be reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denial {
    /// Spent until the window ends: the whole budget, or one party's share.
    Spent(Option<PartyKind>),
    /// Spent so far, of the whole budget or one party's share, that only a cheaper relay fits.
    TooDear(Option<PartyKind>),
    /// Reserved by relays in flight: of the whole budget, or of one party's share.
    Reserved(Option<PartyKind>),
}

/// Checks that `wei` may be reserved beside `total` and each party's use, with `no_op_wei` of the budget
/// left. The cheapest relay costs `least_wei` at the same fees.
///
/// # Errors
/// The reason for the denial; spent gas comes before reserved gas.
pub fn check(
    allowance: &Allowance,
    wei: u128,
    least_wei: u128,
    no_op_wei: u128,
    total: BudgetUsage,
    parties: &[(PartyKind, BudgetUsage)],
) -> Result<(), Denial> {
    let shares = parties
        .iter()
        // A first relay may cost more than a share.
        .filter(|(_, usage)| *usage != BudgetUsage::default())
        .map(|(kind, usage)| (Some(*kind), allowance.of(*kind), *usage));
    let all = (None, allowance.limit_wei.saturating_sub(no_op_wei), total);
    let all: Vec<_> = std::iter::once(all).chain(shares).collect();
    for (party, limit_wei, usage) in &all {
        let fits = |wei: u128| usage.settled_wei.saturating_add(wei) <= *limit_wei;
        if !fits(wei) {
            return Err(if fits(least_wei.min(wei)) && least_wei < wei {
                Denial::TooDear(*party)
            } else {
                Denial::Spent(*party)
            });
        }
    }
    for (party, limit_wei, usage) in &all {
        if usage.settled_wei.saturating_add(usage.reserved_wei).saturating_add(wei) > *limit_wei {
            return Err(Denial::Reserved(*party));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Denial::{Reserved, Spent, TooDear};
    use super::*;

    const ALLOWANCE: Allowance = Allowance {
        limit_wei: 1_000,
        shares: Shares { signer: 20, without_key: 100, client: 50, network: 75 },
    };

    fn usage(settled_wei: u128, reserved_wei: u128) -> BudgetUsage {
        BudgetUsage { settled_wei, reserved_wei }
    }

    #[test]
    fn what_is_spent_what_is_only_reserved_and_what_is_too_dear_are_told_apart() {
        let signer = Some(PartyKind::Signer);
        let (none, spent, reserved) = (usage(0, 0), usage(150, 0), usage(0, 150));
        for (wei, least, no_op, total, of_signer, expected) in [
            (100, 100, 0, usage(900, 0), None, Ok(())),
            (101, 101, 0, usage(900, 0), None, Err(Spent(None))),
            (101, 101, 0, usage(800, 100), None, Err(Reserved(None))),
            (50, 50, 0, spent, Some(spent), Ok(())),
            (51, 51, 0, spent, Some(spent), Err(Spent(signer))),
            (51, 51, 0, reserved, Some(reserved), Err(Reserved(signer))),
            // Spent comes first.
            (101, 101, 0, usage(900, 0), Some(reserved), Err(Spent(None))),
            // Too dear for what is left.
            (101, 100, 0, usage(900, 0), None, Err(TooDear(None))),
            (200, 120, 0, usage(900, 0), None, Err(Spent(None))),
            (100, 60, 0, usage(900, 0), None, Ok(())),
            // Room for a no-op is left of the whole budget.
            (50, 50, 800, spent, Some(spent), Ok(())),
            (50, 50, 801, spent, Some(spent), Err(Spent(None))),
            (50, 50, 101, usage(150, 700), Some(spent), Err(Reserved(None))),
            // A first relay may cost more than a share.
            (900, 900, 0, none, Some(none), Ok(())),
            (1_001, 1_001, 0, none, None, Err(Spent(None))),
        ] {
            let parties: Vec<_> = of_signer.into_iter().map(|used| (PartyKind::Signer, used)).collect();
            assert_eq!(check(&ALLOWANCE, wei, least, no_op, total, &parties), expected, "{wei} {total:?}");
        }
    }

    #[test]
    fn shares_of_any_budget_fit_and_neighbours_share_a_network() {
        assert_eq!(ALLOWANCE.of(PartyKind::Client), 500);
        let shares = Shares { signer: 100, ..ALLOWANCE.shares };
        let endless = Allowance { limit_wei: u128::MAX, shares };
        assert_eq!(endless.of(PartyKind::Client), u128::MAX / 100 * 50);
        assert_eq!(endless.of(PartyKind::Signer), u128::MAX);
        let network = |text: &str| Party::of(Address::ZERO, Some(text.parse().unwrap())).last().unwrap();
        assert_eq!(network("192.0.2.7"), network("192.0.2.200"));
        assert_eq!(network("::ffff:192.0.2.7"), network("192.0.2.200"));
        assert_ne!(network("192.0.2.7"), network("192.0.3.7"));
        assert_eq!(network("2001:db8:1:2::"), network("2001:db8:1:ffff::"));
        assert_ne!(network("2001:db8:1:2::"), network("2001:db8:2:2::"));
        assert_eq!(Party::of(Address::ZERO, None).count(), 1);
    }
}
