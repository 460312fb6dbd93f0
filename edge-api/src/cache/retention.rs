//! For how long errors are kept.

use registry_core::{
    api::error::Error, chain::QueryError, host::shared_reads::ReadOutcome, registry::error_code::Code,
};

use crate::log::unix_millis;

/// Milliseconds for which an error is kept that is certain to repeat.
const LASTING_ERROR_MILLIS: u64 = 5_000;

/// For how long an error is kept.
pub(super) fn of_error(error: &Error) -> ReadOutcome {
    match error {
        // True of one block, as answers are: a request that came after the read began needs a newer block.
        Error::Query(QueryError::AgentNotFound(_)) => {
            ReadOutcome::Value { bytes: 0, made_at: unix_millis(), millis: 0 }
        }
        error => ReadOutcome::Failure {
            millis: match error.code() {
                Code::TooLarge | Code::RegistryError => LASTING_ERROR_MILLIS,
                _ => 0,
            },
        },
    }
}
