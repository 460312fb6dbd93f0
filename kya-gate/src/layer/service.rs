//! One request on its way through the layer.

use std::{
    error::Error,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::{
    Request, Response,
    body::Body,
    header::{HeaderName, HeaderValue},
    http::request::Parts,
};
use registry_core::{
    eth::timestamp::Timestamp,
    gate::{
        self as core, Content, DecisionStep, GateAnswer, OUTPUT_HEADERS, Outcome, RefusalCode, RequestFault,
        reads_as_output_header,
    },
};
use tokio::time::timeout;
use tower_service::Service;

use super::Guard;
use crate::{
    gate::Purpose,
    http::{RECEIVE_TIMEOUT, now, to_http},
};

/// A service behind the gate.
#[derive(Debug, Clone)]
pub struct GateService<S> {
    guard: Arc<Guard>,
    inner: S,
}

impl<S> GateService<S> {
    pub(super) const fn new(guard: Arc<Guard>, inner: S) -> Self {
        Self { guard, inner }
    }
}

impl<S, B, R> Service<Request<B>> for GateService<S>
where
    S: Service<Request<B>, Response = Response<R>, Future: Send> + Clone + Send + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + From<Bytes> + Send + 'static,
    R: From<Bytes>,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The service that was polled is the one that is ready.
        let next = self.inner.clone();
        let mut ready = mem::replace(&mut self.inner, next);
        let guard = Arc::clone(&self.guard);
        Box::pin(async move {
            match guard.admit(request).await {
                Ok(admitted) => ready.call(admitted).await,
                Err(answer) => Ok(to_http(answer)),
            }
        })
    }
}

impl Guard {
    /// Returns the request for the service, or the answer that refuses it.
    async fn admit<B>(&self, request: Request<B>) -> Result<Request<B>, GateAnswer>
    where
        B: Body<Error: Into<Box<dyn Error + Send + Sync>>> + From<Bytes>,
    {
        let (received, (mut parts, body)) = (now(), request.into_parts());
        let unread = Content::Withheld { is_empty: body.is_end_stream() };
        // Only an exact length will do: content could not be passed on once a part of it was read.
        let length = body.size_hint().exact();
        let is_short = length.is_some_and(|bytes| bytes <= self.longest_content as u64);
        let may_pass = self.may_pass(&parts, received);
        let (outcome, answer, body) = if may_pass && (is_short || !self.route.observe) {
            // A policy that only observes waits for all of it: a part could not be passed on.
            let limit = if self.route.observe { Duration::MAX } else { RECEIVE_TIMEOUT };
            let content = timeout(limit, Limited::new(body, self.longest_content).collect()).await;
            let content = match content {
                Ok(Ok(content)) => content.to_bytes(),
                Ok(Err(error)) => return Err(self.refused(fault(&*error))),
                Err(_) => return Err(self.refused(RequestFault::ContentIncomplete)),
            };
            // The signature may have expired while the content arrived.
            let (outcome, answer) = self.decide(&parts, Content::Whole(&content), now()).await;
            (outcome, answer, B::from(content))
        } else if may_pass {
            // It is passed on; no wallet is named for content that was not compared with its digest.
            let outcome = match length {
                Some(_) => Outcome::Faulty(RequestFault::ContentTooLong),
                None => Outcome::Refused(RefusalCode::SignatureVerificationUnavailable),
            };
            let answer = self.shared.gate.concluded(&self.route, None, &outcome);
            (outcome, answer, body)
        } else {
            // At the time of `may_pass`: later, a signature might be valid for content that was not read.
            let (outcome, answer) = self.decide(&parts, unread, received).await;
            (outcome, answer, body)
        };
        if answer.status != 200 {
            return Err(answer);
        }
        let of_client = |name: &&HeaderName| reads_as_output_header(name.as_str());
        let of_client: Vec<HeaderName> = parts.headers.keys().filter(of_client).cloned().collect();
        for name in of_client {
            parts.headers.remove(name);
        }
        for (name, value) in answer.headers.into_iter().filter(|(name, _)| OUTPUT_HEADERS.contains(name)) {
            if let Ok(value) = HeaderValue::from_str(&value)
                && !value.is_empty()
            {
                parts.headers.insert(HeaderName::from_static(name), value);
            }
        }
        if let Some(subject) = outcome.subject() {
            parts.extensions.insert(subject.clone());
        }
        parts.extensions.insert(outcome);
        Ok(Request::from_parts(parts, body))
    }

