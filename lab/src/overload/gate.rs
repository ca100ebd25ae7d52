//! voigt's tables 3 and 4 and figures 5 to 13 once more, with the policy in the kernel beside the
//! same policy in user space. Clients come from a network of their own ([`NetworkPair`]), and what
//! the kernel drops it drops without an answer.
//!
//! In figures 12 and 13 nginx with `limit_req` and HAProxy take part, too, in front of the same
//! work, with a limit of the same size for the client that floods.

use super::bench::{Bench, Trial};
use super::row::Row;
use super::server::{Policed, Server};
use super::voigt::{
    self, ArrivalPattern, DYNAMIC, FIGURE_5, SMALL_FILE, STATIC, Scene, TABLE_3, VoigtClients,
};
use crate::Error;
use crate::network::NetworkPair;
use rustix::net::{AddressFamily, Protocol, RawProtocol, SendFlags, SocketType, sendto, socket};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The part's name.
pub const PART: &str = "gate";
/// Connections per second that a flood attempts, as parts of the capacity: the paper's highest is 1.7.
const FLOODS: [f64; 4] = [0.05, 0.5, 1.7, 10.0];
/// SYNs per second beyond what connections can make.
const SYN_FLOODS: [u32; 3] = [10_000, 50_000, u32::MAX];
/// The client that floods.
const FLOODING: Ipv4Addr = Ipv4Addr::new(10, 1, 1, 1);
/// The limit of figures 12 and 13.
const LIMIT: Policed = Policed { client: "10.1.1.1", per_s: 10, burst: 2 };

/// The place where a policy is enforced.
#[derive(Clone, Copy)]
struct EnforcementPoint {
    name: &'static str,
    gate: Option<&'static str>,
}

const IN_USER_SPACE: EnforcementPoint = EnforcementPoint { name: "user space", gate: None };
const IN_KERNEL: EnforcementPoint = EnforcementPoint { name: "kernel", gate: Some("full") };

impl EnforcementPoint {
    /// The scene's lines of configuration, with the policy enforced there.
    fn lines(self, scene: &Scene) -> String {
        let lines = scene.lines_of_network();
        let Some(gate) = self.gate else { return lines };
        // queues are by class, of which there must be two
        let gate = if lines.contains("[[class]]") { gate } else { "address" };
        let dropped = |line: &str| match line.starts_with("connections = {") {
            true => line.replace("\"reset\"", "\"drop\"") + "\n",
            false => line.to_owned() + "\n",
        };
        format!("gate = \"{gate}\"\n{}", lines.lines().map(dropped).collect::<String>())
    }
}

/// Measures one round; the short form has the floods only.
///
/// # Errors
/// When a server does not come up, or the load cannot be made.
pub fn measure(bench: &mut Bench<'_>, round: u32) -> Result<(), Error> {
    for name in ["event-policy", "pool-policy"] {
        let Some(server) = Server::find(name) else { continue };
        if !bench.settings.servers.contains(&server) {
            continue;
        }
        if bench.settings.quick {
            continue;
        }
        let small = bench.capacity(server, STATIC)?.per_s;
        let dynamic = bench.capacity(server, DYNAMIC)?.per_s;
        let all = scenes(small, dynamic).into_iter();
        for scene in all.filter(|scene| name == "event-policy" || is_of_threads(scene)) {
            for enforced in [IN_USER_SPACE, IN_KERNEL] {
                one(bench, round, server, &scene, enforced)?;
            }
        }
    }
    floods(bench, round)?;
    invented(bench, round)
}

/// Whether a scene is about the order in which clients get free threads.
fn is_of_threads(scene: &Scene) -> bool {
    ["table", "figures 7", "figure 10", "section 4.3"]
        .iter()
        .any(|case| scene.case.starts_with(case))
}

