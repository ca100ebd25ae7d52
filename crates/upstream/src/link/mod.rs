//! The link to the next stage as a state machine: what becomes of requests while instances crash, hang and
//! come back.
//!
//! Inputs are requests, events of their attempts, and the time. Outputs are where to send a copy,
//! which instance to ping, and what to answer the client. The link has no socket and no clock, and no
//! byte of a request: the exchange keeps the copy until the request is acknowledged *and* answered,
//! and reports to the link what has come. All exchanges with the same stage share one link.
//!
//! ```text
//!          begin                Written          Acknowledged          Head            End
//!  ─────► unwritten ──────────► written ───────► acknowledged ──────► answering ─────► over
//!             │ Refused            │ Time, Broken      │ lost, Broken      │ lost, Broken
//!             ▼                    ▼                   ▼                   ▼
//!         another one       another one, if it may run twice        another one goes on with the
//!                           else 502: it is unknown                 rest, if that is possible; else
//!                                                                   the client's connection is reset
//! ```
//!
//! While no other instance may be asked, the request rests. It is sent when one may be asked, or
//! fails after a while.
//!
//! | what | how |
//! |---|---|
//! | timer | for acknowledgements, per instance, as in TCP (RFC 6298), between a floor and a ceiling. Where no other could follow, only the ceiling counts |
//! | ping | an instance with requests that is silent for one timer is pinged; without an answer within another it is lost. Idle ones are pinged less often |
//! | feedback | each answer may say how long its request has waited; this fades by half each 250 ms |
//! | health | a failed request puts the instance out for a while; then one is a trial, and each failed trial doubles the time |
//! | silence | an instance that answers nothing in time is tried with pings, not with requests |
//! | hurry | a request that may run twice goes to another instance when its acknowledgement is late; once, within the budget, not in overload |
//! | panic | where no instance may be asked, all are |
//! | attempts | written copies are counted; an instance that takes none costs only time |
//! | rest | after all instances have refused it, a request rests, each time twice as long up to the timer's floor |
//! | backups | the last instances, if configured so, are asked while none of the others may be |
//! | budget | a loss admits at once what the instance had under way; other copies are limited to a ratio of the requests, and a few; those beyond it rest |
//! | quarantine | a request that was under way when two processes ended by themselves is not sent again |
//!
//! | module | what it holds |
//! |---|---|
//! | `event` | what an exchange reports about an attempt, and what the link answers |
//! | `flight` | the descriptor of one request under way, beside its copy |
//! | `hurry` | how long a request waits for its instance, and when it goes to another one |
//! | `instance`, `timer` | what is known of one instance, and how long an acknowledgement may take |
//! | `pings` | whether silent instances live |
//! | [`ends`] | beside the link: how processes have ended, by the file in which their supervisor says so |
//! | `settings` | the settings of a link |

pub mod ends;
mod event;
mod flight;
mod hurry;
mod instance;
mod pings;
mod settings;
#[cfg(test)]
mod tests;
mod timer;

pub use event::{LinkAction, LinkEvent, LinkFailure};
pub use flight::{Flight, MOST_COPIES, ResumePoint, WholeAnswer};
pub use pings::Ping;
pub use settings::{InstanceChoice, LinkSettings};

use crate::group::MemberIndex;
use crate::group::balance::{Balancer, Candidate, WHOLE};
use crate::group::health::{Health, HealthSign, UpstreamCondition};
use crate::group::retry::Budget;
use flight::{FlightState, Suspect};
use instance::{AnswerDelay, Instance, InstanceEnd, MOST_ENDS, Pinged};
use std::collections::VecDeque;
use std::time::Duration;
use timer::InstanceTimer;

/// The number of processes that may end by themselves while a request ran. After that it is not sent
/// again.
const QUARANTINE: u8 = 2;

/// The first rest of a request that no instance takes, in milliseconds.
const FIRST_REST_MS: u32 = 10;

/// How often a request that waits for a report on an end looks, in milliseconds.
const LOOK_MS: u32 = 5;

/// How long the supervisor may take to report an end. After that, the process has not ended.
const TOLD_MS: u64 = 1000;