    /// Returns whether the request could pass all checks but the account's with some content. If not, the
    /// content need not be read: it makes no difference.
    fn may_pass(&self, parts: &Parts, now: Timestamp) -> bool {
        let fields = fields(parts);
        let request = self.request(parts, &fields, Content::Withheld { is_empty: true });
        matches!(self.route.decide(&request, now), DecisionStep::Account(_))
    }

    async fn decide(&self, parts: &Parts, content: Content<'_>, now: Timestamp) -> (Outcome, GateAnswer) {
        let fields = fields(parts);
        let request = self.request(parts, &fields, content);
        self.shared.gate.decided(&self.route, &request, Purpose::Admission, now).await
    }

    /// Refuses a request without its whole content: there is none to pass on, not even under a policy that
    /// only observes.
    fn refused(&self, fault: RequestFault) -> GateAnswer {
        let outcome = Outcome::Faulty(fault);
        self.shared.gate.concluded(&self.route, None, &outcome);
        outcome.answer_unread(&self.route.links)
    }

    fn request<'a>(
        &'a self,
        parts: &'a Parts,
        fields: &'a [(&'a str, &'a [u8])],
        content: Content<'a>,
    ) -> core::Request<'a> {
        core::Request {
            method: parts.method.as_str(),
            origin: &self.route.origin,
            target: parts.uri.path_and_query().map_or("/", |target| target.as_str()),
            fields,
            content,
        }
    }
}

/// Returns the field lines, with names in lower case, the lines of each field in their order.
fn fields(parts: &Parts) -> Vec<(&str, &[u8])> {
    parts.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect()
}

