//! The object that keeps an index up: one for each chain and registry.
//!
//! It holds nothing in memory but what is known of its endpoints, and who works: the state is in SQL, so that an object
//! that dies anywhere goes on where it was. One piece of work goes on at a time; whoever asks meanwhile waits for it, by a timer of
//! its own.

use std::{
    cell::{Cell, RefCell},
    time::Duration,
};

use alloy_primitives::Address;
use futures_util::FutureExt as _;
use registry_core::{
    api::document::Document,
    api::index_documents,
    api::route::{CacheScope, Route},
    chain::{Endpoints, QueryError, Reply, RunError, Update},
    eth::timestamp::Timestamp,
    host::shared_reads::due_for_renewal,
    index::{
        Config, Excerpt, HistoryQuery, IndexError, ListCursor, Phase, State, Step, Store, Value, Work,
        prepare,
    },
    registry::agent::AgentId,
    registry::history::HistoryCursor,
};
use worker::{
    Delay,
    DurableObject,
    Env,
    Request,
    Response,
    Result,
    console_warn,
    durable_object,
    js_sys::{Object, Reflect, WebAssembly},
    // What `durable_object` expands to names this crate.
    wasm_bindgen,
};

use super::{
    EVENTS, LIST, PAST, PAST_NOW, PROGRESS, TICK,
    answer::{Form, WHOLE_LIST, answer, failure, found, progress, refusal, warn},
    name,
    sql::Sql,
};
use crate::{chain, log::unix_millis, settings::Settings};

/// Agents of a slice of the fill: what is read at once. A larger one takes more memory while it is read.
const SLICE: u64 = 5_000;
/// Agents that the sweep looks at in each refresh.
const SWEEP: u64 = 500;
/// Pages of 64 KiB of the memory that V8 is made to collect by. It does so once they are 64 MiB since it last did, every other slice:
/// during a fill it counts 84 MiB at most (by its `--trace-gc-verbose`), of the 128 MiB that the platform gives an isolate.
const UNTOUCHED_PAGES: u32 = 256;
/// Milliseconds until somebody who waits for another's work looks again.
const PAUSE_MILLIS: u64 = 25;
/// Milliseconds that a question waits for the fill: enough for some slices.
const FILL_PATIENCE_MILLIS: u64 = 3_000;
/// Milliseconds after which work that failed is tried again, and an alarm that has not fired is set again.
const RETRY_MILLIS: u64 = 5_000;
/// What a lease is longer than the time the chain has.
const LEASE_MARGIN_MILLIS: u64 = 1_000;
/// Without a question for so many cache times an object is idle.
const IDLE_CACHE_TIMES: u64 = 3;
/// Times a history is begun anew as the chain is reorganised under it.
const HISTORY_RESTARTS: u32 = 3;
/// Milliseconds that a note of the last question may be old.
const NOTE_MILLIS: u64 = 30_000;

/// The index of one registry on one chain.
#[durable_object(alarm)]
pub struct RegistryIndex {
    state: worker::State,
    env: Env,
    /// What is known of the endpoints; plain data, and worth nothing after a restart.
    endpoints: RefCell<Option<Endpoints>>,
    is_prepared: Cell<bool>,
    lease: Cell<Lease>,
    noted_at: Cell<u64>,
}

/// The right to work. Whoever loses it while it waits for the chain writes nothing any more: what it has read is of another
/// block than the rows.
#[derive(Clone, Copy, Default)]
struct Lease {
    /// Which piece of work has it.
    number: u64,
    /// Until when, unix milliseconds; then somebody else may take it.
    until: u64,
}

impl DurableObject for RegistryIndex {
    fn new(state: worker::State, env: Env) -> Self {
        Self {
            state,
            env,
            endpoints: RefCell::default(),
            is_prepared: Cell::new(false),
            lease: Cell::default(),
            noted_at: Cell::new(0),
        }
    }

    async fn fetch(&self, mut request: Request) -> Result<Response> {
        let body = request.text().await?;
        let settings = Settings::of(&self.env).map_err(|error| error.to_string())?;
        let own = name(&settings);
        let Some(target) = body.strip_prefix(&own).and_then(|rest| rest.strip_prefix('\n')) else {
            console_warn!("the index's settings differ from those of who asks: they make it {own}");
            return Response::error("not the index of this chain and registry", 502);
        };
        let sql = self.sql()?;
        match target {
            PROGRESS => return progress(&State::load(&sql).map_err(failed)?, 200),
            TICK => {
                self.arm(&sql, &settings, true).await?;
                return Response::empty();
            }
            _ => {}
        }
        self.note_question(&sql)?;
        // What is boxed here and below is a function of its own: V8 takes megabytes to optimize a long one that is polled again and again.
        match target.split_once(' ') {
            Some((word @ (PAST | PAST_NOW), wallets)) => {
                self.excerpt(&sql, &settings, wallets, word == PAST_NOW).boxed_local().await
            }
            _ => {
                let (form, endpoint) = question(target)?;
                self.tell(&sql, &settings, form, endpoint).boxed_local().await
            }
        }
    }

