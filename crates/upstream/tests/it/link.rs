//! A simulation of links: instances crash, hang and are cut off at random; answers are late, lost,
//! doubled and out of order. The simulation has its own time, and is the same for the same seed.
//!
//! `LINK_REQUESTS=1000000 LINK_SEED=7 cargo test -p forebay-upstream --test it -- --ignored --nocapture`
//! is the long form.

#![allow(clippy::unwrap_used, reason = "a failed check panics")]

use forebay_upstream::link::{
    Flight, InstanceChoice, Link, LinkAction, LinkEvent, LinkFailure, LinkSettings, Ping,
    ResumePoint, WholeAnswer,
};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::time::Duration;

/// After how long without anything of its answer the driver of the link gives a request up.
const LATE_MS: u64 = 10_000;

/// Random numbers (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// Whether a draw succeeds, once in `count`.
    fn once_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// The state of an instance.
#[derive(Clone, Copy, PartialEq)]
enum Is {
    Well,
    /// The process has ended; its connections are reset.
    Ended,
    /// The machine has ended: nothing comes from it.
    Dead,
    /// The process does nothing until it goes on.
    Frozen,
    /// The process works on, but nothing passes in either direction.
    Cut,
}

struct Instance {
    is: Is,
    until_ms: u64,
    /// How often the instance was started.
    life: u32,
}

/// What an instance sends back.
#[derive(Clone)]
enum Said {
    Acknowledged,
    Head,
    Part {
        from: u64,
        is_same: bool,
    },
    Body(u64),
    End,
    Refused,
    /// The instance is about to end, and has not begun with the request.
    Returned,
    Broken,
}

enum What {
    Arrives,
    /// The connection of an attempt is there, and the copy is written.
    Connected {
        request: u64,
        attempt: u32,
        from: Option<u64>,
    },
    /// The head of a copy has come to an instance, and its end is withheld.
    Head {
        request: u64,
        attempt: u32,
        instance: usize,
        life: u32,
    },
    /// A copy has come to an instance.
    Come {
        request: u64,
        attempt: u32,
        instance: usize,
        life: u32,
        from: Option<u64>,
    },
    Said {
        request: u64,
        attempt: u32,
        instance: usize,
        said: Said,
    },
    Time {
        request: u64,
    },
    Late {
        request: u64,
    },
    Ping,
    Pinged {
        ping: Ping,
        life: u32,
    },
    Ponged {
        ping: Ping,
        is_there: bool,
    },
    Trouble,
    Better {
        instance: usize,
    },
    /// The supervisor reports a process that has ended.
    Told {
        instance: usize,
        was_by_itself: bool,
    },
}

/// Whether a request may run twice.
fn is_safe(request: u64) -> bool {
    !request.is_multiple_of(4)
}

struct Request {
    flight: Flight,
    is_safe: bool,
    total_bytes: u64,
    has_tag: bool,
    /// How much of the body the client has.
    got_bytes: u64,
    has_head: bool,
    heard_ms: u64,
    /// The attempt that has lost a part of its answer.
    torn: u32,
    /// The number of processes that ended by themselves while the request was there.
    crashes: u32,
}

#[derive(Debug, Default, PartialEq)]
struct Counts {
    answered: u64,
    /// Safe requests without an answer.
    lost: u64,
    /// Unsafe requests of which it is unknown whether they ran.
    unknown: u64,
    /// Answers that broke off, because no instance could go on with the body.
    broken: u64,
    /// Unsafe requests that ran more than once.
    twice: u64,
    /// Safe requests that met two processes that ended by themselves.
    quarantined: u64,
    /// How often a request rested because no instance took it.
    rests: u64,
    /// Copies beyond the first.
    copies: u64,
    continued: u64,
    /// Withheld ends that were sent.
    released: u64,
    /// Requests that an instance gave back.
    returned: u64,
    most_under_way: usize,
}

struct World {
    random: Random,
    now_ms: u64,
    sequence: u64,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    whats: HashMap<u64, What>,
    link: Link,
    instances: Vec<Instance>,
    requests: HashMap<u64, Request>,
    /// The unsafe requests that have run somewhere.
    executed: HashSet<u64>,
    /// Whether a supervisor reports how processes end.
    is_watched: bool,
    left: u64,
    counts: Counts,
}

