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
    /// Returns the price per gas in the next block.
    pub fn price(&self) -> u128 {
        self.next_base_fee.saturating_add(self.tip.max(MIN_TIP))
    }

    /// Returns the highest `maxFeePerGas` that a replacement may offer in this market.
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
    /// Returns the most that `gas_limit` gas can cost at these fees.
    pub const fn worst_case(&self, gas_limit: u64) -> u128 {
        self.max_fee.saturating_mul(gas_limit as u128)
    }

    /// Returns the first offer: twice the base fee, which stays valid through five full blocks, plus the tip.
    /// `None` if the base fee alone is above `cap`.
    pub fn initial(market: &Market, cap: u128) -> Option<Self> {
        let tip = market.tip.max(MIN_TIP);
        let max_fee = market.next_base_fee.saturating_mul(2).saturating_add(tip).min(cap);
        (market.next_base_fee <= cap).then_some(Self { max_fee, tip: tip.min(max_fee) })
    }

    /// Returns the fees of a replacement transaction: at least 10 % more in both fields, rounded up, and at
    /// least the market's price. `None` if that is above `cap` or four times the market's price.
    pub fn bumped(&self, market: &Market, cap: u128) -> Option<Self> {
        self.raised_within(market, market.highest_offer(cap))
    }

    /// Returns the fees of a no-op that replaces a transaction with these fees: the same raise, also in a
    /// market that fell since. `None` if that is above `cap`.
    pub fn of_cancellation(&self, market: &Market, cap: u128) -> Option<Self> {
        self.raised_within(market, cap)
    }

    /// Returns the fees of a no-op in place of a transaction with these fees which nodes do not have, or
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

    /// Returns the higher of both in each field.
    fn and_no_less_than(self, other: Self) -> Self {
        let max_fee = self.max_fee.max(other.max_fee);
        Self { max_fee, tip: self.tip.max(other.tip).min(max_fee) }
    }
}

/// Returns `fee` plus 10 %, rounded up, and always more than `fee`.
const fn raised(fee: u128) -> u128 {
    let raise = fee.saturating_mul(REPLACEMENT_PERCENT).div_ceil(100);
    fee.saturating_add(if raise == 0 { 1 } else { raise })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GWEI: u128 = 1_000_000_000;
    const CAP: u128 = 50 * GWEI;

    fn market(next_base_fee: u128, tip: u128) -> Market {
        Market { head: 1, next_base_fee, tip }
    }

    fn fees(max_fee: u128, tip: u128) -> Fees {
        Fees { max_fee, tip }
    }

    #[test]
    fn the_first_offer_is_twice_the_market_and_a_replacement_follows_one_that_rose_tenfold() {
        let offer = Fees::initial(&market(GWEI, GWEI / 2), CAP).unwrap();
        assert_eq!(offer, fees(5 * GWEI / 2, GWEI / 2));
        assert_eq!(offer.worst_case(100_000), 250_000 * GWEI);
        assert_eq!(Fees::initial(&market(51 * GWEI, 0), CAP), None, "a base fee above the cap is not paid");
        let new = Fees::initial(&market(GWEI, 0), CAP).unwrap().bumped(&market(10 * GWEI, 0), CAP).unwrap();
        assert!(new.max_fee >= 20 * GWEI);
        assert_eq!(new.tip, 1_100_000);
        assert_eq!(fees(46 * GWEI, GWEI).bumped(&market(100 * GWEI, 0), CAP), None, "none at the cap");
        // A flat market is bid up to four times its price.
        let flat = market(GWEI, GWEI);
        let first = Fees::initial(&flat, 500 * GWEI);
        let last = std::iter::successors(first, |fees| fees.bumped(&flat, 500 * GWEI)).last().unwrap();
        assert!(last.max_fee <= 8 * GWEI && last.max_fee * 11 > 80 * GWEI, "{last:?}");
    }

    #[test]
    fn a_substitute_offers_no_less_than_its_original_and_a_no_op_outbids_it_in_a_fallen_market() {
        for (old, cap, expected) in [
            (fees(30 * GWEI, 2 * GWEI), CAP, Some(fees(30 * GWEI, 2 * GWEI))),
            (fees(3 * GWEI, 2 * GWEI), CAP, Some(fees(21 * GWEI, 2 * GWEI))),
            // The cap is lower than it was.
            (fees(30 * GWEI, 2 * GWEI), 15 * GWEI, Some(fees(15 * GWEI, GWEI))),
            (fees(GWEI, 1), 9 * GWEI, None),
        ] {
            assert_eq!(old.of_substitute(&market(10 * GWEI, GWEI), cap), expected, "{old:?}");
        }
        let (fallen, old) = (market(GWEI / 10, 0), fees(10 * GWEI, GWEI));
        assert_eq!(old.bumped(&fallen, CAP), None);
        assert_eq!(old.of_cancellation(&fallen, CAP), Some(fees(11 * GWEI, GWEI * 11 / 10)));
        assert_eq!(old.of_cancellation(&fallen, 10 * GWEI), None, "above the cap");
    }

    #[test]
    fn a_market_outgrows_what_does_not_pay_for_its_next_block() {
        for (tip, offer, has_outgrown) in [
            (GWEI, fees(3 * GWEI, GWEI), false),
            (GWEI, fees(3 * GWEI - 1, GWEI), true),
            (GWEI, fees(9 * GWEI, GWEI * 2 / 3 + 1), false),
            // Others pay twice the tip.
            (GWEI, fees(9 * GWEI, GWEI / 2), true),
            (MIN_TIP, fees(9 * GWEI, 1), false),
        ] {
            assert_eq!(market(2 * GWEI, tip).has_outgrown(&offer), has_outgrown, "{offer:?}");
        }
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
