//! Options: one set for every experiment, and the axes and settings of each.

use std::path::PathBuf;
use std::time::Duration;

/// An axis that is varied, and whose values can be chosen.
#[derive(Debug)]
pub struct Axis {
    /// The column that holds the value.
    pub key: &'static str,
    /// The option that chooses values.
    pub option: &'static str,
    /// An older name that still works.
    pub alias: Option<&'static str>,
    /// The help text.
    pub help: &'static str,
    /// The values that there are; empty if any word will do.
    pub known: fn() -> Vec<&'static str>,
    /// The type of its values.
    pub kind: Kind,
    /// The values that are measured by default, separated by commas; empty for all.
    pub default: &'static str,
    /// The same with `--quick`.
    pub quick: &'static str,
    /// Makes the values from the other options, if none are chosen.
    pub made: Option<fn(&Options) -> Vec<String>>,
    /// A flag that chooses other values: its name, those values, and its purpose.
    pub instead: Option<(&'static str, &'static str, &'static str)>,
}

/// Any word will do.
pub fn any() -> Vec<&'static str> {
    Vec::new()
}

impl Axis {
    /// An axis with only the fields that every axis has.
    pub const fn new(
        key: &'static str,
        option: &'static str,
        help: &'static str,
        known: fn() -> Vec<&'static str>,
        default: &'static str,
    ) -> Axis {
        Axis {
            key,
            option,
            alias: None,
            help,
            known,
            kind: Kind::Text,
            default,
            quick: default,
            made: None,
            instead: None,
        }
    }

    /// The values in a text; all if it is empty.
    pub fn values(&self, text: &str) -> Vec<String> {
        match text {
            "" => (self.known)().into_iter().map(str::to_owned).collect(),
            text => text.split(',').map(str::to_owned).collect(),
        }
    }
}

/// The values that a setting takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number.
    Number,
    /// A duration, such as 1.5s or 20ms; seconds without a unit.
    Time,
    /// A word.
    Text,
    /// No value: the flag is given or not.
    Flag,
}

/// A further setting of an experiment.
#[derive(Debug)]
pub struct Setting {
    /// The option.
    pub name: &'static str,
    /// The type of its value.
    pub kind: Kind,
    /// The default.
    pub default: &'static str,
    /// The meaning.
    pub help: &'static str,
}

/// The options that were given.
#[derive(Clone, Debug)]
pub struct Options {
    /// Measurements of each server at each point.
    pub rounds: u32,
    /// Length of one measurement.
    pub measured: Duration,
    /// The servers.
    pub servers: Vec<String>,
    /// The values of each axis of the sweep.
    pub sweep: Vec<Vec<String>>,
    /// The core of servers.
    pub server_core: usize,
    /// The core of the load.
    pub client_core: usize,
    /// Forebay's binary.
    pub program: PathBuf,
    /// Another build of Forebay.
    pub before: Option<PathBuf>,
    /// Lines for every configuration of Forebay.
    pub set: String,
    /// Whether there are fewer of everything.
    pub quick: bool,
    /// The folder for results; a new one if none is given.
    pub out: Option<PathBuf>,
    /// Whether nothing is measured, only listed.
    pub list: bool,
    /// Further settings, as they were written.
    pub settings: Vec<(&'static str, String)>,
}

/// A duration; seconds without a unit.
///
/// # Errors
/// A text that says what was expected.
pub fn a_time(text: &str) -> Result<Duration, String> {
    let is_bare = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let text = if is_bare { format!("{text}s") } else { text.to_owned() };
    forebay_load::units::duration(&text).map_err(|error| error.to_string())
}

impl Options {
    /// A setting as it was written; empty if the experiment has none of that name.
    pub fn text(&self, name: &str) -> &str {
        self.settings.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value)
    }

    /// A setting that is a number; 0 if the experiment has none of that name.
    pub fn number(&self, name: &str) -> f64 {
        self.text(name).parse().unwrap_or_default()
    }

    /// A setting that is a duration.
    pub fn time(&self, name: &str) -> Duration {
        a_time(self.text(name)).unwrap_or_default()
    }

    /// Whether a flag was given.
    pub fn has(&self, name: &str) -> bool {
        self.text(name) == "true"
    }
}
