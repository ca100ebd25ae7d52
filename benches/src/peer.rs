//! The servers: where they come from, how they are called and configured.

use crate::case::{Case, Mode};
use crate::{Error, template, tls};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One server with one configuration.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// As `--servers` takes it and the tables show it.
    pub name: &'static str,
    /// The program.
    pub program: &'static str,
    /// The Debian package that has it; empty if it is built here.
    pub package: &'static str,
    /// How it is configured, in a word for the summary.
    pub setting: &'static str,
    /// What makes it print its version.
    version: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Forebay,
    Limit,
    /// Called with a configuration file: the template, and the arguments before its name.
    Configured {
        template: &'static str,
        arguments: &'static [&'static str],
        sendfile: bool,
    },
}

/// Ours.
pub const FOREBAY: &str = "forebay";
/// The floor.
pub const LIMIT: &str = "limit";
/// Ours, built from another commit.
pub const BEFORE: &str = "before";

const OURS: Peer = Peer {
    name: FOREBAY,
    program: "forebay",
    package: "",
    setting: "serve DIR --workers 1",
    version: "version",
    kind: Kind::Forebay,
};

const NGINX: Peer = Peer {
    name: "nginx",
    program: "nginx",
    package: "nginx",
    setting: "open_file_cache, reuseport, sendfile on",
    version: "-v",
    kind: Kind::Configured {
        template: include_str!("../peers/nginx.conf"),
        arguments: &["-c"],
        sendfile: true,
    },
};

/// All servers, in the order of the tables.
pub const PEERS: &[Peer] = &[
    Peer {
        name: LIMIT,
        program: "limit",
        package: "",
        setting: "baked answers, no parsing",
        version: "",
        kind: Kind::Limit,
    },
    OURS,
    Peer { name: BEFORE, setting: "the same, another build", ..OURS },
    NGINX,
    Peer {
        name: "nginx-copy",
        setting: "open_file_cache, reuseport, sendfile off",
        kind: Kind::Configured {
            template: include_str!("../peers/nginx.conf"),
            arguments: &["-c"],
            sendfile: false,
        },
        ..NGINX
    },
    Peer {
        name: "lighttpd",
        program: "lighttpd",
        package: "lighttpd",
        setting: "one process",
        version: "-v",
        kind: Kind::Configured {
            template: include_str!("../peers/lighttpd.conf"),
            arguments: &["-D", "-f"],
            sendfile: true,
        },
    },
    Peer {
        name: "h2o",
        program: "h2o",
        package: "h2o",
        setting: "one thread",
        version: "-v",
        kind: Kind::Configured {
            template: include_str!("../peers/h2o.conf"),
            arguments: &["-c"],
            sendfile: true,
        },
    },
    Peer {
        name: "apache",
        program: "apache2",
        package: "apache2-bin",
        setting: "event, one process of 128 threads",
        version: "-v",
        kind: Kind::Configured {
            template: include_str!("../peers/apache2.conf"),
            arguments: &["-D", "FOREGROUND", "-f"],
            sendfile: true,
        },
    },
];

/// The server called `name`.
pub fn find(name: &str) -> Option<&'static Peer> {
    PEERS.iter().find(|peer| peer.name == name)
}

/// Where `program` is: an absolute path, or a name looked for in PATH and the administrator's
/// folders, which Debian leaves out of a user's PATH.
pub fn locate(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/usr/local/sbin".into()])
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.is_file())
}

/// What a server is started with.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'s> {
    /// The program.
    pub program: &'s Path,
    /// The folder it serves.
    pub root: &'s Path,
    /// A folder for its configuration, log and temporary files.
    pub scratch: &'s Path,
    /// The port on 127.0.0.1.
    pub port: u16,
    /// What it will be asked.
    pub case: &'s Case,
}

impl Peer {
    /// Whether it is built here rather than installed.
    pub fn is_ours(&self) -> bool {
        self.package.is_empty()
    }

    /// Whether it can be asked in this way.
    pub fn speaks(&self, case: &Case) -> bool {
        !(case.tls && self.kind == Kind::Limit)
    }

