//! What must be on disk: directories and files that exist, and places where the server can make some.

use super::LintSubject;
use crate::ban_files::{self, BanFileError};
use forebay_config::path::Path as At;
use forebay_config::problem::{Finding, Wrong};
use forebay_config::{
    AccessLog, AdminConfig, ClientCertificates, ConfigDraft, ControlSocketChoice, KeyPairs, Listen,
    Remarks, Role, SiteConfig, StageKeyFiles,
};
use forebay_handler::certificates::{self, CertificateError, Tokens, TokensError};
use forebay_handler::identity::{Keys, KeysError};
use forebay_sys::file::open_regular;
use forebay_sys::unix_address::UnixAddress;
use forebay_sys::{file, process};
use forebay_upstream::settings::UpstreamTlsSettings;
use forebay_upstream::spool::Spool;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::{fmt, io};

/// Finds sockets that cannot be made, as far as this process can tell. The check may run as another
/// user than the server, so a configured user is assumed to have the rights.
pub(super) fn sockets(of: &LintSubject<'_>, wrong: &mut Remarks) {
    let mut sockets = Vec::new();
    for (path, listener) in of.draft.all_listeners() {
        for (index, endpoint) in listener.listen.iter().enumerate() {
            if let Listen::Unix(UnixAddress::Path(socket)) = &endpoint.listen {
                sockets.push((path.child("listen").item(index), socket.clone(), false));
            }
        }
    }
    for (at, endpoint) in of.draft.admin_endpoints(Some(of.text)) {
        if let Listen::Unix(UnixAddress::Path(socket)) = &endpoint.listen {
            sockets.push((at, socket.clone(), false));
        }
    }
    if let ControlSocketChoice::At(socket) = &of.draft.process.control.socket {
        sockets.push((At::default().child("control").child("socket"), socket.clone(), true));
    }
    let is_another_user = of.draft.process.user.is_some() && process::user() != 0;
    let unusable = sockets.into_iter().filter_map(|(at, socket, is_made)| {
        // a service manager may have made the socket where the server itself could not
        if std::fs::symlink_metadata(&socket).is_ok() {
            return None;
        }
        let (path, error) = no_room_for(&socket, is_made)?;
        let is_believed = is_another_user && error.kind() == io::ErrorKind::PermissionDenied;
        (!is_believed).then_some((at, Wrong::said(UnusableFile::NoSocketDirectory { path, error })))
    });
    wrong.extend(unusable);
}

/// Finds missing or unusable files.
pub(super) fn files(of: &LintSubject<'_>, wrong: &mut Remarks) {
    wrong.extend(missing_files(of.draft));
}

