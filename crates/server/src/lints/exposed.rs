//! Files that are not for clients, in directories that are served: `forebay check` warns of them. A
//! log there is an error, because it holds data of other clients.

use super::LintSubject;
use forebay_config::path::Path as At;
use forebay_config::problem::{Finding, Wrong};
use forebay_config::{AccessLog, AdminConfig, ConfigDraft, KeyPairs, Remarks, SiteConfig};
use forebay_site::rules::{AccessRule, GuardedPaths, Network};
use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Clients could read the configuration file itself.
#[derive(Debug)]
struct ServedConfiguration {
    /// The path of the file.
    path: PathBuf,
}

impl Finding for ServedConfiguration {}

impl fmt::Display for ServedConfiguration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ServedConfiguration { path } = self;
        write!(f, "clients could read {path:?}, which is this configuration")
    }
}

/// Clients could read the source of a program, because files are served before the application is asked.
#[derive(Debug)]
struct ServedSource {
    /// The path of the source.
    path: PathBuf,
}

impl Finding for ServedSource {}

impl fmt::Display for ServedSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ServedSource { path } = self;
        write!(
            f,
            "clients could read {path:?}, which is source: a file of the root answers before the application; keep \
             sources outside of the root, run them by a [[fastcgi]], or deny them by an [[access]]"
        )
    }
}

/// File name extensions of programs that web servers run.
const SOURCES: [&str; 4] = ["php", "phtml", "phar", "php8"];
/// The limits of the search for sources: levels of directories, with the root as the first, and
/// names in one root.
const SOURCE_LEVELS: usize = 3;
const MOST_SOURCE_NAMES: usize = 1000;

/// A directory whose files clients may read.
struct ServedDirectory<'d> {
    /// The path as the configuration has it.
    shown: &'d Path,
    /// The path with symbolic links resolved.
    real: PathBuf,
    at: At,
    /// Whether files that begin with a dot are served, too.
    hidden: bool,
    /// The site's path at which the directory is served, without a slash at its end.
    beneath: &'d str,
    /// The paths that the site's rules deny to all clients.
    closed: Vec<&'d GuardedPaths>,
}

/// Finds the configuration file, files of users, and private keys.
pub(super) fn secret_files(of: &LintSubject<'_>, remarks: &mut Remarks) {
    let (sites, served) = (of.draft.every_site(), served(of.draft));
    let find = |file: &Path| {
        let file = fs::canonicalize(file).ok()?;
        served.iter().find(|directory| directory.shows(&file))
    };
    // of many included files in one directory, one is enough
    let mut looked_at = HashSet::new();
    let origin = of.text.origin();
    let included = origin.included.iter().filter(|file| looked_at.insert(file.parent()));
    let included = included.chain(&origin.links).map(PathBuf::as_path);
    let itself = std::iter::once(Path::new(of.text.file())).chain(included);
    if let Some((itself, directory)) = itself.filter_map(|file| Some((file, find(file)?))).next() {
        let wrong = Wrong::said(ServedConfiguration { path: itself.to_owned() });
        remarks.push((directory.at.clone(), wrong));
    }
    let of_text = of.text.secrets().iter().map(|(at, file)| (at.clone(), file.as_path()));
    // a file that several sites name is reported once
    let mut told = HashSet::new();
    let of_sites = sites.iter().flat_map(|(at, site)| secrets(at, site));
    for (at, file) in of_sites.chain(own_secrets(of.draft)).chain(of_text) {
        if let Some(directory) = find(file).filter(|_| told.insert(file)) {
            let (path, place) = (file.to_owned(), of.text.place(&directory.at.exact));
            let directory = directory.shown.to_owned();
            remarks.push((at, Wrong::Served { path, directory, place }));
        }
    }
}

/// Finds logs in a directory that is served, through symbolic links and `..`, too. Where the names
/// alone show it, the text's own checks have found it already.
pub(super) fn logs(of: &LintSubject<'_>, wrong: &mut Remarks) {
    let served = served(of.draft);
    // a log that several sites name is reported once
    let mut told = HashSet::new();
    for (at, site) in of.draft.every_site() {
        let AccessLog::File(log) = &site.log.access else { continue };
        let places = real_places(log);
        let has_it = |directory: &&ServedDirectory<'_>| {
            places.iter().any(|place| place.starts_with(&directory.real))
        };
        if let Some(directory) = served.iter().find(has_it).filter(|_| told.insert(log)) {
            let (path, place) = (log.clone(), of.text.place(&directory.at.exact));
            let directory = directory.shown.to_owned();
            wrong.push((at.child("log.access"), Wrong::Served { path, directory, place }));
        }
    }
}

/// Finds sources in the roots of sites that serve files before an application is
/// asked: the first of each root.
pub(super) fn sources(of: &LintSubject<'_>, remarks: &mut Remarks) {
    for (at, site) in of.draft.every_site() {
        let first = site.proxies.iter().position(|proxy| proxy.route().files_first);
        let Some((first, directory)) = first.zip(root(&at, site)) else { continue };
        let is_run = |file: &Path| {
            let path =
                [b"/", file.strip_prefix(&directory.real).unwrap_or(file).as_os_str().as_bytes()];
            let mut scripts = site.fastcgi.iter().filter_map(|fastcgi| fastcgi.route().scripts);
            scripts.any(|scripts| scripts.ending.is_of(&path.concat()))
        };
        let mut names = MOST_SOURCE_NAMES;
        let found = source_in(&directory.real, SOURCE_LEVELS, &mut names, &|file| {
            directory.shows(file) && !is_run(file)
        });
        if let Some(path) = found {
            let at = at.child("proxy").item(first).child("files_first");
            remarks.push((at, Wrong::said(ServedSource { path })));
        }
    }
}

