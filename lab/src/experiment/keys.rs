//! The tables of a file, with the keys that each may have; every error knows its byte.

use crate::options::a_time;
use std::time::Duration;
use toml_edit::{Item, TableLike, Value};

/// The place of an error, and a sentence.
pub(super) type WrongAt = (usize, String);

/// A name, and numbers; some may be missing.
pub(super) type NamedCells = (String, Vec<Option<f64>>);

/// A table whose keys are all known.
pub(super) struct KnownKeys<'t> {
    table: &'t dyn TableLike,
    /// The table's first byte.
    pub(super) at: usize,
    /// The table's name in errors.
    pub(super) what: &'static str,
}

/// The first byte of an item.
pub(super) fn place(item: &Item, otherwise: usize) -> usize {
    item.span().map_or(otherwise, |span| span.start)
}

/// A value as it is written in words of a command.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.value().clone()),
        Value::Integer(number) => Some(number.value().to_string()),
        Value::Float(number) => Some(number.value().to_string()),
        Value::Boolean(flag) => Some(flag.value().to_string()),
        _ => None,
    }
}

fn number(value: &Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|number| number as f64))
}

impl<'t> KnownKeys<'t> {
    /// A table that may have these keys, or any key if there are none.
    pub(super) fn new(
        table: &'t dyn TableLike,
        at: usize,
        what: &'static str,
        known: &[&str],
    ) -> Result<KnownKeys<'t>, WrongAt> {
        for (key, item) in table.iter() {
            if !known.is_empty() && !known.contains(&key) {
                let begin = table.key(key).and_then(toml_edit::Key::span);
                let at = begin.map_or(place(item, at), |span| span.start);
                return Err((at, format!("{key}: {what} has {}", known.join(", "))));
            }
        }
        Ok(KnownKeys { table, at, what })
    }

    /// The place of a key; the table's place if it is not there.
    pub(super) fn at(&self, key: &str) -> usize {
        self.table.get(key).map_or(self.at, |item| place(item, self.at))
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    fn value(&self, key: &str) -> Option<&'t Value> {
        self.table.get(key).and_then(Item::as_value)
    }

    fn wrong(&self, key: &str, expected: &str) -> WrongAt {
        (self.at(key), format!("{key}: expected {expected}"))
    }

    /// The names of all keys.
    pub(super) fn names(&self) -> Vec<String> {
        self.table.iter().map(|(key, _)| key.to_owned()).collect()
    }

    /// All keys, with their values as text or lists of text.
    pub(super) fn all(&self) -> Result<Vec<(String, Vec<String>)>, WrongAt> {
        self.table.iter().map(|(key, _)| Ok((key.to_owned(), self.texts(key)?))).collect()
    }

    /// All keys with one text each.
    pub(super) fn pairs(&self) -> Result<Vec<(String, String)>, WrongAt> {
        let pair = |key: &str| {
            let value = self.value(key).and_then(plain);
            Ok((key.to_owned(), value.ok_or_else(|| self.wrong(key, "a text or a number"))?))
        };
        self.table.iter().map(|(key, _)| pair(key)).collect()
    }

    pub(super) fn text(&self, key: &str) -> Result<String, WrongAt> {
        match self.table.get(key) {
            None => Ok(String::new()),
            Some(_) => {
                let text = self.value(key).and_then(Value::as_str).map(str::to_owned);
                text.ok_or_else(|| self.wrong(key, "a text"))
            }
        }
    }

    pub(super) fn needed(&self, key: &str) -> Result<String, WrongAt> {
        match self.text(key)? {
            text if text.is_empty() => Err((self.at, format!("{} needs {key}", self.what))),
            text => Ok(text),
        }
    }

    /// A list of texts; one text is a list of one.
    pub(super) fn texts(&self, key: &str) -> Result<Vec<String>, WrongAt> {
        let wrong = || self.wrong(key, "a text, or a list of texts");
        match self.value(key) {
            None if !self.has(key) => Ok(Vec::new()),
            None => Err(wrong()),
            Some(Value::Array(list)) => {
                list.iter().map(|value| plain(value).ok_or_else(wrong)).collect()
            }
            Some(value) => Ok(vec![plain(value).ok_or_else(wrong)?]),
        }
    }

    pub(super) fn number(&self, key: &str) -> Result<Option<f64>, WrongAt> {
        match self.table.get(key) {
            None => Ok(None),
            Some(_) => {
                let found = self.value(key).and_then(number);
                found.map(Some).ok_or_else(|| self.wrong(key, "a number"))
            }
        }
    }

    pub(super) fn numbers(&self, key: &str) -> Result<Vec<f64>, WrongAt> {
        let wrong = || self.wrong(key, "a list of numbers");
        match self.value(key) {
            None if !self.has(key) => Ok(Vec::new()),
            Some(Value::Array(list)) => {
                list.iter().map(|value| number(value).ok_or_else(wrong)).collect()
            }
            _ => Err(wrong()),
        }
    }

    pub(super) fn count(&self, key: &str, otherwise: u32) -> Result<u32, WrongAt> {
        match self.number(key)? {
            None => Ok(otherwise),
            Some(count) if count >= 1.0 && count.fract() == 0.0 => Ok(count as u32),
            Some(_) => Err(self.wrong(key, "a whole number, 1 or more")),
        }
    }

    pub(super) fn flag(&self, key: &str) -> Result<bool, WrongAt> {
        match self.table.get(key) {
            None => Ok(false),
            Some(_) => self
                .value(key)
                .and_then(Value::as_bool)
                .ok_or_else(|| self.wrong(key, "true or false")),
        }
    }

    pub(super) fn time(&self, key: &str) -> Result<Option<Duration>, WrongAt> {
        if !self.has(key) {
            return Ok(None);
        }
        let time = a_time(&self.text(key)?);
        time.map(Some).map_err(|_| self.wrong(key, "a duration such as 15ms or 1.5s"))
    }

    /// A table below a key that may have these keys.
    pub(super) fn table(
        &self,
        key: &str,
        what: &'static str,
        known: &[&str],
    ) -> Result<Option<KnownKeys<'t>>, WrongAt> {
        match self.table.get(key) {
            None => Ok(None),
            Some(item) => {
                let table = item.as_table_like().ok_or_else(|| self.wrong(key, "a table"))?;
                KnownKeys::new(table, place(item, self.at), what, known).map(Some)
            }
        }
    }

    /// The tables of a list below a key, written `[[key]]` or as a list of `{ … }`.
    pub(super) fn tables(
        &self,
        key: &str,
        what: &'static str,
        known: &[&str],
    ) -> Result<Vec<KnownKeys<'t>>, WrongAt> {
        match self.table.get(key) {
            None => Ok(Vec::new()),
            Some(Item::ArrayOfTables(list)) => list
                .iter()
                .map(|table| {
                    let at = table.span().map_or(self.at, |span| span.start);
                    KnownKeys::new(table, at, what, known)
                })
                .collect(),
            Some(Item::Value(Value::Array(list))) => list
                .iter()
                .map(|value| {
                    let at = value.span().map_or(self.at(key), |span| span.start);
                    let table = value.as_inline_table();
                    let table =
                        table.ok_or_else(|| (at, format!("{key}: expected {{ … }} for {what}")))?;
                    KnownKeys::new(table, at, what, known)
                })
                .collect(),
            Some(_) => Err(self.wrong(key, "a list of tables")),
        }
    }

    /// Lists of values below a key: each a list of a text and numbers, or of numbers. Texts come first.
    pub(super) fn lists(&self, key: &str) -> Result<Vec<NamedCells>, WrongAt> {
        let wrong = || self.wrong(key, "a list of lists, each of numbers (\"\" for none)");
        let Some(all) = self.value(key) else { return Ok(Vec::new()) };
        let list = |value: &Value| {
            let list = value.as_array().ok_or_else(wrong)?;
            let mut values = list.iter().peekable();
            let is_name = |value: &&Value| value.as_str().is_some_and(|text| !text.is_empty());
            let name = values.next_if(is_name).and_then(Value::as_str).unwrap_or_default();
            let cell = |value: &Value| match value.as_str() {
                Some("") => Ok(None),
                _ => number(value).map(Some).ok_or_else(wrong),
            };
            Ok((name.to_owned(), values.map(cell).collect::<Result<Vec<_>, WrongAt>>()?))
        };
        all.as_array().ok_or_else(wrong)?.iter().map(list).collect()
    }
}
