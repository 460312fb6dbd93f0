//! Fee policy as arithmetic: the first offer, the offer of a replacement, and the highest cost.
//!
//! Amounts are wei per gas. `chain` reads the market; `sender::replacement_policy` decides when to replace.

/// The fee market as one `eth_feeHistory` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Market {
    /// Number of the newest block.
    pub head: u64,
    /// Base fee of the block after it.
    pub next_base_fee: u128,
    /// The priority fee that recent transactions paid.
    pub tip: u128,
}

/// The two fee fields of an EIP-1559 transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fees {
    /// `maxFeePerGas`.
    pub max_fee: u128,
    /// `maxPriorityFeePerGas`, never above `max_fee`.
    pub tip: u128,
}

/// The smallest priority fee offered: the default minimum of OP-stack nodes' mempools.
pub const MIN_TIP: u128 = 1_000_000;

/// Percent by which nodes want both fee fields of a replacement transaction raised.
const REPLACEMENT_PERCENT: u128 = 10;
/// The highest offer of a replacement, as a multiple of the market's price.
const MARKET_MULTIPLE: u128 = 4;

impl Market {
    /// The price per gas in the next block.
    pub fn price(&self) -> u128 {
        self.next_base_fee.saturating_add(self.tip.max(MIN_TIP))
    }

    /// The highest `maxFeePerGas` that a replacement may offer in this market.
    pub fn highest_offer(&self, cap: u128) -> u128 {
        self.price().saturating_mul(MARKET_MULTIPLE).min(cap)
    }

    /// Returns whether a transaction with these fees is too cheap for the next block: by its price, or
    /// because others pay far more of a tip than it does.
    pub fn has_outgrown(&self, fees: &Fees) -> bool {
        self.price() > fees.max_fee || self.tip > fees.tip.saturating_add(fees.tip / 2).max(MIN_TIP)
    }
}

impl Fees {
    /// The most that `gas_limit` gas can cost at these fees.
    pub const fn worst_case(&self, gas_limit: u64) -> u128 {
        self.max_fee.saturating_mul(gas_limit as u128)
    }

    /// The first offer: twice the base fee, which stays valid through five full blocks, plus the tip. `None`
    /// if the base fee alone is above `cap`.
    pub fn initial(market: &Market, cap: u128) -> Option<Self> {
        let tip = market.tip.max(MIN_TIP);
        let max_fee = market.next_base_fee.saturating_mul(2).saturating_add(tip).min(cap);
        (market.next_base_fee <= cap).then_some(Self { max_fee, tip: tip.min(max_fee) })
    }

    /// The fees of a replacement transaction: at least 10 % more in both fields, rounded up, and at least the
    /// market's price. `None` if that is above `cap` or four times the market's price.
    pub fn bumped(&self, market: &Market, cap: u128) -> Option<Self> {
        self.raised_within(market, market.highest_offer(cap))
    }

    /// The fees of a no-op that takes the place of a transaction with these fees: the same raise, also in a
    /// market that fell since. `None` if that is above `cap`.
    pub fn of_cancellation(&self, market: &Market, cap: u128) -> Option<Self> {
        self.raised_within(market, cap)
    }

    /// The fees of a no-op that takes the place of a transaction with these fees which nodes have not got, or
    /// which cannot be outbid: no less than these, so that it outbids what that one has outbid, and no less
    /// than the first offer. `None` if the base fee alone is above `cap`.
    pub fn of_substitute(&self, market: &Market, cap: u128) -> Option<Self> {
        let first = Self::initial(market, cap)?;
        Some(if self.max_fee > cap { first } else { self.and_no_less_than(first) })
    }

    fn raised_within(&self, market: &Market, highest: u128) -> Option<Self> {
        let least = Self { max_fee: raised(self.max_fee), tip: raised(self.tip) };
        if least.max_fee > highest || least.tip > highest {
            return None;
        }
        Some(least.and_no_less_than(Self::initial(market, highest).unwrap_or(least)))
    }

    /// The higher of both in each field.
    fn and_no_less_than(self, other: Self) -> Self {
        let max_fee = self.max_fee.max(other.max_fee);
        Self { max_fee, tip: self.tip.max(other.tip).min(max_fee) }
    }
}

