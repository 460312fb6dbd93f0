//! A request as the client sent it, apart from its connection.

use std::borrow::Cow;

/// Turns a target in absolute form into origin form (RFC 9112, section 3.2.2): like `Host`, the authority
/// that it names must not choose the service. Other targets are returned unchanged.
pub fn origin_form(target: &str) -> Cow<'_, str> {
    let after = |scheme: &str| {
        let is_scheme = target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
        is_scheme.then(|| target.get(scheme.len()..)).flatten()
    };
    let rest = match after("http://").or_else(|| after("https://")) {
        None => target,
        Some(rest) => {
            let (authority, rest) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
            if authority.is_empty() || !authority.bytes().all(is_host) {
                return Cow::Borrowed(target);
            }
            rest
        }
    };
    match rest {
        "" if !target.is_empty() => Cow::Borrowed("/"),
        rest if rest.starts_with('?') => Cow::Owned(format!("/{rest}")),
        rest => Cow::Borrowed(rest),
    }
}

/// Returns whether a byte may be part of a host and its port.
const fn is_host(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'-' | b'.' | b'_' | b':' | b'[' | b']')
}

/// Returns whether a text in lower case is a host: a name without empty labels, or an address.
fn is_name_or_address(host: &str) -> bool {
    let is_label = |label: &str| {
        let is_plain = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'z' | b'-' | b'_');
        !label.is_empty() && label.bytes().all(is_plain)
    };
    match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').is_some_and(|address| {
            address.contains(':') && address.bytes().all(|byte| byte == b':' || byte.is_ascii_hexdigit())
        }),
        None => host.strip_suffix('.').unwrap_or(host).split('.').all(is_label),
    }
}

/// An HTTP request for signature verification. All text is raw: nothing is decoded or normalised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The method, as sent.
    pub method: &'a str,
    /// The configured origin of the service, never taken from a header.
    pub origin: &'a Origin,
    /// The path and, after a `?`, the query.
    pub target: &'a str,
    /// The field lines in the order received, with names in lower case.
    pub fields: &'a [(&'a str, &'a [u8])],
    /// The content.
    pub content: Content<'a>,
}

/// The scheme and authority that clients use for a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    scheme: Scheme,
    /// Host and port in lower case, without the scheme's default port.
    authority: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    Http,
    Https,
}

/// The content, as far as it reached this verifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// All of it; empty for a request without content.
    Whole(&'a [u8]),
    /// A proxy kept it: its digest can be required, but not compared.
    Withheld {
        /// The request has no content.
        is_empty: bool,
    },
}

impl Origin {
    /// Parses `https://api.example` or `http://127.0.0.1:8080`; `None` for anything else, a path included.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        let (scheme, authority) = text.split_once("://")?;
        let (scheme, own_port) = match scheme {
            "http" => (Scheme::Http, "80"),
            "https" => (Scheme::Https, "443"),
            _ => return None,
        };
        // The colons in brackets are of an address.
        let with_port = authority.rsplit_once(':').filter(|_| !authority.ends_with(']'));
        let (host, port) = with_port.map_or((authority, None), |(host, port)| (host, Some(port)));
        let is_port = |digits: &str| !digits.starts_with(['0', '+']) && digits.parse::<u16>().is_ok();
        if !is_name_or_address(host) || !port.is_none_or(is_port) {
            return None;
        }
        let authority = if port == Some(own_port) { host } else { authority };
        Some(Self { scheme, authority: authority.to_owned() })
    }

    /// Returns `http` or `https`.
    pub const fn scheme(&self) -> &'static str {
        match self.scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }

    /// Returns the host, and the port unless it is the scheme's default.
    pub fn authority(&self) -> &str {
        &self.authority
    }
}

impl Content<'_> {
    /// Returns whether there is no content.
    pub const fn is_empty(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_empty(),
            Self::Withheld { is_empty } => *is_empty,
        }
    }
}

