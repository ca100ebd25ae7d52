//! The agent that servers use.

use super::connections::{Connections, Strain};
use super::history::History;
use super::rules::{Movable, Rules};
use super::windows::{Constants, Windows};
use super::{Agent, AgentClass, AgentDecision, Observation, part_of};
use crate::level::{Levels, Pressure};
use std::fmt;

/// The settings of [`Feedback`].
#[derive(Clone, Debug, PartialEq)]
pub struct FeedbackSettings {
    /// The classes, by rank; at least one.
    pub classes: Vec<AgentClass>,
    /// The rules whose rates may be moved.
    pub rules: Vec<Movable>,
    /// The constants of the windows.
    pub windows: Constants,
    /// The lag of loops that is bearable, in nanoseconds.
    pub lag_ns: u64,
    /// The share of the loops' time that refusals may take: 0 to 1.
    pub refusing: f64,
}

impl FeedbackSettings {
    /// Settings for these classes, with the constants that the simulation found.
    pub fn new(classes: Vec<AgentClass>) -> FeedbackSettings {
        let windows = Constants::default();
        FeedbackSettings { classes, rules: Vec::new(), windows, lag_ns: 50_000_000, refusing: 0.25 }
    }
}

/// Why settings cannot be used.
#[derive(Clone, Debug, PartialEq)]
pub enum FeedbackSettingsError {
    /// The list of classes is empty.
    NoClass,
    /// A share is not between 0 and 1.
    Share {
        /// The class.
        class: String,
        /// The share.
        share: f64,
    },
    /// The target of a class is 0.
    Target {
        /// The class.
        class: String,
    },
    /// A constant is not above 0, or is above 1.
    Constant {
        /// The name of the constant.
        name: &'static str,
        /// The value of the constant.
        value: f64,
    },
}

impl fmt::Display for FeedbackSettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FeedbackSettingsError::NoClass => write!(f, "an agent needs at least one class"),
            FeedbackSettingsError::Share { class, share } => {
                write!(f, "the share {share} of class {class} must lie between 0 and 1")
            }
            FeedbackSettingsError::Target { class } => {
                write!(f, "the target delay of class {class} must be above 0")
            }
            FeedbackSettingsError::Constant { name, value } => {
                write!(f, "{name} must be above 0 and at most 1, not {value}")
            }
        }
    }
}

impl std::error::Error for FeedbackSettingsError {}

impl FeedbackSettings {
    fn check(&self) -> Result<(), FeedbackSettingsError> {
        if self.classes.is_empty() {
            return Err(FeedbackSettingsError::NoClass);
        }
        for class in &self.classes {
            let name = || class.name.clone();
            if !(0.0..=1.0).contains(&class.share) {
                return Err(FeedbackSettingsError::Share { class: name(), share: class.share });
            }
            if class.target_ns == 0 {
                return Err(FeedbackSettingsError::Target { class: name() });
            }
        }
        let constants = [
            ("windows.growth", self.windows.growth),
            ("windows.cut", self.windows.cut),
            ("refusing", self.refusing),
            // a bearable lag of 0 would make every lag too long
            ("lag_ns", if self.lag_ns > 0 { 1.0 } else { 0.0 }),
        ];
        match constants.into_iter().find(|(_, value)| !(*value > 0.0 && *value <= 1.0)) {
            Some((name, value)) => Err(FeedbackSettingsError::Constant { name, value }),
            None => Ok(()),
        }
    }
}

/// The part of the machine from which refused work counts for the level, smoothed.
const REFUSED: f64 = 0.05;
/// The time over which load, refused work, lag and the time of refusals are smoothed.
const PRESSURE_OVER_NS: f64 = 200e6;

/// The agent that servers use: it moves a window for each class, the rates of rules that may be moved, and
/// connection rates on the highest level.
#[derive(Clone, Debug)]
pub struct Feedback {
    settings: FeedbackSettings,
    windows: Windows,
    connections: Connections,
    rules: Rules,
    levels: Levels,
    history: History,
    decision: AgentDecision,
    last_ns: Option<u64>,
    /// The load, smoothed.
    load: f64,
    lag: f64,
    refusals: f64,
    /// The part of the machine that refused work would have taken, by rank, smoothed.
    refused: Vec<f64>,
    /// How long connections wait in the accept queues of classes, by rank, smoothed, as multiples of what is
    /// bearable.
    queued: Vec<f64>,
}

impl Feedback {
    /// An agent that knows nothing of any class yet: it assumes that a request costs 5 ms until some have
    /// finished.
    ///
    /// # Errors
    /// The settings contradict each other, or are out of range.
    pub fn new(settings: FeedbackSettings) -> Result<Feedback, FeedbackSettingsError> {
        settings.check()?;
        let windows = Windows::new(&settings.classes, settings.windows);
        let classes = settings.classes.len();
        let rules = Rules::new(&settings.classes, settings.rules.clone());
        let decision = AgentDecision {
            limits: windows.limits().to_vec(),
            rates: rules.rates().to_vec(),
            ..AgentDecision::default()
        };
        Ok(Feedback {
            windows,
            connections: Connections::new(&settings.classes),
            rules,
            levels: Levels::default(),
            history: History::default(),
            decision,
            last_ns: None,
            load: 0.0,
            lag: 0.0,
            refusals: 0.0,
            refused: vec![0.0; classes],
            queued: vec![0.0; classes],
            settings,
        })
    }

