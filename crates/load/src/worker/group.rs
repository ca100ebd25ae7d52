//! A thread's share of a group: its schedule, its idle connections, its counts.

use super::request::ChosenPath;
use crate::arrivals::{Arrival, Schedule};
use crate::failure::RequestFailure;
use crate::plan::{
    BodyCheck, ClientGroup, LoadModel, LoadPlan, RequestsPerConnection, StatedVersion,
};
use crate::request::{Blocks, RequestTemplate};
use crate::response::FinishedResponse;
use crate::tally::GroupTally;
use fastrand::Rng;
use std::collections::{HashMap, VecDeque};
use std::iter::{Skip, StepBy};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

/// The kinds of loops, as far as the thread distinguishes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoopKind {
    Closed,
    /// An open loop whose arrivals are requests over a pool of connections.
    Pool,
    /// An open loop whose arrivals are connections.
    Session,
}

pub(super) struct GroupShare<'p> {
    pub(super) plan: &'p ClientGroup,
    pub(super) kind: LoopKind,
    pub(super) from_ns: u64,
    pub(super) until_ns: u64,
    pub(super) timeout_ns: u64,
    pub(super) connect_timeout_ns: u64,
    pub(super) tally: GroupTally,
    pub(super) rng: Rng,
    /// The number of requests this share still makes in the measured time; `None`: any number.
    left: Option<u64>,
    measured_from_ns: u64,
    template: RequestTemplate,
    /// The prepared requests for HTTP/2.
    blocks: Blocks,
    schedule: Option<StepBy<Skip<Schedule>>>,
    pub(super) next_arrival: Option<Arrival>,
    /// Arrivals that no connection has taken yet, the oldest first.
    pub(super) waiting: VecDeque<Arrival>,
    /// Connected clients without a request, with their generation at that time. In a pool that
    /// [spreads](GroupShare::spreads), also those that have lost their connection since.
    pub(super) idle: VecDeque<(u32, u32)>,
    /// Other clients without a connection (open loop).
    pub(super) free: Vec<u32>,
    pub(super) connecting: u32,
    /// The number of clients made for this group on this thread, and the largest number there may be.
    pub(super) clients: u32,
    pub(super) clients_limit: u32,
    /// The index of the next connection's source address; used for sessions only.
    next_source: u32,
    /// The next port of the source's range, counted from its start.
    next_port: u32,
    /// The distance to this thread's next address and port.
    step: u32,
    /// The length and CRC-32 of the first answer to each request.
    first: HashMap<ChosenPath, (u64, u32)>,
}

