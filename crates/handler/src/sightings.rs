//! The clients and requests that are most frequent, counted on all loops, for the page of the admin
//! listener.
//!
//! In: requests as their lines are begun, and connections that are refused. Out, once a second, to the
//! thread that watches for the page: the counts since then. Of served requests one in [`SAMPLE`] is
//! counted, drawn at random; every refusal by the policy is counted. Without the page nothing is counted.
//!
//! Loops share the tables of a few shards. A table is locked for one addition, or to put an empty one in
//! its place, so no loop waits: a loop that finds its table locked counts that it has missed one.

use forebay_metrics::top::{SAMPLE, SeenAs, TopKind, TopTables};
use std::fmt::{self, Display};
use std::hash::RandomState;
use std::io::Write;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// The number of tables that loops share.
const SHARDS: usize = 4;

/// The counts of all loops.
#[derive(Debug, Default)]
pub struct Sightings {
    is_on: AtomicBool,
    shards: [Mutex<TopTables>; SHARDS],
    keys: RandomState,
    missed: AtomicU64,
    sighters: AtomicUsize,
}

/// A request or connection to be counted.
#[derive(Clone, Copy, Debug)]
pub struct Sighting<'s> {
    /// The client; the unspecified address for one of a Unix socket.
    pub client: IpAddr,
    /// The host and path; empty for a connection.
    pub asked: (&'s [u8], &'s [u8]),
    /// The value of User-Agent.
    pub agent: Option<&'s [u8]>,
    /// The name of the class.
    pub class: Option<&'s str>,
    /// The rule that has refused the request.
    pub rule: Option<&'s str>,
    /// Whether the request was refused.
    pub seen: SeenAs,
}

impl Sightings {
    /// Switches counting on or off.
    pub fn switch(&self, is_on: bool) {
        self.is_on.store(is_on, Relaxed);
    }

    /// Whether anything is counted.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// The counter for a loop; `None` where nothing is counted.
    pub fn sighter(self: &Arc<Self>) -> Option<Sighter> {
        self.is_on().then(|| {
            let shard = self.sighters.fetch_add(1, Relaxed) % SHARDS;
            let mut random = fastrand::Rng::new();
            Sighter { all: Arc::clone(self), shard, until: gap(&mut random), random }
        })
    }

    /// Moves the counts since the last call into `into`. Returns how many were missed since the start.
    pub fn take(&self, into: &mut TopTables) -> u64 {
        for shard in &self.shards {
            let mut spare = TopTables::default();
            std::mem::swap(&mut *shard.lock().unwrap_or_else(PoisonError::into_inner), &mut spare);
            into.merge(&spare);
        }
        self.missed.load(Relaxed)
    }
}

/// The counter of one loop.
#[derive(Debug)]
pub struct Sighter {
    all: Arc<Sightings>,
    shard: usize,
    /// The number of requests until the next one that is counted.
    until: u32,
    random: fastrand::Rng,
}

impl Sighter {
    /// Whether the current served request is in the sample.
    #[inline]
    pub fn draws(&mut self) -> bool {
        self.until -= 1;
        if self.until == 0 { self.draw() } else { false }
    }

    #[cold]
    fn draw(&mut self) -> bool {
        self.until = gap(&mut self.random);
        true
    }

    /// Counts a request or connection.
    #[cold]
    pub fn count(&self, sighting: &Sighting<'_>) {
        let Sighting { client, asked, agent, class, rule, seen } = *sighting;
        let Ok(mut tables) = self.all.shards[self.shard].try_lock() else {
            self.all.missed.fetch_add(1, Relaxed);
            return;
        };
        let mut add = |kind, name: &[u8]| tables.add(&self.all.keys, kind, name, seen);
        let mut text = NameText::default();
        match client.is_unspecified() {
            true => add(TopKind::Address, b"unix"),
            false => {
                add(TopKind::Address, text.of(format_args!("{client}")));
                add(TopKind::Network, text.of(network_of(client)));
            }
        }
        let (host, path) = asked;
        if !path.is_empty() {
            add(TopKind::Agent, agent.unwrap_or(b"-"));
            add(TopKind::Path, text.joined(host, path));
        }
        for (kind, name) in [(TopKind::Class, class), (TopKind::Rule, rule)] {
            if let Some(name) = name {
                add(kind, name.as_bytes());
            }
        }
    }
}

