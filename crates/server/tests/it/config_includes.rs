//! Configurations of several files, with variables and secrets.
#![forbid(unsafe_code)]
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use crate::config_files::Folder;
use forebay_config::{Config, parse};
use forebay_server::config_file::{keep, load_kept};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

/// A folder with these files.
fn folder(files: &[(&str, &str)]) -> Folder {
    let folder = Folder::new();
    for (name, text) in files {
        let path = folder.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

fn site(host: &str) -> String {
    format!("[[site]]\nhosts = [\"{host}\"]\n")
}

fn hosts(config: &Config) -> Vec<String> {
    config.sites.iter().flat_map(|site| &site.hosts).map(|host| host.as_str().to_owned()).collect()
}

#[test]
fn files_are_read_in_the_order_of_their_paths_and_patterns_as_they_stand() {
    let folder = folder(&[
        ("sites/b.toml", &site("b")),
        ("sites/a.toml", &site("a")),
        ("sites/B.toml", &site("upper")),
        ("sites/a-b/site.toml", &site("deep2")),
        ("sites/a/site.toml", &site("deep")),
        ("sites/.hidden.toml", "wrong"),
        ("sites/a.toml~", "wrong"),
        ("one.toml", &site("one")),
    ]);
    symlink(folder.0.join("one.toml"), folder.0.join("sites/c.toml")).unwrap();
    fs::create_dir(folder.0.join("sites/d.toml")).unwrap();
    let main = "include = [\"one.toml\", \"sites/*/site.toml\", \"sites/*.toml\", \"sites/a.toml\", \"*.toml\"]\n\
                root = \"site\"\n[[site]]\nhosts = [\"main\"]\n";
    fs::remove_file(folder.0.join("sites/c.toml")).unwrap();
    let config = folder.load(main).unwrap();
    assert_eq!(hosts(&config), ["main", "one", "deep2", "deep", "upper", "a", "b"]);
    // sites inherit settings of the top level, and paths begin at the main file
    assert!(config.sites.iter().all(|site| site.root == Some(folder.0.join("site"))));
    // all files together print as one text
    assert!(config.include.is_empty());
    let again = parse(&config.to_toml(), "forebay.toml").unwrap();
    assert_eq!(again.sites, config.sites);
}

#[test]
fn all_that_is_wrong_is_told_with_its_file() {
    let folder = folder(&[
        ("sites/a.toml", "[[site]]\nhosts = [\"x\"]\nrot = \"/srv\"\n"),
        ("sites/b.toml", "# a site\n\n[[site]]\nhosts = [\"y\", \"x\"]\n"),
        ("sites/c.toml", "[timeouts]\nhead = \"3s\"\nidle = \"3s\"\n[limits]\nstreams = 3\n"),
        ("sites/d.toml", "include = [\"e.toml\"]\n[[site]\n"),
        ("sites/e.toml", "include = [\"a.toml\"]\n[log]\naccess = \"maybe/\"\n"),
        ("sites/f.toml", "limits.streams = 4\n"),
        ("other.toml", "[[redirect]]\npath = \"/é\"\nto = \"/b\"\nstatus = 300\n"),
    ]);
    fs::write(folder.0.join("bad.toml"), b"a = 1\n\xff").unwrap();
    let main = "include = [\"sites/*.toml\", \"other.toml\", \"none.toml\", \"bad.toml\"]\n\
                root = \"site\"\ntimeouts.head = \"2s\"\n[[site]]\nhosts = [\"x\"]\nname = \"main\"\n";
    let said = folder.load(main).unwrap_err().join("\n");
    for expected in [
        "DIR/forebay.toml:1:42: include: cannot include \"DIR/none.toml\": No such file",
        "DIR/sites/a.toml:3:1: site.rot: unknown key",
        "DIR/sites/c.toml:2:1: timeouts.head: is set twice, see DIR/forebay.toml:3:17; of all files one may set it",
        "DIR/sites/d.toml:2:8: ",
        "DIR/sites/e.toml:1:1: include: an included file cannot include others",
        "DIR/sites/f.toml:1:8: limits.streams: is set twice, see DIR/sites/c.toml:5:11",
        "DIR/other.toml:4:10: redirect.status: expected a status",
        "DIR/bad.toml:2:1: is not UTF-8 from here on",
    ] {
        assert!(said.contains(expected), "{expected}\nin\n{said}");
    }
    // conflicts between files are reported once every file can be read
    for file in ["a", "c", "d", "e", "f"] {
        fs::write(folder.0.join(format!("sites/{file}.toml")), "").unwrap();
    }
    let main = main.replace(", \"other.toml\", \"none.toml\", \"bad.toml\"", "");
    let said = folder.load(&main).unwrap_err();
    let expected = "DIR/sites/b.toml:4:15: site.hosts: \"x\" is taken by the site \"main\", see DIR/forebay.toml:5:10";
    assert_eq!(said, [expected]);
}

#[test]
fn a_pattern_that_fits_nothing_is_remarked() {
    let folder = Folder::new();
    let remarks = folder.remarks("include = [\"sites/*.toml\"]\nroot = \"site\"\n");
    assert_eq!(
        remarks,
        ["DIR/forebay.toml:1:12: include: no file fits it, so nothing is included"]
    );
}

#[test]
fn a_link_that_leads_nowhere_is_an_error() {
    let folder = folder(&[("sites/a.toml", "")]);
    symlink("nowhere", folder.0.join("sites/b.toml")).unwrap();
    let said = folder.load("include = [\"sites/*.toml\"]\nroot = \"site\"\n").unwrap_err();
    assert!(said.len() == 1 && said[0].starts_with("DIR/sites/b.toml: cannot be read"), "{said:?}");
}

#[test]
fn secrets_are_read_and_never_shown() {
    let folder = folder(&[
        ("token", "abc$def\"ghi\n"),
        (
            "sites/app.toml",
            "[[proxy]]\npath = \"/\"\nto = \"http://127.0.0.1:1\"\nset = { Authorization = \"Bearer ${file:token}\" }\n",
        ),
    ]);
    let token = folder.0.join("token");
    let config = folder.load("include = [\"sites/*\"]\nroot = \"site\"\n").unwrap();
    let set = |config: &Config| {
        let (_, value) = &config.sites[0].proxies[0].set()[0];
        value.as_str().to_owned()
    };
    assert_eq!(set(&config), "Bearer abc$def\"ghi");
    let shown = config.to_shown_toml();
    assert!(shown.contains("Authorization = \"Bearer ${file:token}\""), "{shown}");
    assert!(!shown.contains("abc") && !format!("{:?}", config.origin).contains("abc"));
    // the program itself has the secrets
    assert_eq!(set(&parse(&config.to_toml(), "").unwrap()), set(&config));

    fs::set_permissions(&token, fs::Permissions::from_mode(0o644)).unwrap();
    let remarks = folder.remarks("include = [\"sites/*\"]\nroot = \"site\"\n").join("\n");
    assert!(
        remarks.contains(
            "sites/app.toml:4:25: proxy.set.Authorization: everybody on this machine may read"
        ),
        "{remarks}"
    );
    assert!(!remarks.contains("def"), "{remarks}");
    for (secret, expected) in [
        ("a\x01b\n", "what comes of the secret does not fit here"),
        ("", "has no secret: it is empty"),
        ("\n", "has no secret: it is empty"),
    ] {
        fs::write(&token, secret).unwrap();
        let said = folder.load("include = [\"sites/*\"]\nroot = \"site\"\n").unwrap_err();
        assert!(said.len() == 1 && said[0].contains(expected), "{said:?}");
        assert!(!said[0].contains('\x01'), "{said:?}");
    }
    fs::remove_file(&token).unwrap();
    let said = folder.load("include = [\"sites/*\"]\nroot = \"site\"\n").unwrap_err();
    assert!(said[0].contains("cannot read the file \"DIR/token\""), "{said:?}");
}

/// Files that change or vanish later do not affect processes that read the kept bundle.
#[test]
fn what_is_kept_of_all_files_is_read_as_they_were() {
    let folder = folder(&[
        ("token", "abc\n"),
        ("sites/b.toml", &site("b")),
        (
            "sites/a.toml",
            "[[site]]\nhosts = [\"a\"]\n[[site.proxy]]\npath = \"/\"\nto = \"http://127.0.0.1:1\"\nset = { A = \"${file:token}\" }\n",
        ),
    ]);
    let file = folder.0.join("forebay.toml");
    let config = folder.load("include = [\"sites/*.toml\"]\nroot = \"${HOME:-/}\"\n").unwrap();
    let kept = folder.0.join("kept");
    fs::write(&kept, serde_json::to_vec(&keep(&file).unwrap()).unwrap()).unwrap();
    fs::remove_dir_all(folder.0.join("sites")).unwrap();
    fs::remove_file(folder.0.join("token")).unwrap();
    assert_eq!(load_kept(&kept, &file).unwrap(), config);
}
