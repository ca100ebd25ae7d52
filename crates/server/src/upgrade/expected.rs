//! An upgrade that the service manager carries out: an operator's command announces it to the
//! server and has the service manager reload the service. The reload's command starts the new
//! server, inside the service.
//!
//! The server keeps what the two commands must know of each other: whether an upgrade is expected,
//! for how long, and why it has failed.

use crate::command::CommandAnswer;
use crate::control_socket::{self, UnansweredCommand};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long an upgrade is expected. A service manager may have other jobs before it.
pub const EXPECTED_FOR: Duration = Duration::from_secs(60);

/// A question to the server, after `upgrade `: its [`UpgradeState`].
pub(crate) const STATE: &str = "state";
/// A command as [`STATE`]: expect an upgrade.
pub(crate) const EXPECT: &str = "expect";
/// A question as [`STATE`]: the outcome. The upgrade is then expected no more.
pub(crate) const OUTCOME: &str = "outcome";
/// A report as [`STATE`]: the upgrade has failed. The exit code follows, then the
/// reason, on lines of their own.
pub(crate) const FAILED: &str = "failed\n";

/// The state of a server, for a process that wants its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UpgradeState {
    /// The process number.
    pub process: u32,
    /// Whether the server reports to a service manager.
    pub has_manager: bool,
    /// Whether an upgrade is expected.
    pub is_expected: bool,
}

impl UpgradeState {
    /// Asks the server at this control socket; `None` if it is of a version without this question.
    ///
    /// # Errors
    /// When no server answers there.
    pub fn of(socket: &Path) -> Result<Option<UpgradeState>, UnansweredCommand> {
        let answer = control_socket::ask(socket, &format!("upgrade {STATE}"))?;
        Ok(serde_json::from_str(&answer.text).ok().filter(|_| answer.code == 0))
    }
}

/// Announces an upgrade to the server at this control socket, which may refuse.
///
/// # Errors
/// When no server answers there.
pub fn expect(socket: &Path) -> Result<CommandAnswer, UnansweredCommand> {
    control_socket::ask(socket, &format!("upgrade {EXPECT}"))
}

/// Reports to the server that the upgrade has failed, and why.
///
/// # Errors
/// When no server answers there.
pub fn has_failed(socket: &Path, code: u8, why: &str) -> Result<CommandAnswer, UnansweredCommand> {
    control_socket::ask(socket, &format!("upgrade {FAILED}{code}\n{why}"))
}

/// Asks the server why the upgrade has failed, if that was reported. The server then expects none any more.
///
/// # Errors
/// When no server answers there.
pub fn outcome(socket: &Path) -> Result<CommandAnswer, UnansweredCommand> {
    control_socket::ask(socket, &format!("upgrade {OUTCOME}"))
}

/// The server's knowledge of an upgrade that its service manager carries out.
#[derive(Debug, Default)]
pub(crate) struct ExpectedUpgrade {
    until: Option<Instant>,
    failed: Option<CommandAnswer>,
}

impl ExpectedUpgrade {
    /// Answers a question after `upgrade `. `has_manager` says whether a service manager supervises
    /// this server, `keeps_place` why the server cannot be replaced, if so.
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

    /// Expects an upgrade from now on.
    pub(crate) fn expect(&mut self, now: Instant) {
        (self.until, self.failed) = (Some(now + EXPECTED_FOR), None);
    }

    pub(crate) fn is_expected(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// Records that the upgrade has failed: `told` is the code and the reason, on lines of their own.
    pub(crate) fn fail(&mut self, told: &str) {
        let (code, why) = told.split_once('\n').unwrap_or((told, ""));
        let code = code.parse().ok().filter(|code| *code != 0).unwrap_or(1);
        let text = format!("{}\n", why.trim_end());
        (self.until, self.failed) = (None, Some(CommandAnswer { code, text }));
    }

    /// The reason why the upgrade has failed, if it has. None is expected any more.
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
