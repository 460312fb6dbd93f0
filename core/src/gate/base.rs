//! Signature bases of requests: RFC 9421, sections 2 and 2.5.

use std::fmt::Write as _;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use sfv::{BareItem, InnerList, Item};

use super::{
    request::{Request, is_signable},
    structured,
};

/// The percent-encode set of `application/x-www-form-urlencoded`, for query parameters.
const QUERY_PARAMETER: &AsciiSet = &NON_ALPHANUMERIC.remove(b'*').remove(b'-').remove(b'.').remove(b'_');

/// Returns the signature base over the components of `input` in their order; `None` where the request has no
/// value for one of them, or one is named twice.
///
/// The only parameter of a component is the `name` of `@query-param`: others select parts of fields, or are
/// about responses.
pub fn signature_base(request: &Request<'_>, input: &InnerList) -> Option<String> {
    let mut base = String::new();
    let mut seen: Vec<&Item> = Vec::with_capacity(input.items.len());
    for component in &input.items {
        if seen.contains(&component) {
            return None;
        }
        seen.push(component);
        let value = value(request, component)?;
        if !value.bytes().all(is_signable) {
            return None;
        }
        writeln!(base, "{}: {value}", structured::item(component)?).ok()?;
    }
    write!(base, "\"@signature-params\": {}", structured::inner_list(input)?).ok()?;
    Some(base)
}

/// Returns a component's value.
fn value(request: &Request<'_>, component: &Item) -> Option<String> {
    let BareItem::String(name) = &component.bare_item else { return None };
    let name = name.as_str();
    if name == "@query-param" {
        let mut parameters = component.params.iter();
        let (Some((key, BareItem::String(wanted))), None) = (parameters.next(), parameters.next()) else {
            return None;
        };
        return if key.as_str() == "name" { query_parameter(request, wanted.as_str()) } else { None };
    }
    if !component.params.is_empty() {
        return None;
    }
    let (scheme, authority) = (request.origin.scheme(), request.origin.authority());
    match name {
        "@method" => Some(request.method.to_owned()),
        "@scheme" => Some(scheme.to_owned()),
        "@authority" => Some(authority.to_owned()),
        "@target-uri" => Some(format!("{scheme}://{authority}{}", request.target)),
        "@request-target" => Some(request.target.to_owned()),
        "@path" => Some(request.path().to_owned()),
        "@query" => Some(format!("?{}", request.query().unwrap_or_default())),
        derived if derived.starts_with('@') => None,
        field => request.field(field),
    }
}

