//! The degree to which the server is overloaded, and the reason.
//!
//! The mechanisms that differentiate service switch on one after the other, "where the earliest and
//! simplest control is triggered at the highest load level" (voigt §3):
//!
//! | level | what is in force from there on | entered when | left when |
//! |---|---|---|---|
//! | normal | nothing | | |
//! | header control | rules for overload; requests are refused after their head | a class is above its target, here or before an application, or work is refused, 50 ms | neither holds for 1 s |
//! | class order | the same; an enforcer that can order connections by class (a listen queue in the kernel) begins here | the load is twice what the machine can do, 250 ms | it is below 1.5 times that for 2 s |
//! | SYN policing | connections are refused, by the rate of their class | loops are late, connections wait too long to be accepted, or refusals take too much, 500 ms | none of these holds, and no connection is refused, for 4 s |
//!
//! In user space work is *ordered* by class on every level; that costs nothing while no work waits.
//!
//! A level is entered only from the one below and left only to the one below, each after the time in the
//! table. The higher the level, the more slowly clients react to it, so the longer it lasts: a client whose
//! SYN was dropped comes back after 1 s, then after 2 s more.

/// How overloaded the server is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// The server is not overloaded.
    #[default]
    Normal,
    /// Requests are refused after their head.
    HeaderControl,
    /// Connections may be ordered by class.
    ClassOrder,
    /// Connections are refused.
    SynPolicing,
}

impl Level {
    /// All levels, from the lowest.
    pub const ALL: [Level; 4] =
        [Level::Normal, Level::HeaderControl, Level::ClassOrder, Level::SynPolicing];

    /// The level's name in metrics and messages.
    pub fn name(self) -> &'static str {
        match self {
            Level::Normal => "normal",
            Level::HeaderControl => "header_control",
            Level::ClassOrder => "class_order",
            Level::SynPolicing => "syn_policing",
        }
    }

    /// Whether rules for overload apply.
    pub fn is_overload(self) -> bool {
        self > Level::Normal
    }

    fn below(self) -> Level {
        Level::ALL[(self as usize).saturating_sub(1)]
    }

    fn above(self) -> Level {
        Level::ALL[(self as usize + 1).min(Level::ALL.len() - 1)]
    }

    /// How long the reason for the level must last before it is entered.
    fn enter_after_ns(self) -> u64 {
        [0, 50, 250, 500][self as usize] * MS
    }

    /// How long the reasons must have been absent before the level is left.
    fn leave_after_ns(self) -> u64 {
        [0, 1_000, 2_000, 4_000][self as usize] * MS
    }
}

/// The reason for which a level was entered, or is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Cause {
    /// There is no overload.
    #[default]
    None,
    /// Requests of the class with this rank wait for longer than its target.
    Delay(u8),
    /// Requests of the class with this rank are refused.
    Refused(u8),
    /// Requests of the class with this rank wait for an application for longer than its target, or are
    /// refused there.
    Applications(u8),
    /// More work is offered than the machine can do.
    Load,
    /// Loops come late to events.
    Lag,
    /// Connections of the class with this rank wait too long in its accept queue in the kernel.
    AcceptQueue(u8),
    /// Refusing takes too much processor time.
    Refusals,
    /// Connections are refused.
    Connections,
}

impl Cause {
    /// The cause's name in metrics and messages.
    pub fn name(self) -> &'static str {
        match self {
            Cause::None => "none",
            Cause::Delay(_) => "delay",
            Cause::Refused(_) => "refused",
            Cause::Applications(_) => "applications",
            Cause::Load => "load",
            Cause::Lag => "lag",
            Cause::AcceptQueue(_) => "accept_queue",
            Cause::Refusals => "refusals",
            Cause::Connections => "connections",
        }
    }

    /// The rank of the class that the cause names.
    pub fn rank(self) -> Option<u8> {
        match self {
            Cause::Delay(rank)
            | Cause::Refused(rank)
            | Cause::Applications(rank)
            | Cause::AcceptQueue(rank) => Some(rank),
            _ => None,
        }
    }
}

/// The measurements by which a level is decided.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pressure {
    /// A class that is above its target, if any.
    pub late: Option<u8>,
    /// A class of which work was refused in the period, if any.
    pub refused: Option<u8>,
    /// A class whose requests wait for an application for longer than its target, or are refused there, if
    /// any.
    pub applications: Option<u8>,
    /// The work offered, as a multiple of what the machine can do.
    pub load: f64,
    /// The lag of the loops, as a multiple of what is bearable.
    pub lag: f64,
    /// The longest wait of connections in the accept queue of a class, as a multiple of what is bearable.
    pub queue: f64,
    /// The class of that queue.
    pub queue_of: u8,
    /// The processor time that refusals take, as a multiple of what is bearable.
    pub refusals: f64,
    /// Whether connections were refused in the period.
    pub is_policing: bool,
}

const MS: u64 = 1_000_000;
/// The load at which class order begins, and the one at which it ends.
const LOADS: (f64, f64) = (2.0, 1.5);
/// The part of what is bearable to which lag, waits in accept queues and refusals must fall before a level is
/// left.
const EASED: f64 = 0.5;

