//! The object that keeps an index up to date: one for each chain and registry.
//!
//! Its state is in SQL, so that an object that dies at any point resumes where it was. In memory are the
//! lease, the last fault of the store, known facts about the endpoints, and the last state: a refresh without
//! changes writes none. One piece of [work](crate::upkeep) runs at a time; concurrent requests wait for it,
//! each by a timer of its own.
//!
//! If the store fails, its last transaction is rolled back, and the rows stay. The work is tried again after
//! a pause. No request starts it earlier: that would not restore a quota, and would read the chain for
//! nothing. Only a corrupt index is deleted, and filled anew.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use alloy_primitives::Address;
use edge_shared::{chain, index::warn_of_other_version, settings::WorkerSettings, unix_millis};
use futures_util::FutureExt as _;
use host_kit::drive;
use registry_core::{
    api::document::Document,
    api::index_documents,
    api::route::{CacheScope, Route},
    chain::{QueryError, RunError},
    index::{
        Excerpt, HistoryQuery, Index, IndexError, ListCursor, RowsBilled, SqlValue, State, Store, StoreError,
        prepare,
        protocol::{
            IndexAnswer, IndexQuestion, IndexRequest, NEVER, OTHER_VERSION_STATUS, PROTOCOL_VERSION,
            VERSION_HEADER, check_version,
        },
    },
    registry::agent::AgentId,
    registry::history::HistoryCursor,
    snapshot::{ShardEntry, ShardRange, ShardVersion},
};
use worker::{DurableObject, Env, Request, Response, console_warn, durable_object};
// `durable_object` expands to paths of this crate.
use worker::wasm_bindgen;

use crate::{
    answer::{
        Form, HttpResult, document, failure, not_covered, progress, refusal, respond, unanswered, warn,
    },
    faults::Faults,
    snapshot::{self, Snapshots},
    sql::Sql,
    upkeep::{WorkLease, config},
};

/// Number of TTLs without a request after which an object is idle.
const IDLE_CACHE_TIMES: u64 = 3;
/// Restarts of a history because of reorgs.
const HISTORY_RESTARTS: u32 = 3;
/// The precision, in milliseconds, with which the time of the last request is stored.
const NOTE_MILLIS: u64 = 30_000;

/// The index of one registry on one chain.
#[durable_object(alarm)]
pub struct RegistryIndex {
    pub(crate) state: worker::State,
    pub(crate) env: Env,
    /// Known facts about the endpoints; not worth storing.
    pub(crate) endpoints: chain::KnownEndpoints,
    /// The state after the last step, which is that of the rows.
    pub(crate) kept: RefCell<Option<Rc<State>>>,
    is_prepared: Cell<bool>,
    pub(crate) lease: Cell<WorkLease>,
    /// End of the alarm's pause after a failure of the chain, in unix milliseconds.
    pub(crate) paused_until: Cell<u64>,
    pub(crate) faults: Faults,
    /// Rows that were read and written since the object started.
    pub(crate) rows: Rc<Cell<RowsBilled>>,
    snapshots: Snapshots,
    /// A request for a manifest has refreshed the index since the object started.
    has_looked: Cell<bool>,
    /// Time at which the time of the last request was stored.
    noted_at: Cell<u64>,
    /// The object's name is known to be stored.
    pub(crate) is_named: Cell<bool>,
}

impl DurableObject for RegistryIndex {
    fn new(state: worker::State, env: Env) -> Self {
        Self {
            state,
            env,
            endpoints: chain::KnownEndpoints::new(),
            kept: RefCell::default(),
            is_prepared: Cell::new(false),
            lease: Cell::default(),
            paused_until: Cell::new(0),
            faults: Faults::default(),
            rows: Rc::new(Cell::new(RowsBilled { since: unix_millis() / 1_000, ..RowsBilled::default() })),
            snapshots: Snapshots::default(),
            has_looked: Cell::new(false),
            noted_at: Cell::new(0),
            is_named: Cell::new(false),
        }
    }

    async fn fetch(&self, request: Request) -> HttpResult {
        let mut response = match check_version(request.headers().get(VERSION_HEADER)?.as_deref()) {
            Ok(()) => self.respond(request).boxed_local().await?,
            Err(other) => {
                warn_of_other_version("request refused", &other);
                Response::error(other.to_string(), OTHER_VERSION_STATUS)?
            }
        };
        response.headers_mut().set(VERSION_HEADER, &PROTOCOL_VERSION.to_string())?;
        Ok(response)
    }

