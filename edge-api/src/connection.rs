//! The connection of a request's client.
//!
//! When a client disconnects, the runtime runs no more of its request but the listeners of the request's
//! signal (`enable_request_signal`). A future that is pending then would stay in memory for the life of the
//! instance, with all that it holds. So a future that only its client waits for ends by that signal. One that
//! other requests wait for does not: see `cache::single_flight`.
//!
//! A client that closes only its side of the connection goes on listening, and is answered.

use core::{
    future::poll_fn,
    pin::pin,
    task::Poll::{Pending, Ready},
};

use futures_util::future::{AbortHandle, abortable};
use worker::{
    wasm_bindgen::{JsCast as _, closure::Closure},
    web_sys::{AbortSignal, Request},
};

/// A client's connection.
#[derive(Clone, Debug)]
pub(crate) struct Connection(Request);

impl Connection {
    pub(crate) fn of(request: &Request) -> Self {
        // Clones the handle: the request's own method `clone` makes another request.
        Self(Clone::clone(request))
    }

    /// Awaits a future, which is dropped when the client disconnects: `None` then. Only one future at a time
    /// may be awaited so.
    pub(crate) async fn unless_closed<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let (future, handle) = abortable(future);
        let mut future = pin!(future);
        // Warm answers are ready at once, and take no listener.
        match poll_fn(|task| Ready(future.as_mut().poll(task))).await {
            Ready(output) => output.ok(),
            Pending => {
                let _listener = Listener::on(self.0.signal(), handle);
                future.await.ok()
            }
        }
    }
}

/// Aborts a future when the signal is aborted.
struct Listener {
    signal: AbortSignal,
    _callback: Closure<dyn FnMut()>,
}

impl Listener {
    fn on(signal: AbortSignal, handle: AbortHandle) -> Self {
        if signal.aborted() {
            handle.abort();
        }
        let callback = Closure::new(move || handle.abort());
        signal.set_onabort(Some(callback.as_ref().unchecked_ref()));
        Self { signal, _callback: callback }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.signal.set_onabort(None);
    }
}
