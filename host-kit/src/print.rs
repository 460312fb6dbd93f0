//! Output of programs. `print!` and `eprint!` panic where the reader is gone, as after `| head`.

use std::{
    fmt,
    io::{self, ErrorKind, Write as _},
};

/// Prints to standard output. Returns false where the reader is gone, which changes nothing of what was done.
/// Errors: standard output cannot be written, as on a full disk.
pub fn print(text: impl fmt::Display) -> io::Result<bool> {
    let mut out = io::stdout().lock();
    match write!(out, "{text}").and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error),
    }
}

/// Writes to standard error, if that is possible.
pub fn say(text: impl fmt::Display) {
    let _ = write!(io::stderr(), "{text}");
}
