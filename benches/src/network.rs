//! A network of a program's own (a network namespace): loopback and nothing else, with sockets that
//! hold as little unsent as one wishes.

use crate::Error;
use std::env;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Says to the program inside that it is inside.
const INSIDE: &str = "FOREBAY_BENCH_NETWORK";
const SEND_BUFFERS: &str = "/proc/sys/net/ipv4/tcp_wmem";

/// Starts this program again in a network of its own, unless it is there already, and bounds what a
/// socket there holds to be sent. To be called before anything else is done.
///
/// # Errors
/// Without the right to make one (root has it), without `unshare` (util-linux) or `ip` (iproute2).
pub fn enter(send_buffer_bytes: usize) -> Result<(), Error> {
    if env::var_os(INSIDE).is_none() {
        let own = env::current_exe().map_err(Error::io("cannot find", "this program"))?;
        let mut again = Command::new("unshare");
        again.args(["--net", "--"]).arg(own).args(env::args_os().skip(1)).env(INSIDE, "1");
        // returns only if it fails
        return Err(Error::io("cannot start", "unshare")(again.exec()));
    }
    let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
    if !up.map_err(Error::io("cannot start", "ip"))?.success() {
        return Err(Error::io("cannot use", "lo")(io::Error::other("ip failed")));
    }
    let sizes = format!("4096 16384 {send_buffer_bytes}");
    fs::write(SEND_BUFFERS, sizes).map_err(Error::io("cannot write", SEND_BUFFERS))
}
