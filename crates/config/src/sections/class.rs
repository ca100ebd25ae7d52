//! The settings of a class: its place in the order of requests, and the wait that is acceptable.

use crate::problems::problem::Wrong;
use crate::table::{Preset, Section, Setting};
use crate::values::optional::Optional;
use crate::values::value::Written;
use crate::{KeepAliveLaw, Percent};
use std::fmt;
use std::time::Duration;

/// The most classes there can be.
pub(crate) const MOST_CLASSES: usize = 16;

/// The class that exists if none is configured.
pub(crate) const ONLY_CLASS: &str = "default";

/// A class of requests.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassConfig {
    /// The program that has added the class; `None` if it is the file's.
    pub owner: Option<Box<str>>,
    /// `name`
    pub name: Option<ClassName>,
    /// `priority`; 0 is first
    pub priority: Optional<u64>,
    /// `share` of worker time
    pub share: Percent,
    /// `delay`
    pub delay: Duration,
    /// `default`
    pub default: bool,
    /// `requests_per_connection`
    pub requests_per_connection: Optional<u64>,
    /// `keep_alive.*`
    pub keep_alive: ClassKeepAlive,
}

/// How long idle connections of a class are kept. The general settings replace what is not set here.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassKeepAlive {
    /// `keep_alive.idle`
    pub idle: Optional<Duration>,
    /// `keep_alive.law`
    pub law: Optional<KeepAliveLaw>,
    /// `keep_alive.threshold`, in percent of load
    pub threshold: Optional<u64>,
    /// `keep_alive.floor`
    pub floor: Optional<Duration>,
}

impl ClassKeepAlive {
    /// Whether any of these is set.
    pub fn is_said(&self) -> bool {
        *self != ClassKeepAlive::default()
    }
}

/// The name of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassName(String);

impl ClassName {
    /// The class name in a text that was read before.
    pub(crate) fn of(text: &str) -> ClassName {
        ClassName(text.to_owned())
    }

    /// The name as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClassName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Written for ClassName {
    const EXPECTED: &'static str = "a name of up to 64 lower-case letters, digits, \"-\" and \"_\"";
    fn read(text: &str) -> Result<ClassName, Wrong> {
        if is_name(text) { Ok(ClassName(text.to_owned())) } else { Err(ClassName::misread(text)) }
    }
    fn text(&self) -> String {
        self.0.clone()
    }
    fn guess(text: &str) -> Option<String> {
        let guess = text.trim().to_lowercase().replace([' ', '.', '/'], "-");
        is_name(&guess).then_some(guess)
    }
}

fn is_name(text: &str) -> bool {
    let is_letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_".contains(&b);
    !text.is_empty() && text.len() <= 64 && text.bytes().all(is_letter)
}

impl Section for ClassConfig {
    const SETTINGS: &'static [Setting<ClassConfig>] = SETTINGS;

    fn blank() -> ClassConfig {
        ClassConfig {
            owner: None,
            name: None,
            priority: Optional::default(),
            share: Percent::default(),
            delay: Duration::ZERO,
            default: false,
            requests_per_connection: Optional::default(),
            keep_alive: ClassKeepAlive::default(),
        }
    }
}

const SETTINGS: &[Setting<ClassConfig>] = &[
    Setting {
        key: "name",
        preset: Preset::Required,
        range: None,
        meaning: "The name of the class in rules, metrics and messages.",
        example: "\"gold\"",
        at: |c| &mut c.name,
    },
    Setting {
        key: "priority",
        preset: Preset::Required,
        range: Some(("0", "255")),
        meaning: "Its place in the order: 0 is served first. No two classes have the same.",
        example: "0",
        at: |c| &mut c.priority,
    },
    Setting {
        key: "share",
        preset: Preset::Value("0%"),
        range: Some(("0%", "100%")),
        meaning: "The part of worker time that the class gets even while classes before it want all. \
                  With 0% it waits for as long as they have work. All shares together are 100% at \
                  most.",
        example: "\"20%\"",
        at: |c| &mut c.share,
    },
    Setting {
        key: "delay",
        preset: Preset::Value("50ms"),
        range: Some(("1ms", "1m")),
        meaning: "How long requests of the class are to wait at most before they are worked on. The \
                  agent refuses the load above that.",
        example: "\"20ms\"",
        at: |c| &mut c.delay,
    },
    Setting {
        key: "default",
        preset: Preset::Value("false"),
        range: None,
        meaning: "Whether it is the class of what no rule gives a class to. Otherwise that is the \
                  last in the order.",
        example: "true",
        at: |c| &mut c.default,
    },
    Setting {
        key: "requests_per_connection",
        preset: Preset::Unset("no limit"),
        range: Some(("1", "1000000000")),
        meaning: "After how many admitted requests of the class their connection ends. The last one \
                  is answered.",
        example: "100",
        at: |c| &mut c.requests_per_connection,
    },
    Setting {
        key: "keep_alive.idle",
        preset: Preset::Unset("timeouts.idle"),
        range: Some(("100ms", "1d")),
        meaning: "How long a connection is kept whose last request was of the class and that asks nothing more.",
        example: "\"5m\"",
        at: |c| &mut c.keep_alive.idle,
    },
    Setting {
        key: "keep_alive.law",
        preset: Preset::Unset("that of [keep_alive]"),
        range: None,
        meaning: "How that time shrinks under load: linear, exponential, or constant for not at all.",
        example: "\"constant\"",
        at: |c| &mut c.keep_alive.law,
    },
    Setting {
        key: "keep_alive.threshold",
        preset: Preset::Unset("that of [keep_alive]"),
        range: Some(("0", "100")),
        meaning: "The load, in percent of limits.connections or of the threads, from which on it shrinks.",
        example: "25",
        at: |c| &mut c.keep_alive.threshold,
    },
    Setting {
        key: "keep_alive.floor",
        preset: Preset::Unset("that of [keep_alive]"),
        range: Some(("0s", "1d")),
        meaning: "What is left of it at full load.",
        example: "\"1s\"",
        at: |c| &mut c.keep_alive.floor,
    },
];