/// The findings of `files` without the text of the file: the position of each setting, and what is wrong.
pub fn missing_files(draft: &ConfigDraft) -> Remarks {
    let mut wrong = Vec::new();
    // a setting that several sites inherit is reported once
    let mut told: HashSet<&Path> = HashSet::new();
    let mut told_links: HashSet<PathBuf> = HashSet::new();
    let mut told_upstreams: HashSet<UpstreamTlsSettings> = HashSet::new();
    for (path, site) in draft.every_site() {
        if let Some(root) = &site.root
            && let Err(error) = check_directory(root)
            && told.insert(root)
        {
            let root = root.clone();
            wrong.push((path.child("root"), no_directory(root, error)));
        }
        for (index, alias) in site.aliases.iter().enumerate() {
            if let Some(file) = alias.file() {
                if let Err(error) = open_regular(&file) {
                    let at = path.child("alias").item(index).child("file");
                    wrong.push((at, Wrong::NoFile { path: file, error }));
                }
                continue;
            }
            if let Err(error) = check_directory(&alias.to) {
                let at = path.child("alias").item(index).child("to");
                wrong.push((at, no_directory(alias.to.clone(), error)));
            }
        }
        for (index, link) in site.links.iter().enumerate() {
            let link = site.root.as_deref().map(|root| link.below(root));
            if let Some(link) = link
                && let Err(error) = check_directory(&link)
                && told_links.insert(link.clone())
            {
                let at = path.child("links").item(index);
                wrong.push((at, no_directory(link, error)));
            }
        }
        if let AccessLog::File(file) = &site.log.access
            && let Some(error) = wrong_log(file)
            && told.insert(file)
        {
            wrong.push((path.child("log.access"), error));
        }
        missing_pairs(&path, &site.tls.pairs, &mut told, &mut wrong);
        missing_clients(&path, &site.tls.clients, &mut told, &mut wrong);
        missing_for_upstreams(&path, site, &mut told_upstreams, &mut wrong);
        for (index, rule) in site.auth.iter().enumerate() {
            if let Some(file) = &rule.file
                && let Err(error) = open_regular(file)
            {
                let at = path.child("auth").item(index).child("file");
                wrong.push((at, Wrong::NoFile { path: file.clone(), error }));
            }
        }
    }
    missing_acme(draft, &mut wrong);
    let AdminConfig { token_file, pairs, .. } = &draft.process.admin;
    let admin = At::default().child("admin");
    missing_pairs(&admin, pairs, &mut told, &mut wrong);
    if let Some(path) = token_file
        && let Err(error) = Tokens::open(path)
    {
        let unusable = UnusableFile::Tokens { path: path.clone(), error };
        wrong.push((admin.child("token_file"), Wrong::said(unusable)));
    }
    if let Some(path) = &draft.process.identity.keys
        && let Err(error) = Keys::open(path)
    {
        let unusable = UnusableFile::Keys { path: path.clone(), error };
        let at = At::default().child("identity").child("keys");
        wrong.push((at, Wrong::said(unusable)));
    }
    for (index, path) in draft.process.ban_files.iter().enumerate() {
        if let Err(error) = ban_files::read_one(path) {
            let at = At::default().child("policy").child("ban_files").item(index);
            wrong.push((at, Wrong::said(UnusableFile::Bans(error))));
        }
    }
    let isolated = &draft.process.isolated;
    for role in Role::ALL.into_iter().filter(|role| isolated.shows_keys(*role)) {
        let Some(StageKeyFiles { authority, certificate, key }) = isolated.key_files(role) else {
            continue;
        };
        let (at, before) = (At::default().child("isolated").child("keys"), wrong.len());
        for path in [&authority, &certificate, &key] {
            if let Err(error) = open_regular(path) {
                wrong.push((at.clone(), Wrong::NoFile { path: path.clone(), error }));
            }
        }
        let pairs = KeyPairs { certificates: vec![certificate], keys: vec![key] };
        // read only if all three can be opened: a missing file is reported once
        if wrong.len() == before
            && let Err(error) = certificates::pairs(&pairs)
        {
            wrong.push((at, wrong_certificate(error.to_string())));
        }
    }
    if let Some(path) = &draft.process.spool_dir
        && let Err(error) = check_directory(path)
    {
        wrong.push((At::default().child("spool_dir"), no_directory(path.clone(), error)));
    }
    wrong
}

/// Finds a directory in which request bodies cannot be stored, as far as this process can tell.
pub(super) fn spool(of: &LintSubject<'_>, wrong: &mut Remarks) {
    let Some(path) = &of.draft.process.spool_dir else { return };
    let is_another_user = of.draft.process.user.is_some() && process::user() != 0;
    let Ok(spool) = Spool::open(path, 0, 0) else { return };
    if let Err(error) = spool.try_out() {
        let is_believed = is_another_user && error.kind() == io::ErrorKind::PermissionDenied;
        if !is_believed {
            let at = At::default().child("spool_dir");
            wrong.push((at, Wrong::said(UnusableFile::NoSpool(error))));
        }
    }
}

/// Finds a directory whose files take memory, such as one on tmpfs: in `/tmp` and `/run` of most machines.
pub(super) fn spool_in_memory(of: &LintSubject<'_>, remarks: &mut Remarks) {
    let Some(path) = &of.draft.process.spool_dir else { return };
    if Spool::open(path, 0, 0).is_ok_and(|spool| spool.is_in_memory()) {
        let at = At::default().child("spool_dir");
        remarks.push((at, Wrong::said(UnusableFile::SpoolInMemory { path: path.clone() })));
    }
}

