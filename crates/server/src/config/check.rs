//! What must hold between settings, and between settings and the disk. Where two places are at odds,
//! the message names both.

use super::draft::Draft;
use super::problem::Wrong;
use super::read::Path as At;
use super::value::Written;
use super::{Access, ControlSocket, Host, Listen};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// Line and column.
type Place = Option<(usize, usize)>;

/// Finds where something stands by its [`exact`](At::exact) path.
type Find<'f> = &'f dyn Fn(&str) -> Place;

impl Draft {
    /// What is wrong between its settings, each with where it stands. Touches no file.
    pub fn problems(&self, find: Find<'_>) -> Vec<(At, Wrong)> {
        let mut wrong = Vec::new();
        self.check_hosts(find, &mut wrong);
        self.check_addresses(find, &mut wrong);
        self.check_roots(&mut wrong);
        wrong
    }

    /// No two sites answer for a host, or have a name.
    fn check_hosts(&self, find: Find<'_>, wrong: &mut Vec<(At, Wrong)>) {
        let mut hosts: HashMap<&Host, (&str, At)> = HashMap::new();
        let mut names: HashMap<&str, At> = HashMap::new();
        let mut default: Option<(&str, At)> = None;
        for (path, site) in self.all_sites() {
            for (index, host) in site.hosts.iter().enumerate() {
                let at = path.child("hosts").item(index);
                if let Some((by, first)) = hosts.get(host) {
                    let (found, by) = (format!("{:?}", host.text()), format!("the site {by:?}"));
                    let place = find(&first.exact);
                    wrong.push((at, Wrong::Taken { found, by, place }));
                } else {
                    hosts.insert(host, (site.name(), at));
                }
            }
            if site.hosts.is_empty() {
                match &default {
                    Some((first, at)) => {
                        let (first, place) = ((*first).to_owned(), find(&at.exact));
                        wrong.push((path.clone(), Wrong::SecondDefault { first, place }));
                        continue;
                    }
                    None => default = Some((site.name(), path.clone())),
                }
            }
            let at = path.child("name");
            if let Some(first) = names.get(site.name()) {
                let found = format!("the name {:?}", site.name());
                let by = "another site".to_owned();
                wrong.push((at, Wrong::Taken { found, by, place: find(&first.exact) }));
            } else {
                names.insert(site.name(), at);
            }
        }
        if !self.sites.is_empty() {
            let top = At::default();
            if self.site.name.is_some() {
                wrong.push((top.child("name"), Wrong::BelongsToSite));
            }
            if !self.site.hosts.is_empty() {
                wrong.push((top.child("hosts"), Wrong::BelongsToSite));
            }
        }
    }

    /// No two sockets want the same address.
    fn check_addresses(&self, find: Find<'_>, wrong: &mut Vec<(At, Wrong)>) {
        let mut known: Vec<(&Listen, At)> = Vec::new();
        for (path, listener) in self.all_listeners() {
            if listener.listen.is_empty() {
                let example = "listen = [\"127.0.0.1:8080\"]".to_owned();
                wrong.push((path.child("listen"), Wrong::Missing { example }));
            }
            for (index, listen) in listener.listen.iter().enumerate() {
                let at = path.child("listen").item(index);
                let other = known.iter().find(|(other, _)| overlap(listen, other));
                if let Some((other, first)) = other {
                    let (found, other) = (listen.to_string(), other.to_string());
                    wrong.push((at, Wrong::Overlap { found, other, place: find(&first.exact) }));
                } else {
                    known.push((listen, at));
                }
            }
        }
        let Some(admin) = self.process.admin.listen.0.map(Listen::At) else { return };
        if let Some((other, first)) = known.iter().find(|(other, _)| overlap(&admin, other)) {
            let (found, other) = (admin.to_string(), other.to_string());
            let at = At::default().child("admin.listen");
            wrong.push((at, Wrong::Overlap { found, other, place: find(&first.exact) }));
        }
    }

    /// Every site has something to answer with.
    fn check_roots(&self, wrong: &mut Vec<(At, Wrong)>) {
        for (path, site) in self.all_sites() {
            if site.root.is_none() && !site.answers_without_root(&self.site) {
                let example = "root = \"/srv/www\"".to_owned();
                wrong.push((path.child("root"), Wrong::Missing { example }));
            }
        }
    }

    /// Makes relative paths relative to `directory`.
    pub fn rebase(&mut self, directory: &Path) {
        // taking a path apart leaves out each "." within it
        let join = |path: &mut PathBuf| *path = directory.join(&*path).components().collect();
        for site in std::iter::once(&mut self.site).chain(&mut self.sites) {
            site.root.iter_mut().for_each(join);
            if let Access::File(path) = &mut site.log.access {
                join(path);
            }
        }
        for listener in std::iter::once(&mut self.listener).chain(&mut self.listeners) {
            for listen in &mut listener.listen {
                if let Listen::Unix(path) = listen {
                    join(path);
                }
            }
        }
        if let ControlSocket::At(path) = &mut self.process.control.socket {
            join(path);
        }
        self.process.sandbox.read.iter_mut().for_each(join);
    }

    /// What the disk lacks for this configuration: where it is asked for, and what is wrong.
    pub fn missing_files(&self) -> Vec<(At, Wrong)> {
        let mut wrong = Vec::new();
        let mut directory = |at: At, path: &Path| {
            if let Err(error) = check_directory(path) {
                wrong.push((at, Wrong::NoDirectory { path: path.to_owned(), error }));
            }
        };
        for (path, site) in self.all_sites() {
            if let Some(root) = &site.root {
                directory(path.child("root"), root);
            }
            if let Access::File(file) = &site.log.access {
                directory(path.child("log.access"), parent(file));
            }
        }
        wrong
    }
}

/// The directory a file is in.
fn parent(file: &Path) -> &Path {
    file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn check_directory(path: &Path) -> io::Result<()> {
    if std::fs::metadata(path)?.is_dir() {
        Ok(())
    } else {
        Err(io::ErrorKind::NotADirectory.into())
    }
}

/// Whether the two want the same port of the same address. Port 0 is another one each time.
fn overlap(one: &Listen, other: &Listen) -> bool {
    if let (Listen::Unix(one), Listen::Unix(other)) = (one, other) {
        return one == other;
    }
    let share = |one: &SocketAddr| {
        addresses(other).iter().any(|other| {
            let same_family = one.is_ipv4() == other.is_ipv4();
            let any = one.ip().is_unspecified() || other.ip().is_unspecified();
            let same = one.ip() == other.ip() || (same_family && any);
            one.port() == other.port() && one.port() != 0 && same
        })
    };
    addresses(one).iter().any(share)
}

fn addresses(listen: &Listen) -> Vec<SocketAddr> {
    match listen {
        Listen::At(address) => vec![*address],
        Listen::All(port) => {
            let any = [IpAddr::from(Ipv4Addr::UNSPECIFIED), Ipv6Addr::UNSPECIFIED.into()];
            any.iter().map(|ip| (*ip, *port).into()).collect()
        }
        Listen::Unix(_) => Vec::new(),
    }
}
