//! The gasless relayer: takes requests that agents signed, checks them, and has the forwarder execute them.
//!
//! A request's way: [`http`] reads it, [`relay`] checks it (rules from `registry_core::forward`, [`limits`],
//! [`budget`], the chain), [`store`] remembers it, [`sender`] gives it a nonce, sends it and looks after it
//! until it is mined; [`outcome`] says how it ended. [`lifecycle`] puts all this together after [`check`] has found
//! nothing wrong. [`fees`], [`gas`] and [`classify`] are pure. The README tells the operator's side.

pub mod budget;
pub mod budget_share;
pub mod chain;
pub mod check;
pub mod classify;
pub mod clock;
pub mod descriptors;
pub mod error_code;
pub mod faults;
pub mod fees;
pub mod functions;
pub mod gas;
pub mod http;
pub mod journal_file;
pub mod keys;
pub mod lifecycle;
pub mod limits;
pub mod logging;
pub mod metrics;
pub mod monitor;
pub mod outcome;
pub mod process_lock;
pub mod readiness;
pub mod relay;
pub mod retention;
pub mod sender;
pub mod settings;
pub mod stop;
pub mod store;
pub mod transaction;