impl World {
    fn new(seed: u64, requests: u64) -> World {
        let mut random = Random(seed);
        let count = 2 + random.below(4) as usize;
        let choices = [
            InstanceChoice::RoundRobin,
            InstanceChoice::Least,
            InstanceChoice::TwoChoices,
            InstanceChoice::Feedback,
            InstanceChoice::Hash,
        ];
        let acknowledges = !random.once_in(4);
        let settings = LinkSettings {
            choice: choices[random.below(5) as usize],
            acknowledges,
            withholds: acknowledges && !random.once_in(3),
            is_watched: !random.once_in(4),
            floor: Duration::from_millis(20),
            ceiling: Duration::from_secs(1),
            ..LinkSettings::default()
        };
        let keys = (0..count).map(|_| random.next()).collect();
        let is_watched = settings.is_watched;
        let link = Link::new(settings, keys, random.next(), 0);
        let well = || Instance { is: Is::Well, until_ms: 0, life: 1 };
        let mut world = World {
            random,
            now_ms: 0,
            sequence: 0,
            queue: BinaryHeap::new(),
            whats: HashMap::new(),
            link,
            instances: (0..count).map(|_| well()).collect(),
            requests: HashMap::new(),
            executed: HashSet::new(),
            is_watched,
            left: requests,
            counts: Counts::default(),
        };
        world.after(0, What::Arrives);
        world.after(500, What::Trouble);
        world.after(1, What::Ping);
        world
    }

    fn after(&mut self, in_ms: u64, what: What) {
        self.sequence += 1;
        self.queue.push(Reverse((self.now_ms + in_ms, self.sequence)));
        self.whats.insert(self.sequence, what);
    }

    /// A random time of transmission.
    fn delay(&mut self) -> u64 {
        let spike = if self.random.once_in(200) { self.random.below(200) } else { 0 };
        self.random.below(3) + spike
    }

    fn run(mut self) -> (Counts, Link) {
        while let Some(Reverse((at_ms, number))) = self.queue.pop() {
            self.now_ms = at_ms;
            let what = self.whats.remove(&number).unwrap();
            self.step(what);
            if self.left == 0 && self.requests.is_empty() {
                break;
            }
        }
        (self.counts, self.link)
    }

    fn step(&mut self, what: What) {
        match what {
            What::Arrives => self.arrive(),
            What::Connected { request, attempt, from } => self.connected(request, attempt, from),
            What::Come { request, attempt, instance, life, from } => {
                self.come(request, attempt, instance, life, from);
            }
            What::Head { request, attempt, instance, life } => {
                self.head_comes(request, attempt, instance, life);
            }
            What::Said { request, attempt, instance, said } => {
                let is_lost = matches!(self.instances[instance].is, Is::Cut | Is::Dead);
                if let Some(known) = self.requests.get_mut(&request)
                    && known.flight.attempt() == attempt
                    && is_lost
                {
                    known.torn = attempt;
                }
                if !is_lost {
                    self.hear(request, attempt, &said);
                }
            }
            What::Time { request } => self.time(request),
            What::Late { request } => self.late(request),
            What::Ping => {
                while let Some(ping) = self.link.ping(self.now_ms) {
                    let (life, delay) = (self.instances[ping.instance].life, self.delay());
                    self.after(delay, What::Pinged { ping, life });
                }
                let next = self.link.next_ping_ms().saturating_sub(self.now_ms).clamp(1, 100);
                self.after(next, What::Ping);
            }
            What::Pinged { ping, life } => {
                let Instance { is, until_ms, life: now } = self.instances[ping.instance];
                let delay = self.delay();
                match is {
                    Is::Well => self.after(delay, What::Ponged { ping, is_there: true }),
                    Is::Ended => self.after(delay, What::Ponged { ping, is_there: false }),
                    Is::Frozen if life == now => {
                        self.after(until_ms - self.now_ms, What::Pinged { ping, life });
                    }
                    Is::Frozen | Is::Dead | Is::Cut => {}
                }
            }
            What::Ponged { ping, is_there } => {
                self.link.pong(ping, is_there, self.now_ms);
                if self.random.once_in(50) {
                    self.link.pong(ping, is_there, self.now_ms);
                }
            }
            What::Trouble => self.trouble(),
            What::Told { instance, was_by_itself } => {
                self.link.ended(instance, was_by_itself, self.now_ms);
            }
            What::Better { instance } => {
                let one = &mut self.instances[instance];
                if one.is != Is::Frozen && one.is != Is::Cut {
                    one.life += 1;
                }
                one.is = Is::Well;
            }
        }
    }

