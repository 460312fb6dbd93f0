//! The core for web pages and Node: the read API answered straight from a chain, by a JSON-RPC endpoint or a wallet's
//! provider, and what it takes to have a call relayed.
//!
//! Bindings and nothing else: what can be decided is decided in `registry-core`, as in the Worker and the relayer. Here are
//! a page's network ([`transport`]), its clock, its errors ([`error`]) and its values ([`value`]). `cargo xtask build` makes
//! an npm package of it, with the files in `npm/`.

pub mod error;
pub mod evidence;
pub mod forward;
pub mod options;
pub mod registry;
mod transport;
pub mod value;

use wasm_bindgen::prelude::wasm_bindgen;

/// The shapes that wasm-bindgen cannot know: options, documents, typed data.
#[wasm_bindgen(typescript_custom_section)]
const TYPES: &str = include_str!("types.d.ts");