/// The scenes of the paper for which one enforcer can do as well as the other, and one more: gold's
/// rate is fixed, and the others' rises (§4.3).
fn scenes(small: f64, dynamic: f64) -> Vec<Scene> {
    let mut all = voigt::scenes(small, dynamic);
    all.retain(|scene| !["table 1", "table 2"].contains(&scene.case.as_str()));
    for others in [0.2, 0.6, 1.5] {
        let clients = vec![
            VoigtClients::new("high", "127.10.1.1", SMALL_FILE, ArrivalPattern::Open(0.2 * small)),
            VoigtClients::new(
                "medium",
                "127.10.2.1",
                SMALL_FILE,
                ArrivalPattern::Open(others * small),
            ),
            VoigtClients::new(
                "low",
                "127.10.3.1",
                SMALL_FILE,
                ArrivalPattern::Open(others * small),
            ),
        ];
        let case = format!("section 4.3: the others ×{others}");
        all.push(Scene { case, policy: voigt::limited(TABLE_3, None), clients });
    }
    let mut shares = voigt::figures_7_and_8(60, [20, 5]);
    shares.case = format!("figures 7 and 8: {}", shares.case);
    all.push(shares);
    // section 4.5.1: a client that was refused is ignored for the time of a lost SYN
    for load in [2.4, 10.0] {
        for ignored in [false, true] {
            let mut scene = voigt::figure_11(dynamic, load, true);
            scene.case = format!("section 4.5.1: load ×{load}");
            if ignored {
                scene.policy =
                    scene.policy.replace("over = \"reset\"", "over = \"reset\", ignore = \"1s\"");
                scene.case += ", ignored for 1 s";
            }
            all.push(scene);
        }
    }
    all
}

fn one(
    bench: &mut Bench<'_>,
    round: u32,
    server: Server,
    scene: &Scene,
    enforced: EnforcementPoint,
) -> Result<(), Error> {
    let lines = enforced.lines(scene);
    let trial = bench.trial(PART, round, &scene.case, server, STATIC);
    let trial = Trial { lines: &lines, warmup: scene.warmup(), over_pair: true, ..trial };
    let (_, mut rows) =
        bench.run(&trial, |base| scene.clients.iter().map(|one| one.group(base)).collect())?;
    for row in &mut rows {
        row.server = format!("{}, {}", server.name(), enforced.name);
    }
    bench.keep(rows);
    Ok(())
}

/// Figures 12 and 13: the rate of normal clients while one client that has a limit floods.
fn floods(bench: &mut Bench<'_>, round: u32) -> Result<(), Error> {
    let event = Server::Forebay { engine: "event", policy: true };
    let others = [Server::Nginx { limit: false }, Server::Haproxy];
    let chosen = bench.settings.servers.clone();
    let mut who = vec![(event, Some(IN_KERNEL)), (event, Some(IN_USER_SPACE))];
    who.extend(others.map(|server| (server, None)));
    who.retain(|(server, _)| chosen.contains(server));
    for (server, enforced) in who {
        let small = bench.capacity(server, STATIC)?.per_s;
        let attempts = FLOODS.map(|part| Some(Flood::Connections(part * small)));
        let syns = SYN_FLOODS.map(|per_s| Some(Flood::Syns(per_s)));
        for flood in [None].into_iter().chain(attempts).chain(syns) {
            flooded(bench, round, (server, enforced), flood)?;
        }
    }
    Ok(())
}

/// The rate that gold has left of its own limit while SYNs come from addresses of its network that
/// no host has, ten times as many as its connections.
fn invented(bench: &mut Bench<'_>, round: u32) -> Result<(), Error> {
    let server = Server::Forebay { engine: "event", policy: true };
    if !bench.settings.servers.contains(&server) {
        return Ok(());
    }
    let rate = 0.5 * bench.capacity(server, STATIC)?.per_s;
    let limit = GoldLimit { rate: 1.2 * rate, burst: 20 };
    let gold = limit.of_gold();
    for (what, gate) in [
        ("charged at the handshake", "gate = \"full\"\n"),
        ("charged at the SYN", "gate = \"full\"\ngate_charge = \"syn\"\n"),
        ("user space", ""),
    ] {
        for flood in [None, Some(Flood::Invented((10.0 * rate) as u32))] {
            let clients = vec![VoigtClients::new(
                "gold",
                "127.10.9.1",
                SMALL_FILE,
                ArrivalPattern::Open(rate),
            )];
            let case = match flood {
                None => "invented addresses: gold alone",
                Some(_) => "invented addresses: ten times as many SYNs",
            };
            let scene = Scene { case: case.to_owned(), policy: format!("{gate}{gold}"), clients };
            let lines = scene.lines_of_network();
            let trial = bench.trial(PART, round, &scene.case, server, STATIC);
            let trial = Trial { lines: &lines, over_pair: true, ..trial };
            let mut rows = beside(bench, &trial, &scene, flood)?;
            for row in &mut rows {
                row.server = format!("{}, {what}", server.name());
            }
            bench.keep(rows);
        }
    }
    Ok(())
}

