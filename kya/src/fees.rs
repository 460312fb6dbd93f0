//! Gas fees (EIP-1559) that the key's own transactions offer, in wei per gas.

use alloy::primitives::U256;
use serde_json::json;

use crate::{chain::RpcNode, report::Result};

/// Priority fee where the node suggests none.
const PRIORITY_FEE: u128 = 1_000_000_000;

/// Gas fees at the newest block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fees {
    /// Base fee of the newest block.
    base: u128,
    /// Priority fee, for the block's producer.
    pub(crate) tip: u128,
}

impl Fees {
    /// Reads the fees of the newest block.
    pub(crate) async fn now(node: &RpcNode) -> Result<Self> {
        let base = node.block("latest").await?.base_fee_per_gas.saturating_to();
        let tip: Result<U256> = node.read("eth_maxPriorityFeePerGas", json!([])).await;
        Ok(Self { base, tip: tip.map_or(PRIORITY_FEE, |tip| tip.saturating_to()) })
    }

    /// Returns the maximum fee per gas: the base fee may double.
    pub(crate) const fn most(self) -> u128 {
        self.base.saturating_mul(2).saturating_add(self.tip)
    }

    /// Returns the fees of a replacement transaction; `None` where the base fee lets the old one be mined.
    /// Nodes want a replacement to offer a tenth more (geth's `--txpool.pricebump`), some an eighth.
    pub(crate) fn raised(self, most: u128, tip: u128) -> Option<(u128, u128)> {
        let more = |fee: u128| fee.saturating_add(fee / 8).saturating_add(1);
        (most < self.base.saturating_add(tip)).then(|| (self.most().max(more(most)), self.tip.max(more(tip))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fees_are_raised_where_the_base_fee_keeps_a_transaction_out_and_by_what_nodes_ask_for() {
        let fees = Fees { base: 100, tip: 2 };
        assert_eq!(fees.most(), 202);
        assert_eq!(fees.raised(102, 2), None, "it can be mined");
        assert_eq!(fees.raised(101, 2), Some((202, 3)), "a tenth more of both");
        assert_eq!(Fees { base: 1_000, tip: 2 }.raised(990, 80), Some((2_002, 91)));
        assert_eq!(Fees { base: 1_000, tip: 900 }.raised(1_000, 1), Some((2_900, 900)));
        assert!(Fees { base: u128::MAX, tip: 1 }.raised(1, 1).is_some());
    }
}
