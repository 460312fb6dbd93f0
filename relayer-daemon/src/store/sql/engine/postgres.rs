//! Postgres, which the daemons of a fleet share.
//!
//! Many transactions write at once, those of one daemon on a few connections. A transaction locks the rows
//! that it relies on ([`super::super::locks`]), and reads them afterwards: at READ COMMITTED each statement
//! sees what was committed before it began. A lock is sent along with the statement behind it.
//!
//! A daemon that stops in the middle of a transaction holds up the others only until the server ends its
//! session. A connection without an answer is given up after [`ANSWER`], and made anew with the next call.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::BytesMut;
use futures_util::{FutureExt as _, future::try_join_all};
use tokio_postgres::{
    Client, Statement,
    error::SqlState,
    types::{FromSql, IsNull, Kind, ToSql, Type, to_sql_checked},
};

use super::{
    Db, Row, SqlConnection, Value, postgres_format,
    postgres_server::{ANSWER, Server},
    statements::{POSTGRES, Statements},
};
use crate::store::{Result, StoreError};

/// Timeout of a migration, which makes indexes of large tables.
const MIGRATION: Duration = Duration::from_secs(3_600);
/// Time after a failed attempt to connect within which the next ones fail at once.
const NOT_AGAIN: Duration = Duration::from_millis(500);
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";
/// Lifts the timeouts of a transaction that copies a journal.
const UNLIMITED: &str = "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0;
     SET LOCAL idle_in_transaction_session_timeout = 0";
/// Makes migrations wait for one another. Stores of several chains share a database, each in its own schema.
const MIGRATES: &str = "SELECT pg_advisory_xact_lock(hashtextextended('relayer ' || current_schema(), 0))";

impl From<tokio_postgres::Error> for StoreError {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(refused) = error.as_db_error() else { return Self::Unreachable(error.to_string()) };
        // It ends a statement before any COMMIT: the transaction is undone, and the session goes on.
        if *refused.code() == SqlState::LOCK_NOT_AVAILABLE {
            return Self::Locked;
        }
        // The error's own text has the statement's values.
        let text = format!("{} ({})", refused.message(), refused.code().code());
        if is_away(refused.code()) { Self::Unreachable(text) } else { Self::Engine(text) }
    }
}

/// Returns whether an error says that the server cannot do anything for now: it is stopping or starting, has
/// no room, or is no longer the primary.
fn is_away(code: &SqlState) -> bool {
    let classes = ["08", "53", "57"];
    classes.iter().any(|class| code.code().starts_with(class))
        || [SqlState::READ_ONLY_SQL_TRANSACTION, SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT].contains(code)
}

/// The state of a connection's transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transaction {
    None,
    Open,
    /// A statement has failed: the server would answer COMMIT with a rollback, and call that a success.
    Failed,
}

/// An established connection.
struct Session {
    client: Client,
    statements: RefCell<HashMap<&'static str, PreparedStatement>>,
    transaction: Cell<Transaction>,
    /// Messages that are sent with the next one that is waited for.
    unsent: RefCell<Vec<ClientMessage>>,
    /// Timeout of an answer in this transaction.
    limit: Cell<Duration>,
}

/// A message to the server.
enum ClientMessage {
    /// Statements without values or rows.
    Simple(String),
    /// A statement with its values.
    Statement(PreparedStatement, Vec<Value>),
    /// A query with its values.
    Query(PreparedStatement, Vec<Value>),
}

impl From<&str> for ClientMessage {
    fn from(sql: &str) -> Self {
        Self::Simple(sql.to_owned())
    }
}

/// The answer to a message.
enum StatementResult {
    Rows(Vec<tokio_postgres::Row>),
    Changed(u64),
}

impl ClientMessage {
    async fn send(&self, client: &Client) -> Result<StatementResult, tokio_postgres::Error> {
        match self {
            Self::Simple(sql) => client.batch_execute(sql).await.map(|()| StatementResult::Changed(0)),
            Self::Statement(PreparedStatement { statement, .. }, values) => {
                client.execute(statement, &parameters(values)).await.map(StatementResult::Changed)
            }
            Self::Query(PreparedStatement { statement, .. }, values) => {
                client.query(statement, &parameters(values)).await.map(StatementResult::Rows)
            }
        }
    }
}

#[derive(Clone)]
struct PreparedStatement {
    statement: Statement,
    names: Arc<[String]>,
}

