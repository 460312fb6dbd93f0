//! Parts that hosts of `registry-core` share. The core decides what is sent to RPC endpoints and what the
//! replies mean; a host has the network and the clock.
//!
//! [`drive`] runs a query to its end on any [`RpcHost`], native or compiled to wasm. With the feature
//! `native` there is such a host over reqwest, size-capped body reading, [`parse_network`], [`health`], and
//! [`print()`]. [`ConfigFault`] is a fault of a configuration file, and [`CheckReport`] has the results of the
//! checks before a daemon's start. With the feature `keys` there are private keys in files, with `shell-files`
//! a program's completions and manual pages, with `sockets` listening sockets of daemons.

mod check_report;
mod config_file;
mod drive;
#[cfg(feature = "native")]
pub mod health;
#[cfg(feature = "keys")]
pub mod keys;
#[cfg(feature = "native")]
pub mod native;
#[cfg(feature = "native")]
mod networks;
#[cfg(feature = "native")]
mod print;
#[cfg(feature = "shell-files")]
mod shell_files;
#[cfg(feature = "sockets")]
pub mod sockets;

pub use check_report::CheckReport;
pub use config_file::{ConfigFault, without_values};
pub use drive::{RpcHost, RpcReply, drive};
#[cfg(feature = "native")]
pub use networks::parse_network;
#[cfg(feature = "native")]
pub use print::{print, say};
#[cfg(feature = "shell-files")]
pub use shell_files::ShellFiles;
