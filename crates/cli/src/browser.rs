//! The opening of the site in a browser, once the server serves.
//!
//! The server confines itself before it serves, and cannot start programs then. So a shell is started
//! before, which waits for the address.

use crate::say;
use forebay_server::start_error::Ready;
use std::io::Write;
use std::process::{Command, Stdio};
use std::thread;

/// The script of the shell: opens the browser in `$BROWSER`, or the desktop's. Without an address it
/// opens nothing. The browser's own messages are dropped, since they do not concern the server; where
/// there is no browser, the shell (126, 127) or xdg-open (3, 4) has an exit code for that.
const SCRIPT: &str = "\
    read -r address || exit 0
    ${BROWSER:-xdg-open} \"$address\" 2> /dev/null
    case $? in
        3 | 4 | 126 | 127)
            echo \"forebay serve: no browser can be opened here; the site is at $address\" >&2
    esac";

/// Starts the shell, and returns the function that gives it the address.
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
    // a thread waits for the shell's end, or it would remain a zombie
    let _ = thread::Builder::new().name("browser".to_owned()).spawn(move || child.wait());
    Box::new(move |address| match (to_shell, address) {
        (Some(mut shell), Some(address)) => {
            // the shell may have ended
            let _ = writeln!(shell, "{address}");
        }
        _ => say("forebay serve: there is no address for a browser"),
    })
}
