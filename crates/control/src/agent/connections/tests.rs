//! Rates of connections in virtual time: a loop that takes connections one after the other, and clients that
//! come back when their SYN was dropped.

use super::*;
use crate::agent::{Agent, Feedback, FeedbackSettings, Observation, Seen};
use crate::level::Level;
use std::collections::VecDeque;

const MS: u64 = 1_000_000;
const TICK_NS: u64 = 10 * MS;
/// The loop's time for a connection, and the number of connections it takes per second.
const COST_NS: f64 = 200_000.0;
const CAPACITY: f64 = 5_000.0;
/// The largest number of connections that wait to be accepted.
const BACKLOG: f64 = 4_096.0;

/// One loop, its backlog, and clients that retry.
struct Listener {
    agent: Feedback,
    now_ns: u64,
    /// Connections that wait to be accepted, by class.
    backlog: Vec<f64>,
    /// Parts of connections offered and refused that are not counted yet.
    owed: Vec<(f64, f64)>,
    /// Dropped connections that come again, by class: when, how many, how often dropped.
    again: Vec<VecDeque<(u64, f64, u32)>>,
    /// The share of a connection's cost that is a refusal.
    refusal: f64,
    log: Vec<Moment>,
}

/// The state at a tick.
#[derive(Clone, Debug)]
struct Moment {
    at_s: f64,
    lag_ms: f64,
    let_in: Vec<f64>,
    refused: Vec<f64>,
    rates: Vec<Option<f64>>,
    level: Level,
    refusing: f64,
}

impl Listener {
    fn new(shares: &[f64], refusal: f64) -> Listener {
        let class = |(rank, share): (usize, &f64)| AgentClass {
            name: rank.to_string(),
            share: *share,
            target_ns: 20 * MS,
        };
        let classes = shares.iter().enumerate().map(class).collect();
        let agent = Feedback::new(FeedbackSettings::new(classes)).unwrap();
        let (backlog, owed) = (vec![0.0; shares.len()], vec![(0.0, 0.0); shares.len()]);
        let again = vec![VecDeque::new(); shares.len()];
        Listener { agent, now_ns: 0, backlog, owed, again, refusal, log: Vec::new() }
    }

    /// Lets `per_s` connections arrive, by class.
    fn run(&mut self, per_s: &[f64], seconds: f64) -> &mut Listener {
        let end_ns = self.now_ns + (seconds * 1e9) as u64;
        let mut rates = vec![None; per_s.len()];
        if let Some(last) = self.log.last() {
            rates.clone_from(&last.rates);
        }
        let mut tokens: Vec<f64> = vec![0.0; per_s.len()];
        while self.now_ns < end_ns {
            self.now_ns += TICK_NS;
            let mut refused = Vec::new();
            for (rank, per_s) in per_s.iter().enumerate() {
                let mut came = vec![(per_s * 0.01, 0)];
                while self.again[rank].front().is_some_and(|(at_ns, ..)| *at_ns <= self.now_ns) {
                    came.extend(
                        self.again[rank].pop_front().map(|(_, count, tries)| (count, tries)),
                    );
                }
                let all: f64 = came.iter().map(|(count, _)| count).sum();
                tokens[rank] = match rates[rank] {
                    Some(rate) => (tokens[rank] + rate * 0.01).min(rate * 0.02),
                    None => f64::INFINITY,
                };
                let taken = all.min(tokens[rank]);
                tokens[rank] -= taken;
                // the kernel drops what it has no room for, before the loop sees it
                let entered = taken.min((BACKLOG - self.backlog.iter().sum::<f64>()).max(0.0));
                self.backlog[rank] += entered;
                for (count, tries) in came.into_iter().filter(|(_, tries)| *tries < 2) {
                    let lost = count * (1.0 - entered / all.max(1e-9));
                    let at_ns = self.now_ns + [1_000, 2_000][tries as usize] * MS;
                    self.again[rank].push_back((at_ns, lost, tries + 1));
                }
                self.again[rank].make_contiguous().sort_by_key(|(at_ns, ..)| *at_ns);
                refused.push(all - taken);
            }
            // the loop takes from all classes in proportion
            let waiting: f64 = self.backlog.iter().sum();
            let part = (TICK_NS as f64 / COST_NS / waiting.max(1e-9)).min(1.0);
            let let_in: Vec<_> = self.backlog.iter().map(|backlog| backlog * part).collect();
            self.backlog.iter_mut().for_each(|backlog| *backlog *= 1.0 - part);
            let busy = let_in.iter().sum::<f64>() * COST_NS / TICK_NS as f64;
            let refusing = busy * self.refusal;
            let mut seen = Vec::new();
            for (rank, owed) in self.owed.iter_mut().enumerate() {
                // counts are whole numbers
                owed.0 += let_in[rank] + refused[rank];
                owed.1 += refused[rank];
                let (offered, refused) = (owed.0 as u64, owed.1 as u64);
                *owed = (owed.0 - offered as f64, owed.1 - refused as f64);
                seen.push(Seen {
                    connections: offered,
                    connections_refused: refused,
                    ..Seen::default()
                });
            }
            let backlog_ns = self.backlog.iter().sum::<f64>() * COST_NS;
            let observation = Observation {
                now_ns: self.now_ns,
                lag_ns: backlog_ns as u64,
                refusing,
                classes: &seen,
                ..Observation::default()
            };
            let decision = self.agent.tick(&observation);
            rates = decision.limits.iter().map(|limits| limits.connections_per_s).collect();
            self.log.push(Moment {
                at_s: self.now_ns as f64 / 1e9,
                lag_ms: backlog_ns / 1e6,
                let_in,
                refused,
                rates: rates.clone(),
                level: decision.level,
                refusing,
            });
        }
        self
    }