    async fn alarm(&self) -> HttpResult {
        let settings = WorkerSettings::of(&self.env).map_err(|error| error.to_string())?;
        let worked = match self.sql() {
            // Another release's format, or other settings. The platform sets a failed alarm again.
            Err(StoreError::OtherFormat) => return self.rest().await,
            Ok(sql) if !self.is_own(&sql, &settings).map_err(failed)? => return self.rest().await,
            Ok(sql) => {
                let worked = self.work_if_due(&sql, &settings).boxed_local().await;
                self.arm(&sql, &settings).await;
                worked
            }
            Err(error) => Err(self.keep_fault(error).await.into()),
        };
        if let Err(error) = &worked {
            warn(error, &settings);
        }
        Response::empty()
    }
}

impl RegistryIndex {
    /// Responds to a request of this version.
    async fn respond(&self, mut request: Request) -> HttpResult {
        let IndexRequest { object, question } = request.json().await?;
        let settings = WorkerSettings::of(&self.env).map_err(|error| error.to_string())?;
        let own = settings.index_name().unwrap_or_default();
        if let IndexQuestion::Takeover(key) = question
            && settings.earlier_index_names().is_some_and(|names| names.contains(&object))
        {
            return self.part(key).await;
        }
        if object != own {
            console_warn!("a Worker with other settings asks: this is the index of {own}");
            return Response::error("not the index of this chain and registry", 502);
        }
        let sql = match self.sql() {
            Ok(sql) => sql,
            Err(error) => return self.without_store(&error, &question).await,
        };
        self.keep_name(&sql, &settings);
        let (form, route) = match question {
            IndexQuestion::Takeover(_) => return not_covered(),
            IndexQuestion::Progress => return self.progress(&sql).await,
            IndexQuestion::Tick => {
                self.arm(&sql, &settings).await;
                return self.progress(&sql).await;
            }
            IndexQuestion::CloseList { cursor } => {
                let cursor = ListCursor::parse(&cursor).ok_or("not a cursor of a list")?;
                let closed = self.load(&sql).map_err(IndexError::from).and_then(|state| {
                    let index = Index::new(&sql, &state, settings.registry, &settings.public_rpc);
                    sql.transaction(|| index.close_list(cursor))
                });
                if let Err(IndexError::Store(error)) = closed {
                    self.keep_fault(error).await;
                }
                return self.progress(&sql).await;
            }
            IndexQuestion::Excerpt { wallets, refresh } => {
                self.note_request(&sql).await;
                // Boxed, here and below, it is a function of its own: V8 takes megabytes to optimize a long
                // one that is polled again and again.
                return self.excerpt(&sql, &settings, &wallets, refresh).boxed_local().await;
            }
            IndexQuestion::Manifest => {
                self.note_request(&sql).await;
                return self.snapshot(&sql, &settings, None).boxed_local().await;
            }
            IndexQuestion::Shard { start, bits, block, tag } => {
                let (range, version) = (ShardRange { start, bits }, ShardVersion { block, tag });
                let entry = Some(ShardEntry { range, version });
                return self.snapshot(&sql, &settings, entry).boxed_local().await;
            }
            IndexQuestion::Document { route } => (Form::Document, Route::parse(&route)),
            IndexQuestion::Events { route } => (Form::Events, Route::parse(&route)),
            IndexQuestion::ListPiece { cursor } => {
                let parse = |cursor: String| ListCursor::parse(&cursor).ok_or("not a cursor of a list");
                (Form::Piece(cursor.map(parse).transpose()?), Ok(Route::Compliance(None)))
            }
        };
        self.note_request(&sql).await;
        self.answer(&sql, &settings, form, route.map_err(failed)?).boxed_local().await
    }

    /// Opens the database as it is, in any format.
    pub(crate) fn raw_sql(&self) -> Sql {
        Sql::new(&self.state.storage(), Rc::clone(&self.rows))
    }

    fn sql(&self) -> Result<Sql, StoreError> {
        let sql = self.raw_sql();
        if !self.is_prepared.get() {
            sql.transaction(|| Ok(prepare(&sql)?)).map_err(|error| match error {
                IndexError::Store(error) => error,
                other => StoreError::Failed(other.to_string()),
            })?;
            self.is_prepared.set(true);
            sql.warn_of_size();
        }
        Ok(sql)
    }

    /// Returns the state of the rows.
    pub(crate) fn load(&self, sql: &Sql) -> Result<Rc<State>, StoreError> {
        if let Some(kept) = &*self.kept.borrow() {
            return Ok(Rc::clone(kept));
        }
        let state = Rc::new(State::load(sql)?);
        self.kept.replace(Some(Rc::clone(&state)));
        Ok(state)
    }

    /// Notes a failure of the store, and deletes an index that is corrupt.
    pub(crate) async fn keep_fault(&self, error: StoreError) -> StoreError {
        if self.faults.note(&error) && error == StoreError::Corrupt {
            // If this fails, the next work finds the same rows.
            let _ = self.delete().await;
        }
        error
    }

