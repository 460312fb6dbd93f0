//! Signers of the paying account's transactions: a key in this process, AWS KMS, or a remote signer.
//!
//! A signer outside may be slow, refuse, or answer with something else than was asked for. Each signature has
//! a time limit, and is used only if it is the account's for the very transaction: else nothing is sent.

#[cfg(feature = "kms")]
mod kms;
mod remote;
mod source;

use std::{fmt, time::Duration};

use alloy::{
    consensus::{SignableTransaction as _, TxEip1559},
    eips::eip2930::AccessList,
    network::TxSignerSync as _,
    primitives::{Address, Bytes, Signature, TxKind, U256},
    signers::local::PrivateKeySigner,
};
use thiserror::Error;
use tokio::time::timeout;

pub use source::{SignerSourceError, from_env};

use self::remote::JsonRpcSigner;

/// The reason why there is no signature. Has no secret in it, and no path or query of a URL.
#[derive(Debug, Error)]
pub enum SignerError {
    /// No answer within the time limit.
    #[error("the signer did not answer within {0:?}")]
    Slow(Duration),
    /// No answer at all.
    #[error("the signer cannot be reached")]
    Unreachable,
    /// It answered that it will not sign.
    #[error("the signer refused: {0}")]
    Refused(String),
    /// Not an answer to the question.
    #[error("the signer's answer cannot be read: {0}")]
    Malformed(&'static str),
    /// It signed something else.
    #[error("the signer signed another transaction than it was asked to")]
    AnotherTransaction,
    /// It signed with another key.
    #[error("the signer signed for another address")]
    AnotherAddress,
    /// The daemon does not have the account's key.
    #[error("the daemon does not have the account's key")]
    Absent,
    /// The key cannot sign this.
    #[error(transparent)]
    Key(#[from] alloy::signers::Error),
}

/// Signs transactions of one account.
#[derive(Clone)]
pub struct TxSigner {
    address: Address,
    key: KeyBackend,
    time_limit: Duration,
}

#[derive(Clone)]
enum KeyBackend {
    Absent,
    Local(PrivateKeySigner),
    Remote(JsonRpcSigner),
    #[cfg(feature = "kms")]
    Kms(kms::KmsSigner),
}

impl fmt::Debug for TxSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TxSigner({self})")
    }
}

/// Shows the address and the location of the key.
impl fmt::Display for TxSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.key {
            KeyBackend::Absent | KeyBackend::Local(_) => write!(f, "{}", self.address),
            KeyBackend::Remote(signer) => write!(f, "{}, by the signer at {}", self.address, signer.label()),
            #[cfg(feature = "kms")]
            KeyBackend::Kms(_) => write!(f, "{}, in AWS KMS", self.address),
        }
    }
}

impl From<PrivateKeySigner> for TxSigner {
    fn from(key: PrivateKeySigner) -> Self {
        Self { address: key.address(), key: KeyBackend::Local(key), time_limit: Duration::MAX }
    }
}

impl TxSigner {
    /// Creates the signer of an account without its key: it signs nothing.
    pub const fn absent(address: Address) -> Self {
        Self { address, key: KeyBackend::Absent, time_limit: Duration::MAX }
    }

    /// Returns whether there is a key.
    pub const fn has_key(&self) -> bool {
        !matches!(self.key, KeyBackend::Absent)
    }

    /// Returns the account.
    pub const fn address(&self) -> Address {
        self.address
    }

    /// Signs a transaction.
    ///
    /// # Errors
    /// [`SignerError`]; nothing may be sent then.
    pub async fn sign(&self, transaction: &TxEip1559) -> Result<Signature, SignerError> {
        let signing = async {
            match &self.key {
                KeyBackend::Absent => Err(SignerError::Absent),
                KeyBackend::Local(key) => Ok(key.sign_transaction_sync(&mut transaction.clone())?),
                KeyBackend::Remote(signer) => signer.sign(self.address, transaction).await,
                #[cfg(feature = "kms")]
                KeyBackend::Kms(signer) => signer.sign(transaction).await,
            }
        };
        if matches!(self.key, KeyBackend::Absent | KeyBackend::Local(_)) {
            return signing.await;
        }
        let signature =
            timeout(self.time_limit, signing).await.map_err(|_| SignerError::Slow(self.time_limit))??;
        self.verified(signature, transaction)
    }

    /// Returns an outside signature as nodes take it: the account's for this transaction, with `s` in the
    /// lower half (EIP-2), which recovery alone does not check.
    fn verified(&self, signature: Signature, transaction: &TxEip1559) -> Result<Signature, SignerError> {
        let signature = signature.normalized_s();
        let signed_by = signature.recover_address_from_prehash(&transaction.signature_hash());
        if signed_by.is_ok_and(|address| address == self.address) {
            Ok(signature)
        } else {
            Err(SignerError::AnotherAddress)
        }
    }

    /// Tries the signer with a transaction that no chain takes: its nonce is the highest there is (EIP-2681).
    pub async fn try_out(&self, chain_id: u64) -> Result<(), SignerError> {
        self.sign(&self.unusable(chain_id)).await.map(drop)
    }

    fn unusable(&self, chain_id: u64) -> TxEip1559 {
        TxEip1559 {
            chain_id,
            nonce: u64::MAX,
            gas_limit: 21_000,
            max_fee_per_gas: 1,
            max_priority_fee_per_gas: 1,
            to: TxKind::Call(self.address),
            value: U256::ZERO,
            access_list: AccessList::default(),
            input: Bytes::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloy::{primitives::B256, primitives::uint, signers::SignerSync as _};

    const ORDER: U256 = uint!(0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141_U256);

    #[test]
    fn a_signature_with_high_s_is_used_with_low_s_and_one_of_another_key_is_not_used() {
        let [ours, other] =
            [7, 8].map(|byte| PrivateKeySigner::from_bytes(&B256::repeat_byte(byte)).unwrap());
        let signer = TxSigner::from(ours.clone());
        let transaction = signer.unusable(1);
        let low = ours.sign_hash_sync(&transaction.signature_hash()).unwrap();
        let high = Signature::new(low.r(), ORDER - low.s(), !low.v());
        assert_eq!(signer.verified(low, &transaction).unwrap(), low);
        assert_eq!(signer.verified(high, &transaction).unwrap(), low);
        let foreign = other.sign_hash_sync(&transaction.signature_hash()).unwrap();
        assert!(matches!(signer.verified(foreign, &transaction), Err(SignerError::AnotherAddress)));
    }
}
