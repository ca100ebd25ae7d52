//! A fault of a configuration, and the line that reports it.

use crate::problems::path::Path;
use crate::problems::text_place::TextPlace;
use forebay_policy::near::nearest;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// A fault, and where it is. Prints as `file:line:column: key: what is wrong`.
#[derive(Debug)]
pub struct Problem {
    /// The file as it was named.
    pub file: String,
    /// Line and column, both from 1, the column in characters. `None` if the fault is not at one place of
    /// the file.
    pub place: Option<(usize, usize)>,
    /// The path of the setting, such as `timeouts.head`; empty if the file as a whole is at fault.
    pub key: String,
    /// The fault.
    pub wrong: Wrong,
}

/// Findings, each with its place.
pub type Remarks = Vec<(Path, Wrong)>;

/// A finding of one check, which has its own sentence.
pub trait Finding: fmt::Debug + fmt::Display + Send + Sync {}

/// A fault of a configuration.
#[derive(Debug)]
pub enum Wrong {
    /// The file cannot be read.
    Unreadable(io::Error),
    /// The file is larger than a configuration can sensibly be.
    TooLong {
        /// Bytes allowed.
        limit: u64,
    },
    /// The file is not UTF-8.
    NotUtf8,
    /// The file is not TOML; with what the parser expected.
    Syntax(String),
    /// There is no such setting or section.
    Unknown {
        /// A setting or section with a similar name.
        near: Option<String>,
    },
    /// The value is of the wrong kind.
    Form {
        /// What belongs there.
        expected: &'static str,
        /// What is there.
        found: String,
        /// What was probably meant, as it would be written in the file.
        near: Option<String>,
    },
    /// The value is too small or too large.
    Range {
        /// What is there.
        found: String,
        /// The smallest value allowed.
        least: &'static str,
        /// The largest value allowed.
        most: &'static str,
    },
    /// The value is none of the words allowed.
    Choice {
        /// The word that is there.
        found: String,
        /// The words allowed.
        choices: &'static [&'static str],
    },
    /// The key is one of another server.
    Foreign {
        /// The advice what to write instead.
        answer: String,
        /// The setting of the same section that the key stands for.
        meant: Option<&'static str>,
    },
    /// An item is in the list twice.
    Repeated {
        /// The item.
        found: String,
    },
    /// A list without items, where there must be some.
    Empty,
    /// A setting without a default is not set.
    Missing {
        /// A line that would set it.
        example: String,
    },
    /// The text is not what it should be, and its reader says why.
    Unfit {
        /// What is there; empty where the key or the reason says it.
        found: String,
        /// The reason.
        reason: String,
    },
    /// Two settings exclude one another.
    Both {
        /// The other one.
        other: &'static str,
    },
    /// A setting has no effect without another one.
    Idle {
        /// The setting that is needed.
        needs: &'static str,
    },
    /// There is no such class.
    NoClass {
        /// The name that is there.
        found: String,
        /// The classes there are.
        known: Vec<String>,
    },
    /// Classes and rules that make no policy, for a reason that the policy gives.
    Policy(forebay_policy::PolicyFault),
    /// A name or address is taken already, and only one can have it.
    Taken {
        /// The name or address.
        found: String,
        /// The one that has it.
        by: String,
        /// The line and column where that stands.
        place: Option<TextPlace>,
    },
    /// Clients could read a file that is not for them.
    Served {
        /// The path of the file.
        path: PathBuf,
        /// The directory of a site that it is in.
        directory: PathBuf,
        /// The line and column where that directory stands.
        place: Option<TextPlace>,
    },
    /// There are not as many keys as certificates.
    Unpaired {
        /// The number of certificates.
        certificates: usize,
        /// The number of keys.
        keys: usize,
    },
    /// A finding of one check, which has its own sentence.
    Said(Box<dyn Finding>),
    /// There is a certificate, and no address where TLS is spoken.
    NoTlsAddress {
        /// The list in which an address with TLS would stand.
        list: &'static str,
    },
    /// A file the configuration names cannot be read.
    NoFile {
        /// The path of the file.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
}

