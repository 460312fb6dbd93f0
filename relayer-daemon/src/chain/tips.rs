//! The priority fee that others pay. A node's fee history counts our own transactions too, and on a quiet
//! chain hardly any others: an offer that follows it would follow itself, and each replacement would raise it
//! for good.

use std::collections::VecDeque;

use crate::gas::fees::MIN_TIP;

/// Number of own offers that are remembered.
const OWN: usize = 64;

/// The priority fees of others, as far as they can be told from our own.
#[derive(Debug)]
pub(super) struct TipMarket {
    /// Our own recent offers, newest last.
    own: VecDeque<u128>,
    /// The last price that was not only ours.
    others: u128,
}

impl Default for TipMarket {
    fn default() -> Self {
        Self { own: VecDeque::new(), others: MIN_TIP }
    }
}

impl TipMarket {
    /// Notes an own offer.
    pub(super) fn offered(&mut self, tip: u128) {
        if !self.own.contains(&tip) {
            self.own.push_back(tip);
            if self.own.len() > OWN {
                self.own.pop_front();
            }
        }
    }

    /// Returns the market's price from what recent blocks paid: the median of the tips that are not ours.
    pub(super) fn price(&mut self, paid: impl IntoIterator<Item = u128>) -> u128 {
        let mut others: Vec<u128> = paid.into_iter().filter(|tip| !self.own.contains(tip)).collect();
        others.sort_unstable();
        if let Some(median) = others.get(others.len() / 2) {
            self.others = *median;
        }
        self.others
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GWEI: u128 = 1_000_000_000;

    #[test]
    fn the_price_is_what_others_pay() {
        let mut market = TipMarket::default();
        assert_eq!(market.price([]), MIN_TIP);
        assert_eq!(market.price([3 * GWEI, GWEI, 2 * GWEI]), 2 * GWEI);
        // As the market: not ours alone, but indistinguishable.
        market.offered(2 * GWEI);
        assert_eq!(market.price([2 * GWEI, 2 * GWEI]), 2 * GWEI);
        market.offered(GWEI * 22 / 10);
        assert_eq!(market.price([GWEI * 22 / 10, 2 * GWEI]), 2 * GWEI, "our own raise is no market");
        assert_eq!(market.price([GWEI * 22 / 10, GWEI, 2 * GWEI]), GWEI, "and it falls with the others");
        assert_eq!(market.price([0, 0, 0]), 0, "empty blocks take any");
        // Few of our own offers are remembered.
        (0..1_000).for_each(|tip| market.offered(tip));
        assert_eq!(market.own.len(), OWN);
    }
}
