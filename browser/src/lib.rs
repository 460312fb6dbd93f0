//! The core for web pages and Node: the read API answered straight from a chain, by a JSON-RPC endpoint or a
//! wallet's provider, and gasless calls through the relayer.
//!
//! This crate has only bindings: `registry-core` makes all decisions, as in the Worker and the relayer. It
//! adds a page's network ([`transport`]) and clock. Errors and values are in `registry-browser-values`.
//! `cargo xtask build` makes an npm package of it, with the files in `npm/` and the package's other modules.

pub mod forward;
pub mod options;
pub mod registry;
mod transport;

use registry_browser_values::{error::RegistryError, value};
use wasm_bindgen::prelude::{JsValue, wasm_bindgen};

/// The types that wasm-bindgen cannot know: options, queries, typed data. The build adds those of documents.
#[wasm_bindgen(typescript_custom_section)]
const TYPES: &str = include_str!("types.d.ts");

/// Parses JSON text such as an answer of the API. Integers beyond `Number.MAX_SAFE_INTEGER` become BigInts;
/// everything else is parsed as by `JSON.parse`.
#[wasm_bindgen(unchecked_return_type = "unknown")]
pub fn parse(text: &str) -> Result<JsValue, RegistryError> {
    value::parse(text)
}