/// A connection that is made on first use, and again after it was lost.
pub(in super::super) struct Postgres {
    server: Arc<Server>,
    /// A test's clock, milliseconds; `None` for the server's.
    clock: Option<Arc<AtomicI64>>,
    session: RefCell<Option<Session>>,
    failed_at: Cell<Option<Instant>>,
}

impl Postgres {
    pub(in super::super) const fn new(server: Arc<Server>, clock: Option<Arc<AtomicI64>>) -> Self {
        Self { server, clock, session: RefCell::new(None), failed_at: Cell::new(None) }
    }

    /// Brings the database's format up to date.
    ///
    /// # Errors
    /// Those of the database, and [`StoreError::Engine`] if the sessions are not this daemon's own.
    pub(in super::super) fn migrate(&self) -> Result<()> {
        self.must_have_own_sessions()?;
        self.begin()?;
        self.batch("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0")?;
        self.batch(MIGRATES)?;
        let migrated = postgres_format::migrate(self);
        if migrated.is_ok() { self.commit() } else { self.rollback().and(migrated) }
    }

    /// Returns whether the database holds a store.
    ///
    /// # Errors
    /// Those of the database, and [`StoreError::Engine`] if the sessions are not this daemon's own.
    pub(in super::super) fn is_store(&self) -> Result<bool> {
        self.look(|db| Ok(postgres_format::version(db)?.is_some()))
    }

    /// Returns whether the database holds a store of this program's version.
    ///
    /// # Errors
    /// Those of [`Self::is_store`], and [`StoreError::Older`] for an older version.
    pub(in super::super) fn is_current(&self) -> Result<bool> {
        self.look(postgres_format::is_current)
    }

    /// Reads in sessions that must be this daemon's own.
    fn look<T>(&self, read: impl FnOnce(&Db) -> Result<T>) -> Result<T> {
        self.must_have_own_sessions()?;
        self.begin_reading()?;
        let found = read(self);
        self.rollback()?;
        found
    }

    /// Runs several statements of a migration.
    pub(super) fn batch(&self, sql: &str) -> Result<()> {
        self.with(|session| self.ask(session, sql.into(), MIGRATION)).map(drop)
    }

    /// Checks that one connection's transactions have one session of the server, also while another
    /// connection is in a transaction. A pooler in transaction mode gives them different sessions: time
    /// limits would be those of other clients.
    fn must_have_own_sessions(&self) -> Result<()> {
        let session = |db: &Self| -> Result<i64> {
            db.begin_reading()?;
            let query = "SELECT CAST(pg_backend_pid() AS BIGINT) AS pid";
            super::first(db, query, &[], |row| super::column(row, "pid"))?
                .ok_or(StoreError::Missing("session"))
        };
        let before = session(self)?;
        self.rollback()?;
        let other = Self::new(Arc::clone(&self.server), None);
        session(&other)?;
        let after = session(self)?;
        self.rollback()?;
        if before == after {
            return Ok(());
        }
        Err(StoreError::Engine(
            "STORE_URL: a pooler in transaction mode, connect to Postgres itself".to_owned(),
        ))
    }

    /// Makes sure that there is a session, outside any transaction.
    fn connect(&self) -> Result<()> {
        if let Some(session) = self.session.borrow().as_ref().filter(|session| !session.client.is_closed()) {
            session.limit.set(ANSWER);
            return Ok(());
        }
        if self.failed_at.get().is_some_and(|at| at.elapsed() < NOT_AGAIN) {
            return Err(StoreError::Unreachable("no connection".to_owned()));
        }
        let connected = self.server.connect();
        self.failed_at.set(connected.is_err().then(Instant::now));
        self.session.replace(Some(Session {
            client: connected?,
            statements: RefCell::default(),
            transaction: Cell::new(Transaction::None),
            unsent: RefCell::default(),
            limit: Cell::new(ANSWER),
        }));
        Ok(())
    }

    /// Runs a step in the session. A step that fails marks the transaction as failed; a session that does not
    /// answer is given up.
    fn with<T>(&self, step: impl FnOnce(&Session) -> Result<T>) -> Result<T> {
        let result = match &*self.session.borrow() {
            Some(session) => {
                let result = step(session);
                if result.is_err() && session.transaction.get() == Transaction::Open {
                    session.transaction.set(Transaction::Failed);
                }
                result
            }
            None => Err(StoreError::Unreachable("no connection".to_owned())),
        };
        if matches!(result, Err(StoreError::Unreachable(_))) {
            self.session.replace(None);
        }
        result
    }

