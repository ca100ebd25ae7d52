//! What answers behind the servers: php-fpm, or a program that speaks HTTP on a Unix socket.

use super::{Setup, configured, program};
use crate::Error;
use crate::error::Missing;
use crate::running::Process;
use std::fs;
use std::path::{Path, PathBuf};

/// How many requests an application does at once.
pub const WORKERS: u32 = 8;

/// An application that can do a few requests at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Application {
    /// php-fpm, spoken to by FastCGI.
    Php,
    /// Processes in Python, each of which answers one request at a time and closes.
    Python,
    /// One process of Node, which takes every request and has a few connections to a database.
    Node,
}

impl Application {
    /// All of them.
    pub const ALL: [Application; 3] = [Application::Php, Application::Python, Application::Node];

    /// Forebay's table that passes requests on to it. Keys may follow.
    pub fn table(self) -> &'static str {
        match self {
            Application::Php => "[[fastcgi]]\nto = \"unix:@TMP@/php.sock\"\ntry = \"/work.php\"\n",
            Application::Python | Application::Node => {
                "[[proxy]]\npath = \"/\"\nto = [\"unix:@TMP@/app.sock\"]\n"
            }
        }
    }

    /// Whether others speak HTTP with it.
    pub(super) fn speaks_http(self) -> bool {
        self != Application::Php
    }

    /// The program, and the package it comes in, if it is not there.
    pub(in crate::overload) fn missing(self) -> Option<Missing> {
        let (program, package) = match self {
            Application::Php if php_fpm().is_file() => return None,
            Application::Php => return Some(Missing { program: "php-fpm", package: "php-fpm" }),
            Application::Python => ("python3", "python3"),
            Application::Node => ("node", "nodejs"),
        };
        crate::peers::locate(program).is_none().then_some(Missing { program, package })
    }

    /// Starts it.
    pub(super) fn start(self, setup: &Setup<'_>) -> Result<Process, Error> {
        match self {
            Application::Php => php(setup),
            Application::Python => {
                http(setup, "python3", "app.py", include_str!("../../../peers/overload/app.py"))
            }
            Application::Node => {
                http(setup, "node", "app.js", include_str!("../../../peers/overload/app.js"))
            }
        }
    }
}

/// The program gets its own file, the socket and how much it can do at once.
fn http(setup: &Setup<'_>, name: &str, file: &str, text: &str) -> Result<Process, Error> {
    let (socket, count) = (setup.scratch.join("app.sock"), setup.threads.to_string());
    let after = [socket.display().to_string(), count];
    configured(setup, (&program(name), &[]), (file, text), &after, &[], &[])
}

fn php(setup: &Setup<'_>) -> Result<Process, Error> {
    let script = setup.scratch.join("work.php");
    let text = include_str!("../../../peers/overload/work.php");
    fs::write(&script, text).map_err(Error::io("cannot write", &script))?;
    let mut arguments = vec!["--nodaemonize"];
    if rustix::process::geteuid().is_root() {
        arguments.push("--allow-to-run-as-root");
    }
    arguments.push("--fpm-config");
    let text = include_str!("../../../peers/overload/php-fpm.conf");
    configured(setup, (&php_fpm(), &arguments), ("php-fpm.conf", text), &[], &[], &[])
}

/// Debian calls it by its version: php-fpm8.2.
fn php_fpm() -> PathBuf {
    let files = fs::read_dir("/usr/sbin").into_iter().flatten().flatten();
    let mut found: Vec<_> = files.map(|file| file.path()).filter(|path| is_php_fpm(path)).collect();
    found.sort();
    found.pop().unwrap_or_else(|| program("php-fpm"))
}

fn is_php_fpm(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("php-fpm"))
}
