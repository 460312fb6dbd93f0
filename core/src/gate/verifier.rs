//! The signatures of one request, tried in the order of the wire.
//!
//! ```text
//! let mut attempts = Attempts::of(&request, &rules, now)?;
//! while let Some(attempt) = attempts.next() {
//!     // The host asks for the account's state, judges it, and spends the nonce.
//!     match host.verify(&attempt).await {
//!         Ok(()) => return Ok(attempt.account),
//!         Err(refusal) => attempts.refuse(refusal),
//!     }
//! }
//! Err(attempts.conclude())
//! ```

use std::collections::VecDeque;

use super::{
    candidate::{self, Attempt, SignatureRules},
    refusal::RefusalCode,
    request::Request,
    structured,
};
use sfv::ListEntry;

/// The longest combined `Signature-Input` and `Signature`.
const FIELD_BYTES: usize = 16 * 1024;
/// The most candidates.
const CANDIDATES: usize = 8;

/// The candidates of a request. A candidate that fails never hides a later one that passes.
#[derive(Debug)]
pub struct Attempts {
    /// Candidates that have not been tried yet.
    left: VecDeque<Result<Attempt, RefusalCode>>,
    first_refusal: Option<RefusalCode>,
    is_unavailable: bool,
}

impl Attempts {
    /// Reads the candidates of a request at the unix second `now`, with all checks that need no account.
    ///
    /// # Errors
    ///
    /// A failure of the whole message: a missing or malformed field, an exceeded limit, no candidate.
    pub fn of(request: &Request<'_>, rules: &SignatureRules, now: u64) -> Result<Self, RefusalCode> {
        let (inputs, signatures) = (field(request, "signature-input"), field(request, "signature"));
        let (inputs, signatures) = (inputs?, signatures?);
        let dictionary =
            |field: &str| structured::dictionary(field).ok_or(RefusalCode::SignatureInputInvalid);
        let (inputs, signatures) = (dictionary(&inputs)?, dictionary(&signatures)?);
        let mut candidates = Vec::new();
        for (label, member) in &inputs {
            let ListEntry::InnerList(input) = member else { continue };
            let dialect = rules.dialects.iter().find(|dialect| dialect.has_signed(&input.params));
            candidates.extend(dialect.map(|dialect| (label.as_str(), input, *dialect)));
        }
        match candidates.len() {
            0 => return Err(RefusalCode::NoAcceptableSignature),
            1..=CANDIDATES => {}
            _ => return Err(RefusalCode::SignatureTooLarge),
        }
        let check = |(label, input, dialect)| {
            candidate::check(request, (label, input), &signatures, dialect, rules, now)
        };
        let left = candidates.into_iter().map(check).collect();
        Ok(Self { left, first_refusal: None, is_unavailable: false })
    }

    /// Returns the next candidate that passed all checks but the account's.
    #[expect(clippy::should_implement_trait, reason = "its caller refuses candidates between two of them")]
    pub fn next(&mut self) -> Option<Attempt> {
        loop {
            match self.left.pop_front()? {
                Ok(attempt) => return Some(attempt),
                Err(refusal) => self.refuse(refusal),
            }
        }
    }

    /// Notes the refusal of the last candidate.
    pub fn refuse(&mut self, refusal: RefusalCode) {
        self.is_unavailable |= refusal == RefusalCode::SignatureVerificationUnavailable;
        self.first_refusal.get_or_insert(refusal);
    }

    /// Returns the refusal of the request once no candidate is left: the first candidate's, unless one could
    /// not be verified.
    pub fn conclude(self) -> RefusalCode {
        if self.is_unavailable {
            return RefusalCode::SignatureVerificationUnavailable;
        }
        self.first_refusal.unwrap_or(RefusalCode::NoAcceptableSignature)
    }
}

/// Returns the combined value of a signature field.
fn field(request: &Request<'_>, name: &str) -> Result<String, RefusalCode> {
    if !request.has(name) {
        return Err(RefusalCode::SignatureMissing);
    }
    let lines = request.fields.iter().filter(|(field, _)| *field == name);
    if lines.map(|(_, line)| line.len()).sum::<usize>() > FIELD_BYTES {
        return Err(RefusalCode::SignatureTooLarge);
    }
    request.field(name).filter(|field| field.len() <= FIELD_BYTES).ok_or(RefusalCode::SignatureInputInvalid)
}
