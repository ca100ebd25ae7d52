//! Classes: in which order work is done, and what is promised to each.

/// The most classes there can be.
pub const MOST_CLASSES: usize = 16;

/// The [`delay_ms`](Class::delay_ms) of a class that states none.
pub const DELAY_MS: u32 = 50;

/// The name of the class where there are none.
pub(crate) const ONLY_CLASS: &str = "default";

/// Work that is served alike.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// What rules, metrics and people call it. Different from all others, not empty.
    pub name: String,
    /// Its place in the order: 0 is served first. Different from all others.
    pub priority: u8,
    /// The share of worker time that it gets while it has work, whatever goes before it: 0 to 1, and
    /// at most 1 over all classes. With 0 it is served when nothing goes before it.
    pub share: f64,
    /// How long its work should wait at most, for the agent: 1 to 60,000 ms.
    pub delay_ms: u32,
    /// Whether it is the class of whatever no rule classifies. At most one says so; without one it is
    /// the last in order.
    pub default: bool,
    /// After how many of its requests a connection ends, at least 1; `None` for no limit.
    pub requests_per_connection: Option<u32>,
}

impl Class {
    /// A class with a name and a place in the order.
    pub fn new(name: &str, priority: u8) -> Class {
        let name = name.to_owned();
        let (share, delay_ms, default) = (0.0, DELAY_MS, false);
        Class { name, priority, share, delay_ms, default, requests_per_connection: None }
    }
}