/// The largest number of instances of one stage.
pub const MOST_INSTANCES: usize = 64;

/// The link to one stage.
#[derive(Clone, Debug)]
pub struct Link {
    settings: LinkSettings,
    instances: Vec<Instance>,
    balancer: Balancer,
    budget: Budget,
    candidates: Vec<Candidate>,
    counts: LinkCounts,
}

/// What a link has counted since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// How often an instance was suspected to hang: it answered neither a request nor a ping in time.
    pub suspected: u64,
    /// Requests that went to another instance because their acknowledgement took longer than usual.
    pub hurried: u64,
}

impl Link {
    /// A link to instances with these [keys](crate::group::balance::hash). `seed` is any number.
    pub fn new(settings: LinkSettings, keys: Vec<u64>, seed: u64, now_ms: u64) -> Link {
        let instances = keys.iter().take(MOST_INSTANCES);
        let instances = instances.map(|_| Instance {
            health: Health::new(1, settings.back_off, Duration::ZERO, None, now_ms),
            in_flight: 0,
            timer: InstanceTimer::new(milliseconds(settings.floor), milliseconds(settings.ceiling)),
            epoch: 0,
            heard_ms: now_ms,
            ping: Pinged::No,
            pings: 0,
            // so that it is pinged at once: the first answer shows how long one takes
            is_doubted: true,
            losses: 0,
            ends: VecDeque::new(),
            is_silent: false,
            delay: AnswerDelay::default(),
        });
        let instances: Vec<_> = instances.collect();
        let keys = keys.into_iter().take(instances.len()).collect();
        Link {
            balancer: Balancer::new(settings.choice.balance(), keys, seed),
            budget: Budget::new(settings.permille, now_ms),
            candidates: Vec::with_capacity(instances.len()),
            counts: LinkCounts::default(),
            instances,
            settings,
        }
    }

    /// The counts so far.
    pub fn counts(&self) -> LinkCounts {
        self.counts
    }

    /// Begins a request at an [instance](Flight::instance). `repeats` says that it may run twice; if
    /// not, `may_wait` says that its end may be [withheld](LinkSettings::withholds). `may_hurry` says
    /// that the request may go to another instance when its acknowledgement takes longer than usual;
    /// that costs work for which an overloaded server has no room. `key` is what the request is
    /// hashed by. Returns `None` if the stage has no instance.
    pub fn begin(
        &mut self,
        repeats: bool,
        may_wait: bool,
        may_hurry: bool,
        key: u64,
        now_ms: u64,
    ) -> Option<Flight> {
        self.budget.deposit();
        let instance = self.pick(key, |_| false, now_ms)?;
        let mut flight = Flight {
            key,
            repeats,
            withholds: may_wait && !repeats && self.settings.withholds,
            is_withheld: false,
            instance,
            epoch: 0,
            losses: 0,
            tried: 0,
            attempt: 0,
            copies: 0,
            ended: 0,
            suspects: Vec::new(),
            state: FlightState::Unwritten,
            has_head: false,
            is_admitted: true,
            refused_ms: None,
            rest_ms: 0,
            patience_ms: 0,
            may_hurry: may_hurry && repeats && self.settings.acknowledges,
            heard_ms: now_ms,
            written_ms: now_ms,
            body_bytes: 0,
            whole: None,
            is_gone: false,
        };
        self.enter(&mut flight, instance, now_ms);
        Some(flight)
    }

    fn enter(&mut self, flight: &mut Flight, instance: MemberIndex, now_ms: u64) {
        let one = &mut self.instances[instance];
        one.health.begin(now_ms);
        if one.in_flight == 0 {
            one.heard_ms = now_ms;
        }
        one.in_flight += 1;
        flight.instance = instance;
        (flight.epoch, flight.losses) = (one.epoch, one.losses);
        flight.attempt = flight.attempt.wrapping_add(1);
        flight.heard_ms = now_ms;
        flight.patience_ms = u32::try_from(one.timer.ms()).unwrap_or(u32::MAX);
        flight.is_withheld = flight.withholds;
        flight.note_tried();
    }

