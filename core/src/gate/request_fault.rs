//! Requests that a proxy, the gate and the service may read in different ways. None of them is admitted,
//! whatever its signature: the gate has to decide on the same request that the service serves.
//!
//! | fault | why |
//! |---|---|
//! | a header that reads as the gate's | WSGI, CGI and PHP read `KYA_Wallet` as `KYA-Wallet` |
//! | a gate's header in `Connection` | a proxy drops the headers that `Connection` names |
//! | a path with two readings | a proxy that decodes `/admin/..%2fpublic` has another path than the service |
//! | an upgrade | no gate sees the requests behind `Upgrade: h2c` |

use super::{
    output_headers::{is_lookalike, reads_as_output_header},
    request::Request,
};

/// The reason for which a request is refused before its signature is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum RequestFault {
    /// A header reads as one of the gate's, or `Connection` or `Trailer` names one.
    ReservedHeader,
    /// The target is no path of visible ASCII characters.
    MalformedTarget,
    /// The target's path has two readings.
    AmbiguousTarget,
    /// The request asks for another protocol.
    UpgradeNotAllowed,
    /// The head of the request is not one that the host can parse.
    MalformedRequest,
    /// The head has more fields or bytes than the host reads.
    HeadTooLong,
    /// The content is longer than the host reads.
    ContentTooLong,
    /// The content did not arrive, or not in time.
    ContentIncomplete,
}

impl RequestFault {
    /// Returns the stable code.
    pub fn code(self) -> &'static str {
        self.into()
    }

    /// Returns the HTTP status: 400, 413 or 431.
    pub const fn status(self) -> u16 {
        match self {
            Self::ContentTooLong => 413,
            Self::HeadTooLong => 431,
            _ => 400,
        }
    }

    /// Returns a remedy for the client, in one sentence.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::ReservedHeader => "Send no header that reads as KYA-Wallet or another one of the gate's.",
            Self::MalformedTarget => {
                "The target has to be a path of visible ASCII characters: encode others."
            }
            Self::AmbiguousTarget => {
                "The path has to have one reading: no dot segments, empty segments, semicolons or backslashes, \
                 nothing encoded that separates \
                 segments or needs no encoding, and nothing left that needs it."
            }
            Self::UpgradeNotAllowed => {
                "Connections are not upgraded here: send neither Upgrade nor HTTP2-Settings."
            }
            Self::MalformedRequest => {
                "The request's head cannot be read here: it has bytes that HTTP does not allow."
            }
            Self::HeadTooLong => "The request's target or headers are more or longer than are read here.",
            Self::ContentTooLong => "The content is longer than is read here.",
            Self::ContentIncomplete => "The content did not arrive in time: send the request again.",
        }
    }
}

/// The requests that a route takes, whatever their signatures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestRules {
    /// Takes paths that have two readings: for a service that reads paths exactly as its proxy does.
    pub allow_ambiguous_targets: bool,
    /// The paths at which a WebSocket may be opened; one that ends in `/*` covers all paths below it.
    pub websocket_paths: Vec<String>,
}

impl RequestRules {
    /// Checks a request before its signature.
    ///
    /// # Errors
    ///
    /// [`RequestFault`]: the request has to be refused.
    pub fn check(&self, request: &Request<'_>) -> Result<(), RequestFault> {
        for (name, value) in request.fields {
            let is_list = matches!(*name, "connection" | "trailer");
            let listed = value.split(|byte| *byte == b',').filter_map(|name| str::from_utf8(name).ok());
            if is_lookalike(name) || is_list && listed.into_iter().any(reads_as_output_header) {
                return Err(RequestFault::ReservedHeader);
            }
        }
        if !is_well_formed(request.target) {
            return Err(RequestFault::MalformedTarget);
        }
        if !self.allow_ambiguous_targets && is_ambiguous(request.target) {
            return Err(RequestFault::AmbiguousTarget);
        }
        if self.takes_protocol_of(request) { Ok(()) } else { Err(RequestFault::UpgradeNotAllowed) }
    }

    /// Returns whether the request keeps to HTTP, or opens a WebSocket where that is allowed.
    fn takes_protocol_of(&self, request: &Request<'_>) -> bool {
        if request.method == "CONNECT" || request.has("http2-settings") {
            return false;
        }
        if !request.has("upgrade") {
            return true;
        }
        let is_websocket =
            request.field("upgrade").is_some_and(|protocol| protocol.eq_ignore_ascii_case("websocket"));
        is_websocket && self.websocket_paths.iter().any(|path| covers(path, request.path()))
    }
}

/// Returns whether a route's pattern covers a path.
fn covers(pattern: &str, path: &str) -> bool {
    match pattern.strip_suffix("/*") {
        Some(parent) => path.strip_prefix(parent).is_some_and(|rest| rest.starts_with('/')),
        None => pattern == path,
    }
}

