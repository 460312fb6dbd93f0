//! What exchanges leave behind in V8, and how to have it collected.

use worker::js_sys::{Object, Reflect, WebAssembly};

/// Pages of 64 KiB of the memory that makes V8 collect. It collects once they have grown by 64 MiB, every
/// other slice: during a fill it counts 84 MiB at most (by its `--trace-gc-verbose`), of an isolate's 128
/// MiB.
const UNTOUCHED_PAGES: u32 = 256;

/// Makes V8 collect now and then what exchanges leave behind. Each object of the runtime that JavaScript has
/// seen (a response, a stream, a promise) holds kilobytes that V8 does not account for; by what it accounts
/// for, it would collect nothing during a whole fill. It accounts for the size of this memory, which takes
/// none, as no page is touched.
pub(crate) fn let_v8_collect() {
    let descriptor = Object::new();
    // If the allocation fails, V8 has collected.
    let _ = Reflect::set(&descriptor, &"initial".into(), &UNTOUCHED_PAGES.into());
    let _ = WebAssembly::Memory::new(&descriptor);
}
