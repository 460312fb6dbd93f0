//! Misbehaviour of a node: in all that it answers, or in its next replies.

use alloy_primitives::B256;
use serde_json::Value;

use super::Node;

/// Predicate of a request that the node does not answer as it should.
pub(crate) type IsFaulty = fn(&Node, &Value) -> bool;

/// Quirks of a node, all off by default.
#[derive(Clone, Debug, Default)]
pub(crate) struct Quirks {
    /// Registry calls an `eth_call` may hold before it runs out of gas.
    pub(crate) gas_for_calls: Option<usize>,
    /// Calldata of registry calls that take more gas than the node has.
    pub(crate) heavy: Vec<Vec<u8>>,
    pub(crate) undeployed: Undeployed,
    pub(crate) batch_limit: Option<usize>,
    /// Refuses a larger batch under its first request's id, as geth does, and not as a whole.
    pub(crate) refuses_by_id: bool,
    pub(crate) no_eip1898: bool,
    /// The error for a parameter that is an object, where it is not geth's.
    pub(crate) hash_refusal: Option<(i64, &'static str)>,
    /// Calls are answered at the newest block, whatever block is asked for.
    pub(crate) ignores_blocks: bool,
    /// Contracts see the numbers and hashes of another chain's blocks, as on Arbitrum.
    pub(crate) sees_other_blocks: bool,
    /// The error for a block without state, or beyond the newest, and its data.
    pub(crate) state_refusal: Option<(i64, &'static str, Value)>,
    /// The error under each request's id of a refused batch.
    pub(crate) batch_refusal: Option<(i64, &'static str)>,
    /// The status of a refused batch, which has no JSON then.
    pub(crate) batch_status: Option<u16>,
    /// Agents or calls of an `eth_call` that are answered in time.
    pub(crate) most_in_time: Option<u64>,
    /// A gateway's answer to calls that are not answered in time; none by default.
    pub(crate) late: Option<(u16, &'static str)>,
    /// Bytes of the longest body, and a gateway's answer to a longer one, of status 413.
    pub(crate) longest_body: Option<(usize, &'static str)>,
    /// A block that was replaced: its hash, and the number of the canonical one with the same parent.
    pub(crate) replaced: Option<(B256, u64)>,
    /// Number of posts after which a block is mined.
    pub(crate) posts_per_block: Option<usize>,
    /// The error for a range of too many blocks.
    pub(crate) range_refusal: Option<(i64, &'static str)>,
    /// Fault of posts that contain such a request.
    pub(crate) faulty: Option<(IsFaulty, Fault)>,
    /// Logs of the newest block are refused, with a range that ends there.
    pub(crate) logs_behind: bool,
    /// Number of times that a pinned block is "not found".
    pub(crate) unknown_blocks: u32,
    /// Number of a batch's first answers that are sent; the others are dropped.
    pub(crate) short_batches: Option<usize>,
    /// A block is mined before every request, even within a batch.
    pub(crate) mines_within_batches: bool,
    /// Multicall3 has nothing but `aggregate3`.
    pub(crate) no_tag: bool,
    /// Outcomes of a method's next requests, each with how many requests it is for, in order.
    pub(crate) outcomes: Vec<(&'static str, u32, Result<Value, Value>)>,
    pub(crate) logs: Logs,
    /// Number of newest blocks with logs that are not listed yet.
    pub(crate) late_logs: u64,
    pub(crate) times_logs: bool,
    /// Each log is listed twice.
    pub(crate) doubles_logs: bool,
    pub(crate) changes_logs: Option<fn(&mut Value)>,
    pub(crate) headers_from: u64,
    /// The error for older headers; without one their result is `null`.
    pub(crate) no_header: Option<(i64, &'static str)>,
    pub(crate) proofs: Proofs,
    /// One in this many batches is answered by a machine that is this many blocks behind.
    pub(crate) lags: Option<(usize, u64)>,
    /// Every record's creator is the [`signature`](super::signature) of the block it was read in.
    pub(crate) signs_records: bool,
}

/// A node's support for code that is not deployed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Undeployed {
    #[default]
    Override,
    /// It takes no third parameter, and runs creation code.
    Creation,
    /// It ignores a third parameter, and takes no call without `to`.
    Ignored,
    /// It takes neither a third parameter nor a call without `to`.
    Refused,
    /// It runs overrides and creation code, but does not know one of their opcodes.
    InvalidOpcode,
    /// It does not know an opcode, and reports a revert.
    Reverted,
}

/// A node's support for logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Logs {
    /// All of them, of any range.
    #[default]
    All,
    /// At most this many blocks at a time. The error suggests the range that was asked for.
    Blocks(u64),
    Results(usize),
    /// Replies of at most this many bytes.
    Bytes(usize),
    /// Logs from this block on; for older blocks it answers that there are none.
    From(u64),
    /// None: it answers an empty list.
    Empty,
    Unsupported,
}

/// A node's support for storage proofs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Proofs {
    #[default]
    All,
    Newest,
    /// Proofs of the newest block, whatever block is asked for.
    IgnoringBlocks,
    Unsupported,
}

/// The outcome of one post.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// An answer after this many milliseconds.
    Slow(u32),
    Unreachable,
    Hangs,
    Endless,
    Status(u16),
    Html,
    HalfABody,
    WrongId,
    /// Errors are answered as results of `null`.
    Null,
    /// Only the first of a batch's answers, without its array.
    OneObject,
    /// One error object for the whole batch.
    Error(i64, &'static str),
}
