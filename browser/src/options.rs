//! What a page says about a registry: where it is, and how to reach its chain.

use std::ops::RangeInclusive;

use alloy_primitives::Address;
use js_sys::Function;
use registry_browser_values::value::text_of;
use registry_core::{api::error::Error, eth::address, eth::multicall, eth::rpc::endpoint::parse_list};
use wasm_bindgen::prelude::*;

use crate::transport::{Provider, Transport};

/// How long an answer may take where the page does not say.
const DEFAULT_TIMEOUT_SECONDS: u32 = 15;
/// What it may say; a browser's timer for more than 24 days would fire at once.
const TIMEOUT_SECONDS: RangeInclusive<f64> = 1.0..=3600.0;

#[wasm_bindgen]
extern "C" {
    /// The constructor's argument, as `types.d.ts` describes it.
    #[wasm_bindgen(typescript_type = "RegistryOptions")]
    pub type Options;

    #[wasm_bindgen(method, getter)]
    fn rpc(this: &Options) -> JsValue;
    #[wasm_bindgen(method, getter)]
    fn registry(this: &Options) -> JsValue;
    #[wasm_bindgen(method, getter)]
    fn multicall3(this: &Options) -> JsValue;
    #[wasm_bindgen(method, getter, js_name = chainId)]
    fn chain_id(this: &Options) -> JsValue;
    #[wasm_bindgen(method, getter, js_name = timeoutSeconds)]
    fn timeout_seconds(this: &Options) -> JsValue;
    #[wasm_bindgen(method, getter)]
    fn fetch(this: &Options) -> JsValue;

    #[wasm_bindgen(thread_local_v2, js_name = fetch)]
    static FETCH: Function;
}

/// The options, checked.
pub(crate) struct Settings {
    pub(crate) transport: Transport,
    /// The chain it has to be.
    pub(crate) chain_id: Option<u64>,
    pub(crate) timeout_seconds: u32,
    pub(crate) registry: Address,
    pub(crate) multicall3: Address,
}

impl Settings {
    /// Reads the options. An error names the option and its rule.
    pub(crate) fn of(options: &Options) -> Result<Self, Error> {
        if !options.is_object() {
            return Err(Error::InvalidParameter { field: "options", rule: "must be an object" });
        }
        let multicall3 = options.multicall3();
        let (transport, chain_id) = (transport(options)?, chain_id(&options.chain_id())?);
        if transport.count() > 1 && chain_id.is_none() {
            let rule =
                "must be given where rpc names several endpoints: it is the chain they all have to be on";
            return Err(Error::InvalidParameter { field: "chainId", rule });
        }
        Ok(Self {
            transport,
            chain_id,
            timeout_seconds: timeout(&options.timeout_seconds())?,
            registry: read_address("registry", &options.registry())?,
            multicall3: if multicall3.is_undefined() {
                multicall::CANONICAL_ADDRESS
            } else {
                read_address("multicall3", &multicall3)?
            },
        })
    }
}

fn transport(options: &Options) -> Result<Transport, Error> {
    let rpc = options.rpc();
    let rule = "must be http:// or https:// URLs separated by commas, 8 at most, or an EIP-1193 provider";
    let error = Error::InvalidParameter { field: "rpc", rule };
    let Some(urls) = rpc.as_string() else {
        return Provider::of(rpc).map(Transport::Wallet).ok_or(error);
    };
    let list = parse_list(&urls).map_err(|_| error)?;
    let fetch = options.fetch();
    let fetch = if fetch.is_undefined() { FETCH.with(Function::clone) } else { fetch.unchecked_into() };
    if fetch.is_function() {
        Ok(Transport::Endpoints { list, fetch })
    } else {
        Err(Error::InvalidParameter { field: "fetch", rule: "must be a function" })
    }
}

fn chain_id(value: &JsValue) -> Result<Option<u64>, Error> {
    if value.is_undefined() {
        return Ok(None);
    }
    let error = Error::InvalidParameter { field: "chainId", rule: "must be a whole number" };
    text_of(value).parse().map(Some).map_err(|_| error)
}

fn timeout(value: &JsValue) -> Result<u32, Error> {
    if value.is_undefined() {
        return Ok(DEFAULT_TIMEOUT_SECONDS);
    }
    let seconds =
        value.as_f64().filter(|seconds| seconds.fract() == 0.0 && TIMEOUT_SECONDS.contains(seconds));
    let error =
        Error::InvalidParameter { field: "timeoutSeconds", rule: "must be a whole number from 1 to 3600" };
    seconds.map(|seconds| seconds as u32).ok_or(error)
}

fn read_address(field: &'static str, value: &JsValue) -> Result<Address, Error> {
    address::parse(&value.as_string().unwrap_or_default())
        .map_err(|error| Error::InvalidParameter { field, rule: error.rule() })
}
