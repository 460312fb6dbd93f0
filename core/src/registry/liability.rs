//! The basis of a wallet's liability for an agent, in one word.

use alloy_primitives::{Address, U256};
use serde::{Deserialize, Serialize};

use crate::{
    eth::{json, timestamp::Timestamp},
    registry::agent::Agent,
};

/// Seconds for which an event by the liable wallet counts: 90 days.
pub const ATTESTED_SECONDS: u64 = 90 * 86_400;

/// The basis of a wallet's liability for an agent: the first of these that holds at the answer's block.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Basis {
    /// The wallet signed an acceptance of this registration that is valid now.
    Accepted,
    /// The wallet sent or signed the registration: it is the creator.
    Registered,
    /// The wallet attested for the agent, or reported its revenue, in the last 90 days.
    Attested,
    /// The wallet is known to have done none of these.
    Named,
    /// The wallet is not the creator, and the agent's events are not all known.
    Unknown,
}

impl Basis {
    /// Returns the word in answers.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the basis with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        use strum::VariantArray as _;
        Self::VARIANTS.iter().copied().find(|basis| basis.name() == name)
    }
}

/// The relation of an agent to its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ParentBasis {
    /// The agent's creator is the parent's creator, agent wallet or liable wallet.
    Registered,
    /// The agent's creator is none of the parent's wallets.
    Named,
    /// The parent's record is not at hand.
    Unknown,
}

impl ParentBasis {
    /// Returns the basis by the agent's creator and its parent's creator, own and liable wallet, if known.
    #[must_use]
    pub fn of(creator: Address, parent: Option<[Address; 3]>) -> Self {
        match parent {
            None => Self::Unknown,
            Some(wallets) if wallets.contains(&creator) => Self::Registered,
            Some(_) => Self::Named,
        }
    }
}

/// The liable wallet of an agent, and the basis of its liability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Liability {
    /// The liable wallet.
    #[serde(with = "json::Checksummed")]
    pub wallet: Address,
    /// The basis of its liability.
    pub basis: Basis,
    /// Time at which it last attested or reported revenue; present only for the basis `attested`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attested_at: Option<Timestamp>,
    /// The agent's relation to its parent; absent for a root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_basis: Option<ParentBasis>,
}

/// The members of a record that an acceptance pins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinnedRecord {
    /// The agent's id.
    pub agent_id: U256,
    /// The wallet that registered it.
    pub creator: Address,
    /// The agent's own wallet.
    pub agent_wallet: Address,
    /// The liable wallet.
    pub haftungsperson: Address,
    /// Time of registration, in unix seconds.
    pub registered_at: u64,
}

/// Knowledge of the events by an agent's liable wallet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalletEvents {
    /// The block time of its last attestation or report of revenue that was seen.
    pub last: Option<u64>,
    /// True if all of the agent's events are known: one endpoint listed its registration and, without a gap
    /// from there to the answer's block, its later events. A mere lack of events proves nothing.
    pub is_complete: bool,
}

impl Liability {
    /// Returns the liability of an agent by its record and the events of its liable wallet at a block with
    /// this time. `accepted` says that an acceptance holds.
    #[must_use]
    pub fn of(agent: &Agent, accepted: bool, events: WalletEvents, block_time: u64) -> Self {
        let record = Self::of_wallets(agent.creator, agent.haftungsperson, parent_basis(agent, None));
        if accepted {
            return Self { basis: Basis::Accepted, ..record };
        }
        record.with_events(events, block_time)
    }

    /// Returns the liability by the wallets of a record alone.
    pub(crate) fn of_wallets(creator: Address, wallet: Address, parent_basis: Option<ParentBasis>) -> Self {
        let basis = if creator == wallet { Basis::Registered } else { Basis::Unknown };
        Self { wallet, basis, attested_at: None, parent_basis }
    }

