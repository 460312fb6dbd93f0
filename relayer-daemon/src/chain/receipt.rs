//! Receipts with the fields that the daemon needs.

use alloy::{
    primitives::{Address, B256, U64, U256},
    rpc::types::Log,
};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{rpc::block_number, wei};
use crate::store::BlockId;

/// The receipt of a mined transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// The transaction.
    pub hash: B256,
    /// Its block.
    pub block: BlockId,
    /// True if the outer transaction succeeded. Says nothing about the inner call.
    pub status: bool,
    /// Gas used.
    pub gas_used: u64,
    /// The price of its gas, wei; `None` where the node does not tell it.
    pub gas_price: Option<u128>,
    /// The L1 data fee, wei.
    pub l1_fee_wei: u128,
    /// Its logs.
    pub logs: Vec<Log>,
}

/// The JSON with the L1 fee of OP-stack chains, which a standard receipt type would drop.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReceiptJson {
    transaction_hash: B256,
    /// `null` in the receipt of a block that the node is still building.
    block_number: Option<U64>,
    block_hash: Option<B256>,
    status: U64,
    gas_used: U64,
    /// It only prices the transaction: without it the outcome is told all the same.
    #[serde(default)]
    effective_gas_price: Option<U256>,
    #[serde(default)]
    l1_fee: Option<U256>,
    logs: Vec<Log>,
}

/// Error: the answer is not a receipt of this transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoReceipt;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReceiptBlock {
    block_number: U64,
}

/// The sender and the recipient of a transaction, in its receipt.
#[derive(Debug, Deserialize)]
struct ReceiptParties {
    from: Option<Address>,
    to: Option<Address>,
}

/// Reads the number of a receipt's block.
pub(super) fn block_of(receipt: &RawValue) -> Option<u64> {
    serde_json::from_str(receipt.get())
        .ok()
        .and_then(|ReceiptBlock { block_number: number }| block_number(number))
}

/// Reads the receipt if it may be of a transaction of ours: a forwarder call, or a no-op to its sender.
/// Other transactions of a block may have any form.
pub(super) fn maybe_ours(receipt: &RawValue, forwarder: Address) -> Option<Receipt> {
    let ReceiptParties { from, to } = serde_json::from_str(receipt.get()).ok()?;
    if to.is_none() || (to != Some(forwarder) && to != from) {
        return None;
    }
    let receipt: ReceiptJson = serde_json::from_str(receipt.get()).ok()?;
    let hash = receipt.transaction_hash;
    receipt.of(hash).ok()?
}

impl Receipt {
    /// Returns the total price paid, L1 fee included, wei: at most `max_fee` for its gas, where the price is
    /// not told.
    pub fn paid_wei(&self, max_fee: u128) -> u128 {
        let price = self.gas_price.unwrap_or(max_fee);
        u128::from(self.gas_used).saturating_mul(price).saturating_add(self.l1_fee_wei)
    }
}

impl ReceiptJson {
    /// Converts it to the receipt of the transaction `hash`; `None` while it is in no block.
    pub(super) fn of(self, hash: B256) -> Result<Option<Receipt>, NoReceipt> {
        let (Some(number), Some(block_hash)) = (self.block_number, self.block_hash) else { return Ok(None) };
        if self.transaction_hash != hash {
            return Err(NoReceipt);
        }
        Ok(Some(Receipt {
            hash,
            block: BlockId { number: block_number(number).ok_or(NoReceipt)?, hash: block_hash },
            status: self.status == U64::from(1),
            gas_used: self.gas_used.to(),
            gas_price: self.effective_gas_price.map(wei),
            l1_fee_wei: self.l1_fee.map(wei).unwrap_or_default(),
            logs: self.logs,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn parse(changes: &[(&str, Value)]) -> Result<Option<Receipt>, NoReceipt> {
        let mut receipt = json!({
            "transactionHash": B256::repeat_byte(7), "blockNumber": "0x10",
            "blockHash": B256::repeat_byte(8), "status": "0x1", "gasUsed": "0x5208",
            "effectiveGasPrice": "0x2", "l1Fee": "0x64", "logs": [],
        });
        for (field, value) in changes {
            receipt[*field] = value.clone();
        }
        serde_json::from_value::<ReceiptJson>(receipt).unwrap().of(B256::repeat_byte(7))
    }

    #[test]
    fn a_receipt_is_of_its_transaction_and_a_block_and_what_was_paid_includes_the_l1_fee() {
        let receipt = parse(&[]).unwrap().unwrap();
        assert_eq!((receipt.block.number, receipt.status, receipt.paid_wei(9)), (16, true, 42_100));
        assert_eq!(parse(&[("l1Fee", Value::Null)]).unwrap().unwrap().paid_wei(9), 42_000);
        let unpriced = parse(&[("effectiveGasPrice", Value::Null)]).unwrap().unwrap();
        assert_eq!(unpriced.paid_wei(9), 189_100, "the most that it may have paid");
        assert_eq!(parse(&[("blockNumber", Value::Null)]), Ok(None), "none yet");
        assert_eq!(parse(&[("blockHash", Value::Null)]), Ok(None), "none yet");
        assert_eq!(parse(&[("transactionHash", json!(B256::ZERO))]), Err(NoReceipt));
        assert_eq!(parse(&[("blockNumber", json!("0x8000000000000000"))]), Err(NoReceipt));
    }
}