    fn between(&self, from_s: f64, to_s: f64) -> impl Iterator<Item = &Moment> + Clone {
        self.log.iter().filter(move |moment| (from_s..to_s).contains(&moment.at_s))
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    sum / f64::max(count, 1.0)
}

#[test]
fn a_flood_of_connections_leaves_the_loop_busy_and_on_time() {
    for times in [1.4, 2.0, 10.0] {
        let mut listener = Listener::new(&[0.0], 0.0);
        listener.run(&[0.5 * CAPACITY], 3.0).run(&[times * CAPACITY], 60.0);
        let steady = || listener.between(20.0, 63.0);
        let lag_ms = mean(steady().map(|moment| moment.lag_ms));
        let busy = mean(steady().map(|moment| moment.let_in[0] * COST_NS / TICK_NS as f64));
        let most_ms = steady().map(|moment| moment.lag_ms).fold(0.0, f64::max);
        assert!(
            busy > 0.97 && lag_ms < 70.0 && most_ms < 150.0,
            "{times}: {busy} {lag_ms} {most_ms}"
        );
    }
}

#[test]
fn rates_move_every_one_and_a_half_seconds_at_most() {
    let mut listener = Listener::new(&[0.0, 0.2], 0.0);
    listener.run(&[2_000.0, 40_000.0], 30.0);
    let mut moves = Vec::new();
    for pair in listener.log.windows(2) {
        if pair[0].rates != pair[1].rates {
            moves.push(pair[1].at_s);
        }
    }
    assert!(moves.len() > 5, "{moves:?}");
    assert!(moves.windows(2).all(|pair| pair[1] - pair[0] >= 1.499), "{moves:?}");
}

#[test]
fn the_lowest_class_goes_first_and_keeps_its_floor() {
    let mut listener = Listener::new(&[0.0, 0.0, 0.1], 0.0);
    let wanted = [0.3 * CAPACITY, 0.3 * CAPACITY, 10.0 * CAPACITY];
    listener.run(&wanted, 60.0);
    let steady = || listener.between(20.0, 60.0);
    for rank in 0..2 {
        let refused: f64 = steady().map(|moment| moment.refused[rank]).sum();
        assert_eq!(refused, 0.0, "class {rank}");
    }
    // all classes want more than there is: the second gives way after the third, which keeps its floor
    listener.run(&[0.8 * CAPACITY, 2.0 * CAPACITY, 10.0 * CAPACITY], 60.0);
    let steady = || listener.between(80.0, 120.0);
    let share =
        |rank: usize| mean(steady().map(|moment| moment.let_in[rank])) * COST_NS / TICK_NS as f64;
    assert!(share(0) > 0.75, "{}", share(0));
    assert!((0.05..0.2).contains(&share(2)), "{}", share(2));
}

#[test]
fn when_it_is_over_nothing_is_limited_and_the_next_time_begins_with_what_was_good() {
    let mut listener = Listener::new(&[0.0], 0.0);
    listener.run(&[3.0 * CAPACITY], 40.0).run(&[0.5 * CAPACITY], 15.0);
    let last = listener.log.last().unwrap();
    assert_eq!((last.level, last.rates[0]), (Level::Normal, None));
    listener.run(&[3.0 * CAPACITY], 20.0);
    let first = listener.between(55.0, 75.0).find_map(|moment| moment.rates[0]).unwrap();
    assert!((0.8..1.1).contains(&(first / CAPACITY)), "{first}");
}

#[test]
fn refusals_that_take_too_much_become_refused_connections() {
    // nine tenths of the cost of a connection is for refusals
    let mut listener = Listener::new(&[0.0], 0.9);
    listener.run(&[0.95 * CAPACITY], 60.0);
    let refusing = mean(listener.between(20.0, 60.0).map(|moment| moment.refusing));
    assert!((0.1..0.3).contains(&refusing), "{refusing}");
}

#[test]
fn loops_that_others_keep_from_the_core_still_let_some_in() {
    let classes = vec![AgentClass { name: "all".to_owned(), share: 0.0, target_ns: 20 * MS }];
    let mut agent = Feedback::new(FeedbackSettings::new(classes)).unwrap();
    let (mut let_in, mut rate, mut tokens) = (0.0, None, 0.0);
    for tick in 1..6_000u64 {
        // ten connections in each period, of which the rate lets a part in
        tokens = f64::min(tokens + rate.unwrap_or(1e9) * 0.01, 10.0);
        let taken = f64::floor(tokens.min(10.0));
        tokens -= taken;
        let_in += if tick > 3_000 { taken } else { 0.0 };
        let seen =
            Seen { connections: 10, connections_refused: 10 - taken as u64, ..Seen::default() };
        let seen = Observation {
            now_ns: tick * TICK_NS,
            lag_ns: 200 * MS,
            classes: &[seen],
            ..Observation::default()
        };
        rate = agent.tick(&seen).limits[0].connections_per_s;
    }
    assert!(let_in / 30.0 > 100.0, "of 1,000 per second {} were let in", let_in / 30.0);
}

/// The interval at which queues are measured.
const LOOK_NS: u64 = 50 * MS;

/// Threads that serve one connection each, and accept from the kernel's queues of classes, the highest first.
/// A refused connection takes no thread.
struct Threads {
    agent: Feedback,
    now_ns: u64,
    /// Fractions of connections still to arrive, and waiting connections, by class.
    owed: Vec<f64>,
    queues: Vec<u64>,
    tokens: Vec<f64>,
    rates: Vec<Option<f64>>,
    /// The fraction of a connection that threads can still take.
    free: f64,
    /// Connections taken from the queues since the last measurement, and the wait that was measured then.
    taken: Vec<u64>,
    waits_ns: Vec<u64>,
    log: Vec<Accepted>,
}

#[derive(Clone, Debug)]
struct Accepted {
    at_s: f64,
    level: Level,
    let_in: Vec<u64>,
    refused: Vec<u64>,
    waits_ms: Vec<f64>,
    rates: Vec<Option<f64>>,
}

impl Threads {
    fn new(classes: usize) -> Threads {
        let class =
            |rank: usize| AgentClass { name: rank.to_string(), share: 0.0, target_ns: 20 * MS };
        let agent =
            Feedback::new(FeedbackSettings::new((0..classes).map(class).collect())).unwrap();
        Threads {
            agent,
            now_ns: 0,
            owed: vec![0.0; classes],
            queues: vec![0; classes],
            tokens: vec![0.0; classes],
            rates: vec![None; classes],
            free: 0.0,
            taken: vec![0; classes],
            waits_ns: vec![0; classes],
            log: Vec::new(),
        }
    }