    /// Takes an event of attempt number `attempt`, and returns what must be done now. Late events of
    /// an attempt that was given up are ignored.
    pub fn event(
        &mut self,
        flight: &mut Flight,
        attempt: u32,
        event: &LinkEvent<'_>,
        now_ms: u64,
    ) -> LinkAction {
        if attempt != flight.attempt || flight.state == FlightState::Over {
            return LinkAction::Wait;
        }
        if flight.state == FlightState::Resting {
            return match event {
                LinkEvent::Time if now_ms >= self.deadline_ms(flight) => self.next(flight, now_ms),
                LinkEvent::Late => give_up(flight, LinkFailure::Exhausted),
                _ => LinkAction::Wait,
            };
        }
        match event {
            LinkEvent::Written => {
                if flight.state == FlightState::Unwritten {
                    // where instances do not acknowledge, a request counts as acknowledged once it is written
                    flight.state = match self.settings.acknowledges {
                        true => FlightState::Written,
                        false => FlightState::Acknowledged,
                    };
                    (flight.written_ms, flight.heard_ms) = (now_ms, now_ms);
                    (flight.refused_ms, flight.rest_ms) = (None, 0);
                    flight.copies = flight.copies.saturating_add(1);
                }
                LinkAction::Wait
            }
            LinkEvent::Acknowledged => {
                self.heard(flight, true, now_ms);
                if matches!(flight.state, FlightState::Unwritten | FlightState::Written) {
                    flight.state = FlightState::Acknowledged;
                }
                // the end of the request is sent now: from here on it may run
                flight.is_withheld = false;
                LinkAction::Wait
            }
            LinkEvent::Head { whole, delay_ms } => {
                if flight.has_head {
                    return LinkAction::Wait;
                }
                // without an acknowledgement before it, the head is the timer's sample
                let is_first = flight.state != FlightState::Acknowledged;
                self.heard(flight, is_first, now_ms);
                if let Some(delay_ms) = delay_ms {
                    self.instances[flight.instance].delay.tell(*delay_ms, now_ms);
                }
                flight.whole.clone_from(whole);
                (flight.state, flight.has_head) = (FlightState::Answering, true);
                LinkAction::Wait
            }
            LinkEvent::Part(part) => {
                if !flight.has_head || flight.state == FlightState::Answering {
                    return LinkAction::Wait;
                }
                let is_first = flight.state != FlightState::Acknowledged;
                self.heard(flight, is_first, now_ms);
                // the client has the first bytes already: the rest must belong to the same body, and
                // follow exactly
                let is_rest = part.is_some_and(|part| {
                    flight.whole.as_ref().is_some_and(|whole| {
                        part.from == flight.body_bytes
                            && part.total_bytes == whole.total_bytes
                            && *part.tag == *whole.tag
                    })
                });
                if !is_rest {
                    self.leave(flight, HealthSign::Well, now_ms);
                    flight.state = FlightState::Over;
                    return LinkAction::Break;
                }
                flight.state = FlightState::Answering;
                LinkAction::Wait
            }
            LinkEvent::Body(bytes) => {
                self.heard(flight, false, now_ms);
                flight.body_bytes += bytes;
                LinkAction::Wait
            }
            LinkEvent::End => {
                self.heard(flight, false, now_ms);
                self.leave(flight, HealthSign::Well, now_ms);
                flight.state = FlightState::Over;
                LinkAction::Wait
            }
            LinkEvent::Refused => self.again(flight, HealthSign::Failed, true, now_ms),
            LinkEvent::Returned => {
                // as if nothing had been written: the copy has added to no instance's load
                flight.state = FlightState::Unwritten;
                self.again(flight, HealthSign::Nothing, true, now_ms)
            }
            LinkEvent::Stale => {
                let is_certain = flight.has_not_run();
                self.again(flight, HealthSign::Nothing, is_certain, now_ms)
            }
            LinkEvent::Broken { has_ended } => {
                if *has_ended && flight.state != FlightState::Unwritten {
                    self.suspect(flight, now_ms);
                }
                let is_certain = flight.has_not_run();
                self.again(flight, HealthSign::Failed, is_certain, now_ms)
            }
            LinkEvent::Late => {
                let is_certain = flight.has_not_run();
                self.again(flight, HealthSign::Failed, is_certain, now_ms)
            }
            LinkEvent::Time => self.time(flight, now_ms),
        }
    }

