//! Changes that operators make while stages run, kept so that they outlive the process that holds
//! them: bans by command, settings by `policy set`, and the keys of tickets, so that clients can
//! resume their TLS sessions.
//!
//! The supervisor asks receive for the changes after each command that changes something. It keeps
//! them in the form in which servers hand them over in an upgrade, and writes them to a file that
//! receive reads when it starts: after a crash, a reload, or an upgrade.

use crate::upgrade::handed::{Handed, HandedBan, HandedOverride};
use forebay_config::{Config, PolicyOverride, Role};
use forebay_sys::stderr::say;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The command by which the supervisor asks receive for its changes.
pub const ASKED_BY: &str = "changes";

/// The beginning of the command by which the supervisor replaces receive's bans by command.
pub const BANS: &str = "changes bans\n";

/// The beginning of the command by which the supervisor informs receive that another server has its
/// clients; the addresses that no server has any more follow. Receive answers once it accepts only
/// at those.
pub const LEAVE: &str = "leave\n";

/// The name of the file with the changes, in the directory of the stages.
const FILE: &str = "changes.json";

/// The changes: the part of what is handed over in an upgrade that needs no descriptor.
#[derive(Clone, Debug, Default)]
pub(super) struct Changes(Handed);

impl Changes {
    /// Parses the changes in the form in which receive sends them.
    ///
    /// # Errors
    /// When the text is something else.
    pub(super) fn read(text: &str) -> io::Result<Changes> {
        Ok(Changes::of(&serde_json::from_str(text)?))
    }

    /// Takes the changes from what the predecessor has handed over.
    pub(super) fn of(handed: &Handed) -> Changes {
        let Handed { bans, overrides, tickets, .. } = handed.clone();
        Changes(Handed { bans, overrides, tickets, ..Handed::default() })
    }

    /// The changes in the form for a successor.
    pub(super) fn handed(&self) -> Handed {
        self.after_reload().0
    }

    /// Replaces the bans by command; returns whether they differ.
    pub(super) fn set_bans(&mut self, bans: &[HandedBan]) -> bool {
        let are_others = self.0.bans != bans;
        self.0.bans = bans.to_vec();
        are_others
    }

    /// The changes that stay in force after a reload.
    pub(super) fn after_reload(&self) -> Changes {
        let mut handed = self.0.clone();
        handed.overrides.retain(|one| !one.until_reload);
        Changes(handed)
    }

    /// Writes the changes to this directory, in one step, for processes that start from now on.
    pub(super) fn leave_in(&self, links: &Path) -> io::Result<()> {
        let new = links.join("changes.new");
        let mut options = OpenOptions::new();
        options.create(true).truncate(true).write(true).mode(0o600);
        let mut file = options.open(&new)?;
        file.write_all(&serde_json::to_vec(&self.0)?)?;
        fs::rename(new, links.join(FILE))
    }
}

/// The changes made before the process of this configuration started; only receive reads them.
pub fn left(config: &Config) -> Option<Handed> {
    let place = config.place.as_ref().filter(|place| place.role == Role::Receive)?;
    let text = fs::read(place.links.join(FILE)).ok()?;
    match serde_json::from_slice(&text) {
        Ok(handed) => Some(handed),
        Err(error) => {
            say(format_args!("what commands have changed is lost: {error}"));
            None
        }
    }
}

/// Marks the overrides that hold only until a reload, apart from those that are kept beyond it.
pub fn settle_overrides(config: &mut Config, handed: &[HandedOverride]) {
    for PolicyOverride { assignment, is_kept, .. } in &mut config.assigned {
        *is_kept = !handed.iter().any(|one| one.until_reload && one.assignment == *assignment);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_config::StageProcess;

    fn override_of(assignment: &str, until_reload: bool) -> HandedOverride {
        HandedOverride { assignment: assignment.to_owned(), file_value: None, until_reload }
    }

    #[test]
    fn what_is_left_is_found_by_receive_and_a_reload_leaves_what_is_kept() {
        let links = std::env::temp_dir().join(format!("forebay-changes-{}", std::process::id()));
        fs::create_dir_all(&links).unwrap();
        let ban = HandedBan { network: "203.0.113.0/24".to_owned(), ..HandedBan::default() };
        let overrides = vec![override_of("gold.delay=5ms", false), override_of("agent=on", true)];
        let handed = Handed { bans: vec![ban.clone()], overrides, ..Handed::default() };
        let changes = Changes::read(&serde_json::to_string(&handed).unwrap()).unwrap();
        changes.leave_in(&links).unwrap();
        let left_for = |role| {
            let place = StageProcess {
                role,
                instance: 1,
                file: "forebay.toml".into(),
                links: links.clone(),
            };
            left(&Config { place: Some(place), ..Config::default() })
        };
        assert_eq!(left_for(Role::Receive), Some(handed));
        assert_eq!(left_for(Role::Respond), None);
        changes.after_reload().leave_in(&links).unwrap();
        let after = left_for(Role::Receive).unwrap();
        assert_eq!((after.overrides.len(), after.bans), (1, vec![ban]));
        fs::write(links.join(FILE), "{").unwrap();
        assert_eq!(left_for(Role::Receive), None);
        fs::remove_dir_all(links).unwrap();
    }
}
