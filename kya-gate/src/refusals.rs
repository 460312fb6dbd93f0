//! Recent refusals. nginx asks twice about a refused request, the second time for the body: it gets the first
//! answer, without another read of the account.

use std::{num::NonZeroUsize, sync::Mutex, time::Duration};

use alloy_primitives::{B256, Keccak256};
use host_kit::native::lock;
use lru::LruCache;
use registry_core::gate::{Outcome, Request};
use tokio::time::Instant;

/// The refusals remembered at once; the least recently used are forgotten first.
const REFUSALS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1_023);
/// The time for which an outcome is given again.
const HOLDS: Duration = Duration::from_secs(5);

/// Outcomes of requests that were not admitted.
#[derive(Debug)]
pub struct Refusals(Mutex<LruCache<B256, (Instant, Outcome)>>);

impl Default for Refusals {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(REFUSALS)))
    }
}

impl Refusals {
    /// Remembers the refusal of a request with a signature; others cost no read.
    pub fn remember(&self, policy: &str, request: &Request<'_>, outcome: &Outcome) {
        let is_costly =
            matches!(outcome, Outcome::Refused(_) | Outcome::Denied(..) | Outcome::Unavailable(_));
        if let Some(key) = key(policy, request).filter(|_| is_costly) {
            let mut refusals = lock(&self.0);
            refusals.put(key, (Instant::now(), outcome.clone()));
        }
    }

    /// Returns the refusal of the same request in the last seconds.
    pub fn find(&self, policy: &str, request: &Request<'_>) -> Option<Outcome> {
        let key = key(policy, request)?;
        let mut refusals = lock(&self.0);
        let (since, outcome) = refusals.get(&key)?;
        (since.elapsed() < HOLDS).then(|| outcome.clone())
    }
}

/// Hashes a request; `None` without a signature.
fn key(policy: &str, request: &Request<'_>) -> Option<B256> {
    if !request.has("signature") {
        return None;
    }
    let mut hash = Keccak256::new();
    // Each text with its length: no two requests give the same bytes.
    let mut add = |text: &[u8]| {
        hash.update((text.len() as u64).to_be_bytes());
        hash.update(text);
    };
    for text in [policy, request.method, request.target] {
        add(text.as_bytes());
    }
    for (name, value) in request.fields {
        if matches!(
            *name,
            "signature" | "signature-input" | "content-digest" | "content-type" | "liability-acceptance"
        ) {
            add(name.as_bytes());
            add(value);
        }
    }
    Some(hash.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;
    use registry_core::gate::{Content, Origin, RefusalCode, RequestFault};

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_given_again_for_the_same_request_and_only_for_seconds() {
        let (refusals, origin) = (Refusals::default(), Origin::parse("https://api.example").unwrap());
        let request = |target: &'static str, fields: &'static [(&'static str, &'static [u8])]| Request {
            method: "GET",
            origin: &origin,
            target,
            fields,
            content: Content::Whole(b""),
        };
        let signed = request("/a", &[("signature", b"a=:AAAA:"), ("accept", b"*/*")]);
        let refused = Outcome::Refused(RefusalCode::BadSignature);
        refusals.remember("api", &signed, &refused);
        assert_eq!(refusals.find("api", &signed), Some(refused.clone()));
        let with_less = request("/a", &[("signature", b"a=:AAAA:")]);
        assert_eq!(refusals.find("api", &with_less), Some(refused.clone()), "nginx asks with fewer headers");
        for (policy, other) in [
            ("other", signed.clone()),
            ("api", request("/b", &[("signature", b"a=:AAAA:")])),
            ("api", request("/a", &[("signature", b"a=:AAAB:")])),
            ("api", request("/a", &[("signature", b"a=:AAAA:"), ("content-type", b"a")])),
        ] {
            assert_eq!(refusals.find(policy, &other), None, "{policy} {other:?}");
        }
        tokio::time::advance(HOLDS).await;
        assert_eq!(refusals.find("api", &signed), None);
        let unsigned = request("/a", &[]);
        refusals.remember("api", &unsigned, &refused);
        refusals.remember("api", &signed, &Outcome::Faulty(RequestFault::ReservedHeader));
        assert_eq!((refusals.find("api", &unsigned), refusals.find("api", &signed)), (None, None));
    }
}