/// `fee` plus 10 %, rounded up, and always more than `fee`.
const fn raised(fee: u128) -> u128 {
    let raise = fee.saturating_mul(REPLACEMENT_PERCENT).div_ceil(100);
    fee.saturating_add(if raise == 0 { 1 } else { raise })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GWEI: u128 = 1_000_000_000;

    #[test]
    fn offers_twice_the_base_fee_and_the_tip() {
        let market = Market { head: 1, next_base_fee: GWEI, tip: GWEI / 2 };
        let fees = Fees::initial(&market, 50 * GWEI).unwrap();
        assert_eq!(fees, Fees { max_fee: 5 * GWEI / 2, tip: GWEI / 2 });
        assert_eq!(fees.worst_case(100_000), 250_000 * GWEI);
    }

    #[test]
    fn a_base_fee_above_the_cap_is_not_paid() {
        let market = Market { head: 1, next_base_fee: 51 * GWEI, tip: 0 };
        assert_eq!(Fees::initial(&market, 50 * GWEI), None);
    }

    #[test]
    fn a_replacement_follows_a_market_that_rose_tenfold() {
        let before = Market { head: 1, next_base_fee: GWEI, tip: 0 };
        let after = Market { head: 2, next_base_fee: 10 * GWEI, ..before };
        let old = Fees::initial(&before, 50 * GWEI).unwrap();
        let new = old.bumped(&after, 50 * GWEI).unwrap();
        assert!(new.max_fee >= 20 * GWEI);
        assert_eq!(new.tip, 1_100_000);
    }

    #[test]
    fn a_substitute_offers_no_less_than_what_it_stands_for_and_no_less_than_the_market() {
        let market = Market { head: 1, next_base_fee: 10 * GWEI, tip: GWEI };
        let of = |max_fee, tip, cap| Fees { max_fee, tip }.of_substitute(&market, cap).unwrap();
        assert_eq!(of(30 * GWEI, 2 * GWEI, 50 * GWEI), Fees { max_fee: 30 * GWEI, tip: 2 * GWEI });
        assert_eq!(of(3 * GWEI, 2 * GWEI, 50 * GWEI), Fees { max_fee: 21 * GWEI, tip: 2 * GWEI });
        // The cap is lower than it was.
        assert_eq!(of(30 * GWEI, 2 * GWEI, 15 * GWEI), Fees { max_fee: 15 * GWEI, tip: GWEI });
        assert_eq!(Fees { max_fee: GWEI, tip: 1 }.of_substitute(&market, 9 * GWEI), None);
    }

    #[test]
    fn a_market_outgrows_what_does_not_pay_for_its_next_block() {
        let market = Market { head: 1, next_base_fee: 2 * GWEI, tip: GWEI };
        assert!(!market.has_outgrown(&Fees { max_fee: 3 * GWEI, tip: GWEI }));
        assert!(market.has_outgrown(&Fees { max_fee: 3 * GWEI - 1, tip: GWEI }));
        assert!(!market.has_outgrown(&Fees { max_fee: 9 * GWEI, tip: GWEI * 2 / 3 + 1 }));
        assert!(market.has_outgrown(&Fees { max_fee: 9 * GWEI, tip: GWEI / 2 }), "others pay twice the tip");
        let quiet = Market { tip: MIN_TIP, ..market };
        assert!(!quiet.has_outgrown(&Fees { max_fee: 9 * GWEI, tip: 1 }));
    }

    #[test]
    fn a_flat_market_is_never_bid_above_four_times_its_price() {
        let market = Market { head: 1, next_base_fee: GWEI, tip: GWEI };
        let mut fees = Fees::initial(&market, 500 * GWEI).unwrap();
        while let Some(bumped) = fees.bumped(&market, 500 * GWEI) {
            fees = bumped;
        }
        assert!(fees.max_fee <= 8 * GWEI && fees.max_fee * 11 > 80 * GWEI, "{fees:?}");
    }

    #[test]
    fn a_no_op_outbids_what_it_cancels_also_in_a_market_that_fell() {
        let fallen = Market { head: 1, next_base_fee: GWEI / 10, tip: 0 };
        let old = Fees { max_fee: 10 * GWEI, tip: GWEI };
        assert_eq!(old.bumped(&fallen, 50 * GWEI), None);
        let raised = Fees { max_fee: 11 * GWEI, tip: GWEI * 11 / 10 };
        assert_eq!(old.of_cancellation(&fallen, 50 * GWEI), Some(raised));
        assert_eq!(old.of_cancellation(&fallen, 10 * GWEI), None, "above the cap");
    }

    #[test]
    fn at_the_cap_there_is_no_replacement() {
        let market = Market { head: 1, next_base_fee: 100 * GWEI, tip: 0 };
        let old = Fees { max_fee: 46 * GWEI, tip: GWEI };
        assert_eq!(old.bumped(&market, 50 * GWEI), None);
    }

    proptest! {
        #[test]
        fn a_replacement_is_ten_percent_up_within_the_cap(
            max_fee in 0_u128..1_000 * GWEI, share in 0_u128..=100, base in 0_u128..2_000 * GWEI,
            tip in 0_u128..100 * GWEI, cap in 0_u128..2_000 * GWEI,
        ) {
            let old = Fees { max_fee, tip: max_fee * share / 100 };
            let market = Market { head: 0, next_base_fee: base, tip };
            if let Some(new) = old.bumped(&market, cap) {
                prop_assert!(new.max_fee <= cap && new.max_fee <= 4 * (base + tip.max(MIN_TIP)));
                prop_assert!(new.tip <= new.max_fee);
                prop_assert!(new.max_fee * 10 >= old.max_fee * 11);
                prop_assert!(new.tip * 10 >= old.tip * 11);
                prop_assert!(new.max_fee > old.max_fee);
            }
        }

        #[test]
        fn an_offer_covers_the_next_block(base in 0_u128..1_000 * GWEI, tip in 0_u128..100 * GWEI, cap in 0_u128..2_000 * GWEI) {
            let market = Market { head: 0, next_base_fee: base, tip };
            match Fees::initial(&market, cap) {
                Some(fees) => prop_assert!(fees.max_fee >= base && fees.max_fee <= cap && fees.tip <= fees.max_fee),
                None => prop_assert!(base > cap),
            }
        }
    }
}
