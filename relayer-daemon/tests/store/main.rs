//! The store's promises, each kept by both engines: suites of tests, run on SQLite and on Postgres. Promises
//! to a fleet are tried on Postgres too, and on SQLite with a clock that the test moves.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod carried_out;
mod fixtures;
mod old_journal;
#[allow(dead_code, unreachable_pub, reason = "the end-to-end tests use it too")]
#[path = "../../../tests/src/postgres.rs"]
mod postgres_server;
mod query_plans;
mod size;

mod prelude {
    pub(crate) use crate::carried_out::NEWEST;
    pub(crate) use crate::fixtures::*;
    pub(crate) use alloy::primitives::{Address, B256, U256};
    pub(crate) use relayer_daemon::budget::share::{Allowance, Shares};
    pub(crate) use relayer_daemon::gas::fees::Fees;
    pub(crate) use relayer_daemon::outcome::ErrorCode::{
        InvalidSignatureOrNonce, RpcTimeout, TransactionRejected,
    };
    pub(crate) use relayer_daemon::outcome::{Failure, MinedTransaction, RelayOutcome};
    pub(crate) use relayer_daemon::store::TransactionPurpose::Relay;
    pub(crate) use relayer_daemon::store::{
        Accepted, BlockId, ExpectedCost, Inclusion, NewRelay, NewTransaction, Settlement, SignedTransaction,
        Store, StoreError,
    };
    pub(crate) use std::thread;
    pub(crate) use std::time::Duration;
}

/// Includes files as modules, on the `Journal` and the `SharedStore` of the module that they are in.
macro_rules! suites {
    ($($name:ident)*) => {
        $(pub(crate) mod $name {
            include!(concat!(stringify!($name), ".rs"));
        })*
    };
}

mod sqlite {
    use relayer_daemon::store::Store;
    use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
    use std::{sync::Arc, time::Duration};
    use tempfile::TempDir;

    struct Journal(TempDir);

    impl Journal {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn open(&self) -> Store {
            Store::open(&self.0.path().join("journal.sqlite")).unwrap()
        }

        fn fresh() -> Store {
            Store::in_memory().unwrap()
        }
    }

    struct SharedStore {
        store: Store,
        clock: Arc<AtomicI64>,
    }

    impl SharedStore {
        fn new() -> Self {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let uri = format!("file:/shared-{}?vfs=memdb", NEXT.fetch_add(1, Ordering::Relaxed));
            let clock = Arc::new(AtomicI64::new(1_000_000));
            Self { store: Store::in_memory_of_a_fleet(&uri, Arc::clone(&clock)).unwrap(), clock }
        }

        fn pass(&self, time: Duration) {
            self.clock.fetch_add(time.as_millis() as i64, Ordering::Relaxed);
        }
    }

    suites!(suite two_nonces shares sponsorship retention fleet control);
}

#[cfg(feature = "postgres")]
mod postgres {
    use super::postgres_server::Postgres;
    use relayer_daemon::store::Store;
    use std::{sync::LazyLock, time::Duration};

    /// A server with a default that the store must not rely upon.
    pub(crate) static SERVER: LazyLock<Postgres> =
        LazyLock::new(|| Postgres::start(&["fsync=off", "default_transaction_isolation='repeatable read'"]));

    fn schema(url: &str) -> &str {
        url.split_once("search_path%3D").unwrap().1
    }

    struct Journal(String);

    impl Journal {
        fn new() -> Self {
            Self(SERVER.schema())
        }

        fn open(&self) -> Store {
            Store::connect(&self.0).unwrap()
        }

        fn fresh() -> Store {
            Self::new().open()
        }
    }

    struct SharedStore {
        store: Store,
        url: String,
    }

    impl SharedStore {
        fn new() -> Self {
            let url = SERVER.schema();
            Self { store: Store::connect(&url).unwrap(), url }
        }

        /// Lets time pass: moves the stored times back.
        fn pass(&self, time: Duration) {
            let schema = schema(&self.url);
            for (table, column) in
                [("account_leases", "expires_at"), ("daemons", "expires_at"), ("rates", "full_at")]
            {
                let ms = time.as_millis();
                SERVER.sql(&format!("UPDATE {schema}.{table} SET {column} = {column} - {ms}"));
            }
            SERVER.sql(&format!("UPDATE {schema}.control SET since = since - {}", time.as_secs()));
        }
    }

    suites!(suite two_nonces shares sponsorship retention fleet control server at_once messages migrate);
}
