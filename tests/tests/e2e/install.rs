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
    // what is installed is the program under test, which is built already
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
    for path in ["share/man/man5/forebay.toml.5", "share/doc/forebay/forebay.toml"] {
        assert!(prefix.join(path).is_file(), "{path}");
    }
}
