//! Applications that cannot be reached, as far as this machine shows. Nothing is tried over the
//! network here, and a missing socket may be made later.

use super::LintSubject;
use forebay_config::applications::{addresses, passed_to};
use forebay_config::problem::{Finding, Wrong};
use forebay_config::{Account, ConfigDraft, Remarks};
use forebay_site::rules::Alias;
use forebay_sys::file::open_regular;
use forebay_sys::unix_address::UnixAddress;
use forebay_sys::{file, privileges};
use forebay_upstream::settings::UpstreamAddress;
use std::collections::HashSet;
use std::fmt;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A socket of an application that cannot be used.
#[derive(Debug)]
enum SocketRemark {
    /// There is no socket of an application, or the server may not use it.
    Unusable {
        /// The path of the socket.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// The user that the server becomes may not use the socket of an application.
    NotForUser {
        /// The path of the socket.
        path: PathBuf,
        /// The user.
        user: String,
    },
}

impl Finding for SocketRemark {}

impl fmt::Display for SocketRemark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SocketRemark::Unusable { path, error } => write!(
                f,
                "the socket {path:?} cannot be used: {error}; until it can, requests get 502"
            ),
            SocketRemark::NotForUser { path, user } => write!(
                f,
                "the user {user:?} may not write to the socket {path:?}, so requests get 502: let the \
                 application make it for a group of that user"
            ),
        }
    }
}

/// Finds sockets of applications that do not exist or that the server may not use.
pub(super) fn sockets(of: &LintSubject<'_>, remarks: &mut Remarks) {
    // an application that several sections name is reported once
    let mut told: HashSet<&Path> = HashSet::new();
    let sites = of.draft.every_site();
    let of_sites = sites.iter().flat_map(|(at, site)| addresses(of.text, at, site));
    for (place, address) in of_sites.chain(passed_to(of.text, of.draft)) {
        if let UpstreamAddress::Unix(UnixAddress::Path(path)) = address
            && !of.draft.listens_at(address)
            && told.insert(path)
        {
            remarks.extend(unusable(of.draft, path).map(|wrong| (place, wrong)));
        }
    }
}

/// The reason why a socket cannot be used, if there is one.
fn unusable(draft: &ConfigDraft, path: &Path) -> Option<Wrong> {
    let no_socket =
        |error| Some(Wrong::said(SocketRemark::Unusable { path: path.to_owned(), error }));
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) => return no_socket(error),
    };
    if !metadata.file_type().is_socket() {
        return no_socket(io::Error::new(io::ErrorKind::InvalidInput, "it is no socket"));
    }
    match draft.process.user.as_ref().map(Account::as_str) {
        // the server will run as another user than this check, so the mode is compared
        Some(name) => {
            let user = privileges::user(name).ok()??;
            let may = |bits: u32| metadata.mode() & bits != 0;
            let is_able = user.user == 0
                || may(0o002)
                || (metadata.uid() == user.user && may(0o200))
                || (user.groups.contains(&metadata.gid()) && may(0o020));
            let user = name.to_owned();
            (!is_able)
                .then(|| Wrong::said(SocketRemark::NotForUser { path: path.to_owned(), user }))
        }
        None => file::may_connect(path).err().and_then(no_socket),
    }
}

/// Finds scripts that answer where no file does, and that do not exist.
pub(super) fn front_controllers(of: &LintSubject<'_>, remarks: &mut Remarks) {
    let mut told: HashSet<PathBuf> = HashSet::new();
    for (at, site) in of.draft.all_sites() {
        let mounts: Vec<Alias> = site.mounts().collect();
        for (index, fastcgi) in site.fastcgi.iter().enumerate() {
            let Some(script) = fastcgi.route().scripts.and_then(|scripts| scripts.fallback) else {
                continue;
            };
            let beneath = |alias: &&Alias| {
                let inside = script.as_str().strip_prefix(alias.path().as_str());
                inside.is_some_and(|inside| inside.starts_with('/'))
            };
            let longest = mounts.iter().filter(beneath).max_by_key(|a| a.path().as_str().len());
            let path = match (longest, &site.root) {
                (Some(alias), _) => {
                    let inside = &script.as_str()[alias.path().as_str().len()..];
                    alias.to.join(inside.trim_start_matches('/'))
                }
                (None, Some(root)) => script.below(root),
                (None, None) => continue,
            };
            if let Err(error) = open_regular(&path)
                && told.insert(path.clone())
            {
                let at = at.child("fastcgi").item(index).child("try");
                remarks.push((at, Wrong::NoFile { path, error }));
            }
        }
    }
}
