//! The link to the next stage as a state machine: what becomes of requests while instances crash, hang and
//! come back.
//!
//! Requests, what is heard of them, and the time go in; where a copy is to be sent, who is to be pinged,
//! and what the client is told come out. There is no socket and no clock in it, and no byte of a request:
//! whoever drives it keeps the copy until the request is acknowledged *and* answered, and tells it what
//! has come. One link is shared by all who ask the same stage.
//!
//! ```text
//!          begin                Written          Acknowledged          Head            End
//!  ─────► unwritten ──────────► written ───────► acknowledged ──────► answering ─────► over
//!             │ Refused            │ Time, Broken      │ lost, Broken      │ lost, Broken
//!             ▼                    ▼                   ▼                   ▼
//!         another one       another one, if it may run twice        another one goes on with the
//!                           else 502: nobody knows                  rest, if that is possible; else
//!                                                                   the client's connection is reset
//! ```
//!
//! | what | how |
//! |---|---|
//! | timer | of each instance, as TCP's (RFC 6298), between a floor and a ceiling |
//! | ping | an instance with requests under way that is silent for one timer is pinged; no answer within another means that it is lost. Idle ones more slowly |
//! | health | a failed request marks the instance: none for a while, then one as a trial, twice as long after each that fails |
//! | panic | where none may be asked, all are |
//! | budget | a loss admits at once what the instance had under way; other copies some for each thousand requests, and a few |
//! | quarantine | a request that was under way when two processes ended is not sent again |

mod flight;
#[cfg(test)]
mod tests;
mod timer;

pub use flight::{Flight, MOST_ATTEMPTS, Part, Whole};

use crate::balance::{Balancer, Candidate, WHOLE};
use crate::group::Member;
use crate::health::{Condition, Health, Told};
use crate::retry::Budget;
use crate::settings::Balance;
use flight::State;
use std::time::Duration;
use timer::Timer;

/// A request is not sent again once so many processes have ended while it ran.
const QUARANTINE: u8 = 2;

/// Most instances of one stage.
pub const MOST_INSTANCES: usize = 64;

/// Which instance a request goes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// One after the other.
    RoundRobin,
    /// The one with the fewest requests under way.
    #[default]
    Least,
    /// Of two that are drawn, the one with fewer.
    TwoChoices,
    /// The one with the fewest, those counting more whose answers have waited longer.
    Feedback,
    /// The same for the same key, unless it has far more than its share.
    Hash,
}

impl Choice {
    fn balance(self) -> Balance {
        match self {
            Choice::RoundRobin => Balance::RoundRobin,
            Choice::Least | Choice::Feedback => Balance::Least,
            Choice::TwoChoices => Balance::TwoChoices,
            Choice::Hash => Balance::Hash,
        }
    }
}

/// What a link keeps to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Which instance is asked.
    pub choice: Choice,
    /// Whether instances acknowledge requests. Those of other software do not: that a request gets no
    /// answer shows when its connection ends, or when a ping has none.
    pub acknowledges: bool,
    /// An acknowledgement may always take so long.
    pub floor: Duration,
    /// And never longer.
    pub ceiling: Duration,
    /// An idle instance is pinged so often.
    pub idle: Duration,
    /// One that has failed is left alone for so long at first.
    pub back_off: Duration,
    /// One request is sent so often at most.
    pub attempts: u8,
    /// How many copies may be sent for a thousand requests, besides those of losses.
    pub permille: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            choice: Choice::default(),
            acknowledges: true,
            floor: Duration::from_millis(200),
            ceiling: Duration::from_secs(2),
            idle: Duration::from_secs(5),
            back_off: Duration::from_millis(500),
            attempts: MOST_ATTEMPTS,
            permille: 200,
        }
    }
}

/// What has come of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<'e> {
    /// Some of the request was written: from here on it is not certain that nothing has run.
    Written,
    /// The instance has the request.
    Acknowledged,
    /// The head of the answer, and whether another instance could go on with its body. `delay_ms`: how long
    /// the request has waited there, if that was said.
    Head {
        /// What another would go on with.
        whole: Option<Whole>,
        /// How long it has waited.
        delay_ms: Option<u64>,
    },
    /// The head of a part; `None` if it is no part, or not one of that answer.
    Part(Option<Part<'e>>),
    /// So many bytes of the body.
    Body(u64),
    /// The end of the answer.
    End,
    /// Nothing of it has run: no connection, nothing was written, or the instance says so (503 from its
    /// own admission, REFUSED_STREAM, above the last of a GOAWAY).
    Refused,
    /// The connection had been idle, and ended when it was used: nobody is to blame.
    Stale,
    /// The connection has ended too early. `has_ended`: with the process.
    Broken {
        /// The process ended.
        has_ended: bool,
    },
    /// The instance is there, and yet has not answered in the time that an answer may take.
    Late,
    /// The time has come that [`Link::deadline_ms`] says.
    Time,
}