    /// Deletes all stored data. Work that waits for the chain loses its lease: the rows that it would write
    /// belong to the deleted ones.
    pub(crate) async fn delete(&self) -> worker::Result<()> {
        self.lease.set(self.lease.get().revoked());
        let deleted = self.state.storage().delete_all().await;
        // A request that came meanwhile may have prepared tables and loaded a state that are gone now.
        self.lease.set(self.lease.get().revoked());
        self.is_prepared.set(false);
        self.noted_at.set(0);
        self.is_named.set(false);
        self.kept.replace(None);
        deleted
    }

    /// Answers if the store cannot be opened.
    async fn without_store(&self, error: &StoreError, question: &IndexQuestion) -> HttpResult {
        self.keep_fault(error.clone()).await;
        match question {
            IndexQuestion::Progress | IndexQuestion::Tick => {
                progress(&State::default(), Some(error.fault()), self.rows.get())
            }
            _ => not_covered(),
        }
    }

    /// Answers with the progress, and the fault of the store if it failed.
    async fn progress(&self, sql: &Sql) -> HttpResult {
        match self.load(sql) {
            Ok(state) => progress(&state, self.faults.kind(), self.rows.get()),
            Err(error) => self.without_store(&error, &IndexQuestion::Progress).await,
        }
    }

    /// Answers a question from an index that is fresh enough for it.
    async fn answer(&self, sql: &Sql, settings: &WorkerSettings, form: Form, route: Route) -> HttpResult {
        let mut rpc_calls = 0;
        let seconds = match form {
            Form::Events => settings.follow_seconds(),
            _ => settings.time_to_live(route.cache_scope()),
        };
        let millis = u64::from(seconds) * 1_000;
        let ready = match form {
            // As of the block of its first piece, whatever the index's block is now.
            Form::Piece(Some(_)) => self.load(sql).map_err(IndexError::from),
            _ => self.ready(sql, settings, (millis, millis), &mut rpc_calls).await,
        };
        self.arm(sql, settings).await;
        let state = match ready {
            Ok(state) => state,
            Err(error) => return self.refuse(sql, settings, &route, error).await,
        };
        if let Route::History { id, limit, cursor } = route {
            let page = (id, limit, cursor);
            let history = self.history(sql, settings, state, page, &mut rpc_calls).boxed_local().await;
            return match history {
                Ok((state, document)) => respond(&state, document, rpc_calls),
                Err(error) => self.refuse(sql, settings, &route, error).await,
            };
        }
        match sql.transaction(|| document(sql, settings, &state, (&route, form))) {
            Ok(document) => respond(&state, document, rpc_calls),
            Err(error @ (IndexError::Store(_) | IndexError::Incomplete { .. })) => {
                self.refuse(sql, settings, &route, error).await
            }
            Err(error) => unanswered(error, (&route, form), settings),
        }
    }

    /// Responds to a question that the index cannot answer.
    async fn refuse(
        &self,
        sql: &Sql,
        settings: &WorkerSettings,
        route: &Route,
        error: IndexError,
    ) -> HttpResult {
        match error {
            IndexError::Incomplete { .. } => self.progress(sql).await,
            IndexError::Query(error @ QueryError::AgentNotFound(_)) => failure(error.into(), settings),
            IndexError::Store(error) => {
                self.keep_fault(error).await;
                not_covered()
            }
            error => refusal(error, route, &self.load(sql).unwrap_or_default(), settings),
        }
    }

    /// Answers with the excerpt for these wallets. A verdict reads the chain from there on, so that the rows
    /// may be a TTL old; the alarm refreshes older rows.
    async fn excerpt(
        &self,
        sql: &Sql,
        settings: &WorkerSettings,
        wallets: &[String],
        refresh: bool,
    ) -> HttpResult {
        let wallets = wallets.iter().map(|wallet| wallet.parse()).collect::<Result<Vec<_>, _>>();
        let wallets: Vec<Address> = wallets.map_err(failed)?;
        let max_age = settings.millis_to_live(CacheScope::Agent).max(NOTE_MILLIS);
        let ready = match refresh {
            true => self.ready(sql, settings, (max_age, max_age), &mut 0).await,
            false => self.load(sql).map_err(IndexError::from),
        };
        self.arm(sql, settings).await;
        let is_recent = |state: &State| unix_millis() < state.read_at.saturating_add(max_age);
        match ready.map(|state| is_recent(&state).then(|| Excerpt::of(sql, &state, &wallets)).transpose()) {
            Ok(Ok(Some(excerpt))) => Response::from_json(&IndexAnswer::Excerpt(excerpt.encode())),
            Ok(Err(IndexError::Store(error))) | Err(IndexError::Store(error)) => {
                self.keep_fault(error).await;
                not_covered()
            }
            _ => not_covered(),
        }
    }

