//! The original request that a proxy asks about, taken from the request to the gate.

use std::borrow::Cow;

use hyper::{HeaderMap, header::HeaderValue};
use registry_core::gate::{Content, Origin, Request, origin_form};

use crate::settings::{ContentSource, ProxySettings, TargetSource};

/// A way in which the proxy does not ask as configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum ProxyFault {
    /// The request came from an address outside `proxy.networks`.
    #[error("asked from an address that is not the proxy's")]
    Stranger,
    /// There is no policy of the requested name.
    #[error("asked for a policy that there is not")]
    Policy,
    /// The header with the target is missing or repeated.
    #[error("the header with the original target is missing, or there several times")]
    Target,
    /// The header with the method is missing or repeated.
    #[error("the header with the original method is missing, or there several times")]
    Method,
}

/// The parts of a request that a proxy asks about; [`as_request`](Self::as_request) joins them.
#[derive(Debug)]
pub(super) struct OriginalRequest<'a> {
    method: Cow<'a, str>,
    target: Cow<'a, str>,
    fields: Vec<(&'a str, &'a [u8])>,
    content: Content<'a>,
}

impl<'a> OriginalRequest<'a> {
    /// Reads the parts. `rest` is the target behind the policy's name, and `body` the content, where the
    /// proxy passed it on and it was read.
    ///
    /// Bytes of the client are never an error here: those that are not UTF-8 become a character that no
    /// target and no method has. Errors: [`ProxyFault`].
    pub(super) fn read(
        proxy: &ProxySettings,
        (method, rest): (&'a str, &'a str),
        headers: &'a HeaderMap,
        body: Option<&'a [u8]>,
    ) -> Result<Self, ProxyFault> {
        let target = match &proxy.target {
            TargetSource::Path if rest.is_empty() => "/".into(),
            TargetSource::Path => origin_form(rest),
            TargetSource::Header(name) => match single(headers, name).ok_or(ProxyFault::Target)? {
                Cow::Borrowed(target) => origin_form(target),
                // A target that is not UTF-8 is malformed in any form.
                target => target,
            },
        };
        let method = match &proxy.method_header {
            None => method.into(),
            Some(name) => single(headers, name).ok_or(ProxyFault::Method)?,
        };
        let content = match &proxy.content {
            ContentSource::Passed => body.map_or(Content::Withheld { is_empty: false }, Content::Whole),
            ContentSource::Withheld(header) => {
                let said = header.iter().flat_map(|name| headers.get_all(name.as_str()));
                let mut said = said.map(HeaderValue::as_bytes).filter(|value| !value.is_empty()).peekable();
                let is_empty = match said.peek() {
                    Some(_) => said.all(|value| value == b"0"),
                    None => matches!(method.as_ref(), "GET" | "HEAD"),
                };
                Content::Withheld { is_empty }
            }
        };
        // hyper keeps the order of a field's lines, which alone matters, and has names in lower case.
        let lines = || headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let told = lines().filter(|(_, value)| !value.is_empty());
        let told = told.filter_map(|(name, value)| Some((of_connection(name)?, value)));
        let fields = lines().chain(told).collect();
        Ok(Self { method, target, fields, content })
    }

    /// Returns the request at its origin.
    pub(super) fn as_request<'b>(&'b self, origin: &'b Origin) -> Request<'b> {
        Request {
            method: &self.method,
            origin,
            target: &self.target,
            fields: &self.fields,
            content: self.content,
        }
    }
}

/// Returns the connection header of the client that a header of the npm package stands for: `fetch` cannot
/// send such headers itself. A client gains nothing by sending one, as it only causes a refusal.
fn of_connection(name: &str) -> Option<&'static str> {
    match name {
        "x-original-connection" => Some("connection"),
        "x-original-trailer" => Some("trailer"),
        "x-original-upgrade" => Some("upgrade"),
        _ => None,
    }
}