/// What is to be done for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    Wait,
    /// The copy goes to this instance; the connection of the attempt before is closed.
    Send(Member),
    /// As `Send`, and the rest of the body is asked for, from this byte on.
    Continue(Member, u64),
    /// The client is told why there is no answer.
    Fail(Reason),
    /// Some of the answer is with the client: its connection is reset.
    Break,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It may have run, and must not run twice.
    Unknown,
    /// It was sent too often, or too many are sent again.
    Exhausted,
    /// Two processes have ended while it ran.
    Quarantined,
}

impl Reason {
    /// The status for the client.
    pub fn status(self) -> u16 {
        match self {
            Reason::Unknown => 502,
            Reason::Exhausted | Reason::Quarantined => 503,
        }
    }
}

/// An instance is to be asked whether it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ping {
    /// Which.
    pub instance: Member,
    /// To be named by the [answer](Link::pong).
    pub number: u32,
}

/// The link to one stage.
#[derive(Clone, Debug)]
pub struct Link {
    settings: Settings,
    instances: Vec<Instance>,
    balancer: Balancer,
    budget: Budget,
    candidates: Vec<Candidate>,
}

#[derive(Clone, Debug)]
struct Instance {
    health: Health,
    in_flight: u32,
    timer: Timer,
    /// One more each time it is lost.
    epoch: u32,
    heard_ms: u64,
    ping: Pinged,
    pings: u32,
    /// Somebody wants to know whether it lives.
    is_doubted: bool,
    /// Copies that its loss has admitted.
    credit: u32,
    /// What its answers say they have waited, smoothed.
    delay_us: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pinged {
    No,
    Since(u64),
}

impl Link {
    /// To instances with these [keys](crate::balance::hash). `seed` is any number.
    pub fn new(settings: Settings, keys: Vec<u64>, seed: u64, now_ms: u64) -> Link {
        let instances = keys.iter().take(MOST_INSTANCES);
        let instances = instances.map(|_| Instance {
            health: Health::new(1, settings.back_off, Duration::ZERO, None, now_ms),
            in_flight: 0,
            timer: Timer::new(milliseconds(settings.floor), milliseconds(settings.ceiling)),
            epoch: 0,
            heard_ms: now_ms,
            ping: Pinged::No,
            pings: 0,
            // the first answer says how long one takes
            is_doubted: true,
            credit: 0,
            delay_us: 0,
        });
        let instances: Vec<_> = instances.collect();
        let keys = keys.into_iter().take(instances.len()).collect();
        Link {
            balancer: Balancer::new(settings.choice.balance(), keys, seed),
            budget: Budget::new(settings.permille, now_ms),
            candidates: Vec::with_capacity(instances.len()),
            instances,
            settings,
        }
    }

    /// A request. `repeats` says that it may run twice, `key` is what it is hashed by. It goes to its
    /// [instance](Flight::instance) at once. `None` if the stage has no instance.
    pub fn begin(&mut self, repeats: bool, key: u64, now_ms: u64) -> Option<Flight> {
        self.budget.deposit();
        let instance = self.pick(key, |_| false, now_ms)?;
        let mut flight = Flight {
            key,
            repeats,
            instance,
            epoch: 0,
            tried: 0,
            attempts: 0,
            ended: 0,
            state: State::Unwritten,
            heard_ms: now_ms,
            written_ms: now_ms,
            body_bytes: 0,
            whole: None,
            is_gone: false,
        };
        self.enter(&mut flight, instance, now_ms);
        Some(flight)
    }

    fn enter(&mut self, flight: &mut Flight, instance: Member, now_ms: u64) {
        let one = &mut self.instances[instance];
        one.health.begin(now_ms);
        if one.in_flight == 0 {
            one.heard_ms = now_ms;
        }
        one.in_flight += 1;
        flight.instance = instance;
        flight.epoch = one.epoch;
        flight.attempts += 1;
        flight.heard_ms = now_ms;
        flight.note_tried();
    }