impl Wrong {
    /// A finding of one check, with its own sentence.
    pub fn said(finding: impl Finding + 'static) -> Wrong {
        Wrong::Said(Box::new(finding))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if let Some((line, column)) = self.place {
            write!(f, ":{line}:{column}")?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.wrong)
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wrong::Unreadable(error) => write!(f, "cannot be read: {error}"),
            Wrong::TooLong { limit } => write!(f, "is longer than {limit} bytes"),
            Wrong::NotUtf8 => write!(f, "is not UTF-8 from here on"),
            Wrong::Syntax(message) => write!(f, "{message}"),
            Wrong::Unknown { near } => {
                write!(f, "unknown key")?;
                did_you_mean(f, near.as_deref())
            }
            Wrong::Foreign { answer, .. } => write!(f, "unknown key: {answer}"),
            Wrong::Form { expected, found, near } => {
                write!(f, "expected {expected}, found {found}")?;
                near.iter().try_for_each(|near| write!(f, ", did you mean {near}?"))
            }
            Wrong::Range { found, least, most } => {
                write!(f, "{found} is out of range, from {least} to {most} is allowed")
            }
            Wrong::Choice { found, choices } => {
                let quoted: Vec<_> = choices.iter().map(|word| format!("{word:?}")).collect();
                write!(f, "expected {}, found {found:?}", quoted.join(" or "))?;
                did_you_mean(f, nearest(found, choices.iter().copied()))
            }
            Wrong::Repeated { found } => write!(f, "{found:?} is there twice"),
            Wrong::Empty => write!(f, "the list is empty, at least one item is needed"),
            Wrong::Missing { example } => write!(f, "missing, set it, for example {example}"),
            // the key names it
            Wrong::Unfit { found, reason } if found.is_empty() => f.write_str(reason),
            Wrong::Unfit { found, reason } => write!(f, "{found}: {reason}"),
            Wrong::Both { other } => {
                write!(f, "cannot stand beside {other}, one of them is enough")
            }
            Wrong::Idle { needs } => write!(f, "means nothing without {needs}"),
            Wrong::NoClass { found, known } => {
                write!(f, "there is no class {found:?}")?;
                let near = nearest(found, known.iter().map(String::as_str));
                let quoted: Vec<_> = known.iter().map(|name| format!("{name:?}")).collect();
                match near {
                    Some(_) => did_you_mean(f, near),
                    None if known.is_empty() => Ok(()),
                    None => write!(f, ", only {}", quoted.join(", ")),
                }
            }
            Wrong::Policy(fault) => write!(f, "{fault}"),
            Wrong::Taken { found, by, place } => {
                write!(f, "{found} is taken by {by}")?;
                see(f, place)
            }
            Wrong::Served { path, directory, place } => {
                write!(f, "clients could read {path:?}, {directory:?} is served")?;
                see(f, place)
            }
            Wrong::Unpaired { certificates, keys } => write!(
                f,
                "each certificate needs its key: tls.certificate names {certificates}, tls.key {keys}"
            ),
            Wrong::Said(finding) => finding.fmt(f),
            Wrong::NoTlsAddress { list } => {
                write!(f, "it has no effect, because no address of {list} begins with \"https://\"")
            }
            Wrong::NoFile { path, error } => write!(f, "cannot read the file {path:?}: {error}"),
        }
    }
}

/// Writes where the other one stands.
pub(crate) fn see(f: &mut fmt::Formatter<'_>, place: &Option<TextPlace>) -> fmt::Result {
    place.iter().try_for_each(|place| write!(f, ", see {place}"))
}

/// Writes what was probably meant.
pub(crate) fn did_you_mean(f: &mut fmt::Formatter<'_>, near: Option<&str>) -> fmt::Result {
    match near {
        Some(near) => write!(f, ", did you mean {near:?}?"),
        None => Ok(()),
    }
}
