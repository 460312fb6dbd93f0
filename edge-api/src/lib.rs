//! The read API as a Cloudflare Worker: a thin host around `registry-core`.
//!
//! A request's way through the house: method, route, limiter, cache, chain. Everything that is decided on
//! the way is decided in the core; here are only the clock, the counters, the cache and the bytes to and
//! from the RPC endpoint.

mod cache;
mod chain;
mod http;
mod limiter;
mod settings;

use registry_core::{answer::Question, error::Error, route::Endpoint, timestamp::Timestamp};
use worker::{Context, Date, Env, Request, Response, event};

use crate::{
    http::{Content, Target},
    settings::Settings,
};

/// The Worker's entry: every request gets an answer, errors included.
#[event(fetch)]
async fn fetch(request: Request, env: Env, context: Context) -> worker::Result<Response> {
    // As text: the library's own type takes methods it does not know for GET.
    let method = request.inner().method();
    if method == "OPTIONS" {
        return http::preflight();
    }
    let now = Timestamp::from_millis(Date::now().as_millis());
    let settings = match Settings::from_env(&env) {
        Ok(settings) => settings,
        Err(error) => return http::failure(&error, None),
    };
    let client = limiter::client_of(&request)?;
    let question = if matches!(method.as_str(), "GET" | "HEAD") {
        Target::of(&request)
            .and_then(|target| Endpoint::parse(&target.path_and_query).map(|endpoint| (target, endpoint)))
    } else {
        Err(Error::MethodNotAllowed)
    };
    // What can be refused before it costs anything is not charged.
    let (target, endpoint) = match question {
        Ok(question) => question,
        Err(error) => return http::failure(&error, limiter::peek(settings.rate_limit, &client, now)),
    };
    let (scheme, limit) = (settings.rate_limiter, settings.rate_limit);
    let verdict = limiter::charge(scheme, limit, &env, &context, client, now).await;
    if verdict.is_some_and(|verdict| !verdict.admitted) {
        return http::failure(&Error::RateLimited, verdict);
    }
    match answer(&settings, &target, endpoint, now, &context).await {
        Ok(content) => http::success(&request, content, verdict),
        Err(error) => http::failure(&error, verdict),
    }
}

/// The answer from the cache, or else from the chain; a fresh one is stored for its time to live.
async fn answer(
    settings: &Settings,
    target: &Target,
    endpoint: Endpoint,
    now: Timestamp,
    context: &Context,
) -> Result<Content, Error> {
    let time_to_live = settings.time_to_live(endpoint.cache_scope());
    let key = cache::key(&target.origin, settings, &endpoint);
    if time_to_live > 0
        && let Some(content) = cache::find(&key, time_to_live, now).await
    {
        return Ok(content);
    }
    let question =
        Question { endpoint, registry: settings.registry, chain: settings.public_rpc.clone(), now };
    let document = chain::ask(question, settings).await?;
    let content = Content::fresh(document, time_to_live, now);
    if content.keep_for > 0 {
        cache::store(key, &content, now, context);
    }
    Ok(content)
}
