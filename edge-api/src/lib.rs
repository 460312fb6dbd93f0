//! The read API as a Cloudflare Worker: a thin host around `registry-core`.
//!
//! The core makes all decisions; this crate has the counters, the caches, and the bytes to and from clients.
//! `edge-shared` has the parts that it shares with the Worker that keeps the [`index`]: settings, and access
//! to RPC endpoints and bindings.

mod api;
mod body;
mod cache;
mod chain;
mod connection;
mod http;
mod incoming;
mod index;
mod limiter;
mod log;
mod pages;
mod settings;
mod stream;
mod token;