/// Checks the file of certificate authorities that are trusted for ACME.
fn missing_acme(draft: &ConfigDraft, wrong: &mut Remarks) {
    let acme = &draft.process.acme;
    let at = At::default().child("acme");
    if let Some(path) = &acme.ca {
        match std::fs::read(path) {
            Err(error) => {
                wrong.push((at.child("ca"), Wrong::NoFile { path: path.clone(), error }));
            }
            Ok(bytes) if forebay_tls::Roots::of_pem(&bytes).is_none() => {
                let words = format!("there is no certificate in {path:?}");
                wrong.push((at.child("ca"), wrong_certificate(words)));
            }
            Ok(_) => {}
        }
    }
}

/// Finds a directory for certificates that this user could not make or write to.
pub(super) fn storage(of: &LintSubject<'_>, remarks: &mut Remarks) {
    let is_wanted = of.draft.all_sites().iter().any(|(_, site)| site.has_acme());
    if let Some(storage) = of.draft.process.acme.storage.as_deref().filter(|_| is_wanted)
        && let Some((path, error)) = no_room_for(&storage.join("x"), true)
    {
        let at = At::default().child("acme.storage");
        remarks.push((at, no_directory(path, error)));
    }
}

/// A file or a directory that cannot be used for its purpose.
#[derive(Debug)]
enum UnusableFile {
    /// A directory that the configuration names cannot be used.
    NoDirectory {
        /// The path of the directory.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// A certificate or its key is wrong.
    Certificate(String),
    /// The tokens of the admin listener cannot be used.
    Tokens { path: PathBuf, error: TokensError },
    /// The keys of identities cannot be used.
    Keys { path: PathBuf, error: KeysError },
    /// The list of banned clients cannot be used.
    Bans(BanFileError),
    /// A socket cannot be made in this directory.
    NoSocketDirectory {
        /// The directory.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// Request bodies cannot be stored on disk.
    NoSpool(io::Error),
    /// Request bodies would be stored in memory.
    SpoolInMemory {
        /// The directory.
        path: PathBuf,
    },
    /// A directory exists at the path of a log.
    LogIsDirectory {
        /// The path of the directory.
        path: PathBuf,
    },
}

impl Finding for UnusableFile {}

impl fmt::Display for UnusableFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnusableFile::NoDirectory { path, error } => {
                write!(f, "cannot use the directory {path:?}: {error}")
            }
            UnusableFile::Certificate(error) => f.write_str(error),
            UnusableFile::Tokens { path, error } => write!(f, "the tokens in {path:?}: {error}"),
            UnusableFile::Keys { path, error } => write!(f, "the keys in {path:?}: {error}"),
            UnusableFile::Bans(error) => error.fmt(f),
            UnusableFile::NoSocketDirectory { path, error } => {
                write!(f, "a socket cannot be made in the directory {path:?}: {error}")
            }
            UnusableFile::NoSpool(error) if error.kind() == io::ErrorKind::Unsupported => {
                f.write_str(
                    "its file system has no files without a name (O_TMPFILE), of which nothing is left when the \
                     server is killed: name a directory on one that has, such as ext4, XFS or Btrfs",
                )
            }
            UnusableFile::NoSpool(error) => write!(f, "files cannot be made there: {error}"),
            UnusableFile::SpoolInMemory { path } => write!(
                f,
                "what is in {path:?} is in memory (tmpfs), up to spool_dir_bytes of it: name a directory on a disk"
            ),
            UnusableFile::LogIsDirectory { path } => {
                write!(f, "{path:?} is a directory, name a file in it")
            }
        }
    }
}

fn no_directory(path: PathBuf, error: io::Error) -> Wrong {
    Wrong::said(UnusableFile::NoDirectory { path, error })
}

fn wrong_certificate(error: String) -> Wrong {
    Wrong::said(UnusableFile::Certificate(error))
}

/// Finds certificates and keys of a section that cannot be read or are invalid.
fn missing_pairs<'p>(
    section: &At,
    pairs: &'p KeyPairs,
    told: &mut HashSet<&'p Path>,
    wrong: &mut Remarks,
) {
    let KeyPairs { certificates, keys } = pairs;
    for (key, files) in [("tls.certificate", certificates), ("tls.key", keys)] {
        for (index, file) in files.iter().enumerate() {
            if let Err(error) = open_regular(file)
                && told.insert(file)
            {
                let at = section.child(key).item(index);
                wrong.push((at, Wrong::NoFile { path: file.clone(), error }));
            }
        }
    }
    if let Err(error @ (CertificateError::Pair { .. } | CertificateError::Names { .. })) =
        certificates::pairs(pairs)
        && told.insert(&certificates[0])
    {
        wrong.push((section.child("tls.certificate"), wrong_certificate(error.to_string())));
    }
}

