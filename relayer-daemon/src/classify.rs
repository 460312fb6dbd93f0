//! What a node's answer to `eth_sendRawTransaction` means: one table, most specific first.
//!
//! Codes are used too freely to trust, so the message decides. A revert is recognised before any phrase: a
//! contract's reason that quotes "nonce too low" stays a revert. Reads have a table of their own
//! (`registry_core::eth::rpc::read_error`).

use registry_core::eth::rpc::{ErrorPayload, revert::Revert};

/// What became of a raw transaction, as far as one answer tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The node has these bytes, from now or from before.
    Accepted,
    /// The nonce is used up: one of our own hashes, or somebody else's, was mined.
    NonceTooLow,
    /// Another transaction with this nonce pays too much for this one to replace it.
    Underpriced,
    /// The fees are below what the pool or the next block takes.
    FeeTooLow,
    /// The relayer's account cannot pay for it now.
    InsufficientFunds,
    /// These bytes will never be valid.
    Rejected,
    /// Nobody can tell: a timeout, a lost answer, a rate limit, an error this table does not know. The node
    /// may have the transaction. The same bytes are sent again.
    Unknown,
}

const TABLE: &[(&str, Verdict)] = &[
    // The node has it.
    ("already known", Verdict::Accepted), // geth, reth, erigon (behind "ALREADY_EXISTS:")
    ("alreadyknown", Verdict::Accepted),  // nethermind
    ("known transaction", Verdict::Accepted), // besu; geth before 1.9.14
    ("already imported", Verdict::Accepted), // anvil, openethereum
    ("already exists", Verdict::Accepted), // hosted endpoints
    ("already in mempool", Verdict::Accepted), // zksync and other sequencers
    ("already in the txpool", Verdict::Accepted),
    ("existing tx with same hash", Verdict::Accepted), // erigon
    ("already_exists", Verdict::Accepted),
    // The nonce is gone.
    ("nonce too low", Verdict::NonceTooLow), // geth, reth, erigon, besu, anvil
    ("nonce is too low", Verdict::NonceTooLow), // openethereum, hosted endpoints
    ("oldnonce", Verdict::NonceTooLow),      // nethermind
    ("old nonce", Verdict::NonceTooLow),
    ("ownnoncealreadyused", Verdict::NonceTooLow), // nethermind
    ("nonce below current", Verdict::NonceTooLow), // besu, older
    ("invalid transaction nonce", Verdict::NonceTooLow), // hosted endpoints
    // Another one holds the nonce.
    ("replacement transaction underpriced", Verdict::Underpriced), // geth, reth, erigon, besu
    ("transaction replacement underpriced", Verdict::Underpriced), // anvil
    ("could not replace existing", Verdict::Underpriced),          // erigon
    ("replacementnotallowed", Verdict::Underpriced),               // nethermind
    ("another transaction with same nonce", Verdict::Underpriced), // openethereum
    // Too little is offered.
    ("less than block base fee", Verdict::FeeTooLow), // geth, reth, anvil
    ("below current base fee", Verdict::FeeTooLow),   // besu
    ("below configured minimum gas price", Verdict::FeeTooLow), // besu
    ("transaction underpriced", Verdict::FeeTooLow),  // geth, reth
    ("feetoolow", Verdict::FeeTooLow),                // nethermind, also FeeTooLowToCompete
    ("fee too low", Verdict::FeeTooLow),              // erigon, hosted endpoints
    ("gas price is too low", Verdict::FeeTooLow),     // openethereum
    ("underpriced", Verdict::FeeTooLow),              // erigon
    // The account is short.
    ("insufficient funds", Verdict::InsufficientFunds), // geth, reth, erigon, anvil, openethereum
    ("insufficientfunds", Verdict::InsufficientFunds),  // nethermind
    ("upfront cost exceeds account balance", Verdict::InsufficientFunds), // besu
    // Never valid.
    ("intrinsic gas too low", Verdict::Rejected), // geth, reth, erigon, anvil
    ("intrinsic gas exceeds gas limit", Verdict::Rejected), // besu
    ("exceeds block gas limit", Verdict::Rejected), // geth, reth, besu
    ("gaslimitexceeded", Verdict::Rejected),      // nethermind
    ("gas limit too high", Verdict::Rejected),    // EIP-7825
    ("transaction gas limit", Verdict::Rejected), // EIP-7825
    ("oversized data", Verdict::Rejected),        // geth
    ("invalid sender", Verdict::Rejected),        // geth
    ("invalid chain id", Verdict::Rejected),      // geth
    ("invalid chainid", Verdict::Rejected),       // nethermind
    ("transaction type not supported", Verdict::Rejected), // geth
    ("unsupported transaction type", Verdict::Rejected),
];

