//! The writer. A database that locks rows runs each write in a transaction of its own, on one of a few
//! connections, and makes group commits itself. A file has one writing thread: it takes closures from a queue
//! and commits them in batches.
//!
//! A commit with `synchronous = FULL` takes milliseconds, whatever is in it. Each closure runs in a
//! savepoint, so that its own error undoes its own writes only. Its caller gets the result once the batch is
//! committed; a failed COMMIT fails the whole batch.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::Instant,
};

use super::{Db, SqlConnection, connections::Connections};
use crate::store::{Result, StoreError, stats::StoreStats};

/// The largest batch, so that an endless queue does not delay its first write for ever.
const LARGEST_BATCH: usize = 64;

/// Sends a write's result to its caller; takes `Err` if the batch was not committed.
type ResultSender = Box<dyn FnOnce(Result<()>)>;
/// A write, to be run in an open transaction, alone or among others. Returns whether it has failed.
type QueuedWrite = Box<dyn FnOnce(&Db, bool) -> (ResultSender, bool) + Send>;

/// The writer of a database. Dropping it waits until its thread, if it has one, has closed the connection.
pub(in super::super) struct Writer {
    way: WritePath,
    doubts: Arc<AtomicU64>,
    stats: Arc<StoreStats>,
}

enum WritePath {
    /// Through a thread's queue; both are `None` only while this is dropped.
    Thread(Option<mpsc::Sender<QueuedWrite>>, Option<JoinHandle<()>>),
    /// Each on a free connection.
    Connections(Connections),
}

impl Writer {
    pub(in super::super) fn start(db: Box<dyn SqlConnection>) -> Result<Self> {
        let (queue, writes) = mpsc::channel();
        let doubts = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&doubts);
        let stats = Arc::new(StoreStats::default());
        let measured = Arc::clone(&stats);
        let thread = thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || run(&*db, &writes, &counted, &measured))
            .map_err(|error| StoreError::Engine(error.to_string()))?;
        Ok(Self { way: WritePath::Thread(Some(queue), Some(thread)), doubts, stats })
    }

    /// Creates a writer on these connections, to a database that locks rows.
    pub(in super::super) fn on(connections: Connections) -> Self {
        Self { way: WritePath::Connections(connections), doubts: Arc::default(), stats: Arc::default() }
    }

    /// Runs `work` in a transaction; when this returns `Ok`, its writes are on disk. Its own error undoes
    /// only its own writes.
    pub(in super::super) fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Db) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let WritePath::Connections(connections) = &self.way else {
            return self.enqueue(work)?.recv().map_err(|_| StoreError::Interrupted)?;
        };
        let queued = Instant::now();
        connections.with(|db| {
            self.stats.waited(queued.elapsed());
            let begun = Instant::now();
            let result = in_transaction(db, work, &self.doubts);
            self.stats.committed(1, begun.elapsed());
            result
        })
    }

    /// Runs `work`, which commits what it writes: it is one statement, or ends the transaction that it
    /// begins.
    pub(in super::super) fn run_committing<T>(&self, work: impl FnOnce(&Db) -> Result<T>) -> Result<T> {
        let WritePath::Connections(connections) = &self.way else { return Err(StoreError::ReadOnly) };
        let queued = Instant::now();
        connections.with(|db| {
            self.stats.waited(queued.elapsed());
            let begun = Instant::now();
            // Where no connection could be made, nothing was sent.
            let result = db.begin_single().and_then(|()| {
                work(db).inspect_err(|error| {
                    if matches!(error, StoreError::Unreachable(_)) {
                        tracing::error!(%error, "journal not committed");
                        self.doubts.fetch_add(1, Ordering::Release);
                    }
                })
            });
            roll_back(db);
            self.stats.committed(1, begun.elapsed());
            result
        })
    }

    /// Returns the number of commits so far that the database did not confirm. Over a network, their writes
    /// may be there all the same.
    pub(in super::super) fn doubts(&self) -> u64 {
        self.doubts.load(Ordering::Acquire)
    }

    pub(in super::super) fn stats(&self) -> &StoreStats {
        &self.stats
    }

    /// Queues `work`; its result arrives once its batch has ended.
    fn enqueue<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Db) -> Result<T> + Send + 'static,
    ) -> Result<mpsc::Receiver<Result<T>>> {
        let (answer, answered) = mpsc::sync_channel(1);
        let (queued, stats) = (Instant::now(), Arc::clone(&self.stats));
        let write: QueuedWrite = Box::new(move |db, is_alone| {
            stats.waited(queued.elapsed());
            let result = if is_alone { work(db) } else { in_savepoint(db, work) };
            let has_failed = result.is_err();
            let answer: ResultSender = Box::new(move |committed| {
                // The caller may be gone.
                let _ = answer.send(committed.and(result));
            });
            (answer, has_failed)
        });
        let WritePath::Thread(Some(queue), _) = &self.way else { return Err(StoreError::Interrupted) };
        queue.send(write).map_err(|_| StoreError::Interrupted)?;
        Ok(answered)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let WritePath::Thread(queue, thread) = &mut self.way {
            drop(queue.take());
            // A panic was reported by the thread itself.
            let _ = thread.take().map(JoinHandle::join);
        }
    }
}