impl<'a> Request<'a> {
    /// Returns the path; `/` where the target has none.
    pub fn path(&self) -> &'a str {
        match self.target.split_once('?').map_or(self.target, |(path, _)| path) {
            "" => "/",
            path => path,
        }
    }

    /// Returns the query without its `?`; `None` where there is none.
    pub fn query(&self) -> Option<&'a str> {
        self.target.split_once('?').map(|(_, query)| query)
    }

    /// Returns whether there is such a field.
    pub fn has(&self, name: &str) -> bool {
        self.fields.iter().any(|(field, _)| *field == name)
    }

    /// Combines the lines of a field (RFC 9421, section 2.1); `None` where there is no such field, or where
    /// it has bytes that a signature base cannot hold.
    pub fn field(&self, name: &str) -> Option<String> {
        let mut combined: Option<String> = None;
        for (_, line) in self.fields.iter().filter(|(field, _)| *field == name) {
            let line = str::from_utf8(line).ok().filter(|line| line.bytes().all(is_signable))?;
            let line = line.trim_matches([' ', '\t']);
            combined = Some(combined.map_or_else(|| line.to_owned(), |before| format!("{before}, {line}")));
        }
        combined
    }
}

/// Returns whether a signature base may hold a byte: visible ASCII, the space and the tab.
pub(super) const fn is_signable(byte: u8) -> bool {
    matches!(byte, b'\t' | b' '..=b'~')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_a_scheme_and_an_authority() {
        for (text, scheme, authority) in [
            ("https://API.example", "https", "api.example"),
            ("https://api.example:443", "https", "api.example"),
            ("http://api.example:443", "http", "api.example:443"),
            ("http://127.0.0.1:80", "http", "127.0.0.1"),
            ("http://[::1]:8080", "http", "[::1]:8080"),
            ("https://[::A]:443", "https", "[::a]"),
            ("https://my_api.example.:65535", "https", "my_api.example.:65535"),
        ] {
            let origin = Origin::parse(text).unwrap();
            assert_eq!((origin.scheme(), origin.authority()), (scheme, authority), "{text}");
        }
        for text in ["", "api.example", "ftp://a", "https://", "https://a/", "https://a/b", "https://u@a"] {
            assert_eq!(Origin::parse(text), None, "{text}");
        }
        let impossible = "a: :8080 :443 a::443 a:443:443 a:0 a:0443 a:+443 a:65536 a:b a..b . .a a.. \
                          [ [::1 ::1] [] []:1 [a] [::1]8 [::1]: a[::1] [[::1]] [::1.2.3.4]";
        for authority in impossible.split(' ') {
            assert_eq!(Origin::parse(&format!("https://{authority}")), None, "{authority}");
        }
    }

    #[test]
    fn a_target_in_absolute_form_stands_for_its_path_and_query() {
        for (target, origin_form_of_it) in [
            ("http://api.example/items?a=http://b/", "/items?a=http://b/"),
            ("HTTPS://api.example:8443//a", "//a"),
            ("http://[::1]", "/"),
            ("http://api.example?a=b", "/?a=b"),
            ("?a=b", "/?a=b"),
            ("http://", "http://"),
            ("http:///items", "http:///items"),
            ("http://u@api.example/items", "http://u@api.example/items"),
            ("http://a\\b/items", "http://a\\b/items"),
            ("/http://api.example/items", "/http://api.example/items"),
            ("ftp://api.example/items", "ftp://api.example/items"),
            ("*", "*"),
            ("", ""),
        ] {
            assert_eq!(origin_form(target), origin_form_of_it, "{target}");
        }
    }

    #[test]
    fn repeated_lines_are_combined_in_their_order() {
        let origin = Origin::parse("https://a").unwrap();
        let fields: [(&str, &[u8]); 5] =
            [("x", b" one "), ("y", b"\xff"), ("x", b"two  2"), ("x", b""), ("z", b"a\nb")];
        let content = Content::Whole(b"");
        let request = Request { method: "GET", origin: &origin, target: "/", fields: &fields, content };
        assert_eq!(request.field("x").as_deref(), Some("one, two  2, "));
        assert_eq!((request.field("y"), request.field("z"), request.field("w")), (None, None, None));
    }
}