    async fn alarm(&self) -> Result<Response> {
        let settings = Settings::of(&self.env).map_err(|error| error.to_string())?;
        let sql = self.sql()?;
        let state = State::load(&sql).map_err(failed)?;
        let mut worked = Ok(());
        // One piece of work for each alarm: together they might take more CPU time than a request may.
        if self.is_asked(&sql, &settings)? && (state.phase != Phase::Complete || is_due(&state, &settings)) {
            worked = self.work(&sql, &settings, &mut 0).boxed_local().await;
        }
        self.arm(&sql, &settings, worked.is_ok()).await?;
        if let Err(error) = &worked {
            warn(error, &settings);
        }
        Response::empty()
    }
}

impl RegistryIndex {
    fn sql(&self) -> Result<Sql> {
        let sql = Sql(self.state.storage().sql());
        if !self.is_prepared.get() {
            prepare(&sql).map_err(failed)?;
            self.is_prepared.set(true);
        }
        Ok(sql)
    }

    /// The answer to a question, from an index that is as new as that has to be.
    async fn tell(&self, sql: &Sql, settings: &Settings, form: Form, endpoint: Route) -> Result<Response> {
        let mut rpc_calls = 0;
        let seconds = match form {
            Form::Events => settings.follow_seconds(),
            _ => settings.time_to_live(endpoint.cache_scope()),
        };
        let keep_for = u64::from(seconds) * 1_000;
        let ready = match form {
            // Of the block of its first piece, whatever the index has come to.
            Form::Piece(Some(_)) => State::load(sql).map_err(IndexError::from),
            _ => self.ready(sql, settings, keep_for, &mut rpc_calls).await,
        };
        self.arm(sql, settings, ready.is_ok()).await?;
        let made = match (ready, &endpoint) {
            (Ok(state), Route::History { id, limit, cursor }) => {
                let asked = (*id, *limit, *cursor);
                let told = self.history(sql, settings, state, asked, &mut rpc_calls).boxed_local().await;
                told.map(|(state, document)| (state, Some(document)))
            }
            (ready, _) => ready.map(|state| (state, None)),
        };
        respond(sql, settings, (&endpoint, form), made, rpc_calls)
    }

    /// What the index knows of these wallets. A verdict reads on from there, so that this need not be as of now; where it is too
    /// old for that, the next one will find it newer.
    async fn excerpt(&self, sql: &Sql, settings: &Settings, wallets: &str, now: bool) -> Result<Response> {
        let wallets: Vec<Address> =
            wallets.split(' ').map(str::parse).collect::<core::result::Result<_, _>>().map_err(failed)?;
        let keep_for = cache_millis(settings).max(NOTE_MILLIS);
        let ready = match now {
            true => self.ready(sql, settings, keep_for, &mut 0).await,
            false => State::load(sql).map_err(IndexError::from),
        };
        self.arm(sql, settings, ready.is_ok()).await?;
        match ready {
            Ok(state) if unix_millis() < state.read_at.saturating_add(keep_for) => {
                match Excerpt::of(sql, &state, &wallets) {
                    Ok(excerpt) => Response::ok(excerpt.encode()),
                    Err(_) => Response::error("not known", 404),
                }
            }
            _ => Response::error("not known", 404),
        }
    }

    /// The state, once an answer may be made from it that is kept for so many milliseconds from when the chain was asked.
    async fn ready(
        &self,
        sql: &Sql,
        settings: &Settings,
        keep_for: u64,
        rpc_calls: &mut u32,
    ) -> core::result::Result<State, IndexError> {
        let began = unix_millis();
        loop {
            let state = State::load(sql)?;
            let is_fresh = unix_millis() < due_for_renewal(state.read_at, keep_for);
            // Read since this question came, if answers are not to be kept at all.
            if state.as_of().is_some() && (state.read_at >= began || is_fresh) {
                return Ok(state);
            }
            let patience = match state.as_of() {
                Some(_) => u64::from(settings.rpc_deadline_seconds) * 1_000,
                None => FILL_PATIENCE_MILLIS,
            };
            if unix_millis() > began + patience {
                return Err(IndexError::Incomplete { percent: state.percent() });
            }
            self.work(sql, settings, rpc_calls).boxed_local().await?;
        }
    }

