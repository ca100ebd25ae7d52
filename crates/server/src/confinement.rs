//! The limits that keep a compromised stage from the rest of this machine, for `forebay doctor` and
//! `forebay check`: what the kernel can do, and what of it the configuration wants.

use crate::sandbox;
use forebay_config::{Config, Confine};
use forebay_sys::{privileges, seal};
use std::fmt::Write;

/// What the kernel lacks for each limit on stages; `None` for a limit that it has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelLimits {
    /// Access to files, limited by Landlock.
    pub(crate) files: Option<&'static str>,
    /// TCP ports, limited by Landlock.
    pub(crate) ports: Option<&'static str>,
    /// Abstract sockets, limited by Landlock.
    pub(crate) names: Option<&'static str>,
    /// Access to other processes, limited by seccomp.
    pub(crate) processes: Option<&'static str>,
}

impl KernelLimits {
    /// What a Landlock lacks that limits access to files.
    pub(crate) fn of_older_landlock(&self) -> Option<&'static str> {
        self.ports.or(self.names).filter(|_| self.files.is_none())
    }

    /// What the running kernel lacks.
    pub(crate) fn of_this_kernel() -> KernelLimits {
        let [files, ports, names] = sandbox::kernel_confines();
        KernelLimits {
            files: (!files).then_some("this kernel has no Landlock, or it is off"),
            ports: (!ports).then_some("no Landlock for ports of TCP, which came with Linux 6.7"),
            names: (!names)
                .then_some("no Landlock for abstract sockets, which came with Linux 6.12"),
            processes: (!seal::is_known())
                .then_some("this kernel has no seccomp, or it is refused here"),
        }
    }
}

/// The limits that hold for stages here, in lines; empty where `config` has no stages.
pub(crate) fn report(config: Option<&Config>) -> String {
    if config.is_some_and(|config| !config.has_stages()) {
        return String::new();
    }
    let limits = KernelLimits::of_this_kernel();
    let is_off = |setting: fn(&Config) -> Confine| config.map(setting) == Some(Confine::Off);
    let (landlock, seccomp) =
        (is_off(|config| config.sandbox.landlock), is_off(|config| config.sandbox.seccomp));
    let landlock = landlock.then_some("sandbox.landlock = \"off\"");
    let seccomp = seccomp.then_some("sandbox.seccomp = \"off\"");
    let user = match privileges::may_become_another() {
        true => None,
        false => Some("the server was not started as root"),
    };
    let rows = [
        (landlock, limits.files, "receive and respond open only files that the file names"),
        (landlock, limits.ports, "they connect to no other ports, and respond listens at none"),
        (landlock, limits.names, "they connect to no abstract socket, but of applications"),
        (seccomp, limits.processes, "they signal, trace and start no process"),
        (seccomp, limits.processes, "process opens no file and no connection"),
        (None, user, "process has a user of its own"),
    ];
    let mut text = "stages, where code takes one over:\n".to_owned();
    for (off, missing, what) in rows {
        let (mark, why) = match (off, missing) {
            (Some(off), _) => ("off", off),
            (None, Some(missing)) => ("missing", missing),
            (None, None) => ("ok", ""),
        };
        let colon = if why.is_empty() { "" } else { ": " };
        let _ = writeln!(text, "  {mark:8}{what}{colon}{why}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_switched_off_is_said_and_nothing_without_stages() {
        let of = |lines: &str| {
            let text = format!("root = \"/srv/www\"\n{lines}");
            report(Some(&forebay_config::parse(&text, "/etc/forebay/forebay.toml").unwrap()))
        };
        assert_eq!(of(""), "");
        let off = of("[stages]\n[sandbox]\nlandlock = \"off\"\n");
        assert_eq!(off.matches("  off     ").count(), 3, "{off}");
        assert!(!of("[stages]\n").contains("  off     "));
        assert_eq!(report(None).lines().count(), 7);
    }
}
