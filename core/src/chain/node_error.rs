//! Reactions to a node's error: one table, by [class of error](crate::eth::rpc::read_error) and kind of
//! request.
//!
//! | | header | one call | several calls | suspect | direct call | agents |
//! |---|---|---|---|---|---|---|
//! | revert | end | end | cut | too heavy | reverted | next method, if any; cut |
//! | split; smaller batch, of one request | end | too heavy | cut | too heavy | too heavy | cut |
//! | smaller batch, of one request that is too long itself | end | too heavy | cut | too heavy | too heavy | next method, if any; cut |
//! | smaller batch, of several requests | halve the batch | ← | ← | ← | ← | ← |
//! | pin by number | pin by number; end if by number | ← | ← | ← | ← | ← |
//! | repin | repin | ← | ← | ← | ← | ← |
//! | retry | retry | ← | ← | ← | ← | ← |
//! | unclear | retry, the second time as give up | ← | ← | ← | ← | ← |
//! | give up | end, or retry a transient HTTP status | ← | ← | ← | ← | next method, if any |
//!
//! Calls that include one to the account lens run a lens as well: they use the next method where agents do.
//!
//! A message alone tells little of what a node lacks. Before the table's row counts, other ways to ask are
//! tried where possible. Any error of a read by hash (the second, if it is one to retry) may mean that the
//! node takes no hashes (EIP-1898), until it has answered one: pin by number. An error for a whole batch, or
//! for each request, may be about its size, until one as large was answered: halve the batch.

use super::batch::Job;
use crate::eth::rpc::{
    ErrorPayload,
    read_error::{Action, classify, is_long_request, is_timeout, is_unclear, names_no_cause},
};

/// The kind of request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestKind {
    /// A block header, or a whole batch without jobs.
    Header,
    OneCall,
    SeveralCalls,
    /// A call that failed without a reason, sent through Multicall3 and directly.
    Suspect,
    Direct,
    Agents,
}

impl RequestKind {
    pub(super) const fn of(job: &Job) -> Self {
        match job {
            Job::Calls(calls) if calls.len() > 1 => Self::SeveralCalls,
            Job::Calls(_) => Self::OneCall,
            Job::Suspect(_) => Self::Suspect,
            Job::Direct(_) => Self::Direct,
            Job::Walk(..) => Self::Agents,
        }
    }
}

/// Reaction to an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recovery {
    /// Split the work.
    Cut,
    /// Record the result as too heavy.
    TooHeavy,
    /// Record the revert as the result.
    Reverted,
    /// Walk agents by the next method.
    NextMethod,
    HalveBatch,
    PinByNumber,
    Repin,
    Retry,
    /// Rule the endpoint out.
    End,
}

/// Circumstances of an error.
#[derive(Clone, Copy, Debug)]
pub(super) struct ErrorContext {
    /// The HTTP status of the reply.
    pub(super) status: u16,
    /// Requests in the batch.
    pub(super) requests: usize,
    /// One error for the whole batch, without a request's id.
    pub(super) is_for_all: bool,
    /// No request of the batch has a result, and the node has answered none of this size.
    pub(super) may_be_batch: bool,
    /// The calls were pinned by block hash.
    pub(super) by_hash: bool,
    /// The calls were pinned by block hash, and the node may not take hashes.
    pub(super) tries_numbers: bool,
    /// The node gave an error before that was taken for a transient one.
    pub(super) has_refused: bool,
    /// The query is about a certain block.
    pub(super) is_at_block: bool,
    /// The request runs a contract that is not deployed, and there is another method of doing so.
    pub(super) runs_lens: bool,
}

