//! The names that `forebay serve` withholds: those of sources, secrets, databases and backups.
//!
//! A browser never needs such files, and a folder that has them is often meant to be run, not sent. Each kind
//! becomes an access rule that admits no client, so that it holds wherever such rules do: for each reading of
//! a path, for index files, compressed forms and lists. `docs/manual/serve.md` has the table, with what was
//! left out of it, and why.

use forebay_site::rules::{AccessRule, Network, PatternError, RequestConditions, Scope};
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fmt::Write;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The most entries of the folder that are looked at before the start.
const MOST_LOOKED_AT: usize = 2_000;

/// The most withheld names that the start prints; of further ones it prints the number.
const MOST_TOLD: usize = 8;

/// The endings of compressed files: precompressed forms of a file, and compressed copies.
const COMPRESSED: [&str; 6] = ["br", "gz", "zst", "bz2", "xz", "zip"];

/// The directory with the packages that an application uses. They are public, and many, so it is not looked
/// into.
const PACKAGES: &str = "node_modules";

/// The names that are withheld for one reason.
#[derive(Debug)]
pub(crate) struct SourceKind {
    /// The kind of files with such names, for the table.
    pub(crate) what: &'static str,
    /// The names; a star stands for any run of characters.
    pub(crate) names: &'static [&'static str],
    /// Further names, which are withheld where the folder itself has one of `names`.
    pub(crate) beside: &'static [&'static str],
    /// Index files of an application: for a directory without a usable one, they answer with the way to run
    /// it.
    pub(crate) index: &'static [&'static str],
    /// The explanation for a client: HTML, without the full stop.
    pub(crate) refusal: &'static str,
}

/// All kinds. A name that fits several belongs to the first of them.
pub(crate) const KINDS: [SourceKind; 8] = [
    SourceKind {
        what: "PHP",
        names: &[
            "*.php",
            "*.php3",
            "*.php4",
            "*.php5",
            "*.php7",
            "*.php8",
            "*.phtml",
            "*.phar",
            "*.inc",
            "composer.json",
            "composer.lock",
        ],
        beside: &[],
        index: &["index.php"],
        refusal: "This belongs to an application in PHP, which php-fpm runs: <code>forebay init</code> writes a \
                  configuration for that. <code>forebay serve --sources</code> sends it as it is",
    },
    SourceKind {
        what: "Node",
        names: &[
            "package.json",
            "package-lock.json",
            "npm-shrinkwrap.json",
            "yarn.lock",
            "pnpm-lock.yaml",
            "pnpm-workspace.yaml",
            "bun.lock",
            "bun.lockb",
            "deno.lock",
        ],
        beside: &[],
        index: &["package.json"],
        refusal: "This belongs to an application in Node. <code>npm start</code> runs most of them, and \
                  <code>forebay init</code> writes a configuration that passes requests on to it; of a site that \
                  is built, serve the folder that <code>npm run build</code> makes. <code>forebay serve \
                  --sources</code> sends it as it is",
    },
    SourceKind {
        what: "Python",
        names: &[
            "manage.py",
            "wsgi.py",
            "asgi.py",
            "app.py",
            "main.py",
            "settings.py",
            "*.pyc",
            "requirements.txt",
            "Pipfile",
            "Pipfile.lock",
            "pyproject.toml",
            "poetry.lock",
            "pdm.lock",
            "uv.lock",
        ],
        beside: &["*.py"],
        index: &["manage.py", "pyproject.toml", "wsgi.py", "asgi.py", "app.py"],
        refusal: "This belongs to an application in Python. <code>python manage.py runserver</code>, gunicorn or \
                  uvicorn runs it, and <code>forebay init</code> writes a configuration that passes requests on \
                  to it. <code>forebay serve --sources</code> sends it as it is",
    },
    SourceKind {
        what: "Ruby",
        names: &["Gemfile", "Gemfile.lock", "config.ru", "Rakefile", "*.erb"],
        beside: &["*.rb"],
        index: &["config.ru", "Gemfile"],
        refusal: "This belongs to an application in Ruby. <code>bin/rails server</code> or puma runs it, and \
                  <code>forebay init</code> writes a configuration that passes requests on to it. <code>forebay \
                  serve --sources</code> sends it as it is",
    },
    SourceKind {
        what: "other applications",
        names: &[
            "go.mod",
            "go.sum",
            "Cargo.toml",
            "Cargo.lock",
            "pom.xml",
            "build.gradle",
            "build.gradle.kts",
            "mix.exs",
            "mix.lock",
            "*.jsp",
            "*.jspx",
            "*.asp",
            "*.aspx",
            "*.ascx",
            "*.asax",
            "*.ashx",
            "*.cshtml",
            "*.cgi",
            "*.fcgi",
            "*.cfm",
        ],
        beside: &[],
        index: &["go.mod", "Cargo.toml", "pom.xml", "mix.exs"],
        refusal: "This belongs to an application, which must be started by itself: <code>forebay init</code> \
                  writes a configuration that passes requests on to it. <code>forebay serve --sources</code> \
                  sends it as it is",
    },
    SourceKind {
        what: "keys and settings",
        names: &[
            ".env",
            ".env.*",
            "*.env",
            "*.key",
            "*.pem",
            "*.p12",
            "*.pfx",
            "*.jks",
            "*.keystore",
            "*.kdbx",
            "*.ovpn",
            "*.ppk",
            "id_rsa",
            "id_dsa",
            "id_ecdsa",
            "id_ed25519",
            ".htpasswd",
            ".npmrc",
            ".netrc",
            ".pgpass",
            "web.config",
            "forebay.toml",
            "Dockerfile",
            "docker-compose*.yml",
            "docker-compose*.yaml",
            "compose.yml",
            "compose.yaml",
            "*.tfstate",
            "*.tfvars",
            "appsettings*.json",
            "credentials.json",
            "secrets.json",
            "secrets.yml",
            "database.yml",
        ],
        beside: &[],
        index: &[],
        refusal: "Files with such a name often hold keys, passwords or settings. <code>forebay serve \
                  --sources</code> sends it",
    },
    SourceKind {
        what: "databases",
        names: &["*.sqlite", "*.sqlite3", "*.db", "*.db3", "*.mdb", "*.sql", "*.dump", "*.rdb"],
        beside: &[],
        index: &[],
        refusal: "Files with such a name often hold a whole database. <code>forebay serve --sources</code> sends it",
    },
    SourceKind {
        what: "backups",
        names: &[
            "*~", "*.bak", "*.backup", "*.bkp", "*.old", "*.orig", "*.save", "*.swp", "*.swo",
            "#*#",
        ],
        beside: &[],
        index: &[],
        refusal: "Files with such a name are mostly forgotten copies, also of what is kept closed. <code>forebay \
                  serve --sources</code> sends it",
    },
];

