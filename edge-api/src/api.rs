//! The path of a request: method, route, rate limiter, cache.

use std::rc::Rc;

use edge_shared::unix_millis;
use futures_util::FutureExt as _;
use registry_core::{
    api::accept::EVENTS_TYPE,
    api::acceptance::{JudgedVerdict, Judgement, PresentedAcceptance},
    api::error::Error,
    api::mcp,
    api::route::Route,
    eth::timestamp::Timestamp,
    host::rate_limit::{ClientKey, RateLimitVerdict},
    liability,
    registry::{changes::Since, error_code::Code},
    token::Audience,
};
use worker::{Context, Env, event, web_sys};

use crate::{
    cache::{self, ApiRequest, RequestContext},
    connection::Connection,
    http::{self, Content, Delivery, JSON_TYPE, Target},
    incoming::{AnswerForm, IncomingRequest, READY, Resource, as_stream, check_post, form_of},
    index::{IndexClient, IndexResponse},
    limiter,
    log::{self, Record},
    pages,
    settings::{Settings, Signing},
    stream::{self, events::EventsSource, slot::StreamSlot},
    token,
};

/// The Worker's entry: every request gets an answer, errors included, and a line in the log, unless its
/// client disconnects.
#[event(fetch)]
async fn fetch(request: web_sys::Request, env: Env, context: Context) -> worker::Result<web_sys::Response> {
    let connection = Connection::of(&request);
    let responding = respond(IncomingRequest::new(&request), &env, context, &connection);
    connection.unless_closed(responding).await.unwrap_or_else(http::disconnected)
}

async fn respond(
    request: IncomingRequest<'_>,
    env: &Env,
    context: Context,
    connection: &Connection,
) -> worker::Result<web_sys::Response> {
    let id = log::request_id(|name| request.header(name));
    let ray = log::ray(|name| request.header(name));
    let mut record = Record::begin(id, ray, request.request.method(), unix_millis());
    if record.method == "OPTIONS" {
        let takes_post = Target::parse(request.request.url()).is_ok_and(|target| check_post(&target).is_ok());
        let response = http::preflight(&record.id, takes_post)?;
        record.write(204, unix_millis());
        return Ok(response);
    }
    let (answer, verdict) = answer(&request, env, context, &mut record).await;
    let settings = Settings::of(env).ok();
    let registry = settings.as_ref().and_then(|settings| settings.registry.as_deref());
    let delivery = Delivery {
        request_id: &record.id,
        registry: registry.filter(|_| is_about_verdicts(record.route)),
        verdict,
        now: Timestamp::from_millis(unix_millis()),
        is_compressed: matches!(&answer, Ok(Payload::Document(content)) if content.is_download)
            && request.takes_gzip(),
    };
    let (status, response) = match answer {
        Ok(Payload::Document(content)) => {
            record.source = content.source;
            // A POST ignores `If-None-Match`.
            let is_read = matches!(record.method.as_str(), "GET" | "HEAD");
            let known = if is_read { request.header("If-None-Match") } else { None };
            http::success(&content, record.cache != "MISS", known.as_deref(), &delivery)?
        }
        Ok(Payload::Events(events)) => {
            let head = Content::no_store(EVENTS_TYPE, "", delivery.now).varying_by_accept();
            let stream = events
                .map(|events| stream::events::open(events, connection.clone(), record.clone()))
                .transpose()?;
            (200, http::stream(&head, stream.as_ref(), &delivery)?)
        }
        Ok(Payload::List(context, first)) => {
            let mut head = Content::no_store(JSON_TYPE, "", delivery.now);
            let stream = match first {
                None => None,
                Some(IndexResponse { document, block, .. }) => {
                    head = head.with_block(block);
                    Some(stream::list::open(context, connection.clone(), document)?)
                }
            };
            (200, http::stream(&head, stream.as_ref(), &delivery)?)
        }
        Ok(Payload::Message(reply)) => (reply.status, http::message(reply.status, &reply.body, &delivery)?),
        Err(error) => {
            let status = status(&error, record.route);
            let body = match record.route {
                mcp::PATH => mcp::refused(request.call.get(), status, &error).body,
                _ => error.body(),
            };
            let response = http::failure(&error, status, &body, &delivery)?;
            record.error = error.code().name();
            (status, response)
        }
    };
    record.write(status, unix_millis());
    Ok(response)
}

