//! Redaction of RPC endpoints: only scheme, host and port are public. Providers put their keys into path,
//! query and user info, and quote them in error texts.
//!
//! A host that knows the URLs removes their secrets from texts ([`Redactor`]). Code that does not know the
//! URLs removes every word that may be a secret (`without_secrets`).

use std::fmt;

use percent_encoding::percent_decode_str;

/// Shorter parts are words such as `v2` or `rpc`, not secrets; replacing them would garble messages.
const SHORTEST_SECRET: usize = 6;

/// The longest message, in characters.
const LONGEST_MESSAGE: usize = 400;

/// Removes endpoints' secrets from texts.
#[derive(Clone, Default)]
pub struct Redactor {
    secrets: Vec<String>,
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor").finish_non_exhaustive()
    }
}

impl Redactor {
    /// Creates a redactor for texts that may quote any of these URLs.
    pub fn new<'a>(urls: impl IntoIterator<Item = &'a str>) -> Self {
        let mut secrets: Vec<String> = Vec::new();
        // Longest first: a whole URL goes before its parts. They are inserted in order, because a sort would
        // be more code for web pages to load.
        for secret in urls.into_iter().flat_map(pieces) {
            let at = secrets.partition_point(|known| known.len() >= secret.len());
            secrets.insert(at, secret);
        }
        Self { secrets }
    }

    /// Returns `text` without the secrets, cut to the longest message.
    pub fn clean(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.secrets {
            text = text.replace(secret.as_str(), "***");
        }
        if text.chars().count() > LONGEST_MESSAGE {
            text = text.chars().take(LONGEST_MESSAGE).chain("...".chars()).collect();
        }
        text
    }
}

/// Returns a node's message without the words that may be URLs or keys, cut to 200 characters. It needs no
/// list of secrets, and removes more than a [`Redactor`].
pub(crate) fn without_secrets(message: &str) -> String {
    let is_plain = |part: &str| part.len() <= 12 && part.bytes().all(|byte| byte.is_ascii_lowercase());
    let is_harmless = |word: &&str| {
        let bare = word.trim_matches(|letter: char| letter.is_ascii_punctuation());
        let digits =
            bare.strip_prefix("0x").filter(|digits| [40, 64].contains(&digits.len())).unwrap_or(bare);
        // Numbers, addresses and hashes.
        let is_number = bare.bytes().all(|byte| byte.is_ascii_digit())
            || (digits.len() < bare.len() && digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let key_like = bare.len() >= 20 && bare.bytes().any(|byte| byte.is_ascii_digit()) && !is_number;
        // Of two ordinary words, as in "does not exist/is not available".
        let is_choice = bare.split_once('/').is_some_and(|(one, other)| is_plain(one) && is_plain(other));
        !word.contains('=') && !key_like && (is_choice || !word.contains('/'))
    };
    let words: Vec<&str> = message.split_whitespace().filter(is_harmless).collect();
    words.join(" ").chars().take(200).collect()
}

/// Returns the public part of an RPC endpoint's URL: scheme, host and port.
pub fn public_origin(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let host = authority(rest).rsplit('@').next().unwrap_or_default();
    if scheme.is_empty() { host.to_string() } else { [scheme, "://", host].concat() }
}

fn authority(rest: &str) -> &str {
    rest.split(['/', '?', '#', '\\']).next().unwrap_or_default()
}

/// Returns the parts of a URL that may be secrets, each also percent-decoded.
fn pieces(url: &str) -> Vec<String> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = authority(rest);
    let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
    let path_and_query = rest.strip_prefix(authority).unwrap_or_default();
    let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
    let whole = [url, user, path_and_query, path, query];
    let values = query.split(['&', '#']).map(|pair| pair.split_once('=').map_or(pair, |(_, value)| value));
    user.split(':')
        .chain(path.split(['/', '#']))
        .chain(values)
        .chain(whole)
        .flat_map(|piece| [piece.to_owned(), percent_decode_str(piece).decode_utf8_lossy().into_owned()])
        .filter(|piece| piece.len() >= SHORTEST_SECRET)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_nodes_message_shows_neither_urls_nor_keys() {
        let message = "project 0123456789abcdef0123456789abcdef at https://rpc.example/v2/k3y?token=k3y (token=k3y) is over its limit";
        assert_eq!(without_secrets(message), "project at is over its limit");
        let hash = format!("0x{}", "5d".repeat(32));
        for message in [
            "the method eth_getProof does not exist/is not available".to_owned(),
            format!("Received invalid block tag {hash}. Latest block number is 36"),
            "18446744073709551615 could not be found".to_owned(),
        ] {
            assert_eq!(without_secrets(&message), message);
        }
        let pieces = "see rpc/s3cretk3y, /v2/abc and 0123456789abcdef0123456789abcdef.";
        assert_eq!(without_secrets(pieces), "see and");
        assert!(Redactor::default().clean(&"ä".repeat(10_000)).chars().count() < 410, "endless ones are cut");
    }

    #[test]
    fn of_an_endpoint_only_scheme_and_host_are_shown() {
        for (url, shown) in [
            ("https://base.example/v2/SECRET?key=SECRET", "https://base.example"),
            ("https://user:SECRET@base.example:8545", "https://base.example:8545"),
            ("https://base.example?SECRET", "https://base.example"),
            ("http://127.0.0.1:8545", "http://127.0.0.1:8545"),
            ("http://[::1]:8545/#SECRET", "http://[::1]:8545"),
            ("base.example/SECRET", "base.example"),
        ] {
            assert_eq!(public_origin(url), shown);
        }
    }

    #[test]
    fn no_piece_of_an_endpoint_survives() {
        let url = "https://user:passw0rd@rpc.example:8443/v2/s3cr3tkey?apikey=t0p%2Dsecret&x=1#fragm3nt";
        let redactor = Redactor::new([url]);
        for text in [
            format!("error sending request for url ({url})"),
            "invalid project id s3cr3tkey".to_owned(),
            "key t0p-secret is over its quota, or t0p%2Dsecret".to_owned(),
            "path /v2/s3cr3tkey not found, passw0rd? fragm3nt!".to_owned(),
        ] {
            let clean = redactor.clean(&text);
            for secret in ["s3cr3tkey", "t0p-secret", "t0p%2Dsecret", "passw0rd", "fragm3nt"] {
                assert!(!clean.contains(secret), "{clean}");
            }
        }
        assert_eq!(redactor.clean("nonce too low"), "nonce too low");
    }

    proptest! {
        #[test]
        fn any_url_is_survived(url: String, text: String) {
            public_origin(&url);
            Redactor::new([url.as_str()]).clean(&text);
        }
    }
}
