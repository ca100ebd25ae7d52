//! Files of a site that its settings name and that do not exist.

use super::LintSubject;
use forebay_config::pages::{fixed, locate};
use forebay_config::path::Path as At;
use forebay_config::{Remarks, Wrong};
use forebay_site::rules::{Alias, TryFile};
use forebay_sys::file::{self, FileKind};
use std::collections::HashSet;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Finds missing error pages, missing last pages of `try_files`, and missing targets of rewrites.
pub(super) fn pages(of: &LintSubject<'_>, remarks: &mut Remarks) {
    // a page that several sites inherit is reported once
    let mut told: HashSet<(PathBuf, String)> = HashSet::new();
    for (at, site) in of.draft.all_sites() {
        let inherited = of.draft.site.aliases.iter().cloned();
        let mounts: Vec<Alias> = site.mounts().chain(inherited).collect();
        let mut look = |at: At, path: &str, open: fn(&Path, &str) -> io::Result<()>| {
            let Some((directory, inside)) = locate(site, &mounts, path) else { return };
            if told.insert((directory.to_owned(), inside.to_owned()))
                && let Err(error) = open(directory, inside)
            {
                let path = PathBuf::from(format!("{}{inside}", directory.display()));
                remarks.push((at, Wrong::NoFile { path, error }));
            }
        };
        for page in &site.errors.0 {
            let at = at.child("errors").child(&page.status().to_string());
            look(at, page.path(), open_page);
        }
        let candidates = site.try_files.candidates();
        if let Some(TryFile::Path(template)) = candidates.last()
            && let Some(path) = fixed(template)
        {
            look(at.child("try_files").item(candidates.len() - 1), path, find);
        }
        // with `try_files`, the target of a rewrite need not exist: one of the candidates may
        let inherited = of.draft.site.rewrites.iter().enumerate();
        let inherited = inherited.filter(|_| !of.draft.sites.is_empty());
        let own = site.rewrites.iter().enumerate().map(|rule| (&at, rule));
        let top = At::default();
        for (at, (index, rule)) in own.chain(inherited.map(|rule| (&top, rule))) {
            if let Some(path) = fixed(rule.to()).filter(|_| candidates.is_empty()) {
                look(at.child("rewrite").item(index).child("to"), path, find);
            }
        }
    }
}

/// Opens an error page as the server does: only beneath its root, and without blocking.
fn open_page(root: &Path, path: &str) -> io::Result<()> {
    let root = file::open_directory(root)?;
    let path = path.trim_start_matches('/').as_bytes();
    let found = file::find_beneath(root.as_fd(), path)?;
    if file::stamp(found.as_fd())?.kind != FileKind::Regular {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    file::open_beneath(root.as_fd(), path).map(drop)
}

/// Finds a file or a directory as the server does.
pub(super) fn find(root: &Path, path: &str) -> io::Result<()> {
    let root = file::open_directory(root)?;
    let path = match path.trim_matches('/') {
        "" => ".",
        path => path,
    };
    file::find_beneath(root.as_fd(), path.as_bytes()).map(drop)
}