    /// What is to be done now that this has come of attempt number `attempt`. What comes late, of an
    /// attempt that was given up, is not looked at.
    pub fn event(
        &mut self,
        flight: &mut Flight,
        attempt: u8,
        event: &Event<'_>,
        now_ms: u64,
    ) -> Action {
        if attempt != flight.attempts || flight.state == State::Over {
            return Action::Wait;
        }
        match event {
            Event::Written => {
                if flight.state == State::Unwritten {
                    flight.state = match self.settings.acknowledges {
                        true => State::Written,
                        false => State::Acknowledged,
                    };
                    (flight.written_ms, flight.heard_ms) = (now_ms, now_ms);
                } else if flight.state == State::Continuing {
                    flight.written_ms = now_ms;
                }
                Action::Wait
            }
            Event::Acknowledged => {
                self.heard(flight, true, now_ms);
                if matches!(flight.state, State::Unwritten | State::Written) {
                    flight.state = State::Acknowledged;
                }
                Action::Wait
            }
            Event::Head { whole, delay_ms } => {
                if matches!(flight.state, State::Answering | State::Continuing) {
                    return Action::Wait;
                }
                let is_first = flight.state != State::Acknowledged;
                self.heard(flight, is_first, now_ms);
                if let Some(delay_ms) = delay_ms {
                    let one = &mut self.instances[flight.instance];
                    one.delay_us = (7 * one.delay_us + delay_ms.saturating_mul(1000)) / 8;
                }
                flight.whole.clone_from(whole);
                flight.state = State::Answering;
                Action::Wait
            }
            Event::Part(part) => {
                if flight.state != State::Continuing {
                    return Action::Wait;
                }
                self.heard(flight, true, now_ms);
                let is_rest = part.is_some_and(|part| {
                    flight.whole.as_ref().is_some_and(|whole| {
                        part.from == flight.body_bytes
                            && part.total_bytes == whole.total_bytes
                            && *part.tag == *whole.tag
                    })
                });
                if !is_rest {
                    self.leave(flight, Told::Well, now_ms);
                    flight.state = State::Over;
                    return Action::Break;
                }
                flight.state = State::Answering;
                Action::Wait
            }
            Event::Body(bytes) => {
                self.heard(flight, false, now_ms);
                flight.body_bytes += bytes;
                Action::Wait
            }
            Event::End => {
                self.heard(flight, false, now_ms);
                self.leave(flight, Told::Well, now_ms);
                flight.state = State::Over;
                Action::Wait
            }
            Event::Refused => self.again(flight, Told::Failed, true, now_ms),
            Event::Stale => self.again(flight, Told::Nothing, false, now_ms),
            Event::Broken { has_ended } => {
                flight.ended += u8::from(*has_ended);
                let is_certain = flight.state == State::Unwritten;
                self.again(flight, Told::Failed, is_certain, now_ms)
            }
            Event::Late => {
                let is_certain = flight.state == State::Unwritten;
                self.again(flight, Told::Failed, is_certain, now_ms)
            }
            Event::Time => self.time(flight, now_ms),
        }
    }

    /// The client has gone.
    pub fn cancel(&mut self, flight: &mut Flight, now_ms: u64) {
        if flight.state != State::Over {
            let told = match flight.state {
                State::Unwritten | State::Written => Told::Nothing,
                _ => Told::Well,
            };
            self.leave(flight, told, now_ms);
            flight.state = State::Over;
        }
    }

    /// When [`Event::Time`] is to come, if nothing else does before.
    pub fn deadline_ms(&self, flight: &Flight) -> u64 {
        let timer_ms = self.instances.get(flight.instance).map_or(0, |one| one.timer.ms());
        match flight.state {
            State::Over => u64::MAX,
            _ => flight.heard_ms.saturating_add(timer_ms),
        }
    }

    /// Something has come from its instance.
    fn heard(&mut self, flight: &mut Flight, is_timed: bool, now_ms: u64) {
        let one = &mut self.instances[flight.instance];
        let is_of_now = one.epoch == flight.epoch;
        if is_timed {
            one.timer.sample(now_ms.saturating_sub(flight.written_ms));
        }
        // what comes of before the loss says nothing of who is there now
        if is_of_now {
            one.heard_ms = now_ms;
            one.is_doubted = false;
        }
        flight.heard_ms = now_ms;
    }

