//! Verdicts on all wallets of a range, for clients that do not reveal the one that they ask about.

use serde::Serialize;

use super::KyaItem;
use crate::eth::as_of::AsOf;

/// The answer of `/kya/range/:prefix`: the verdicts on all registered and former wallets of a range.
///
/// A wallet of the range that is not in `data` is not registered: deny it, or ask it to register.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct KyaRange {
    /// The first hex digits of the Keccak-256 of each wallet's 20 bytes.
    pub prefix: String,
    /// The most digits that a prefix may have now: about thirty agents or more share such a range.
    pub prefix_digits_max: u8,
    /// Number of entries in `data`.
    pub total: usize,
    /// For each wallet, in ascending order, the verdict or the reason that there is none.
    pub data: Vec<KyaItem>,
    /// The block of the verdicts.
    pub as_of: AsOf,
}
