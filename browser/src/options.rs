//! The options of a `Registry`: its address, and the way to its chain.

use std::ops::RangeInclusive;

use alloy_primitives::Address;
use registry_browser_values::member::{address, chain_id, invalid, member};
use registry_core::{
    api::error::Error, eth::address::AddressError, eth::multicall, eth::rpc::endpoint::parse_list,
};
use wasm_bindgen::prelude::*;

use crate::transport::{Provider, Transport};

/// The timeout where the page sets none.
const DEFAULT_TIMEOUT_SECONDS: u32 = 15;
/// The timeouts that a page may set; a browser's timer for more than 24 days would fire at once.
const TIMEOUT_SECONDS: RangeInclusive<f64> = 1.0..=3600.0;

/// The validated options.
pub(crate) struct ClientOptions {
    pub(crate) transport: Transport,
    /// The chain of every endpoint; `None` accepts any.
    pub(crate) chain_id: Option<u64>,
    pub(crate) timeout_seconds: u32,
    pub(crate) registry: Address,
    pub(crate) multicall3: Address,
}

impl ClientOptions {
    /// Reads a `RegistryOptions` (see `types.d.ts`). An error names the option and its rule.
    pub(crate) fn of(options: &JsValue) -> Result<Self, Error> {
        if !options.is_object() {
            return Err(invalid("options", "must be an object"));
        }
        let (transport, chain_id) = (transport(options)?, chain_id(options)?);
        if transport.count() > 1 && chain_id.is_none() {
            let rule =
                "must be given where rpc names several endpoints: it is the chain they all have to be on";
            return Err(invalid("chainId", rule));
        }
        let timeout_seconds = timeout(options)?;
        let registry =
            address(options, "registry")?.ok_or_else(|| invalid("registry", AddressError::Shape.rule()))?;
        let multicall3 = address(options, "multicall3")?.unwrap_or(multicall::CANONICAL_ADDRESS);
        Ok(Self { transport, chain_id, timeout_seconds, registry, multicall3 })
    }
}

fn transport(options: &JsValue) -> Result<Transport, Error> {
    let rule = "must be http:// or https:// URLs separated by commas, 8 at most, or an EIP-1193 provider";
    let error = invalid("rpc", rule);
    let rpc = member(options, "rpc").unwrap_or(JsValue::UNDEFINED);
    let Some(urls) = rpc.as_string() else {
        return Provider::of(rpc).map(Transport::Wallet).ok_or(error);
    };
    let list = parse_list(&urls).map_err(|_| error)?;
    let fetch = member(options, "fetch").map_or_else(registry_fetch::global, JsCast::unchecked_into);
    if fetch.is_function() {
        Ok(Transport::Endpoints { list, fetch })
    } else {
        Err(invalid("fetch", "must be a function"))
    }
}

fn timeout(options: &JsValue) -> Result<u32, Error> {
    let Some(value) = member(options, "timeoutSeconds") else { return Ok(DEFAULT_TIMEOUT_SECONDS) };
    let seconds =
        value.as_f64().filter(|seconds| seconds.fract() == 0.0 && TIMEOUT_SECONDS.contains(seconds));
    seconds
        .map(|seconds| seconds as u32)
        .ok_or(invalid("timeoutSeconds", "must be a whole number from 1 to 3600"))
}
