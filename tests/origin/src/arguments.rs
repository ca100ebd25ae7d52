//! The command line of `forebay`, as far as suites use it, and the two configurations that result from
//! it.

use std::fmt::Write;
use std::io;
use std::path::PathBuf;

/// The command that was asked for.
pub(crate) enum Arguments {
    /// `run -c FILE`
    Run(PathBuf),
    /// Keys of the top level that the second server does not get.
    Serve(String),
}

/// Keys of the top level that the second server does without.
const OF_CONNECTIONS: [&str; 8] =
    ["listen", "engine", "workers", "pipeline.", "log.", "tunnel_threads", "admin.", "limits."];

/// Sections that the second server does not get: it would judge each request a second time, or listen
/// where the first server does.
const OF_FIRST: [&str; 6] =
    ["[[listener]]", "[admin]", "[[class]]", "[[rule]]", "[policy]", "[limits]"];

impl Arguments {
    pub(crate) fn read(words: impl Iterator<Item = String>) -> io::Result<Arguments> {
        let words: Vec<String> = words.collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match &words[..] {
            ["run", "-c", file] => Ok(Arguments::Run(file.into())),
            ["serve", root, options @ ..] => serve(root, options).map(Arguments::Serve),
            _ => Err(unknown(&words)),
        }
    }

    /// Reads the configuration as it is now.
    pub(crate) fn text(&self) -> io::Result<String> {
        match self {
            Arguments::Run(file) => std::fs::read_to_string(file),
            Arguments::Serve(text) => Ok(text.clone()),
        }
    }
}

fn unknown(words: &[&str]) -> io::Error {
    io::Error::other(format!("only \"run -c FILE\" and \"serve DIR\" are known, not {words:?}"))
}

fn serve(root: &str, mut options: &[&str]) -> io::Result<String> {
    let mut text = format!("root = {root:?}\n");
    let mut access = "-";
    while !options.is_empty() {
        let key = match options {
            ["--no-log", rest @ ..] => {
                (access, options) = ("off", rest);
                continue;
            }
            ["--listen", value, rest @ ..] => {
                options = rest;
                let _ = writeln!(text, "listen = [{value:?}]");
                continue;
            }
            ["--engine", ..] => "engine",
            ["--workers", ..] => "workers",
            _ => return Err(unknown(options)),
        };
        let [_, value, rest @ ..] = options else { return Err(unknown(options)) };
        let quoted = if key == "engine" { format!("{value:?}") } else { (*value).to_owned() };
        let _ = writeln!(text, "{key} = {quoted}");
        options = rest;
    }
    let _ = writeln!(text, "log.access = {access:?}");
    Ok(text)
}

/// The configuration of the server with the files: the settings of sites. The server with the handler has
/// the whole text.
pub(crate) fn of_files(text: &str) -> String {
    let mut is_left_out = false;
    let mut own = String::from("log.access = \"off\"\n");
    for line in text.lines() {
        let is_top_level = !own.contains("\n[");
        if line.starts_with('[') {
            is_left_out = OF_FIRST.iter().any(|section| line.starts_with(section));
        }
        let is_of_connections =
            is_top_level && OF_CONNECTIONS.iter().any(|key| line.starts_with(key));
        if !is_left_out && !is_of_connections {
            own.push_str(line);
            own.push('\n');
        }
    }
    own
}
