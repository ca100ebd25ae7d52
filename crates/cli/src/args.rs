//! Commands and options. The values of options are checked by the table of settings, as a
//! configuration file is.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Parser, Subcommand};
use forebay_config::{ConfigDraft, Role, Wrong};
use std::ffi::OsString;
use std::path::PathBuf;

/// A web server that stays fast, fair and up when more arrives than it can serve.
#[derive(Debug, Parser)]
#[command(name = "forebay", version, after_help = crate::exit::table())]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Args {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Parses the command line. Wrong usage ends the process with exit code 2.
pub(crate) fn parse() -> Args {
    parse_from(std::env::args_os()).unwrap_or_else(|error| error.exit())
}

/// Parses a command line. Where an unexpected argument looks like a configuration file, the error shows the
/// option for it.
fn parse_from(words: impl IntoIterator<Item = OsString>) -> Result<Args, clap::Error> {
    let words: Vec<OsString> = words.into_iter().collect();
    Args::try_parse_from(&words).map_err(|mut error| {
        let unknown = error.get(ContextKind::InvalidArg).map(ToString::to_string);
        let command = words.get(1).and_then(|word| word.to_str()).unwrap_or_default();
        if let Some(file) = unknown
            && error.kind() == ErrorKind::UnknownArgument
            && COMMANDS_OF_FILES.contains(&command)
            && !file.starts_with('-')
        {
            let tip = format!("the configuration file has an option: forebay {command} -c {file}");
            let tip = ContextValue::StyledStrs(vec![StyledStr::from(tip)]);
            error.insert(ContextKind::Suggested, tip);
        }
        error
    })
}

