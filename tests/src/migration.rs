//! Compares a configuration of nginx and the one of Forebay beside it, as a page of the manual prints
//! them, by the answers that a client gets.
//!
//! Both are started as printed, except for addresses and folders. Intended differences stand in tables of
//! the page, whose first column is `asked`; a star stands for anything. A difference that is in no table
//! fails the test, and so does a row beneath the headline of a case that does not occur.

pub use seen::{Seen, request, whole};

use crate::faults::site::Folder;
use crate::manual::{ManualPage, blocks, rows};
use crate::nginx::Nginx;
use crate::server::free_addr;
use crate::{ENGINES, ISOLATED, Options, Server, is_full_matrix};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;

mod seen;

use seen::Aspect;

/// A case: two configurations, and their differences.
#[derive(Debug)]
pub struct Migration {
    headline: String,
    nginx: String,
    forebay: String,
    root: Option<String>,
    own: Vec<Difference>,
    general: Vec<Difference>,
}

/// A row of a table: `asked`, `seen`, `nginx`, `Forebay`, and the reason.
#[derive(Clone, Debug)]
struct Difference {
    asked: String,
    seen: String,
    values: [String; 2],
}

impl Difference {
    fn of(cells: Vec<String>) -> Difference {
        let [asked, seen, nginx, forebay, why] =
            <[String; 5]>::try_from(cells).unwrap_or_else(|cells| panic!("{cells:?}"));
        assert!(!why.trim().is_empty(), "why is {seen} of {asked} different?");
        Difference { asked, seen, values: [nginx, forebay] }
    }

    fn is_about(&self, (asked, seen): &Aspect, values: [&str; 2]) -> bool {
        let pairs = self.values.iter().zip(values);
        fits(&self.asked, asked)
            && fits(&self.seen, seen)
            && pairs.into_iter().all(|(pattern, value)| fits(pattern, value))
    }
}

/// Whether a pattern with stars fits a text.
fn fits(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, after)) => text.strip_prefix(before).is_some_and(|rest| {
            let ends = (0..=rest.len()).filter(|at| rest.is_char_boundary(*at));
            ends.into_iter().any(|at| fits(after, &rest[at..]))
        }),
    }
}

/// One of the two servers, as a client reaches it.
#[derive(Clone, Copy, Debug)]
pub struct Reached<'a> {
    /// The address without TLS.
    pub addr: SocketAddr,
    /// The address with TLS, if there is one.
    pub sealed: SocketAddr,
    /// The server.
    pub server: &'a Either,
}

/// A server that is asked.
#[derive(Debug)]
pub enum Either {
    /// The old server.
    Nginx(Nginx),
    /// The new server.
    Forebay(Server),
}

impl Migration {
    /// Reads the case below this headline.
    ///
    /// # Panics
    /// If it is not there, or has not both configurations.
    pub fn read(page: &str, headline: &str) -> Migration {
        Migration::read_pair(page, headline, 0)
    }

    /// Reads the pair of this number, from 0, where there are several below a headline.
    ///
    /// # Panics
    /// The same as of [`Migration::read`].
    pub fn read_pair(page: &str, headline: &str, number: usize) -> Migration {
        let page = ManualPage::read(page);
        let chapter = page.chapter(headline);
        let [nginx, forebay] = ["nginx", "toml"].map(|language| {
            let found = blocks(chapter, language).get(number).map(|block| (*block).to_owned());
            found.unwrap_or_else(|| panic!("{headline}: too few blocks of {language}"))
        });
        let table =
            |chapter: &str| rows(chapter, "asked").into_iter().map(Difference::of).collect();
        let general = ManualPage::read(APPLICATIONS);
        Migration {
            headline: headline.to_owned(),
            nginx,
            forebay,
            root: None,
            own: table(chapter),
            general: table(general.chapter("## What is different everywhere")),
        }
    }

    /// Replaces a text by another one in both configurations. Addresses of listeners need not be given.
    ///
    /// # Panics
    /// If the text stands in neither.
    #[must_use]
    pub fn with(mut self, printed: &str, here: impl ToString) -> Migration {
        let here = here.to_string();
        let texts = [&mut self.nginx, &mut self.forebay];
        let is_there = texts.iter().any(|text| text.contains(printed));
        assert!(is_there, "{}: no {printed:?}", self.headline);
        texts.into_iter().for_each(|text| *text = text.replace(printed, &here));
        self
    }

    /// Replaces a path by this folder in both configurations.
    #[must_use]
    pub fn with_folder(self, printed: &str, here: &Path) -> Migration {
        self.with(printed, here.display())
    }

    /// Has the comparison accept rows of the page's tables that do not occur.
    #[must_use]
    pub fn without_table(mut self) -> Migration {
        self.general.append(&mut self.own);
        self
    }

