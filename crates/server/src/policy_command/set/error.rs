//! What is wrong with an assignment, a rule that is added, or all of them together.

use super::NONE;
use forebay_config::Wrong;
use forebay_config::spared::SparedBan;
use std::fmt;

/// Why nothing is set.
#[derive(Debug)]
pub enum SetError {
    /// Not an assignment.
    Form {
        /// What was given.
        found: String,
    },
    /// There is no such class or rule.
    NoSuch {
        /// What was given.
        found: String,
        /// The name that is probably meant.
        near: Option<String>,
    },
    /// It has no such setting.
    NoKey {
        /// What it is: a class or a rule.
        list: &'static str,
        /// Its name.
        name: String,
        /// What was given.
        found: String,
        /// The setting that is probably meant.
        near: Option<&'static str>,
    },
    /// A value for what has settings of its own.
    Several {
        /// What was to be set.
        target: String,
        /// An assignment that is probably meant.
        near: String,
    },
    /// A rule of which nothing is left.
    SaysNothing {
        /// Its name.
        name: String,
    },
    /// The value is wrong, whatever stands beside it.
    Value {
        /// Of which setting.
        key: String,
        /// What is wrong.
        wrong: Wrong,
    },
    /// No rule of this name was added from the command line.
    NotAdded {
        /// What was given.
        name: String,
    },
    /// A rule would ban somebody who is never banned.
    Spared {
        /// Its name.
        name: String,
        /// Whom, and why not.
        ban: SparedBan,
    },
    /// Each value is right, but they do not go together.
    Together {
        /// Of which class or rule: what it is, and its name.
        of: Option<(&'static str, String)>,
        /// Which of its settings; empty if it is the whole.
        key: String,
        /// What is wrong.
        wrong: Box<Wrong>,
    },
}

impl fmt::Display for SetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let did_you_mean = |f: &mut fmt::Formatter<'_>, near: Option<&str>| match near {
            Some(near) => write!(f, ", did you mean {near:?}?"),
            None => Ok(()),
        };
        match self {
            SetError::Form { found } => write!(
                f,
                "{found:?} is no assignment: NAME.KEY=VALUE is expected, such as gold.delay=20ms"
            ),
            SetError::NoSuch { found, near } => {
                write!(f, "{found:?} begins with the name of no class or rule")?;
                did_you_mean(f, near.as_deref())
            }
            SetError::NoKey { list, name, found, near } => {
                write!(f, "the {list} {name:?} has no setting {found:?}")?;
                did_you_mean(f, *near)
            }
            SetError::Several { target, near } => {
                write!(f, "{target} has settings of its own: set {near}, or {target}={NONE}")
            }
            SetError::SaysNothing { name } => write!(
                f,
                "the rule {name:?} would say nothing: to keep it, set {:?} too",
                format!("{name}.action=allow")
            ),
            SetError::NotAdded { name } => write!(
                f,
                "no rule {name:?} was added by policy rule add; those of the file are taken out there"
            ),
            SetError::Spared { name, ban } => write!(f, "rule {name:?}: {ban}"),
            SetError::Value { key, wrong } => write!(f, "{key}: {wrong}"),
            SetError::Together { of, key, wrong } => {
                if let Some((list, name)) = of {
                    write!(f, "{list} {name:?}: ")?;
                }
                if !key.is_empty() {
                    write!(f, "{key}: ")?;
                }
                write!(f, "{wrong}")
            }
        }
    }
}

impl std::error::Error for SetError {}