    /// Ends a request whose client has left.
    pub fn cancel(&mut self, flight: &mut Flight, now_ms: u64) {
        if !matches!(flight.state, FlightState::Over | FlightState::Resting) {
            let told = match flight.state {
                FlightState::Unwritten | FlightState::Written => HealthSign::Nothing,
                _ => HealthSign::Well,
            };
            self.leave(flight, told, now_ms);
        }
        flight.state = FlightState::Over;
    }

    /// When [`LinkEvent::Time`] is due, if nothing else happens before.
    pub fn deadline_ms(&self, flight: &Flight) -> u64 {
        match flight.state {
            FlightState::Over => u64::MAX,
            FlightState::Resting => flight.heard_ms.saturating_add(u64::from(flight.rest_ms)),
            _ => flight.heard_ms.saturating_add(self.patience_ms(flight)),
        }
    }

    /// Notes that something has come from the request's instance.
    fn heard(&mut self, flight: &mut Flight, is_timed: bool, now_ms: u64) {
        let one = &mut self.instances[flight.instance];
        let is_of_now = one.epoch == flight.epoch;
        if is_timed {
            let was_lost = one.losses != flight.losses;
            one.sample(now_ms.saturating_sub(flight.written_ms), !was_lost);
        }
        // events of requests from before a loss show nothing of the process that is there now
        if is_of_now {
            one.heard_ms = now_ms;
            (one.is_doubted, one.is_silent) = (false, false);
        }
        flight.heard_ms = now_ms;
    }

    fn time(&mut self, flight: &mut Flight, now_ms: u64) -> LinkAction {
        if now_ms < self.deadline_ms(flight) {
            return LinkAction::Wait;
        }
        let one = &mut self.instances[flight.instance];
        if one.epoch != flight.epoch {
            // if its process had ended, the connection would have ended, too: the instance was only
            // late
            let is_back = self.settings.acknowledges
                && one.health.condition() == UpstreamCondition::Well
                && matches!(flight.state, FlightState::Acknowledged | FlightState::Answering);
            if flight.may_be_followed() || !is_back {
                let is_certain = flight.has_not_run();
                return self.again(flight, HealthSign::Nothing, is_certain, now_ms);
            }
            flight.epoch = one.epoch;
        }
        match flight.state {
            FlightState::Unwritten | FlightState::Written
                if flight.may_hurry
                    && now_ms < flight.heard_ms.saturating_add(flight.patience_ms.into()) =>
            {
                self.hurry(flight, now_ms)
            }
            FlightState::Unwritten | FlightState::Written => {
                self.counts.suspected += u64::from(!one.is_silent);
                (one.is_doubted, one.is_silent) = (true, true);
                one.timer.back_off();
                let is_certain = flight.has_not_run();
                self.again(flight, HealthSign::Failed, is_certain, now_ms)
            }
            // pings decide whether the instance lives; the request looks again a little later
            FlightState::Acknowledged | FlightState::Answering => {
                flight.heard_ms = now_ms;
                LinkAction::Wait
            }
            FlightState::Resting | FlightState::Over => LinkAction::Wait,
        }
    }

    /// Ends an attempt without an answer, and begins another, if that is allowed.
    fn again(
        &mut self,
        flight: &mut Flight,
        told: HealthSign,
        is_certain: bool,
        now_ms: u64,
    ) -> LinkAction {
        // a request that was never written has added to no instance's load, and is admitted already
        let is_refused = flight.state == FlightState::Unwritten;
        self.leave(flight, told, now_ms);
        let was_lost = self.instances[flight.instance].losses != flight.losses;
        flight.is_admitted = is_refused || was_lost;
        if !flight.may_follow(is_certain) {
            return give_up(flight, LinkFailure::Unknown);
        }
        self.next(flight, now_ms)
    }

