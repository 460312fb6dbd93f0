//! The read API as a Cloudflare Worker: a thin host around `registry-core`.
//!
//! Everything that is decided on a request's way is decided in the core; here are only the clock, the counters, the cache and the
//! bytes to and from the RPC endpoint.
//!
//! There are two Workers. The one that answers requests ([`api`]), and with the feature `index-object` the one whose objects keep the
//! index ([`index`]): in one, a Worker that answers without an index would be a third larger.

#![cfg_attr(feature = "index-object", allow(dead_code))] // of what the two Workers share, it uses less

#[cfg(not(feature = "index-object"))]
mod api;
mod binding;
mod body;
#[cfg(not(feature = "index-object"))]
mod cache;
mod chain;
#[cfg(not(feature = "index-object"))]
mod http;
mod index;
mod limiter;
mod log;
#[cfg(not(feature = "index-object"))]
mod pages;
mod settings;
#[cfg(not(feature = "index-object"))]
mod stream;
