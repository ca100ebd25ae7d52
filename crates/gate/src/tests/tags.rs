//! Frames with tags, as received from a wire: the kernel takes tags off before the program runs, which a
//! run on a packet does not show.

use super::filters::soon;
use super::first_packets::refusing as rule;
use super::packets::{ACK, Packet, SYN, assert_reset, sent_back};
use super::steer::{head, sequence_of};
use super::{in_namespace, load};
use crate::{Charge, ClassSockets, Count, FirstCount, Gate};
use forebay_policy::Policy;
use forebay_policy::class::Class;
use forebay_policy::rule::{Action, Rule};
use std::cell::RefCell;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::process::Command;

const LOCAL: &str = "10.99.0.1:8080";
const CLIENT: &str = "10.99.0.2";
/// VLAN 0 in 802.1Q and 802.1ad, with priority 0 and 7; another VLAN.
const Q: [u8; 4] = [0x81, 0, 0, 0];
const Q7: [u8; 4] = [0x81, 0, 0xe0, 0];
const AD: [u8; 4] = [0x88, 0xa8, 0, 0];
const Q5: [u8; 4] = [0x81, 0, 0, 5];

fn ip(words: &str) {
    let status = Command::new("ip").args(words.split(' ')).status().unwrap();
    assert!(status.success(), "ip {words}");
}

/// The other end of the wire.
struct Wire {
    socket: libc::c_int,
    /// The MAC address of this end.
    station: [u8; 6],
}

impl Wire {
    /// Makes two connected interfaces; v0 has an address.
    fn new() -> Wire {
        ip("link add v0 type veth peer name v1");
        ip("addr add 10.99.0.1/24 dev v0");
        ip("link set v0 address 02:00:00:00:00:01 up");
        ip("link set v1 promisc on up");
        // no machine answers ARP for the client's address
        ip("neigh add 10.99.0.2 lladdr 02:00:00:00:00:02 dev v0");
        // SAFETY: names of interfaces are texts that end in NUL; a new descriptor, and an address that is
        // whole.
        let socket = unsafe {
            let all = (libc::ETH_P_ALL as u16).to_be();
            let flags = libc::SOCK_RAW | libc::SOCK_NONBLOCK;
            let socket = libc::socket(libc::AF_PACKET, flags, i32::from(all));
            assert!(socket >= 0, "{}", std::io::Error::last_os_error());
            let mut to: libc::sockaddr_ll = std::mem::zeroed();
            to.sll_family = libc::AF_PACKET as u16;
            to.sll_protocol = all;
            to.sll_ifindex = libc::if_nametoindex(c"v1".as_ptr()) as i32;
            let bytes = size_of_val(&to) as libc::socklen_t;
            assert_eq!(libc::bind(socket, (&raw const to).cast(), bytes), 0);
            socket
        };
        let wire = Wire { socket, station: [2, 0, 0, 0, 0, 1] };
        // the interface needs a moment to be up
        let hello = wire.frame(&Packet::syn(&format!("{CLIENT}:1"), "10.99.0.1:1"), &[]);
        assert!(soon(|| wire.put(&hello) && wire.take().is_some_and(|frame| is_answer(&frame))));
        wire
    }

    fn frame(&self, packet: &Packet, tags: &[[u8; 4]]) -> Vec<u8> {
        let mut bytes = packet.bytes();
        bytes[..6].copy_from_slice(&self.station);
        bytes.splice(12..12, tags.concat());
        bytes
    }

    /// Sends a packet, and returns the first segment that comes back for it. Late answers to other clients
    /// are skipped (on a busy machine several of the first frames were answered), and so is a repeated
    /// SYN-ACK.
    fn ask(&self, packet: &Packet, tags: &[[u8; 4]]) -> Vec<u8> {
        assert!(self.put(&self.frame(packet, tags)), "{tags:?}");
        let answer = RefCell::new(None);
        let has_come = soon(|| {
            let is_own = |frame: &Vec<u8>| {
                let (port, flags) = (&frame[36..38], frame[47]);
                port == packet.client.port().to_be_bytes() && flags & SYN & !packet.flags == 0
            };
            answer.replace(self.take().filter(|frame| is_answer(frame) && is_own(frame)));
            answer.borrow().is_some()
        });
        assert!(has_come, "{tags:?}: no answer");
        answer.take().unwrap()
    }

    fn put(&self, frame: &[u8]) -> bool {
        // SAFETY: the bytes live across the call.
        let sent = unsafe { libc::send(self.socket, frame.as_ptr().cast(), frame.len(), 0) };
        sent == frame.len() as isize
    }

