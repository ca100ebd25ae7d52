//! The servers beside which Forebay is measured, and those behind them: files in `lab/peers`.
//!
//! A file is a configuration, or a program. Lines that begin with `#: ` (`//: `, `;: `) say how it is run:
//!
//! | line | what it says |
//! |---|---|
//! | `run PROGRAM ARGUMENT…` | the command; `@FILE@` is this file, filled in; `@root@…` is for root only |
//! | `reload PROGRAM ARGUMENT…` | what makes it read the file again |
//! | `package NAME` | the Debian package that has the program; `-` for Forebay |
//! | `version ARGUMENT` | what makes the program print its version |
//!
//! All else is a template ([`template::fill`]): `@WORD@` is replaced, lines tagged `@tag@` stay or go. Every
//! file knows `@TMP@`, the folder where it is written, and `@root@`, for lines that stay when it is started by
//! root.

use crate::error::MissingProgram;
use crate::{Error, machine, template};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

macro_rules! files {
    ($($file:literal),* $(,)?) => {
        &[$(($file, include_str!(concat!("../peers/", $file)))),*]
    };
}

/// All of them, by their names below `lab/peers`.
const FILES: &[(&str, &str)] = files![
    "apache2-mpm.conf",
    "apache2.conf",
    "chain/nginx-files.conf",
    "chain/nginx-proxy.conf",
    "crashes/apache2.conf",
    "crashes/forebay.toml",
    "crashes/haproxy.cfg",
    "crashes/nginx.conf",
    "forebay-tls.toml",
    "forebay.toml",
    "h2o.conf",
    "lighttpd.conf",
    "limited/apache2.conf",
    "limited/haproxy.cfg",
    "limited/nginx.conf",
    "nginx-aio.conf",
    "nginx.conf",
    "overload/apache2.conf",
    "overload/app.js",
    "overload/app.py",
    "overload/haproxy.cfg",
    "overload/nginx.conf",
    "overload/php-fpm.conf",
    "overload/work.php",
    "reload/Caddyfile",
    "reload/forebay.toml",
    "reload/nginx.conf",
    "stages/forebay.toml",
];

/// The text of a file; an unknown name counts as an empty file.
pub fn text(name: &str) -> &'static str {
    FILES.iter().find(|(known, _)| *known == name).map_or("", |(_, text)| text)
}

/// The value of a key in a file's head.
fn said(name: &str, key: &str) -> Option<&'static str> {
    let mut lines = text(name)
        .lines()
        .filter_map(|line| line.trim_start_matches(['#', '/', ';']).strip_prefix(": "));
    lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))
}

fn run(name: &str) -> impl Iterator<Item = &'static str> {
    said(name, "run").unwrap_or_default().split_whitespace()
}

/// The path of `program`: a name is looked for in PATH and in the administrator's folders, which
/// Debian leaves out of a user's PATH.
pub fn locate(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders =
        std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    let folders: Vec<PathBuf> = folders.collect();
    let found = folders.iter().map(|folder| folder.join(program)).find(|path| path.is_file());
    // Debian calls some by their version: php-fpm8.2
    let is_version = |name: &str| {
        let version = name.strip_prefix(program).unwrap_or_default();
        version.starts_with(|first: char| first.is_ascii_digit())
    };
    found.or_else(|| {
        let entries = folders.iter().flat_map(fs::read_dir).flatten().flatten();
        entries
            .map(|entry| entry.path())
            .find(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(is_version))
    })
}

/// The peer's program, if that is missing.
pub fn missing(name: &str) -> Option<MissingProgram> {
    let program = run(name).next()?;
    // Forebay is built here
    let package = said(name, "package").filter(|package| *package != "-")?;
    locate(program).is_none().then_some(MissingProgram { program, package })
}

/// Program, version and package, on one line; empty for a program that is built here.
pub fn version(name: &str) -> Option<String> {
    let package = said(name, "package").filter(|package| *package != "-")?;
    let program = run(name).next().unwrap_or_default();
    let version = said(name, "version").and_then(|argument| {
        Some(machine::first_line(Command::new(locate(program)?).arg(argument)))
    });
    let version = version.unwrap_or_default();
    Some(format!("{program}: {version} ({package} {})", machine::package_version(package)))
}

/// Writes the peer's file, filled in, to `path`: at once, so that no reader sees half of it.
///
/// # Errors
/// When the file cannot be written.
pub fn write(
    name: &str,
    path: &Path,
    tags: &[(&str, bool)],
    words: &[(&str, String)],
) -> Result<(), Error> {
    let within = path.parent().unwrap_or(path).display().to_string();
    let words = [words, &[("TMP", within)]].concat();
    let new = path.with_extension("new");
    let filled = template::fill(text(name), tags, &words);
    fs::write(&new, filled).map_err(Error::io("cannot write", &new))?;
    fs::rename(&new, path).map_err(Error::io("cannot rename", path))
}

/// The command of the line `key` for the file at `path`, with `program` in the place of its own.
pub fn command(
    name: &str,
    key: &str,
    program: Option<&Path>,
    path: &Path,
    words: &[(&str, String)],
) -> Command {
    let mut parts = said(name, key).unwrap_or_default().split_whitespace();
    let usual = parts.next().unwrap_or_default();
    let found = program.map(Path::to_owned).or_else(|| locate(usual));
    let mut command = Command::new(found.unwrap_or_else(|| usual.into()));
    let within = path.parent().unwrap_or(path).display().to_string();
    let own = [("FILE", path.display().to_string()), ("TMP", within)];
    let words = [words, &own].concat();
    let is_root = rustix::process::geteuid().is_root();
    let part = |part: &str| match part.strip_prefix("@root@") {
        Some(part) => is_root.then(|| part.to_owned()),
        None => Some(template::fill(part, &[], &words).trim_end().to_owned()),
    };
    command.args(parts.filter_map(part));
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All files below a folder.
    fn below(folder: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.path());
        entries.flat_map(|path| if path.is_dir() { below(&path) } else { vec![path] }).collect()
    }

    #[test]
    fn every_file_is_known_and_says_how_it_is_run() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers");
        for path in below(&folder) {
            let name = path.strip_prefix(&folder).expect("below it").to_string_lossy().into_owned();
            assert!(!text(&name).is_empty(), "{name} is not in the list");
        }
        for (name, _) in FILES {
            // a script is run by what has it
            let is_script = *name == "overload/work.php";
            let is_run = run(name).next().is_some() && said(name, "package").is_some();
            assert!(is_script || is_run, "{name}");
        }
    }
}
