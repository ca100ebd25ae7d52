//! What opens the site in a browser, once there is something to see.
//!
//! The server confines itself before it serves, and may start no program then. So a shell is started
//! first, which waits for the address.

use crate::say;
use forebay_server::start_error::Ready;
use std::io::Write;
use std::process::{Command, Stdio};
use std::thread;

/// The browser of the user's choice, or what the desktop has for it. Without an address nothing is
/// opened. What it says itself is not for who started a server; where there is none, the shell (126,
/// 127) or xdg-open (3, 4) says so by its exit code.
const SCRIPT: &str = "\
    read -r address || exit 0
    ${BROWSER:-xdg-open} \"$address\" 2> /dev/null
    case $? in
        3 | 4 | 126 | 127)
            echo \"forebay serve: no browser can be opened here; the site is at $address\" >&2
    esac";

/// Starts what opens the address that it is told.
pub(crate) fn wait_for_address() -> Ready {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            say(&format!("forebay serve: no browser can be started: {error}"));
            return Box::new(|_| {});
        }
    };
    let to_shell = child.stdin.take();
    // it is over at some time, and somebody must have waited for it
    let _ = thread::Builder::new().name("browser".to_owned()).spawn(move || child.wait());
    Box::new(move |address| match (to_shell, address) {
        (Some(mut shell), Some(address)) => {
            // the shell may have ended
            let _ = writeln!(shell, "{address}");
        }
        _ => say("forebay serve: there is no address for a browser"),
    })
}