    fn arrive(&mut self) {
        if self.left == 0 {
            return;
        }
        self.left -= 1;
        let number = self.left;
        let is_safe = is_safe(number);
        let (key, may_wait) = (self.random.next(), !self.random.once_in(8));
        let may_hurry = !self.random.once_in(4);
        let flight = self.link.begin(is_safe, may_wait, may_hurry, key, self.now_ms).unwrap();
        let request = Request {
            flight,
            is_safe,
            total_bytes: 1 + self.random.below(100_000),
            has_tag: is_safe && !self.random.once_in(3),
            got_bytes: 0,
            has_head: false,
            heard_ms: self.now_ms,
            torn: 0,
            crashes: 0,
        };
        self.requests.insert(number, request);
        self.counts.most_under_way = self.counts.most_under_way.max(self.requests.len());
        self.send(number, None);
        let wait = self.random.below(3);
        self.after(wait, What::Arrives);
    }

    /// Begins the current attempt of a request.
    fn send(&mut self, request: u64, from: Option<u64>) {
        let Some(known) = self.requests.get(&request) else { return };
        let (attempt, instance) = (known.flight.attempt(), known.flight.instance());
        self.counts.copies += u64::from(attempt > 1);
        self.counts.continued += u64::from(from.is_some());
        if self.instances[instance].is == Is::Ended {
            let said = Said::Refused;
            self.after(0, What::Said { request, attempt, instance, said });
        } else {
            let connect = if self.random.once_in(100) { self.random.below(500) } else { 0 };
            self.after(connect, What::Connected { request, attempt, from });
        }
        self.after(LATE_MS, What::Late { request });
        self.watch(request);
    }

    fn connected(&mut self, request: u64, attempt: u32, from: Option<u64>) {
        let Some(known) = self.requests.get(&request) else { return };
        // an attempt that was given up is closed before anything is written
        if known.flight.attempt() != attempt || known.flight.is_over() {
            return;
        }
        let instance = known.flight.instance();
        let Instance { is, life, .. } = self.instances[instance];
        if is == Is::Ended {
            return self.hear(request, attempt, &Said::Refused);
        }
        let is_withheld = known.flight.is_withheld();
        self.tell(request, attempt, &LinkEvent::Written);
        if !matches!(is, Is::Dead | Is::Cut) {
            let delay = self.delay();
            match is_withheld {
                true => self.after(delay, What::Head { request, attempt, instance, life }),
                false => self.after(delay, What::Come { request, attempt, instance, life, from }),
            }
        }
    }

    /// Handles the head of a copy: an instance runs no request whose end it does not have.
    fn head_comes(&mut self, request: u64, attempt: u32, instance: usize, life: u32) {
        let Instance { is, until_ms, life: now } = self.instances[instance];
        if life != now || matches!(is, Is::Ended | Is::Dead) {
            return;
        }
        if is == Is::Frozen {
            let left = until_ms - self.now_ms;
            return self.after(left, What::Head { request, attempt, instance, life });
        }
        let said = match self.random.below(100) {
            0 => Said::Returned,
            _ => Said::Acknowledged,
        };
        if !self.random.once_in(500) {
            let delay = self.delay();
            self.after(delay, What::Said { request, attempt, instance, said });
        }
    }

    /// Sends the withheld end of a request the same way as its head.
    fn release(&mut self, request: u64, attempt: u32) {
        let Some(known) = self.requests.get(&request) else { return };
        let instance = known.flight.instance();
        let Instance { is, life, .. } = self.instances[instance];
        let may_come = known.flight.attempt() == attempt
            && known.torn != attempt
            && !matches!(is, Is::Ended | Is::Dead | Is::Cut);
        self.counts.released += 1;
        if may_come {
            let delay = self.delay();
            self.after(delay, What::Come { request, attempt, instance, life, from: None });
        }
    }

