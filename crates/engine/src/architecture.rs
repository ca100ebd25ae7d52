//! The engines by name, and the properties of each that others must know.

use std::fmt;

/// The names of the engines, as the configuration, metrics and figures spell them. The last one
/// runs in several processes.
const WORDS: &[&str] = &["threads", "pool", "event", "fibers", "pipeline", "isolated"];

/// The names of the engines that run in one process: all but the last.
pub const NAMES: &[&str] = WORDS.split_at(WORDS.len() - 1).0;

/// The loop that performs the steps of the request path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// A new thread per connection, none kept.
    Threads,
    /// A fixed number of threads, each of which accepts.
    Pool,
    /// One loop per core, readiness based.
    #[default]
    Event,
    /// One loop per core, a fiber per active connection.
    Fibers,
    /// Four phases with a list and threads each.
    Pipeline,
    /// The loops of `Event`, in several processes: each of them has one stage of the way to an answer.
    /// The assembly of a server starts them; in one of them it is `Event`.
    Isolated,
}

impl Engine {
    /// The names of all engines.
    pub const WORDS: &'static [&'static str] = WORDS;

    /// The engines that [`Engine::WORDS`] names, in the same order.
    pub const MEANINGS: &'static [Engine] = &[
        Engine::Threads,
        Engine::Pool,
        Engine::Event,
        Engine::Fibers,
        Engine::Pipeline,
        Engine::Isolated,
    ];

    /// The engines that run in one process, in the order of [`NAMES`].
    pub const ALL: &'static [Engine] = Engine::MEANINGS.split_at(NAMES.len()).0;

    /// Whether a connection keeps a thread from its beginning to its end, be it idle, slow or in a
    /// long request. Such an engine has no more connections than threads, and all its threads
    /// accept from one set of sockets. The loops of the other engines turn however long a request
    /// takes.
    pub fn has_thread_each(self) -> bool {
        match self {
            Engine::Threads | Engine::Pool => true,
            Engine::Event | Engine::Fibers | Engine::Pipeline | Engine::Isolated => false,
        }
    }

    /// The engine's name.
    pub fn name(self) -> &'static str {
        let at = Engine::MEANINGS.iter().position(|engine| *engine == self);
        at.map_or("", |at| WORDS[at])
    }

    /// Whether the engine's threads live as long as the engine, and each shows by a heartbeat that
    /// it turns.
    pub fn keeps_threads(self) -> bool {
        self == Engine::Pool
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
