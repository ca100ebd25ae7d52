//! Lines of files of users that are none.

use super::LintSubject;
use crate::config::Remarks;
use crate::config::problem::{Finding, Wrong};
use forebay_site::users_errors;
use std::fmt;
use std::path::PathBuf;

/// Of one file of users no more lines are told of than these.
const MOST_LINES: usize = 20;

/// A line of a file of users that is none.
#[derive(Debug)]
enum UsersRemark {
    /// Something in a file of users.
    Line {
        /// Its path.
        path: PathBuf,
        /// In which line, and what.
        reason: String,
    },
}

impl Finding for UsersRemark {}

impl fmt::Display for UsersRemark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UsersRemark::Line { path, reason } => write!(f, "the file {path:?}: {reason}"),
        }
    }
}

/// Lines of files of users that are none.
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
                (at.clone(), Wrong::said(UsersRemark::Line { path: path.clone(), reason }))
            }));
        }
    }
}
