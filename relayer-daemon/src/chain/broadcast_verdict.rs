//! The meaning of a node's answer to `eth_sendRawTransaction`: one table, most specific first.
//!
//! Nodes use codes too freely to trust, so the message decides. A revert is recognised before any phrase: a
//! contract's reason that quotes "nonce too low" stays a revert. Errors of reads are
//! `registry_core::eth::rpc::read_error`'s.

use alloy::rpc::json_rpc::ErrorPayload;
use registry_core::eth::rpc::revert::Revert;

use BroadcastVerdict::{
    Accepted, FeeTooLow, InsufficientFunds, NonceTooHigh, NonceTooLow, Rejected, Underpriced, Unknown,
};

/// The meaning of one answer for a raw transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BroadcastVerdict {
    /// The node has these bytes, new or known.
    Accepted,
    /// The nonce is used: one of our transactions or a foreign one was mined.
    NonceTooLow,
    /// It pays too little to replace another transaction with this nonce.
    Underpriced,
    /// The fees are below what the mempool or the next block takes.
    FeeTooLow,
    /// The account cannot pay for it now.
    InsufficientFunds,
    /// The node keeps nothing ahead of the next nonce, which it has not seen yet: the same bytes are sent
    /// again once the lower ones are there.
    NonceTooHigh,
    /// These bytes will never be valid.
    Rejected,
    /// Unknown: a timeout, a lost answer, a rate limit, an error that is not in the table. The node may have
    /// the transaction; the same bytes are sent again.
    Unknown,
}

const TABLE: &[(&str, BroadcastVerdict)] = &[
    // Before "known transaction", which they contain.
    ("unknown transaction type", Rejected), // hosted endpoints, sequencers
    ("unknown transaction", Unknown),
    // The node has it.
    ("already known", Accepted), // geth, reth, erigon (behind "ALREADY_EXISTS:")
    ("alreadyknown", Accepted),  // nethermind
    ("known transaction", Accepted), // besu; geth before 1.9.14
    ("already imported", Accepted), // anvil, openethereum
    ("already exists", Accepted), // hosted endpoints
    ("already in mempool", Accepted), // zksync and other sequencers
    ("already in the txpool", Accepted),
    ("existing tx with same hash", Accepted), // erigon
    ("already_exists", Accepted),
    // The nonce is gone.
    ("nonce too low", NonceTooLow),    // geth, reth, erigon, besu, anvil
    ("nonce is too low", NonceTooLow), // openethereum, hosted endpoints
    ("oldnonce", NonceTooLow),         // nethermind
    ("old nonce", NonceTooLow),
    ("ownnoncealreadyused", NonceTooLow),       // nethermind
    ("nonce below current", NonceTooLow),       // besu, older
    ("invalid transaction nonce", NonceTooLow), // hosted endpoints
    // A lower nonce is missing.
    ("nonce too high", NonceTooHigh), // arbitrum and other sequencers, anvil
    ("nonce is too high", NonceTooHigh), // hosted endpoints
    ("noncegap", NonceTooHigh),       // nethermind
    ("nonce gap", NonceTooHigh),
    ("nonce too distant", NonceTooHigh), // besu
    ("nonce has future", NonceTooHigh),
    // Another one holds the nonce.
    ("replacement transaction underpriced", Underpriced), // geth, reth, erigon, besu
    ("transaction replacement underpriced", Underpriced), // anvil
    ("could not replace existing", Underpriced),          // erigon
    ("replacementnotallowed", Underpriced),               // nethermind
    ("another transaction with same nonce", Underpriced), // openethereum
    // Too little is offered.
    ("less than block base fee", FeeTooLow), // geth, reth, anvil
    ("below current base fee", FeeTooLow),   // besu
    ("below configured minimum gas price", FeeTooLow), // besu
    ("transaction underpriced", FeeTooLow),  // geth, reth
    ("feetoolow", FeeTooLow),                // nethermind, also FeeTooLowToCompete
    ("fee too low", FeeTooLow),              // erigon, hosted endpoints
    ("gas price is too low", FeeTooLow),     // openethereum
    ("underpriced", FeeTooLow),              // erigon
    // The account is short.
    ("insufficient funds", InsufficientFunds), // geth, reth, erigon, anvil, openethereum
    ("insufficientfunds", InsufficientFunds),  // nethermind
    ("upfront cost exceeds account balance", InsufficientFunds), // besu
    ("doesn't have enough funds", InsufficientFunds), // EDR, ganache
    // Never valid.
    ("intrinsic gas too low", Rejected), // geth, reth, erigon, anvil
    ("requires at least", Rejected),     // EDR, "gas limit is 1. ... requires at least 21000 gas"
    ("intrinsic gas exceeds gas limit", Rejected), // besu
    ("exceeds block gas limit", Rejected), // geth, reth, besu
    ("gaslimitexceeded", Rejected),      // nethermind
    ("gas limit too high", Rejected),    // EIP-7825
    ("transaction gas limit", Rejected), // EIP-7825
    ("oversized data", Rejected),        // geth
    ("invalid sender", Rejected),        // geth
    ("invalid chain id", Rejected),      // geth
    ("invalid chainid", Rejected),       // nethermind
    ("transaction type not supported", Rejected), // geth
    ("unsupported transaction type", Rejected),
    ("trying to send an eip-1559", Rejected), // EDR before London
    ("eip 1559 is not activated", Rejected),  // ganache before London
];

