//! What must hold for any packets given to the programs in the kernel, whatever they are.

use forebay_gate::{
    AnswerCount, AnswerName, AnswerRoom, Charge, ClassSockets, Count, FirstCount, Gate,
    KernelAnswer, KernelVariant, SentVariant,
};
use forebay_http::coding::Coding;
use forebay_policy::Policy;
use forebay_policy::class::Class;
use forebay_policy::condition::Conditions;
use forebay_policy::endpoint::Endpoint;
use forebay_policy::pattern::PathPattern;
use forebay_policy::rate::Rate;
use forebay_policy::rule::{Action, InFlight, Limit, Over, Per, Rule};
use std::cell::RefCell;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::process::Command;
use std::time::Duration;

const UNTOUCHED: u32 = u32::MAX;
const DROPPED: u32 = 2;
const SENT_BACK: u32 = 7;

/// Where packets are for us.
pub(crate) const LISTENERS: [&str; 2] = ["127.0.0.1:8080", "[::1]:8080"];

thread_local! {
    static WATCHED: RefCell<Option<WatchedGate>> = const { RefCell::new(None) };
}

/// Packets, each behind two bytes with its length. Panics if something does not hold. It needs root.
pub(crate) fn check(mut bytes: &[u8]) {
    WATCHED.with_borrow_mut(|watched| {
        let watched = watched.get_or_insert_with(WatchedGate::alone);
        while let Some((len, rest)) = bytes.split_first_chunk() {
            let len = usize::from(u16::from_be_bytes(*len));
            let (packet, rest) = rest.split_at(len.min(rest.len()));
            watched.feed(packet);
            bytes = rest;
        }
        watched.add_up();
    });
}

/// A gate whose verdicts are counted here, too.
pub(crate) struct WatchedGate {
    gate: Gate,
    _sockets: Vec<TcpListener>,
    fed: u64,
    dropped: u64,
    sent_back: u64,
}

impl WatchedGate {
    /// In a network namespace of its own, which this thread has from then on.
    pub(crate) fn alone() -> WatchedGate {
        // SAFETY: only this thread gets another network.
        let result = unsafe { libc::unshare(libc::CLONE_NEWNET) };
        assert_eq!(result, 0, "only root can: {}", std::io::Error::last_os_error());
        let up = Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap();
        assert!(up.success());
        WatchedGate::new()
    }

    /// In the network namespace that there is. One that steers, judges first requests, with a rule of each kind, and answers
    /// one from the cache.
    pub(crate) fn new() -> WatchedGate {
        let classes = [Class::new("gold", 0), Class::new("silver", 1), Class::new("bulk", 2)];
        let policy = Policy::new(&classes, rules()).unwrap();
        let gate = Gate::load_answering(Charge::AtHandshake, &AnswerRoom::default()).unwrap();
        gate.renew(0, Duration::from_secs(1 << 20)).unwrap();
        gate.enforce(&gate.lower(&policy).unwrap()).unwrap();
        let addresses = LISTENERS.map(|address| address.parse::<SocketAddr>().unwrap());
        let public = addresses.map(|address| TcpListener::bind(address).unwrap());
        let of_classes = addresses.map(|address| {
            [(); 3].map(|()| TcpListener::bind(SocketAddr::new(address.ip(), 0)).unwrap())
        });
        gate.attach(&addresses).unwrap();
        let placed = addresses.iter().zip(&of_classes).map(|(address, of_classes)| ClassSockets {
            address: *address,
            speaks_tls: address.is_ipv6(),
            sockets: of_classes.iter().map(|socket| vec![socket.as_fd()]).collect(),
        });
        gate.place(&placed.collect::<Vec<_>>()).unwrap();
        learn(&gate, addresses[0]);
        let sockets = public.into_iter().chain(of_classes.into_iter().flatten()).collect();
        WatchedGate { gate, _sockets: sockets, fed: 0, dropped: 0, sent_back: 0 }
    }

    /// Runs the program on a packet; what it was turned into, if it goes back to whoever sent it.
    pub(crate) fn feed(&mut self, packet: &[u8]) -> Option<Vec<u8>> {
        // the kernel runs nothing on what is shorter than its heads
        let (verdict, after) = self.gate.run_on(packet).ok()?;
        self.fed += 1;
        match verdict {
            UNTOUCHED => assert_eq!(after, packet),
            DROPPED => self.dropped += 1,
            SENT_BACK => {
                self.sent_back += 1;
                // nobody can have us send more than they have sent, but for whoever has proven its address
                let is_error = after.windows(9).any(|bytes| bytes == b"HTTP/1.1 ");
                assert!(is_error || after.len() <= packet.len(), "{packet:x?}: {after:x?}");
                assert_eq!((&after[..6], &after[6..12]), (&packet[6..12], &packet[..6]));
                return Some(after);
            }
            verdict => panic!("verdict {verdict}: {packet:x?}"),
        }
        None
    }