/// Finds authorities for client certificates, and their lists of revoked ones, that
/// cannot be read or are invalid.
fn missing_clients<'p>(
    section: &At,
    clients: &'p ClientCertificates,
    told: &mut HashSet<&'p Path>,
    wrong: &mut Remarks,
) {
    let ClientCertificates { authorities, revoked, .. } = clients;
    for (key, files) in [("tls.client_ca", authorities), ("tls.client_crl", revoked)] {
        for (index, file) in files.iter().enumerate() {
            let error = match open_regular(file) {
                Err(error) => Wrong::NoFile { path: file.clone(), error },
                Ok(_) if key == "tls.client_ca" => match certificates::authorities(file) {
                    Err(error) => wrong_certificate(error.to_string()),
                    Ok(_) => continue,
                },
                Ok(_) => match certificates::revoked(file) {
                    Err(error) => wrong_certificate(error.to_string()),
                    Ok(_) => continue,
                },
            };
            if told.insert(file) {
                wrong.push((section.child(key).item(index), error));
            }
        }
    }
}

/// Finds what is missing for TLS with the applications of a site.
fn missing_for_upstreams(
    section: &At,
    site: &SiteConfig,
    told: &mut HashSet<UpstreamTlsSettings>,
    wrong: &mut Remarks,
) {
    for (list, index, tls) in site.upstream_tls() {
        if !told.insert(tls.clone()) {
            continue;
        }
        let route = section.child(list).item(index);
        let shown = tls.shows.iter().flat_map(|(certificate, key)| {
            [(route.child("tls.certificate"), certificate), (route.child("tls.key"), key)]
        });
        let authorities = tls.authorities.iter().enumerate();
        let authorities =
            authorities.map(|(number, file)| (route.child("tls.ca").item(number), file));
        let before = wrong.len();
        for (at, file) in authorities.chain(shown) {
            if let Err(error) = open_regular(file) {
                wrong.push((at, Wrong::NoFile { path: file.clone(), error }));
            }
        }
        if wrong.len() > before {
            continue;
        }
        if let Err(error) = certificates::of_upstreams(&tls) {
            let key = match &error {
                CertificateError::SystemRoots(_) => "to",
                CertificateError::NoAuthority { .. } => "tls.ca",
                _ => "tls.certificate",
            };
            wrong.push((route.child(key), wrong_certificate(error.to_string())));
        }
    }
}

/// The reason why no log can be at `file`, if there is one. A log can be made if its directory
/// exists, and `file` is not a directory.
fn wrong_log(file: &Path) -> Option<Wrong> {
    if file.is_dir() {
        return Some(Wrong::said(UnusableFile::LogIsDirectory { path: file.to_owned() }));
    }
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let path = parent.unwrap_or(Path::new(".")).to_owned();
    check_directory(&path).err().map(|error| no_directory(path, error))
}

/// The reason why no socket can be made at `path`, if there is one. `is_made` means that the server
/// makes missing directories.
fn no_room_for(path: &Path, is_made: bool) -> Option<(PathBuf, io::Error)> {
    let parents = path.ancestors().skip(1).map(|parent| match parent {
        parent if parent.as_os_str().is_empty() => Path::new("."),
        parent => parent,
    });
    for directory in parents {
        let error = match check_directory(directory).and_then(|()| file::may_write(directory)) {
            Ok(()) => return None,
            Err(error) => error,
        };
        if !is_made || error.kind() != io::ErrorKind::NotFound {
            return Some((directory.to_owned(), error));
        }
    }
    None
}

/// Checks that this is a directory.
fn check_directory(path: &Path) -> io::Result<()> {
    if std::fs::metadata(path)?.is_dir() {
        Ok(())
    } else {
        Err(io::ErrorKind::NotADirectory.into())
    }
}