impl SourceKind {
    /// The names that are withheld in a folder that holds `entries`.
    fn withheld(&self, entries: &[Vec<u8>]) -> impl Iterator<Item = &'static str> {
        let is_beside = !self.beside.is_empty() && self.is_among(entries);
        self.names.iter().chain(self.beside.iter().filter(move |_| is_beside)).copied()
    }

    /// Whether one of the kind's names is among these entries.
    pub(crate) fn is_among(&self, entries: &[Vec<u8>]) -> bool {
        entries.iter().any(|entry| self.names.iter().any(|name| fits(name, entry)))
    }
}

/// The names that are withheld in the folder of `forebay serve`.
#[derive(Debug)]
pub(crate) struct Withheld {
    folder: PathBuf,
    /// The names by kind.
    names: Vec<Vec<&'static str>>,
}

impl Withheld {
    /// Chooses the names by the present entries of the folder itself.
    pub(crate) fn of(folder: &Path) -> Withheld {
        let entries = entries(folder);
        let names = KINDS.iter().map(|kind| kind.withheld(&entries).collect());
        Withheld { folder: folder.to_owned(), names: names.collect() }
    }

    /// The access rules that withhold these names.
    ///
    /// # Errors
    /// None in practice: a test compiles the patterns of all names.
    pub(crate) fn rules(&self) -> Result<Vec<AccessRule>, PatternError> {
        let all = Network::parse("all");
        let rule = |(kind, names): (&SourceKind, &Vec<_>)| {
            Ok(AccessRule {
                paths: Scope::regex(&expression(names))?.into(),
                allow: Vec::new(),
                deny: all.iter().cloned().collect(),
                conditions: RequestConditions::default(),
                refusal: Some(kind.refusal),
            })
        };
        KINDS.iter().zip(&self.names).map(rule).collect()
    }

    /// The message about files that are withheld, if the folder has some.
    pub(crate) fn words(&self) -> Option<String> {
        let (found, is_whole) = self.found();
        let told: Vec<String> = found.iter().take(MOST_TOLD).map(|path| shown(path)).collect();
        let mut words = told.join(", ");
        match found.len().saturating_sub(told.len()) {
            _ if told.is_empty() => return None,
            0 if is_whole => {}
            0 => words.push_str(" and perhaps more"),
            more if is_whole => drop(write!(words, " and {more} more")),
            more => drop(write!(words, " and at least {more} more")),
        }
        Some(format!(
            "forebay serve: withheld, answered with 403: {words}; if they are an application, forebay init writes a \
             configuration for it, and --sources sends them as they are"
        ))
    }

