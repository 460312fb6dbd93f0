//! The terms on which a gate takes an answer of the read API as a verdict: its registry, and a recent block.

use alloy_primitives::Address;

use super::verdict::Verdict;
use crate::eth::timestamp::Timestamp;

/// Seconds by which the clocks of chain and gate may differ.
const BLOCK_SKEW: u64 = 60;

/// Seconds for which the API's own caches may keep a verdict.
const API_TTL: u64 = 60;

/// The registry that answers of the read API have to be about, and their greatest age.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiTerms {
    registry: String,
    max_age_seconds: u64,
}

impl ApiTerms {
    /// The header of an answer that names its registry.
    pub const REGISTRY_HEADER: &str = "kya-registry";
    /// The longest answer to read, in bytes: a scope may be long.
    pub const LONGEST_ANSWER: usize = 1 << 20;

    /// Accepts answers about `registry`, `eip155:<chain>:<registry>` with the address in lower case, of a
    /// block at most `max_head_age_seconds` older than the API's own caches allow, and at most a minute ahead
    /// of now; 0 accepts any time.
    pub const fn new(registry: String, max_head_age_seconds: u64) -> Self {
        let max_age_seconds = match max_head_age_seconds {
            0 => 0,
            seconds => seconds.saturating_add(API_TTL),
        };
        Self { registry, max_age_seconds }
    }

    /// Checks the registry of an answer by the value of its [`REGISTRY_HEADER`](Self::REGISTRY_HEADER).
    ///
    /// # Errors
    ///
    /// A text that names the answer's registry.
    pub fn check_registry(&self, header: Option<&str>) -> Result<(), String> {
        match header {
            Some(registry) if registry == self.registry => Ok(()),
            Some(other) => Err(format!("an answer about {other}, and not about {}", self.registry)),
            None => {
                Err("an answer without KYA-Registry: the API has no CHAIN_ID, or is an older one".to_owned())
            }
        }
    }

    /// Reads the verdict on a wallet from the body of an answer, at `now`.
    ///
    /// # Errors
    ///
    /// A text that says why it is no verdict.
    pub fn verdict(&self, body: &[u8], wallet: Address, now: Timestamp) -> Result<Verdict, String> {
        let verdict = Verdict::from_api(body, wallet).ok_or("an answer that is no verdict")?;
        let read_at = verdict.as_of.block_timestamp.map_or(0, Timestamp::seconds);
        let age = now.seconds().saturating_sub(read_at);
        if self.max_age_seconds > 0 && age > self.max_age_seconds {
            return Err(format!("a verdict of a block that is {age} seconds old"));
        }
        if self.max_age_seconds > 0 && read_at > now.seconds().saturating_add(BLOCK_SKEW) {
            return Err("a verdict of a block that is yet to come".to_owned());
        }
        Ok(verdict)
    }
}
