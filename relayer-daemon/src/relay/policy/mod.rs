//! The sponsorship policy: API keys, a deny list, a rule for requests without a key, and a decision webhook.
//!
//! Without a policy file every request is taken, within the daemon's limits. A request with a key has the
//! key's limits in place of those per address and per signer, and counts for no address. [`file`] reads the
//! policy, [`decision`] asks the webhook; the gas that a key uses in a day is in the store.
//!
//! A reload replaces the policy as a whole. A request is judged by the policy it arrived under, and a file
//! with an error changes nothing.

pub mod decision;
mod file;

use std::{
    collections::HashSet,
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
};

use alloy::primitives::Address;
use registry_core::forward::ForwardRequest;
use thiserror::Error;

pub use file::WebhookTarget;

use super::{
    functions::{RegistryFunction, RelayedFunctions},
    rate_limits::RateLimit,
};
use crate::{
    outcome::{ErrorCode, Failure},
    signatures::{KeyHash, short_hash},
};

/// An error in a policy file. Has no secret in it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{field}: {rule}")]
pub struct PolicyError {
    /// The field, or the place in the file.
    pub field: String,
    /// The rule that it breaks.
    pub rule: String,
}

/// The rule for requests without an API key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WithoutKey {
    /// All of them are taken, within the daemon's limits.
    Limits,
    /// None is taken.
    Off,
}

/// An API key with what it sponsors.
#[derive(Debug)]
pub struct ApiKey {
    /// Its name, for the journal and the log.
    pub name: String,
    /// The hashes of the key; several while it is exchanged.
    hashes: Vec<KeyHash>,
    /// Signers that the key sponsors; `None` for any.
    signers: Option<HashSet<Address>>,
    functions: RelayedFunctions,
    /// Requests per hour.
    rate: Arc<RateLimit<()>>,
    /// The most gas of its relays in 24 hours.
    pub gas_per_day: Option<u64>,
    /// The webhook that is told what becomes of its relays.
    pub webhook: Option<WebhookTarget>,
}

/// The sponsorship policy.
#[derive(Debug)]
pub struct Policy {
    /// The hash of the file and the secrets.
    hash: String,
    /// False without a file: keys mean nothing then.
    from_file: bool,
    without_key: WithoutKey,
    /// Percent of budget and queue for all requests without a key together.
    without_key_share: u8,
    deny: HashSet<Address>,
    keys: Vec<Arc<ApiKey>>,
    /// The webhook that decides on each request.
    pub decision: Option<WebhookTarget>,
}

impl Policy {
    /// Returns the policy without a file: all requests, within the daemon's limits.
    pub fn open() -> Self {
        Self {
            hash: short_hash(&[]),
            from_file: false,
            without_key: WithoutKey::Limits,
            without_key_share: 100,
            deny: HashSet::new(),
            keys: Vec::new(),
            decision: None,
        }
    }

    /// Returns the hash of the file and of its secrets: daemons with the same one sponsor the same.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// Finds a request's API key by its `Authorization` header; `None` without one, or if keys mean nothing.
    ///
    /// # Errors
    /// 401 `API_KEY_REQUIRED`, `API_KEY_INVALID`.
    pub fn identify(&self, authorization: Option<&str>) -> Result<Option<Arc<ApiKey>>, Failure> {
        match (self.from_file, authorization) {
            (false, _) => Ok(None),
            (true, None) if self.without_key == WithoutKey::Off => {
                Err(Failure::of(ErrorCode::ApiKeyRequired))
            }
            (true, None) => Ok(None),
            (true, Some(header)) => {
                let key = bearer(header).and_then(|presented| self.find(presented));
                key.map(Some).ok_or(Failure::of(ErrorCode::ApiKeyInvalid))
            }
        }
    }

    /// Finds the key with this text. Every hash is compared, each in constant time.
    fn find(&self, presented: &str) -> Option<Arc<ApiKey>> {
        let presented = KeyHash::of(presented);
        self.keys.iter().fold(None, |found, key| key.has(&presented).then(|| Arc::clone(key)).or(found))
    }

    /// Checks that an authenticated request is sponsored, by its signer and its function.
    ///
    /// # Errors
    /// 403 `SIGNER_DENIED`, `SIGNER_NOT_SPONSORED`, `FUNCTION_NOT_SPONSORED`.
    pub fn check(&self, key: Option<&ApiKey>, request: &ForwardRequest) -> Result<(), Failure> {
        if self.deny.contains(&request.from) {
            return Err(Failure::of(ErrorCode::SignerDenied));
        }
        let Some(key) = key else { return Ok(()) };
        if key.signers.as_ref().is_some_and(|signers| !signers.contains(&request.from)) {
            return Err(Failure::of(ErrorCode::SignerNotSponsored));
        }
        key.functions.check(&request.data).map_err(|_| Failure::of(ErrorCode::FunctionNotSponsored))
    }

    /// Returns the percentage of the budget, of the queue and of the waiting connections that all requests
    /// without a key may use together; 100 where no request can have a key.
    pub const fn without_key_share(&self) -> u8 {
        self.without_key_share
    }

    /// Returns the webhooks of keys, each with its key's name.
    pub fn webhooks(&self) -> impl Iterator<Item = (&str, &WebhookTarget)> {
        self.keys.iter().filter_map(|key| Some((key.name.as_str(), key.webhook.as_ref()?)))
    }