    /// Lets `per_s` connections arrive, by class, where threads can take `capacity`.
    fn run(&mut self, per_s: &[f64], capacity: f64, seconds: f64) -> &mut Threads {
        for _ in 0..(seconds * 100.0) as u64 {
            self.now_ns += TICK_NS;
            let (mut let_in, mut refused) = (vec![0; per_s.len()], vec![0; per_s.len()]);
            for _ in 0..10 {
                self.millisecond(per_s, capacity, &mut let_in, &mut refused);
            }
            let taken = let_in.iter().zip(&refused).map(|(one, other)| one + other);
            let taken: Vec<u64> = taken.collect();
            self.taken.iter_mut().zip(&taken).for_each(|(sum, taken)| *sum += taken);
            if self.now_ns.is_multiple_of(LOOK_NS) {
                let looked = self.queues.iter().zip(&self.taken);
                let wait_ns = looked.map(|(queue, taken)| queue * LOOK_NS / (*taken).max(1));
                self.waits_ns = wait_ns.collect();
                self.taken.fill(0);
            }
            let seen = |rank: usize| Seen {
                connections: taken[rank],
                connections_refused: refused[rank],
                queued_ns: self.waits_ns[rank],
                ..Seen::default()
            };
            let seen: Vec<_> = (0..per_s.len()).map(seen).collect();
            let observation =
                Observation { now_ns: self.now_ns, classes: &seen, ..Observation::default() };
            let decision = self.agent.tick(&observation);
            self.rates = decision.limits.iter().map(|limits| limits.connections_per_s).collect();
            self.log.push(Accepted {
                at_s: self.now_ns as f64 / 1e9,
                level: decision.level,
                let_in,
                refused,
                waits_ms: self.waits_ns.iter().map(|wait_ns| *wait_ns as f64 / 1e6).collect(),
                rates: self.rates.clone(),
            });
        }
        self
    }

