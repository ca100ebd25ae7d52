//! `forebay init`: turns three answers into a commented configuration file that `forebay check` accepts.
//!
//! `first_file.rs` makes the text of the file, without access to the disk. This module reads the answers,
//! from options, a terminal or a pipe, and checks them; then it writes the file, and never overwrites
//! another.

mod first_file;

use crate::exit::CommandFailure;
use crate::init_error::InitError;
use crate::sources::{self, KINDS};
use first_file::{FirstFile, FirstListen, FirstOrigin};
use forebay_config::{Problem, Wrong};
use forebay_server::config_file;
use forebay_server::lints::Depth;
use std::fs::{self, OpenOptions};
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{self, Path, PathBuf};

/// The answer that means ports 80 and 443 with certificates by ACME.
const HTTPS: &str = "https";

/// The address of a server for which no address is given.
const HERE: &str = "127.0.0.1:8080";

/// The folders into which build tools write sites.
const BUILT: [&str; 3] = ["dist", "build", "out"];

/// The folder of the sockets of Debian's php-fpm.
const PHP_SOCKETS: &str = "/run/php";

/// The longest answer that is read from a pipe, in bytes.
const MOST_ANSWER_BYTES: usize = 4096;

/// Options of `init`.
#[derive(Debug, clap::Args)]
pub(crate) struct InitArgs {
    /// What is served: a folder, or the address of an application such as http://127.0.0.1:3000
    /// [default: this folder, or the application that is in it]
    #[arg(value_name = "WHAT")]
    what: Option<String>,
    /// A host name that it answers for; may be given several times [default: every name]
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// Where it listens: an address, or https for ports 80 and 443 with certificates that Let's Encrypt
    /// gives for the host names, whose terms you agree to by that [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// The file; one that is there stays as it is
    #[arg(short, long, value_name = "FILE", default_value = "forebay.toml")]
    config: PathBuf,
}

/// A question, with the function that reads an answer, or returns a sentence about what is wrong with it.
struct InitQuestion<'q, T> {
    /// The name of the question in an error.
    asked: &'static str,
    text: String,
    /// The answer that an empty line stands for.
    default: String,
    read: &'q dyn Fn(&str) -> Result<T, String>,
}

/// The source of answers.
enum Answers {
    /// The default of every question.
    Defaults,
    /// The terminal: a wrong answer is asked for again.
    Terminal,
    /// Lines of a pipe; behind the last one, defaults.
    Pipe,
}

/// Writes the file, checks it, and prints the next steps.
pub(crate) fn run(args: &InitArgs) -> Result<(), CommandFailure> {
    let file = &args.config;
    if fs::symlink_metadata(file).is_ok() {
        return Err(InitError::Exists(file.clone()).into());
    }
    let first = answered(args)?;
    let text = first.text();
    let unwritable = |error| InitError::Unwritable(file.clone(), error);
    let mut opened = match OpenOptions::new().write(true).create_new(true).open(file) {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(InitError::Exists(file.clone()).into());
        }
        Err(error) => return Err(unwritable(error).into()),
    };
    let written = opened.write_all(text.as_bytes()).map_err(|error| unwritable(error).into());
    let checked = written.and_then(|()| {
        config_file::check(file, Depth::Surroundings).map_err(CommandFailure::Configuration)
    });
    let remarks = match checked {
        Ok((_, remarks)) => remarks,
        Err(failure) => {
            // only the file that was just made is removed; the failure that is returned says what was wrong
            let _ = fs::remove_file(file);
            return Err(failure);
        }
    };
    remarks.iter().for_each(|remark| crate::say(&format!("warning: {remark}")));
    crate::say(&first.next(file));
    Ok(())
}

/// Gets the three answers.
fn answered(args: &InitArgs) -> Result<FirstFile, InitError> {
    let is_given = args.what.is_some() || !args.host.is_empty() || args.listen.is_some();
    let answers = match () {
        () if is_given => Answers::Defaults,
        () if io::stdin().is_terminal() => Answers::Terminal,
        () => Answers::Pipe,
    };
    let folder = args.config.parent().filter(|folder| !folder.as_os_str().is_empty());
    let read = |text: &str| origin(text, folder);
    let origin = InitQuestion {
        asked: "what is served",
        text: "What is served: a folder, or the address of an application".to_owned(),
        default: ".".to_owned(),
        read: &read,
    };
    let origin = origin.answer(args.what.as_deref(), &answers)?;
    let hosts = InitQuestion {
        asked: "host names",
        text: "For which host names, with blanks between them; none is every name".to_owned(),
        default: String::new(),
        read: &hosts,
    };
    let given = (!args.host.is_empty()).then(|| args.host.join(" "));
    let hosts = hosts.answer(given.as_deref(), &answers)?;
    let read = |text: &str| listen(text, &hosts);
    let listen = InitQuestion {
        asked: "where it listens",
        text: "Where it listens: an address, or https for ports 80 and 443 with certificates of \
               Let's Encrypt, whose terms you agree to by that"
            .to_owned(),
        default: HERE.to_owned(),
        read: &read,
    };
    let listen = listen.answer(args.listen.as_deref(), &answers)?;
    let name = args.config.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(FirstFile { origin, hosts, listen, name })
}

