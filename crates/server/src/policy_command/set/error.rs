//! Errors of assignments, and of rules that are added by command.

use super::NONE;
use forebay_config::Wrong;
use forebay_config::spared::SparedBan;
use std::fmt;

/// The reason why nothing is changed.
#[derive(Debug)]
pub enum SetError {
    /// The text is not an assignment.
    Form {
        /// The text.
        found: String,
    },
    /// No class or rule has this name.
    NoSuch {
        /// The name.
        found: String,
        /// A similar name, which is probably meant.
        near: Option<String>,
    },
    /// The class or rule has no such setting.
    NoKey {
        /// The kind: class or rule.
        list: &'static str,
        /// The name of the class or rule.
        name: String,
        /// The key.
        found: String,
        /// A similar setting, which is probably meant.
        near: Option<&'static str>,
    },
    /// The value is for a subsection, which has settings of its own.
    Several {
        /// The target of the assignment.
        target: String,
        /// An assignment with one of these settings, which is probably meant.
        near: String,
    },
    /// The rule would have no settings left.
    SaysNothing {
        /// The name of the rule.
        name: String,
    },
    /// The value is wrong by itself.
    Value {
        /// The setting.
        key: String,
        /// The error.
        wrong: Wrong,
    },
    /// No rule of this name was added by command.
    NotAdded {
        /// The name.
        name: String,
    },
    /// The rule would ban an address that is never banned.
    Spared {
        /// The name of the rule.
        name: String,
        /// The address, and the reason why it is never banned.
        ban: SparedBan,
    },
    /// The values are valid by themselves, but conflict.
    Together {
        /// The class or rule in question: its kind and its name.
        of: Option<(&'static str, String)>,
        /// The setting in question; empty for the whole section.
        key: String,
        /// The error.
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
