//! The price of gas as it was seen last, to refuse without a call what cannot be paid for.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// How long a price says something about the market.
const FRESH: Duration = Duration::from_secs(60);

/// The price that was offered last.
#[derive(Debug, Default)]
pub struct GasPrice {
    seen: Mutex<Option<(Instant, u128)>>,
}

impl GasPrice {
    /// A relay offered this `maxFeePerGas`, wei.
    pub fn saw(&self, wei: u128) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), wei));
    }

    /// What was offered in the last minute, wei; 0 where nothing was.
    #[must_use]
    pub fn recent(&self) -> u128 {
        let seen = *self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.filter(|(at, _)| at.elapsed() < FRESH).map_or(0, |(_, wei)| wei)
    }
}