/// A limit of gold, which is a network of which a part is not there.
struct GoldLimit {
    rate: f64,
    burst: u32,
}

impl GoldLimit {
    fn of_gold(&self) -> String {
        let GoldLimit { rate, burst } = self;
        format!(
            "[[class]]\nname = \"gold\"\npriority = 0\n[[class]]\nname = \"others\"\npriority = 1\n\
             [[rule]]\nname = \"gold\"\nclient = [\"10.1.9.0/24\", \"10.7.0.0/16\"]\nclass = \"gold\"\n\
             connections = {{ rate = \"{:.0}/m\", burst = {burst}, over = \"reset\" }}\n",
            rate * 60.0
        )
    }
}

/// The load besides the clients.
#[derive(Clone, Copy)]
enum Flood {
    /// Connections per second of the client that floods.
    Connections(f64),
    /// SYNs per second from that client.
    Syns(u32),
    /// SYNs per second from addresses of gold that no host has.
    Invented(u32),
}

impl Flood {
    /// The number of SYNs per second that are sent without a client.
    fn syns(self) -> Option<u32> {
        match self {
            Flood::Connections(_) => None,
            Flood::Syns(per_s) | Flood::Invented(per_s) => Some(per_s),
        }
    }

    /// The source address of SYN `number`.
    fn from(self, number: u32) -> Ipv4Addr {
        match self {
            Flood::Connections(_) | Flood::Syns(_) => FLOODING,
            Flood::Invented(_) => Ipv4Addr::new(10, 7, (number >> 8) as u8, number as u8),
        }
    }
}

fn flooded(
    bench: &mut Bench<'_>,
    round: u32,
    (server, enforced): (Server, Option<EnforcementPoint>),
    flood: Option<Flood>,
) -> Result<(), Error> {
    // the same path for all, as php-fpm has it behind the others
    let path = "/work?cpu=2600us";
    let mut clients =
        vec![VoigtClients::new("normal", "127.10.9.1", path, ArrivalPattern::Closed(100))];
    // a bucket is charged by handshakes, so the sender of SYNs connects, too, often enough to find
    // it empty
    let attempts = match flood {
        None => None,
        Some(Flood::Connections(rate)) => Some(rate),
        Some(Flood::Syns(_) | Flood::Invented(_)) => Some(2.0 * f64::from(LIMIT.per_s)),
    };
    let flooding =
        |rate| VoigtClients::new("flood", "127.10.1.1", path, ArrivalPattern::Open(rate));
    clients.extend(attempts.map(flooding));
    let case = match flood {
        None => "figures 12 and 13: no flood".to_owned(),
        Some(Flood::Connections(rate)) => format!("figures 12 and 13: {rate:.0} connections/s"),
        Some(Flood::Syns(u32::MAX)) => "figures 12 and 13: SYNs, as many as can be".to_owned(),
        Some(Flood::Syns(per_s) | Flood::Invented(per_s)) => {
            format!("figures 12 and 13: {per_s} SYNs/s")
        }
    };
    let limit = Some((f64::from(LIMIT.per_s), LIMIT.burst));
    let scene = Scene { case, policy: voigt::limited(FIGURE_5, limit), clients };
    let lines = enforced.map_or(String::new(), |enforced| enforced.lines(&scene));
    let trial = bench.trial(PART, round, &scene.case, server, STATIC);
    let policed = enforced.is_none().then_some(LIMIT);
    let trial = Trial { lines: &lines, over_pair: true, policed, ..trial };
    let mut rows = beside(bench, &trial, &scene, flood)?;
    if let Some(enforced) = enforced {
        for row in &mut rows {
            row.server = format!("{}, {}", server.name(), enforced.name);
        }
    }
    bench.keep(rows);
    Ok(())
}