/// The present level, with hysteresis.
#[derive(Clone, Copy, Debug, Default)]
pub struct Levels {
    level: Level,
    cause: Cause,
    /// Since when there has been a reason for the level above.
    wanted_since_ns: Option<u64>,
    /// Since when there has been no reason for this level.
    unneeded_since_ns: Option<u64>,
}

impl Levels {
    /// The present level, and its cause.
    pub fn now(&self) -> (Level, Cause) {
        (self.level, self.cause)
    }

    /// Processes the measurements of the period that ended at `now_ns`; moves at most one level up or down.
    pub fn step(&mut self, now_ns: u64, pressure: &Pressure) -> (Level, Cause) {
        let above = self.level.above();
        let wanted = if above > self.level { pressure.enters(above) } else { None };
        let since_ns = lasts(&mut self.wanted_since_ns, wanted.is_some(), now_ns);
        if let (Some(cause), Some(since_ns)) = (wanted, since_ns)
            && since_ns >= above.enter_after_ns()
        {
            *self = Levels { level: above, cause, ..Levels::default() };
            return self.now();
        }
        let needed = pressure.keeps(self.level);
        if let Some(cause) = needed {
            self.cause = cause;
        }
        let is_unneeded = needed.is_none() && self.level > Level::Normal;
        let since_ns = lasts(&mut self.unneeded_since_ns, is_unneeded, now_ns);
        if since_ns.is_some_and(|since_ns| since_ns >= self.level.leave_after_ns()) {
            let level = self.level.below();
            let cause = pressure.keeps(level).unwrap_or(match level {
                Level::Normal => Cause::None,
                _ => self.cause,
            });
            *self = Levels { level, cause, ..Levels::default() };
        }
        self.now()
    }
}

/// How long a condition has lasted; `None` if it does not hold.
fn lasts(since_ns: &mut Option<u64>, is_so: bool, now_ns: u64) -> Option<u64> {
    *since_ns = is_so.then(|| since_ns.unwrap_or(now_ns));
    since_ns.map(|since_ns| now_ns.saturating_sub(since_ns))
}

impl Pressure {
    /// The reason to enter a level from the one below.
    fn enters(&self, level: Level) -> Option<Cause> {
        match level {
            Level::Normal => None,
            Level::HeaderControl => self.hurts(),
            Level::ClassOrder => (self.load >= LOADS.0).then_some(Cause::Load).or(self.chokes(1.0)),
            Level::SynPolicing => self.chokes(1.0),
        }
    }

    /// The reason to stay on a level.
    fn keeps(&self, level: Level) -> Option<Cause> {
        match level {
            Level::Normal => None,
            Level::HeaderControl => self.hurts().or(self.chokes(EASED)),
            Level::ClassOrder => {
                (self.load >= LOADS.1).then_some(Cause::Load).or(self.chokes(EASED))
            }
            Level::SynPolicing => {
                self.chokes(EASED).or(self.is_policing.then_some(Cause::Connections))
            }
        }
    }

    fn hurts(&self) -> Option<Cause> {
        let here = self.late.map(Cause::Delay).or(self.refused.map(Cause::Refused));
        here.or(self.applications.map(Cause::Applications)).or(self.chokes(1.0))
    }