    /// The same agent for other classes. What it has learned of classes that keep their names stays, and so
    /// do level and history.
    ///
    /// # Errors
    /// The settings contradict each other, or are out of range.
    pub fn replace(&self, settings: FeedbackSettings) -> Result<Feedback, FeedbackSettingsError> {
        let mut next = Feedback::new(settings)?;
        for (ours, class) in next.settings.classes.iter().enumerate() {
            let named = |other: &AgentClass| other.name == class.name;
            let Some(theirs) = self.settings.classes.iter().position(named) else { continue };
            next.connections.carry(ours, &self.connections, theirs);
            next.refused[ours] = self.refused[theirs];
            next.queued[ours] = self.queued[theirs];
            next.windows.carry(ours, &self.windows, theirs);
        }
        next.levels = self.levels;
        (next.decision.level, next.decision.cause) = self.levels.now();
        next.history = self.history.clone();
        next.last_ns = self.last_ns;
        (next.load, next.lag, next.refusals) = (self.load, self.lag, self.refusals);
        Ok(next)
    }

    /// Each decision of the last minute, with its effects.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// The work offered, as a multiple of what the machine can do.
    pub fn load(&self) -> f64 {
        self.load
    }

    /// The values by which the level is decided.
    fn pressure(&mut self, seen: &Observation<'_>, elapsed_ns: f64) -> Pressure {
        let part = part_of(elapsed_ns, PRESSURE_OVER_NS);
        let follow = |value: &mut f64, now: f64| {
            // odd values, such as NaN, must not stay in the average
            let now = if now.is_finite() { now.clamp(0.0, MOST_TIMES) } else { 0.0 };
            *value += (now - *value) * part;
        };
        follow(&mut self.load, self.windows.offered().sum());
        follow(&mut self.lag, seen.lag_ns as f64 / self.settings.lag_ns as f64);
        follow(&mut self.refusals, seen.refusing / self.settings.refusing);
        let mut late = None;
        for (rank, refused) in self.refused.iter_mut().enumerate() {
            follow(refused, self.windows.refused(rank));
            if late.is_none() && self.windows.is_late(rank) {
                late = Some(rank as u8);
            }
        }
        for (rank, queued) in self.queued.iter_mut().enumerate() {
            let bearable_ns = self.settings.classes[rank].target_ns.max(self.settings.lag_ns);
            follow(queued, seen.class(rank).queued_ns as f64 / bearable_ns as f64);
        }
        let queues = self.queued.iter().copied().zip(0u8..);
        let (queue, queue_of) =
            queues.fold((0.0, 0), |most, one| if one.0 > most.0 { one } else { most });
        let refused = self.refused.iter().position(|refused| *refused > REFUSED);
        Pressure {
            late,
            refused: refused.map(|rank| rank as u8),
            applications: seen.applications,
            load: self.load,
            lag: self.lag,
            queue,
            queue_of,
            refusals: self.refusals,
            is_policing: seen.classes.iter().any(|class| class.connections_refused > 0),
        }
    }
}

/// The largest value of a pressure.
const MOST_TIMES: f64 = 1000.0;
/// The assumed length of the first period.
const FIRST_NS: f64 = 10e6;

impl Agent for Feedback {
    fn tick(&mut self, seen: &Observation<'_>) -> &AgentDecision {
        let since_ns = self.last_ns.map(|last_ns| seen.now_ns.saturating_sub(last_ns) as f64);
        let elapsed_ns = since_ns.unwrap_or(FIRST_NS).clamp(1.0, 1e9);
        self.last_ns = Some(seen.now_ns);
        self.windows.tick(elapsed_ns, seen);
        let pressure = self.pressure(seen, elapsed_ns);
        let (level, cause) = self.levels.step(seen.now_ns, &pressure);
        let strain = Strain {
            lag: pressure.lag,
            refusals: pressure.refusals,
            first_queued: self.queued.iter().position(|queued| *queued > 1.0),
        };
        let is_policing = level == crate::level::Level::SynPolicing;
        self.connections.tick(elapsed_ns, seen, strain, is_policing);
        let excess = |rank| self.windows.excess_of(rank);
        self.rules.tick(seen, excess, level.is_overload());
        (self.decision.level, self.decision.cause) = (level, cause);
        self.decision.rates.copy_from_slice(self.rules.rates());
        self.decision.limits.copy_from_slice(self.windows.limits());
        for (limits, rate) in self.decision.limits.iter_mut().zip(self.connections.rates()) {
            limits.connections_per_s = *rate;
        }
        self.history.add(seen, self.load, &self.decision);
        &self.decision
    }
}
