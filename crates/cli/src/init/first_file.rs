//! The text of a first configuration file, and the next steps for its user.

use std::fmt::Write;
use std::path::Path;

/// The result of the three answers.
#[derive(Debug)]
pub(super) struct FirstFile {
    pub(super) origin: FirstOrigin,
    /// The host names; empty for every host.
    pub(super) hosts: Vec<String>,
    pub(super) listen: FirstListen,
    /// The name of the file, without its folder.
    pub(super) name: String,
}

/// The origin of answers.
#[derive(Debug)]
pub(super) enum FirstOrigin {
    /// The files of a folder.
    Folder { root: String },
    /// Files, and scripts that php-fpm runs.
    Php {
        root: String,
        to: String,
        /// Whether `index.php` answers for paths without a file.
        is_front_controller: bool,
    },
    /// Another server.
    Application {
        to: String,
        /// The language or framework, if it was recognized.
        what: Option<&'static str>,
    },
}

/// The addresses of the server.
#[derive(Debug)]
pub(super) enum FirstListen {
    At(String),
    /// Ports 80 and 443 of all addresses, certificates by ACME.
    Https,
}

impl FirstFile {
    /// The text of the file.
    pub(super) fn text(&self) -> String {
        let mut text = "# Begun by forebay init. `forebay check --print` says what every key means and what it is by \
                        default.\n# Relative paths begin at this file. After a change: forebay check, then forebay \
                        reload.\n\n"
            .to_owned();
        self.listener(&mut text);
        text.push_str("\n[log]\n");
        line(&mut text, "access = \"-\"", "standard output; a path is a file, \"off\" is none");
        line(&mut text, "format = \"combined\"", "or \"json\", \"common\"");
        text.push_str(
            "\n# Figures (/metrics) and how it is (/status), for this machine alone.\n# [admin]\n# listen = \
             \"127.0.0.1:9090\"\n\n[[site]]\n",
        );
        if !self.hosts.is_empty() {
            line(
                &mut text,
                &format!("hosts = {}", list(&self.hosts)),
                "it answers for these names",
            );
        }
        match &self.origin {
            FirstOrigin::Folder { root } => {
                line(&mut text, &format!("root = {}", quoted(root)), "the folder with the files");
                line(
                    &mut text,
                    "# listing = true",
                    "show what is in folders without an index.html",
                );
            }
            FirstOrigin::Php { root, .. } => {
                line(&mut text, &format!("root = {}", quoted(root)), "the folder with the files");
            }
            FirstOrigin::Application { .. } => {}
        }
        if matches!(self.listen, FirstListen::Https) {
            line(&mut text, "tls.acme = true", "a certificate of Let's Encrypt");
            line(&mut text, "tls.redirect = 308", "who comes to port 80 is sent to https");
        }
        self.rules(&mut text);
        text
    }

    fn listener(&self, text: &mut String) {
        match &self.listen {
            FirstListen::At(address) => {
                let listen = format!("listen = [{}]", quoted(address));
                line(text, &listen, "\":80\" is port 80 at all addresses");
            }
            FirstListen::Https => {
                text.push_str("listen = [\":80\", \"https://:443\"]\n\n[acme]\n");
                line(
                    text,
                    "agree = true",
                    "to the terms of Let's Encrypt, https://letsencrypt.org/repository",
                );
            }
        }
    }

    /// Writes the sections for requests: denied names, and the origin that runs scripts or answers.
    fn rules(&self, text: &mut String) {
        match &self.origin {
            FirstOrigin::Folder { .. } => self.closed(text, "php\\d?|"),
            FirstOrigin::Php { to, is_front_controller, .. } => {
                text.push_str("\n# Files that end in .php are run by php-fpm, and never sent.\n[[site.fastcgi]]\n");
                line(text, &format!("to = {}", quoted(to)), "where php-fpm listens");
                let comment = if *is_front_controller { "" } else { "# " };
                line(
                    text,
                    &format!("{comment}try = \"/index.php\""),
                    "it answers where no file is",
                );
                self.closed(text, "");
            }
            FirstOrigin::Application { to, what } => {
                let seen = what.map_or(String::new(), |what| {
                    format!(" There are sources for {what}; this is its usual address.")
                });
                let _ = writeln!(
                    text,
                    "\n# Requests are passed on to the application.{seen}\n[[site.proxy]]"
                );
                line(text, "path = \"/\"", "every request; with \"/api\" files have the others");
                line(text, &format!("to = {}", quoted(to)), "where it listens");
                line(
                    text,
                    "# in_flight = 8",
                    "so many at once; others wait, in order of their classes",
                );
                line(text, "# check = { path = \"/\" }", "leave it out while it does not answer");
            }
        }
    }

    /// Writes the rule that denies names no client may see, and files with one of these `endings`.
    fn closed(&self, text: &mut String, endings: &str) {
        // a name with characters that mean something in expressions is covered by its ending
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
        let name = match self.name.chars().all(is_plain) {
            true => self.name.replace('.', "\\."),
            false => "[^/]*\\.toml".to_owned(),
        };
        let _ = write!(
            text,
            "\n# Names of keys, databases, sources, forgotten copies and this file: nobody is to see them. Take out \
             what of\n# them the site means to show.\n[[site.access]]\nregex = \
             '(?i)(/({name}|package(-lock)?\\.json|composer\\.(json|lock))|\\.(env|key|pem|sql|sqlite3?|db|{endings}inc|\
             ini|bak|old|orig|swp)|~)$'\ndeny = [\"all\"]\n"
        );
    }