    /// Adds the known events by the liable wallet at a block with this time. A basis that the record proves
    /// stays.
    #[must_use]
    pub(crate) fn with_events(self, events: WalletEvents, block_time: u64) -> Self {
        let recent = events.last.filter(|last| block_time.saturating_sub(*last) <= ATTESTED_SECONDS);
        let (basis, attested_at) = match recent {
            _ if self.basis != Basis::Unknown => return self,
            Some(last) => (Basis::Attested, Some(Timestamp::from_seconds(last))),
            None if events.is_complete => (Basis::Named, None),
            None => (Basis::Unknown, None),
        };
        Self { basis, attested_at, ..self }
    }

    /// Returns the liability of an agent by its record alone, which the registry's storage proves.
    #[must_use]
    pub fn of_record(agent: &Agent) -> Self {
        Self::of(agent, false, WalletEvents::default(), 0)
    }

    /// Reduces the liability to the part that evidence proves: without events and the agent's parent.
    pub(crate) fn as_proved(self) -> Self {
        let is_registered = self.basis == Basis::Registered;
        let basis = if is_registered { Basis::Registered } else { Basis::Unknown };
        Self { basis, attested_at: None, parent_basis: None, ..self }
    }
}

/// Returns the relation of an agent to its parent, by both records: `None` for a root,
/// [`ParentBasis::Unknown`] without the parent's record.
#[must_use]
pub fn parent_basis(agent: &Agent, parent: Option<&Agent>) -> Option<ParentBasis> {
    if agent.parent_agent_id.0.is_zero() {
        return None;
    }
    let wallets = parent.map(|parent| [parent.creator, parent.agent_wallet, parent.haftungsperson]);
    Some(ParentBasis::of(agent.creator, wallets))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::fixture;

    const NOW: u64 = 1_800_000_000;

    #[test]
    fn the_first_basis_that_holds_is_told_and_named_never_from_a_lack_of_data() {
        let (own, other) = (Address::repeat_byte(1), Address::repeat_byte(2));
        let seen = |last, is_complete| WalletEvents { last, is_complete };
        for (creator, accepted, events, expected) in [
            (own, true, seen(Some(NOW), true), Basis::Accepted),
            (own, false, seen(None, false), Basis::Registered),
            (own, false, seen(Some(NOW), true), Basis::Registered),
            (other, true, seen(None, false), Basis::Accepted),
            (other, false, seen(Some(NOW - ATTESTED_SECONDS), false), Basis::Attested),
            (other, false, seen(Some(NOW - ATTESTED_SECONDS - 1), true), Basis::Named),
            (other, false, seen(Some(NOW - ATTESTED_SECONDS - 1), false), Basis::Unknown),
            (other, false, seen(None, true), Basis::Named),
            (other, false, seen(None, false), Basis::Unknown),
        ] {
            let agent = Agent { creator, haftungsperson: own, ..fixture::agent(8) };
            let liability = Liability::of(&agent, accepted, events, NOW);
            assert_eq!((liability.wallet, liability.basis), (own, expected), "{events:?}");
            let attested = events.last.filter(|_| expected == Basis::Attested).map(Timestamp::from_seconds);
            assert_eq!(liability.attested_at, attested, "{events:?}");
            assert_eq!(Basis::from_name(expected.name()), Some(expected));
        }
    }

    #[test]
    fn a_child_is_registered_by_its_parents_people_or_named() {
        let wallet = Address::repeat_byte;
        let [creator, agent_wallet, haftungsperson] = [1, 2, 3].map(wallet);
        let parent = Agent { creator, agent_wallet, haftungsperson, ..fixture::agent(8) };
        for (creator, expected) in [
            (1, ParentBasis::Registered),
            (2, ParentBasis::Registered),
            (3, ParentBasis::Registered),
            (4, ParentBasis::Named),
        ] {
            let child = Agent { creator: wallet(creator), parent_agent_id: 7.into(), ..fixture::agent(8) };
            assert_eq!(parent_basis(&child, Some(&parent)), Some(expected));
            assert_eq!(parent_basis(&child, None), Some(ParentBasis::Unknown));
            assert_eq!(parent_basis(&Agent { parent_agent_id: 0.into(), ..child }, Some(&parent)), None);
        }
    }
}
