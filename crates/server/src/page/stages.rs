//! The stages of `isolated` on the page: which of their processes have ended, how often, and when.
//! The supervisor records that in a file that all stages hold open.

use forebay_config::{Config, Role};
use forebay_upstream::ends::Ends;
use serde_json::{Value, json};

/// The instances of all stages; empty if the server is one process.
#[derive(Debug, Default)]
pub(crate) struct PageStages {
    ends: Vec<(Role, Ends)>,
    instances: Vec<StageInstance>,
}

/// An instance of a stage, whichever process it is at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StageInstance {
    role: Role,
    /// The number of the instance, from 1.
    number: u64,
    /// How many processes of the instance have ended since this process began, for whatever reason.
    /// A planned end is not among them: it replaces all processes together, this one too.
    ended: u64,
    /// The time of the last such end, in milliseconds since 1970.
    last_unix_ms: Option<u64>,
}

impl PageStages {
    /// The stages that this process belongs to. It must be called before access to
    /// the file system is given up.
    pub(crate) fn of(config: &Config) -> PageStages {
        let Some(place) = &config.place else {
            return PageStages::default();
        };
        let ends = |role| Some((role, crate::isolated::ends(&place.links, role)?));
        let of = |role| {
            let numbers = 1..=config.isolated.instances(role);
            numbers.map(move |number| StageInstance { role, number, ended: 0, last_unix_ms: None })
        };
        PageStages {
            ends: Role::ALL.into_iter().filter_map(ends).collect(),
            instances: Role::ALL.into_iter().flat_map(of).collect(),
        }
    }

    /// Looks for processes that have ended since the last call, and calls `say` for each. `now_ms`
    /// is the time on the supervisor's clock, `unix_ms` the wall clock's.
    pub(super) fn look(&mut self, (unix_ms, now_ms): (u64, u64), mut say: impl FnMut(u64, String)) {
        let PageStages { ends, instances } = self;
        for (role, ends) in ends {
            let role = *role;
            ends.look(|end| {
                let number = end.instance as u64 + 1;
                let mut known = instances.iter_mut();
                let known = known.find(|one| (one.role, one.number) == (role, number));
                let Some(known) = known else { return };
                let at_ms = unix_ms.saturating_sub(now_ms.saturating_sub(end.at_ms));
                known.ended += 1;
                known.last_unix_ms = Some(at_ms);
                say(
                    at_ms,
                    format!(
                        "stage {role}, instance {number}: its process has ended, and another begins"
                    ),
                );
            });
        }
    }

    /// A row for each instance.
    pub(super) fn json(&self) -> Value {
        let row = |one: &StageInstance| {
            let StageInstance { role, number, ended, last_unix_ms } = one;
            json!({"stage": role.name(), "instance": number, "ended": ended, "last_ms": last_unix_ms})
        };
        self.instances.iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_upstream::ends::ProcessEnd;
    use std::fs::File;

    #[test]
    fn who_has_ended_is_counted_and_said_once() {
        let path = std::env::temp_dir().join(format!("forebay-page-{}", std::process::id()));
        let mut file = File::options().append(true).create_new(true).open(&path).unwrap();
        let ends = Ends::new(File::open(&path).unwrap(), Role::Process.number()).unwrap();
        std::fs::remove_file(&path).unwrap();
        let (role, number) = (Role::Process, 2);
        let instance = StageInstance { role, number, ended: 0, last_unix_ms: None };
        let mut stages = PageStages { ends: vec![(role, ends)], instances: vec![instance] };
        let end = ProcessEnd { at_ms: 500, stage: role.number(), instance: 1, was_by_itself: true };
        // a process that an operator has killed, and an instance that is not shown
        for one in [ProcessEnd { was_by_itself: false, ..end }, ProcessEnd { instance: 9, ..end }] {
            one.append(&mut file).unwrap();
        }
        let mut said = Vec::new();
        for _ in 0..2 {
            stages.look((1_000_000, 700), |at_ms, text| said.push((at_ms, text)));
        }
        let text =
            "stage process, instance 2: its process has ended, and another begins".to_owned();
        assert_eq!(said, [(999_800, text)]);
        assert_eq!(
            (stages.instances[0].ended, stages.instances[0].last_unix_ms),
            (1, Some(999_800))
        );
    }
}
