//! The query for a request's account: its code, its answer to ERC-1271, and the registry's verdict, all of
//! one block and in one round trip.

use alloy_primitives::{Address, B256, Bytes, U256};

use super::candidate::{AccountState, Attempt};
use crate::{
    chain::{Halt, Query, QueryError, View, reader::Registry, signer_code},
    eth::timestamp::Timestamp,
    registry::kya::Kya,
};

/// A query for an account, and for the verdict on it where a registry is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountQuery {
    /// The account.
    pub account: Address,
    /// The signed hash and the signature. `None` asks only whether there is code.
    pub signed: Option<(B256, Bytes)>,
    /// The registry of the wanted verdict, if any.
    pub registry: Option<Address>,
    /// The host's clock, by which compliance is judged.
    pub now: Timestamp,
}

/// The chain's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountFacts {
    /// The account.
    pub state: AccountState,
    /// The verdict, where a registry was named.
    pub kya: Option<Kya>,
}

impl AccountQuery {
    /// Asks about the account of an attempt.
    pub fn of(attempt: &Attempt, registry: Option<Address>, now: Timestamp) -> Self {
        let signed = attempt.asks_code().then(|| (attempt.hash, attempt.signature.clone().into()));
        Self { account: attempt.account.address, signed, registry, now }
    }
}

impl Query for AccountQuery {
    type Output = AccountFacts;
    type Error = QueryError;

    fn resolve(&self, view: &View) -> Result<AccountFacts, Halt> {
        let signed = self.signed.as_ref().map(|(hash, signature)| (*hash, signature));
        let code = signer_code(view, self.account, signed, U256::MAX);
        let registry = self.registry.map(|address| {
            let registry = Registry { view, address };
            (registry.grace_period(), registry.agent_of(self.account), view.as_of())
        });
        let code = code?;
        let kya = match registry {
            Some((grace, agent, as_of)) => Some(Kya::of(self.account, agent?, grace?, self.now, as_of?)),
            None => None,
        };
        let accepts = code.accepts;
        let state = if code.has_code { AccountState::Code { accepts } } else { AccountState::NoCode };
        Ok(AccountFacts { state, kya })
    }

    fn is_one_round(&self) -> bool {
        true
    }
}