    /// One piece of work; where somebody else works, a moment's wait.
    async fn work(
        &self,
        sql: &Sql,
        settings: &Settings,
        rpc_calls: &mut u32,
    ) -> core::result::Result<(), IndexError> {
        let Lease { number, until } = self.lease.get();
        let now = unix_millis();
        if now < until {
            Delay::from(Duration::from_millis(PAUSE_MILLIS)).await;
            return Ok(());
        }
        let lease = Lease { number: number + 1, until: now + LEASE_MARGIN_MILLIS };
        self.lease.set(lease);
        let worked = self.drive(sql, settings, lease.number, rpc_calls).await;
        if self.lease.get().number == lease.number {
            self.lease.set(Lease { until: 0, ..lease });
        }
        if let Err(IndexError::Store(_)) = &worked {
            // A step of which a part was written: nothing there can be relied on.
            self.is_prepared.set(false);
            // Where even that fails, so does whatever comes next.
            let _ = self.state.storage().delete_all().await;
        }
        worked
    }

    async fn drive(
        &self,
        sql: &Sql,
        settings: &Settings,
        number: u64,
        rpc_calls: &mut u32,
    ) -> core::result::Result<(), IndexError> {
        let began = unix_millis();
        let mut work = Work::begin(sql, config(settings, began), self.endpoints(settings), began)?;
        loop {
            let elapsed = unix_millis().saturating_sub(began);
            work.passed(u32::try_from(elapsed).unwrap_or(u32::MAX));
            // Nothing is awaited within a step: what it writes is one transaction.
            let Step::Send(batch) = work.step(sql)? else { return Ok(()) };
            *rpc_calls += 1;
            let millis = u64::from(batch.delay_ms) + u64::from(batch.timeout_ms);
            self.lease.set(Lease { number, until: unix_millis() + millis + LEASE_MARGIN_MILLIS });
            let reply = chain::post(&settings.rpc, &batch).await;
            let_v8_collect();
            if self.lease.get().number != number {
                return Ok(());
            }
            let fed = match reply {
                Ok((status, body)) => work.feed(Reply { status, body: &body }),
                Err(failure) => work.fail(failure),
            };
            self.merge(&work.update());
            fed?;
        }
    }

    /// What happened to an agent, and the state that it is as of: a refreshed one where the chain was reorganised meanwhile.
    async fn history(
        &self,
        sql: &Sql,
        settings: &Settings,
        mut state: State,
        asked: (AgentId, u64, Option<HistoryCursor>),
        rpc_calls: &mut u32,
    ) -> core::result::Result<(State, Document), IndexError> {
        let began = unix_millis();
        for _ in 0..HISTORY_RESTARTS {
            let config = config(settings, unix_millis());
            let query = HistoryQuery::new(sql, &state, settings.registry, asked)?;
            let run = query.run(&config, self.endpoints(settings));
            match chain::drive(run, &settings.rpc, began, rpc_calls, &|_| (), &|update| self.merge(update))
                .await
            {
                // This block is no longer on the chain: a refresh comes first, whatever may be kept.
                Err(QueryError::BlockNotAvailable(_)) => {
                    state = self.ready(sql, settings, 0, rpc_calls).await?;
                }
                history => return Ok((state, index_documents::history(history?))),
            }
        }
        Err(RunError::BlockUnavailable.into())
    }

    /// What a run has found out of the endpoints.
    fn merge(&self, update: &Update) {
        if let Some(known) = self.endpoints.borrow_mut().as_mut() {
            known.merge(update);
        }
    }

    /// What is known of the endpoints.
    fn endpoints(&self, settings: &Settings) -> Endpoints {
        let mut known = self.endpoints.borrow_mut();
        known.get_or_insert_with(|| Endpoints::new(settings.rpc.len(), settings.chain_id)).clone()
    }

    /// Notes that somebody has asked; in storage now and then, as the object's memory may end at any time.
    fn note_question(&self, sql: &Sql) -> Result<()> {
        let now = unix_millis();
        if now < self.noted_at.get() + NOTE_MILLIS {
            return Ok(());
        }
        let statement = "INSERT OR REPLACE INTO meta (key, value) VALUES ('asked_at', ?1)";
        sql.execute(statement, &[Value::Text(now.to_string())]).map_err(failed)?;
        self.noted_at.set(now);
        Ok(())
    }

