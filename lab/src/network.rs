//! Differences between loopback and a network, and ways to remove them.
//!
//! [`enter`]: a network of a program's own (a network namespace), with sockets whose send buffers
//! are as small as wished. [`NetworkPair`]: one for the servers and one for the clients, with a
//! cable between them.
//! [`Steered`]: the core that pays for received packets.

use crate::Error;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::env;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Tells the program that it was started inside the network.
const INSIDE: &str = "FOREBAY_BENCH_NETWORK";
const SEND_BUFFERS: &str = "/proc/sys/net/ipv4/tcp_wmem";

/// Starts this program again in a network of its own, unless it is there already. Must be called
/// before anything else is done.
///
/// # Errors
/// Without the right to make one (root has it), without `unshare` (util-linux) or `ip` (iproute2).
pub fn enter() -> Result<(), Error> {
    own(&["--net"])
}

/// Bounds the send buffers of sockets in this program's network.
///
/// # Errors
/// Without the right to change it.
pub fn bound_send_buffers(bytes: usize) -> Result<(), Error> {
    // the middle one is the size that a socket begins with
    let sizes = format!("4096 {} {bytes}", bytes.min(16_384));
    fs::write(SEND_BUFFERS, sizes).map_err(Error::io("cannot write", SEND_BUFFERS))
}

/// Has loopback send segments as a network does: otherwise all that fits into one of 64 KiB is
/// taken at once, however small the buffer. For a program that has a network of its own.
///
/// # Errors
/// Without the right to change it, without `ip` or `ethtool`.
pub fn send_as_a_network() -> Result<(), Error> {
    run("ip link set lo mtu 1500")?;
    run("ethtool -K lo gso off tso off gro off")
}

/// Starts this program again under `unshare` with these words, unless it is there already.
fn own(words: &[&str]) -> Result<(), Error> {
    if env::var_os(INSIDE).is_none() {
        let own = env::current_exe().map_err(Error::io("cannot find", "this program"))?;
        let mut again = Command::new("unshare");
        again.args(words).arg("--").arg(own).args(env::args_os().skip(1)).env(INSIDE, "1");
        // returns only if it fails
        return Err(Error::io("cannot start", "unshare")(again.exec()));
    }
    run("ip link set lo up")
}

/// Runs a command.
fn run(line: &str) -> Result<(), Error> {
    let mut words = line.split(' ');
    let program = words.next().unwrap_or_default();
    let output = Command::new(program).args(words).output();
    let output = output.map_err(Error::io("cannot start", program))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Error::io("cannot set the network up by", line)(io::Error::other(said)))
}

/// Two networks with a cable between them that leaves no checksum to a device: this program and its
/// servers are in one, clients in the other, which has all addresses of 10.1.0.0/16. The kernel's
/// work on received packets is done by the core of the receiving end.
#[derive(Debug)]
pub struct NetworkPair {
    clients: fs::File,
}

impl NetworkPair {
    /// The servers' address.
    pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);

    /// Starts this program again in networks of its own, as [`enter`] does.
    ///
    /// # Errors
    /// Without the right to make them (root has it), without `unshare`, `ip` or `ethtool`.
    pub fn enter(server_core: usize, client_core: usize) -> Result<NetworkPair, Error> {
        // mounts made there are gone with this program
        own(&["--net", "--mount", "--propagation", "private"])?;
        run("mkdir -p /run/netns")?;
        run("mount -t tmpfs tmpfs /run/netns")?;
        // the devices of /sys are this network's from here on; cgroups stay where they were
        run("mkdir /run/netns/cgroup")?;
        run("mount --rbind /sys/fs/cgroup /run/netns/cgroup")?;
        run("mount -t sysfs sysfs /sys")?;
        run("mount --rbind /run/netns/cgroup /sys/fs/cgroup")?;
        run("ip netns add clients")?;
        run("ip link add v0 type veth peer name v1 netns clients")?;
        for (inside, device, at, core) in
            [("", "v0", 1, server_core), ("ip netns exec clients ", "v1", 2, client_core)]
        {
            run(&format!("{inside}ip link set lo up"))?;
            run(&format!("{inside}ethtool -K {device} tx off rx off gro off gso off tso off"))?;
            run(&format!("{inside}ip addr add 10.99.0.{at}/24 dev {device}"))?;
            run(&format!("{inside}ip link set {device} up"))?;
            let file = format!("/sys/class/net/{device}/queues/rx-0/rps_cpus");
            // a file of the other network is reached by a program there only
            fs::write(CORES, mask(core)).map_err(Error::io("cannot write", CORES))?;
            run(&format!("{inside}cp {CORES} {file}"))?;
        }
        run("ip route add 10.1.0.0/16 via 10.99.0.2")?;
        // packets to addresses that no host has are dropped at once
        run("ip route add blackhole 10.7.0.0/16")?;
        run("ip -n clients route add local 10.1.0.0/16 dev lo")?;
        let clients = Path::new("/run/netns/clients");
        let clients = fs::File::open(clients).map_err(Error::io("cannot open", clients))?;
        Ok(NetworkPair { clients })
    }

    /// Has the cable carry no more than this towards the clients, and drop packets that wait for
    /// longer than 400 ms.
    ///
    /// # Errors
    /// Where the kernel has no token bucket filter, or `rate` is none (`10mbit`).
    pub fn slow_down(&self, rate: &str) -> Result<(), Error> {
        run(&format!("tc qdisc replace dev v0 root tbf rate {rate} burst 16kb latency 400ms"))
    }

    /// Moves this thread, and those that it starts, to the clients.
    ///
    /// # Errors
    /// Without the right to do so.
    pub fn join_clients(&self) -> Result<(), Error> {
        move_into_link_name_space(self.clients.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|error| Error::io("cannot enter", "the clients' network")(error.into()))
    }
}

/// A folder in a file system that is gone with this program.
const CORES: &str = "/run/netns/cores";

const STEERING: &str = "/sys/class/net/lo/queues/rx-0/rps_cpus";

/// A setting of the kernel: while this lives, one core does the kernel's work on everything that
/// loopback delivers (receive packet steering). Otherwise the sender's core does it.
#[derive(Debug)]
pub struct Steered {
    before: String,
}

impl Steered {
    /// Steers all work to this core.
    ///
    /// # Errors
    /// Without the right to change it (root has it), or where the kernel has no packet steering.
    pub fn to(core: usize) -> Result<Steered, Error> {
        let before = fs::read_to_string(STEERING).map_err(Error::io("cannot read", STEERING))?;
        let steered = Steered { before };
        fs::write(STEERING, mask(core)).map_err(Error::io("cannot write", STEERING))?;
        Ok(steered)
    }
}

impl Drop for Steered {
    fn drop(&mut self) {
        // a setting that could be written once can be written again
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
