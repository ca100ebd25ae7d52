//! Files and directories whose modes do not fit the configuration: the server's user may not use
//! them, or everyone may read a secret. These are warnings of `forebay check`. It often
//! runs as root, who may use all files, so it compares modes. ACLs (`setfacl`) are not examined.

use super::LintSubject;
use crate::privileges::user_of;
use forebay_config::pages::locate;
use forebay_config::path::Path as At;
use forebay_config::problem::{Finding, Wrong};
use forebay_config::{AccessLog, Account, ConfigDraft, Remarks};
use forebay_site::rules::Alias;
use forebay_sys::privileges::SystemUser;
use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The permission bits of one class of users in a mode.
const READ: u32 = 4;
const WRITE: u32 = 2;
const ENTER: u32 = 1;

/// The user that the server becomes.
struct Becomes<'d> {
    name: &'d str,
    user: SystemUser,
}

impl Becomes<'_> {
    /// Whether the file's mode allows the user what is `wanted`. A file that cannot be examined
    /// counts as allowed.
    fn may(&self, path: &Path, wanted: u32) -> bool {
        let Ok(found) = fs::metadata(path) else { return true };
        let shift = match () {
            () if found.uid() == self.user.user => 6,
            () if self.user.groups.contains(&found.gid()) => 3,
            () => 0,
        };
        (found.mode() >> shift) & wanted == wanted
    }

    /// The first obstacle for the user: a directory on the way that the user may not
    /// enter, or the file itself.
    fn obstacle(&self, path: &Path, wanted: u32) -> Option<PathBuf> {
        let real = fs::canonicalize(path).ok().filter(|_| self.user.user != 0)?;
        let mut above: Vec<&Path> = real.ancestors().skip(1).collect();
        above.reverse();
        let closed = above.into_iter().find(|directory| !self.may(directory, ENTER));
        let closed = closed.or_else(|| Some(&*real).filter(|real| !self.may(real, wanted)));
        closed.map(Path::to_owned)
    }

    fn remark(&self, needed: Needed, path: &Path) -> Option<Wrong> {
        let wanted = match needed {
            Needed::Directory => ENTER,
            Needed::Users | Needed::Page | Needed::File => READ,
            Needed::Logs | Needed::Storage | Needed::Spool => WRITE | ENTER,
            Needed::Log => WRITE,
        };
        let obstacle = self.obstacle(path, wanted)?;
        let is_itself = fs::canonicalize(path).is_ok_and(|real| real == obstacle);
        let closed = (!is_itself).then_some(obstacle);
        Some(Wrong::said(ModeRemark::OutOfReach {
            user: self.name.to_owned(),
            needed,
            path: path.to_owned(),
            closed,
        }))
    }
}

/// The user that the server becomes, if this machine knows one.
fn becomes(draft: &ConfigDraft) -> Option<Becomes<'_>> {
    let account = draft.process.user.as_ref()?;
    let user = user_of(account, draft.process.group.as_ref()).ok()?;
    Some(Becomes { name: Account::as_str(account), user })
}

