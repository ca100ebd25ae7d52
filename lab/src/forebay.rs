//! Facts that a build of Forebay states about itself: its commands, its counters.

use crate::Error;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Whether this build of the program takes `lines` in its configuration, which is written to `scratch`.
///
/// # Errors
/// When it cannot be asked.
pub fn takes(program: &Path, lines: &str, scratch: &Path) -> Result<bool, Error> {
    let file = scratch.join("taken.toml");
    fs::write(&file, format!("root = {scratch:?}\n{lines}"))
        .map_err(Error::io("cannot write", &file))?;
    let mut command = Command::new(program);
    command.args(["check", "-c"]).arg(&file).stdin(Stdio::null());
    let asked = command.output().map_err(Error::io("cannot start", program))?;
    Ok(asked.status.success())
}

/// The value of a metric, its labels written as they stand in `metrics`.
pub fn value(metrics: &str, name: &str) -> Option<f64> {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_found_by_name_and_labels() {
        let text = "# TYPE a gauge\na{phase=\"send\"} 3\na{phase=\"sender\"} 4\nab 5\n";
        assert_eq!(value(text, "a{phase=\"send\"}"), Some(3.0));
        assert_eq!(value(text, "ab"), Some(5.0));
        assert_eq!(value(text, "a"), None);
    }
}