    /// Each verdict is counted where it belongs, once.
    pub(crate) fn add_up(&self) {
        let counts = self.gate.counts();
        let sum = |of: &[Count]| of.iter().map(|count| counts[*count as usize]).sum::<u64>();
        let [syns, judged @ ..] = &counts[..=Count::LeftRace as usize] else { unreachable!() };
        assert_eq!(*syns, judged.iter().sum::<u64>(), "{counts:?}");
        let firsts = self.gate.first_counts();
        let first = |of: &[FirstCount]| of.iter().map(|count| firsts[*count as usize]).sum::<u64>();
        let sent_back = [Count::Answered, Count::Reset, Count::LateReset, Count::FullReset];
        let sent_behind = [
            FirstCount::Reset,
            FirstCount::Answered,
            FirstCount::Repeated,
            FirstCount::Acked,
            FirstCount::Cut,
        ];
        let answers = self.gate.answer_counts();
        let answer =
            |of: &[AnswerCount]| of.iter().map(|count| answers[*count as usize]).sum::<u64>();
        let from_cache = [
            AnswerCount::Ok,
            AnswerCount::NotModified,
            AnswerCount::Repeated,
            AnswerCount::Acked,
            AnswerCount::Ended,
            AnswerCount::Cut,
        ];
        let sent = sum(&sent_back) + first(&sent_behind) + answer(&from_cache);
        assert_eq!(sent, self.sent_back, "{counts:?} {firsts:?}");
        let dropped =
            [Count::Dropped, Count::Ignored, Count::LateDropped, Count::Bare, Count::Later];
        let silent = sum(&dropped)
            + sum(&[Count::FullDropped])
            + first(&[FirstCount::Dropped, FirstCount::Held])
            + answer(&[AnswerCount::Held, AnswerCount::Early]);
        assert_eq!(silent, self.dropped, "{counts:?} {firsts:?}");
        assert!(self.sent_back + self.dropped <= self.fed);
        let tallies = self.gate.tallies();
        let by_rule = tallies.iter().fold((0, 0, 0), |(dropped, reset, answered), (_, tally)| {
            (dropped + tally.dropped, reset + tally.reset, answered + tally.answered)
        });
        let refused = (
            sum(&[Count::Dropped, Count::LateDropped]) + first(&[FirstCount::Dropped]),
            sum(&[Count::Reset, Count::LateReset]) + first(&[FirstCount::Reset]),
            first(&[FirstCount::Answered]),
        );
        assert_eq!(by_rule, refused, "{tallies:?}");
    }

    /// How many of a kind there were.
    pub(crate) fn counted(&self, count: Count) -> u64 {
        self.gate.counts()[count as usize]
    }

    /// How many requests that might be answered from the cache.
    pub(crate) fn served(&self, count: AnswerCount) -> u64 {
        self.gate.answer_counts()[count as usize]
    }

    /// How many first requests.
    pub(crate) fn firsts(&self, count: FirstCount) -> u64 {
        self.gate.first_counts()[count as usize]
    }
}

/// `/gold/a` of the host `a`.
fn learn(gate: &Gate, listener: SocketAddr) {
    let sent = SentVariant {
        lines: b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n",
        not_modified: b"HTTP/1.1 304 Not Modified\r\n",
        etag: b"\"a\"",
        body: b"a\n",
    };
    let variant = KernelVariant { coding: Coding::Identity, compared_bytes: 2, sent: Some(sent) };
    let answer = KernelAnswer { requests: 100, timeout_s: 0, variants: &[variant] };
    gate.learn(&AnswerName { listener, host: b"a", path: b"/gold/a" }, &answer).unwrap();
}

/// Clients of 10.N.0.0/16 and fd00:N::/32 meet the N-th of those about addresses.
fn rules() -> Vec<Rule> {
    let limit = |over, ignore_ms| {
        // less than comes on the slowest machine, so that buckets are empty
        let limit = Limit::new(Rate::parse("20/s").unwrap(), 10);
        Some(Limit { over, ignore_ms, ..limit })
    };
    let about_addresses = [
        Rule { action: Some(Action::Drop), ..Rule::default() },
        Rule { action: Some(Action::Reset), ..Rule::default() },
        Rule { action: Some(Action::Reject(403)), ..Rule::default() },
        Rule { connections: limit(Over::Drop, None), ..Rule::default() },
        Rule { connections: limit(Over::Reset, None), ..Rule::default() },
        Rule { connections: limit(Over::Drop, Some(50)), ..Rule::default() },
    ];
    let about_addresses = (1..).zip(about_addresses).map(|(number, rule)| {
        let client = [format!("10.{number}.0.0/16"), format!("[fd00:{number}::]/32")];
        let client = client.map(|text| Endpoint::parse(&text).unwrap());
        let conditions = Conditions { client: client.into(), ..Conditions::default() };
        Rule { name: number.to_string(), conditions, ..rule }
    });
    let about_paths = [("gold", "/gold/*"), ("silver", "/silver")].map(|(class, path)| {
        let path = vec![PathPattern::parse(path).unwrap()];
        let conditions = Conditions { path, ..Conditions::default() };
        let (name, class) = (class.to_owned(), Some(class.to_owned()));
        Rule { name, class, conditions, ..Rule::default() }
    });
    let at_once = InFlight { most: 1, per: Per::Rule, over: Over::Reset };
    let about_requests = [
        ("/no", Rule { action: Some(Action::Reject(403)), ..Rule::default() }),
        ("/reset", Rule { action: Some(Action::Reset), ..Rule::default() }),
        ("/silent", Rule { action: Some(Action::Drop), ..Rule::default() }),
        ("/slow", Rule { requests: limit(Over::default(), Some(50)), ..Rule::default() }),
        ("/once", Rule { in_flight: Some(at_once), ..Rule::default() }),
    ];
    let about_requests = about_requests.map(|(path, rule)| {
        let path_condition = vec![PathPattern::parse(path).unwrap()];
        let conditions = Conditions { path: path_condition, ..Conditions::default() };
        Rule { name: path.to_owned(), conditions, ..rule }
    });
    about_addresses.chain(about_paths).chain(about_requests).collect()
}