    fn time(&mut self, flight: &mut Flight, now_ms: u64) -> Action {
        if now_ms < self.deadline_ms(flight) {
            return Action::Wait;
        }
        let one = &mut self.instances[flight.instance];
        if one.epoch != flight.epoch {
            let is_certain = flight.state == State::Unwritten;
            return self.again(flight, Told::Nothing, is_certain, now_ms);
        }
        match flight.state {
            State::Continuing if !self.settings.acknowledges => {
                flight.heard_ms = now_ms;
                Action::Wait
            }
            State::Unwritten | State::Written | State::Continuing => {
                one.is_doubted = true;
                one.timer.back_off();
                let is_certain = flight.state == State::Unwritten;
                self.again(flight, Told::Failed, is_certain, now_ms)
            }
            // pings decide whether the instance lives; this one looks again a little later
            State::Acknowledged | State::Answering => {
                flight.heard_ms = now_ms;
                Action::Wait
            }
            State::Over => Action::Wait,
        }
    }

    /// The attempt is over without an answer: another is begun, if that may be.
    fn again(&mut self, flight: &mut Flight, told: Told, is_certain: bool, now_ms: u64) -> Action {
        let from = flight.instance;
        // one that was never written has added to nobody's load, and is admitted already
        let is_admitted = flight.state == State::Unwritten;
        self.leave(flight, told, now_ms);
        let is_begun = matches!(flight.state, State::Answering | State::Continuing);
        let fail = |flight: &mut Flight, action| {
            flight.state = State::Over;
            action
        };
        let (can_go_on, otherwise) = match is_begun {
            true => (flight.whole.is_some(), Action::Break),
            false => (flight.repeats || is_certain, Action::Fail(Reason::Unknown)),
        };
        if !can_go_on || flight.is_gone {
            return fail(flight, otherwise);
        }
        let because = |reason| if is_begun { Action::Break } else { Action::Fail(reason) };
        if flight.ended >= QUARANTINE {
            return fail(flight, because(Reason::Quarantined));
        }
        if flight.attempts >= self.settings.attempts.min(MOST_ATTEMPTS)
            || !(is_admitted || self.admits(from, now_ms))
        {
            return fail(flight, because(Reason::Exhausted));
        }
        let other = self.pick(flight.key, |member| flight.has_tried(member), now_ms);
        let Some(instance) = other else { return fail(flight, because(Reason::Exhausted)) };
        if flight.has_tried(instance) {
            flight.tried = 1 << (from % 64);
        }
        self.enter(flight, instance, now_ms);
        flight.written_ms = now_ms;
        if is_begun {
            flight.state = State::Continuing;
            return Action::Continue(instance, flight.body_bytes);
        }
        flight.state = State::Unwritten;
        Action::Send(instance)
    }

    /// Whether a copy may be sent instead of what this instance has not answered.
    fn admits(&mut self, from: Member, now_ms: u64) -> bool {
        let one = &mut self.instances[from];
        if one.credit > 0 {
            one.credit -= 1;
            return true;
        }
        self.budget.withdraw(now_ms)
    }

    /// An attempt counts for its instance no more.
    fn leave(&mut self, flight: &Flight, told: Told, now_ms: u64) {
        let one = &mut self.instances[flight.instance];
        if told == Told::Failed {
            one.mark(now_ms);
        } else if one.epoch == flight.epoch {
            one.health.told(told, now_ms);
        }
        one.in_flight = one.in_flight.saturating_sub(1);
    }

    /// Those that have not been tried, if one of them may be asked; then any that may; then any.
    fn pick(&mut self, key: u64, tried: impl Fn(Member) -> bool, now_ms: u64) -> Option<Member> {
        let is_any = |_: Member| false;
        let found = self.pick_of(key, &tried, false, now_ms);
        let found = found.or_else(|| self.pick_of(key, &is_any, false, now_ms));
        let found = found.or_else(|| self.pick_of(key, &tried, true, now_ms));
        found.or_else(|| self.pick_of(key, &is_any, true, now_ms))
    }

