//! Classes: the order in which work is done, and what each class is guaranteed.

/// The most classes there can be.
pub const MOST_CLASSES: usize = 16;

/// The [`delay_ms`](Class::delay_ms) of a class that does not state one.
pub const DELAY_MS: u32 = 50;

/// The name of the only class where none is configured.
pub(crate) const ONLY_CLASS: &str = "default";

/// A class: requests and connections that are served alike.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// The name in rules, metrics and logs. Unique, not empty.
    pub name: String,
    /// The position in the order: 0 is served first. Unique.
    pub priority: u8,
    /// The share of worker time that the class gets while it has work, even if higher classes have
    /// work: 0 to 1, and at most 1 over all classes. With 0 it is served only when no higher class
    /// has work.
    pub share: f64,
    /// The longest time that the class's work should wait, for the agent: 1 to 60,000 ms.
    pub delay_ms: u32,
    /// Whether this is the class of everything that no rule classifies. At most one class is the
    /// default; without one, the last class in order is.
    pub default: bool,
    /// The number of a class's requests after which their connection ends, at least 1; `None` for
    /// no limit.
    pub requests_per_connection: Option<u32>,
}

impl Class {
    /// A class with this name and position in the order.
    pub fn new(name: &str, priority: u8) -> Class {
        let name = name.to_owned();
        let (share, delay_ms, default) = (0.0, DELAY_MS, false);
        Class { name, priority, share, delay_ms, default, requests_per_connection: None }
    }
}