    /// Keeps what keys were charged before a reload, where their rate is the same.
    fn keep_rates(&mut self, before: &Self) {
        for key in &mut self.keys {
            let same =
                before.keys.iter().find(|old| old.name == key.name && old.rate.count() == key.rate.count());
            if let (Some(old), Some(key)) = (same, Arc::get_mut(key)) {
                key.rate = Arc::clone(&old.rate);
            }
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.from_file {
            return f.write_str("no file: every request, within the limits");
        }
        let without = match self.without_key {
            WithoutKey::Limits => "within the limits",
            WithoutKey::Off => "off",
        };
        let decision = if self.decision.is_some() { ", a decision webhook" } else { "" };
        write!(f, "{} keys, {} denied, without a key: {without}{decision}", self.keys.len(), self.deny.len())
    }
}

impl ApiKey {
    /// Returns whether this is one of its hashes. Each is compared, in constant time.
    fn has(&self, presented: &KeyHash) -> bool {
        self.hashes.iter().filter(|hash| hash.matches(presented)).count() > 0
    }

    /// Charges its rate.
    ///
    /// # Errors
    /// 429 `KEY_RATE_LIMITED`.
    pub fn charge(&self) -> Result<(), Failure> {
        self.rate.charge(&()).map_err(|wait| self.limited(wait))
    }

    /// Returns its requests per hour; 0 for no limit.
    pub fn per_hour(&self) -> u32 {
        self.rate.count()
    }

    /// Creates a 429: too many requests with this key.
    pub fn limited(&self, wait_seconds: u64) -> Failure {
        let message = format!("API key's rate limit exceeded ({}/hour)", self.rate.count());
        Failure::new(ErrorCode::KeyRateLimited, message).retry_after(wait_seconds)
    }
}

/// Returns the token of an `Authorization: Bearer` header (RFC 6750); the scheme's case does not matter.
fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Returns the name of the function that a request calls, for the webhook; empty for an unknown one.
fn function_name(data: &[u8]) -> String {
    let called = RegistryFunction::ALL.iter().find(|function| data.starts_with(&function.selector()));
    called.map(ToString::to_string).unwrap_or_default()
}

/// The policy in force, which a reload replaces.
#[derive(Debug)]
pub struct SharedPolicy {
    path: Option<PathBuf>,
    current: RwLock<Arc<Policy>>,
}

impl SharedPolicy {
    /// Loads the policy from a file; without one, [`Policy::open`].
    pub fn load(path: Option<&Path>) -> Result<Self, PolicyError> {
        let policy = path.map_or_else(|| Ok(Policy::open()), file::read)?;
        Ok(Self { path: path.map(Path::to_owned), current: RwLock::new(Arc::new(policy)) })
    }

    /// Returns the policy in force.
    pub fn current(&self) -> Arc<Policy> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the file again. If it has an error, the policy in force stays.
    pub fn reload(&self) -> Result<Arc<Policy>, PolicyError> {
        let Some(path) = &self.path else { return Ok(self.current()) };
        let mut read = file::read(path)?;
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        read.keep_rates(&current);
        *current = Arc::new(read);
        Ok(Arc::clone(&current))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn acme(rest: &str) -> String {
        format!("[[key]]\nname = \"acme\"\nhash = \"{}\"\nsigners = \"any\"\n{rest}", KeyHash::of("rk_acme"))
    }

    #[test]
    fn a_key_is_found_by_its_hash_all_else_is_refused_and_without_a_file_keys_mean_nothing() {
        for header in [None, Some("Bearer rk_any"), Some("nonsense")] {
            assert!(Policy::open().identify(header).unwrap().is_none());
        }
        let policy = file::parse(&acme("")).unwrap();
        for header in ["Bearer rk_acme", "bearer  rk_acme "] {
            assert_eq!(policy.identify(Some(header)).unwrap().unwrap().name, "acme", "{header}");
        }
        for header in ["", "Bearer", "Bearer ", "Bearer rk_acm", "Basic rk_acme", "rk_acme"] {
            let refused = policy.identify(Some(header)).unwrap_err();
            assert_eq!(refused.code, ErrorCode::ApiKeyInvalid, "{header}");
        }
        assert!(policy.identify(None).unwrap().is_none(), "by default they are taken");
        let shares = ["", "without-key-share = 20\n"]
            .map(|line| file::parse(&format!("{line}{}", acme(""))).unwrap().without_key_share());
        assert_eq!((shares, Policy::open().without_key_share()), ([50, 20], 100));
        let two = acme("")
            .replace("hash =", "hashes =")
            .replace("\"\nsigners", &format!("\", \"{}\"]\nsigners", KeyHash::of("rk_new")));
        let two = file::parse(&two.replace("= \"sha256", "= [\"sha256")).unwrap();
        for header in ["Bearer rk_acme", "Bearer rk_new"] {
            assert_eq!(two.identify(Some(header)).unwrap().unwrap().name, "acme", "{header}");
        }
        let off = file::parse(&format!("without-key = \"off\"\n{}", acme(""))).unwrap();
        assert_eq!(off.identify(None).unwrap_err().code, ErrorCode::ApiKeyRequired);
    }

    #[test]
    fn a_reload_keeps_what_a_key_was_charged_unless_its_rate_changed_and_a_bad_file_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("policy.toml");
        let write = |rest: &str| fs::write(&path, acme(rest)).unwrap();
        write("requests-per-hour = 1");
        let shared = SharedPolicy::load(Some(&path)).unwrap();
        let charge = || shared.current().identify(Some("Bearer rk_acme")).unwrap().unwrap().charge();
        assert_eq!(charge(), Ok(()));
        shared.reload().unwrap();
        assert_eq!(charge().unwrap_err().code, ErrorCode::KeyRateLimited);

        write("requests-per-hour = -1");
        let error = shared.reload().unwrap_err();
        assert!(error.field.contains("requests-per-hour"), "{error}");
        assert_eq!(charge().unwrap_err().code, ErrorCode::KeyRateLimited);

        write("requests-per-hour = 2");
        shared.reload().unwrap();
        assert_eq!(charge(), Ok(()));
    }
}