impl<T> InitQuestion<'_, T> {
    /// The answer that was given as an option, or the one that is read now.
    fn answer(&self, given: Option<&str>, answers: &Answers) -> Result<T, InitError> {
        let wrong = |wrong| InitError::Answer { asked: self.asked, wrong };
        match (given, answers) {
            (Some(given), _) => (self.read)(given).map_err(wrong),
            (None, Answers::Defaults) => (self.read)(&self.default).map_err(wrong),
            (None, Answers::Pipe) => {
                let line = line()?.unwrap_or_default();
                (self.read)(self.or_default(&line)).map_err(wrong)
            }
            (None, Answers::Terminal) => loop {
                let default = match self.default.as_str() {
                    "" => String::new(),
                    default => format!(" [{default}]"),
                };
                crate::prompt(&format!("{}{default}: ", self.text));
                let line = line()?.ok_or(InitError::Stopped)?;
                match (self.read)(self.or_default(&line)) {
                    Ok(answer) => return Ok(answer),
                    Err(wrong) => crate::say(&format!("  {wrong}")),
                }
            },
        }
    }

    fn or_default<'a>(&'a self, line: &'a str) -> &'a str {
        Some(line.trim()).filter(|line| !line.is_empty()).unwrap_or(&self.default)
    }
}

/// The next line of standard input; `None` at its end.
fn line() -> Result<Option<String>, InitError> {
    let mut line = Vec::new();
    let mut stdin = io::stdin().lock();
    let read = io::Read::take(&mut stdin, MOST_ANSWER_BYTES as u64).read_until(b'\n', &mut line);
    match read.map_err(InitError::Unreadable)? {
        0 => Ok(None),
        MOST_ANSWER_BYTES.. => {
            let error = format!("a line has {MOST_ANSWER_BYTES} bytes or more");
            Err(InitError::Unreadable(io::Error::new(io::ErrorKind::InvalidData, error)))
        }
        _ => String::from_utf8(line).map(Some).map_err(|error| {
            InitError::Unreadable(io::Error::new(io::ErrorKind::InvalidData, error))
        }),
    }
}

/// Reads an answer as a folder or an application's address. Relative paths begin at `beside`, the folder of
/// the file.
fn origin(text: &str, beside: Option<&Path>) -> Result<FirstOrigin, String> {
    let is_address = ["http://", "https://", "unix:"].iter().any(|start| text.starts_with(start));
    if is_address {
        let to = text.trim_end_matches('/').to_owned();
        first_wrong(&format!("[[proxy]]\npath = \"/\"\nto = {}\n", first_file::quoted(&to)))?;
        return Ok(FirstOrigin::Application { to, what: None });
    }
    let folder = Path::new(text);
    match fs::metadata(folder) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => return Err(format!("{text} is no folder")),
        Err(_) if text.parse::<std::net::SocketAddr>().is_ok() || is_port(text) => {
            return Err(format!(
                "an application's address begins with http://, as in http://{text}"
            ));
        }
        Err(error) => return Err(format!("{text}: {error}")),
    }
    let entries = sources::entries(folder);
    let has = |name: &str| entries.iter().any(|entry| entry == name.as_bytes());
    let root = match beside {
        None => folder.to_owned(),
        Some(_) => path::absolute(folder).map_err(|error| format!("{text}: {error}"))?,
    };
    let root = root.into_os_string().into_string().map_err(|_| {
        format!("{}: a configuration file cannot name it, because it is no UTF-8", folder.display())
    })?;
    let beneath = |name: &str| Path::new(&root).join(name).to_string_lossy().into_owned();
    // frameworks have their public files in a folder of their own
    if folder.join("public/index.php").is_file() {
        let (root, to) = (beneath("public"), php_socket());
        return Ok(FirstOrigin::Php { root, to, is_front_controller: true });
    }
    // a site that was built with Node consists of files
    let is_built = |name: &&&str| folder.join(name).join("index.html").is_file();
    if let Some(name) = BUILT.iter().find(is_built).filter(|_| has("package.json")) {
        return Ok(FirstOrigin::Folder { root: beneath(name) });
    }
    let found = KINDS.iter().find(|kind| !kind.index.is_empty() && kind.is_among(&entries));
    match found {
        Some(kind) if kind.what == "PHP" => {
            let is_front_controller = has("composer.json") || has("wp-load.php");
            Ok(FirstOrigin::Php { root, to: php_socket(), is_front_controller })
        }
        Some(kind) if !has("index.html") => {
            let port = if kind.what == "Node" || kind.what == "Ruby" { 3000 } else { 8000 };
            let to = format!("http://127.0.0.1:{port}");
            Ok(FirstOrigin::Application { to, what: Some(kind.what) })
        }
        _ => Ok(FirstOrigin::Folder { root }),
    }
}