    /// Runs a request in an instance, whatever has become of its link.
    fn come(&mut self, request: u64, attempt: u32, instance: usize, life: u32, from: Option<u64>) {
        let Instance { is, until_ms, life: now } = self.instances[instance];
        if life != now || matches!(is, Is::Ended | Is::Dead) {
            return;
        }
        if is == Is::Frozen {
            let left = until_ms - self.now_ms;
            return self.after(left, What::Come { request, attempt, instance, life, from });
        }
        // the instance has no more room, or is about to end
        if self.random.once_in(300) && from.is_none() {
            let (delay, said) = (self.delay(), Said::Returned);
            return self.after(delay, What::Said { request, attempt, instance, said });
        }
        if !is_safe(request) && !self.executed.insert(request) {
            self.counts.twice += 1;
        }
        let Some(known) = self.requests.get(&request) else { return };
        let (total_bytes, has_tag) = (known.total_bytes, known.has_tag);
        let mut at = 0;
        let say = |world: &mut World, in_ms: u64, said: Said| {
            world.after(in_ms, What::Said { request, attempt, instance, said });
        };
        // an acknowledgement is lost now and then, doubled now and then, and sometimes later than the
        // head
        if !self.random.once_in(500) {
            at = self.delay();
            say(self, at, Said::Acknowledged);
            if self.random.once_in(50) {
                let again = self.delay();
                say(self, at + again, Said::Acknowledged);
            }
        }
        let service = self.random.below(20) + if self.random.once_in(500) { 2000 } else { 0 };
        at = if self.random.once_in(20) { at } else { at + service };
        let is_same = has_tag && !self.random.once_in(100);
        let head = match from {
            Some(from) => Said::Part { from, is_same },
            None => Said::Head,
        };
        say(self, at, head.clone());
        if self.random.once_in(50) {
            say(self, at, head);
        }
        let mut sent = from.unwrap_or(0);
        while sent < total_bytes {
            let piece = (1 + self.random.below(30_000)).min(total_bytes - sent);
            at += self.delay();
            say(self, at, Said::Body(piece));
            sent += piece;
        }
        say(self, at, Said::End);
    }

    fn hear(&mut self, request: u64, attempt: u32, said: &Said) {
        let Some(known) = self.requests.get_mut(&request) else { return };
        if known.flight.attempt() != attempt {
            return;
        }
        // a connection has no holes: what follows a lost part never arrives
        let comes_by_itself = matches!(said, Said::Refused | Said::Broken);
        if known.torn == attempt && !comes_by_itself {
            return;
        }
        known.heard_ms = self.now_ms;
        let (total_bytes, has_tag) = (known.total_bytes, known.has_tag);
        match said {
            Said::Acknowledged => {
                let was_withheld = known.flight.is_withheld();
                self.tell(request, attempt, &LinkEvent::Acknowledged);
                if was_withheld {
                    self.release(request, attempt);
                }
            }
            Said::Head => {
                known.has_head = true;
                let whole = has_tag.then(|| WholeAnswer { total_bytes, tag: Box::from(*b"\"t\"") });
                self.tell(request, attempt, &LinkEvent::Head { whole, delay_ms: None });
            }
            Said::Part { from, is_same } => {
                let tag: &[u8] = if *is_same { b"\"t\"" } else { b"\"u\"" };
                let part = ResumePoint { from: *from, total_bytes, tag };
                self.tell(request, attempt, &LinkEvent::Part(Some(part)));
            }
            Said::Body(bytes) => {
                known.got_bytes += bytes;
                self.tell(request, attempt, &LinkEvent::Body(*bytes));
            }
            Said::End => {
                assert_eq!(known.got_bytes, total_bytes, "every byte once");
                self.tell(request, attempt, &LinkEvent::End);
                if self.requests.remove(&request).is_some() {
                    self.counts.answered += 1;
                }
            }
            Said::Refused => self.tell(request, attempt, &LinkEvent::Refused),
            Said::Returned => {
                self.counts.returned += 1;
                self.tell(request, attempt, &LinkEvent::Returned);
            }
            Said::Broken => self.tell(request, attempt, &LinkEvent::Broken { has_ended: true }),
        }
    }

    /// Reports an event to the link, and does what it answers.
    fn tell(&mut self, request: u64, attempt: u32, event: &LinkEvent<'_>) {
        let Some(known) = self.requests.get_mut(&request) else { return };
        match self.link.event(&mut known.flight, attempt, event, self.now_ms) {
            LinkAction::Wait => self.watch(request),
            LinkAction::Rest => {
                self.counts.rests += 1;
                self.watch(request);
            }
            LinkAction::Send(_) => {
                assert!(!known.has_head);
                known.heard_ms = self.now_ms;
                self.send(request, None);
            }
            LinkAction::Continue(_, from) => {
                assert_eq!(from, known.got_bytes);
                known.heard_ms = self.now_ms;
                self.send(request, Some(from));
            }
            LinkAction::Fail(reason) => {
                assert!(!known.has_head);
                let may_be_quarantined = known.crashes >= 2;
                match (known.is_safe, reason) {
                    (true, LinkFailure::Quarantined) if may_be_quarantined => {
                        self.counts.quarantined += 1;
                    }
                    (false, LinkFailure::Unknown) => self.counts.unknown += 1,
                    (false, _) => self.counts.broken += 1,
                    (true, _) => self.counts.lost += 1,
                }
                self.end(request);
            }
            LinkAction::Break => {
                assert!(known.has_head);
                self.counts.broken += 1;
                self.end(request);
            }
        }
    }