    fn millisecond(
        &mut self,
        per_s: &[f64],
        capacity: f64,
        let_in: &mut [u64],
        refused: &mut [u64],
    ) {
        self.free = (self.free + capacity * 1e-3).min(1.0);
        for rank in 0..per_s.len() {
            self.owed[rank] += per_s[rank] * 1e-3;
            let came = self.owed[rank] as u64;
            self.owed[rank] -= came as f64;
            // the kernel takes no more into a full queue
            self.queues[rank] = (self.queues[rank] + came).min(BACKLOG as u64);
            self.tokens[rank] = match self.rates[rank] {
                Some(rate) => (self.tokens[rank] + rate * 1e-3).min(rate * 0.01 + 1.0),
                None => f64::INFINITY,
            };
            while self.queues[rank] > 0 && self.free >= 1.0 {
                self.queues[rank] -= 1;
                if self.tokens[rank] >= 1.0 {
                    (self.tokens[rank], self.free) = (self.tokens[rank] - 1.0, self.free - 1.0);
                    let_in[rank] += 1;
                } else {
                    refused[rank] += 1;
                }
            }
        }
    }

    fn between(&self, from_s: f64, to_s: f64) -> impl Iterator<Item = &Accepted> + Clone {
        self.log.iter().filter(move |moment| (from_s..to_s).contains(&moment.at_s))
    }
}

/// Gold wants a fifth of what threads can take, and bulk four times the whole.
#[test]
fn of_classes_that_wait_for_threads_the_lowest_gives_way() {
    let mut threads = Threads::new(2);
    threads.run(&[40.0, 100.0], 200.0, 5.0).run(&[40.0, 800.0], 200.0, 60.0);
    let before = threads.between(0.0, 5.0).all(|moment| moment.level == Level::Normal);
    assert!(before, "nothing waits");
    let steady = || threads.between(20.0, 65.0);
    let refused = |rank: usize| threads.log.iter().map(|moment| moment.refused[rank]).sum::<u64>();
    assert_eq!(refused(0), 0);
    assert!(threads.log.iter().all(|moment| moment.rates[0].is_none()));
    assert!(refused(1) > 0);
    let per_s = |rank: usize| mean(steady().map(|moment| moment.let_in[rank] as f64 * 100.0));
    assert!((39.0..41.0).contains(&per_s(0)), "{}", per_s(0));
    assert!(per_s(1) > 0.8 * 160.0, "{}", per_s(1));
    // without the agent the wait would be that of 4,096 connections at 160 per second: 25 s
    let wait_ms = mean(steady().map(|moment| moment.waits_ms[1]));
    assert!(wait_ms < 2_000.0, "{wait_ms}");
}

/// A class of which nothing is accepted gets no rate; with one, all its waiting connections would be refused
/// when they are accepted.
#[test]
fn where_nothing_is_accepted_nothing_is_refused_later() {
    let mut threads = Threads::new(2);
    threads.run(&[0.0, 5.0], 200.0, 2.0).run(&[0.0, 5.0], 0.0, 10.0);
    assert_eq!(threads.log.last().unwrap().level, Level::SynPolicing);
    assert_eq!(threads.log.last().unwrap().rates, [None, None]);
    threads.run(&[0.0, 5.0], 200.0, 10.0);
    assert!(threads.log.iter().all(|moment| moment.refused == [0, 0]));
    assert_eq!(threads.log.last().unwrap().level, Level::Normal);
}
