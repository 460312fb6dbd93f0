//! Chooses the wallet that is compared with the chain: a random one of those asked for since the last
//! comparison.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::Mutex,
};

use alloy_primitives::Address;
use host_kit::native::lock;

/// A random one of the wallets that were asked for (reservoir sampling).
#[derive(Debug, Default)]
pub(crate) struct Sample(Mutex<(u64, Option<Address>)>);

impl Sample {
    /// Notes a wallet that was asked for.
    pub(crate) fn note(&self, wallet: Address) {
        let mut sample = lock(&self.0);
        let (asked, chosen) = &mut *sample;
        *asked += 1;
        if random().is_multiple_of(*asked) {
            *chosen = Some(wallet);
        }
    }

    /// Takes the chosen wallet; the next choice is among later ones.
    pub(crate) fn take(&self) -> Option<Address> {
        let mut sample = lock(&self.0);
        let (_, chosen) = std::mem::take(&mut *sample);
        chosen
    }
}

/// Returns a random number, from the keys that the standard library draws for its maps. The API cannot
/// foresee it, and nothing else rests on it.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wallet_asked_for_is_chosen_as_often_as_others() {
        let (sample, mut counts) = (Sample::default(), [0_u32; 4]);
        for _ in 0..8_000 {
            (0..4).for_each(|byte| sample.note(Address::repeat_byte(byte)));
            counts[usize::from(sample.take().unwrap()[0])] += 1;
        }
        assert!(counts.iter().all(|count| (1_700..2_300).contains(count)), "{counts:?}");
        assert_eq!(sample.take(), None);
    }
}