    fn take(&self) -> Option<Vec<u8>> {
        let mut frame = vec![0; 2048];
        // SAFETY: there is room for so many bytes.
        let count = unsafe { libc::recv(self.socket, frame.as_mut_ptr().cast(), frame.len(), 0) };
        frame.truncate(usize::try_from(count).ok()?);
        Some(frame)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        // SAFETY: this is the only owner of the descriptor.
        unsafe { libc::close(self.socket) };
    }
}

/// Whether it is a TCP segment from the server.
fn is_answer(frame: &[u8]) -> bool {
    frame[12..14] == [8, 0] && frame[23] == 6 && frame[26..30] == [10, 99, 0, 1]
}

fn refusing() -> Gate {
    let gate = load(Charge::AtSyn);
    let rule = Rule { name: "all".to_owned(), action: Some(Action::Reset), ..Rule::default() };
    let policy = Policy::new(&[Class::new("default", 0)], vec![rule]).unwrap();
    gate.enforce(&gate.lower(&policy).unwrap()).unwrap();
    gate
}

#[test]
fn tags_of_vlan_0_do_not_lead_past_the_gate() {
    in_namespace(|| {
        let wire = Wire::new();
        let _listener = TcpListener::bind(LOCAL).unwrap();
        let gate = refusing();
        gate.attach(&[LOCAL.parse().unwrap()]).unwrap();
        let resets = || gate.counts()[Count::ALL.iter().position(|c| *c == Count::Reset).unwrap()];
        let mut port = 4000;
        let mut next = || {
            port += 1;
            Packet::syn(&format!("{CLIENT}:{port}"), LOCAL)
        };
        let tagged: [&[[u8; 4]]; 7] = [&[], &[Q], &[Q7], &[AD], &[Q, AD], &[AD, Q7], &[Q, Q, Q, Q]];
        for (count, tags) in tagged.into_iter().enumerate() {
            let packet = next();
            let answer = wire.ask(&packet, tags);
            assert_reset(&answer, &packet);
            assert_eq!(resets(), count as u64 + 1, "{tags:?}");
        }
        // frames of a VLAN, and ones with too many tags, get no answer: the first one is for the next frame
        let none: [&[[u8; 4]]; 5] = [&[Q5], &[Q, Q5], &[AD, Q5], &[Q5, Q], &[Q; 20]];
        for tags in none {
            assert!(wire.put(&wire.frame(&next(), tags)));
        }
        let last = next();
        assert_reset(&wire.ask(&last, &[]), &last);
        assert_eq!(resets(), tagged.len() as u64 + 1);
    });
}

#[test]
fn a_first_request_is_judged_whatever_tags_it_has() {
    in_namespace(|| {
        let wire = Wire::new();
        let public = TcpListener::bind(LOCAL).unwrap();
        let of_class = TcpListener::bind("10.99.0.1:0").unwrap();
        let gate = Gate::load_steering(Charge::AtHandshake).unwrap().judging_requests();
        let classes = [Class::new("gold", 0), Class::new("bulk", 1)];
        let policy = Policy::new(&classes, vec![rule("no", "/no", Action::Reject(403))]).unwrap();
        gate.enforce(&gate.lower(&policy).unwrap()).unwrap();
        let address = LOCAL.parse().unwrap();
        gate.attach(&[address]).unwrap();
        let sockets = vec![vec![of_class.as_fd()]];
        gate.place(&[ClassSockets { address, speaks_tls: false, sockets }]).unwrap();
        let tagged: [&[[u8; 4]]; 5] = [&[], &[Q], &[Q7], &[AD], &[AD, Q7]];
        for (count, tags) in tagged.into_iter().enumerate() {
            let client = format!("{CLIENT}:{}", 5000 + count);
            let syn = Packet { sequence: 77, ..Packet::syn(&client, LOCAL) };
            let acknowledged = sequence_of(&wire.ask(&syn, tags)).wrapping_add(1);
            let segment = Packet {
                sequence: 78,
                acknowledged,
                flags: ACK,
                options: Vec::new(),
                data: head("/no"),
                ..syn
            };
            // a segment that was damaged on its way is retransmitted
            let mut damaged = wire.frame(&segment, tags);
            let last = damaged.len() - 1;
            damaged[last] ^= 1;
            assert!(wire.put(&damaged));
            let damaged = || gate.first_counts()[FirstCount::Damaged as usize];
            let is_counted = soon(|| damaged() == count as u64 + 1);
            assert!(is_counted, "{tags:?}: {:?}", gate.first_counts());
            let page = sent_back(&wire.ask(&segment, tags), &segment);
            assert!(page.data.starts_with(b"HTTP/1.1 403 "), "{tags:?}: {page:?}");
        }
        assert_eq!(gate.first_counts()[FirstCount::Damaged as usize], 5);
        assert_eq!(gate.tally("no").answered, 5);
        for listener in [public, of_class] {
            listener.set_nonblocking(true).unwrap();
            assert!(listener.accept().is_err());
        }
    });
}