    fn end(&mut self, request: u64) {
        let known = self.requests.remove(&request).unwrap();
        assert!(known.flight.is_over());
    }

    fn watch(&mut self, request: u64) {
        let Some(known) = self.requests.get(&request) else { return };
        let in_ms = self.link.deadline_ms(&known.flight).saturating_sub(self.now_ms);
        if in_ms < LATE_MS {
            self.after(in_ms, What::Time { request });
        }
    }

    fn time(&mut self, request: u64) {
        let Some(known) = self.requests.get(&request) else { return };
        if self.link.deadline_ms(&known.flight) <= self.now_ms {
            self.tell(request, known.flight.attempt(), &LinkEvent::Time);
        }
    }

    fn late(&mut self, request: u64) {
        let Some(known) = self.requests.get(&request) else { return };
        let since = self.now_ms - known.heard_ms;
        if since >= LATE_MS {
            self.tell(request, known.flight.attempt(), &LinkEvent::Late);
        } else {
            self.after(LATE_MS - since, What::Late { request });
        }
    }

    /// Lets something happen to an instance, if another is well.
    fn trouble(&mut self) {
        let next = 100 + self.random.below(800);
        self.after(next, What::Trouble);
        let instance = self.random.below(self.instances.len() as u64) as usize;
        let others = self.instances.iter().enumerate();
        let has_other = others.filter(|(at, _)| *at != instance).any(|(_, one)| one.is == Is::Well);
        if !has_other || self.instances[instance].is != Is::Well {
            return;
        }
        let is = [Is::Ended, Is::Dead, Is::Frozen, Is::Cut][self.random.below(4) as usize];
        let lasts = 10 + self.random.below(3000);
        let until_ms = self.now_ms + lasts;
        let one = &mut self.instances[instance];
        (one.is, one.until_ms) = (is, until_ms);
        self.after(lasts, What::Better { instance });
        if is == Is::Ended {
            let was_by_itself = self.random.once_in(4);
            let in_ms = self.random.below(8);
            self.after(in_ms, What::Told { instance, was_by_itself });
            let is_counted = was_by_itself || !self.is_watched;
            let numbers = self.requests.iter().filter(|(_, one)| one.flight.instance() == instance);
            let mut hit: Vec<_> =
                numbers.map(|(number, one)| (*number, one.flight.attempt())).collect();
            hit.sort_unstable();
            for (request, attempt) in hit {
                if let Some(known) = self.requests.get_mut(&request) {
                    known.crashes += u32::from(is_counted);
                }
                self.hear(request, attempt, &Said::Broken);
            }
        }
    }
}

fn simulate(seed: u64, requests: u64) -> Counts {
    let (counts, link) = World::new(seed, requests).run();
    println!("seed {seed}: {counts:?}");
    assert_eq!((counts.lost, counts.twice), (0, 0), "seed {seed}");
    let all = counts.answered + counts.unknown + counts.broken + counts.quarantined;
    assert_eq!(all, requests, "seed {seed}: each request has one fate");
    assert!(counts.most_under_way < 20_000, "seed {seed}");
    for instance in 0..8 {
        assert_eq!(link.in_flight(instance), 0, "seed {seed}");
    }
    counts
}

#[test]
fn no_safe_request_is_lost_and_no_other_runs_twice() {
    let mut whole = Counts::default();
    for seed in 0..24 {
        let counts = simulate(seed, 10_000);
        whole.copies += counts.copies;
        whole.continued += counts.continued;
        whole.unknown += counts.unknown;
        whole.rests += counts.rests;
        whole.released += counts.released;
        whole.returned += counts.returned;
    }
    // the simulation was eventful enough
    assert!(whole.rests > 10, "{whole:?}");
    assert!(whole.released > 1000 && whole.returned > 100, "{whole:?}");
    assert!(whole.copies > 100 && whole.continued > 100 && whole.unknown > 10, "{whole:?}");
}

#[test]
fn the_same_seed_gives_the_same() {
    assert_eq!(simulate(5, 5_000), simulate(5, 5_000));
}

#[test]
#[ignore = "minutes; LINK_REQUESTS and LINK_SEED say how many from which seed"]
fn millions() {
    let number = |name: &str, default| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (requests, first): (u64, u64) =
        (number("LINK_REQUESTS", 1_000_000), number("LINK_SEED", 1000));
    let each = 50_000;
    for seed in first..first + requests.div_ceil(each) {
        simulate(seed, each);
    }
}
