//! The read API as a Cloudflare Worker: a thin host around `registry-core`.
//!
//! The core makes all decisions; this crate has the clock, the counters, the caches, and the bytes to and
//! from the RPC endpoints.
//!
//! There are two Workers: one answers requests ([`api`]), and with the feature `index-object` the objects of
//! the other keep the index ([`index`]). As one, a Worker that answers without an index would be a third
//! larger.

#![cfg_attr(feature = "index-object", allow(dead_code))] // it uses less of the shared code

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
#[cfg(not(feature = "index-object"))]
mod token;
