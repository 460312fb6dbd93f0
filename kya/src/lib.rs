//! What an agent and its liable person do with the registry, as one program: `kya register`, `attest`,
//! `status`, `sign`, `accept`, `domain`, `verify`, `terminate`. docs/kya.md describes it.
//!
//! | modules | what they are |
//! |---|---|
//! | [`report`] | what a command says, and the program's exit status |
//! | [`signer`], [`chain`], [`relayer`], [`discovery`] | keys; what is read of a chain; the relayer; what a service says of its registry |
//! | [`journal`], [`submit`], `fees` | what was sent and not settled yet; a call of the registry, carried out once; what gas costs |
//! | [`place`] | the registry and the way to it, by options and discovery |
//! | [`register`], [`attest`], [`watch`], [`status`], [`sign`], [`terminate`], [`key`] | the agent's commands |
//! | [`accept`], [`domain`], [`verify`] | the liable person's; what anyone verifies offline |

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