fn is_port(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok())
}

/// The socket of the newest php-fpm that is installed.
fn php_socket() -> String {
    let names = sources::entries(Path::new(PHP_SOCKETS));
    let names = names.into_iter().filter_map(|name| String::from_utf8(name).ok());
    let newest = names.filter(|name| name.ends_with("-fpm.sock")).max();
    format!("unix:{PHP_SOCKETS}/{}", newest.as_deref().unwrap_or("php-fpm.sock"))
}

/// Reads host names, separated by blanks or commas.
fn hosts(text: &str) -> Result<Vec<String>, String> {
    let names = text.split([' ', ',', '\t']).filter(|name| !name.is_empty());
    let names: Vec<String> = names.map(str::to_owned).collect();
    if !names.is_empty() {
        first_wrong(&format!("[[site]]\nroot = \".\"\nhosts = {}\n", first_file::list(&names)))?;
    }
    Ok(names)
}

fn listen(text: &str, hosts: &[String]) -> Result<FirstListen, String> {
    if text == HTTPS {
        return match hosts.iter().find(|host| !can_have_certificate(host)) {
            _ if hosts.is_empty() => {
                Err("https needs a host name, for which there is a certificate".to_owned())
            }
            Some(host) => Err(format!("Let's Encrypt gives no certificate for {host}")),
            None => Ok(FirstListen::Https),
        };
    }
    if text.starts_with("https://") {
        return Err(
            "say https, for ports 80 and 443, or an address without it: other ports with TLS \
                    need certificates, which the manual's page about TLS tells of"
                .to_owned(),
        );
    }
    first_wrong(&format!("root = \".\"\nlisten = [{}]\n", first_file::quoted(text)))?;
    Ok(FirstListen::At(text.to_owned()))
}

/// Whether the host's owner can prove to an authority, by a request, that it is theirs: a public name, no
/// wildcard.
fn can_have_certificate(host: &str) -> bool {
    let is_local = host == "localhost"
        || [".localhost", ".local", ".internal"].iter().any(|end| host.ends_with(end));
    let is_address = host.parse::<std::net::IpAddr>().is_ok() || host.starts_with('[');
    host.contains('.') && !host.contains('*') && !is_local && !is_address
}

/// Checks a text of settings; the error is that of the first wrong value.
fn first_wrong(text: &str) -> Result<(), String> {
    let said = |problems: Vec<Problem>| {
        let wrong = problems.into_iter().next().map(|problem| problem.wrong);
        wrong.as_ref().map(Wrong::to_string).unwrap_or_default()
    };
    forebay_config::parse(text, "").map(|_| ()).map_err(said)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test says so by panicking")]

    use super::*;

    #[test]
    fn an_answer_is_looked_at() {
        for (text, expected) in [
            ("http://127.0.0.1:3000/", Ok("http://127.0.0.1:3000")),
            ("unix:/run/a.sock", Ok("unix:/run/a.sock")),
            ("127.0.0.1:3000", Err("begins with http://")),
            ("localhost:3000", Err("as in http://localhost:3000")),
            ("http://", Err("")),
            ("/nowhere", Err("/nowhere: No such file")),
            ("/etc/passwd", Err("is no folder")),
        ] {
            match (origin(text, None), expected) {
                (Ok(FirstOrigin::Application { to, .. }), Ok(expected)) => assert_eq!(to, expected),
                (Err(said), Err(expected)) => assert!(said.contains(expected), "{said}"),
                (got, _) => panic!("{text}: {got:?}"),
            }
        }
        assert_eq!(hosts(" a.example,  b.example ").unwrap(), ["a.example", "b.example"]);
        assert!(hosts("").unwrap().is_empty());
        assert!(hosts("a_b/").is_err() && hosts("a.example a.example").is_err());
        let names = |text: &str| hosts(text).unwrap();
        for (text, names, is_good) in [
            ("https", names("a.example"), true),
            ("https", names(""), false),
            ("https", names("localhost"), false),
            ("https", names("a.example *.a.example"), false),
            (":8080", names(""), true),
            ("127.0.0.1", names(""), false),
            ("https://:443", names("a.example"), false),
            ("nonsense", names(""), false),
        ] {
            assert_eq!(listen(text, &names).is_ok(), is_good, "{text} {names:?}");
        }
    }
}