fn run(db: &Db, writes: &mpsc::Receiver<QueuedWrite>, doubts: &AtomicU64, stats: &StoreStats) {
    while let Ok(first) = writes.recv() {
        let batch: Vec<QueuedWrite> =
            std::iter::once(first).chain(writes.try_iter().take(LARGEST_BATCH - 1)).collect();
        commit(db, batch, doubts, stats);
    }
}

/// Runs a write in a transaction of its own.
fn in_transaction<T>(db: &Db, work: impl FnOnce(&Db) -> Result<T>, doubts: &AtomicU64) -> Result<T> {
    db.begin()?;
    let result = work(db).and_then(|written| end(db, 1, doubts).map(|()| written));
    roll_back(db);
    result
}

/// Runs a batch of writes in one transaction, commits it, and sends the results.
fn commit(db: &Db, batch: Vec<QueuedWrite>, doubts: &AtomicU64, stats: &StoreStats) {
    let began = Instant::now();
    let begun = db.begin();
    // An error of a write that is alone undoes the transaction: it needs no savepoint.
    let is_alone = begun.is_ok() && batch.len() == 1;
    let (answers, failed): (Vec<ResultSender>, Vec<bool>) =
        batch.into_iter().map(|write| write(db, is_alone)).unzip();
    let committed = match begun {
        Ok(()) if is_alone && failed.contains(&true) => Ok(()),
        Err(error) => {
            tracing::error!(%error, writes = answers.len(), "journal not written");
            Err(error)
        }
        Ok(()) => end(db, answers.len(), doubts),
    };
    roll_back(db);
    // Before the callers get their results.
    stats.committed(answers.len(), began.elapsed());
    for answer in answers {
        answer(committed.clone());
    }
}

/// Commits a transaction of this many writes.
fn end(db: &Db, writes: usize, doubts: &AtomicU64) -> Result<()> {
    // SQLite rolls the whole transaction back on some errors, a full disk among them; COMMIT then fails too.
    db.commit().map_err(|error| {
        tracing::error!(%error, writes, "journal not committed");
        match error {
            StoreError::Unreachable(_) => {
                // Before the callers get their results.
                doubts.fetch_add(1, Ordering::Release);
                error
            }
            // A statement before COMMIT has failed.
            StoreError::Locked => error,
            _ => StoreError::NotCommitted,
        }
    })
}

/// Undoes a transaction that is still open: it must not become part of the next one.
fn roll_back(db: &Db) {
    if db.is_in_transaction()
        && let Err(error) = db.rollback()
    {
        tracing::error!(%error, "journal not rolled back");
    }
}

