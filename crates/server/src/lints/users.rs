//! Invalid lines in files of users.

use super::LintSubject;
use forebay_config::Remarks;
use forebay_config::problem::{Finding, Wrong};
use forebay_site::users_errors;
use std::fmt;
use std::path::PathBuf;

/// The largest number of lines of one file that are reported.
const MOST_LINES: usize = 20;

/// A remark about a file of users.
#[derive(Debug)]
struct UsersRemark {
    /// The path of the file.
    path: PathBuf,
    /// The line, and what is wrong with it.
    reason: String,
}

impl Finding for UsersRemark {}

impl fmt::Display for UsersRemark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UsersRemark { path, reason } = self;
        write!(f, "the file {path:?}: {reason}")
    }
}

/// Finds invalid lines in files of users.
pub(super) fn users(of: &LintSubject<'_>, remarks: &mut Remarks) {
    for (at, site) in of.draft.every_site() {
        for (index, rule) in site.auth.iter().enumerate() {
            let Some(path) = &rule.file else { continue };
            let at = at.child("auth").item(index).child("file");
            let errors = users_errors(path);
            let told = errors.iter().take(MOST_LINES).map(ToString::to_string);
            let others = errors.len().saturating_sub(MOST_LINES);
            let others = (others > 0).then(|| format!("and {others} other lines"));
            remarks.extend(told.chain(others).map(|reason| {
                (at.clone(), Wrong::said(UsersRemark { path: path.clone(), reason }))
            }));
        }
    }
}
