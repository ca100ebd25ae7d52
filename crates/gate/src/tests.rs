//! Tests of the program in the kernel, by runs on packets, in a network namespace of the test's own,
//! which is gone with its thread. They need root.

mod agree;
mod answers;
mod answers_agree;
mod answers_packets;
mod answers_sequences;
#[path = "../../../fuzz/checks/gate.rs"]
mod check;
mod filters;
mod first;
mod first_packets;
mod handing;
mod noise;
mod others;
mod others_alone;
mod paced;
mod packets;
mod same;
#[path = "../../../fuzz/checks/gate_sequences.rs"]
mod sequences;
mod steer;
mod steer_stack;
mod tags;
mod vectors;

use crate::{Charge, Gate};
use std::net::{SocketAddr, TcpListener};

/// Runs `test` in a network namespace of its own, with a loopback; prints that it is skipped where that is
/// impossible.
pub(super) fn in_namespace(test: impl FnOnce() + Send + 'static) {
    // SAFETY: the call has no conditions.
    if unsafe { libc::geteuid() } != 0 {
        assert!(std::env::var_os("CI").is_none(), "in CI the gate is tested as root");
        eprintln!("SKIPPED: only root can load programs into the kernel");
        return;
    }
    let ran = std::thread::spawn(move || {
        // SAFETY: only this thread gets another network.
        let result = unsafe { libc::unshare(libc::CLONE_NEWNET) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        loopback_up();
        test();
    });
    if let Err(panic) = ran.join() {
        std::panic::resume_unwind(panic);
    }
}

/// A gate that can be attached on this kernel.
fn load(charge: Charge) -> Gate {
    let gate = Gate::load(charge).unwrap();
    if gate.has_links() { gate } else { filters::load(charge) }
}

fn loopback_up() {
    // SAFETY: all bytes zero are a request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[..2].copy_from_slice(&[b'l' as libc::c_char, b'o' as libc::c_char]);
    request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
    // SAFETY: a new descriptor, and a request that is whole.
    let result = unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM, 0);
        let result = libc::ioctl(socket, libc::SIOCSIFFLAGS, &raw const request);
        libc::close(socket);
        result
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// Listens on every address of IPv4 and IPv6 at each of the ports.
fn listen(ports: &[u16]) -> (Vec<TcpListener>, Vec<SocketAddr>) {
    let sockets = ports.iter().map(|port| TcpListener::bind(("::", *port)).unwrap());
    (
        sockets.collect(),
        ports.iter().map(|port| SocketAddr::new([0_u16; 8].into(), *port)).collect(),
    )
}
