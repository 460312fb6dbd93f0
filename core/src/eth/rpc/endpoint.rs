//! An operator's list of RPC endpoints: one text of URLs, with their keys and passwords.

use std::fmt;

use base64ct::{Base64, Encoding};
use percent_encoding::percent_decode_str;

use crate::eth::redact::public_origin;

/// The longest list. More endpoints could hardly be tried within one request's deadline.
pub const MOST_ENDPOINTS: usize = 8;

/// One RPC endpoint: its URL and its credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct RpcEndpoint {
    /// The URL without its user part, which `fetch` refuses.
    pub url: String,
    /// The user part as an `Authorization` header (RFC 7617).
    pub authorization: Option<String>,
    listed: String,
}

impl RpcEndpoint {
    /// Parses an HTTP URL, with a user part or without; `None` for any other text.
    pub fn parse(entry: &str) -> Option<Self> {
        let (scheme, rest) = entry.split_once("://")?;
        let authority_end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at_checked(authority_end)?;
        let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        if !matches!(scheme, "http" | "https") || host.is_empty() || host.starts_with(':') {
            return None;
        }
        Some(Self {
            url: [scheme, "://", host, path].concat(),
            authorization: (!user.is_empty()).then(|| basic(user)),
            listed: entry.to_owned(),
        })
    }

    /// Returns the public part of its URL: scheme, host and port.
    pub fn origin(&self) -> String {
        public_origin(&self.url)
    }

    /// Iterates over texts to build a [`Redactor`](crate::eth::redact::Redactor) from.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        let credentials = self.authorization.as_deref().and_then(|header| header.strip_prefix("Basic "));
        [Some(self.listed.as_str()), credentials].into_iter().flatten()
    }
}

impl fmt::Debug for RpcEndpoint {
    /// Shows only the origin: the rest is secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RpcEndpoint").field(&self.origin()).finish()
    }
}

/// Reason why a text is not a list of endpoints. It does not quote the text, which may hold a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// There is no entry.
    #[error("names no endpoint")]
    Empty,
    /// There are more than [`MOST_ENDPOINTS`].
    #[error("names more than {MOST_ENDPOINTS} endpoints")]
    TooLong,
    /// An entry is not an HTTP URL.
    #[error("must be http:// or https:// URLs separated by commas or spaces; number {position} is none")]
    NoUrl {
        /// Its position, counted from 1.
        position: usize,
    },
}

/// Parses the endpoints in `text`, separated by commas or white space.
///
/// # Errors
///
/// [`ListError`] where an entry is not a URL, or where there are none or too many.
pub fn parse_list(text: &str) -> Result<Vec<RpcEndpoint>, ListError> {
    let entries = text.split(|c: char| c == ',' || c.is_whitespace()).filter(|entry| !entry.is_empty());
    let endpoints: Vec<RpcEndpoint> = entries
        .zip(1..)
        .map(|(entry, position)| RpcEndpoint::parse(entry).ok_or(ListError::NoUrl { position }))
        .collect::<Result<_, _>>()?;
    match endpoints.len() {
        0 => Err(ListError::Empty),
        1..=MOST_ENDPOINTS => Ok(endpoints),
        _ => Err(ListError::TooLong),
    }
}

/// Returns the `Authorization` header of a URL's user part.
fn basic(user_part: &str) -> String {
    let (user, password) = user_part.split_once(':').unwrap_or((user_part, ""));
    let decode = |text| percent_decode_str(text).decode_utf8_lossy().to_string();
    let credentials = [decode(user), decode(password)].join(":");
    ["Basic ", &Base64::encode_string(credentials.as_bytes())].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eth::redact::Redactor;
    use proptest::prelude::*;

    #[test]
    fn a_list_is_separated_by_commas_or_white_space() {
        let list = "https://a.example/v2/k3y, http://127.0.0.1:8545\n\thttps://[::1]:8545/?x=1#y,";
        let urls: Vec<String> = parse_list(list).unwrap().into_iter().map(|endpoint| endpoint.url).collect();
        assert_eq!(urls, ["https://a.example/v2/k3y", "http://127.0.0.1:8545", "https://[::1]:8545/?x=1#y"]);
    }

    #[test]
    fn a_user_part_becomes_a_header() {
        // The example of RFC 7617 section 2, and a password that a URL has to escape.
        for (user_part, header) in [
            ("Aladdin:open%20sesame", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="),
            ("user:p%40ss%3A", "Basic dXNlcjpwQHNzOg=="),
            ("user", "Basic dXNlcjo="),
            ("us@er:pass", "Basic dXNAZXI6cGFzcw=="),
        ] {
            let endpoint =
                parse_list(&format!("https://{user_part}@rpc.example:8443/path@x")).unwrap().remove(0);
            assert_eq!(endpoint.url, "https://rpc.example:8443/path@x");
            assert_eq!(endpoint.authorization.as_deref(), Some(header));
            assert_eq!(endpoint.origin(), "https://rpc.example:8443");
        }
    }

    #[test]
    fn what_is_no_endpoint_is_named_by_its_place() {
        let no_url = |position| Err(ListError::NoUrl { position });
        for (text, expected) in [
            ("wss://a.example", no_url(1)),
            ("https://a.example, b.example", no_url(2)),
            ("https://a.example https:///path", no_url(2)),
            ("https://user@/path", no_url(1)),
            ("https://:8545", no_url(1)),
            (" , ", Err(ListError::Empty)),
            (&"https://a.example ".repeat(9), Err(ListError::TooLong)),
        ] {
            assert_eq!(parse_list(text), expected, "{text}");
        }
    }

    #[test]
    fn no_secret_of_an_endpoint_is_shown() {
        let endpoint = parse_list("https://user:passw0rd@rpc.example/v2/s3cr3tkey").unwrap().remove(0);
        let redactor = Redactor::new(endpoint.secrets());
        let header = endpoint.authorization.clone().unwrap();
        for text in [format!("{endpoint:?}"), redactor.clean(&format!("{header}, passw0rd, s3cr3tkey"))] {
            for secret in ["passw0rd", "s3cr3tkey", header.strip_prefix("Basic ").unwrap()] {
                assert!(!text.contains(secret), "{text}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text: String) {
            let _ = parse_list(&text);
        }
    }
}
