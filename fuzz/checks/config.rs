//! What must hold for any text given as a configuration.

use forebay_config::{Config, Problem, parse};

/// An absolute path, so that relative paths in the text become absolute once and for all.
const FILE: &str = "/etc/forebay/forebay.toml";

/// Panics if something does not hold for `bytes`.
pub(crate) fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match parse(text, FILE) {
        Ok(config) => check_config(&config),
        Err(problems) => check_problems(&problems, text),
    }
}

/// What was accepted is printed as a text that means the same.
fn check_config(config: &Config) {
    let printed = config.to_toml();
    let again = parse(&printed, FILE);
    let same = again.as_ref().is_ok_and(|again| again == config);
    assert!(same, "{config:?} printed as:\n{printed}\nbecame {again:?}");
}

/// Problems are one line each, in the order of the text, and at places that exist in it.
fn check_problems(problems: &[Problem], text: &str) {
    assert!(!problems.is_empty());
    assert!(problems.is_sorted_by_key(|problem| problem.place));
    let lines: Vec<&str> = text.split('\n').collect();
    for problem in problems {
        let message = problem.to_string();
        assert!(message.starts_with(FILE) && message.len() > FILE.len());
        assert!(!message.chars().any(char::is_control), "{message:?}");
        if let Some((line, column)) = problem.place {
            assert!((1..=lines.len()).contains(&line), "{message}");
            assert!((1..=lines[line - 1].chars().count() + 1).contains(&column), "{message}");
        }
    }
}