/// The number of requests up to the next one of the sample, that one included. No period of requests
/// evades it, and the first request of a loop is drawn no more often than another.
fn gap(random: &mut fastrand::Rng) -> u32 {
    random.u32(1..2 * SAMPLE as u32)
}

/// The network of a client: its /24, or its /48 of IPv6.
pub fn network_of(client: IpAddr) -> ClientNetwork {
    ClientNetwork(client.to_canonical())
}

/// A network that is shown for clients; see [`network_of`].
#[derive(Clone, Copy, Debug)]
pub struct ClientNetwork(IpAddr);

impl fmt::Display for ClientNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V4(ip) => {
                let [a, b, c, _] = ip.octets();
                write!(f, "{a}.{b}.{c}.0/24")
            }
            IpAddr::V6(ip) => {
                let [a, b, c, ..] = ip.segments();
                write!(f, "{}/48", Ipv6Addr::from([a, b, c, 0, 0, 0, 0, 0]))
            }
        }
    }
}

/// Room for a name, without an allocation.
struct NameText {
    bytes: [u8; 128],
}

impl Default for NameText {
    fn default() -> NameText {
        NameText { bytes: [0; 128] }
    }
}

impl NameText {
    fn of(&mut self, text: impl Display) -> &[u8] {
        let mut rest = &mut self.bytes[..];
        // a longer name is cut
        let _ = write!(rest, "{text}");
        let left = rest.len();
        &self.bytes[..self.bytes.len() - left]
    }

    fn joined(&mut self, one: &[u8], two: &[u8]) -> &[u8] {
        let mut rest = &mut self.bytes[..];
        for part in [one, two] {
            let _ = rest.write(part);
        }
        let left = rest.len();
        &self.bytes[..self.bytes.len() - left]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sighting(client: &str, seen: SeenAs) -> Sighting<'_> {
        Sighting {
            client: client.parse().unwrap(),
            asked: (b"shop.example", b"/\x1b<script>"),
            agent: None,
            class: Some("gold"),
            rule: None,
            seen,
        }
    }

    #[test]
    fn what_loops_count_is_moved_once() {
        let all = Arc::new(Sightings::default());
        assert!(all.sighter().is_none());
        all.switch(true);
        let (one, two) = (all.sighter().unwrap(), all.sighter().unwrap());
        one.count(&sighting("192.0.2.7", SeenAs::Refused));
        two.count(&sighting("192.0.2.8", SeenAs::Refused));
        let mut tables = TopTables::default();
        assert_eq!(all.take(&mut tables), 0);
        let names = |kind: TopKind| {
            let largest = tables.largest(kind, 9);
            largest
                .iter()
                .map(|one| (String::from_utf8_lossy(&one.name).into_owned(), one.refused))
                .collect::<Vec<_>>()
        };
        assert_eq!(names(TopKind::Network), [("192.0.2.0/24".to_owned(), 2)]);
        assert_eq!(names(TopKind::Address).len(), 2);
        assert_eq!(names(TopKind::Agent), [("-".to_owned(), 2)]);
        assert_eq!(names(TopKind::Path), [("shop.example/\u{1b}<script>".to_owned(), 2)]);
        let mut again = TopTables::default();
        all.take(&mut again);
        assert!(again.is_empty());
    }

    #[test]
    fn one_in_so_many_is_drawn() {
        let all = Arc::new(Sightings::default());
        all.switch(true);
        let mut sighter = all.sighter().unwrap();
        let drawn = (0..SAMPLE * 1000).filter(|_| sighter.draws()).count();
        assert!((800..1200).contains(&drawn), "{drawn}");
        let first = (0..1000).filter(|_| all.sighter().unwrap().draws()).count();
        assert!(first < 100, "{first} of 1000 loops have drawn their first request");
    }

    #[test]
    fn networks_are_24_and_48_bits() {
        let of = |ip: &str| network_of(ip.parse().unwrap()).to_string();
        assert_eq!(of("203.0.113.77"), "203.0.113.0/24");
        assert_eq!(of("::ffff:203.0.113.77"), "203.0.113.0/24");
        assert_eq!(of("2001:db8:7:1::5"), "2001:db8:7::/48");
        assert_eq!(of("::1"), "::/48");
    }
}