    /// The paths of withheld files, those near the top first, and whether the whole folder was looked at.
    fn found(&self) -> (Vec<PathBuf>, bool) {
        let mut folders = VecDeque::from([PathBuf::new()]);
        let (mut found, mut looked_at) = (Vec::new(), 0);
        while let Some(folder) = folders.pop_front() {
            let Ok(entries) = fs::read_dir(self.folder.join(&folder)) else { continue };
            let (mut here, mut beneath) = (Vec::new(), Vec::new());
            for entry in entries.filter_map(Result::ok) {
                looked_at += 1;
                if looked_at > MOST_LOOKED_AT {
                    here.sort();
                    found.extend(here);
                    return (found, false);
                }
                let name = entry.file_name();
                let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
                if is_folder && !name.as_bytes().starts_with(b".") && name != PACKAGES {
                    beneath.push(folder.join(&name));
                } else if !is_folder && self.has(&name) {
                    here.push(folder.join(&name));
                }
            }
            here.sort();
            found.extend(here);
            beneath.sort();
            folders.extend(beneath);
        }
        (found, true)
    }

    fn has(&self, name: &OsStr) -> bool {
        let (name, path) = (name.as_bytes(), Path::new(name));
        let is_one =
            |ending: &OsStr| COMPRESSED.iter().any(|known| ending.eq_ignore_ascii_case(known));
        let inner = path.extension().filter(|ending| is_one(ending)).and(path.file_stem());
        let has = |name: &[u8]| self.names.iter().flatten().any(|pattern| fits(pattern, name));
        has(name) || inner.is_some_and(|inner| has(inner.as_bytes()))
    }
}

/// The index files of applications, which answer for a directory without another index file.
pub(crate) fn indexes() -> impl Iterator<Item = String> {
    KINDS.iter().flat_map(|kind| kind.index).map(|name| (*name).to_owned())
}

/// The names of a folder's own entries; none if it cannot be read.
pub(crate) fn entries(folder: &Path) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    entries.take(MOST_LOOKED_AT).map(|entry| entry.file_name().as_bytes().to_vec()).collect()
}

/// Whether a name fits a pattern with at most one star, ignoring case.
fn fits(pattern: &str, name: &[u8]) -> bool {
    let same = |a: &[u8], b: &[u8]| a.eq_ignore_ascii_case(b);
    let pattern = pattern.as_bytes();
    match pattern.iter().position(|&byte| byte == b'*') {
        None => same(pattern, name),
        Some(at) => {
            let (start, end) = (&pattern[..at], &pattern[at + 1..]);
            name.len() >= start.len() + end.len()
                && same(&name[..start.len()], start)
                && same(&name[name.len() - end.len()..], end)
        }
    }
}

/// The expression for paths whose last name is one of these or a compressed form of one, ignoring case.
fn expression(names: &[&str]) -> String {
    let mut text = "(?i-u)(?:".to_owned();
    for (number, name) in names.iter().enumerate() {
        if number > 0 {
            text.push('|');
        }
        // a name that begins with a star may begin anywhere in the path, so it needs no slash before it
        let rest = name.strip_prefix('*');
        if rest.is_none() {
            text.push('/');
        }
        for letter in rest.unwrap_or(name).chars() {
            match letter {
                '*' => text.push_str("[^/]*"),
                letter if letter.is_ascii_alphanumeric() => text.push(letter),
                letter => text.extend(['\\', letter]),
            }
        }
    }
    text.push_str(r")(?:\.(?:");
    text.push_str(&COMPRESSED.join("|"));
    text.push_str("))?$");
    text
}

