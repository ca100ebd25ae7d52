//! The service of systemd that a process belongs to: the one whose control group the process is in.

use std::fs;

/// A service of systemd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceUnit {
    /// The name that systemd uses.
    pub name: String,
    /// Whether the service belongs to a user's own systemd instance.
    pub is_of_user: bool,
}

impl ServiceUnit {
    /// The service of a process.
    pub fn of(process: u32) -> Option<ServiceUnit> {
        ServiceUnit::in_groups(&fs::read_to_string(format!("/proc/{process}/cgroup")).ok()?)
    }

    /// The service of another process, if this process is not in it, too.
    pub fn beside(process: u32) -> Option<ServiceUnit> {
        ServiceUnit::of(process).filter(|unit| Some(unit) != ServiceUnit::here().as_ref())
    }

    /// The service of this process.
    pub fn here() -> Option<ServiceUnit> {
        ServiceUnit::of(std::process::id())
    }

    /// The service in a text of `/proc/PID/cgroup`: the innermost unit of the deepest path. The
    /// result is `None` where that is a scope, which another program, such as a session, has made.
    fn in_groups(groups: &str) -> Option<ServiceUnit> {
        // on a machine with both cgroup versions systemd may use either, and the process is less
        // deep in the other
        let of_systemd = groups.lines().filter_map(|line| {
            let (head, path) = line.split_at(line.find(":/")? + 1);
            (head == "0::" || head.ends_with(":name=systemd:")).then_some(path)
        });
        let path = of_systemd.max_by_key(|path| path.split('/').count())?;
        let mut units =
            path.split('/').filter(|part| part.ends_with(".service") || part.ends_with(".scope"));
        let name = units.next_back().filter(|unit| unit.ends_with(".service"))?.to_owned();
        let is_of_user = path.split('/').any(|part| part.starts_with("user@") && part != name);
        Some(ServiceUnit { name, is_of_user })
    }
}

/// Whether another process is in the same control groups or the same service as this one.
pub fn is_with(process: u32) -> bool {
    let groups = |process: u32| fs::read_to_string(format!("/proc/{process}/cgroup")).ok();
    let has_same = groups(process).is_some_and(|of_it| Some(of_it) == groups(std::process::id()));
    has_same || ServiceUnit::of(process).is_some_and(|unit| Some(unit) == ServiceUnit::here())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(groups: &str) -> Option<(String, bool)> {
        ServiceUnit::in_groups(groups).map(|unit| (unit.name, unit.is_of_user))
    }

    #[test]
    fn the_service_of_a_process_is_that_of_its_group() {
        let second = "0::/system.slice/forebay.service\n";
        assert_eq!(found(second), Some(("forebay.service".to_owned(), false)));
        let first = "4:memory:/user.slice\n1:name=systemd:/system.slice/web.service/control\n";
        assert_eq!(found(first), Some(("web.service".to_owned(), false)));
        for (older, newer) in [
            ("/a/web.service", "/"),
            ("/a", "/a/web.service"),
            ("/a/web.service", "/a/web.service"),
        ] {
            let both = format!("4:memory:/a/b/c.service\n1:name=systemd:{older}\n0::{newer}\n");
            assert_eq!(found(&both), Some(("web.service".to_owned(), false)), "{both}");
        }
        let of_user = "0::/user.slice/user-7.slice/user@7.service/app.slice/web.service\n";
        assert_eq!(found(of_user), Some(("web.service".to_owned(), true)));
        assert_eq!(found("0::/user.slice/session-1.scope\n"), None);
        assert_eq!(found("0::/user.slice/user@7.service/app.slice/shell-1.scope\n"), None);
        assert_eq!(found(""), None);
    }
}
