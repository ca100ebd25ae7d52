//! A plan from a TOML file: `[run]` for the run, one `[[group]]` per group of clients.
//!
//! The keys of a group are those of [`crate::setting`]; values may be text, numbers, true or false,
//! or for `header` a list of texts.

use crate::plan::LoadPlan;
use crate::setting::{GroupDraft, SettingError};
use crate::target::{LoadTarget, TargetError};
use crate::units;
use std::fmt;
use std::path::{Path, PathBuf};
use toml_edit::{Document, Item, TableLike, Value};

/// Why a file is not a plan.
#[derive(Debug)]
pub enum FileError {
    /// The file could not be read.
    Unreadable(PathBuf, std::io::Error),
    /// The file is not TOML, or a key is wrong.
    At {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong there.
        what: String,
    },
    /// The host name of a target has no address.
    Unresolved {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The name without an address.
        error: TargetError,
    },
}

impl FileError {
    /// Whether the only error is that a name has no address.
    pub fn is_unresolved(&self) -> bool {
        matches!(self, FileError::Unresolved { .. })
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileError::Unreadable(file, error) => write!(f, "{}: {error}", file.display()),
            FileError::At { file, line, what } => write!(f, "{}:{line}: {what}", file.display()),
            FileError::Unresolved { file, line, error } => {
                write!(f, "{}:{line}: {error}", file.display())
            }
        }
    }
}

/// An error, and the byte at which it is.
type FaultAt = (usize, FileFault);

/// An error in a plan.
#[derive(Debug)]
enum FileFault {
    /// An error described in a line.
    Said(String),
    /// The host name of a target has no address.
    Unresolved(TargetError),
}

impl From<String> for FileFault {
    fn from(text: String) -> FileFault {
        FileFault::Said(text)
    }
}

impl From<&str> for FileFault {
    fn from(text: &str) -> FileFault {
        FileFault::Said(text.to_owned())
    }
}

impl From<TargetError> for FileFault {
    fn from(error: TargetError) -> FileFault {
        match error {
            TargetError::Unresolved(_) => FileFault::Unresolved(error),
            error => FileFault::Said(error.to_string()),
        }
    }
}

impl From<SettingError> for FileFault {
    fn from(error: SettingError) -> FileFault {
        match error {
            SettingError::Target(error) => error.into(),
            error => FileFault::Said(error.to_string()),
        }
    }
}

/// Reads a plan; `base` is the URL for groups that have none.
///
/// # Errors
/// The first error of the file.
pub fn read(file: &Path, base: Option<&LoadTarget>) -> Result<LoadPlan, FileError> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| FileError::Unreadable(file.to_owned(), error))?;
    parse(&text, base).map_err(|(byte, what)| {
        let line = text.bytes().take(byte).filter(|b| *b == b'\n').count() + 1;
        let file = file.to_owned();
        match what {
            FileFault::Said(what) => FileError::At { file, line, what },
            FileFault::Unresolved(error) => FileError::Unresolved { file, line, error },
        }
    })
}

fn parse(text: &str, base: Option<&LoadTarget>) -> Result<LoadPlan, FaultAt> {
    let document = Document::parse(text)
        .map_err(|error| (error.span().map_or(0, |span| span.start), error.message().into()))?;
    let mut plan = LoadPlan::default();
    let mut url = base.cloned();
    let at = |item: &Item| item.span().map_or(0, |span| span.start);
    // [run] first, wherever it stands: it may hold the URL for the groups
    if let Some(run) = document.get("run") {
        let table = run.as_table_like().ok_or((at(run), "run is a table".into()))?;
        read_run(table, &mut plan, &mut url)?;
    }
    for (key, item) in document.iter() {
        match key {
            "run" => {}
            "group" => {
                let groups = item.as_array_of_tables();
                let groups = groups.ok_or((at(item), "groups are written [[group]]".into()))?;
                for group in groups {
                    let begin = group.span().map_or(0, |span| span.start);
                    let draft = read_group(group, url.as_ref(), begin)?;
                    let group =
                        draft.finish().map_err(|e| (place_of(&e, group, begin), e.into()))?;
                    plan.groups.push(group);
                }
            }
            key => return Err((at(item), format!("{key}: expected [run] or [[group]]").into())),
        }
    }
    Ok(plan)
}

