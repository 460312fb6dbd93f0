//! The result of copying a journal into another database.

use alloy::primitives::{Address, B256};

/// The result of copying a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Migration {
    /// All rows were copied; holds the number of rows of each table.
    Copied(Vec<(&'static str, u64)>),
    /// The journal was copied before.
    Already,
    /// Refused: this relay is pending in both.
    OpenInBoth(B256),
    /// Refused: the target has nonces of this account.
    HasAccount(Address),
    /// Refused: the target has rows in this table.
    NotEmpty(&'static str),
}