/// The first source for which `is_it` holds in a directory, or beneath it.
fn source_in(
    directory: &Path,
    levels: usize,
    names: &mut usize,
    is_it: &impl Fn(&Path) -> bool,
) -> Option<PathBuf> {
    let mut found: Vec<_> =
        fs::read_dir(directory).ok()?.flatten().take(*names).map(|entry| entry.path()).collect();
    *names -= found.len();
    found.sort();
    let is_source = |path: &&PathBuf| {
        let ending = path.extension().and_then(|ending| ending.to_str());
        ending.is_some_and(|ending| SOURCES.contains(&ending)) && path.is_file() && is_it(path)
    };
    if let Some(source) = found.iter().find(is_source) {
        return Some(source.clone());
    }
    let directories = found.iter().filter(|path| path.is_dir() && !path.is_symlink());
    let mut below = directories.take(if levels > 1 { usize::MAX } else { 0 });
    below.find_map(|directory| source_in(directory, levels - 1, names, is_it))
}

/// The directories that are served, as far as they exist.
fn served(draft: &ConfigDraft) -> Vec<ServedDirectory<'_>> {
    // where there are sites, a root at the top level is only their default
    let (all, every) = (draft.all_sites(), draft.every_site());
    let roots = all.iter().filter_map(|(at, site)| root(at, site));
    let aliases = every.iter().flat_map(|(at, site)| aliases(at, site));
    roots.chain(aliases).collect()
}

/// Files outside of all sites that only the server may read, each with its position in the configuration.
fn own_secrets(draft: &ConfigDraft) -> Vec<(At, &Path)> {
    let AdminConfig { token_file, pairs, .. } = &draft.process.admin;
    let at = At::default().child("admin");
    let tokens = token_file.iter().map(|file| (at.child("token_file"), &**file));
    let identity = At::default().child("identity").child("keys");
    let of_identities = draft.process.identity.keys.iter().map(|file| (identity.clone(), &**file));
    tokens.chain(keys(&at, pairs)).chain(of_identities).collect()
}

/// The real paths of a log: its directory, and the target if the log itself is a symbolic link.
fn real_places(log: &Path) -> Vec<PathBuf> {
    let directory = log.parent().filter(|directory| !directory.as_os_str().is_empty());
    let places = [directory.unwrap_or(Path::new(".")), log];
    places.iter().filter_map(|place| fs::canonicalize(place).ok()).collect()
}

/// The root of a site, if there is one.
fn root<'s>(at: &At, site: &'s SiteConfig) -> Option<ServedDirectory<'s>> {
    ServedDirectory::new(("", site.root.as_deref()?), at.child("root"), site)
}

/// The directories of a site's aliases.
fn aliases<'s>(at: &At, site: &'s SiteConfig) -> impl Iterator<Item = ServedDirectory<'s>> {
    let at = at.child("alias");
    let aliases = site.aliases.iter().enumerate();
    // an alias for a single file serves nothing else of that file's directory
    let directories = aliases.filter(|(_, alias)| alias.file().is_none());
    directories.filter_map(move |(index, alias)| {
        let place = (alias.path().as_str(), &*alias.to);
        ServedDirectory::new(place, at.item(index).child("to"), site)
    })
}

/// Files of a site that only the server may read, each with its position in the configuration.
fn secrets<'s>(at: &At, site: &'s SiteConfig) -> Vec<(At, &'s Path)> {
    let users = site.auth.iter().enumerate().filter_map(|(index, rule)| {
        Some((at.child("auth").item(index).child("file"), rule.file.as_deref()?))
    });
    users.chain(keys(at, &site.tls.pairs)).collect()
}

/// The keys of a section, each with its position in the configuration.
fn keys<'s>(at: &At, pairs: &'s KeyPairs) -> impl Iterator<Item = (At, &'s Path)> {
    let at = at.child("tls.key");
    pairs.keys.iter().enumerate().map(move |(index, key)| (at.item(index), &**key))
}

impl<'d> ServedDirectory<'d> {
    /// The directory with its links resolved, if it exists.
    fn new(
        (beneath, shown): (&'d str, &'d Path),
        at: At,
        site: &'d SiteConfig,
    ) -> Option<ServedDirectory<'d>> {
        let real = fs::canonicalize(shown).ok()?;
        let nobody = |rule: &&AccessRule| {
            let is_all = |all| rule.deny.contains(&all);
            rule.allow.is_empty()
                && rule.conditions.is_empty()
                && Network::parse("all").is_ok_and(is_all)
        };
        let closed = site.access.iter().filter(nobody).map(|rule| &rule.paths).collect();
        Some(ServedDirectory { shown, real, at, hidden: site.hidden, beneath, closed })
    }

    /// Whether clients may read a file, whose path has no links.
    fn shows(&self, file: &Path) -> bool {
        let Ok(inside) = file.strip_prefix(&self.real) else { return false };
        let path = [self.beneath.as_bytes(), b"/", inside.as_os_str().as_bytes()].concat();
        if self.closed.iter().any(|paths| paths.contains(&path)) {
            return false;
        }
        self.hidden || !inside.iter().any(|part| part.as_bytes().starts_with(b"."))
    }
}