/// The verdict on a JSON-RPC error that answers `eth_sendRawTransaction`.
#[must_use]
pub fn send_error(error: &ErrorPayload) -> Verdict {
    if Revert::from_error(error).is_some() {
        return Verdict::Rejected;
    }
    let message = error.message.to_ascii_lowercase();
    let row = TABLE.iter().find(|(phrase, _)| message.contains(phrase));
    row.map_or(Verdict::Unknown, |(_, verdict)| *verdict)
}

/// One verdict from several nodes' answers to the same bytes: if any node has the transaction it is accepted, and
/// it is rejected only if no node says anything better. An endpoint that is dead or silent says nothing, so it does
/// not hide what a living one says.
///
/// No verdict but acceptance ends anything by itself: a nonce stays in flight until one of its transactions is seen
/// mined, whoever has its bytes.
#[must_use]
pub fn combine(verdicts: impl IntoIterator<Item = Verdict>) -> Verdict {
    verdicts.into_iter().min().unwrap_or(Verdict::Unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(code: i64, message: &str) -> Verdict {
        send_error(&ErrorPayload { code, message: message.to_owned().into(), data: None })
    }

    #[test]
    fn every_nodes_wording_is_understood() {
        for (node, code, message, expected) in [
            ("geth", -32000, "nonce too low: next nonce 5, tx nonce 4", Verdict::NonceTooLow),
            ("geth", -32000, "already known", Verdict::Accepted),
            ("geth", -32000, "replacement transaction underpriced", Verdict::Underpriced),
            ("geth", -32000, "transaction underpriced: gas tip cap 0, minimum needed 1", Verdict::FeeTooLow),
            (
                "geth",
                -32000,
                "insufficient funds for gas * price + value: balance 0, tx cost 21000, overshot 21000",
                Verdict::InsufficientFunds,
            ),
            (
                "geth",
                -32000,
                "max fee per gas less than block base fee: address 0x00, maxFeePerGas: 1, baseFee: 7",
                Verdict::FeeTooLow,
            ),
            ("geth", -32000, "intrinsic gas too low: gas 1, minimum needed 21000", Verdict::Rejected),
            ("geth", -32000, "exceeds block gas limit", Verdict::Rejected),
            ("geth", -32000, "invalid chain id for signer: have 1 want 84532", Verdict::Rejected),
            ("geth", -32000, "txpool is full", Verdict::Unknown),
            ("geth, old", -32000, "known transaction: 0xabc", Verdict::Accepted),
            ("reth", -32000, "nonce too low: next nonce 1, tx nonce 0", Verdict::NonceTooLow),
            ("reth", -32000, "already known", Verdict::Accepted),
            ("reth", -32000, "replacement transaction underpriced", Verdict::Underpriced),
            (
                "reth",
                -32000,
                "insufficient funds for gas * price + value: have 0 want 1",
                Verdict::InsufficientFunds,
            ),
            ("reth", -32003, "max fee per gas less than block base fee", Verdict::FeeTooLow),
            ("erigon", -32000, "nonce too low", Verdict::NonceTooLow),
            ("erigon", -32000, "ALREADY_EXISTS: already known", Verdict::Accepted),
            ("erigon", -32000, "existing tx with same hash", Verdict::Accepted),
            ("erigon", -32000, "could not replace existing tx", Verdict::Underpriced),
            ("erigon", -32000, "INTERNAL_ERROR: fee too low", Verdict::FeeTooLow),
            ("erigon", -32000, "underpriced", Verdict::FeeTooLow),
            ("besu", -32001, "Nonce too low", Verdict::NonceTooLow),
            ("besu", -32000, "Known transaction", Verdict::Accepted),
            ("besu", -32000, "Replacement transaction underpriced", Verdict::Underpriced),
            ("besu", -32004, "Upfront cost exceeds account balance", Verdict::InsufficientFunds),
            ("besu", -32009, "Gas price below current base fee", Verdict::FeeTooLow),
            ("besu", -32003, "Intrinsic gas exceeds gas limit", Verdict::Rejected),
            (
                "nethermind",
                -32010,
                "OldNonce, Current nonce: 5, nonce of rejected tx: 4",
                Verdict::NonceTooLow,
            ),
            ("nethermind", -32010, "OwnNonceAlreadyUsed", Verdict::NonceTooLow),
            ("nethermind", -32010, "AlreadyKnown", Verdict::Accepted),
            ("nethermind", -32010, "ReplacementNotAllowed", Verdict::Underpriced),
            ("nethermind", -32010, "FeeTooLow, EffectivePriorityFeePerGas too low 0 < 1", Verdict::FeeTooLow),
            ("nethermind", -32010, "FeeTooLowToCompete", Verdict::FeeTooLow),
            (
                "nethermind",
                -32010,
                "InsufficientFunds, Account balance: 0, cumulative cost: 1",
                Verdict::InsufficientFunds,
            ),
            (
                "nethermind",
                -32010,
                "GasLimitExceeded, Gas limit: 1, gas limit of rejected tx: 2",
                Verdict::Rejected,
            ),
            ("anvil", -32003, "nonce too low", Verdict::NonceTooLow),
            ("anvil", -32003, "transaction already imported", Verdict::Accepted),
            ("anvil", -32003, "replacement transaction underpriced", Verdict::Underpriced),
            ("anvil", -32003, "Insufficient funds for gas * price + value", Verdict::InsufficientFunds),
            ("anvil", -32003, "max fee per gas less than block base fee", Verdict::FeeTooLow),
            (
                "openethereum",
                -32010,
                "Transaction nonce is too low. Try incrementing the nonce.",
                Verdict::NonceTooLow,
            ),
            (
                "openethereum",
                -32010,
                "Transaction with the same hash was already imported.",
                Verdict::Accepted,
            ),
            ("hosted", 429, "Too Many Requests", Verdict::Unknown),
            ("hosted", -32005, "daily request count exceeded, request rate limited", Verdict::Unknown),
            ("hosted", -32603, "Internal error", Verdict::Unknown),
            ("hosted", -32000, "something nobody has seen yet", Verdict::Unknown),
        ] {
            assert_eq!(verdict(code, message), expected, "{node}: {message}");
        }
    }

    #[test]
    fn a_revert_that_quotes_a_node_error_stays_a_revert() {
        for quoted in
            ["nonce too low", "already known", "insufficient funds", "replacement transaction underpriced"]
        {
            assert_eq!(verdict(3, &format!("execution reverted: {quoted}")), Verdict::Rejected);
            assert_eq!(verdict(-32000, &format!("execution reverted: {quoted}")), Verdict::Rejected);
        }
    }

    #[test]
    fn one_node_that_has_it_is_enough_and_a_dead_one_does_not_hide_a_verdict() {
        use Verdict::{Accepted, FeeTooLow, NonceTooLow, Rejected, Underpriced, Unknown};
        assert_eq!(combine([Rejected, Accepted, Unknown]), Accepted);
        for verdict in [NonceTooLow, Underpriced, FeeTooLow, Rejected] {
            assert_eq!(combine([Unknown, verdict]), verdict);
            assert_eq!(combine([verdict, Unknown]), verdict);
        }
        assert_eq!(combine([Unknown, Unknown]), Unknown);
        assert_eq!(combine([Rejected, NonceTooLow]), NonceTooLow);
        assert_eq!(combine([Rejected, Rejected]), Rejected);
        assert_eq!(combine([]), Unknown);
    }
}