    /// Begins another attempt for a request that no instance has, or lets it rest until one may be
    /// asked.
    fn next(&mut self, flight: &mut Flight, now_ms: u64) -> LinkAction {
        let from = flight.instance;
        self.judge(flight, now_ms);
        if flight.ended >= QUARANTINE {
            return give_up(flight, LinkFailure::Quarantined);
        }
        let since_ms = *flight.refused_ms.get_or_insert(now_ms);
        if flight.copies >= self.settings.copies.min(MOST_COPIES)
            || now_ms.saturating_sub(since_ms) >= milliseconds(self.settings.patience)
        {
            return give_up(flight, LinkFailure::Exhausted);
        }
        if usize::from(flight.ended) + flight.suspects.len() >= usize::from(QUARANTINE) {
            return rest(flight, LOOK_MS, now_ms);
        }
        if !flight.is_admitted && !self.budget.withdraw(now_ms) {
            return self.rest(flight, now_ms);
        }
        flight.is_admitted = true;
        let was_refused = matches!(flight.state, FlightState::Unwritten | FlightState::Resting);
        let other = self.pick(flight.key, |member| flight.has_tried(member), now_ms);
        let Some(instance) = other else { return give_up(flight, LinkFailure::Exhausted) };
        if flight.has_tried(instance) {
            let may_be_asked = self.instances[instance].share(now_ms) > 0;
            if was_refused && !may_be_asked {
                return self.rest(flight, now_ms);
            }
            flight.tried = 1 << (from % 64);
        }
        self.enter(flight, instance, now_ms);
        (flight.written_ms, flight.state) = (now_ms, FlightState::Unwritten);
        match flight.has_head {
            true => LinkAction::Continue(instance, flight.body_bytes),
            false => LinkAction::Send(instance),
        }
    }

    /// Lets a request rest, twice as long as the last time.
    fn rest(&self, flight: &mut Flight, now_ms: u64) -> LinkAction {
        let most_ms = u32::try_from(self.settings.floor.as_millis()).unwrap_or(u32::MAX);
        let rest_ms = flight.rest_ms.saturating_mul(2);
        let rest_ms = rest_ms.clamp(FIRST_REST_MS, most_ms.max(FIRST_REST_MS));
        // after the rest all instances may be tried once more
        flight.tried = 0;
        rest(flight, rest_ms, now_ms)
    }

    /// Notes that the connection has ended with a request on it: perhaps the process has ended, with
    /// all its requests.
    fn suspect(&mut self, flight: &mut Flight, now_ms: u64) {
        let one = &mut self.instances[flight.instance];
        if one.losses == flight.losses {
            one.losses = one.losses.wrapping_add(1);
        }
        // no supervisor reports how processes of other machines end
        match self.settings.is_watched && flight.instance < self.first_backup() {
            true => flight.suspects.push(Suspect {
                instance: flight.instance,
                since_ms: flight.written_ms,
                until_ms: now_ms.saturating_add(TOLD_MS),
            }),
            false => flight.ended = flight.ended.saturating_add(1),
        }
    }

    /// Finds out what has become of the processes whose connections have ended.
    fn judge(&self, flight: &mut Flight, now_ms: u64) {
        let Flight { suspects, ended, .. } = flight;
        suspects.retain(|suspect| {
            let mut ends = self.instances[suspect.instance].ends.iter();
            let end = ends.find(|end| end.at_ms >= suspect.since_ms);
            *ended = ended.saturating_add(u8::from(end.is_some_and(|end| end.was_by_itself)));
            end.is_none() && now_ms < suspect.until_ms
        });
    }

    /// Notes that the process of an instance has ended, as its supervisor has seen: by itself, or
    /// stopped on purpose.
    pub fn ended(&mut self, instance: MemberIndex, was_by_itself: bool, at_ms: u64) {
        let Some(one) = self.instances.get_mut(instance) else { return };
        if one.ends.len() == MOST_ENDS {
            one.ends.pop_front();
        }
        one.ends.push_back(InstanceEnd { at_ms, was_by_itself });
    }

