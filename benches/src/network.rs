//! What loopback does otherwise than a network, and what can be done about it.
//!
//! [`enter`]: a network of a program's own (a network namespace), with sockets that hold as little
//! unsent as one wishes. [`Steered`]: who pays for what comes in.

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
/// socket there holds to be sent, if that is said. To be called before anything else is done.
///
/// # Errors
/// Without the right to make one (root has it), without `unshare` (util-linux) or `ip` (iproute2).
pub fn enter(send_buffer_bytes: impl Into<Option<usize>>) -> Result<(), Error> {
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
    let Some(bytes) = send_buffer_bytes.into() else { return Ok(()) };
    let sizes = format!("4096 16384 {bytes}");
    fs::write(SEND_BUFFERS, sizes).map_err(Error::io("cannot write", SEND_BUFFERS))
}

const STEERING: &str = "/sys/class/net/lo/queues/rx-0/rps_cpus";

/// While it lives, one core does the kernel's work on everything that loopback delivers (receive packet
/// steering). Otherwise the core of whoever sends does it.
#[derive(Debug)]
pub struct Steered {
    before: String,
}

impl Steered {
    /// To this core.
    ///
    /// # Errors
    /// Without the right to change it (root has it), or where the kernel has no such thing.
    pub fn to(core: usize) -> Result<Steered, Error> {
        let before = fs::read_to_string(STEERING).map_err(Error::io("cannot read", STEERING))?;
        let steered = Steered { before };
        fs::write(STEERING, mask(core)).map_err(Error::io("cannot write", STEERING))?;
        Ok(steered)
    }
}

impl Drop for Steered {
    fn drop(&mut self) {
        // what could be written once can be written again
        let _ = fs::write(STEERING, &self.before);
    }
}

/// A set of one core as the kernel reads it: hexadecimal words of 32 bits, the highest first.
fn mask(core: usize) -> String {
    let mut words = vec![format!("{:x}", 1u32 << (core % 32))];
    words.extend((0..core / 32).map(|_| "00000000".to_owned()));
    words.join(",")
}

#[cfg(test)]
mod tests {
    use super::mask;

    #[test]
    fn cores_are_bits_of_words() {
        assert_eq!([0, 1, 31, 33].map(mask), ["1", "2", "80000000", "2,00000000"]);
    }
}