    fn pick_of(
        &mut self,
        key: u64,
        tried: &dyn Fn(Member) -> bool,
        panics: bool,
        now_ms: u64,
    ) -> Option<Member> {
        let Link { settings, instances, balancer, candidates, .. } = self;
        let least_us = instances.iter().map(|one| one.delay_us).min().unwrap_or(0);
        candidates.clear();
        candidates.extend(instances.iter().enumerate().map(|(at, one)| {
            let share = match (tried(at), panics) {
                (true, _) => 0,
                (false, true) => WHOLE,
                (false, false) => one.health.share(now_ms),
            };
            let share = match settings.choice {
                Choice::Feedback if share > 0 => one.by_delay(share, least_us),
                _ => share,
            };
            Candidate { in_flight: one.in_flight, share }
        }));
        // a search in vain would change whose turn it is
        if candidates.iter().all(|one| one.share == 0) {
            return None;
        }
        balancer.pick(candidates, key)
    }

    /// Instances to be pinged now, one at a time; and those are lost whose answer is late.
    pub fn ping(&mut self, now_ms: u64) -> Option<Ping> {
        let idle_ms = milliseconds(self.settings.idle);
        for instance in 0..self.instances.len() {
            let one = &mut self.instances[instance];
            if let Pinged::Since(since_ms) = one.ping {
                if now_ms.saturating_sub(since_ms) >= one.timer.ms() {
                    one.ping = Pinged::No;
                    one.heard_ms = now_ms;
                    one.timer.back_off();
                    one.lose(now_ms);
                }
                continue;
            }
            if now_ms >= one.silent_until_ms(idle_ms) {
                one.ping = Pinged::Since(now_ms);
                one.pings = one.pings.wrapping_add(1);
                return Some(Ping { instance, number: one.pings });
            }
        }
        None
    }

    /// When [`ping`](Link::ping) has something to do next.
    pub fn next_ping_ms(&self) -> u64 {
        let idle_ms = milliseconds(self.settings.idle);
        let of = |one: &Instance| match one.ping {
            Pinged::Since(since_ms) => since_ms.saturating_add(one.timer.ms()),
            Pinged::No => one.silent_until_ms(idle_ms),
        };
        self.instances.iter().map(of).min().unwrap_or(u64::MAX)
    }

    /// An instance has answered a ping, or could not be reached. What is late is not looked at.
    pub fn pong(&mut self, ping: Ping, is_there: bool, now_ms: u64) {
        let Some(one) = self.instances.get_mut(ping.instance) else { return };
        let (true, Pinged::Since(since_ms)) = (one.pings == ping.number, one.ping) else { return };
        one.ping = Pinged::No;
        one.heard_ms = now_ms;
        one.is_doubted = false;
        if !is_there {
            return one.lose(now_ms);
        }
        one.timer.sample(now_ms.saturating_sub(since_ms));
        // one that lives may be tried at once
        if matches!(one.health.condition(), Condition::Out { .. }) {
            one.health.told(Told::Well, now_ms);
        }
    }

    /// An instance is gone, with all that was under way to it.
    pub fn lost(&mut self, instance: Member, now_ms: u64) {
        if let Some(one) = self.instances.get_mut(instance) {
            one.lose(now_ms);
        }
    }

    /// Requests under way to one of them.
    pub fn in_flight(&self, instance: Member) -> u32 {
        self.instances.get(instance).map_or(0, |one| one.in_flight)
    }

    /// What is to be told of one of them.
    pub fn condition(&self, instance: Member) -> Option<Condition> {
        self.instances.get(instance).map(|one| one.health.condition())
    }
}

impl Instance {
    /// A request has failed there. What it has under way may be sent elsewhere at once.
    fn mark(&mut self, now_ms: u64) {
        if self.health.condition() == Condition::Well {
            self.credit = self.in_flight;
        }
        self.health.told(Told::Failed, now_ms);
    }

    fn lose(&mut self, now_ms: u64) {
        self.mark(now_ms);
        self.credit = self.credit.max(self.in_flight);
        self.epoch = self.epoch.wrapping_add(1);
        self.is_doubted = false;
    }

    /// Until when it need not be pinged.
    fn silent_until_ms(&self, idle_ms: u64) -> u64 {
        let patience_ms = match (self.is_doubted, self.in_flight) {
            (true, _) => 0,
            (false, 0) => idle_ms,
            (false, _) => self.timer.ms(),
        };
        self.heard_ms.saturating_add(patience_ms)
    }

    /// Its share, less the longer its answers have waited.
    fn by_delay(&self, share: u16, least_us: u64) -> u16 {
        const GRAIN_US: u64 = 1000;
        let part = u64::from(share) * (least_us + GRAIN_US) / (self.delay_us + GRAIN_US);
        // the part is not more than the whole
        (part as u16).max(1)
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