/// A successful answer.
enum Payload {
    Document(Rc<Content>),
    /// A stream of changes; without one, the headers alone.
    Events(Option<EventsSource>),
    /// A list that is too long to be held in memory, and its first piece; without one, the headers alone.
    List(RequestContext, Option<IndexResponse>),
    /// A reply to an MCP client.
    Message(mcp::Reply),
}

impl From<Content> for Payload {
    fn from(content: Content) -> Self {
        Self::Document(Rc::new(content))
    }
}

/// Returns whether the answers of a route are verdicts, or changes of them.
fn is_about_verdicts(route: &str) -> bool {
    ["/api/v1/kya", "/api/v1/changes"].iter().any(|path| route.starts_with(path))
}

/// Returns the status of an error: 503 where a service that is not ready says why, else the documented one.
fn status(error: &Error, route: &str) -> u16 {
    match error.status() {
        500 if route == READY => 503,
        status => status,
    }
}

/// An answer, and the verdict of the rate limiter.
type RatedAnswer = (Result<Payload, Error>, Option<RateLimitVerdict>);

/// Answers anything but a preflight.
async fn answer(
    request: &IncomingRequest<'_>,
    env: &Env,
    context: Context,
    record: &mut Record,
) -> RatedAnswer {
    let now = Timestamp::from_millis(record.started_at);
    let target = match Target::parse(request.request.url()) {
        Ok(target) => target,
        Err(error) => return (Err(error), None),
    };
    if target.path() == mcp::PATH {
        record.route = mcp::PATH;
        let origin = request.header("Origin");
        if Settings::of(env).is_ok_and(|settings| !settings.takes_mcp_of(origin.as_deref())) {
            return (Ok(Payload::Message(mcp::forbidden())), None);
        }
    }
    let resource = Resource::parse(request, &record.method, &target).await;
    if let Ok(resource) = &resource {
        record.route = resource.name();
    }
    let resource = match resource {
        // These need no settings, or no limit.
        Ok(Resource::Page(page)) => return (page.content(env, &target, now).await.map(Payload::from), None),
        Ok(Resource::Live) => {
            return (Ok(Content::no_store(JSON_TYPE, r#"{"live":true}"#, now).into()), None);
        }
        Ok(Resource::Keys) => return (keys(env, now), None),
        Ok(Resource::Registry) => return (pages::registry(env, &target, now).map(Payload::from), None),
        Ok(Resource::Message(reply)) => return (Ok(Payload::Message(reply)), None),
        resource => resource,
    };
    let settings = match Settings::of(env) {
        Ok(settings) => settings,
        Err(error) => return (Err(error), None),
    };
    let index = IndexClient::of(&settings.shared, env).map(Rc::new);
    let origin = target.origin().into();
    let context = RequestContext { settings, runtime: Rc::new(context), origin, index, signer: None };
    let question = match resource {
        Ok(Resource::Batch(messages)) => {
            return batch(request, env, &context, messages, record).boxed_local().await;
        }
        Ok(Resource::Tool(call)) => Ok((ApiRequest::Api(call.route.clone()), AnswerForm::Tool(call))),
        Ok(Resource::Counted(counted)) => as_stream(request, &target, counted).and_then(|counted| {
            form_of(request, &context.settings, &target, &counted).map(|form| (counted, form))
        }),
        // The others are answered above.
        Ok(_) => Err(Error::NotFound),
        Err(error) => Err(error),
    };
    match question {
        Ok((counted, form)) => admitted(request, env, context, counted, form, record).await,
        // A request that is refused before it costs anything is not charged.
        Err(error) => (Err(error), limiter::peek(&context.settings.limits, &request.client(), now)),
    }
}

/// Answers the messages of a batch, each of which counts by itself.
async fn batch(
    request: &IncomingRequest<'_>,
    env: &Env,
    context: &RequestContext,
    messages: Vec<mcp::Message>,
    record: &mut Record,
) -> RatedAnswer {
    let (mut replies, mut rated) = (Vec::new(), None);
    for message in messages {
        let call = match message {
            mcp::Message::Call(call) => call,
            mcp::Message::Answered(reply) => {
                replies.push(reply);
                continue;
            }
            mcp::Message::Batch(_) => continue,
        };
        let (counted, form) = (ApiRequest::Api(call.route.clone()), AnswerForm::Tool(call.clone()));
        let (answer, verdict) = admitted(request, env, context.clone(), counted, form, record).await;
        rated = verdict.or(rated);
        match answer {
            Ok(Payload::Message(reply)) => replies.push(reply),
            // A tool's answer has no other form.
            Ok(_) => {}
            Err(error) => {
                record.error = error.code().name();
                replies.push(mcp::refused(Some(&call), error.status(), &error));
            }
        }
    }
    (Ok(Payload::Message(mcp::Reply::of_batch(replies))), rated)
}

/// Answers a request that counts against the client's limit, where the limit admits it.
async fn admitted(
    request: &IncomingRequest<'_>,
    env: &Env,
    context: RequestContext,
    counted: ApiRequest,
    form: AnswerForm,
    record: &mut Record,
) -> RatedAnswer {
    // Not the time of arrival: reading the content, or a batch's earlier messages, may have taken a window.
    let now = Timestamp::from_millis(unix_millis());
    let (settings, client) = (&context.settings, request.client());
    let acceptance = acceptance_of(request, settings, &counted, now).filter(|_| !form.is_tool());
    let cost = counted.cost().saturating_add(u32::from(acceptance.is_some()));
    let verdict = limiter::charge(settings, env, &context.runtime, &client, now, cost).await;
    if verdict.is_some_and(|verdict| !verdict.admitted) {
        return (Err(Error::RateLimited), verdict);
    }
    // Code at an older block says nothing about code at the newest one: the two are kept apart.
    let is_newest = matches!(&counted, ApiRequest::Api(route) if route.block().is_none());
    let signer = acceptance.as_ref().filter(|_| is_newest).and_then(PresentedAcceptance::signer);
    let context = RequestContext { signer, ..context };
    // Boxed, it is a function of its own: V8 takes megabytes to optimize a long one that is polled again and
    // again.
    let payload = match counted {
        ApiRequest::Events(since) => events(context, since, client, record).boxed_local(),
        counted => payload(context, counted, form, acceptance, record).boxed_local(),
    };
    (payload.await, verdict)
}

/// Reads the acceptance of a request for the verdict on one wallet, and checks what takes no reads.
fn acceptance_of(
    request: &IncomingRequest<'_>,
    settings: &Settings,
    counted: &ApiRequest,
    now: Timestamp,
) -> Option<PresentedAcceptance> {
    let ApiRequest::Api(Route::Kya { wallet, .. }) = counted else { return None };
    let place = (settings.shared.chain_id, settings.shared.registry);
    let header = request.header(liability::HEADER)?;
    Some(PresentedAcceptance::read(&header, place, *wallet, now))
}

/// Judges the verdict by an acceptance. The result belongs to one request and is kept nowhere.
async fn judge(
    context: &RequestContext,
    acceptance: &PresentedAcceptance,
    verdict: &Content,
    record: &mut Record,
) -> Result<JudgedVerdict, Error> {
    let unread = || Error::Misconfigured("a verdict cannot be read".to_owned());
    let body = core::str::from_utf8(&verdict.body).map_err(|_| unread())?;
    let has_code = context.signer.and_then(cache::signers::has_code);
    let now = || Timestamp::from_millis(unix_millis());
    match acceptance.judge(body, has_code, now()).ok_or_else(unread)? {
        Judgement::Judged(judged) => Ok(judged),
        Judgement::Ask(query) => {
            record.cache = "MISS";
            let until = verdict.made_at.as_millis().saturating_add(verdict.max_age_millis());
            let code = cache::signers::ask(context, query, until, record).await?;
            acceptance.conclude(body, code, now()).ok_or_else(unread)
        }
    }
}

/// Returns the keys that verdicts are signed with.
fn keys(env: &Env, now: Timestamp) -> Result<Payload, Error> {
    let settings = Settings::of(env)?;
    let signing = settings.signing.as_ref().ok_or(Error::NotFound)?;
    Ok(token::published(signing, now).into())
}

/// Opens a stream of changes. Its slot is taken before its first piece is read.
async fn events(
    context: RequestContext,
    since: Since,
    client: ClientKey,
    record: &mut Record,
) -> Result<Payload, Error> {
    let slot = match record.method.as_str() {
        "GET" => Some(StreamSlot::open(&context.settings, client)?),
        _ => None,
    };
    let first = cache::answer(&context, ApiRequest::Events(since), record).await?;
    Ok(Payload::Events(slot.map(|slot| EventsSource { context, slot, first })))
}

/// Answers an admitted request: a document in its form, or a streamed list with its first piece.
async fn payload(
    context: RequestContext,
    counted: ApiRequest,
    form: AnswerForm,
    acceptance: Option<PresentedAcceptance>,
    record: &mut Record,
) -> Result<Payload, Error> {
    let is_whole_list = matches!(counted, ApiRequest::Api(Route::Compliance(None)));
    match (cache::answer(&context, counted, record).await, context.index.clone()) {
        (Err(error), Some(index)) if is_whole_list && error.code() == Code::TooLarge => {
            let first = match record.method.as_str() {
                "HEAD" => None,
                _ => Some(index.list_piece(None).await?),
            };
            Ok(Payload::List(context, first))
        }
        (Ok(verdict), _) if acceptance.is_some() && !form.is_tool() => {
            let judging = async {
                let acceptance = acceptance.as_ref().ok_or(Error::NotFound)?;
                judge(&context, acceptance, &verdict, record).await
            };
            let judged = judging.boxed_local().await?;
            let now = Timestamp::from_millis(unix_millis());
            match (form, &context.settings.signing) {
                (AnswerForm::Token(audience), Some(signing)) => {
                    signed(&context, signing, &verdict, Some(&judged), audience).await
                }
                _ => Ok(Content::no_store(JSON_TYPE, &judged.body, now)
                    .with_source(verdict.source)
                    .varying_by_request()
                    .into()),
            }
        }
        (answer, _) => match (form, &context.settings.signing) {
            (AnswerForm::Tool(call), _) => Ok(Payload::Message(match answer {
                Ok(document) => {
                    record.source = document.source;
                    call.answered(&document.body)
                }
                Err(error) => {
                    record.error = error.code().name();
                    call.failed(&error)
                }
            })),
            (AnswerForm::Token(audience), Some(signing)) => {
                signed(&context, signing, &*answer?, None, audience).await
            }
            _ => answer.map(Payload::Document),
        },
    }
}

/// Signs a verdict as a token.
async fn signed(
    context: &RequestContext,
    signing: &Signing,
    verdict: &Content,
    judged: Option<&JudgedVerdict>,
    audience: Option<Audience>,
) -> Result<Payload, Error> {
    let now = Timestamp::from_millis(unix_millis());
    let registry = context.settings.registry.as_deref().unwrap_or_default();
    let audience = audience.as_ref().map(Audience::as_str);
    token::sign(signing, verdict, judged, registry, audience, now).await.map(Payload::from)
}
