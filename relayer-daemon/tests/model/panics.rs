//! Counts panics of tasks: a runtime keeps them to itself, and the model checks each sent transaction in the
//! sender's task.

use std::{cell::Cell, panic, sync::Once};

thread_local! {
    /// All tasks of a history run in the thread of its test.
    static PANICS: Cell<usize> = const { Cell::new(0) };
}

/// Counts the panics of this thread from now on.
pub(super) fn watch() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICS.with(|panics| panics.set(panics.get() + 1));
            print(info);
        }));
    });
    PANICS.with(|panics| panics.set(0));
}

pub(super) fn count() -> usize {
    PANICS.with(Cell::get)
}