/// Returns the fault of content that is too long or broke off.
fn fault(error: &(dyn Error + Send + Sync + 'static)) -> RequestFault {
    if error.is::<LengthLimitError>() {
        RequestFault::ContentTooLong
    } else {
        RequestFault::ContentIncomplete
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{layer::EmbeddedGate, settings::Settings};
    use axum::{Extension, Router, body::Body as AxumBody, http::HeaderMap};
    use futures_util::{StreamExt as _, stream};
    use std::{
        io,
        sync::atomic::{AtomicBool, Ordering},
    };

    /// Settings of a gate without an answer at its chain's endpoint.
    const SETTINGS: &str = r#"
        origin = "https://api.example"
        chain = { id = 1, rpc = ["http://127.0.0.1:1"] }
        kya = { registry = "0x00000000000000000000000000000000000000aa" }
        policy.api = { allow = ["provision"] }
        policy.observed = { allow = ["provision"], observe = true }
    "#;

    /// Returns the view of a request that a handler behind the layer of this policy gets.
    async fn seen(policy: &str, request: Request<AxumBody>) -> (u16, String) {
        async fn handler(
            outcome: Extension<Outcome>,
            subject: Option<Extension<super::super::Subject>>,
            headers: HeaderMap,
            content: String,
        ) -> String {
            let wallet = headers.keys().find(|name| reads_as_output_header(name.as_str()));
            format!("{:?} {} {wallet:?} {content}", outcome.0, subject.is_some())
        }
        let gate = EmbeddedGate::start(Settings::parse_embedded(SETTINGS, None).unwrap()).await.unwrap();
        let layer = gate.layer(policy).unwrap().longest_content(8);
        let mut service = Router::new().fallback(handler).layer(layer);
        let response = service.call(request).await.unwrap();
        let status = response.status().as_u16();
        let content = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(content.to_vec()).unwrap())
    }

    fn post(headers: &[(&'static str, &str)], content: AxumBody) -> Request<AxumBody> {
        let mut request = Request::post("https://api.example/orders").body(content).unwrap();
        for (name, value) in headers {
            request.headers_mut().append(*name, value.parse().unwrap());
        }
        request
    }

    /// The outcome of a signature with unread content, or with an account that cannot be read.
    const UNREAD: RefusalCode = RefusalCode::SignatureVerificationUnavailable;

    /// The content with the signed digest.
    const SIGNED: &str = r#"{"hello":"world"}"#;

    /// Returns a request with a signature that names a well-known account and is not by its key.
    fn signed(content: AxumBody) -> Request<AxumBody> {
        signed_at(now().seconds(), content)
    }

    fn signed_at(created: u64, content: AxumBody) -> Request<AxumBody> {
        let input = format!(
            "a=(\"@scheme\" \"@authority\" \"@method\" \"@path\" \"@query\" \"content-digest\");\
             created={created};expires={};nonce=\"n\";tag=\"erc8128\";\
             keyid=\"eip155:1:0x7e5f4552091a69125d5dfcb7b8c2659029395bdf\"",
            created + 60,
        );
        let digest = "sha-256=:k6I5cakU5erL8KjSUVTNownDwccvu5kU1Hxg88toFYg=:";
        let headers =
            [("signature-input", input.as_str()), ("signature", "a=:AAAA:"), ("content-digest", digest)];
        post(&headers, content)
    }

    #[tokio::test(start_paused = true)]
    async fn content_is_read_to_a_limit_and_only_for_a_signature_that_may_be_right() {
        let (status, body) = seen("api", signed(AxumBody::from("123456789"))).await;
        assert!(status == 413 && body.contains("content_too_long"), "{status} {body}");
        let broken = stream::iter([Ok(Bytes::from("12")), Err(io::Error::other("gone"))]);
        let unfinished = stream::iter([Ok::<_, io::Error>(Bytes::from("12"))]).chain(stream::pending());
        for content in [AxumBody::from_stream(broken), AxumBody::from_stream(unfinished)] {
            let (status, body) = seen("api", signed(content)).await;
            assert!(status == 400 && body.contains("content_incomplete"), "{status} {body}");
        }
        let (status, body) = seen("api", signed(AxumBody::from("12345678"))).await;
        assert!(status == 401 && body.contains("bad_content_digest"), "{status} {body}");

        static READ: AtomicBool = AtomicBool::new(false);
        let content = || {
            AxumBody::from_stream(stream::poll_fn(|_| {
                READ.store(true, Ordering::Relaxed);
                Poll::Ready(Some(Ok::<_, io::Error>(Bytes::from("123456789"))))
            }))
        };
        let mut ambiguous = signed(AxumBody::empty());
        *ambiguous.uri_mut() = "https://api.example//orders".parse().unwrap();
        for (request, status, code) in [
            (post(&[], content()), 401, "signature_missing"),
            (ambiguous.map(|_| content()), 400, "ambiguous_target"),
        ] {
            let (answered, body) = seen("api", request).await;
            assert!(answered == status && body.contains(code), "{answered} {body}");
            assert!(!READ.load(Ordering::Relaxed), "{code}: its content is not read");
        }
    }

    #[tokio::test]
    async fn a_signature_that_expires_while_its_content_comes_is_refused() {
        // It is valid for two more seconds, of which the gate's start takes one.
        let created = now().seconds() - 88;
        let late = stream::once(async move {
            while now().seconds() <= created + 90 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Ok::<_, io::Error>(Bytes::from("12345678"))
        });
        let (status, body) = seen("api", signed_at(created, AxumBody::from_stream(late))).await;
        assert!(status == 401 && body.contains("request_expired"), "{status} {body}");
    }

    #[tokio::test]
    async fn a_policy_that_observes_passes_everything_on_without_the_clients_own_headers() {
        let endless = || AxumBody::from_stream(stream::iter([Ok::<_, io::Error>("longer "), Ok("than 8")]));
        let missing = Outcome::Refused(RefusalCode::SignatureMissing);
        for (request, outcome) in [
            (post(&[("kya-wallet", "0x1"), ("kya-wallet", "0x2")], AxumBody::from("longer than 8")), missing),
            // Content that could not be read, that was read and compared, and that has no known length.
            (signed(AxumBody::from("longer than 8")), Outcome::Faulty(RequestFault::ContentTooLong)),
            (signed(AxumBody::from("8 bytes.")), Outcome::Refused(RefusalCode::BadContentDigest)),
            (signed(endless()), Outcome::Refused(UNREAD)),
            (post(&[("kya_wallet", "0x1")], endless()), Outcome::Faulty(RequestFault::ReservedHeader)),
        ] {
            let content =
                if request.body().size_hint().exact() == Some(8) { "8 bytes." } else { "longer than 8" };
            let (status, body) = seen("observed", request).await;
            assert_eq!((status, body), (200, format!("{outcome:?} false None {content}")));
        }
    }

    #[tokio::test]
    async fn content_that_breaks_off_is_answered_with_an_error_under_a_policy_that_observes() {
        let limited = |content: AxumBody| signed(AxumBody::new(Limited::new(content, 8)));
        let chunked = stream::iter([Ok::<_, io::Error>("longer "), Ok("than 8")]);
        let (status, body) = seen("observed", limited(AxumBody::from_stream(chunked))).await;
        assert!((400..500).contains(&status) && !body.contains("content_incomplete"), "{status} {body}");
        // Its length is given as 8 bytes, and it is read.
        let (status, body) = seen("observed", limited(AxumBody::from("longer than 8"))).await;
        assert!(status == 400 && body.contains("content_incomplete"), "{status} {body}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_chain_that_hangs_is_said_so_before_a_proxy_gives_up() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let began = tokio::time::Instant::now();
        let outcome = observed_with(&silent, signed(AxumBody::from(SIGNED))).await;
        assert_eq!(outcome, format!("{:?}", Outcome::Refused(UNREAD)));
        assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn a_policy_that_observes_asks_for_no_account_of_content_that_it_does_not_compare() {
        let chain = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        chain.set_nonblocking(true).unwrap();
        let streamed = AxumBody::from_stream(stream::iter([Ok::<_, io::Error>("any")]));
        for (content, outcome) in [
            (AxumBody::from("x".repeat(SIGNED.len() + 1)), Outcome::Faulty(RequestFault::ContentTooLong)),
            (streamed, Outcome::Refused(UNREAD)),
        ] {
            assert_eq!(observed_with(&chain, signed(content)).await, format!("{outcome:?}"));
            let asked = chain.accept().map(|(_, peer)| peer);
            assert!(asked.is_err(), "{outcome:?}: {asked:?}");
        }
    }

    /// Returns the result of an observing policy for a request with this chain, which does not answer.
    async fn observed_with(chain: &std::net::TcpListener, request: Request<AxumBody>) -> String {
        let settings = SETTINGS.replace("127.0.0.1:1", &chain.local_addr().unwrap().to_string());
        let gate = EmbeddedGate::start(Settings::parse_embedded(&settings, None).unwrap()).await.unwrap();
        let guard = gate.layer("observed").unwrap().longest_content(SIGNED.len());
        let mut service = Router::new()
            .fallback(async |outcome: Extension<Outcome>| format!("{:?}", outcome.0))
            .layer(guard);
        let response = service.call(request).await.unwrap();
        let content = response.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(content.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn an_unknown_policy_and_a_chain_that_does_not_answer_are_errors() {
        let gate = EmbeddedGate::start(Settings::parse_embedded(SETTINGS, None).unwrap()).await.unwrap();
        assert!(gate.layer("other").is_err());
        assert!(gate.probe().await.is_err());
    }
}
