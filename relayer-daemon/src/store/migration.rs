//! The result of copying a journal into another database.

use alloy::primitives::{Address, B256};

/// What has become of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Migration {
    /// All rows are there: how many of each table.
    Copied(Vec<(&'static str, u64)>),
    /// They were there before.
    Already,
    /// Refused: this relay is pending in both.
    OpenInBoth(B256),
    /// Refused: the target has nonces of this account.
    HasAccount(Address),
    /// Refused: the target has rows in this table.
    NotEmpty(&'static str),
}
