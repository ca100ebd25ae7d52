//! What the fault tests share: a client that notices every way an answer can fail to come whole,
//! crowds of connections, and what the kernel knows about the server's process.
//!
//! | module | what it holds |
//! |---|---|
//! | [`client`] | a keep-alive client; an answer is whole, or [`Cut`](client::Cut) says how it ended |
//! | [`crowd`] | thousands of connections in one thread, from many client addresses |
//! | [`process`] | memory, processor time and descriptors of a process |
//! | [`served`] | a server with an admin listener, and its counters |
//! | [`site`] | directories, tmpfs mounts, and files whose content tells its version |

pub mod client;
pub mod crowd;
pub mod process;
pub mod served;
pub mod site;

pub use served::WatchedServer;

use std::io::Write;
use std::time::{Duration, Instant};

/// Whether the machine has what a test needs. Where it does not, the test is skipped with a loud
/// line; under continuous integration (`CI=true`) it fails instead.
///
/// # Panics
/// If something is missing and `CI` is `true`.
pub fn has<T, E: std::fmt::Display>(needed: Result<T, E>, test: &str) -> Option<T> {
    match needed {
        Ok(there) => Some(there),
        Err(error) => {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "{test} must run in CI: {error}");
            // Not `eprintln!`: of a test that passes, the test runner would keep it to itself.
            let _ = writeln!(std::io::stderr(), "\n!!! SKIPPED {test}: {error}\n");
            None
        }
    }
}

/// Asks `question` until the answer is yes; `false` if it never was within `patience`.
pub fn soon(patience: Duration, mut question: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + patience;
    let mut pause = Duration::from_millis(5);
    loop {
        if question() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(pause);
        // the pause grows, because each question costs processor time and a port
        pause = pause.mul_f64(1.2).min(Duration::from_millis(100));
    }
}
