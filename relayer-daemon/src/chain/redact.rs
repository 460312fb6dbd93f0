//! What may be said about an RPC endpoint: its host. Providers put their keys into path, query and user info,
//! and quote them in error texts.

use reqwest::Url;

/// Shorter pieces are words such as `v2` or `rpc`, not secrets; replacing them would garble messages.
const SHORTEST_SECRET: usize = 6;

/// Knows an endpoint's secrets well enough to strike them out.
#[derive(Clone)]
pub struct Redactor {
    secrets: Vec<String>,
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redactor").finish_non_exhaustive()
    }
}

impl Redactor {
    /// For messages that may quote any of these endpoints.
    #[must_use]
    pub fn new(urls: &[Url]) -> Self {
        let mut secrets: Vec<String> = urls.iter().flat_map(pieces).collect();
        // Longest first: a whole URL goes before the parts of it.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets.dedup();
        Self { secrets }
    }

    /// `text` without any endpoint's secrets, and not longer than an error message need be.
    #[must_use]
    pub fn clean(&self, text: &str) -> String {
        const LONGEST: usize = 400;
        let mut text = text.to_owned();
        for secret in &self.secrets {
            text = text.replace(secret.as_str(), "***");
        }
        if text.chars().count() > LONGEST {
            text = text.chars().take(LONGEST).chain("...".chars()).collect();
        }
        text
    }
}

/// What of an endpoint may be shown: scheme, host and port.
#[must_use]
pub fn label(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{}{port}", url.scheme(), url.host_str().unwrap_or_default())
}

fn pieces(url: &Url) -> Vec<String> {
    let path = url.path().split('/').map(str::to_owned);
    let query = url.query_pairs().map(|(_, value)| value.into_owned());
    let raw_query = url.query().into_iter().map(str::to_owned);
    let user = [url.username().to_owned(), url.password().unwrap_or_default().to_owned()];
    path.chain(query)
        .chain(raw_query)
        .chain(user)
        .chain([url.as_str().to_owned(), url.path().to_owned()])
        .filter(|piece| piece.len() >= SHORTEST_SECRET)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_piece_of_an_endpoint_survives() {
        let url: Url =
            "https://user:passw0rd@rpc.example:8443/v2/s3cr3tkey?apikey=t0psecret&x=1".parse().unwrap();
        assert_eq!(label(&url), "https://rpc.example:8443");
        let redactor = Redactor::new(std::slice::from_ref(&url));
        for text in [
            format!("error sending request for url ({url})"),
            "invalid project id s3cr3tkey".to_owned(),
            "key t0psecret is over its quota".to_owned(),
            "path /v2/s3cr3tkey not found, passw0rd?".to_owned(),
        ] {
            let clean = redactor.clean(&text);
            for secret in ["s3cr3tkey", "t0psecret", "passw0rd"] {
                assert!(!clean.contains(secret), "{clean}");
            }
        }
        assert_eq!(redactor.clean("nonce too low"), "nonce too low");
    }

    #[test]
    fn endless_messages_are_cut() {
        let redactor = Redactor::new(&[]);
        assert!(redactor.clean(&"ä".repeat(10_000)).chars().count() < 410);
    }
}
