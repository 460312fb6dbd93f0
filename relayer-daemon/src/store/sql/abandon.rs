//! Taking the relays of an account whose key is gone to other accounts.

use alloy::primitives::Address;

use super::{Store, engine::values};
use crate::store::StoreError;

impl Store {
    /// Gives up an account's open nonces, so that other accounts carry their relays: the forwarder's nonce
    /// makes that safe, and the worst is one paid revert. Returns how many nonces.
    ///
    /// # Errors
    /// [`StoreError::HeldElsewhere`] while a daemon of a fleet holds the account.
    pub fn abandon(&self, account: Address) -> Result<usize, StoreError> {
        let is_shared = self.is_shared();
        if is_shared && self.fleet()?.holders.contains_key(&account) {
            return Err(StoreError::HeldElsewhere);
        }
        self.write(move |db| {
            if is_shared {
                db.execute(
                    "UPDATE relays SET holder = NULL WHERE state = 'pending' AND id IN
                         (SELECT relay FROM nonces WHERE account = ?1 AND state = 'open')",
                    values![account.0.0],
                )?;
            }
            let lost = "UPDATE nonces SET state = 'lost' WHERE account = ?1 AND state = 'open'";
            db.execute(lost, values![account.0.0])
        })
    }
}
