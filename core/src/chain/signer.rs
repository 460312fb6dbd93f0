//! What an account with code says of a signature that is no request's: a liable wallet's acceptance.

use alloy_primitives::{Address, B256, Bytes, U256};

use super::{
    Query,
    account_lens::{self, SignerCode},
    error::QueryError,
    view::{Halt, View},
};
use crate::eth::as_of::BlockId;

/// The most gas that the code gets.
const SIGNATURE_GAS: u64 = 100_000;

/// Asks an account for its opinion of a signature at the verdict's block, and whether it has code at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignerQuery {
    /// The account.
    pub account: Address,
    /// The hash that it has to have signed.
    pub hash: B256,
    /// The signature.
    pub signature: Bytes,
    /// The block of the verdict.
    pub block: u64,
}

impl SignerQuery {
    /// The liable wallet.
    pub const fn account(&self) -> Address {
        self.account
    }
}

impl Query for SignerQuery {
    type Output = SignerCode;
    type Error = QueryError;

    fn resolve(&self, view: &View) -> Result<SignerCode, Halt> {
        let signed = Some((self.hash, &self.signature));
        account_lens::signer_code(view, self.account, signed, U256::from(SIGNATURE_GAS))
    }

    fn block(&self) -> Option<BlockId> {
        Some(BlockId::Number(self.block))
    }

    fn is_one_round(&self) -> bool {
        true
    }
}
