//! What `forebay check` says about files and directories that a configuration names.
#![forbid(unsafe_code)]
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use forebay_config::Config;
use forebay_server::config_file::{check, load};
use forebay_server::lints::Depth;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A fresh directory with `site` in it, removed when this is dropped.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("config-files-{}-{number}", std::process::id());
        // every user may enter this directory, unlike one below a home
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(path.join("site")).unwrap();
        Folder(path)
    }

    /// Loads a file with this text; its errors have `DIR` in the place of the directory.
    pub(crate) fn load(&self, text: &str) -> Result<Config, Vec<String>> {
        let file = self.0.join("forebay.toml");
        fs::write(&file, text).unwrap();
        let directory = self.0.display().to_string();
        load(&file).map_err(|problems| {
            problems.iter().map(|problem| problem.to_string().replace(&directory, "DIR")).collect()
        })
    }

    /// The remarks on a file with this text, which is valid.
    pub(crate) fn remarks(&self, text: &str) -> Vec<String> {
        let file = self.0.join("forebay.toml");
        fs::write(&file, text).unwrap();
        let directory = self.0.display().to_string();
        let (_, remarks) = check(&file, Depth::Machine).unwrap();
        remarks.iter().map(|remark| remark.to_string().replace(&directory, "DIR")).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn what_is_there_is_good() {
    let folder = Folder::new();
    fs::write(folder.0.join("users"), "").unwrap();
    let text = "root = \"site\"\nlog.access = \"access.log\"\n[[auth]]\nfile = \"users\"\n";
    let config = folder.load(text).unwrap();
    assert_eq!(config.sites[0].root, Some(folder.0.join("site")));
    assert_eq!(config.sites[0].auth[0].file, Some(folder.0.join("users")));
}

#[test]
fn everything_that_is_missing_is_told_with_its_place() {
    let folder = Folder::new();
    fs::write(folder.0.join("file"), "").unwrap();
    let problems = folder.load(
        "[[site]]\nhosts = [\"a.example\"]\nroot = \"nowhere\"\nlog.access = \"logs/a.log\"\n\
         [[site]]\nroot = \"file\"\n[[site.auth]]\nfile = \"users\"\n",
    );
    let expected = [
        "DIR/forebay.toml:3:8: site.root: cannot use the directory \"DIR/nowhere\": No such file or \
         directory (os error 2)",
        "DIR/forebay.toml:4:14: site.log.access: cannot use the directory \"DIR/logs\": No such file \
         or directory (os error 2)",
        "DIR/forebay.toml:6:8: site.root: cannot use the directory \"DIR/file\": not a directory",
        "DIR/forebay.toml:8:8: site.auth.file: cannot read the file \"DIR/users\": No such file or \
         directory (os error 2)",
    ];
    assert_eq!(problems.unwrap_err(), expected);
}

#[test]
fn a_log_is_no_directory() {
    let folder = Folder::new();
    fs::create_dir(folder.0.join("logs")).unwrap();
    for name in ["logs", "logs/"] {
        let problems = folder.load(&format!("root = \"site\"\nlog.access = \"{name}\"\n"));
        let expected =
            "DIR/forebay.toml:2:14: log.access: \"DIR/logs\" is a directory, name a file in it";
        assert_eq!(problems.unwrap_err(), [expected]);
    }
}

/// A log inside a root is found by a link or `..` as well as by its plain name.
#[test]
fn a_log_that_clients_could_read_is_told_by_whatever_name() {
    let folder = Folder::new();
    let directory = |name: &str| folder.0.join(name);
    fs::create_dir(directory("logs")).unwrap();
    symlink("site", directory("link")).unwrap();
    fs::write(directory("site/own.log"), "").unwrap();
    symlink("../site/own.log", directory("logs/linked.log")).unwrap();
    let with = |log: &str, more: &str| {
        folder.load(&format!("root = \"site\"\nlog.access = \"{log}\"\n{more}"))
    };
    let served = |log: &str, root: &str, see: &str| {
        format!(
            "DIR/forebay.toml:2:14: log.access: clients could read \"DIR/{log}\", \"DIR/{root}\" is \
             served, see {see}"
        )
    };
    for log in ["link/access.log", "logs/../site/access.log", "logs/linked.log"] {
        assert_eq!(with(log, "").unwrap_err(), [served(log, "site", "1:8")]);
    }
    // reported once, though both sites have it
    let sites = "[[site]]\nhosts = [\"a.example\"]\n[[site]]\nhosts = [\"b.example\"]\n";
    assert_eq!(with("link/a.log", sites).unwrap_err(), [served("link/a.log", "site", "1:8")]);
    let alias = "[[alias]]\npath = \"/logs\"\nto = \"linked\"\n";
    symlink("logs", directory("linked")).unwrap();
    assert_eq!(with("logs/a.log", alias).unwrap_err(), [served("logs/a.log", "linked", "5:6")]);
    assert!(with("logs/a.log", "").is_ok());
    assert!(with("link/../a.log", "").is_ok());
}

#[test]
fn what_several_sites_inherit_is_told_once() {
    let folder = Folder::new();
    let problems = folder.load(
        "root = \"nowhere\"\n[[auth]]\nfile = \"users\"\n\
         [[site]]\nhosts = [\"a.example\"]\n[[site]]\nhosts = [\"b.example\"]\n",
    );
    let expected = [
        "DIR/forebay.toml:1:8: root: cannot use the directory \"DIR/nowhere\": No such file or \
         directory (os error 2)",
        "DIR/forebay.toml:3:8: auth.file: cannot read the file \"DIR/users\": No such file or \
         directory (os error 2)",
    ];
    assert_eq!(problems.unwrap_err(), expected);
}

#[test]
fn files_are_looked_for_only_when_all_else_is_good() {
    let folder = Folder::new();
    let problems = folder.load("root = \"nowhere\"\nworkers = 0\n").unwrap_err();
    let expected = "DIR/forebay.toml:2:11: workers: 0 is out of range, from 1 to 65536 is allowed";
    assert_eq!(problems, [expected]);
}

#[test]
fn the_sample_can_be_run_as_it_is() {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/forebay.toml");
    let problems = load(&sample).err().unwrap_or_default();
    assert!(problems.is_empty(), "{}", problems[0]);
}

/// A socket that cannot be made is an error of `check`, but not where a service manager has made
/// it.
#[test]
fn sockets_that_cannot_be_made_are_told() {
    let folder = Folder::new();
    let text = "root = \"site\"\nlisten = [\"unix:none/a.sock\"]\nadmin.listen = \"unix:site/file/b\"\n\
                control.socket = \"none/made/c\"\n";
    fs::write(folder.0.join("site/file"), "").unwrap();
    let file = folder.0.join("forebay.toml");
    fs::write(&file, text).unwrap();
    let directory = folder.0.display().to_string();
    let said = |problems: Vec<forebay_config::Problem>| {
        let lines = problems.iter().map(|p| p.to_string().replace(&directory, "DIR"));
        lines.collect::<Vec<_>>().join("\n")
    };
    let none = "No such file or directory (os error 2)";
    assert_eq!(
        said(check(&file, Depth::Machine).unwrap_err()),
        format!(
            "DIR/forebay.toml:2:11: listen: a socket cannot be made in the directory \"DIR/none\": {none}\n\
             DIR/forebay.toml:3:16: admin.listen: a socket cannot be made in the directory \
             \"DIR/site/file\": not a directory"
        )
    );
    // the server notices at its start, and may have been given the sockets
    assert!(load(&file).is_ok());
    fs::create_dir(folder.0.join("none")).unwrap();
    fs::remove_file(folder.0.join("site/file")).unwrap();
    fs::create_dir(folder.0.join("site/file")).unwrap();
    assert!(check(&file, Depth::Machine).is_ok());
}

#[test]
fn a_file_of_tokens_without_one_is_told() {
    let folder = Folder::new();
    let said = |tokens: &str| {
        fs::write(folder.0.join("tokens"), tokens).unwrap();
        let text = "root = \"site\"\n[admin]\nlisten = \"[::1]:9090\"\ntoken_file = \"tokens\"\n";
        folder.load(text).err().unwrap_or_default().join("\n")
    };
    let at = "DIR/forebay.toml:4:14: admin.token_file: the tokens in \"DIR/tokens\": ";
    assert_eq!(said("# of Prometheus\nabc\n"), "");
    assert_eq!(
        said("\n# none\n"),
        format!("{at}there are none: write one in a line, such as \"openssl rand -hex 32\" makes")
    );
    assert_eq!(
        said("abc\nuser:password\n"),
        format!("{at}line 2 is no token: only letters, digits and -._~+/ are, with = at the end")
    );
    let missing = folder.load("root = \"site\"\nadmin.token_file = \"nowhere\"\n").unwrap_err();
    assert!(missing[0].contains("\"DIR/nowhere\": cannot be read: No such file"), "{missing:?}");
}
