//! The configuration, case by case: each file in `config/` holds an input, a line of dashes, and
//! the settings that then differ from their defaults or the exact lines of what is wrong.
//!
//! `UPDATE_CASES=1 cargo test -p forebay-server --test config` writes what came out into the files;
//! read the difference before it is committed.
#![forbid(unsafe_code)]
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use forebay_server::config::table::SETTINGS;
use forebay_server::config::{Config, parse};
use std::path::{Path, PathBuf};

#[test]
fn every_case_comes_out_as_written() {
    let cases = cases();
    assert!(cases.len() >= 40, "only {} cases were found", cases.len());
    let mut failed = Vec::new();
    for path in &cases {
        let whole = std::fs::read_to_string(path).unwrap();
        let (input, expected) = whole.split_once("---\n").expect("a case has a line of dashes");
        let outcome = outcome(input);
        if std::env::var_os("UPDATE_CASES").is_some() {
            std::fs::write(path, format!("{input}---\n{outcome}")).unwrap();
        } else if outcome != expected {
            failed.push(format!("{}\nexpected:\n{expected}got:\n{outcome}", path.display()));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn what_is_printed_is_read_back() {
    for path in cases() {
        let whole = std::fs::read_to_string(&path).unwrap();
        let input = whole.split("---\n").next().unwrap();
        if let Ok(config) = parse(input, "forebay.toml") {
            let again = parse(&config.to_toml(), "forebay.toml");
            assert_eq!(again.unwrap(), config, "{}", path.display());
        }
    }
}

fn cases() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config");
    let mut cases: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "case"))
        .collect();
    cases.sort();
    cases
}

fn outcome(input: &str) -> String {
    match parse(input, "etc/forebay.toml") {
        Ok(mut config) => {
            let mut defaults = Config::default();
            let changed = SETTINGS.iter().filter_map(|setting| {
                let value = (setting.at)(&mut config).show();
                let default = (setting.at)(&mut defaults).show();
                (value != default).then(|| format!("{} = {value}\n", setting.key))
            });
            changed.collect()
        }
        Err(problems) => problems.iter().map(|problem| format!("{problem}\n")).collect(),
    }
}
