//! Checks of a configuration that ask the machine: what is missing that it names, and what is right and yet hardly
//! meant. What a text tells by itself is `config`'s.
//!
//! Each is a function and a row: of [`ERRORS`], with which a file is refused, or of [`LINTS`], of which an operator is
//! warned. A function that alone says a sentence has it beside it, as a [`Finding`](forebay_config::problem::Finding).
//!
//! | module | what it looks for |
//! |---|---|
//! | `disk` | directories and files that must be there, and room for those that are made |
//! | `exposed` | files that are not for clients, in directories that are served |
//! | `reach` | what the user of the server may not use, and secrets that all may read |
//! | `pages` | files of a site that settings name and that are not there |
//! | `nowhere`, `indexes`, `linked` | rules whose paths lead nowhere, to one of two paths of a page, past a protected file |
//! | `users` | lines of files of users that are none |
//! | `accounts` | users and groups that are not known, rights of root that are kept |
//! | `applications` | sockets and scripts of applications |
//! | `certificates` | certificates that clients will refuse, hosts without one |
//! | `cgi` | programs of CGI that cannot be run, or that others may change, or get |
//! | `hooks` | commands that cannot be run, or that others may change |
//! | `kernel` | what the kernel and its tools cannot do here |
//! | `spared` | rules that ban who is never banned |
//! | `calibration` | constants of another machine |
//! | `surroundings` | names that are not known, addresses that are taken |

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

/// How far is looked for what is hardly meant. Each goes as far as those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// At the text alone: a server that runs has given up what it would need to look further.
    Text,
    /// At files and accounts, too: so does a server before it starts.
    Files,
    /// At certificates, and what the kernel can, of which a server tells by itself.
    Machine,
    /// At all that `forebay check` looks at: name services and other processes, too.
    Surroundings,
}

/// What a lint is shown.
#[derive(Clone, Copy)]
pub struct LintSubject<'s> {
    /// What the file says.
    pub draft: &'s ConfigDraft,
    /// Its text, for the places.
    pub text: &'s ConfigReader<'s>,
}

/// One check.
pub struct Lint {
    /// What it is called.
    pub name: &'static str,
    /// What of the machine it asks.
    pub looks_at: &'static str,
    /// From which depth on it does.
    pub from: Depth,
    /// Adds what it finds.
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

/// A file with one of these is refused.
pub const ERRORS: &[Lint] = &[
    lint("files", "disk, certificates", Depth::Text, disk::files),
    lint("exposed logs", "disk", Depth::Text, exposed::logs),
];

/// `forebay check` refuses a file with one of these, too; a server finds them itself.
pub const ERRORS_OF_CHECK: &[Lint] = &[
    lint("sockets", "disk, user of the process", Depth::Text, disk::sockets),
    lint("spool", "disk, user of the process", Depth::Text, disk::spool),
    lint("root commands", "user of the process", Depth::Text, hooks::root),
    lint("root programs", "user of the process, accounts", Depth::Text, cgi::root),
];

/// Of these is warned.
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

/// What these find, looking no further than `depth`.
pub fn found(lints: &[Lint], of: &LintSubject<'_>, depth: Depth) -> Remarks {
    let mut found = Vec::new();
    lints.iter().filter(|lint| lint.from <= depth).for_each(|lint| (lint.look)(of, &mut found));
    found
}

/// What is right and yet hardly meant.
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
