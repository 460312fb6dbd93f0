//! The client's end of a request.
//!
//! Where a client disconnects, the runtime runs no more of its request but the listeners of the request's
//! signal (`enable_request_signal`). A future that is pending then would stay in memory for the life of the
//! instance, with all that it holds. So what waits for a client ends by that signal. What others wait for
//! does not: see `cache::single_flight`.
//!
//! A client that closes its side of the connection alone goes on listening, and is answered.

use core::{
    cell::{Cell, RefCell},
    future::poll_fn,
    pin::pin,
    task::{Poll, Waker},
};
use std::rc::Rc;

use worker::{
    wasm_bindgen::{JsCast as _, closure::Closure},
    web_sys::{AbortSignal, Request},
};

/// A client's connection.
#[derive(Clone, Debug)]
pub(crate) struct Connection(Request);

impl Connection {
    pub(crate) fn of(request: &Request) -> Self {
        // The handle: the request's own method `clone` makes another request.
        Self(Clone::clone(request))
    }

    /// The output of a future, which is dropped when the client disconnects: `None` then. One future at a
    /// time waits so.
    pub(crate) async fn unless_closed<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let (mut future, mut listener) = (pin!(future), None);
        poll_fn(|task| {
            if let Poll::Ready(output) = future.as_mut().poll(task) {
                return Poll::Ready(Some(output));
            }
            // Warm answers are there at once, and take no listener.
            let listener = listener.get_or_insert_with(|| Listener::on(self.0.signal()));
            if listener.hears(task.waker()) { Poll::Ready(None) } else { Poll::Pending }
        })
        .await
    }
}

/// Wakes a task when the signal is aborted.
struct Listener {
    signal: AbortSignal,
    heard: Rc<Heard>,
    _callback: Closure<dyn FnMut()>,
}

#[derive(Default)]
struct Heard {
    is_closed: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Listener {
    fn on(signal: AbortSignal) -> Self {
        let heard = Rc::new(Heard { is_closed: Cell::new(signal.aborted()), ..Heard::default() });
        let told = Rc::clone(&heard);
        let callback = Closure::new(move || {
            told.is_closed.set(true);
            if let Some(waker) = told.waker.take() {
                waker.wake();
            }
        });
        signal.set_onabort(Some(callback.as_ref().unchecked_ref()));
        Self { signal, heard, _callback: callback }
    }

    fn hears(&self, waker: &Waker) -> bool {
        self.heard.waker.replace(Some(waker.clone()));
        self.heard.is_closed.get()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.signal.set_onabort(None);
    }
}
