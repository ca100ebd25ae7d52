//! What operators have changed while stages run, so that it outlives the process that holds it: bans by command,
//! settings by `policy set`, and the keys of tickets, so that clients resume their sessions of TLS.
//!
//! Receive is asked for it after each change; the supervisor keeps it, in the form in which servers hand it to one
//! another in an upgrade, and leaves it where receive looks when it starts: after a crash, a reload, or an upgrade.

use crate::upgrade::handed::{Handed, HandedBan, HandedOverride};
use forebay_config::{Config, PolicyOverride, Role};
use forebay_sys::stderr::say;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The command by which the supervisor asks receive.
pub const ASKED_BY: &str = "changes";

/// How the command begins by which the supervisor tells receive of bans: in place of those by command.
pub const BANS: &str = "changes bans\n";

/// How the command begins by which the supervisor tells receive that another server has its clients, and at which
/// addresses none has them. Receive answers once it accepts no more at the others.
pub const LEAVE: &str = "leave\n";

/// The name of the file in the directory of the stages.
const FILE: &str = "changes.json";

/// What was changed: what is handed in an upgrade, and nothing that has a descriptor.
#[derive(Clone, Debug, Default)]
pub(super) struct Changes(Handed);

impl Changes {
    /// As receive has said it.
    ///
    /// # Errors
    /// When the text is something else.
    pub(super) fn read(text: &str) -> io::Result<Changes> {
        Ok(Changes::of(&serde_json::from_str(text)?))
    }

    /// Of what the server before has handed.
    pub(super) fn of(handed: &Handed) -> Changes {
        let Handed { bans, overrides, tickets, .. } = handed.clone();
        Changes(Handed { bans, overrides, tickets, ..Handed::default() })
    }

    /// For a server that takes the place.
    pub(super) fn handed(&self) -> Handed {
        self.after_reload().0
    }

    /// Takes these bans in place of those by command; says whether they are others.
    pub(super) fn set_bans(&mut self, bans: &[HandedBan]) -> bool {
        let are_others = self.0.bans != bans;
        self.0.bans = bans.to_vec();
        are_others
    }

    /// What is left of it by a reload.
    pub(super) fn after_reload(&self) -> Changes {
        let mut handed = self.0.clone();
        handed.overrides.retain(|one| !one.until_reload);
        Changes(handed)
    }

    /// Leaves it in this directory, in one step, for processes that start from now on.
    pub(super) fn leave_in(&self, links: &Path) -> io::Result<()> {
        let new = links.join("changes.new");
        let mut options = OpenOptions::new();
        options.create(true).truncate(true).write(true).mode(0o600);
        let mut file = options.open(&new)?;
        file.write_all(&serde_json::to_vec(&self.0)?)?;
        fs::rename(new, links.join(FILE))
    }
}

/// What was changed before the process that this configuration is for has started: only receive holds it.
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

/// Overrides that hold until a reload are told from those that are kept beyond it.
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
