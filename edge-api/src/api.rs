//! A request's way: method, route, limiter, cache, chain.

use std::rc::Rc;

use futures_util::FutureExt as _;
use registry_core::{
    api::error::Error,
    api::route::{KYA_BODY_BYTES_MAX, Route},
    eth::timestamp::Timestamp,
    host::rate_limit::{Client, Verdict},
    registry::error_code::Code,
};
use worker::{Context, Env, event, web_sys};

use crate::{
    body,
    cache::{self, Asker, Request},
    http::{self, Content, Delivery, EVENTS_TYPE, JSON_TYPE, Target},
    index::{self, Told},
    limiter,
    log::{self, Record, unix_millis},
    pages::{self, Page},
    settings::Settings,
    stream,
};

/// The Worker's entry: every request gets an answer, errors included, and a line in the log.
#[event(fetch)]
async fn fetch(request: web_sys::Request, env: Env, context: Context) -> worker::Result<web_sys::Response> {
    let request = Incoming::new(&request);
    let id = log::request_id(|name| request.header(name));
    let mut record = Record::begin(id, request.method(), unix_millis());
    let (status, response) = if record.method == "OPTIONS" {
        let takes_post = Target::parse(request.url())
            .is_ok_and(|target| Route::check_post(target.path_and_query()).is_ok());
        (204, http::preflight(&record.id, takes_post)?)
    } else {
        let (answer, verdict) = answer(&request, &env, context, &mut record).await;
        let delivery =
            Delivery { request_id: &record.id, verdict, now: Timestamp::from_millis(unix_millis()) };
        match answer {
            Ok(Answer::Content(content)) => {
                let known = request.header("If-None-Match");
                http::success(&content, record.cache == "HIT", known.as_deref(), &delivery)?
            }
            Ok(Answer::Events(asker, first)) => {
                let head = Content::unkept(EVENTS_TYPE, "", delivery.now).varying_by_accept();
                let stream = match record.method.as_str() {
                    "HEAD" => None,
                    _ => Some(stream::events::open(asker, first, record.clone())?),
                };
                (200, http::stream(&head, stream.as_ref(), &delivery)?)
            }
            Ok(Answer::List(asker, first)) => {
                let mut head = Content::unkept(JSON_TYPE, "", delivery.now);
                let stream = match first {
                    None => None,
                    Some(Told { document, block, .. }) => {
                        head = head.with_block(block);
                        Some(stream::list::open(asker, document)?)
                    }
                };
                (200, http::stream(&head, stream.as_ref(), &delivery)?)
            }
            Err(error) => {
                let status = status(&error, record.route);
                let response = http::failure(&error, status, &delivery)?;
                record.error = error.code().name();
                (status, response)
            }
        }
    };
    record.write(status, unix_millis());
    Ok(response)
}

/// A request as it came. The runtime's own type is read instead of the library's, which takes methods it does not know for
/// GET and converts more than is asked for.
struct Incoming<'a> {
    request: &'a web_sys::Request,
    headers: web_sys::Headers,
}

impl<'a> Incoming<'a> {
    fn new(request: &'a web_sys::Request) -> Self {
        Self { headers: request.headers(), request }
    }

    fn method(&self) -> String {
        self.request.method()
    }

    fn url(&self) -> String {
        self.request.url()
    }

    fn header(&self, name: &str) -> Option<String> {
        self.headers.get(name).ok().flatten()
    }

    /// Whom it counts as. Only headers are believed that Cloudflare sets and clients can't.
    fn client(&self) -> Client {
        Client::of(self.header("CF-Connecting-IP").as_deref(), || self.header("CF-Worker"))
    }
}

/// What a request can be for.
enum Resource {
    /// One of the pages that are the same for everybody.
    Page(&'static Page),
    /// Whether this code runs at all.
    Live,
    /// What only the chain can answer: it needs settings, and counts against the client's limit.
    Counted(Request),
}

/// A good answer.
enum Answer {
    Content(Rc<Content>),
    /// A stream of changes that begins with these.
    Events(Asker, Rc<Content>),
    /// A list that is too long to be held; it begins with this piece, or is not wanted.
    List(Asker, Option<Told>),
}

impl From<Rc<Content>> for Answer {
    fn from(content: Rc<Content>) -> Self {
        Self::Content(content)
    }
}

/// `/readyz`, where whatever is wrong means that the service is not ready.
const READY: &str = "/readyz";

impl Resource {
    /// The route of a request. A body is only read where the path takes one.
    async fn parse(request: &Incoming<'_>, method: &str, target: &Target) -> Result<Self, Error> {
        match method {
            "GET" | "HEAD" => Self::parse_get(target),
            "POST" => {
                let target = target.path_and_query();
                Route::check_post(target)?;
                let body = body::read(request.request, KYA_BODY_BYTES_MAX).await?;
                Route::parse_post(target, &body).map(|endpoint| Self::Counted(Request::Api(endpoint)))
            }
            _ => Err(Route::check_post(target.path_and_query()).err().unwrap_or(Error::PostOnly)),
        }
    }

