//! What to do about a node's error: one table, by what the error [calls for](crate::eth::rpc::read_error) and what was asked.
//!
//! | | header | one call | several calls | suspect | direct call | agents |
//! |---|---|---|---|---|---|---|
//! | revert | end | end | cut | too heavy | reverted | cut |
//! | split; smaller batch, of one request | end | too heavy | cut | too heavy | too heavy | cut |
//! | smaller batch, of several requests | halve the batch | ← | ← | ← | ← | ← |
//! | pin by number | pin by number; end where it was | ← | ← | ← | ← | ← |
//! | repin | repin | ← | ← | ← | ← | ← |
//! | retry | ask again | ← | ← | ← | ← | ← |
//! | give up | end, or ask again where the HTTP status may pass | ← | ← | ← | ← | next method, if there is one |

use super::batch::Job;
use crate::{
    chain::lens::Method,
    eth::rpc::{
        ErrorPayload,
        read_error::{Action, classify},
    },
};

/// What was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// A block header, or nothing but a batch as a whole.
    Header,
    OneCall,
    SeveralCalls,
    /// A call that failed without a reason, through Multicall3 and directly.
    Suspect,
    Direct,
    Agents,
}

impl Asked {
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

/// What to do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// The same in smaller pieces.
    Cut,
    /// Nobody can read it: an answer of its own kind.
    TooHeavy,
    /// The contract's answer.
    Reverted,
    /// The next way to walk agents.
    NextMethod,
    HalveBatch,
    PinByNumber,
    Repin,
    AskAgain,
    /// This endpoint will not answer.
    End,
}

/// How the error came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Circumstances {
    /// The HTTP status of the reply.
    pub(super) status: u16,
    /// Requests in the batch.
    pub(super) requests: usize,
    /// One error for the whole batch, under nobody's id.
    pub(super) is_for_all: bool,
    /// The calls were pinned by block hash.
    pub(super) by_hash: bool,
    pub(super) method: Method,
}

/// The table.
pub(super) fn remedy(error: &ErrorPayload, asked: Asked, circumstances: Circumstances) -> Remedy {
    let Circumstances { status, requests, is_for_all, by_hash, method } = circumstances;
    match (classify(error), asked) {
        (Action::SmallerBatch, _) if requests > 1 => Remedy::HalveBatch,
        // Whatever is wrong with a batch as a whole may be its size.
        (Action::Split, _) if is_for_all && requests > 1 => Remedy::HalveBatch,
        (Action::GiveUp, _) if is_for_all && requests > 1 && !may_pass(status) && !is_denied(status) => {
            Remedy::HalveBatch
        }
        (Action::Revert, Asked::Direct) => Remedy::Reverted,
        (Action::Revert, Asked::Header | Asked::OneCall) => Remedy::End,
        (Action::Revert | Action::Split | Action::SmallerBatch, Asked::SeveralCalls | Asked::Agents) => {
            Remedy::Cut
        }
        (Action::Split | Action::SmallerBatch, Asked::Header) => Remedy::End,
        (Action::Revert | Action::Split | Action::SmallerBatch, _) => Remedy::TooHeavy,
        (Action::PinByNumber, _) if by_hash => Remedy::PinByNumber,
        (Action::Repin, _) => Remedy::Repin,
        (Action::Retry, _) => Remedy::AskAgain,
        (Action::GiveUp, Asked::Agents) if !is_for_all && method != Method::Multicall => Remedy::NextMethod,
        (Action::GiveUp, _) if may_pass(status) => Remedy::AskAgain,
        (Action::PinByNumber | Action::GiveUp, _) => Remedy::End,
    }
}

/// Whether a status tells of a failure that may pass: RFC 9110 section 15, RFC 6585 for 429.
pub(super) const fn may_pass(status: u16) -> bool {
    matches!(status, 408 | 425 | 429 | 500..)
}

/// Whether a status is about who asks, and not about what.
const fn is_denied(status: u16) -> bool {
    matches!(status, 401..=403)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Asked; 6] =
        [Asked::Header, Asked::OneCall, Asked::SeveralCalls, Asked::Suspect, Asked::Direct, Asked::Agents];
    const ALONE: Circumstances = Circumstances {
        status: 200,
        requests: 1,
        is_for_all: false,
        by_hash: true,
        method: Method::Override,
    };

    fn row(message: &str, circumstances: Circumstances) -> [Remedy; 6] {
        let error = ErrorPayload { code: -32_000, message: message.to_owned().into(), data: None };
        ALL.map(|asked| remedy(&error, asked, circumstances))
    }

    #[test]
    fn the_table_is_as_documented() {
        use Remedy::{AskAgain, Cut, End, HalveBatch, NextMethod, PinByNumber, Repin, Reverted, TooHeavy};
        let several = Circumstances { requests: 3, ..ALONE };
        let numbered = Circumstances { by_hash: false, ..ALONE };
        let busy = Circumstances { status: 503, ..ALONE };
        let too_much = [End, TooHeavy, Cut, TooHeavy, TooHeavy, Cut];
        for (message, circumstances, remedies) in [
            ("execution reverted", several, [End, End, Cut, TooHeavy, Reverted, Cut]),
            ("out of gas", several, too_much),
            ("batch too large", ALONE, too_much),
            ("batch too large", several, [HalveBatch; 6]),
            ("cannot unmarshal object", ALONE, [PinByNumber; 6]),
            ("cannot unmarshal object", numbered, [End; 6]),
            ("header not found", several, [Repin; 6]),
            ("rate limit", several, [AskAgain; 6]),
            ("no such method", several, [End, End, End, End, End, NextMethod]),
            ("no such method", busy, [AskAgain, AskAgain, AskAgain, AskAgain, AskAgain, NextMethod]),
        ] {
            assert_eq!(row(message, circumstances), remedies, "{message}, {circumstances:?}");
        }
    }

    #[test]
    fn an_error_for_a_whole_batch_may_be_about_its_size() {
        let whole = Circumstances { requests: 3, is_for_all: true, ..ALONE };
        for message in ["out of gas", "no such method"] {
            assert_eq!(row(message, whole), [Remedy::HalveBatch; 6], "{message}");
        }
        let denied = Circumstances { status: 401, ..whole };
        assert_eq!(row("no such method", denied), [Remedy::End; 6], "who asks is not let in");
        let busy = Circumstances { status: 503, ..whole };
        assert_eq!(row("no such method", busy), [Remedy::AskAgain; 6]);
    }
}
