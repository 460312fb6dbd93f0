//! Asking the chain without touching it: a [`Query`] says what it needs, a [`Run`] turns that into batches of
//! bytes for a host to send, and takes the bytes that came back.
//!
//! ```text
//! let mut run = Run::new(query, multicall3, limits);
//! let answer = loop {
//!     match run.step()? {
//!         Step::Send(batch) => match host.post(&batch).await {
//!             Ok(reply) => run.feed(reply)?,
//!             Err(failure) => run.fail(failure)?,
//!         },
//!         Step::Done(answer) => break answer,
//!     }
//! };
//! ```
//!
//! A host with several endpoints lends the run what it knows of them ([`Run::over`]), posts each batch to the one
//! it names, gives it the time that has [`passed`](Run::passed), and merges what the run has found out
//! ([`Run::update`]) after each reply. An endpoint that fails is left for the next one at once; pauses begin when each
//! has had its chance.
//!
//! All answers of one run are read at one block; `block` draws how it is chosen. A query of one round asks for no header:
//! its one `eth_call` is one block by nature. Only what is pinned by hash stays valid when the run switches to another endpoint.
//!
//! A reply that is too large is asked for at the next endpoint; where all of them say the same, the work is cut. Work that is too
//! much for a node is cut as well: a batch by half, a chunk of calls or a walk over agents by four. A call that fails without a
//! reason is asked for again alone, through Multicall3 and directly, as only the node can tell a revert without a reason from gas
//! that ran out. What is too heavy even then is an answer of its own kind, [`Error::TooHeavy`].

mod batch;
mod block;
mod endpoints;
mod engine;
mod error;
pub mod lens;
pub(crate) mod logs;
mod marker;
mod node_error;
mod proof;
pub(crate) mod reader;
mod reply;
pub(crate) mod rows;
mod run;
mod view;
mod walk;

pub use batch::{Batch, Failure, Freshness, Limits, Reply};
pub use block::Header;
pub use endpoints::{Endpoints, Update};
pub use error::{QueryError, RunError};
pub(crate) use proof::ProofKey;
pub use rows::MAX_AGENTS;
pub use run::{Run, Step, drive};
pub use view::{Halt, Need, Query, View};
