//! The read API as a Cloudflare Worker: a thin host around `registry-core`.
//!
//! A request's way through the house: method, route, limiter, cache, chain. Everything that is decided on
//! the way is decided in the core; here are only the clock, the counters, the cache and the bytes to and
//! from the RPC endpoint.

mod cache;
mod chain;
mod http;
mod index;
mod limiter;
mod log;
mod pages;
mod settings;

use std::rc::Rc;

use registry_core::{
    error::Error,
    route::Endpoint,
    timestamp::Timestamp,
    window::{Client, Verdict},
};
use worker::{Context, Env, ScheduleContext, ScheduledEvent, console_warn, event, web_sys};

use crate::{
    cache::{Asker, Request},
    http::{Content, Delivery, Target},
    log::{Record, unix_millis},
    pages::Page,
    settings::Settings,
};

/// The Worker's entry: every request gets an answer, errors included, and a line in the log.
#[event(fetch)]
async fn fetch(request: web_sys::Request, env: Env, context: Context) -> worker::Result<web_sys::Response> {
    let request = Incoming::new(&request);
    let id = log::request_id(|name| request.header(name));
    let mut record = Record::begin(id, request.method(), unix_millis());
    let (status, response) = if record.method == "OPTIONS" {
        (204, http::preflight(&record.id)?)
    } else {
        let (answer, verdict) = answer(&request, &env, context, &mut record).await;
        let delivery =
            Delivery { request_id: &record.id, verdict, now: Timestamp::from_millis(unix_millis()) };
        match answer {
            Ok(content) => {
                let known = request.header("If-None-Match");
                http::success(&content, record.cache == "HIT", known.as_deref(), &delivery)?
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

/// Looks after the index: its alarms have been seen to stall.
#[event(scheduled)]
async fn scheduled(_event: ScheduledEvent, env: Env, _context: ScheduleContext) {
    let Ok(settings) = Settings::of(&env) else { return };
    let Some(objects) = index::objects(&settings, &env) else { return };
    if let Err(error) = index::tick(&objects, &settings).await {
        console_warn!("index not looked after: {error}");
    }
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
enum Route {
    /// One of the pages that are the same for everybody.
    Page(&'static Page),
    /// Whether this code runs at all.
    Live,
    /// What only the chain can answer: it needs settings, and counts against the client's limit.
    Counted(Request),
}

/// `/readyz`, where whatever is wrong means that the service is not ready.
const READY: &str = "/readyz";

impl Route {
    fn parse(method: &str, target: &Target) -> Result<Self, Error> {
        if !matches!(method, "GET" | "HEAD") {
            return Err(Error::MethodNotAllowed);
        }
        let path = target.path();
        if let Some(page) = pages::find(path) {
            return Ok(Self::Page(page));
        }
        match path {
            "/livez" => Ok(Self::Live),
            READY => Ok(Self::Counted(Request::Ready)),
            _ => {
                Endpoint::parse(target.path_and_query()).map(|endpoint| Self::Counted(Request::Api(endpoint)))
            }
        }
    }

    const fn name(&self) -> &'static str {
        match self {
            Self::Page(page) => page.path,
            Self::Live => "/livez",
            Self::Counted(Request::Ready) => READY,
            Self::Counted(Request::Api(endpoint)) => endpoint.route(),
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

/// The answer to anything but a preflight, and where the client stands with the limiter.
async fn answer(
    request: &Incoming<'_>,
    env: &Env,
    context: Context,
    record: &mut Record,
) -> (Result<Rc<Content>, Error>, Option<Verdict>) {
    let now = Timestamp::from_millis(record.started_at);
    let parsed = Target::parse(request.url())
        .and_then(|target| Route::parse(&record.method, &target).map(|route| (target, route)));
    if let Ok((_, route)) = &parsed {
        record.route = route.name();
    }
    let counted = match parsed {
        // What works however the settings are.
        Ok((target, Route::Page(page))) => return (Ok(Rc::new(page.content(&target, now))), None),
        Ok((_, Route::Live)) => return (Ok(Rc::new(Content::unkept(r#"{"live":true}"#, now))), None),
        Ok((target, Route::Counted(counted))) => Ok((target, counted)),
        Err(error) => Err(error),
    };
    let settings = match Settings::of(env) {
        Ok(settings) => settings,
        Err(error) => return (Err(error), None),
    };
    let client = request.client();
    let (target, counted) = match counted {
        Ok(counted) => counted,
        // What can be refused before it costs anything is not charged.
        Err(error) => return (Err(error), limiter::peek(&settings.limits, &client, now)),
    };
    let verdict = limiter::charge(&settings, env, &context, &client, now).await;
    if verdict.is_some_and(|verdict| !verdict.admitted) {
        return (Err(Error::RateLimited), verdict);
    }
    let objects = index::objects(&settings, env).map(Rc::new);
    let asker = Asker { settings, context: Rc::new(context), origin: target.origin().into(), objects };
    (cache::answer(&asker, counted, record).await, verdict)
}
