//! The read API as a Cloudflare Worker: a thin host around `registry-core`.
//!
//! A request's way through the house: method, route, limiter, cache, chain. Everything that is decided on
//! the way is decided in the core; here are only the clock, the counters, the cache and the bytes to and
//! from the RPC endpoint.

mod cache;
mod chain;
mod http;
mod limiter;
mod log;
mod pages;
mod settings;

use registry_core::{
    answer::Question, error::Error, health::Readiness, route::Endpoint, timestamp::Timestamp, window::Verdict,
};
use worker::{Context, Date, Env, Request, Response, event};

use crate::{
    chain::Ask,
    http::{Content, Target},
    log::Record,
    pages::Page,
    settings::Settings,
};

/// The Worker's entry: every request gets an answer, errors included, and a line in the log.
#[event(fetch)]
async fn fetch(request: Request, env: Env, context: Context) -> worker::Result<Response> {
    // As text: the library's own type takes methods it does not know for GET.
    let method = request.inner().method();
    let mut record = Record::begin(&request, &method);
    let outcome = if method == "OPTIONS" {
        http::preflight()?
    } else {
        let (answer, verdict) = answer(&request, &method, &env, &context, &mut record).await?;
        match answer {
            Ok(content) => http::success(&request, content, verdict)?,
            Err(error) => {
                record.error = error.code().name();
                http::failure(&error, status(&error, record.route), verdict)?
            }
        }
    };
    record.write(outcome.status_code());
    outcome.headers().set("X-Request-Id", &record.id)?;
    Ok(outcome)
}

/// What a request can be for.
enum Route {
    /// One of the pages that are the same for everybody.
    Page(&'static Page),
    /// Whether this code runs at all.
    Live,
    /// What only the chain can answer: it needs settings, and counts against the client's limit.
    Counted(Counted),
}

/// What counts.
enum Counted {
    /// Whether a question could be answered.
    Ready,
    /// A question of the read API.
    Api(Endpoint),
}

/// `/readyz`, where whatever is wrong means that the service is not ready.
const READY: &str = "/readyz";

impl Route {
    fn parse(method: &str, target: &Target) -> Result<Self, Error> {
        if !matches!(method, "GET" | "HEAD") {
            return Err(Error::MethodNotAllowed);
        }
        let path = target.path_and_query.split('?').next().unwrap_or_default();
        if let Some(page) = pages::find(path) {
            return Ok(Self::Page(page));
        }
        match path {
            "/livez" => Ok(Self::Live),
            READY => Ok(Self::Counted(Counted::Ready)),
            _ => {
                Endpoint::parse(&target.path_and_query).map(|endpoint| Self::Counted(Counted::Api(endpoint)))
            }
        }
    }

    const fn name(&self) -> &'static str {
        match self {
            Self::Page(page) => page.path,
            Self::Live => "/livez",
            Self::Counted(Counted::Ready) => READY,
            Self::Counted(Counted::Api(endpoint)) => endpoint.route(),
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
    request: &Request,
    method: &str,
    env: &Env,
    context: &Context,
    record: &mut Record,
) -> worker::Result<(Result<Content, Error>, Option<Verdict>)> {
    let parsed =
        Target::of(request).and_then(|target| Route::parse(method, &target).map(|route| (target, route)));
    if let Ok((_, route)) = &parsed {
        record.route = route.name();
    }
    let counted = match parsed {
        // What works however the settings are.
        Ok((target, Route::Page(page))) => return Ok((Ok(page.content(&target)), None)),
        Ok((_, Route::Live)) => return Ok((Ok(Content::unkept(r#"{"live":true}"#)), None)),
        Ok((target, Route::Counted(counted))) => Ok((target, counted)),
        Err(error) => Err(error),
    };
    let settings = match Settings::from_env(env) {
        Ok(settings) => settings,
        Err(error) => return Ok((Err(error), None)),
    };
    let now = Timestamp::from_millis(Date::now().as_millis());
    let client = limiter::client_of(request)?;
    let (target, counted) = match counted {
        Ok(counted) => counted,
        // What can be refused before it costs anything is not charged.
        Err(error) => return Ok((Err(error), limiter::peek(settings.rate_limit, &client, now))),
    };
    let (scheme, limit) = (settings.rate_limiter, settings.rate_limit);
    let verdict = limiter::charge(scheme, limit, env, context, client, now).await;
    if verdict.is_some_and(|verdict| !verdict.admitted) {
        return Ok((Err(Error::RateLimited), verdict));
    }
    let content = match counted {
        Counted::Api(endpoint) => {
            from_cache_or_chain(&settings, &target, endpoint, now, context, record).await
        }
        Counted::Ready => {
            let question = Readiness { registry: settings.registry, multicall3: settings.multicall3, now };
            let document = chain::ask(Ask::Ready(question), &settings, &mut record.rpc_calls).await;
            document.map(|document| Content::fresh(document, 0, now))
        }
    };
    Ok((content, verdict))
}

/// The answer from the cache, or else from the chain; a fresh one is stored for its time to live.
async fn from_cache_or_chain(
    settings: &Settings,
    target: &Target,
    endpoint: Endpoint,
    now: Timestamp,
    context: &Context,
    record: &mut Record,
) -> Result<Content, Error> {
    let time_to_live = settings.time_to_live(endpoint.cache_scope());
    let key = cache::key(&target.origin, settings, &endpoint);
    if time_to_live > 0
        && let Some(content) = cache::find(&key, time_to_live, now).await
    {
        record.cache = content.cache();
        return Ok(content);
    }
    let question =
        Question { endpoint, registry: settings.registry, chain: settings.public_rpc.clone(), now };
    let document = chain::ask(Ask::Api(question), settings, &mut record.rpc_calls).await?;
    let content = Content::fresh(document, time_to_live, now);
    record.cache = content.cache();
    if content.keep_for > 0 {
        cache::store(key, &content, now, context);
    }
    Ok(content)
}