    /// The access log it writes if the case asks for one.
    pub fn log(&self, setup: &Setup<'_>) -> Option<PathBuf> {
        match self.kind {
            _ if !setup.case.log => None,
            Kind::Limit => None,
            // To standard output.
            Kind::Forebay => Some(setup.scratch.join("stdout")),
            Kind::Configured { .. } => Some(setup.scratch.join("access.log")),
        }
    }

    /// What it says its version is, on one line.
    pub fn version(&self, program: &Path) -> String {
        if self.version.is_empty() {
            return "of this tree".into();
        }
        crate::machine::first_line(Command::new(program).arg(self.version))
    }

    /// The command line, with the configuration written where it points to.
    pub fn command(&self, setup: &Setup<'_>) -> Result<Command, Error> {
        let mut command = Command::new(setup.program);
        match self.kind {
            Kind::Forebay if setup.case.tls => {
                let path = setup.scratch.join("forebay.toml");
                let text = fill(include_str!("../peers/forebay-tls.toml"), setup, true);
                fs::write(&path, text).map_err(Error::io("cannot write", &path))?;
                command.arg("run").arg("-c").arg(path);
            }
            Kind::Forebay => {
                command.arg("serve").arg(setup.root).args(["--workers", "1"]);
                command.arg("--listen").arg(format!("127.0.0.1:{}", setup.port));
                if !setup.case.log {
                    command.arg("--no-log");
                }
            }
            Kind::Limit => limit_arguments(&mut command, setup),
            Kind::Configured { template, arguments, sendfile } => {
                let path = setup.scratch.join("server.conf");
                fs::write(&path, fill(template, setup, sendfile))
                    .map_err(Error::io("cannot write", &path))?;
                command.args(arguments).arg(path);
            }
        }
        Ok(command)
    }
}

fn limit_arguments(command: &mut Command, setup: &Setup<'_>) {
    command.arg("--port").arg(setup.port.to_string());
    command.arg("--body-bytes").arg(setup.case.body_bytes.to_string());
    match setup.case.mode {
        Mode::KeepAlive => {}
        Mode::Close => {
            command.arg("--close");
        }
        Mode::Pipelined(depth) => {
            command.arg("--pipelined").arg(depth.to_string());
        }
        Mode::NotModified => {
            command.args(["--status", "304"]);
        }
    }
}

/// Fills in a template: see the head of any file in `peers/`.
fn fill(template: &str, setup: &Setup<'_>, sendfile: bool) -> String {
    let Case { log, tls, .. } = *setup.case;
    let http2 = setup.case.http2.is_some();
    let http1 = tls && !http2;
    let tags = [
        ("log", log),
        ("nolog", !log),
        ("plain", !tls),
        ("tls", tls),
        ("tls1", http1),
        ("tls2", http2),
    ];
    let (certificate, key) = tls::files(setup.root);
    let words = [
        ("ROOT", setup.root.display().to_string()),
        ("TMP", setup.scratch.display().to_string()),
        ("PORT", setup.port.to_string()),
        ("CERTIFICATE", certificate.display().to_string()),
        ("KEY", key.display().to_string()),
        ("SENDFILE", if sendfile { "on" } else { "off" }.to_owned()),
    ];
    template::fill(template, &tags, &words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_filled_completely() {
        for name in ["1k", "1k-log", "1k-tls", "1k-h2"] {
            let case = crate::case::find(name).expect("a known case");
            let path = Path::new("/x");
            let setup = Setup { program: path, root: path, scratch: path, port: 1, case };
            for peer in PEERS {
                let Kind::Configured { template, sendfile, .. } = peer.kind else { continue };
                let text = fill(template, &setup, sendfile);
                let settings = text.lines().filter(|line| !line.trim_start().starts_with('#'));
                assert!(!settings.clone().any(|line| line.contains('@')), "{}", peer.name);
                let logs = settings.clone().any(|line| line.contains("access.log"));
                assert_eq!(logs, case.log, "{}", peer.name);
            }
        }
    }
}
