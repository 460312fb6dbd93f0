//! An account's code and its check of a signature, read through the [account lens](super::account_lens).

use alloy_primitives::{Address, B256, Bytes, U256};
use alloy_sol_types::SolCall as _;

use super::{
    account_lens::{ADDRESS, CODE},
    error::QueryError,
    view::{Halt, Query, View},
};
use crate::{
    eth::multicall::Call,
    eth::{
        abi::{IAccountLens::checkCall, IERC1271::isValidSignatureCall},
        as_of::BlockId,
    },
    liability::{Acceptance, Problem},
};

/// Maximum gas for a liable wallet's code to check the signature of an acceptance.
const SIGNATURE_GAS: u64 = 100_000;

/// Code of an account, and its check of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignerCode {
    /// The account has code; a delegation by EIP-7702 is code.
    pub has_code: bool,
    /// Its code accepts the signature (ERC-1271); false if the code was not asked.
    pub accepts: bool,
}

impl SignerCode {
    /// Checks the signature of an acceptance by this account. `scope_hash` is the Keccak-256 of the agent's
    /// operational scope. If there is code, it decides: the account's key alone never suffices.
    ///
    /// # Errors
    ///
    /// [`Problem::Signature`].
    pub fn check(self, acceptance: &Acceptance, scope_hash: B256) -> Result<(), Problem> {
        match self {
            Self { has_code: false, .. } => acceptance.check_signature_of(scope_hash),
            Self { accepts: true, .. } => Ok(()),
            Self { .. } => Err(Problem::Signature),
        }
    }
}

/// Reads whether an account has code, and whether the code accepts this hash and signature. The code gets at
/// most `gas`, and at most half of the call's gas.
pub(crate) fn signer_code(
    view: &View,
    account: Address,
    signed: Option<(B256, &Bytes)>,
    gas: U256,
) -> Result<SignerCode, Halt> {
    let data = signed.map_or_else(Bytes::new, |(hash, signature)| {
        isValidSignatureCall { hash, signature: signature.clone() }.abi_encode().into()
    });
    let data = checkCall { account, data, most: gas }.abi_encode().into();
    let check = view.read::<checkCall>(Call { target: ADDRESS, data, code: Some(CODE) })?;
    // The answer to a valid signature is the function's selector at the head of a word.
    let accepts = check.answer == B256::right_padding_from(&isValidSignatureCall::SELECTOR);
    Ok(SignerCode { has_code: !check.codeSize.is_zero(), accepts })
}

/// Query for an account's code and its check of a signature at the verdict's block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignerQuery {
    /// The account.
    pub account: Address,
    /// The hash that the account must have signed.
    pub hash: B256,
    /// The signature.
    pub signature: Bytes,
    /// The block of the verdict; `None` for the newest one.
    pub block: Option<u64>,
}

impl SignerQuery {
    /// Creates the query to the liable wallet of an acceptance. `scope_hash` is the Keccak-256 of the agent's
    /// operational scope.
    pub fn of(acceptance: &Acceptance, scope_hash: B256, block: u64) -> Self {
        Self {
            account: acceptance.haftungsperson,
            hash: acceptance.digest_of(scope_hash),
            signature: acceptance.signature.clone(),
            block: Some(block),
        }
    }
}

impl Query for SignerQuery {
    type Output = SignerCode;
    type Error = QueryError;

    fn resolve(&self, view: &View) -> Result<SignerCode, Halt> {
        let signed = Some((self.hash, &self.signature));
        signer_code(view, self.account, signed, U256::from(SIGNATURE_GAS))
    }

    fn block(&self) -> Option<BlockId> {
        self.block.map(BlockId::Number)
    }

    fn is_one_round(&self) -> bool {
        true
    }
}