/// Returns the verdict on a JSON-RPC error that answers `eth_sendRawTransaction`.
pub fn send_error(error: &ErrorPayload) -> BroadcastVerdict {
    if Revert::from_error(error).is_some() {
        return Rejected;
    }
    let message = error.message.to_ascii_lowercase();
    let row = TABLE.iter().find(|(phrase, _)| message.contains(phrase));
    row.map_or_else(|| by_counts(&message).unwrap_or(Unknown), |(_, verdict)| *verdict)
}

/// Reads ganache's message, which is the same for a nonce too low and one too high, but has both counts.
fn by_counts(message: &str) -> Option<BroadcastVerdict> {
    let rest = message.split_once("account has nonce of: ")?.1;
    let (account, transaction) = rest.split_once(" tx has nonce of: ")?;
    let [account, transaction]: [u64; 2] =
        [account.trim().parse().ok()?, transaction.trim().trim_end_matches('.').parse().ok()?];
    Some(if transaction < account { NonceTooLow } else { NonceTooHigh })
}

/// Returns one verdict from several nodes' answers to the same bytes: accepted if any node has the
/// transaction, rejected only if no node has a better verdict. A dead or silent endpoint does not hide the
/// verdict of another.
///
/// No verdict ends a nonce: it stays in flight until one of its transactions is seen mined.
pub fn combine(verdicts: impl IntoIterator<Item = BroadcastVerdict>) -> BroadcastVerdict {
    verdicts.into_iter().min().unwrap_or(Unknown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::borrow::Cow;

    #[test]
    fn every_nodes_wording_is_understood() {
        // Reth and anvil say what geth says.
        for (node, code, message, expected) in [
            ("geth", -32000, "nonce too low: next nonce 5, tx nonce 4", NonceTooLow),
            ("geth", -32000, "already known", Accepted),
            ("geth", -32000, "replacement transaction underpriced", Underpriced),
            ("geth", -32000, "transaction underpriced: gas tip cap 0, minimum needed 1", FeeTooLow),
            ("geth", -32000, "insufficient funds for gas * price + value: balance 0, ...", InsufficientFunds),
            ("geth", -32000, "max fee per gas less than block base fee: address 0x00, ...", FeeTooLow),
            ("geth", -32000, "intrinsic gas too low: gas 1, minimum needed 21000", Rejected),
            ("geth", -32000, "exceeds block gas limit", Rejected),
            ("geth", -32000, "invalid chain id for signer: have 1 want 84532", Rejected),
            ("geth", -32000, "txpool is full", Unknown),
            ("geth, old", -32000, "known transaction: 0xabc", Accepted),
            ("erigon", -32000, "ALREADY_EXISTS: already known", Accepted),
            ("erigon", -32000, "existing tx with same hash", Accepted),
            ("erigon", -32000, "could not replace existing tx", Underpriced),
            ("erigon", -32000, "INTERNAL_ERROR: fee too low", FeeTooLow),
            ("erigon", -32000, "underpriced", FeeTooLow),
            ("besu", -32001, "Nonce too low", NonceTooLow),
            ("besu", -32000, "Known transaction", Accepted),
            ("besu", -32000, "Replacement transaction underpriced", Underpriced),
            ("besu", -32004, "Upfront cost exceeds account balance", InsufficientFunds),
            ("besu", -32009, "Gas price below current base fee", FeeTooLow),
            ("besu", -32003, "Intrinsic gas exceeds gas limit", Rejected),
            ("nethermind", -32010, "OldNonce, Current nonce: 5, nonce of rejected tx: 4", NonceTooLow),
            ("nethermind", -32010, "OwnNonceAlreadyUsed", NonceTooLow),
            ("nethermind", -32010, "AlreadyKnown", Accepted),
            ("nethermind", -32010, "ReplacementNotAllowed", Underpriced),
            ("nethermind", -32010, "FeeTooLow, EffectivePriorityFeePerGas too low 0 < 1", FeeTooLow),
            ("nethermind", -32010, "FeeTooLowToCompete", FeeTooLow),
            ("nethermind", -32010, "InsufficientFunds, Account balance: 0, ...", InsufficientFunds),
            ("nethermind", -32010, "GasLimitExceeded, Gas limit: 1, gas limit of rejected tx: 2", Rejected),
            ("anvil", -32003, "transaction already imported", Accepted),
            ("anvil", -32003, "max fee per gas less than block base fee", FeeTooLow),
            ("openethereum", -32010, "Transaction nonce is too low. Try incrementing it.", NonceTooLow),
            ("openethereum", -32010, "Transaction with the same hash was already imported.", Accepted),
            (
                "EDR",
                -32000,
                "Sender doesn't have enough funds to send tx. The max upfront cost is: 9",
                InsufficientFunds,
            ),
            ("EDR", -32000, "Transaction requires at least 21000 gas but got 1", Rejected),
            ("EDR", -32000, "Trying to send an EIP-1559 transaction but they are not supported", Rejected),
            ("EDR", -32000, "Nonce too low. Expected nonce to be 8 but got 1.", NonceTooLow),
            ("ganache", -32000, "EIP 1559 is not activated", Rejected),
            (
                "ganache",
                -32000,
                "the tx doesn't have the correct nonce. account has nonce of: 8 tx has nonce of: 1",
                NonceTooLow,
            ),
            (
                "ganache",
                -32000,
                "the tx doesn't have the correct nonce. account has nonce of: 1 tx has nonce of: 8",
                NonceTooHigh,
            ),
            ("arbitrum", -32000, "nonce too high: address 0x00, tx: 9 state: 7", NonceTooHigh),
            ("nethermind", -32010, "NonceGap, Future nonce. Expected nonce: 7", NonceTooHigh),
            ("besu", -32006, "Transaction nonce too distant", NonceTooHigh),
            ("hosted", -32000, "unknown transaction type: 2", Rejected),
            ("hosted", -32000, "Unknown transaction", Unknown),
            ("hosted", 429, "Too Many Requests", Unknown),
            ("hosted", -32005, "daily request count exceeded, request rate limited", Unknown),
            ("hosted", -32603, "Internal error", Unknown),
            ("hosted", -32000, "something that is in no table", Unknown),
            // A revert that quotes a node's error stays a revert.
            ("any", 3, "execution reverted: nonce too low", Rejected),
            ("any", -32000, "execution reverted: already known", Rejected),
            ("any", -32000, "execution reverted: insufficient funds", Rejected),
            ("any", 3, "execution reverted: replacement transaction underpriced", Rejected),
        ] {
            let verdict = send_error(&ErrorPayload { code, message: Cow::Borrowed(message), data: None });
            assert_eq!(verdict, expected, "{node}: {message}");
        }
    }

    #[test]
    fn one_node_that_has_it_is_enough_and_a_dead_one_does_not_hide_a_verdict() {
        assert_eq!(combine([Rejected, Accepted, Unknown]), Accepted);
        for verdict in [NonceTooLow, Underpriced, FeeTooLow, NonceTooHigh, Rejected] {
            assert_eq!(combine([Unknown, verdict]), verdict);
            assert_eq!(combine([verdict, Unknown]), verdict);
        }
        assert_eq!(combine([Unknown, Unknown]), Unknown);
        assert_eq!(combine([Rejected, NonceTooLow]), NonceTooLow);
        assert_eq!(combine([Rejected, Rejected]), Rejected);
        assert_eq!(combine([]), Unknown);
    }
}
