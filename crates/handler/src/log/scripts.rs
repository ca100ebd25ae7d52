//! Messages of scripts: a line on standard error for each request whose script has written something.
//!
//! Loops never wait for the reader of standard error: a thread writes, and lines that it cannot take in
//! time are counted and dropped.

use crossbeam_channel::{Sender, TrySendError, bounded};
use forebay_sys::stderr::say;
use std::fmt::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Lines that may wait to be written.
const MOST_LINES: usize = 256;

static LINES: OnceLock<Option<Sender<String>>> = OnceLock::new();
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Logs what a script has written while it answered the request with this number.
pub(crate) fn log(script: &[u8], request: u128, said: &[u8]) {
    let Some(lines) = LINES.get_or_init(start) else { return };
    if let Err(TrySendError::Full(_)) = lines.try_send(line(script, request, said)) {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}

/// Starts the writing thread; `None` if no thread could be started.
fn start() -> Option<Sender<String>> {
    let (sender, lines) = bounded::<String>(MOST_LINES);
    let write = move || {
        for line in lines {
            say(format_args!("{line}"));
            match DROPPED.swap(0, Ordering::Relaxed) {
                0 => {}
                dropped => say(format_args!("{dropped} more scripts have said something")),
            }
        }
    };
    thread::Builder::new().name("scripts".to_owned()).spawn(write).ok()?;
    Some(sender)
}

/// The message as one line, whatever bytes it has.
fn line(script: &[u8], request: u128, said: &[u8]) -> String {
    let mut line = String::with_capacity(said.len() + 64);
    push(script, &mut line);
    // writing into a string does not fail
    let _ = write!(line, ", request {request:032x}: ");
    push(said, &mut line);
    line
}

fn push(bytes: &[u8], line: &mut String) {
    for character in String::from_utf8_lossy(bytes).chars() {
        match character.is_control() {
            true => line.extend(character.escape_default()),
            false => line.push(character),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_said_is_one_line() {
        let said = "PHP message: ö\nforebay: serving\r\u{1b}[31m".as_bytes();
        let expected = "/a.php, request 000000000000000000000000000000ff: \
                        PHP message: ö\\nforebay: serving\\r\\u{1b}[31m";
        assert_eq!(line(b"/a.php", 255, said), expected);
        assert!(line(b"/\n", 0, b"\xff").starts_with("/\\n, "));
    }
}
