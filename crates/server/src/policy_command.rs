//! What `forebay policy` asks of a server, and how it is answered.
//!
//! A question is one text (see [`control_socket`](crate::control_socket)): `policy`, what is asked
//! for, and its arguments. Text that does not fit into a line follows in further lines.
//!
//! | module | what it holds |
//! |---|---|
//! | [`explain`] | which rule decides what about a request, and why |
//! | [`set`](mod@set) | settings of classes and rules, changed while the server runs |

pub mod explain;
pub mod set;

pub use explain::{ExplainError, Question};
pub use set::SetError;

use crate::config::Config;
use crate::control_socket::Answer;
use crate::plan::Plan;

/// Answers what follows `policy `.
pub fn answer(question: &str, config: &Config, plan: &Plan) -> Answer {
    let (command, rest) = question.split_once(' ').unwrap_or((question, ""));
    match command {
        "explain" => {
            let explained = Question::parse(rest).and_then(|it| it.explain(&plan.policy, config));
            match explained {
                Ok(text) => Answer { code: 0, text },
                Err(error) => Answer { code: 1, text: format!("forebay policy: {error}\n") },
            }
        }
        _ => Answer::unknown(&format!("policy {command}")),
    }
}