/// The rows of a trial, with the number of SYNs per second that were sent besides.
fn beside(
    bench: &Bench<'_>,
    trial: &Trial<'_>,
    scene: &Scene,
    flood: Option<Flood>,
) -> Result<Vec<Row>, Error> {
    // the port is known when the server is there
    let (port, stop, pair) = (AtomicU16::new(0), AtomicBool::new(false), bench.run.pair.as_ref());
    let (ran, sent) = std::thread::scope(|scope| {
        let sender = match (flood.filter(|flood| flood.syns().is_some()), pair) {
            (Some(flood), Some(pair)) => {
                let (port, stop) = (&port, &stop);
                Some(scope.spawn(move || send_syns(pair, port, flood, stop)))
            }
            _ => None,
        };
        let ran = bench.run(trial, |base| {
            port.store(base.address.port(), Relaxed);
            scene.clients.iter().map(|one| one.group(base)).collect()
        });
        stop.store(true, Relaxed);
        let sent = sender.map(|sender| sender.join());
        (ran, sent)
    });
    let (_, mut rows) = ran?;
    let sent = match sent {
        None => None,
        Some(Ok(sent)) => Some(sent?),
        Some(Err(_)) => return Err(Error::Client("the sender of SYNs panicked".into())),
    };
    for row in &mut rows {
        row.figure = sent;
    }
    Ok(rows)
}

/// Sends SYNs of a flood, once the port is known, until `stop`. Returns their rate per second.
fn send_syns(
    pair: &NetworkPair,
    port: &AtomicU16,
    flood: Flood,
    stop: &AtomicBool,
) -> Result<f64, Error> {
    let per_s = flood.syns().unwrap_or(0);
    pair.join_clients()?;
    let failed = |error: rustix::io::Errno| Error::io("cannot send", "SYNs")(error.into());
    // the clients that are measured come first
    rustix::process::nice(10).map_err(failed)?;
    // with heads of our own
    let raw = RawProtocol::new(255).map(Protocol::from_raw);
    let out = socket(AddressFamily::INET, SocketType::RAW, raw).map_err(failed)?;
    while port.load(Relaxed) == 0 && !stop.load(Relaxed) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let (to, began, mut sent) = (port.load(Relaxed), Instant::now(), 0_u32);
    while !stop.load(Relaxed) {
        if f64::from(sent) >= began.elapsed().as_secs_f64() * f64::from(per_s) {
            std::thread::sleep(Duration::from_micros(50));
            continue;
        }
        let packet = syn(flood.from(sent), sent, to);
        sendto(&out, &packet, SendFlags::empty(), &SocketAddrV4::new(NetworkPair::SERVER, 0))
            .map_err(failed)?;
        sent += 1;
    }
    Ok(f64::from(sent) / began.elapsed().as_secs_f64())
}

/// A SYN, from port to port, with its IP head.
fn syn(from: Ipv4Addr, number: u32, to: u16) -> [u8; 44] {
    let mut packet = [0; 44];
    packet[..10].copy_from_slice(&[0x45, 0, 0, 44, 0, 0, 0x40, 0, 64, 6]);
    packet[12..16].copy_from_slice(&from.octets());
    packet[16..20].copy_from_slice(&NetworkPair::SERVER.octets());
    packet[20..22].copy_from_slice(&(1024 + (number % 60_000) as u16).to_be_bytes());
    packet[22..24].copy_from_slice(&to.to_be_bytes());
    packet[24..28].copy_from_slice(&number.to_be_bytes());
    packet[32..36].copy_from_slice(&[0x60, 2, 0xff, 0xff]);
    // the largest segment is stated, as by every TCP
    packet[40..].copy_from_slice(&[2, 4, 5, 0xb4]);
    let words = packet[12..].chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]])));
    let mut sum = words.sum::<u32>() + 6 + 24;
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    packet[36..38].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    packet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_drops_what_user_space_resets() {
        let scenes = scenes(385.0, 63.0);
        let scene =
            scenes.iter().find(|scene| scene.case.starts_with("table 3: 300/s")).expect("it");
        let (outside, inside) = (IN_USER_SPACE.lines(scene), IN_KERNEL.lines(scene));
        assert!(outside.contains("burst = 300, over = \"reset\""), "{outside}");
        assert!(inside.starts_with("gate = \"full\"\n"), "{inside}");
        assert!(inside.contains("burst = 300, over = \"drop\""), "{inside}");
        assert!(inside.contains("client = [\"10.1.1.0/24\"]"), "{inside}");
        let scene = scenes.iter().find(|scene| scene.case.starts_with("figure 5")).expect("it");
        assert!(IN_KERNEL.lines(scene).starts_with("gate = \"address\"\n"));
    }

    #[test]
    fn a_syn_has_a_right_checksum() {
        let packet = syn(FLOODING, 70_000, 8080);
        let words =
            packet[12..].chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]])));
        let sum = words.sum::<u32>() + 6 + 24;
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
    }
}