    /// Whether somebody has asked lately.
    fn is_asked(&self, sql: &Sql, settings: &Settings) -> Result<bool> {
        let rows = sql.execute("SELECT value FROM meta WHERE key = 'asked_at'", &[]).map_err(failed)?;
        let asked_at = match rows.first().and_then(|row| row.first()) {
            Some(Value::Text(text)) => text.parse().unwrap_or(0),
            _ => 0,
        };
        let idle = cache_millis(settings).max(NOTE_MILLIS).saturating_mul(IDLE_CACHE_TIMES);
        Ok(unix_millis() < idle.saturating_add(asked_at))
    }

    /// Sets the alarm for the next work, as long as somebody asks; later where the last work failed.
    async fn arm(&self, sql: &Sql, settings: &Settings, worked: bool) -> Result<()> {
        if !self.is_asked(sql, settings)? {
            return Ok(());
        }
        let now = unix_millis();
        let storage = self.state.storage();
        if let Some(at) = storage.get_alarm().await?
            && u64::try_from(at).unwrap_or(0) > now.saturating_sub(RETRY_MILLIS)
        {
            return Ok(());
        }
        let state = State::load(sql).map_err(failed)?;
        let at = match state.phase {
            _ if !worked => now + RETRY_MILLIS,
            // Answers that are not kept are read when they are asked for.
            Phase::Complete if cache_millis(settings) == 0 => return Ok(()),
            Phase::Complete => refresh_at(&state, settings),
            Phase::Filling { .. } | Phase::CatchingUp => now,
        };
        let offset = Duration::from_millis(at.saturating_sub(now));
        storage.set_alarm(offset).await
    }
}

/// What is asked, and in which form.
#[inline(never)]
fn question(target: &str) -> Result<(Form, Route)> {
    let (form, target) = match target.split_once(' ') {
        Some((EVENTS, target)) => (Form::Events, target),
        Some((LIST, "")) => (Form::Piece(None), WHOLE_LIST),
        Some((LIST, begin)) => {
            let cursor = ListCursor::parse(begin).ok_or("not a place in a list")?;
            (Form::Piece(Some(cursor)), WHOLE_LIST)
        }
        _ => (Form::Document, target),
    };
    Ok((form, Route::parse(target).map_err(|error| error.to_string())?))
}

/// The response, from the state of an index that is ready, and a document where it has been made.
#[inline(never)]
fn respond(
    sql: &Sql,
    settings: &Settings,
    (endpoint, form): (&Route, Form),
    made: core::result::Result<(State, Option<Document>), IndexError>,
    rpc_calls: u32,
) -> Result<Response> {
    match made {
        Ok((state, Some(document))) => found(&state, document, rpc_calls),
        Ok((state, None)) => answer(sql, settings, &state, (endpoint, form), rpc_calls),
        Err(IndexError::Incomplete { .. }) => progress(&State::load(sql).map_err(failed)?, 503),
        Err(IndexError::Query(error @ QueryError::AgentNotFound(_))) => failure(error.into(), settings),
        Err(error) => refusal(error, endpoint, &State::load(sql).map_err(failed)?, settings),
    }
}

/// Has V8 collect now and then what exchanges leave behind. Behind each object of the runtime that JavaScript has seen (a response, a
/// stream, a promise) there are kilobytes that V8 does not know of; by what it does know of, it would collect nothing for a whole
/// fill. It knows the size of this, of which no page is ever there, as none is touched.
fn let_v8_collect() {
    let descriptor = Object::new();
    // Where it cannot be made, V8 has collected.
    let _ = Reflect::set(&descriptor, &"initial".into(), &UNTOUCHED_PAGES.into());
    let _ = WebAssembly::Memory::new(&descriptor);
}

/// What the index reads, and how, at a time in unix milliseconds.
fn config(settings: &Settings, now: u64) -> Config {
    Config {
        registry: settings.registry,
        multicall3: settings.multicall3,
        limits: chain::limits(settings, Timestamp::from_millis(now)),
        slice: SLICE,
        sweep: SWEEP,
    }
}

/// Milliseconds that an answer may be kept.
fn cache_millis(settings: &Settings) -> u64 {
    u64::from(settings.time_to_live(CacheScope::Agent)) * 1_000
}

/// When to refresh: before an answer made from it becomes too old.
fn refresh_at(state: &State, settings: &Settings) -> u64 {
    state.read_at.saturating_add(cache_millis(settings) / 4 * 3)
}

fn is_due(state: &State, settings: &Settings) -> bool {
    cache_millis(settings) == 0 || refresh_at(state, settings) <= unix_millis()
}

fn failed(error: impl core::fmt::Display) -> worker::Error {
    error.to_string().into()
}