/// A path for the terminal: escaped, so that it stays on one line.
fn shown(path: &Path) -> String {
    path.to_string_lossy().escape_debug().collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test says so by panicking")]

    use super::*;

    /// The kind that withholds a path, in a folder with these entries.
    fn kind(entries: &[&str], path: &[u8]) -> Option<&'static str> {
        let entries: Vec<_> = entries.iter().map(|name| name.as_bytes().to_vec()).collect();
        let names = KINDS.iter().map(|kind| kind.withheld(&entries).collect()).collect();
        let rules = Withheld { folder: PathBuf::new(), names }.rules().unwrap();
        let found = rules.iter().position(|rule| rule.paths.contains(path))?;
        Some(KINDS[found].what)
    }

    #[test]
    fn names_are_withheld_by_their_kind() {
        for (path, expected) in [
            ("/index.php", Some("PHP")),
            ("/a/B.PHP", Some("PHP")),
            ("/a.php.gz", Some("PHP")),
            ("/a.php.BR", Some("PHP")),
            ("/dump.sql.xz", Some("databases")),
            ("/site.zip", None),
            ("/a.php.gz.gz", None),
            ("/a.phps", None),
            ("/a.php.txt", None),
            ("/a.php/b.css", None),
            ("/aphp", None),
            ("/package.json", Some("Node")),
            ("/deep/er/package.json", Some("Node")),
            ("/my-package.json", None),
            ("/package.json5", None),
            ("/packageXjson", None),
            ("/manage.py", Some("Python")),
            ("/lesson1.py", None),
            ("/.env", Some("keys and settings")),
            ("/.env.local", Some("keys and settings")),
            ("/.environment", None),
            ("/prod.env", Some("keys and settings")),
            ("/docker-compose.prod.yml", Some("keys and settings")),
            ("/docker-compose/a.yml", None),
            ("/server.pem", Some("keys and settings")),
            ("/ca.crt", None),
            ("/data.SQLite3", Some("databases")),
            ("/index.html~", Some("backups")),
            ("/a.bak", Some("backups")),
            ("/#a.txt#", Some("backups")),
            ("/wp-config.php.bak", Some("backups")),
            ("/wp-config.php~", Some("backups")),
            ("/", None),
            ("/app.js", None),
            ("/app.js.map", None),
            ("/node_modules/a/index.js", None),
            ("/vendor/jquery.js", None),
        ] {
            assert_eq!(kind(&["index.html"], path.as_bytes()), expected, "{path}");
        }
        assert_eq!(kind(&[], b"/\xff.php"), Some("PHP"));
        assert_eq!(kind(&[], b"/a\n.php"), Some("PHP"));
        assert_eq!(kind(&[], b"/.env.\xff\n"), Some("keys and settings"));
    }

    #[test]
    fn sources_that_may_be_content_are_withheld_beside_an_application() {
        assert_eq!(kind(&["lesson1.py"], b"/lesson1.py"), None);
        assert_eq!(kind(&["Manage.py"], b"/shop/views.py"), Some("Python"));
        assert_eq!(kind(&["config.ru"], b"/a.rb"), Some("Ruby"));
        assert_eq!(kind(&["package.json"], b"/a.rb"), None);
    }

    /// The expression and [`fits`] agree about every name.
    #[test]
    fn both_readings_agree() {
        for pattern in KINDS.iter().flat_map(|kind| kind.names.iter().chain(kind.beside)) {
            assert!(pattern.matches('*').count() <= 1, "{pattern}");
            let scope = Scope::regex(&expression(&[pattern])).unwrap();
            for middle in ["", "x", "a.b", "X Y"] {
                let name = pattern.replace('*', middle);
                for name in [name.clone(), name.to_ascii_uppercase()] {
                    assert!(fits(pattern, name.as_bytes()), "{pattern} {name}");
                    assert!(scope.contains(format!("/d/{name}").as_bytes()), "{pattern} {name}");
                }
                let other = format!("{name}x");
                let is_meant = fits(pattern, other.as_bytes());
                assert_eq!(scope.contains(format!("/{other}").as_bytes()), is_meant, "{other}");
            }
        }
    }

    #[test]
    fn the_manual_has_every_name() {
        let page = include_str!("../../../docs/manual/serve.md");
        for kind in &KINDS {
            let row = page.lines().find(|line| line.starts_with(&format!("| {} |", kind.what)));
            let row = row.unwrap_or_else(|| panic!("{}", kind.what));
            for name in kind.names.iter().chain(kind.beside) {
                assert!(row.contains(&format!("`{name}`")), "{name} in {row}");
            }
            let count = row.matches('`').count() / 2;
            assert_eq!(count, kind.names.len() + kind.beside.len(), "{row}");
        }
    }

    #[test]
    fn the_start_tells_of_some() {
        let folder = std::env::temp_dir().join(format!("forebay-sources-{}", std::process::id()));
        let write = |name: &str| {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        };
        write("index.html");
        let words = || Withheld::of(&folder).words();
        assert_eq!(words(), None);
        for name in [
            "b.php",
            "node_modules/a/package.json",
            ".git/x.php",
            "sub/a\n.php",
            ".env",
            "c.SQL.Gz",
            "d.gz",
        ] {
            write(name);
        }
        let said = words().unwrap();
        assert!(said.contains(r"403: .env, b.php, c.SQL.Gz, sub/a\n.php; if"), "{said}");
        (0..9).for_each(|number| write(&format!("{number}.bak")));
        let said = words().unwrap();
        assert!(said.contains("403: .env, 0.bak") && said.contains(" and 5 more; if"), "{said}");
        (0..MOST_LOOKED_AT).for_each(|number| write(&format!("many/{number}.txt")));
        let said = words().unwrap();
        assert!(said.contains(" and at least "), "{said}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