/// Finds roots, files of users, error pages and logs that the server's user may not use.
pub(super) fn unreadable(of: &LintSubject<'_>, remarks: &mut Remarks) {
    let Some(user) = becomes(of.draft) else { return };
    // a file that several sites name is reported once
    let mut told: HashSet<PathBuf> = HashSet::new();
    let mut look = |at: At, needed, path: &Path| {
        let wrong = told.insert(path.to_owned()).then(|| user.remark(needed, path)).flatten();
        let is_wrong = wrong.is_some();
        remarks.extend(wrong.map(|wrong| (at, wrong)));
        !is_wrong
    };
    if let Some(storage) = &of.draft.process.acme.storage
        && of.draft.all_sites().iter().any(|(_, site)| site.has_acme())
    {
        // a missing directory is not an obstacle: root makes it at the start
        for place in [storage, &of.draft.process.acme.files().directory().to_owned()] {
            look(At::default().child("acme.storage"), Needed::Storage, place);
        }
    }
    if let Some(spool) = &of.draft.process.spool_dir {
        look(At::default().child("spool_dir"), Needed::Spool, spool);
    }
    for (at, site) in of.draft.every_site() {
        let root_is_good =
            site.root.as_ref().is_none_or(|root| look(at.child("root"), Needed::Directory, root));
        for (index, alias) in site.aliases.iter().enumerate() {
            let at = at.child("alias").item(index);
            match alias.file() {
                Some(file) => look(at.child("file"), Needed::File, &file),
                None => look(at.child("to"), Needed::Directory, &alias.to),
            };
        }
        for (index, rule) in site.auth.iter().enumerate() {
            if let Some(file) = &rule.file {
                look(at.child("auth").item(index).child("file"), Needed::Users, file);
            }
        }
        let mounts: Vec<Alias> = site.mounts().collect();
        for page in site.errors.0.iter().filter(|_| root_is_good) {
            if let Some((directory, inside)) = locate(site, &mounts, page.path()) {
                let at = at.child("errors").child(&page.status().to_string());
                look(at, Needed::Page, &directory.join(inside.trim_start_matches('/')));
            }
        }
        if let AccessLog::File(log) = &site.log.access {
            let at = at.child("log.access");
            // a missing log is not an obstacle: root makes it at the start
            look(at.clone(), Needed::Log, log);
            if let Some(directory) = log.parent() {
                look(at, Needed::Logs, directory);
            }
        }
    }
}

/// Finds secrets that too many users may read, or that the server's user may not read.
pub(super) fn secrets(of: &LintSubject<'_>, remarks: &mut Remarks) {
    // with stages the supervisor stays root, and starts new processes at a reload
    let user = becomes(of.draft).filter(|_| !of.draft.is_isolated());
    let mut told = HashSet::new();
    for (path, pairs, _) in of.draft.all_pairs() {
        for (index, key) in pairs.keys.iter().enumerate().filter(|(_, key)| told.insert(*key)) {
            let at = path.child("tls.key").item(index);
            remarks.extend(secret(at, Secret::Key, key, user.as_ref()));
        }
    }
    let mut told_shown: HashSet<PathBuf> = HashSet::new();
    for (path, site) in of.draft.every_site() {
        for (list, index, tls) in site.upstream_tls() {
            if let Some((_, key)) = tls.shows
                && told_shown.insert(key.clone())
            {
                let at = path.child(list).item(index).child("tls.key");
                remarks.extend(secret(at, Secret::Key, &key, user.as_ref()));
            }
        }
    }
    if let Some(tokens) = &of.draft.process.admin.token_file {
        let at = At::default().child("admin").child("token_file");
        remarks.extend(secret(at, Secret::Tokens, tokens, user.as_ref()));
    }
    if let Some(keys) = &of.draft.process.identity.keys {
        let at = At::default().child("identity").child("keys");
        remarks.extend(secret(at, Secret::Keys, keys, user.as_ref()));
    }
    for (at, file) in of.text.secrets().iter().filter(|(_, file)| told.insert(file)) {
        remarks.extend(secret(at.clone(), Secret::Value, file, user.as_ref()));
    }
}

/// What is wrong with a secret: everyone may read it, or a reload could not.
fn secret(at: At, secret: Secret, file: &Path, user: Option<&Becomes<'_>>) -> Option<(At, Wrong)> {
    let path = file.to_owned();
    if fs::metadata(file).ok()?.mode() & 0o004 != 0 {
        return Some((at, Wrong::said(ModeRemark::SecretForAll { secret, path })));
    }
    let user = user.filter(|user| user.obstacle(file, READ).is_some())?.name.to_owned();
    Some((at, Wrong::said(ModeRemark::SecretAtStartOnly { secret, path, user })))
}

