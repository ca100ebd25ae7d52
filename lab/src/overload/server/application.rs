//! Applications behind the servers: php-fpm, or a program that speaks HTTP on a Unix socket.

use crate::serving::Serving;
use crate::{Error, peers};

/// The number of requests that an application does at once.
pub const WORKERS: u32 = 8;

/// An application that can do a few requests at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplicationKind {
    /// php-fpm, spoken to by FastCGI.
    Php,
    /// Processes in Python, each of which answers one request at a time and closes.
    Python,
    /// One process of Node, which takes every request and has a few connections to a database.
    Node,
}

impl ApplicationKind {
    /// All of them.
    pub const ALL: [ApplicationKind; 3] =
        [ApplicationKind::Php, ApplicationKind::Python, ApplicationKind::Node];

    /// Forebay's table that passes requests on to it. Keys may follow.
    pub fn table(self) -> &'static str {
        match self {
            ApplicationKind::Php => {
                "[[fastcgi]]\nto = \"unix:@TMP@/php.sock\"\ntry = \"/work.php\"\n"
            }
            ApplicationKind::Python | ApplicationKind::Node => {
                "[[proxy]]\npath = \"/\"\nto = [\"unix:@TMP@/app.sock\"]\n"
            }
        }
    }

    /// Whether others speak HTTP with it.
    pub(super) fn speaks_http(self) -> bool {
        self != ApplicationKind::Php
    }

    /// The application's file in `lab/peers`.
    pub fn peer(self) -> &'static str {
        match self {
            ApplicationKind::Php => "overload/php-fpm.conf",
            ApplicationKind::Python => "overload/app.py",
            ApplicationKind::Node => "overload/app.js",
        }
    }

    /// Writes what it runs, where that is another file.
    pub(super) fn write_script(self, serving: &Serving) -> Result<(), Error> {
        match self {
            ApplicationKind::Php => {
                let script = serving.folder().join("work.php");
                peers::write("overload/work.php", &script, &[], &[])
            }
            ApplicationKind::Python | ApplicationKind::Node => Ok(()),
        }
    }
}