fn read_run(
    table: &dyn TableLike,
    plan: &mut LoadPlan,
    url: &mut Option<LoadTarget>,
) -> Result<(), FaultAt> {
    for (key, item) in table.iter() {
        let at = item.span().map_or(0, |span| span.start);
        let text = item
            .as_value()
            .and_then(plain)
            .ok_or((at, format!("{key}: expected a value").into()))?;
        let not = |expected| (at, format!("{key}: {}", units::not(&text, expected)).into());
        let time = || units::duration(&text).map_err(not);
        let number = || text.parse::<u64>().map_err(|_| not("a number"));
        match key {
            "url" => *url = Some(LoadTarget::parse(&text).map_err(|error| (at, error.into()))?),
            "duration" => plan.duration = time()?,
            "warmup" => plan.warmup = time()?,
            "drain" => plan.drain = time()?,
            "interval" => plan.interval = Some(time()?),
            "threads" => plan.threads = number()?.clamp(1, 1024) as usize,
            "seed" => plan.seed = number()?,
            _ => {
                let known = "url, duration, warmup, drain, interval, threads and seed";
                return Err((at, format!("{key}: no such setting; [run] has {known}").into()));
            }
        }
    }
    Ok(())
}

fn read_group(
    table: &toml_edit::Table,
    base: Option<&LoadTarget>,
    begin: usize,
) -> Result<GroupDraft, FaultAt> {
    let name = table.get("name").and_then(Item::as_str);
    let name = name.ok_or((begin, "a group needs a name".into()))?;
    let mut draft = GroupDraft::new(name, base);
    for (key, item) in table.iter().filter(|(key, _)| *key != "name") {
        let at = item.span().map_or(begin, |span| span.start);
        let wrong =
            || (at, FileFault::from(format!("{key}: expected text, a number, true or false")));
        match item.as_value().ok_or_else(wrong)? {
            Value::Array(list) => {
                for value in list {
                    draft.set(key, &plain(value).ok_or_else(wrong)?);
                }
            }
            value => draft.set(key, &plain(value).ok_or_else(wrong)?),
        }
    }
    Ok(draft)
}

/// The value as it would be written on the command line.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.value().clone()),
        Value::Integer(number) => Some(number.value().to_string()),
        Value::Float(number) => Some(number.value().to_string()),
        Value::Boolean(flag) => Some(flag.value().to_string()),
        _ => None,
    }
}

/// The position of the setting that an error is about; the group's beginning if it is about the
/// whole group.
fn place_of(error: &SettingError, table: &toml_edit::Table, begin: usize) -> usize {
    let key = match error {
        SettingError::Unknown { key, .. } | SettingError::Value { key, .. } => key,
        SettingError::BothLoops(key) => *key,
        SettingError::Target(_) => "url",
        SettingError::Mix(_) => "urls",
        SettingError::Trace(_) => "trace",
        SettingError::Name(_) => "name",
        SettingError::NoValue(_) | SettingError::NoTarget => return begin,
    };
    table.get(key).and_then(Item::span).map_or(begin, |span| span.start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::LoadModel;
    use std::time::Duration;

    #[test]
    fn a_plan_is_read() {
        let plan = parse(
            "[[group]]\nname = \"gold\"\nrate = \"200/s\"\nurl = \"/buy\"\nheader = [\"A: b\", \"C: d\"]\n\
             [[group]]\nname = \"flood\"\nconnections = 20\n\
             [run]\nurl = \"http://127.0.0.1:81/\"\nduration = \"3s\"\nseed = 7\n",
            None,
        );
        let plan = plan.unwrap();
        assert_eq!((plan.duration, plan.seed), (Duration::from_secs(3), 7));
        assert_eq!(plan.groups[0].mix.entries()[0].path.as_ref(), "/buy");
        assert_eq!(plan.groups[0].headers, ["A: b", "C: d"]);
        assert!(matches!(plan.groups[1].load, LoadModel::Closed { connections: 20, .. }));
    }

    #[test]
    fn what_is_wrong_is_found_on_its_line() {
        let head = "[run]\nurl = \"http://127.0.0.1:81/\"\n[[group]]\nname = \"a\"\n";
        for (text, line, what) in [
            ("rtae = 5\n", 5, "rtae: no such setting; did you mean rate?"),
            ("rate = \"often\"\n", 5, "rate=often: expected a rate such as 200/s, more than 0"),
            ("\nrate = 5\nthink = \"1s\"\n", 7, "think: a group with a rate is an open loop"),
            ("[other]\n", 5, "other: expected [run] or [[group]]"),
            (
                "timeout = 5\n",
                5,
                "timeout=5: expected a duration such as 15ms, 1.5s or 2m, did you mean 5s?",
            ),
        ] {
            let text = format!("{head}{text}");
            let (byte, wrong) = parse(&text, None).unwrap_err();
            let FileFault::Said(said) = wrong else { panic!("{wrong:?}") };
            assert!(said.starts_with(what), "{said}");
            assert_eq!(text[..byte].matches('\n').count() + 1, line, "{text}");
        }
    }
}