    /// Sends the unsent messages and a last one in the same packet: the server answers in their order.
    /// Returns the answer to the last one, or the first error.
    fn ask(&self, session: &Session, last: ClientMessage, limit: Duration) -> Result<StatementResult> {
        self.ask_all(session, vec![last], limit)?.pop().ok_or(StoreError::Interrupted)
    }

    /// Sends the unsent messages and several last ones. Returns the answers to these.
    fn ask_all(
        &self,
        session: &Session,
        last: Vec<ClientMessage>,
        limit: Duration,
    ) -> Result<Vec<StatementResult>> {
        let mut messages = session.unsent.take();
        let unsent = messages.len();
        messages.extend(last);
        let answers = try_join_all(messages.iter().map(|message| message.send(&session.client)));
        Ok(self.server.wait(limit, answers)?.split_off(unsent))
    }

    /// Fails if there is no transaction that may be committed.
    fn must_be_open(&self) -> Result<()> {
        match self.session.borrow().as_ref().map(|session| session.transaction.get()) {
            Some(Transaction::Open) => Ok(()),
            Some(_) => Err(StoreError::NotCommitted),
            None => Err(StoreError::Unreachable("the connection was lost".to_owned())),
        }
    }

    /// Begins a transaction by `sql`, which is sent with the first statement in it.
    fn begin_with(&self, sql: &str) -> Result<()> {
        self.connect()?;
        self.with(|session| {
            session.unsent.replace(vec![sql.into()]);
            session.transaction.set(Transaction::Open);
            Ok(())
        })
    }

    fn prepared(&self, session: &Session, sql: &'static str) -> Result<PreparedStatement> {
        if let Some(prepared) = session.statements.borrow().get(sql) {
            return Ok(prepared.clone());
        }
        let statement = self.server.wait(session.limit.get(), session.client.prepare(sql))?;
        let names = statement.columns().iter().map(|column| column.name().to_owned()).collect();
        let prepared = PreparedStatement { statement, names };
        session.statements.borrow_mut().insert(sql, prepared.clone());
        Ok(prepared)
    }

    /// Runs statements, then `last`, which ends the transaction. After an error other than a lock timeout all
    /// statements are prepared anew: a migration may have changed their columns.
    fn answers(
        &self,
        statements: &[(&'static str, &[Value])],
        message: impl Fn(PreparedStatement, Vec<Value>) -> ClientMessage,
        last: Option<&str>,
    ) -> Result<Vec<(PreparedStatement, StatementResult)>> {
        self.with(|session| {
            let prepare = |(sql, _): &(&'static str, &[Value])| self.prepared(session, sql);
            let prepared = statements.iter().map(prepare).collect::<Result<Vec<_>, _>>()?;
            let messages = prepared.iter().zip(statements);
            let messages = messages.map(|(prepared, (_, values))| message(prepared.clone(), values.to_vec()));
            let messages = messages.chain(last.map(ClientMessage::from)).collect();
            let answered = self.ask_all(session, messages, session.limit.get()).inspect_err(|error| {
                if *error != StoreError::Locked {
                    session.statements.borrow_mut().clear();
                }
            })?;
            if last.is_some() {
                session.transaction.set(Transaction::None);
            }
            Ok(prepared.into_iter().zip(answered).collect())
        })
    }
}

/// Reads the rows of an answer.
fn rows((prepared, answered): (PreparedStatement, StatementResult)) -> Result<Vec<Row>> {
    let StatementResult::Rows(found) = answered else { return Ok(Vec::new()) };
    let read = |row: tokio_postgres::Row| {
        let values = (0..row.len()).map(|index| row.try_get(index)).collect::<Result<_, _>>();
        Ok(Row::new(Arc::clone(&prepared.names), values.map_err(|_| StoreError::Corrupt("row"))?))
    };
    found.into_iter().map(read).collect()
}

impl ToSql for Value {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Integer(integer) if *ty == Type::INT8 => integer.to_sql(ty, out),
            Self::Bool(bool) if *ty == Type::BOOL => bool.to_sql(ty, out),
            Self::Text(text) if *ty == Type::TEXT => text.to_sql(ty, out),
            Self::Blob(bytes) if *ty == Type::BYTEA => bytes.as_slice().to_sql(ty, out),
            Self::Array(values) if <Vec<Self> as ToSql>::accepts(ty) => values.to_sql(ty, out),
            _ => Err(format!("a value that is no {ty}").into()),
        }
    }

    fn accepts(ty: &Type) -> bool {
        let scalars = [Type::INT8, Type::BOOL, Type::TEXT, Type::BYTEA];
        scalars.contains(ty) || matches!(ty.kind(), Kind::Array(member) if scalars.contains(member))
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Value {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        match *ty {
            Type::INT8 => i64::from_sql(ty, raw).map(Self::Integer),
            Type::BOOL => bool::from_sql(ty, raw).map(Self::Bool),
            Type::TEXT => String::from_sql(ty, raw).map(Self::Text),
            Type::BYTEA => Vec::from_sql(ty, raw).map(Self::Blob),
            _ => Err(format!("a column of type {ty}").into()),
        }
    }

    fn from_sql_null(_: &Type) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self::Null)
    }