    fn parse_get(target: &Target) -> Result<Self, Error> {
        let path = target.path();
        if let Some(page) = pages::find(path) {
            return Ok(Self::Page(page));
        }
        match path {
            "/livez" => Ok(Self::Live),
            READY => Ok(Self::Counted(Request::Ready)),
            _ => Route::parse(target.path_and_query()).map(|endpoint| Self::Counted(Request::Api(endpoint))),
        }
    }

    /// How many requests it counts as.
    fn cost(&self) -> u32 {
        match self {
            Self::Counted(Request::Api(endpoint)) => endpoint.cost(),
            _ => 1,
        }
    }

    const fn name(&self) -> &'static str {
        match self {
            Self::Page(page) => page.path,
            Self::Live => "/livez",
            Self::Counted(Request::Ready) => READY,
            Self::Counted(Request::Api(endpoint)) => endpoint.pattern(),
            // Routes become streams later.
            Self::Counted(Request::Events(_)) => "/api/v1/changes",
        }
    }
}

/// The status of an error: 503 where a service that is not ready says why, the documented one otherwise.
fn status(error: &Error, route: &str) -> u16 {
    match error.status() {
        500 if route == READY => 503,
        status => status,
    }
}

/// An answer, and where the client stands with the limiter.
type Judged = (Result<Answer, Error>, Option<Verdict>);

/// The answer to anything but a preflight.
async fn answer(request: &Incoming<'_>, env: &Env, context: Context, record: &mut Record) -> Judged {
    // Boxed, each is a function of its own: V8 takes megabytes to optimize a long one that is polled again and again.
    match admit(request, env, context, record).boxed_local().await {
        Ok((asker, counted, verdict)) => (tell(asker, counted, record).boxed_local().await, verdict),
        Err(judged) => judged,
    }
}

/// What is to be answered, and for whom; or what there is to say without asking anybody.
async fn admit(
    request: &Incoming<'_>,
    env: &Env,
    context: Context,
    record: &mut Record,
) -> Result<(Asker, Request, Option<Verdict>), Judged> {
    let now = Timestamp::from_millis(record.started_at);
    let parsed = match Target::parse(request.url()) {
        Ok(target) => Resource::parse(request, &record.method, &target).await.map(|route| (target, route)),
        Err(error) => Err(error),
    };
    let cost = parsed.as_ref().map_or(1, |(_, route)| route.cost());
    if let Ok((_, route)) = &parsed {
        record.route = route.name();
    }
    let counted = match parsed {
        // What works however the settings are.
        Ok((target, Resource::Page(page))) => {
            let page = page.content(env, &target, now).await;
            return Err((page.map(|page| Rc::new(page).into()), None));
        }
        Ok((_, Resource::Live)) => {
            return Err((Ok(Rc::new(Content::unkept(JSON_TYPE, r#"{"live":true}"#, now)).into()), None));
        }
        Ok((target, Resource::Counted(counted))) => {
            followed(request, counted).map(|counted| (target, counted))
        }
        Err(error) => Err(error),
    };
    let settings = match Settings::of(env) {
        Ok(settings) => settings,
        Err(error) => return Err((Err(error), None)),
    };
    let client = request.client();
    let (target, counted) = match counted {
        Ok(counted) => counted,
        // What can be refused before it costs anything is not charged.
        Err(error) => return Err((Err(error), limiter::peek(&settings.limits, &client, now))),
    };
    let verdict = limiter::charge(&settings, env, &context, &client, now, cost).await;
    if verdict.is_some_and(|verdict| !verdict.admitted) {
        return Err((Err(Error::RateLimited), verdict));
    }
    let objects = index::objects(&settings, env).map(Rc::new);
    let asker = Asker { settings, context: Rc::new(context), origin: target.origin().into(), objects };
    Ok((asker, counted, verdict))
}

/// The answer to what counts: a document, or a stream and how it begins.
async fn tell(asker: Asker, counted: Request, record: &mut Record) -> Result<Answer, Error> {
    let is_stream = matches!(counted, Request::Events(_));
    let is_whole_list = matches!(counted, Request::Api(Route::Compliance(None)));
    match (cache::answer(&asker, counted, record).await, asker.objects.clone()) {
        (Ok(first), _) if is_stream => Ok(Answer::Events(asker, first)),
        (Err(error), Some(objects)) if is_whole_list && error.code() == Code::TooLarge => {
            let first = match record.method.as_str() {
                "HEAD" => None,
                _ => Some(index::tell(&objects, &asker.settings, &index::list("")).await?),
            };
            Ok(Answer::List(asker, first))
        }
        (answer, _) => answer.map(Answer::from),
    }
}

/// The request, as a stream where it is for changes and the client takes events.
fn followed(request: &Incoming<'_>, counted: Request) -> Result<Request, Error> {
    match counted {
        Request::Api(Route::Changes { since, .. })
            if request.header("Accept").is_some_and(|accept| stream::events::is_wanted(&accept)) =>
        {
            stream::events::begin(request.header("Last-Event-ID").as_deref(), since).map(Request::Events)
        }
        counted => Ok(counted),
    }
}