    /// The message about what was done, with the next steps.
    pub(super) fn next(&self, file: &Path) -> String {
        let mut said = format!("forebay init: {} is written and good\n", file.display());
        let option = match file == Path::new("forebay.toml") {
            true => String::new(),
            false => format!(" -c {}", file.display()),
        };
        let mut steps = Vec::new();
        match &self.origin {
            FirstOrigin::Folder { .. } => {}
            FirstOrigin::Php { to, .. } => {
                let socket = to.trim_start_matches("unix:");
                if !Path::new(socket).exists() {
                    steps.push(format!(
                        "install and start php-fpm; the file says that it listens at {socket}"
                    ));
                }
            }
            FirstOrigin::Application { to, .. } => {
                steps.push(format!("start the application; the file says that it listens at {to}"));
            }
        }
        if matches!(self.listen, FirstListen::Https) {
            let names = self.hosts.join(", ");
            steps.push(format!(
                "have {names} lead to this machine, with ports 80 and 443 open; only root or a service listens there"
            ));
        }
        steps.push(format!("forebay run{option}"));
        let place = match (&self.listen, self.hosts.first()) {
            (FirstListen::Https, Some(host)) => Some(format!("https://{host}/")),
            (FirstListen::At(address), host) => shown_address(address, host.map(String::as_str)),
            (FirstListen::Https, None) => None,
        };
        if let Some(place) = place {
            steps.push(format!("open {place}"));
        }
        said.push_str("Next:");
        for (number, step) in (1..).zip(steps) {
            let _ = write!(said, "\n  {number}. {step}");
        }
        said
    }
}

/// The URL under which a browser shows what listens at an address; `None` for a Unix socket.
fn shown_address(address: &str, host: Option<&str>) -> Option<String> {
    let (ip, port) = address.rsplit_once(':').filter(|_| !address.starts_with("unix:"))?;
    let is_all = matches!(ip, "" | "*" | "0.0.0.0" | "[::]");
    let shown = match host.filter(|host| is_all && !host.starts_with('*')) {
        Some(host) => host,
        None if is_all => "127.0.0.1",
        None => ip,
    };
    Some(match port {
        "80" => format!("http://{shown}/"),
        port => format!("http://{shown}:{port}/"),
    })
}

/// Writes a setting, with its meaning as a comment in a column of its own.
fn line(text: &mut String, setting: &str, meaning: &str) {
    let _ = writeln!(text, "{setting:<31} # {meaning}");
}

/// A string of TOML, in which no part is read as a variable.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = "\"".to_owned();
    for letter in text.replace("${", "$${").chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            letter if letter.is_control() => drop(write!(quoted, "\\u{:04X}", u32::from(letter))),
            letter => quoted.push(letter),
        }
    }
    quoted + "\""
}

/// A TOML list of such strings.
pub(super) fn list(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
    format!("[{}]", texts.join(", "))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test says so by panicking")]

    use super::*;

    /// Every file that may come of it is good, and says what was answered.
    #[test]
    fn every_file_is_good() {
        let roots = [".", "a \"b\" \\c", "${HOME}/é", "a\nb"];
        let folder = |root: &&str| FirstOrigin::Folder { root: (*root).to_owned() };
        let mut origins: Vec<FirstOrigin> = roots.iter().map(folder).collect();
        for is_front_controller in [false, true] {
            let to = "unix:/run/php/php8.2-fpm.sock".to_owned();
            origins.push(FirstOrigin::Php { root: "www".to_owned(), to, is_front_controller });
        }
        for what in [None, Some("Node")] {
            origins.push(FirstOrigin::Application { to: "http://127.0.0.1:3000".to_owned(), what });
        }
        let hosts = [
            vec![],
            vec!["a.example".to_owned()],
            vec!["a.example".to_owned(), "b.example".to_owned()],
        ];
        let mut count = 0;
        for mut origin in origins {
            for hosts in &hosts {
                for is_https in [false, true] {
                    if is_https && hosts.is_empty() {
                        continue;
                    }
                    let listen = match is_https {
                        true => FirstListen::Https,
                        false => FirstListen::At(":8080".to_owned()),
                    };
                    let first = FirstFile {
                        origin,
                        hosts: hosts.clone(),
                        listen,
                        name: "forebay.toml".to_owned(),
                    };
                    let text = first.text();
                    let config = forebay_config::parse(&text, "forebay.toml")
                        .unwrap_or_else(|problems| panic!("{text}\n{problems:?}"));
                    let site = &config.sites[0];
                    assert_eq!(site.hosts.len(), hosts.len());
                    if let FirstOrigin::Folder { root } = &first.origin {
                        assert!(site.root.as_ref().unwrap().ends_with(root), "{:?}", site.root);
                        assert!(!site.access.is_empty());
                    }
                    assert!(first.next(Path::new("forebay.toml")).contains(". forebay run\n"));
                    origin = first.origin;
                    count += 1;
                }
            }
        }
        assert_eq!(count, 8 * 5);
    }

    #[test]
    fn it_is_said_where_to_look() {
        for (address, host, expected) in [
            ("127.0.0.1:8080", None, Some("http://127.0.0.1:8080/")),
            (":80", None, Some("http://127.0.0.1/")),
            (":80", Some("a.example"), Some("http://a.example/")),
            ("127.0.0.1:8080", Some("a.example"), Some("http://127.0.0.1:8080/")),
            ("[::1]:8080", None, Some("http://[::1]:8080/")),
            ("unix:/run/a.sock", None, None),
        ] {
            assert_eq!(shown_address(address, host).as_deref(), expected, "{address}");
        }
    }
}
