//! Checks of a configuration that ask the machine: things that the configuration names and that are
//! missing, and settings that are valid but hardly intended. Checks of the text alone are in `config`.
//!
//! Each check is a function and a row in a list: of [`ERRORS`], for which a file is refused, or of
//! [`LINTS`], which are warnings. A message that only one check gives is beside that check, as a
//! [`Finding`](forebay_config::problem::Finding).
//!
//! | module | what it looks for |
//! |---|---|
//! | `disk` | directories and files that must exist, and places where the server makes some |
//! | `exposed` | files that are not for clients, in directories that are served |
//! | `reach` | files that the user of the server cannot use, and secrets that everyone can read |
//! | `pages` | files of a site that settings name and that do not exist |
//! | `nowhere`, `indexes`, `linked` | paths to nothing, to half of a page, past a protected file |
//! | `users` | invalid lines in files of users |
//! | `accounts` | users and groups that are not known, stages that keep the privileges of root |
//! | `applications` | sockets and scripts of applications |
//! | `certificates` | certificates that clients will refuse, hosts without one |
//! | `cgi` | CGI programs that cannot be run, or that others may change or download |
//! | `hooks` | commands that cannot be run, or that others may change |
//! | `kernel` | features that the kernel and its tools lack on this machine |
//! | `spared` | rules that ban addresses which are never banned |
//! | `calibration` | constants of another machine |
//! | `surroundings` | names that cannot be resolved, addresses that are in use |

mod accounts;
mod applications;
mod calibration;
mod certificates;
mod cgi;
mod disk;
mod exposed;
mod hooks;
mod indexes;
mod kernel;
mod linked;
mod nowhere;
mod pages;
mod reach;
mod spared;
mod surroundings;
mod users;

pub use disk::missing_files;

use forebay_config::table::ConfigReader;
use forebay_config::{ConfigDraft, Remarks};

/// How far checks look for settings that are hardly intended. Each depth includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// The text alone: a running server has given up the privileges that it would need to look further.
    Text,
    /// Files and accounts, too: the depth of a server before it starts.
    Files,
    /// Certificates and kernel features, too, which a server reports by itself.
    Machine,
    /// Everything that `forebay check` examines: name services and other processes, too.
    Surroundings,
}

/// The input of a lint.
#[derive(Clone, Copy)]
pub struct LintSubject<'s> {
    /// The configuration that the file states.
    pub draft: &'s ConfigDraft,
    /// The text of the file, for the positions of settings.
    pub text: &'s ConfigReader<'s>,
}

/// One check.
pub struct Lint {
    /// The name of the lint.
    pub name: &'static str,
    /// The parts of the machine that the lint examines.
    pub looks_at: &'static str,
    /// The smallest depth at which the lint runs.
    pub from: Depth,
    /// Adds what the lint finds.
    pub look: fn(&LintSubject<'_>, &mut Remarks),
}

const fn lint(
    name: &'static str,
    looks_at: &'static str,
    from: Depth,
    look: fn(&LintSubject<'_>, &mut Remarks),
) -> Lint {
    Lint { name, looks_at, from, look }
}

/// Checks that make a file invalid.
pub const ERRORS: &[Lint] = &[
    lint("files", "disk, certificates", Depth::Text, disk::files),
    lint("exposed logs", "disk", Depth::Text, exposed::logs),
];

/// Checks that make a file invalid for `forebay check`. A server notices these errors when it starts.
pub const ERRORS_OF_CHECK: &[Lint] = &[
    lint("sockets", "disk, user of the process", Depth::Text, disk::sockets),
    lint("spool", "disk, user of the process", Depth::Text, disk::spool),
    lint("root commands", "user of the process", Depth::Text, hooks::root),
    lint("root programs", "user of the process, accounts", Depth::Text, cgi::root),
];

/// Checks that give warnings.
pub const LINTS: &[Lint] = &[
    lint("spared", "addresses of this machine", Depth::Text, spared::rules),
    lint("calibration", "processor, cores", Depth::Text, calibration::calibration),
    lint("accounts", "accounts", Depth::Files, accounts::accounts),
    lint("pages", "disk", Depth::Files, pages::pages),
    lint("nowhere", "disk", Depth::Files, nowhere::nowhere),
    lint("indexes", "disk", Depth::Files, indexes::indexes),
    lint("application sockets", "disk, accounts", Depth::Files, applications::sockets),
    lint("front controllers", "disk", Depth::Files, applications::front_controllers),
    lint("linked", "disk", Depth::Files, linked::linked),
    lint("users", "disk", Depth::Files, users::users),
    lint("unreadable", "disk, accounts", Depth::Files, reach::unreadable),
    lint("secrets", "disk, accounts", Depth::Files, reach::secrets),
    lint("storage", "disk", Depth::Files, disk::storage),
    lint("spool in memory", "disk", Depth::Files, disk::spool_in_memory),
    lint("exposed", "disk", Depth::Files, exposed::secret_files),
    lint("sources", "disk", Depth::Files, exposed::sources),
    lint("commands", "disk", Depth::Files, hooks::commands),
    lint("programs", "disk, accounts", Depth::Files, cgi::programs),
    lint("served programs", "disk", Depth::Files, cgi::served),
    lint("root", "user of the process", Depth::Files, accounts::root),
    lint("expiry", "certificates, clock", Depth::Machine, certificates::expiry),
    lint("uncovered", "certificates", Depth::Machine, certificates::uncovered),
    lint("gate", "kernel", Depth::Machine, kernel::gate),
    lint("firewall", "programs", Depth::Machine, kernel::firewall),
    lint("confinement", "kernel", Depth::Machine, kernel::stages),
    lint("names", "name services", Depth::Surroundings, surroundings::names),
    lint("ports", "network, processes", Depth::Surroundings, surroundings::ports),
];

/// The findings of these lints, but not of those that begin beyond `depth`.
pub fn found(lints: &[Lint], of: &LintSubject<'_>, depth: Depth) -> Remarks {
    let mut found = Vec::new();
    lints.iter().filter(|lint| lint.from <= depth).for_each(|lint| (lint.look)(of, &mut found));
    found
}

/// All remarks: settings that are valid but hardly intended.
pub fn remarks(of: &LintSubject<'_>, depth: Depth) -> Remarks {
    let mut remarks = of.draft.remarks_of_text(of.text);
    remarks.extend(found(LINTS, of, depth));
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_lint_has_a_name_of_its_own_and_they_stand_by_depth() {
        let all = || [ERRORS, ERRORS_OF_CHECK, LINTS].into_iter().flatten();
        let mut known = HashSet::new();
        for Lint { name, looks_at, .. } in all() {
            assert!(known.insert(name) && !looks_at.is_empty(), "{name}");
        }
        assert!(LINTS.is_sorted_by_key(|lint| lint.from));
    }
}
