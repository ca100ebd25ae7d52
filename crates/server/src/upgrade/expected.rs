//! An upgrade that the service manager is to carry out: an operator has told the server to expect one, has the service
//! manager reload the service, and the command of that reload starts the new server, where the service is.
//!
//! The server keeps what the two commands have to know of one another: that an upgrade is expected, and for how
//! long; and why there was none.

use crate::command::CommandAnswer;
use crate::control_socket::{self, UnansweredCommand};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long an upgrade is expected. A service manager may have others to do first.
pub const EXPECTED_FOR: Duration = Duration::from_secs(60);

/// What is asked of the server, each after `upgrade `.
pub(crate) const STATE: &str = "state";
/// See [`STATE`].
pub(crate) const EXPECT: &str = "expect";
/// See [`STATE`]: what became of it; it is expected no more.
pub(crate) const OUTCOME: &str = "outcome";
/// See [`STATE`]: it has failed. The exit code follows, and why, each on lines of their own.
pub(crate) const FAILED: &str = "failed\n";

/// What a server says of itself to whoever wants its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UpgradeState {
    /// The number of its process.
    pub process: u32,
    /// A service manager hears it.
    pub has_manager: bool,
    /// An upgrade is expected.
    pub is_expected: bool,
}

impl UpgradeState {
    /// That of the server with this control socket; `None` of one that knows no such thing.
    ///
    /// # Errors
    /// When no server answers there.
    pub fn of(socket: &Path) -> Result<Option<UpgradeState>, UnansweredCommand> {
        let answer = control_socket::ask(socket, &format!("upgrade {STATE}"))?;
        Ok(serde_json::from_str(&answer.text).ok().filter(|_| answer.code == 0))
    }
}

/// Tells the server at this control socket to expect an upgrade. It may refuse.
///
/// # Errors
/// When no server answers there.
pub fn expect(socket: &Path) -> Result<CommandAnswer, UnansweredCommand> {
    control_socket::ask(socket, &format!("upgrade {EXPECT}"))
}

/// Tells it that there was none, and why.
///
/// # Errors
/// When no server answers there.
pub fn has_failed(socket: &Path, code: u8, why: &str) -> Result<CommandAnswer, UnansweredCommand> {
    control_socket::ask(socket, &format!("upgrade {FAILED}{code}\n{why}"))
}

/// Why there was none, if that was told; it expects none any more.
///
/// # Errors
/// When no server answers there.
pub fn outcome(socket: &Path) -> Result<CommandAnswer, UnansweredCommand> {
    control_socket::ask(socket, &format!("upgrade {OUTCOME}"))
}

/// What the server knows of it.
#[derive(Debug, Default)]
pub(crate) struct ExpectedUpgrade {
    until: Option<Instant>,
    failed: Option<CommandAnswer>,
}

impl ExpectedUpgrade {
    /// Does what is asked after `upgrade `. A service manager may hear this server, which may keep its place.
    pub(crate) fn answer(
        &mut self,
        question: &str,
        has_manager: bool,
        keeps_place: Option<&str>,
    ) -> CommandAnswer {
        let now = Instant::now();
        match (question, keeps_place) {
            (STATE, _) => {
                let is_expected = self.is_expected(now);
                let state = UpgradeState { process: std::process::id(), has_manager, is_expected };
                let text = serde_json::to_string(&state).unwrap_or_default();
                CommandAnswer { code: 0, text: text + "\n" }
            }
            (EXPECT, Some(why)) => CommandAnswer::failed(format_args!(
                "forebay: the running server keeps its place: {why}"
            )),
            (EXPECT, None) => {
                self.expect(now);
                CommandAnswer { code: 0, text: String::new() }
            }
            (OUTCOME, _) => self.take_outcome(),
            (other, _) => match other.strip_prefix(FAILED) {
                Some(told) => {
                    self.fail(told);
                    CommandAnswer { code: 0, text: String::new() }
                }
                None => CommandAnswer::unknown(&format!("upgrade {other}")),
            },
        }
    }

    /// From now on one is expected.
    pub(crate) fn expect(&mut self, now: Instant) {
        (self.until, self.failed) = (Some(now + EXPECTED_FOR), None);
    }

    pub(crate) fn is_expected(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// It has failed: the code, and why, as they are told.
    pub(crate) fn fail(&mut self, told: &str) {
        let (code, why) = told.split_once('\n').unwrap_or((told, ""));
        let code = code.parse().ok().filter(|code| *code != 0).unwrap_or(1);
        let text = format!("{}\n", why.trim_end());
        (self.until, self.failed) = (None, Some(CommandAnswer { code, text }));
    }

    /// Why it has failed, if it has. None is expected any more.
    pub(crate) fn take_outcome(&mut self) -> CommandAnswer {
        self.until = None;
        self.failed.take().unwrap_or(CommandAnswer { code: 0, text: String::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upgrade_is_expected_for_a_time_or_until_it_has_failed() {
        let mut expected = ExpectedUpgrade::default();
        let now = Instant::now();
        assert!(!expected.is_expected(now));
        expected.expect(now);
        assert!(expected.is_expected(now + EXPECTED_FOR / 2));
        assert!(!expected.is_expected(now + EXPECTED_FOR));
        expected.fail("78\na.toml: no\n");
        assert!(!expected.is_expected(now));
        let failed = CommandAnswer { code: 78, text: "a.toml: no\n".to_owned() };
        assert_eq!(expected.take_outcome(), failed);
        expected.expect(now);
        assert_eq!(expected.take_outcome().code, 0);
        assert!(!expected.is_expected(now));
        expected.fail("0\nno code of a failure");
        assert_eq!(expected.take_outcome().code, 1);
    }
}
