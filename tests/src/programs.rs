//! Programs that are built from Go modules, because Debian 12 has no package of them, or too old a one.

use crate::faults::has;
use crate::is_full_matrix;
use std::env;
use std::io::{self, Write};
use std::path::PathBuf;

/// The path of a program: the one in the variable (`OAUTH2_PROXY` for `oauth2-proxy`), or the place where
/// `go install` puts it. Without the program, `test` is skipped with a loud line; with [`is_full_matrix`]
/// under continuous integration it fails.
///
/// # Panics
/// If it fails.
pub fn from_go(program: &str, test: &str) -> Option<PathBuf> {
    let named = env::var_os(program.to_uppercase().replace('-', "_")).map(PathBuf::from);
    let installed = || PathBuf::from(env::var_os("HOME")?).join("go/bin").join(program).into();
    let found = named.or_else(installed).filter(|file: &PathBuf| file.is_file());
    let missing = format!("there is no ~/go/bin/{program}, see scripts/install go");
    if is_full_matrix() {
        return has(found.ok_or(missing), test);
    }
    if found.is_none() {
        let _ = writeln!(io::stderr(), "\n!!! SKIPPED {test}: {missing}\n");
    }
    found
}