    /// Answers with the manifest of the registry's snapshot, or a shard of it. The manifest may refresh the
    /// index first, but waits for no fill: without a snapshot the answer says when to ask again.
    async fn snapshot(&self, sql: &Sql, settings: &WorkerSettings, entry: Option<ShardEntry>) -> HttpResult {
        let ready = match self.load(sql) {
            Ok(state) if entry.is_none() && may_look(&state) => {
                let began = unix_millis();
                // A refresh finds out whether there are proofs.
                let is_known = !state.has_no_proofs() || self.has_looked.get();
                let max_age = if is_known { snapshot::max_age(settings) } else { 0 };
                let ready = self
                    .ready(sql, settings, (max_age, settings.millis_to_live(CacheScope::Kya)), &mut 0)
                    .await;
                let has_looked = ready.as_ref().is_ok_and(|state| state.read_at >= began);
                self.has_looked.set(self.has_looked.get() || has_looked);
                ready
            }
            loaded => loaded.map_err(IndexError::from),
        };
        // A shard is asked for after its manifest, which has armed the alarm.
        if entry.is_none() {
            self.arm(sql, settings).await;
        }
        // The rows may be of a later block by now.
        let state = ready.and_then(|_| self.load(sql).map_err(IndexError::from));
        match state.and_then(|state| self.snapshots.answer(sql, settings, &state, entry)) {
            Ok(Some(bytes)) => snapshot::respond(bytes),
            Err(IndexError::Store(error)) => {
                self.keep_fault(error).await;
                // An earlier pause may be under way, which this failure does not prolong.
                let until = self.faults.pause().map_or(0, |fault| fault.until);
                let seconds = until.saturating_sub(unix_millis()).div_ceil(1_000).max(1);
                snapshot::refuse(&seconds.to_string())
            }
            _ => match self.load(sql) {
                Ok(state) if self.has_looked.get() && state.has_no_proofs() => snapshot::refuse(NEVER),
                state => {
                    let seconds = state.map_or(1, |state| state.snapshot_retry_seconds());
                    snapshot::refuse(&seconds.to_string())
                }
            },
        }
    }

    /// Reads an agent's history, and returns it with its state: a refreshed one after a reorg.
    async fn history(
        &self,
        sql: &Sql,
        settings: &WorkerSettings,
        mut state: Rc<State>,
        page: (AgentId, u64, Option<HistoryCursor>),
        rpc_calls: &mut u32,
    ) -> Result<(Rc<State>, Document), IndexError> {
        let began = unix_millis();
        for _ in 0..HISTORY_RESTARTS {
            let config = config(settings, unix_millis());
            let query = HistoryQuery::new(sql, &state, settings.registry, page)?;
            let run = query.run(&config, self.endpoints.for_run(settings, unix_millis()));
            let merge = |update: &_| self.endpoints.merge(update);
            let mut host = chain::FetchHost { settings, began, rpc_calls: &mut *rpc_calls, merge: &merge };
            match drive(run, &mut host).await {
                // The block has been reorged out: a refresh comes first, whatever the TTL.
                Err(QueryError::BlockNotAvailable(_)) => {
                    state = self.ready(sql, settings, (0, 0), rpc_calls).await?;
                }
                history => return Ok((state, index_documents::history(history?))),
            }
        }
        Err(RunError::BlockUnavailable.into())
    }

    /// Notes the time of a request in storage, because the object may be evicted from memory at any time. A
    /// failure is a fault of the store, and no reason to refuse an answer.
    async fn note_request(&self, sql: &Sql) {
        let now = unix_millis();
        if now < self.noted_at.get() + NOTE_MILLIS || self.faults.pause().is_some() {
            return;
        }
        let statement = "INSERT OR REPLACE INTO meta (key, value) VALUES ('asked_at', ?1)";
        match sql.execute(statement, &[SqlValue::Text(now.to_string())]) {
            Ok(_) => self.noted_at.set(now),
            Err(error) => drop(self.keep_fault(error).await),
        }
    }

    /// Returns whether there were recent requests.
    pub(crate) fn is_in_use(&self, sql: &Sql, settings: &WorkerSettings) -> Result<bool, StoreError> {
        let idle =
            settings.millis_to_live(CacheScope::Agent).max(NOTE_MILLIS).saturating_mul(IDLE_CACHE_TIMES);
        Ok(unix_millis() < idle.saturating_add(sql.asked_at()?))
    }
}

/// Returns whether a request for the manifest may look for changes. While all agents are compared, the alarm
/// does the work; an awaited event is looked for when that is due.
fn may_look(state: &State) -> bool {
    state.is_complete() && state.retry_at().is_none_or(|at| at <= unix_millis())
}

pub(crate) fn failed(error: impl core::fmt::Display) -> worker::Error {
    error.to_string().into()
}
