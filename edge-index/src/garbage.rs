//! Collection of the garbage that exchanges leave in V8.

use worker::js_sys::{Object, Reflect, WebAssembly};

/// Pages of 64 KiB of the memory that makes V8 collect. It collects after a growth of 64 MiB, every other
/// slice: during a fill it counts 84 MiB at most (by its `--trace-gc-verbose`), of an isolate's 128 MiB.
const UNTOUCHED_PAGES: u32 = 256;

/// Makes V8 collect the garbage of exchanges now and then. Each object of the runtime that JavaScript has
/// seen (a response, a stream, a promise) holds kilobytes that V8 does not count; by its own count it would
/// collect nothing during a whole fill. V8 counts the size of this memory, which takes none, because no page
/// is touched.
pub(crate) fn let_v8_collect() {
    let descriptor = Object::new();
    // If the allocation fails, V8 has collected.
    let _ = Reflect::set(&descriptor, &"initial".into(), &UNTOUCHED_PAGES.into());
    let _ = WebAssembly::Memory::new(&descriptor);
}