/// The commands that take a configuration file.
const COMMANDS_OF_FILES: [&str; 6] = ["run", "check", "reload", "status", "doctor", "upgrade"];

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a directory, without a configuration file
    Serve(Serve),
    /// Write a configuration file to begin with, from three answers: what is served, for which names, and where it
    /// listens. They are asked for on the terminal, or read as lines from a pipe, unless options say one of them
    Init(crate::init::InitArgs),
    /// Serve what a configuration file says
    Run {
        /// The configuration file
        #[arg(short, long, value_name = "FILE", default_value = "forebay.toml")]
        config: PathBuf,
        /// Take the place of the server with this control socket: forebay upgrade starts this
        #[arg(long, value_name = "PATH", hide = true)]
        in_place_of: Option<PathBuf>,
        /// Start that, and end
        #[arg(long, hide = true, requires = "in_place_of")]
        orphan: bool,
    },
    /// Start this program in place of the running one: it serves what comes from now on, and the other one
    /// what it has, to the end. No client notices. If this one cannot serve, the other one goes on
    Upgrade(crate::running_server::ServerArgs),
    /// Be one stage of a server with engine = "isolated": the server starts its stages by itself; this is
    /// for those who start them in other ways
    Stage(StageArgs),
    /// Stages on several machines
    #[command(subcommand, disable_help_subcommand = true)]
    Stages(crate::stage_keys::StagesCommand),
    /// Change the firewall as the server says on standard input, until it ends: the server starts this
    #[command(hide = true)]
    Firewall,
    /// Run the commands that a configuration file names, as the server says, until it ends: the server starts this
    #[command(hide = true)]
    Launcher {
        /// The configuration file
        #[arg(short, long, value_name = "FILE")]
        config: PathBuf,
        /// The directory that stages share, where there is a copy of it
        #[arg(long, value_name = "PATH")]
        links: Option<PathBuf>,
    },
    /// Run the CGI programs that a configuration file names, as the server says, until it ends: the server starts this
    #[command(hide = true)]
    CgiLauncher {
        /// The configuration file
        #[arg(short, long, value_name = "FILE")]
        config: PathBuf,
        /// The directory that stages share, where there is a copy of it
        #[arg(long, value_name = "PATH")]
        links: Option<PathBuf>,
    },
    /// Take the filters of a server away once it is gone: the server starts this where its kernel does not
    #[command(hide = true)]
    Gate,
    /// Have the running server read its configuration file again
    Reload {
        /// The configuration file that the server was started with
        #[arg(short, long, value_name = "FILE", default_value = "forebay.toml")]
        config: PathBuf,
        /// The server's control socket [default: what control.socket in the file says]
        #[arg(long, value_name = "PATH")]
        socket: Option<PathBuf>,
    },
    /// What of the running server is not as the file says: bans, and settings that policy set has changed.
    /// With engine = "isolated" its stages: their processes, whether they answer, and how often they were
    /// started again
    Status(crate::running_server::ServerArgs),
    /// Who is served first and who is not: what holds, why, and how to change it at once
    #[command(subcommand, disable_help_subcommand = true)]
    Policy(crate::policy::PolicyCommand),
    /// Say why a request was refused or got no answer of its application: by the id that its error page and
    /// its field X-Request-ID have. The running server remembers the last 4,096
    Why {
        #[command(flatten)]
        server: crate::running_server::ServerArgs,
        /// The id
        #[arg(value_name = "REQUEST-ID")]
        id: String,
    },
    /// Print which requests the kernel answers in the running server's place (gate_answers), how often it has, and
    /// what is asked for again and again that it does not answer, and why
    Answers(crate::running_server::ServerArgs),
    /// Applications behind: how they are, and how to take one out while the server runs
    #[command(subcommand, disable_help_subcommand = true)]
    Upstream(crate::upstream::UpstreamCommand),
    /// Say what is wrong with a configuration file, and warn of what has no effect in it
    Check {
        /// The configuration file
        #[arg(short, long, value_name = "FILE", default_value = "forebay.toml")]
        config: PathBuf,
        /// Print every setting: the value it has, what it means, its default and its range
        #[arg(long)]
        print: bool,
        /// Take warnings for errors: exit with 78 if there are any
        #[arg(long)]
        strict: bool,
        /// See files as this user does, for a server that a service manager starts as that user; needs root
        #[arg(long, value_name = "NAME")]
        user: Option<String>,
        /// Print which rules the kernel enforces, and why not the others
        #[arg(long)]
        gate: bool,
    },
    /// Say what this machine's kernel can enforce of the policy, what is missing for more, and what gets
    /// in the way
    Doctor {
        /// A configuration file whose addresses are looked at; without one ports 80 and 443
        #[arg(short, long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Make load for a server, and measure what it does with it
    Load(Box<crate::load::LoadArgs>),
    /// Measure what requests cost on this machine, and write it to a file for pipeline.calibration
    Calibrate(crate::calibrate::Calibrate),
    /// Print the hash of a password, for [[site.auth]] or its file of users; the password is asked
    /// for on the terminal, or read as one line from a pipe
    HashPassword(crate::hash_password::HashPassword),
    /// Print what a shell needs to complete the commands, options and files of forebay
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the version
    Version {
        /// Also print the revision of the source, the features that are built in, and the rungs of the gate
        #[arg(short, long)]
        verbose: bool,
    },
}

/// Options of `stage`.
#[derive(Debug, clap::Args)]
pub(crate) struct StageArgs {
    /// Which one
    #[arg(value_parser = role)]
    pub(crate) role: Role,
    /// The configuration file that all stages have
    #[arg(short, long, value_name = "FILE", default_value = "forebay.toml")]
    pub(crate) config: PathBuf,
    /// The directory with the sockets at which stages ask one another
    #[arg(long, value_name = "DIR")]
    pub(crate) links: PathBuf,
    /// Which of the processes of this stage it is
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=32))]
    pub(crate) instance: u64,
}

/// A stage by its name.
fn role(text: &str) -> Result<Role, String> {
    let found = Role::ALL.into_iter().find(|role| role.name() == text);
    found.ok_or_else(|| "expected receive, process or respond".to_owned())
}

