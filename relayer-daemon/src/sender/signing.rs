//! Signing the account's two kinds of transaction: a call of the forwarder, and a no-op.

use alloy::{
    consensus::{SignableTransaction, TxEip1559, TxEnvelope},
    eips::eip2718::Encodable2718,
    primitives::{Address, Bytes, Signature, TxKind, U256},
};

use crate::{
    gas::{self, fees::Fees},
    signer::{SignerError, TxSigner},
    store::{SignedTransaction, TransactionPurpose},
};

/// The paying account, on one chain, for one forwarder.
#[derive(Debug, Clone)]
pub struct Wallet {
    signer: TxSigner,
    chain_id: u64,
    forwarder: Address,
    no_op_gas: u64,
}

impl Wallet {
    /// Creates a wallet for one chain and one forwarder.
    pub fn new(signer: impl Into<TxSigner>, chain_id: u64, forwarder: Address) -> Self {
        Self { signer: signer.into(), chain_id, forwarder, no_op_gas: gas::no_op_limit(0) }
    }

    /// Returns the wallet with another gas limit for no-ops.
    #[must_use]
    pub fn with_no_op_gas(self, no_op_gas: u64) -> Self {
        Self { no_op_gas, ..self }
    }

    /// Returns the most that a no-op can cost at these fees, wei.
    pub const fn no_op_wei(&self, fees: Fees) -> u128 {
        fees.worst_case(self.no_op_gas)
    }

    /// Returns the account.
    pub const fn address(&self) -> Address {
        self.signer.address()
    }

    /// Returns whether there is a key to sign with.
    pub const fn has_key(&self) -> bool {
        self.signer.has_key()
    }

    /// Tries the signer with a transaction that no chain takes.
    pub async fn try_out(&self) -> Result<(), SignerError> {
        self.signer.try_out(self.chain_id).await
    }

    /// Signs a call of the forwarder; the value is always 0.
    pub async fn relay(
        &self,
        nonce: u64,
        calldata: Bytes,
        gas_limit: u64,
        fees: Fees,
    ) -> Result<SignedTransaction, SignerError> {
        self.sign(
            self.transaction(nonce, self.forwarder, calldata, gas_limit, fees),
            TransactionPurpose::Relay,
        )
        .await
    }

    /// Signs the call of an earlier transaction again, with other fees.
    ///
    /// # Errors
    /// If the key cannot sign, or the earlier bytes cannot be decoded.
    pub async fn relay_again(
        &self,
        nonce: u64,
        earlier: &SignedTransaction,
        fees: Fees,
    ) -> Result<SignedTransaction, SignerError> {
        let calldata = earlier.calldata().map_err(alloy::signers::Error::other)?;
        self.relay(nonce, calldata, earlier.gas_limit, fees).await
    }

    /// Signs a no-op: a transfer of 0 to the own account.
    pub async fn no_op(
        &self,
        nonce: u64,
        fees: Fees,
        purpose: TransactionPurpose,
    ) -> Result<SignedTransaction, SignerError> {
        let to = self.address();
        self.sign(self.transaction(nonce, to, Bytes::new(), self.no_op_gas, fees), purpose).await
    }

    /// Returns bytes like those of a relay's transaction, to ask for its L1 fee.
    pub fn draft(&self, calldata: Bytes, gas_limit: u64, fees: Fees) -> Bytes {
        let signature = Signature::new(U256::MAX, U256::MAX, true);
        let transaction = self.transaction(u64::from(u32::MAX), self.forwarder, calldata, gas_limit, fees);
        TxEnvelope::from(transaction.into_signed(signature)).encoded_2718().into()
    }

    const fn transaction(
        &self,
        nonce: u64,
        to: Address,
        input: Bytes,
        gas_limit: u64,
        fees: Fees,
    ) -> TxEip1559 {
        TxEip1559 {
            chain_id: self.chain_id,
            nonce,
            gas_limit,
            max_fee_per_gas: fees.max_fee,
            max_priority_fee_per_gas: fees.tip,
            to: TxKind::Call(to),
            value: U256::ZERO,
            access_list: alloy::eips::eip2930::AccessList(Vec::new()),
            input,
        }
    }

    async fn sign(
        &self,
        transaction: TxEip1559,
        purpose: TransactionPurpose,
    ) -> Result<SignedTransaction, SignerError> {
        let signature = self.signer.sign(&transaction).await?;
        let fees = Fees { max_fee: transaction.max_fee_per_gas, tip: transaction.max_priority_fee_per_gas };
        let gas_limit = transaction.gas_limit;
        let envelope = TxEnvelope::from(transaction.into_signed(signature));
        Ok(SignedTransaction {
            hash: *envelope.tx_hash(),
            raw: envelope.encoded_2718().into(),
            fees,
            gas_limit,
            purpose,
        })
    }
}
