//! The engines by name, and what their users must know of each.

use std::fmt;

/// The names of the engines that are whole in one process, as the configuration, metrics and figures spell them.
pub const NAMES: &[&str] = &["threads", "pool", "event", "fibers", "pipeline"];

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
    /// All that are whole in one process, in the order of [`NAMES`].
    pub const ALL: &'static [Engine] =
        &[Engine::Threads, Engine::Pool, Engine::Event, Engine::Fibers, Engine::Pipeline];

    /// Whether a connection keeps a thread from begin to end, be it idle, slow or in a long request. So
    /// there are no more connections than threads, and all threads accept from one set of sockets. Where
    /// it does not, loops turn however long a request takes.
    pub fn has_thread_each(self) -> bool {
        match self {
            Engine::Threads | Engine::Pool => true,
            Engine::Event | Engine::Fibers | Engine::Pipeline | Engine::Isolated => false,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        let at = Engine::ALL.iter().position(|engine| *engine == self);
        at.map_or("isolated", |at| NAMES[at])
    }

    /// Whether its threads are there from begin to end, and each shows that it turns.
    pub fn keeps_threads(self) -> bool {
        self == Engine::Pool
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