    fn chokes(&self, at: f64) -> Option<Cause> {
        let lag = (self.lag >= at).then_some(Cause::Lag);
        let queue = (self.queue >= at).then_some(Cause::AcceptQueue(self.queue_of));
        lag.or(queue).or((self.refusals >= at).then_some(Cause::Refusals))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Applies a pressure every 10 ms; returns the level after each step.
    fn levels(state: &mut Levels, now_ns: &mut u64, ms: u64, pressure: Pressure) -> Vec<Level> {
        let step = |_| {
            *now_ns += 10 * MS;
            state.step(*now_ns, &pressure).0
        };
        (0..ms / 10).map(step).collect()
    }

    const QUIET: Pressure = Pressure {
        late: None,
        refused: None,
        applications: None,
        load: 0.5,
        lag: 0.0,
        queue: 0.0,
        queue_of: 0,
        refusals: 0.0,
        is_policing: false,
    };

    #[test]
    fn levels_come_one_after_the_other_and_go_the_same_way() {
        let (mut state, mut now_ns) = (Levels::default(), 0);
        let flood = Pressure { late: Some(2), load: 10.0, refusals: 3.0, ..QUIET };
        let up = levels(&mut state, &mut now_ns, 1_000, flood);
        let first = |level| up.iter().position(|now| *now == level);
        assert_eq!(first(Level::HeaderControl), Some(5));
        assert_eq!(first(Level::ClassOrder), Some(5 + 26));
        assert_eq!(first(Level::SynPolicing), Some(5 + 26 + 51));
        assert_eq!(state.now(), (Level::SynPolicing, Cause::Refusals));
        let down = levels(&mut state, &mut now_ns, 10_000, QUIET);
        let first = |level| down.iter().position(|now| *now == level);
        assert_eq!(first(Level::ClassOrder), Some(400));
        assert_eq!(first(Level::HeaderControl), Some(400 + 201));
        assert_eq!(first(Level::Normal), Some(400 + 201 + 101));
        assert_eq!(state.now(), (Level::Normal, Cause::None));
    }

    #[test]
    fn a_spike_changes_nothing() {
        let (mut state, mut now_ns) = (Levels::default(), 0);
        for _ in 0..20 {
            levels(&mut state, &mut now_ns, 40, Pressure { late: Some(0), ..QUIET });
            levels(&mut state, &mut now_ns, 10, QUIET);
        }
        assert_eq!(state.now().0, Level::Normal);
    }

    #[test]
    fn between_two_thresholds_a_level_stays() {
        let (mut state, mut now_ns) = (Levels::default(), 0);
        let flood = Pressure { refused: Some(1), load: 2.5, ..QUIET };
        levels(&mut state, &mut now_ns, 1_000, flood);
        assert_eq!(state.now(), (Level::ClassOrder, Cause::Load));
        let less = Pressure { load: 1.7, ..flood };
        assert!(
            levels(&mut state, &mut now_ns, 60_000, less)
                .iter()
                .all(|level| *level == Level::ClassOrder)
        );
        levels(&mut state, &mut now_ns, 2_010, Pressure { load: 1.4, ..flood });
        assert_eq!(state.now(), (Level::HeaderControl, Cause::Refused(1)));
    }

    #[test]
    fn while_connections_are_refused_policing_goes_on() {
        let (mut state, mut now_ns) = (Levels::default(), 0);
        levels(&mut state, &mut now_ns, 1_000, Pressure { lag: 2.0, ..QUIET });
        assert_eq!(state.now(), (Level::SynPolicing, Cause::Lag));
        levels(&mut state, &mut now_ns, 60_000, Pressure { is_policing: true, ..QUIET });
        assert_eq!(state.now(), (Level::SynPolicing, Cause::Connections));
    }

    /// A standing queue in the kernel is a reason for every level, each after its time.
    #[test]
    fn an_accept_queue_that_stands_leads_to_the_last_level() {
        let (mut state, mut now_ns) = (Levels::default(), 0);
        let stands = Pressure { queue: 1.5, queue_of: 2, ..QUIET };
        let up = levels(&mut state, &mut now_ns, 1_000, stands);
        let first = |level| up.iter().position(|now| *now == level);
        assert_eq!(first(Level::HeaderControl), Some(5));
        assert_eq!(first(Level::SynPolicing), Some(5 + 26 + 51));
        assert_eq!(state.now(), (Level::SynPolicing, Cause::AcceptQueue(2)));
        levels(&mut state, &mut now_ns, 7_100, QUIET);
        assert_eq!(state.now().0, Level::Normal);
    }

    /// Waiting for an application is a reason for rules about requests, and for no higher level.
    #[test]
    fn applications_never_lead_beyond_the_first_level() {
        let (mut state, mut now_ns) = (Levels::default(), 0);
        let waits = Pressure { applications: Some(1), ..QUIET };
        levels(&mut state, &mut now_ns, 10_000, waits);
        assert_eq!(state.now(), (Level::HeaderControl, Cause::Applications(1)));
        levels(&mut state, &mut now_ns, 1_010, QUIET);
        assert_eq!(state.now(), (Level::Normal, Cause::None));
    }

    fn any_pressure() -> impl Strategy<Value = Pressure> {
        let number = || prop_oneof![Just(f64::NAN), Just(f64::INFINITY), -1.0f64..20.0];
        let class = || prop_oneof![Just(None), (0u8..4).prop_map(Some)];
        let numbers = (number(), number(), number(), number());
        (class(), class(), class(), numbers, 0u8..4, any::<bool>()).prop_map(
            |(late, refused, applications, (load, lag, queue, refusals), queue_of, is_policing)| {
                Pressure {
                    late,
                    refused,
                    applications,
                    load,
                    lag,
                    queue,
                    queue_of,
                    refusals,
                    is_policing,
                }
            },
        )
    }

    proptest! {
        /// However the pressure changes: levels move one at a time, none is entered or left before its time,
        /// and without pressure the level is normal after seven seconds.
        #[test]
        fn no_level_flaps(steps in prop::collection::vec((any_pressure(), 1u64..400), 1..60)) {
            let (mut state, mut now_ns) = (Levels::default(), 0u64);
            let (mut before, mut since_ns) = (Level::Normal, 0);
            for (pressure, times) in steps {
                for _ in 0..times {
                    now_ns += 10 * MS;
                    let (level, cause) = state.step(now_ns, &pressure);
                    prop_assert_eq!(level == Level::Normal, cause == Cause::None);
                    if level == before {
                        continue;
                    }
                    prop_assert_eq!((level as i32 - before as i32).abs(), 1);
                    let least_ns = if level > before { level.enter_after_ns() } else { before.leave_after_ns() };
                    prop_assert!(now_ns - since_ns >= least_ns);
                    (before, since_ns) = (level, now_ns);
                }
            }
            levels(&mut state, &mut now_ns, 7_100, QUIET);
            prop_assert_eq!(state.now(), (Level::Normal, Cause::None));
        }
    }
}