/// A remark about permissions: too few, or too many.
#[derive(Debug)]
enum ModeRemark {
    /// Every user of this machine may read a secret.
    SecretForAll {
        /// The kind of secret.
        secret: Secret,
        /// The path of its file.
        path: PathBuf,
    },
    /// The user that the server becomes may not read a secret.
    SecretAtStartOnly {
        /// The kind of secret.
        secret: Secret,
        /// The path of its file.
        path: PathBuf,
        /// The user.
        user: String,
    },
    /// The user that the server becomes may not use a file or a directory.
    OutOfReach {
        /// The user.
        user: String,
        /// The kind of file or directory.
        needed: Needed,
        /// The path.
        path: PathBuf,
        /// The directory on the way that the user may not enter; `None` if it is the file itself.
        closed: Option<PathBuf>,
    },
}

impl Finding for ModeRemark {}

impl fmt::Display for ModeRemark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ModeRemark::SecretForAll { secret, path } => write!(
                f,
                "everybody on this machine may read the {secret} {path:?}: \"chmod o-rwx\""
            ),
            ModeRemark::SecretAtStartOnly { secret, path, user } => write!(
                f,
                "the user {user:?} may not read the {secret} {path:?}: it is read at the start, by \
                 root, but a reload will fail; give it to a group of that user: \"chgrp\", \"chmod g+r\""
            ),
            ModeRemark::OutOfReach { user, needed, path, closed } => {
                write!(
                    f,
                    "the user {user:?} may not {} {path:?}: {}; ",
                    needed.act(),
                    needed.effect()
                )?;
                match closed {
                    None => f.write_str(needed.remedy()),
                    Some(directory) => {
                        write!(
                            f,
                            "let that user into {directory:?}, which is on the way: \"chmod\""
                        )
                    }
                }
            }
        }
    }
}

/// A file or directory that the server still needs after it has switched from root to its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needed {
    /// A root, or the directory of an alias.
    Directory,
    /// A file of users.
    Users,
    /// An error page.
    Page,
    /// The file of an alias.
    File,
    /// The directory of a log.
    Logs,
    /// A log that exists.
    Log,
    /// The directory of certificates by ACME.
    Storage,
    /// The directory of request bodies.
    Spool,
}

impl Needed {
    /// The action that the user may not perform, as words before the path.
    fn act(self) -> &'static str {
        match self {
            Needed::Directory => "enter the directory",
            Needed::Users => "read the file of users",
            Needed::Page => "read the error page",
            Needed::File => "read the file",
            Needed::Logs => "write to the directory",
            Needed::Log => "write to the log",
            Needed::Storage | Needed::Spool => "write to the directory",
        }
    }

    /// The consequence, in words.
    fn effect(self) -> &'static str {
        match self {
            Needed::Directory => "the server does not start",
            Needed::Users => "what it protects is answered with 500 for everybody",
            Needed::File => "clients get 403",
            Needed::Page => "clients get a short page of Forebay's own",
            Needed::Logs => "a log that is moved away cannot be made again",
            Needed::Log => "the server does not start",
            Needed::Storage => "no certificate is got or replaced",
            Needed::Spool => "the server does not start",
        }
    }

    /// The remedy, in words.
    fn remedy(self) -> &'static str {
        match self {
            Needed::Directory => "give it to a group of that user: \"chgrp\", \"chmod g+rx\"",
            Needed::Users | Needed::Page | Needed::File => {
                "give it to a group of that user: \"chgrp\", \"chmod g+r\""
            }
            Needed::Logs | Needed::Log | Needed::Storage | Needed::Spool => {
                "give it to that user: \"chown\""
            }
        }
    }
}

/// A file that only the server should be able to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Secret {
    /// The key of a certificate.
    Key,
    /// The tokens of the admin listener.
    Tokens,
    /// The keys of identities.
    Keys,
    /// A secret that a setting's value refers to.
    Value,
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Secret::Key => "private key",
            Secret::Tokens => "file of tokens",
            Secret::Keys => "file of keys",
            Secret::Value => "file of a secret",
        })
    }
}