fn in_savepoint<T>(db: &Db, work: impl FnOnce(&Db) -> Result<T>) -> Result<T> {
    if !db.is_in_transaction() {
        // Without the batch's transaction a savepoint would commit by itself.
        return Err(StoreError::NotCommitted);
    }
    db.savepoint("SAVEPOINT one")?;
    let result = work(db);
    if result.is_err() && db.is_in_transaction() {
        db.savepoint("ROLLBACK TO one")?;
    }
    if db.is_in_transaction() {
        db.savepoint("RELEASE one")?;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::super::{Sqlite, all, column, values};
    use super::*;
    use rusqlite::Connection;

    fn start() -> Writer {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(
            "PRAGMA foreign_keys = ON;
             CREATE TABLE t (n INTEGER PRIMARY KEY, parent INTEGER REFERENCES t DEFERRABLE INITIALLY DEFERRED)",
        )
        .unwrap();
        Writer::start(Box::new(Sqlite::raw(db))).unwrap()
    }

    fn insert(writer: &Writer, n: i64, parent: Option<i64>) -> Result<()> {
        writer.run(move |db| db.execute("INSERT INTO t VALUES ($1, $2)", values![n, parent]).map(drop))
    }

    fn rows(writer: &Writer) -> Vec<i64> {
        let query = "SELECT n FROM t ORDER BY n";
        writer.run(|db| all(db, query, values![], |row| column(row, "n"))).unwrap()
    }

    #[test]
    fn concurrent_writes_are_all_committed_and_a_failed_commit_fails_its_whole_batch() {
        for failing in [None, Some(40_i64)] {
            let writer = start();
            // A parent that is not there makes the commit of the batch fail, and not the write.
            let parent = |n: i64| failing.filter(|every| n % every == 0).map(|_| -1);
            let insert = |n: i64| insert(&writer, n, parent(n));
            let committed: Vec<i64> = thread::scope(|scope| {
                let own = |thread| (thread * 100..(thread + 1) * 100).filter(|n| insert(*n).is_ok());
                let threads: Vec<_> =
                    (0..32_i64).map(|thread| scope.spawn(move || own(thread).collect::<Vec<_>>())).collect();
                threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(rows(&writer), committed, "what is there, and what was said to be there");
            let failed = 3_200 - committed.len();
            assert!(if failing.is_none() { failed == 0 } else { (81..3_200).contains(&failed) }, "{failed}");
        }
    }

    #[test]
    fn a_write_that_fails_undoes_itself_only_and_a_transaction_that_sqlite_rolls_back_its_whole_batch() {
        let writer = start();
        insert(&writer, 1, None).unwrap();
        let failed = writer.run(|db| {
            db.execute("INSERT INTO t VALUES (2, NULL)", values![])?;
            db.execute("INSERT INTO t VALUES (1, NULL)", values![])?;
            Ok(())
        });
        assert!(matches!(failed, Err(StoreError::Engine(_))));
        insert(&writer, 3, None).unwrap();
        assert_eq!(rows(&writer), [1, 3]);

        let writer = start();
        // While the first write blocks the thread, the others queue up and become one batch.
        let (started, has_started) = mpsc::channel();
        let (go, may_go) = mpsc::channel::<()>();
        let first = writer
            .enqueue(move |_| {
                started.send(()).unwrap();
                may_go.recv().unwrap();
                Ok(())
            })
            .unwrap();
        has_started.recv().unwrap();
        let insert_now = |n: i64, is_full: bool| {
            let insert = move |db: &Db| {
                db.execute("INSERT INTO t VALUES ($1, NULL)", values![n])?;
                // What SQLite does where the disk is full.
                if is_full { db.rollback() } else { Ok(()) }
            };
            writer.enqueue(insert).unwrap()
        };
        let batch = [insert_now(1, false), insert_now(2, true), insert_now(3, false)];
        go.send(()).unwrap();
        first.recv().unwrap().unwrap();
        for answer in batch {
            assert!(matches!(answer.recv().unwrap(), Err(StoreError::NotCommitted)));
        }
        assert_eq!(rows(&writer), [0_i64; 0]);
        insert(&writer, 4, None).unwrap();
        assert_eq!(rows(&writer), [4]);
    }
}