/// Returns the value of a header that occurs once.
fn single<'a>(headers: &'a HeaderMap, name: &str) -> Option<Cow<'a, str>> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    values.next().is_none().then(|| String::from_utf8_lossy(value.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use registry_core::gate::{RequestFault, RequestRules};

    fn proxy(target: &str, content: ContentSource) -> ProxySettings {
        let header = |name: &str| TargetSource::Header(name.to_owned());
        ProxySettings {
            networks: vec!["127.0.0.1/32".parse().unwrap()],
            target: if target == "path" { TargetSource::Path } else { header(target) },
            method_header: (target != "path").then(|| "x-method".to_owned()),
            content,
        }
    }

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    fn read<'a>(
        proxy: &ProxySettings,
        rest: &'a str,
        headers: &'a HeaderMap,
    ) -> Result<OriginalRequest<'a>, ProxyFault> {
        OriginalRequest::read(proxy, ("POST", rest), headers, Some(b""))
    }

    #[test]
    fn a_target_is_taken_as_it_is() {
        let envoy = proxy("path", ContentSource::Passed);
        for target in ["/a%2Fb//c/../d?x=%2F&policy=other", "/", "//evil.example/", "/?"] {
            assert_eq!(read(&envoy, target, &HeaderMap::new()).unwrap().target, target);
            let headers = headers(&[("x-uri", target), ("x-method", "PATCH")]);
            let nginx = proxy("x-uri", ContentSource::Withheld(None));
            let original = read(&nginx, "/ignored", &headers).unwrap();
            assert_eq!((&original.target[..], &original.method[..]), (target, "PATCH"));
        }
        assert_eq!(read(&envoy, "", &HeaderMap::new()).unwrap().target, "/");
        assert_eq!(read(&envoy, "?a=b", &HeaderMap::new()).unwrap().target, "/?a=b");
        let nginx = proxy("x-uri", ContentSource::Withheld(None));
        for (target, origin_form) in [("?a=b", "/?a=b"), ("http://api.example/items", "/items")] {
            let headers = headers(&[("x-uri", target), ("x-method", "GET")]);
            assert_eq!(read(&nginx, "/", &headers).unwrap().target, origin_form);
        }
    }

    #[test]
    fn a_proxy_that_does_not_say_what_it_was_asked_admits_nothing() {
        let nginx = proxy("x-uri", ContentSource::Withheld(None));
        for (pairs, error) in [
            (vec![("x-method", "GET")], ProxyFault::Target),
            (vec![("x-uri", "/"), ("x-uri", "/"), ("x-method", "GET")], ProxyFault::Target),
            (vec![("x-uri", "/")], ProxyFault::Method),
            (vec![("x-uri", "/"), ("x-method", "GET"), ("x-method", "GET")], ProxyFault::Method),
        ] {
            assert_eq!(read(&nginx, "/", &headers(&pairs)).unwrap_err(), error, "{pairs:?}");
        }
    }

    #[test]
    fn what_a_client_wrote_is_refused_as_its_own_and_not_as_the_proxys() {
        let nginx = proxy("x-uri", ContentSource::Withheld(None));
        let origin = Origin::parse("https://api.example").unwrap();
        for target in [&b"/caf\xe9"[..], "/m\u{fc}nchen".as_bytes(), b"http://u@a/", b"a", b""] {
            let mut headers = headers(&[("x-method", "GET")]);
            headers.append("x-uri", HeaderValue::from_bytes(target).unwrap());
            let original = read(&nginx, "/", &headers).unwrap();
            let fault = RequestRules::default().check(&original.as_request(&origin));
            assert_eq!(fault, Err(RequestFault::MalformedTarget), "{target:?}");
        }
    }

    #[test]
    fn what_belonged_to_the_clients_connection_is_told_under_another_name() {
        let package = proxy("x-uri", ContentSource::Passed);
        let origin = Origin::parse("https://api.example").unwrap();
        for (line, fault) in [
            (("x-original-connection", "close"), Ok(())),
            (("x-original-upgrade", ""), Ok(())),
            (("x-original-connection", "close, KYA-Wallet"), Err(RequestFault::ReservedHeader)),
            (("x-original-trailer", "kya_liable"), Err(RequestFault::ReservedHeader)),
            (("x-original-upgrade", "h2c"), Err(RequestFault::UpgradeNotAllowed)),
        ] {
            let headers = headers(&[("x-uri", "/"), ("x-method", "GET"), line]);
            let original = read(&package, "/", &headers).unwrap();
            let checked = RequestRules::default().check(&original.as_request(&origin));
            assert_eq!(checked, fault, "{line:?}");
        }
    }

    #[test]
    fn withheld_content_is_empty_only_where_that_is_known() {
        let content = |content: ContentSource, pairs: &[(&'static str, &'static str)]| {
            let headers = headers(pairs);
            let original = read(&proxy("x-uri", content), "/", &headers);
            original.unwrap().content == Content::Withheld { is_empty: true }
        };
        let said = || ContentSource::Withheld(Some("x-content".to_owned()));
        for (method, lines, is_empty) in [
            ("POST", ["0"].as_slice(), true),
            ("POST", &["00"], false),
            ("POST", &["0", "17"], false),
            ("GET", &["17"], false),
            ("GET", &["chunked"], false),
        ] {
            let lines = lines.iter().map(|line| ("x-content", *line));
            let pairs: Vec<_> = [("x-uri", "/"), ("x-method", method)].into_iter().chain(lines).collect();
            assert_eq!(content(said(), &pairs), is_empty, "{pairs:?}");
        }
        // Without the header, the method decides: proxies send none for a GET.
        for (method, is_empty) in [("GET", true), ("HEAD", true), ("POST", false), ("DELETE", false)] {
            let pairs = [("x-uri", "/"), ("x-method", method)];
            assert_eq!(content(ContentSource::Withheld(None), &pairs), is_empty, "{method}");
            assert_eq!(content(said(), &pairs), is_empty, "{method}");
            assert_eq!(content(said(), &[pairs[0], pairs[1], ("x-content", "")]), is_empty, "{method}");
        }
    }
}