/// Looks up the reaction in the table.
pub(super) fn recovery(error: &ErrorPayload, asked: RequestKind, context: ErrorContext) -> Recovery {
    let ErrorContext {
        status,
        requests,
        is_for_all,
        may_be_batch,
        by_hash,
        tries_numbers,
        has_refused,
        is_at_block,
        runs_lens,
    } = context;
    let is_unclear = is_unclear(error);
    let may_pass = may_pass(status);
    let action = match classify(error) {
        // RFC 9110: the content of the request is too large.
        action if status == 413 && action != Action::Split => Action::SmallerBatch,
        action => action,
    };
    match (action, asked) {
        (Action::SmallerBatch, _) if requests > 1 => Recovery::HalveBatch,
        (Action::SmallerBatch, _) if runs_lens && (status == 413 || is_long_request(error)) => {
            Recovery::NextMethod
        }
        // An error for a whole batch may be caused by its size.
        (Action::Split, _) if is_for_all && requests > 1 => Recovery::HalveBatch,
        (Action::GiveUp, _) if is_for_all && requests > 1 && (!may_pass || has_refused) => {
            Recovery::HalveBatch
        }
        (Action::Repin, _) => Recovery::Repin,
        (Action::Retry, _) if !has_refused => Recovery::Retry,
        (_, _) if tries_numbers && !is_timeout(error) => Recovery::PinByNumber,
        (Action::Retry, _) if (is_for_all || may_be_batch) && requests > 1 && names_no_cause(error) => {
            Recovery::HalveBatch
        }
        (Action::GiveUp, _) if may_be_batch => Recovery::HalveBatch,
        (Action::PinByNumber, _) if by_hash => Recovery::PinByNumber,
        (Action::Revert, RequestKind::Direct) => Recovery::Reverted,
        (Action::Revert, _) if runs_lens => Recovery::NextMethod,
        (Action::Revert, RequestKind::Header | RequestKind::OneCall) => Recovery::End,
        (
            Action::Revert | Action::Split | Action::SmallerBatch,
            RequestKind::SeveralCalls | RequestKind::Agents,
        ) => Recovery::Cut,
        (Action::Split | Action::SmallerBatch, RequestKind::Header) => Recovery::End,
        (Action::Revert | Action::Split | Action::SmallerBatch, _) => Recovery::TooHeavy,
        (Action::Retry, _) if is_unclear && !is_for_all && runs_lens => Recovery::NextMethod,
        (Action::Retry, _) if is_unclear && is_at_block => Recovery::End,
        (Action::Retry, _) => Recovery::Retry,
        (Action::GiveUp, _) if !is_for_all && runs_lens => Recovery::NextMethod,
        (Action::GiveUp, _) if may_pass => Recovery::Retry,
        (Action::PinByNumber | Action::GiveUp, _) => Recovery::End,
    }
}

/// Returns whether a status is transient: RFC 9110 section 15, RFC 6585 for 429.
pub(super) const fn may_pass(status: u16) -> bool {
    matches!(status, 408 | 425 | 429 | 500..)
}

/// Returns whether a status says that the endpoint is busy or unreachable, whatever the request.
pub(super) const fn is_overload(status: u16) -> bool {
    may_pass(status) && !matches!(status, 500 | 501)
}