    fn accepts(ty: &Type) -> bool {
        <Self as ToSql>::accepts(ty)
    }
}

fn parameters(values: &[Value]) -> Vec<&(dyn ToSql + Sync)> {
    values.iter().map(|value| value as &(dyn ToSql + Sync)).collect()
}

impl SqlConnection for Postgres {
    fn statements(&self) -> &'static Statements {
        &POSTGRES
    }

    fn execute(&self, sql: &'static str, values: &[Value]) -> Result<usize> {
        match self.answers(&[(sql, values)], ClientMessage::Statement, None)?.pop() {
            Some((_, StatementResult::Changed(rows))) => Ok(usize::try_from(rows).unwrap_or(usize::MAX)),
            _ => Ok(0),
        }
    }

    fn run(&self, sql: &'static str, values: &[Value]) -> Result<()> {
        self.with(|session| {
            let statement = ClientMessage::Statement(self.prepared(session, sql)?, values.to_vec());
            session.unsent.borrow_mut().push(statement);
            Ok(())
        })
    }

    fn query(&self, sql: &'static str, values: &[Value]) -> Result<Vec<Row>> {
        Ok(self.queries(&[(sql, values)])?.pop().unwrap_or_default())
    }

    fn queries(&self, queries: &[(&'static str, &[Value])]) -> Result<Vec<Vec<Row>>> {
        self.answers(queries, ClientMessage::Query, None)?.into_iter().map(rows).collect()
    }

    fn query_and_commit(&self, sql: &'static str, values: &[Value]) -> Result<Vec<Row>> {
        self.must_be_open()?;
        let answered = self.answers(&[(sql, values)], ClientMessage::Query, Some("COMMIT"))?;
        answered.into_iter().next().map_or(Ok(Vec::new()), rows)
    }

    fn begin(&self) -> Result<()> {
        self.begin_with(BEGIN)
    }

    fn take_time(&self) -> Result<()> {
        self.batch(UNLIMITED)?;
        self.with(|session| {
            session.limit.set(MIGRATION);
            Ok(())
        })
    }

    fn begin_reading(&self) -> Result<()> {
        self.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    }

    fn begin_single(&self) -> Result<()> {
        self.connect()
    }

    fn commit(&self) -> Result<()> {
        self.must_be_open()?;
        self.with(|session| {
            self.ask(session, "COMMIT".into(), session.limit.get())?;
            session.transaction.set(Transaction::None);
            Ok(())
        })
    }

    fn rollback(&self) -> Result<()> {
        self.with(|session| {
            session.unsent.take();
            // Sent with the first poll. Nothing depends on the answer: later messages are behind it.
            let _ = session.client.batch_execute("ROLLBACK").now_or_never();
            session.transaction.set(Transaction::None);
            Ok(())
        })
    }

    fn is_in_transaction(&self) -> bool {
        self.session.borrow().as_ref().is_some_and(|open| open.transaction.get() != Transaction::None)
    }

    fn probe(&self) -> Result<()> {
        postgres_format::rewrite_version(self)
    }

    fn own_clock(&self) -> Option<i64> {
        self.clock.as_ref().map(|clock| clock.load(Ordering::Relaxed))
    }

    fn now_ms(&self) -> Result<i64> {
        if let Some(now) = self.own_clock() {
            return Ok(now);
        }
        let query = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT) AS now";
        super::first(self, query, &[], |row| super::column(row, "now"))?.ok_or(StoreError::Missing("clock"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_can_do_nothing_for_now_is_told_from_one_that_refuses_a_statement() {
        for (is_away_with, codes) in [
            (true, ["08006", "53300", "57P01", "57P03", "25006", "25P03"]),
            (false, ["22001", "23505", "25P02", "40001", "42P01", "42501"]),
        ] {
            for code in codes {
                assert_eq!(is_away(&SqlState::from_code(code)), is_away_with, "{code}");
            }
        }
    }
}