/// Options of `serve`.
#[derive(Debug, clap::Args)]
pub(crate) struct Serve {
    /// The directory
    pub(crate) dir: PathBuf,
    /// Accept connections here; may be given several times [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub(crate) listen: Vec<GivenOption>,
    /// Accept connections at this port of 127.0.0.1, instead of --listen
    #[arg(short, long, value_name = "PORT", conflicts_with = "listen", value_parser = port)]
    pub(crate) port: Option<GivenOption>,
    /// Answer for a directory without an index file with a list of what is in it
    #[arg(long)]
    pub(crate) listing: bool,
    /// Answer with /index.html where no file is, nor a directory with an index file: for applications
    /// that have one page
    #[arg(long)]
    pub(crate) spa: bool,
    /// Send sources, keys, databases and backups, too: names such as *.php, package.json, .env and *.bak
    /// are else withheld
    #[arg(long)]
    pub(crate) sources: bool,
    /// Speak TLS, with a certificate that is made for this machine and kept
    /// [then --listen is 127.0.0.1:8443 by default]
    #[arg(long)]
    pub(crate) tls: bool,
    /// Open the site in a browser
    #[arg(long)]
    pub(crate) open: bool,
    /// What performs the steps of the request path: event, fibers, pipeline, pool or threads
    /// [default: event]
    #[arg(long, value_name = "NAME", value_parser = |text: &str| GivenOption::new("engine", text))]
    pub(crate) engine: Option<GivenOption>,
    /// Loops of event, fibers and pipeline, threads of pool, most threads of threads [default: one
    /// per core, 64, 1024]
    #[arg(long, value_name = "N", value_parser = |text: &str| GivenOption::new("workers", text))]
    pub(crate) workers: Option<GivenOption>,
    /// Write no access log [default: to standard output]
    #[arg(long)]
    pub(crate) no_log: bool,
    /// Serve /metrics and /status at this address, for this machine only [default: off]
    #[arg(long, value_name = "ADDR", value_parser = |text: &str| GivenOption::new("admin.listen", text))]
    pub(crate) admin: Option<GivenOption>,
}

/// Parses an address of `--listen`; one with TLS is refused, since there would be no certificate.
fn address(text: &str) -> Result<GivenOption, String> {
    match text.starts_with("https://") {
        false => GivenOption::new("listen", text),
        true => Err("write the address without https:// and add --tls, for a certificate of this \
                     machine's own; with one of yours, write a configuration file with listen, \
                     tls.certificate and tls.key, and use \"forebay run\""
            .to_owned()),
    }
}

/// Parses a port as an address of the loopback.
fn port(text: &str) -> Result<GivenOption, String> {
    match text.parse::<u16>() {
        Ok(port) => GivenOption::new("listen", &format!("127.0.0.1:{port}")),
        Err(_) => Err("expected a port, from 0 to 65535".to_owned()),
    }
}

/// A setting given as an option.
#[derive(Clone, Debug)]
pub(crate) struct GivenOption {
    key: &'static str,
    text: String,
}

impl GivenOption {
    /// Checks `text` against the row of the table; clap reports what is wrong as wrong usage.
    fn new(key: &'static str, text: &str) -> Result<GivenOption, String> {
        let given = GivenOption { key, text: text.to_owned() };
        given.apply(&mut ConfigDraft::new()).map_err(|wrong| wrong.to_string())?;
        Ok(given)
    }

    /// The setting's key in the configuration.
    pub(crate) fn key(&self) -> &'static str {
        self.key
    }

    /// The settings for an application with one page (`--spa`).
    pub(crate) fn of_one_page() -> [GivenOption; 3] {
        ["$path", "$path/", "/index.html"]
            .map(|path| GivenOption { key: "try_files", text: path.to_owned() })
    }

    /// Sets the value in `draft`; adds it if the setting is a list.
    ///
    /// # Errors
    /// The text is wrong, or the list has the value already.
    pub(crate) fn apply(&self, draft: &mut ConfigDraft) -> Result<(), Wrong> {
        draft.set(self.key, &self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_commands_are_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn who_names_a_file_without_its_option_is_told_of_it() {
        let said = |words: &[&str]| {
            let words = ["forebay"].iter().chain(words).map(OsString::from);
            parse_from(words).unwrap_err().to_string()
        };
        for command in COMMANDS_OF_FILES {
            let said = said(&[command, "/etc/site.toml"]);
            assert!(said.contains(&format!("forebay {command} -c /etc/site.toml")), "{said}");
        }
        for words in [&["run", "--no"][..], &["run", "--config=a", "--x"], &["version", "a.toml"]] {
            let said = said(words);
            assert!(!said.contains(" -c "), "{said}");
        }
        assert!(parse_from(["forebay", "run", "-c", "a.toml"].map(OsString::from)).is_ok());
    }

    #[test]
    fn every_option_stands_for_a_setting() {
        for (key, text) in
            [("listen", ":80"), ("engine", "event"), ("workers", "2"), ("admin.listen", "off")]
        {
            assert!(GivenOption::new(key, text).is_ok(), "{key}");
        }
    }
}
