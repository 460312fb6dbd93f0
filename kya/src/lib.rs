//! Commands of an agent and its liable person at the registry: `kya register`, `attest`, `status`, `sign`,
//! `accept`, `domain`, `verify`, `terminate`. docs/kya.md describes them.
//!
//! | modules | what they are |
//! |---|---|
//! | [`report`] | the report of a command, and the program's exit status |
//! | [`signer`], [`chain`], [`relayer`], [`discovery`] | keys; JSON-RPC to a chain; relayer; discovery |
//! | [`journal`], [`submit`], `fees` | unsettled calls; a call of the registry, executed once; gas fees |
//! | [`place`] | the registry and its endpoints, from options and discovery |
//! | [`register`], [`attest`], [`watch`], [`status`], [`sign`], [`terminate`], [`key`] | agents' commands |
//! | [`accept`], [`domain`], [`verify`] | the liable person's commands; offline verification |

#![deny(clippy::print_stderr)] // it panics where the reader is gone: `report::say`

pub mod accept;
pub mod attest;
pub mod chain;
pub mod discovery;
pub mod domain;
mod fees;
pub mod journal;
pub mod key;
pub mod place;
pub mod register;
pub mod relayer;
pub mod report;
mod settle;
pub mod sign;
pub mod signer;
pub mod status;
pub mod submit;
pub mod terminate;
pub mod typed;
pub mod verify;
mod verify_record;
pub mod watch;

use host_kit::native::now;

/// The seconds of a day.
pub(crate) const DAY: u64 = 86_400;
