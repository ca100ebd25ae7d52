//! `make install`: everything beneath one prefix, and a unit that starts what was installed there.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::site::Folder;
use forebay_tests::server::binary;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Every file beneath `directory`.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn what_is_installed_stands_beneath_one_prefix() {
    let folder = Folder::new();
    let stage = folder.join("stage");
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    // make installs the program under test, which is built already
    let output = Command::new("make")
        .current_dir(repository)
        .args(["-o", "build", "install", "PREFIX=/opt/forebay"])
        .arg(format!("BIN={}", binary().display()))
        .arg(format!("DESTDIR={}", stage.display()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let prefix = stage.join("opt/forebay");
    let all = files(&stage);
    assert!(all.iter().all(|path| path.starts_with(&prefix)), "{all:?}");

    let program = prefix.join("bin/forebay");
    assert!(Command::new(&program).arg("version").status().unwrap().success());
    let unit = fs::read_to_string(prefix.join("lib/systemd/system/forebay.service")).unwrap();
    for key in ["ExecStart", "ExecReload"] {
        assert!(unit.contains(&format!("\n{key}=/opt/forebay/bin/forebay ")), "{unit}");
    }
    assert!(!unit.contains("/usr/"), "{unit}");
    for key in ["Wants", "After"] {
        assert!(unit.contains(&format!("\n{key}=network-online.target\n")), "{unit}");
    }
    for path in [
        "share/man/man5/forebay.toml.5",
        "share/doc/forebay/forebay.toml",
        "lib/systemd/system/forebay.socket",
        "lib/sysusers.d/forebay.conf",
        "lib/tmpfiles.d/forebay.conf",
        "share/forebay/welcome/index.html",
        "share/forebay/prometheus/forebay.rules.yml",
        "share/forebay/grafana/forebay.json",
    ] {
        assert!(prefix.join(path).is_file(), "{path}");
    }
    // debug symbols are what makes a program large, and stay where it was built
    let length = |path: &Path| fs::metadata(path).unwrap().len();
    assert!(length(&program) < length(&binary()), "{output:?}");
}

/// The configuration files of packages and of the image cause no warning, and each serves its page.
#[test]
fn the_configurations_of_packages_are_good() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for file in ["forebay.toml", "container/forebay.toml", "container/example/forebay.toml"] {
        let folder = Folder::new();
        let top = folder.path().display().to_string();
        for directory in ["welcome", "srv/www", "log", "run", "tmp/forebay"] {
            fs::create_dir_all(folder.join(directory)).unwrap();
        }
        let text = fs::read_to_string(repository.join("packaging").join(file)).unwrap();
        // the paths of a machine with the package, beneath a directory of the test, which may be in /tmp
        // itself
        let paths = [
            ("/tmp", "/tmp"),
            ("/usr/share/forebay/welcome", "/welcome"),
            ("/var/log/forebay", "/log"),
            ("/run/forebay", "/run"),
            ("/srv", "/srv"),
        ];
        let text = text.replace("//application:", "//127.0.0.1:");
        let text = paths.iter().fold(text, |text, (path, here)| {
            text.replace(&format!("\"{path}"), &format!("\"{top}{here}"))
        });
        fs::write(folder.join("forebay.toml"), text).unwrap();
        let output = Command::new(binary())
            .args(["check", "--strict", "-c"])
            .arg(folder.join("forebay.toml"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{file}: {output:?}");
    }
}

/// The commands of the manual run as they stand there, but beneath a directory of the test. Commands that
/// change the machine are left out: users, systemd, an editor.
#[test]
fn the_commands_of_the_manual_make_what_the_check_asks_for() {
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("docs/manual");
    let page = |name: &str| fs::read_to_string(manual.join(name)).unwrap();
    let block = |text: &str, after: &str, fence: &str| {
        let text = text.split_once(after).unwrap().1.split_once(fence).unwrap().1;
        text.split_once("\n```").unwrap().0.to_owned()
    };
    let folder = Folder::new();
    fs::create_dir(folder.join("run")).unwrap();
    let top = folder.path().display().to_string();
    let beneath = |text: &str| {
        let paths = ["/etc/forebay", "/var/log/", "/srv/", "/run/"];
        paths.iter().fold(text.to_owned(), |text, path| text.replace(path, &format!("{top}{path}")))
    };
    fs::create_dir_all(folder.join("var/log")).unwrap();
    let config = beneath(&block(&page("systemd.md"), "## A service", "```toml"));
    let mut checked = 0;
    for line in block(&page("install.md"), "Once, as root:", "```\n").lines() {
        let line = beneath(&line.replace("-o forebay -g forebay ", ""));
        match line.split(' ').next().unwrap() {
            "install" | "mkdir" => {
                assert!(
                    Command::new("sh").args(["-ec", &line]).status().unwrap().success(),
                    "{line}"
                );
            }
            "editor" => fs::write(line.split(' ').next_back().unwrap(), &config).unwrap(),
            "forebay" => {
                // this machine may have no such user
                let line = line.replace("--user forebay ", "");
                let words = line.split(' ').skip(1);
                let output = Command::new(binary()).args(words).output().unwrap();
                assert!(output.status.success(), "{line}: {output:?}");
                checked += 1;
            }
            "useradd" | "cp" | "systemctl" => {}
            other => panic!("the manual has another command: {other}"),
        }
    }
    assert_eq!(checked, 1);
}

/// The manual shows the unit that is installed.
#[test]
fn the_manual_has_the_unit() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let read = |path: &str| fs::read_to_string(repository.join(path)).unwrap();
    let unit = read("packaging/systemd/forebay.service");
    let page = read("docs/manual/systemd.md");
    assert!(page.contains(&format!("forebay.service\n{unit}```\n")), "copy the unit into the page");
}
