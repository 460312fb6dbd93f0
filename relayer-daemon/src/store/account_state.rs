//! The state of a paying account, which the daemons of a fleet tell one another.

use schemars::JsonSchema;
use serde::Serialize;
use strum::{EnumString, IntoStaticStr};

/// The state of a paying account. `ready`: it gets new requests. Any other state names the reason why it gets
/// none.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema, EnumString, IntoStaticStr,
)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum AccountState {
    /// The account gets new requests.
    Ready,
    /// The account could not pay for a relay that came lately, and pays for others. Only daemons tell one
    /// another of it: to clients it is ready.
    #[schemars(skip)]
    Short,
    /// The account's oldest transaction waits for too long, its sender stalls, or it could give no nonce. It
    /// gets requests only if no account is ready.
    Stuck,
    /// The account's signer does not sign. It gets requests only if no account can sign.
    SignerFailed,
    /// The account's balance is too low. It gets no requests.
    Empty,
    /// The account has code (an EIP-7702 delegation), with which nodes keep one pending transaction. It gets
    /// no requests.
    Delegated,
    /// The operator has cordoned the account. It gets no requests, and brings to an end what it has sent.
    Cordoned,
    /// Another daemon of the fleet holds the account.
    Elsewhere,
}

impl AccountState {
    /// All states, the best one first.
    pub const ALL: [Self; 8] = [
        Self::Ready,
        Self::Short,
        Self::Stuck,
        Self::SignerFailed,
        Self::Empty,
        Self::Delegated,
        Self::Cordoned,
        Self::Elsewhere,
    ];

    /// Returns its name in JSON, in the store and in messages.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the state with this name.
    pub fn named(name: &str) -> Option<Self> {
        name.parse().ok()
    }

    /// Returns whether the account may get relays at all.
    pub const fn is_able(self) -> bool {
        matches!(self, Self::Ready | Self::Short | Self::Stuck | Self::SignerFailed)
    }
}