    /// Ends an attempt: it counts for its instance no more.
    fn leave(&mut self, flight: &Flight, told: HealthSign, now_ms: u64) {
        let one = &mut self.instances[flight.instance];
        if told == HealthSign::Failed {
            one.mark(now_ms);
        } else if one.epoch == flight.epoch {
            one.health.told(told, now_ms);
        }
        one.in_flight = one.in_flight.saturating_sub(1);
    }

    /// Picks an instance: one that was not tried and may be asked, backups last; then any that may be
    /// asked; then any.
    fn pick(
        &mut self,
        key: u64,
        tried: impl Fn(MemberIndex) -> bool,
        now_ms: u64,
    ) -> Option<MemberIndex> {
        let is_any = |_: MemberIndex| false;
        let first_backup = self.first_backup();
        let is_no_first = |member: MemberIndex| tried(member) || member >= first_backup;
        let found = match self.settings.backups {
            0 => None,
            _ => self.pick_of(key, &is_no_first, false, now_ms),
        };
        let found = found.or_else(|| self.pick_of(key, &tried, false, now_ms));
        let found = found.or_else(|| self.pick_of(key, &is_any, false, now_ms));
        let found = found.or_else(|| self.pick_of(key, &tried, true, now_ms));
        found.or_else(|| self.pick_of(key, &is_any, true, now_ms))
    }

    /// The first of the instances that are backups.
    pub(super) fn first_backup(&self) -> MemberIndex {
        self.instances.len().saturating_sub(self.settings.backups)
    }

    fn pick_of(
        &mut self,
        key: u64,
        tried: &dyn Fn(MemberIndex) -> bool,
        panics: bool,
        now_ms: u64,
    ) -> Option<MemberIndex> {
        let Link { settings, instances, balancer, candidates, .. } = self;
        // the least delay among the instances that may be asked
        let may =
            |(at, one): &(MemberIndex, &Instance)| !tried(*at) && (panics || one.share(now_ms) > 0);
        let asked = instances.iter().enumerate().filter(may);
        let least_us = asked.map(|(_, one)| one.delay.us(now_ms)).min().unwrap_or(0);
        candidates.clear();
        candidates.extend(instances.iter().enumerate().map(|(at, one)| {
            let share = match (tried(at), panics) {
                (true, _) => 0,
                (false, true) => WHOLE,
                (false, false) => one.share(now_ms),
            };
            let share = match settings.choice {
                InstanceChoice::Feedback if share > 0 => one.by_delay(share, least_us, now_ms),
                _ => share,
            };
            Candidate { in_flight: one.in_flight, share, weight: 1 }
        }));
        // the balancer must not run in vain: that would change which instance is next
        if candidates.iter().all(|one| one.share == 0) {
            return None;
        }
        balancer.pick(candidates, key)
    }

    /// Notes that an instance is gone, with all that was under way to it.
    pub fn lost(&mut self, instance: MemberIndex, now_ms: u64) {
        if let Some(one) = self.instances.get_mut(instance) {
            one.lose(now_ms);
        }
    }

    /// The number of requests under way to an instance.
    pub fn in_flight(&self, instance: MemberIndex) -> u32 {
        self.instances.get(instance).map_or(0, |one| one.in_flight)
    }

    /// The condition of an instance, for reports.
    pub fn condition(&self, instance: MemberIndex) -> Option<UpstreamCondition> {
        self.instances.get(instance).map(|one| one.health.condition())
    }
}

/// Ends a request without an answer, or without the rest of one.
fn give_up(flight: &mut Flight, reason: LinkFailure) -> LinkAction {
    flight.state = FlightState::Over;
    if flight.has_head { LinkAction::Break } else { LinkAction::Fail(reason) }
}

/// Lets a request rest for this long.
fn rest(flight: &mut Flight, rest_ms: u32, now_ms: u64) -> LinkAction {
    flight.state = FlightState::Resting;
    // events of the attempt before are ignored
    flight.attempt = flight.attempt.wrapping_add(1);
    (flight.heard_ms, flight.rest_ms) = (now_ms, rest_ms);
    LinkAction::Rest
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
