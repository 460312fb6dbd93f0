//! The context of a request, as far as its answer needs it.

use std::rc::Rc;

use alloy_primitives::Address;
use registry_core::{api::download::Download, api::route::Route, registry::changes::Since};
use worker::Context;

use crate::{index::IndexClient, settings::Settings};

/// Context of a request.
#[derive(Clone, Debug)]
pub(crate) struct RequestContext {
    pub(crate) settings: Rc<Settings>,
    /// The runtime's handle of the request, which keeps background work alive.
    pub(crate) runtime: Rc<Context>,
    /// Scheme and host of the request's URL.
    pub(crate) origin: Rc<str>,
    /// The index, where there is one.
    pub(crate) index: Option<Rc<IndexClient>>,
    /// The liable wallet of an acceptance of a verdict at the newest block. Whether it has code is read along
    /// with the verdict, and kept.
    pub(crate) signer: Option<Address>,
}

/// Requests that caches and sources answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ApiRequest {
    /// Readiness of the service.
    Ready,
    /// Bytes of the registry's snapshot.
    Download(Download),
    /// A question of the read API.
    Api(Route),
    /// Changes since a cursor, for a stream.
    Events(Since),
}

impl ApiRequest {
    /// Returns the number of requests that it counts as in the rate limit.
    pub(crate) fn cost(&self) -> u32 {
        match self {
            Self::Api(route) => route.cost(),
            Self::Ready | Self::Download(_) | Self::Events(_) => 1,
        }
    }
}
