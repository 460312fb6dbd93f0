//! The last seen price of gas, to refuse a relay that the budget cannot pay without a call.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The TTL of a price.
const FRESH: Duration = Duration::from_secs(60);

/// The last offered price.
#[derive(Debug, Default)]
pub struct GasPrice {
    seen: Mutex<Option<(Instant, u128)>>,
}

impl GasPrice {
    /// Stores the `maxFeePerGas` that a relay offered, wei.
    pub fn saw(&self, wei: u128) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), wei));
    }

    /// Returns the price offered in the last minute, wei; 0 if there was none.
    pub fn recent(&self) -> u128 {
        let seen = *self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.filter(|(at, _)| at.elapsed() < FRESH).map_or(0, |(_, wei)| wei)
    }
}