impl<'p> GroupShare<'p> {
    /// The share of thread `index` of `plan.threads`.
    pub(super) fn new(
        plan: &LoadPlan,
        group: &'p ClientGroup,
        place: usize,
        index: usize,
    ) -> GroupShare<'p> {
        let (from_ns, mut until_ns) = group.active_ns(plan);
        let measured_from_ns = plan.warmup.as_nanos() as u64;
        // in a closed loop with few clients, not every thread has one
        let with_clients = match group.load {
            LoadModel::Closed { connections, .. } => plan.threads.min(connections as usize),
            LoadModel::Open { .. } => plan.threads,
        };
        let left = group.requests.map(|all| match index < with_clients {
            true => share(all, with_clients, index),
            false => 0,
        });
        if left == Some(0) {
            until_ns = from_ns;
        }
        // every group and thread draws from its own sequence; the schedule is the same on all threads
        let seed = plan.seed.wrapping_add((place as u64) << 32);
        let mut schedule = match &group.load {
            LoadModel::Closed { .. } => None,
            LoadModel::Open { arrivals, .. } => {
                let all = arrivals.schedule(seed, from_ns, until_ns, measured_from_ns);
                Some(all.skip(index).step_by(plan.threads))
            }
        };
        let kind = match (&group.load, group.per_connection) {
            (LoadModel::Closed { .. }, _) => LoopKind::Closed,
            (_, RequestsPerConnection::Unlimited) => LoopKind::Pool,
            _ => LoopKind::Session,
        };
        GroupShare {
            plan: group,
            kind,
            from_ns,
            until_ns,
            timeout_ns: group.timeout.as_nanos() as u64,
            connect_timeout_ns: group.connect_timeout.min(group.timeout).as_nanos() as u64,
            tally: GroupTally::new(),
            rng: Rng::with_seed(seed.wrapping_add((index as u64 + 1) << 16)),
            left,
            measured_from_ns,
            template: RequestTemplate::new(group),
            blocks: Blocks::new(group),
            next_arrival: schedule.as_mut().and_then(Iterator::next),
            schedule,
            waiting: VecDeque::new(),
            idle: VecDeque::new(),
            free: Vec::new(),
            connecting: 0,
            clients: 0,
            clients_limit: share(group.connections().into(), plan.threads, index) as u32,
            next_source: index as u32,
            next_port: index as u32,
            step: plan.threads as u32,
            first: HashMap::new(),
        }
    }

    /// Takes the next arrival if it is due, and draws the one after it.
    pub(super) fn pop_arrival(&mut self, now_ns: u64) -> Option<Arrival> {
        let arrival = self.next_arrival.filter(|arrival| arrival.at_ns <= now_ns)?;
        self.next_arrival = self.schedule.as_mut().and_then(Iterator::next);
        if self.kind == LoopKind::Pool {
            self.note_request(arrival.at_ns, now_ns);
        }
        Some(arrival)
    }

    /// Records that a request is made that was due at `due_ns`. After its last request the share is over.
    #[inline]
    pub(super) fn note_request(&mut self, due_ns: u64, now_ns: u64) {
        let Some(left) = self.left.as_mut().filter(|_| due_ns >= self.measured_from_ns) else {
            return;
        };
        *left = left.saturating_sub(1);
        if *left == 0 {
            self.until_ns = self.until_ns.min(now_ns);
            self.next_arrival = None;
            self.schedule = None;
        }
    }

    /// Whether the share has made all of its number of requests.
    #[inline]
    pub(super) fn has_made_all(&self) -> bool {
        self.left == Some(0)
    }

    /// Whether every connection the share may have is busy.
    pub(super) fn all_taken(&self) -> bool {
        self.clients == self.clients_limit && self.free.is_empty() && self.idle.is_empty()
    }

    /// Whether bodies are hashed to be checked.
    pub(super) fn wants_crc32(&self) -> bool {
        self.plan.check.body != BodyCheck::Any
    }

    /// Whether the method is HEAD, to which answers have no body.
    pub(super) fn is_bodyless(&self) -> bool {
        self.plan.method() == "HEAD"
    }

    /// A random number of nanoseconds in this range.
    pub(super) fn draw_ns(&mut self, range: &RangeInclusive<Duration>) -> u64 {
        let (from, to) = (range.start().as_nanos() as u64, range.end().as_nanos() as u64);
        self.rng.u64(from..=to)
    }

    /// The number of requests of the next connection (`u32::MAX`: any number), and their version.
    pub(super) fn draw_connection(&mut self) -> (u32, StatedVersion) {
        match self.plan.per_connection {
            RequestsPerConnection::Unlimited => (u32::MAX, self.plan.version),
            RequestsPerConnection::Exactly(count) => (count, self.plan.version),
            RequestsPerConnection::Specweb99 if self.rng.f64() < 0.3 => (1, StatedVersion::Http10),
            RequestsPerConnection::Specweb99 => (self.rng.u32(5..=15), StatedVersion::Http11),
        }
    }

    /// Draws the path of the next request; a line of the trace may determine it.
    #[inline]
    pub(super) fn draw(&mut self, line: Option<u32>) -> ChosenPath {
        if let Some(line) = line.filter(|line| self.line_path(*line).is_some()) {
            return ChosenPath::Line(line);
        }
        ChosenPath::Entry(self.plan.mix.draw(&mut self.rng) as u32)
    }

    fn line_path(&self, line: u32) -> Option<&'p str> {
        let LoadModel::Open { arrivals, .. } = &self.plan.load else { return None };
        arrivals.trace.as_ref()?.get(line as usize)?.path.as_deref()
    }

    /// Appends a request to the output.
    #[inline]
    pub(super) fn append(
        &self,
        to: &mut Vec<u8>,
        asked: ChosenPath,
        version: StatedVersion,
        last: bool,
    ) {
        let path = match asked {
            ChosenPath::Entry(place) => &*self.plan.mix.entries()[place as usize].path,
            ChosenPath::Line(line) => self.line_path(line).unwrap_or("/"),
        };
        self.template.append(to, path, version, last);
    }

    /// Appends the encoded fields of an HTTP/2 request.
    #[inline]
    pub(super) fn append_fields(&self, to: &mut Vec<u8>, asked: ChosenPath) {
        match asked {
            ChosenPath::Entry(place) => self.blocks.append(to, place as usize),
            ChosenPath::Line(line) => {
                self.blocks.append_path(to, self.line_path(line).unwrap_or("/"))
            }
        }
    }

    /// The failure that an answer amounts to, if it is not good.
    #[inline]
    pub(super) fn judge(
        &mut self,
        answer: &FinishedResponse,
        asked: ChosenPath,
    ) -> Option<RequestFailure> {
        let check = &self.plan.check;
        if !check.status.map_or(answer.status < 400, |status| status == answer.status) {
            return Some(RequestFailure::Status);
        }
        let known = match asked {
            ChosenPath::Entry(place) => self.plan.mix.entries()[place as usize].length_bytes,
            ChosenPath::Line(_) => None,
        };
        let known = known.filter(|_| answer.status == 200 && !self.is_bodyless());
        if check.length_bytes.or(known).is_some_and(|length| length != answer.body_bytes) {
            return Some(RequestFailure::WrongBody);
        }
        let crc32 = answer.crc32?;
        let same = match check.body {
            BodyCheck::Any => true,
            BodyCheck::Crc32(expected) => crc32 == expected,
            BodyCheck::Same => {
                let found = (answer.body_bytes, crc32);
                *self.first.entry(asked).or_insert(found) == found
            }
        };
        (!same).then_some(RequestFailure::WrongBody)
    }

    /// Whether this is a pool with several source addresses, all of which must be used. Such a pool makes a
    /// connection from each before one is used again, and takes the one that has been free longest.
    pub(super) fn spreads(&self) -> bool {
        self.kind == LoopKind::Pool && self.plan.source.addresses.len() > 1
    }

    /// Whether a pool that spreads has not used all addresses of this thread yet.
    pub(super) fn lacks_sources(&self, threads: usize) -> bool {
        let addresses = self.plan.source.addresses.len().div_ceil(threads) as u32;
        self.spreads() && self.clients < addresses.min(self.clients_limit)
    }

    /// Takes the connection of a pool for the next request, with its generation when it became free.
    pub(super) fn pop_idle(&mut self) -> Option<(u32, u32)> {
        if self.spreads() { self.idle.pop_front() } else { self.idle.pop_back() }
    }

    /// The index of a connection's source address, modulo the number of addresses. A client keeps its
    /// address, but each session has a new one.
    pub(super) fn turn(&mut self, number: u32) -> u32 {
        if self.kind != LoopKind::Session {
            return number;
        }
        let turn = self.next_source;
        self.next_source = self.next_source.wrapping_add(self.step);
        turn
    }

    /// The local address of a connection with this [`turn`](GroupShare::turn).
    pub(super) fn source(&mut self, turn: u32) -> Option<SocketAddr> {
        let source = &self.plan.source;
        let unspecified = match self.plan.target.address {
            SocketAddr::V4(_) => std::net::IpAddr::from([0u8; 4]),
            SocketAddr::V6(_) => std::net::IpAddr::from([0u8; 16]),
        };
        let address = match source.addresses.len() {
            0 => source.ports.is_some().then_some(unspecified)?,
            count => source.addresses[turn as usize % count],
        };
        let port = match &source.ports {
            None => 0,
            Some(ports) => {
                let count = u32::from(ports.end() - ports.start()) + 1;
                let port = ports.start() + (self.next_port % count) as u16;
                self.next_port = self.next_port.wrapping_add(self.step);
                port
            }
        };
        Some(SocketAddr::new(address, port))
    }

    /// How many source ports may be tried when one is in use.
    pub(super) fn port_tries(&self) -> u32 {
        self.plan.source.ports.as_ref().map_or(1, |ports| ports.len() as u32)
    }
}

/// The share of thread `index` in `count` things.
pub(super) fn share(count: u64, threads: usize, index: usize) -> u64 {
    let threads = threads as u64;
    count / threads + u64::from((index as u64) < count % threads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        let shares: Vec<_> = (0..3).map(|index| share(11, 3, index)).collect();
        assert_eq!(shares, [4, 4, 3]);
    }

    #[test]
    fn pauses_are_drawn_anew_and_lie_between_both() {
        let plan = LoadPlan::default();
        let target = crate::LoadTarget::parse("http://127.0.0.1:81/").expect("a URL");
        let group = ClientGroup::new("a", target);
        let mut share = GroupShare::new(&plan, &group, 0, 0);
        let (from, to) = (Duration::from_millis(500), Duration::from_millis(1500));
        let drawn: Vec<u64> = (0..100).map(|_| share.draw_ns(&(from..=to))).collect();
        assert!(drawn.iter().all(|ns| (500_000_000..=1_500_000_000).contains(ns)));
        let early = drawn.iter().filter(|ns| **ns < 1_000_000_000).count();
        assert!((20..=80).contains(&early), "{early} of 100 are in the first half");
        assert_eq!(share.draw_ns(&(from..=from)), 500_000_000);
    }
}