/// Returns whether a status without JSON-RPC may be about the size of a batch, or about batches at all.
pub(super) const fn is_about_the_batch(status: u16) -> bool {
    matches!(status, 400 | 403..=499 | 501) && !matches!(status, 408 | 425 | 429)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [RequestKind; 6] = [
        RequestKind::Header,
        RequestKind::OneCall,
        RequestKind::SeveralCalls,
        RequestKind::Suspect,
        RequestKind::Direct,
        RequestKind::Agents,
    ];
    const ALONE: ErrorContext = ErrorContext {
        status: 200,
        requests: 1,
        is_for_all: false,
        may_be_batch: false,
        by_hash: true,
        tries_numbers: false,
        has_refused: false,
        is_at_block: false,
        runs_lens: false,
    };

    fn row(message: &str, context: ErrorContext) -> [Recovery; 6] {
        let code = if message == "invalid opcode" { -32_603 } else { -32_000 };
        let error = ErrorPayload { code, message: message.to_owned().into(), data: None };
        ALL.map(|asked| {
            let runs_lens = context.runs_lens || asked == RequestKind::Agents;
            recovery(&error, asked, ErrorContext { runs_lens, ..context })
        })
    }

    #[test]
    fn the_table_is_as_documented() {
        use Recovery::{Cut, End, HalveBatch, NextMethod, PinByNumber, Repin, Retry, Reverted, TooHeavy};
        let several = ErrorContext { requests: 3, ..ALONE };
        let numbered = ErrorContext { by_hash: false, ..ALONE };
        let busy = ErrorContext { status: 503, ..ALONE };
        let account = ErrorContext { runs_lens: true, ..ALONE };
        let hashed = ErrorContext { tries_numbers: true, ..ALONE };
        let again = ErrorContext { has_refused: true, ..ALONE };
        let tries_numbers = ErrorContext { tries_numbers: true, ..again };
        let too_much = [End, TooHeavy, Cut, TooHeavy, TooHeavy, Cut];
        let too_long = [End, TooHeavy, Cut, TooHeavy, TooHeavy, NextMethod];
        let given_up = [End, End, End, End, End, NextMethod];
        let by_account = [NextMethod, NextMethod, NextMethod, NextMethod, Reverted, NextMethod];
        for (message, context, recoveries) in [
            ("execution reverted", several, [End, End, Cut, TooHeavy, Reverted, NextMethod]),
            ("execution reverted", account, by_account),
            ("execution reverted", hashed, [PinByNumber; 6]),
            ("out of gas", several, too_much),
            ("out of gas", hashed, [PinByNumber; 6]),
            ("batch too large", ALONE, too_much),
            ("batch too large", several, [HalveBatch; 6]),
            ("payload too big", several, [HalveBatch; 6]),
            ("payload too big", ALONE, too_long),
            ("no", ErrorContext { status: 413, ..ALONE }, too_long),
            ("request timed out", tries_numbers, [Retry; 6]),
            ("cannot unmarshal object", ALONE, [PinByNumber; 6]),
            ("cannot unmarshal object", numbered, [End; 6]),
            ("header not found", several, [Repin; 6]),
            ("rate limit", several, [Retry; 6]),
            ("no such method", several, given_up),
            ("no such method", busy, [Retry, Retry, Retry, Retry, Retry, NextMethod]),
            ("no such method", account, [NextMethod; 6]),
            ("no such method", hashed, [PinByNumber; 6]),
            ("invalid opcode", several, [Retry; 6]),
            ("invalid opcode", again, [Retry, Retry, Retry, Retry, Retry, NextMethod]),
            ("invalid opcode", tries_numbers, [PinByNumber; 6]),
            ("invalid opcode", ErrorContext { is_at_block: true, ..again }, given_up),
            ("rate limit", hashed, [Retry; 6]),
            ("rate limit", again, [Retry; 6]),
            ("rate limit", tries_numbers, [PinByNumber; 6]),
        ] {
            assert_eq!(row(message, context), recoveries, "{message}, {context:?}");
        }
    }

    #[test]
    fn an_error_for_a_whole_batch_may_be_about_its_size() {
        let whole = ErrorContext { requests: 3, is_for_all: true, ..ALONE };
        let again = ErrorContext { has_refused: true, ..whole };
        let busy = ErrorContext { status: 503, ..whole };
        // Under each request's id, where the node has answered no batch of this size.
        let each = ErrorContext { requests: 3, may_be_batch: true, ..ALONE };
        for (message, context, recovery) in [
            ("out of gas", whole, Recovery::HalveBatch),
            ("no such method", whole, Recovery::HalveBatch),
            ("no such method", ErrorContext { status: 401, ..whole }, Recovery::HalveBatch),
            ("no such method", busy, Recovery::Retry),
            ("no such method", ErrorContext { has_refused: true, ..busy }, Recovery::HalveBatch),
            ("invalid opcode", whole, Recovery::Retry),
            ("invalid opcode", again, Recovery::HalveBatch),
            ("rate limit", again, Recovery::Retry),
            ("no such method", each, Recovery::HalveBatch),
            ("no such method", ErrorContext { tries_numbers: true, ..each }, Recovery::PinByNumber),
        ] {
            assert_eq!(row(message, context), [recovery; 6], "{message}, {context:?}");
        }
    }
}