    /// Asks nginx, and then Forebay on its engines, and compares.
    ///
    /// # Panics
    /// If there are other differences than those on the page.
    pub fn compare(mut self, test: &str, look: impl Fn(Reached<'_>, &mut Seen)) {
        self.take_root();
        let (addr, sealed, empty) = (free_addr(), free_addr(), Folder::new());
        let Some(nginx) = Nginx::start(&self.for_nginx(addr, sealed), addr, test) else { return };
        let mut before = Seen::default();
        let server = Either::Nginx(nginx);
        look(Reached { addr, sealed, server: &server }, &mut before);
        drop(server);
        let mut engines = vec![ENGINES[0], ISOLATED];
        if is_full_matrix() {
            engines.extend(&ENGINES[1..]);
        }
        for engine in engines {
            let sealed = free_addr();
            let server = Server::start(&self.for_forebay(engine, sealed, empty.path()));
            let (addr, mut now) = (server.addr(), Seen::default());
            let server = Either::Forebay(server);
            look(Reached { addr, sealed, server: &server }, &mut now);
            self.judge(engine, &before, &now);
        }
    }

    /// Removes the root and the address from the beginning of Forebay's configuration: [`Options`] sets
    /// them.
    fn take_root(&mut self) {
        let mut lines = Vec::new();
        let mut is_top = true;
        for line in self.forebay.lines() {
            is_top &= !line.starts_with('[');
            match line.strip_prefix("root = ") {
                Some(root) if is_top => self.root = Some(root.trim_matches('"').to_owned()),
                _ if is_top && line.starts_with("listen = ") => {
                    if line.contains("https://:443") {
                        lines.push("# sealed");
                    }
                }
                _ => lines.push(line),
            }
        }
        self.forebay = lines.join("\n") + "\n";
    }

    fn for_nginx(&self, addr: SocketAddr, sealed: SocketAddr) -> String {
        self.nginx
            .replace("listen [::]:80;\n", "\n")
            .replace("listen 80", &format!("listen {addr}"))
            .replace("listen 443", &format!("listen {sealed}"))
    }

    fn for_forebay(&self, engine: &str, sealed: SocketAddr, empty: &Path) -> Options {
        let root = self.root.as_ref().map_or(empty, Path::new);
        let mut lines = self.forebay.clone();
        if lines.contains("# sealed") {
            lines += &format!("\n[[listener]]\nlisten = [\"https://{sealed}\"]\n");
        }
        Options::new(root).engine(engine).config(&lines)
    }

    fn judge(&self, engine: &str, before: &Seen, now: &Seen) {
        let aspects: BTreeSet<&Aspect> = before.0.keys().chain(now.0.keys()).collect();
        let mut unsaid = String::new();
        let mut used = BTreeSet::new();
        let of = |seen: &Seen, aspect: &Aspect| {
            seen.0.get(aspect).map_or("nothing", |value| value).to_owned()
        };
        for aspect in aspects {
            let [is, was] = [now, before].map(|seen| of(seen, aspect));
            // with another status it is another answer
            let status = (aspect.0.clone(), "status".to_owned());
            let is_another = *aspect != status && of(now, &status) != of(before, &status);
            if is == was || is_another {
                continue;
            }
            let own = self.own.iter().position(|row| row.is_about(aspect, [&was, &is]));
            used.extend(own);
            if own.is_none() && !self.general.iter().any(|row| row.is_about(aspect, [&was, &is])) {
                let (asked, seen) = aspect;
                unsaid += &format!("| `{asked}` | {seen} | `{was}` | `{is}` | |\n");
            }
        }
        for (number, row) in self.own.iter().enumerate() {
            if !used.contains(&number) {
                unsaid += &format!("not seen: {row:?}\n");
            }
        }
        assert!(unsaid.is_empty(), "{}, {engine}: the page does not say\n{unsaid}", self.headline);
    }
}

/// The page of the manual with the cases of applications; its first table holds for all cases.
pub const APPLICATIONS: &str = "from-nginx-applications.md";

/// An empty folder with a root that has these files, all of the same age.
pub fn site(files: &[(&str, &str)]) -> Folder {
    let folder = Folder::new();
    std::fs::create_dir_all(folder.join("root")).unwrap();
    for (name, content) in files {
        folder.write(name, content);
    }
    folder.age();
    folder
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, text) in [("", ""), ("a", "a"), ("*", ""), ("a*c", "abc"), ("*b*", "abc")] {
            assert!(fits(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("a", "ab"), ("a*c", "ab"), ("*b", "abc"), ("", "a")] {
            assert!(!fits(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn what_differs_must_be_said_and_what_is_said_must_differ() {
        let row = |cells: [&str; 5]| Difference::of(cells.map(str::to_owned).to_vec());
        let seen = |value: &str| {
            let mut seen = Seen::default();
            seen.note("GET /", "status", value);
            seen
        };
        let judged = |own: Vec<Difference>, was: &str, is: &str| {
            let [nginx, forebay] = [String::new(), String::new()];
            let case = Migration {
                headline: String::new(),
                nginx,
                forebay,
                root: None,
                own,
                general: vec![],
            };
            std::panic::catch_unwind(|| case.judge("event", &seen(was), &seen(is))).is_ok()
        };
        assert!(judged(vec![], "200", "200"));
        assert!(!judged(vec![], "200", "404"));
        let said = || vec![row(["GET *", "status", "200", "404", "because"])];
        assert!(judged(said(), "200", "404"));
        assert!(!judged(said(), "200", "200"));
        assert!(!judged(said(), "200", "403"));
    }
}
