//! Tests of the configuration, case by case: each file in `config/` holds an input, a line of
//! dashes, and the settings that then differ from their defaults or the exact lines of its errors.
//!
//! `UPDATE_CASES=1 cargo test -p forebay-server --test it config::` writes the results into the
//! files; read the difference before committing it.
#![forbid(unsafe_code)]
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use forebay_config::{Config, parse};
use std::path::{Path, PathBuf};

#[test]
fn every_case_comes_out_as_written() {
    let cases = cases();
    assert!(cases.len() >= 230, "only {} cases were found", cases.len());
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
        Ok(config) => {
            let defaults = settings(&Config::default());
            let mut changed = settings(&config);
            // below a list without a default every line counts
            let mut compare = true;
            changed.retain(|line| {
                if line.starts_with('[') {
                    compare = matches!(line.as_str(), "[[site]]" | "[[listener]]");
                    return true;
                }
                !(compare && defaults.contains(line))
            });
            changed.iter().map(|line| format!("{line}\n")).collect()
        }
        Err(problems) => problems.iter().map(|problem| format!("{problem}\n")).collect(),
    }
}

/// A configuration as it is printed, without comments, and with dots for sections that are not in a
/// list.
fn settings(config: &Config) -> Vec<String> {
    let (mut list, mut section) = (String::new(), String::new());
    let mut lines = Vec::new();
    for line in config.to_toml().lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix("[[") {
            list = format!("{}.", name.trim_end_matches("]]"));
            section.clear();
            lines.push(line.to_owned());
        } else if let Some(name) = line.strip_prefix('[') {
            let name = name.trim_end_matches(']');
            section = format!("{}.", name.strip_prefix(&list).unwrap_or(name));
        } else {
            lines.push(format!("{section}{line}"));
        }
    }
    lines
}
