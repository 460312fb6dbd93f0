//! Reads the chain without I/O. A [`Query`] says what it needs, a [`Run`] turns that into batches for a host
//! to post, and takes the replies.
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
//! Through its [`View`], a query reads contract calls ([`View::call`], [`View::calls`]), and inside this
//! crate also the pinned block's header, other blocks' headers (`header_at`, `header_if_kept`), storage
//! proofs (`proof`), storage roots (`storage_root_at`), logs (`logs`) and rows of consecutive agents
//! (`rows`); a call to the account lens reads an account's code. Reads without a result are recorded and sent
//! together.
//!
//! A host with several endpoints passes its [`Endpoints`] to the run ([`Run::over`]), posts each batch to the
//! endpoint it names, reports elapsed time ([`Run::passed`]), and merges what the run learned
//! ([`Run::update`]) after each reply. A run fails over to the next endpoint without delay; backoff starts
//! once each has had its chance. A host may ask two endpoints for the same batch ([`hedge`]), and feeds one
//! reply after it has named its endpoint ([`Run::answered_by`]).
//!
//! All results of one run are of one block; its state machine is drawn in `block`, that of a walk over agents
//! in `walk`. A query of one round requests no header, because its one `eth_call` is consistent by nature.
//! Only results pinned by hash survive failover.
//!
//! A reply that is too large is requested from the next endpoint. If all endpoints fail likewise, or a node
//! reports too much work, the work is split: a batch into halves, a chunk of calls or a walk into quarters. A
//! call that fails without a reason is sent again alone, through Multicall3 and directly: only the node can
//! tell an empty revert from running out of gas. What is too heavy even then ends in
//! [`QueryError::TooHeavy`].

pub(crate) mod account_lens;
mod batch;
mod block;
mod endpoints;
mod engine;
mod error;
pub mod hedge;
pub mod lens;
pub(crate) mod logs;
mod marker;
mod node_error;
mod node_traits;
mod probe;
mod proof;
pub(crate) mod reader;
mod reply;
pub(crate) mod rows;
mod run;
mod signer_code;
mod view;
mod walk;

pub use batch::{Batch, Failure, Freshness, Limits, Reply};
pub use block::Header;
pub use endpoints::{Endpoints, Update};
pub(crate) use engine::Engine;
pub use error::{QueryError, RunError};
pub use probe::{NodeFeatures, NodeProbe};
pub(crate) use proof::{Proof, ProofKey, ProofParts};
pub use rows::MAX_AGENTS;
pub use run::{Run, Step, drive};
pub(crate) use signer_code::signer_code;
pub use signer_code::{SignerCode, SignerQuery};
pub use view::{Halt, Need, Query, View};