/// Returns whether a target is a path, or `*`, in visible ASCII: all else has to be encoded in every URL.
fn is_well_formed(target: &str) -> bool {
    (target.starts_with('/') || target == "*") && target.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Returns whether two parsers may read the path of a target as two paths: one decodes it, removes dot
/// segments, joins slashes or cuts parameters off, and the other does not.
pub fn is_ambiguous(target: &str) -> bool {
    let path = target.split('?').next().unwrap_or_default();
    let is_dots = |segment: &str| matches!(segment, "." | "..");
    target.contains('#')
        || path.contains("//")
        || path.contains([';', '\\'])
        || path.contains(UNENCODED)
        || path.split('/').any(is_dots)
        || path.split('%').skip(1).any(escape_is_ambiguous)
}

/// Returns whether the escape at the start of this text, behind its `%`, has two readings: it is malformed,
/// it changes the path's segments once decoded, or it encodes what needs no encoding.
fn escape_is_ambiguous(text: &str) -> bool {
    let Some(byte) = escaped(text) else { return true };
    match byte {
        b'/' | b'\\' | b';' | b'?' | b'#' | b'-' | b'.' | b'_' | b'~' => true,
        // Decoded twice, it is another escape.
        b'%' => text.get(2..).and_then(escaped).is_some(),
        byte => byte.is_ascii_alphanumeric() || byte.is_ascii_control(),
    }
}

/// Characters that a URL's path has to encode (RFC 3986, section 3.3): some proxies encode them on the way.
const UNENCODED: [char; 8] = ['"', '<', '>', '^', '`', '{', '|', '}'];

/// Decodes the two hexadecimal digits at the start of a text.
fn escaped(text: &str) -> Option<u8> {
    let digits = text.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
    u8::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::{output_headers::OUTPUT_HEADERS, request::Content, request::Origin};

    fn checked(rules: &RequestRules, target: &str, fields: &[(&str, &[u8])]) -> Result<(), RequestFault> {
        let origin = Origin::parse("https://api.example").unwrap();
        let content = Content::Whole(b"");
        rules.check(&Request { method: "GET", origin: &origin, target, fields, content })
    }

    #[test]
    fn a_header_that_reads_as_the_gates_is_refused_whatever_its_case_and_separators() {
        for name in OUTPUT_HEADERS {
            assert!(reads_as_output_header(name) && !is_lookalike(name), "{name}: the host replaces it");
            assert_eq!(checked(&RequestRules::default(), "/", &[(name, b"1")]), Ok(()));
            for lookalike in [name.replace('-', "_"), name.replacen('-', ".", 1), format!("{name} ")] {
                let fields: [(&str, &[u8]); 1] = [(&lookalike, b"1")];
                let fault = checked(&RequestRules::default(), "/", &fields);
                assert_eq!(fault, Err(RequestFault::ReservedHeader), "{lookalike:?}");
                assert!(reads_as_output_header(&lookalike.to_uppercase()), "{lookalike:?}");
            }
            for list in ["connection", "trailer"] {
                for value in [name.to_uppercase(), format!("close,\t{name}"), name.replace('-', "_")] {
                    let fault = checked(&RequestRules::default(), "/", &[(list, value.as_bytes())]);
                    assert_eq!(fault, Err(RequestFault::ReservedHeader), "{list}: {value}");
                }
            }
        }
        for name in ["kya", "kya-wallets", "x-kya-wallet", "kyawallet", "kya--wallet", "connection"] {
            assert_eq!(checked(&RequestRules::default(), "/", &[(name, b"close, te")]), Ok(()), "{name}");
        }
    }

    #[test]
    fn a_path_has_one_reading_or_is_refused() {
        let allowing = RequestRules { allow_ambiguous_targets: true, ..RequestRules::default() };
        let ambiguous = "/..%2f..%2fpublic/x /a%2Fb /a%5cb /a\\b /a/../b /a/.. /./a /a/.?x //a /a//b \
                         /a;v=1 /a%3Bv /a%2e%2e/b /%2E/a /%61dmin /a%7Eb /a%2D /a%00 /a%0a /a%7f /a%zz /a% \
                         /a%2 /a%252fb /a%3fb /a%23b /a#b /a?b#c /i{x} /a|b /a^b /a\"b /<a> /a`";
        for target in ambiguous.split_whitespace() {
            let fault = checked(&RequestRules::default(), target, &[]);
            assert_eq!(fault, Err(RequestFault::AmbiguousTarget), "{target}");
            assert_eq!(checked(&allowing, target, &[]), Ok(()), "{target}");
        }
        let plain = "/ * /items?policy=other&x=%2F..%2F;// /a%20b/c /m%C3%BCnchen /a.b/..c/d.. /? /a/ \
                     /a%25 /100%25%20x /a@b:c,d!e$f&g'h(i)j*k+l=m";
        for target in plain.split_whitespace() {
            assert_eq!(checked(&RequestRules::default(), target, &[]), Ok(()), "{target}");
        }
        for target in ["", "a", "http://a/", "/m\u{fc}nchen", "/a b", "/a\tb", "**"] {
            assert_eq!(checked(&allowing, target, &[]), Err(RequestFault::MalformedTarget), "{target}");
        }
    }

    #[test]
    fn only_a_websocket_at_a_named_path_is_an_upgrade_that_is_taken() {
        let rules = RequestRules {
            websocket_paths: vec!["/live".to_owned(), "/rooms/*".to_owned()],
            ..RequestRules::default()
        };
        let upgrade =
            |target: &str, protocol: &str| checked(&rules, target, &[("upgrade", protocol.as_bytes())]);
        for (target, protocol, is_taken) in [
            ("/live?x", "websocket", true),
            ("/live", "WebSocket", true),
            ("/rooms/7/a", "websocket", true),
            ("/rooms", "websocket", false),
            ("/live/", "websocket", false),
            ("/", "websocket", false),
            ("/live", "h2c", false),
            ("/live", "websocket, h2c", false),
            ("/live", "\u{e9}", false),
        ] {
            assert_eq!(upgrade(target, protocol).is_ok(), is_taken, "{protocol} at {target}");
        }
        let both: [(&str, &[u8]); 2] = [("upgrade", b"websocket"), ("http2-settings", b"AAMAAABk")];
        assert_eq!(checked(&rules, "/live", &both), Err(RequestFault::UpgradeNotAllowed));
        let origin = Origin::parse("https://api.example").unwrap();
        let content = Content::Whole(b"");
        let connect = Request { method: "CONNECT", origin: &origin, target: "/live", fields: &[], content };
        assert_eq!(rules.check(&connect), Err(RequestFault::UpgradeNotAllowed));
    }
}