/// Returns the value of a query parameter that occurs once under this encoded name (section 2.2.8).
fn query_parameter(request: &Request<'_>, wanted: &str) -> Option<String> {
    let encoded = |text: &str| {
        let text = text.replace('+', " ");
        let decoded = percent_decode_str(&text).decode_utf8_lossy().into_owned();
        utf8_percent_encode(&decoded, QUERY_PARAMETER).to_string()
    };
    let pairs = request.query()?.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let mut values = pairs.filter(|(name, _)| encoded(name) == wanted).map(|(_, value)| encoded(value));
    values.next().filter(|_| values.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::request::{Content, Origin};

    /// The request of RFC 9421, appendix B.2.
    fn base(input: &str) -> Option<String> {
        let origin = Origin::parse("https://example.com").unwrap();
        let fields: [(&str, &[u8]); 5] = [
            ("host", b"example.com"),
            ("date", b"Tue, 20 Apr 2021 02:07:55 GMT"),
            ("content-type", b"application/json"),
            (
                "content-digest",
                b"sha-512=:WZDPaVn/7XgHaAy8pmojAkGWoRx2UFChF41A2svX+TaPm+AbwAgBWnrIiYllu7BNNyealdVLvRwEmTHWXvJwew==:",
            ),
            ("content-length", b"18"),
        ];
        let (target, content) = ("/foo?param=Value&Pet=dog", Content::Whole(br#"{"hello": "world"}"#));
        let request = Request { method: "POST", origin: &origin, target, fields: &fields, content };
        let signature_input = structured::dictionary(&format!("sig={input}")).unwrap();
        let sfv::ListEntry::InnerList(input) = &signature_input["sig"] else { panic!("{input}") };
        signature_base(&request, input)
    }

    const DIGEST_LINE: &str = "\"content-digest\": sha-512=:WZDPaVn/7XgHaAy8pmojAkGWoRx2UFChF41A2svX+TaPm+AbwAgBWnrIiYllu7BNNyealdVLvRwEmTHWXvJwew==:\n";

    #[test]
    fn the_bases_of_rfc_9421_appendix_b_2_are_reproduced() {
        let (date, kind) =
            ("\"date\": Tue, 20 Apr 2021 02:07:55 GMT\n", "\"content-type\": application/json\n");
        let (authority, length) = ("\"@authority\": example.com\n", "\"content-length\": 18\n");
        let (method, query) = ("\"@method\": POST\n\"@path\": /foo\n", "\"@query\": ?param=Value&Pet=dog\n");
        for (parameters, lines) in [
            (
                r#"();created=1618884473;keyid="test-key-rsa-pss";nonce="b3k2pp5k7z-50gnwp.yemd""#,
                String::new(),
            ),
            (
                r#"("@authority" "content-digest" "@query-param";name="Pet");created=1618884473;keyid="test-key-rsa-pss";tag="header-example""#,
                format!("{authority}{DIGEST_LINE}\"@query-param\";name=\"Pet\": dog\n"),
            ),
            (
                r#"("date" "@method" "@path" "@query" "@authority" "content-type" "content-digest" "content-length");created=1618884473;keyid="test-key-rsa-pss""#,
                format!("{date}{method}{query}{authority}{kind}{DIGEST_LINE}{length}"),
            ),
            (
                r#"("date" "@authority" "content-type");created=1618884473;keyid="test-shared-secret""#,
                format!("{date}{authority}{kind}"),
            ),
            (
                r#"("date" "@method" "@path" "@authority" "content-type" "content-length");created=1618884473;keyid="test-key-ed25519""#,
                format!("{date}{method}{authority}{kind}{length}"),
            ),
            // The other derived components, of section 2.2.
            (
                r#"("@target-uri" "@request-target" "@scheme")"#,
                "\"@target-uri\": https://example.com/foo?param=Value&Pet=dog\n\
                 \"@request-target\": /foo?param=Value&Pet=dog\n\"@scheme\": https\n"
                    .to_owned(),
            ),
        ] {
            assert_eq!(base(parameters).unwrap(), format!("{lines}\"@signature-params\": {parameters}"));
        }
    }

    #[test]
    fn query_parameters_are_encoded_as_in_section_2_2_8() {
        let origin = Origin::parse("https://www.example.com").unwrap();
        let target = "/parameters?var=this%20is%20a%20big%0Amultiline%20value&bar=with+plus+whitespace&fa%C3%A7ade%22%3A%20=something&twice=1&twice=2";
        let content = Content::Whole(b"");
        let request = Request { method: "GET", origin: &origin, target, fields: &[], content };
        for (name, value) in [
            ("var", Some("this%20is%20a%20big%0Amultiline%20value")),
            ("bar", Some("with%20plus%20whitespace")),
            ("fa%C3%A7ade%22%3A%20", Some("something")),
            ("twice", None),
            ("none", None),
        ] {
            assert_eq!(query_parameter(&request, name).as_deref(), value, "{name}");
        }
    }

    #[test]
    fn what_a_request_does_not_have_is_in_no_base() {
        for input in [
            r#"("x-absent")"#,
            r#"("@status")"#,
            r#"("@signature-params")"#,
            r#"("date" "date")"#,
            r#"("date";sf)"#,
            r#"("date";req)"#,
            r#"("@query-param")"#,
            r#"("@query-param";name="absent")"#,
            "(date)",
        ] {
            assert_eq!(base(input), None, "{input}");
        }
    }
}
