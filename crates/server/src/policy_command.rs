//! The questions of `forebay policy` to a server, and their answers.
//!
//! A question is one text (see [`control_socket`](crate::control_socket)): `policy`, the name of
//! the question, and its arguments. Arguments that do not fit into a line follow in further lines.
//!
//! | module | what it holds |
//! |---|---|
//! | [`explain`] | which rule decides what about a request, and why |
//! | [`show`](mod@show) | what is in force |
//! | [`agents`] | rules and classes of external programs |
//! | [`counts`] | the counts of each class, and what happens per second |
//! | [`bans`](mod@bans) | clients that an operator bans for a time |
//! | [`history`](mod@history) | what the agent has decided, and what followed |
//! | [`set`](mod@set) | settings of classes and rules, changed while the server runs |
//! | `text_table` | tables for people |

pub mod agents;
pub mod bans;
pub mod counts;
pub mod explain;
pub mod history;
pub mod set;
pub mod show;
mod text_table;

pub use counts::CountsReport;
pub use explain::{ExplainError, Question};
pub use set::SetError;
pub use show::Which;

use crate::agent::AgentLoop;
use crate::command::CommandAnswer;
use crate::firewall::Firewall;
use forebay_config::Config;
use forebay_handler::policy::InForce;
use forebay_metrics::Totals;
use forebay_sys::clock;

/// The parts of a server that answers are made from.
pub struct CommandContext<'k> {
    /// The configuration in force.
    pub config: &'k Config,
    /// The classes and rules in force.
    pub in_force: &'k InForce,
    /// The counts of the server.
    pub totals: &'k Totals,
    /// The agent loop.
    pub agent_loop: &'k AgentLoop,
    /// The machine's firewall, if it drops clients for this server.
    pub firewall: Option<&'k Firewall>,
    /// The number of connections, and their limits.
    pub bounds: ConnectionBounds,
}

/// The number of connections, and their limits.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionBounds {
    /// The number of open connections.
    pub open: usize,
    /// The limit for all clients together.
    pub connections: usize,
    /// The limit for one client.
    pub connections_per_client: usize,
}

/// Answers a question, given without `policy `.
pub fn answer(question: &str, known: &CommandContext<'_>) -> CommandAnswer {
    let CommandContext { config, in_force, totals, agent_loop, .. } = known;
    let good = |text| CommandAnswer { code: 0, text };
    let unknown = || CommandAnswer::unknown(&format!("policy {question}"));
    match question.split_once(' ').unwrap_or((question, "")) {
        ("show", which) => {
            let shown = |which| good(show::show(known, &which));
            Which::parse(which).map_or_else(unknown, shown)
        }
        ("counts", "") => good(CountsReport::now(in_force, totals).to_string()),
        ("stats", "") => good(counts::stats(in_force, totals)),
        ("history", "") => {
            let now_ns = clock::monotonic_ns();
            good(history::history(in_force, &agent_loop.records(), now_ns))
        }
        ("explain", rest) => {
            let explained =
                Question::parse(rest).and_then(|it| it.explain(&in_force.policy, config));
            let bad = |error| CommandAnswer { code: 1, text: format!("forebay policy: {error}\n") };
            explained.map_or_else(bad, good)
        }
        _ => unknown(),
    }
}
