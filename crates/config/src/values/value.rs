//! The types a setting can have: how each is read from text, checked and printed.
//!
//! Every type is read from plain text, so that a default in the table, an option of the command
//! line and a string in a file go the same way. The TOML type is checked before.

use crate::problems::problem::Wrong;
use crate::problems::quoted::{bare_or_quoted, quote, show_list};
use crate::values::units::{self, ByteRate, Percent, Size};
use std::path::PathBuf;
use std::time::Duration;

/// A field of a section that holds the value of a setting.
pub trait Value {
    /// The TOML type in which the value is written.
    fn form(&self) -> Form;
    /// The form of a value in words, with an example.
    fn expected(&self) -> &'static str;
    /// The words allowed, if the value is one of a few.
    fn choices(&self) -> &'static [&'static str] {
        &[]
    }
    /// Stores the value of `text`; a list takes it as one more item.
    ///
    /// # Errors
    /// What is wrong with the text; then nothing is stored.
    fn set(&mut self, text: &str) -> Result<(), Wrong>;
    /// The value as TOML.
    fn show(&self) -> String;
    /// The amount that `text` means, for the check of a range; `None` where there is nothing to compare.
    fn amount(&self, _text: &str) -> Option<u64> {
        None
    }
    /// The value that was probably meant by a wrong text.
    fn guess(&self, _text: &str) -> Option<String> {
        None
    }
    /// Removes the items of a list, and the value of a setting that may have none.
    fn clear(&mut self) {}
    /// Whether a list may have no items.
    fn may_be_empty(&self) -> bool {
        false
    }
    /// Whether there is a value.
    fn is_set(&self) -> bool {
        true
    }
    /// Stores the value of `text` under `name`, in a value that is a table.
    ///
    /// # Errors
    /// What is wrong with name or text; then nothing is stored.
    fn put(&mut self, _name: &str, text: &str) -> Result<(), Wrong> {
        self.set(text)
    }
    /// Whether the values in a table are integers.
    fn has_numbers(&self) -> bool {
        false
    }
}

/// A type that is read from a text and remembers it. An [`Option`] of it is a setting that may have
/// no value, a [`Vec`] one that is a list.
pub trait Written: PartialEq + Sized + 'static {
    /// The form of a value in words, with an example.
    const EXPECTED: &'static str;
    /// Reads a value.
    ///
    /// # Errors
    /// What is wrong with the text.
    fn read(text: &str) -> Result<Self, Wrong>;
    /// The text from which [`read`](Written::read) makes the same value.
    fn text(&self) -> String;
    /// The text that was probably meant by a wrong one.
    fn guess(_text: &str) -> Option<String> {
        None
    }
    /// Whether the value may be in a list twice.
    fn may_repeat(&self) -> bool {
        false
    }
    /// Whether a list of such values may be empty.
    const MAY_BE_EMPTY: bool = true;

    /// The fault that a text is not such a value.
    fn misread(text: &str) -> Wrong {
        let near = Self::guess(text).map(|near| quote(&near));
        Wrong::Form { expected: Self::EXPECTED, found: quote(text), near }
    }
}

impl<W: Written> Value for Option<W> {
    fn form(&self) -> Form {
        Form::Text
    }
    fn expected(&self) -> &'static str {
        W::EXPECTED
    }
    fn set(&mut self, text: &str) -> Result<(), Wrong> {
        *self = Some(W::read(text)?);
        Ok(())
    }
    fn show(&self) -> String {
        self.as_ref().map_or(String::new(), |value| quote(&value.text()))
    }
    fn guess(&self, text: &str) -> Option<String> {
        W::guess(text)
    }
    fn clear(&mut self) {
        *self = None;
    }
    fn is_set(&self) -> bool {
        self.is_some()
    }
}

impl<W: Written> Value for Vec<W> {
    fn form(&self) -> Form {
        Form::List
    }
    fn expected(&self) -> &'static str {
        W::EXPECTED
    }
    fn set(&mut self, text: &str) -> Result<(), Wrong> {
        let item = W::read(text)?;
        if self.contains(&item) && !item.may_repeat() {
            return Err(Wrong::Repeated { found: text.to_owned() });
        }
        self.push(item);
        Ok(())
    }
    fn show(&self) -> String {
        show_list(self.iter().map(W::text))
    }
    fn guess(&self, text: &str) -> Option<String> {
        W::guess(text)
    }
    fn clear(&mut self) {
        Vec::clear(self);
    }
    fn may_be_empty(&self) -> bool {
        W::MAY_BE_EMPTY
    }
}

/// An entry of a table, under one name. A [`TableOf`] such entries is a setting.
pub trait TableEntry: Sized {
    /// The form of the table in words, with an example.
    const EXPECTED: &'static str;
    /// Reads an entry.
    ///
    /// # Errors
    /// What is wrong with name or text.
    fn read(name: &str, text: &str) -> Result<Self, Wrong>;
    /// The name and text from which [`read`](TableEntry::read) makes the same entry.
    fn pair(&self) -> (String, &str);
    /// Adds the entry to those that are there, which may be inherited.
    fn put(self, entries: &mut Vec<Self>) {
        entries.push(self);
    }
}

/// A table with strings as values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableOf<E>(pub Vec<E>);

impl<E> Default for TableOf<E> {
    fn default() -> TableOf<E> {
        TableOf(Vec::new())
    }
}

impl<E: TableEntry> Value for TableOf<E> {
    fn form(&self) -> Form {
        Form::Table
    }
    fn expected(&self) -> &'static str {
        E::EXPECTED
    }
    fn set(&mut self, text: &str) -> Result<(), Wrong> {
        self.put("", text)
    }
    fn put(&mut self, name: &str, text: &str) -> Result<(), Wrong> {
        E::read(name, text)?.put(&mut self.0);
        Ok(())
    }
    fn show(&self) -> String {
        let line =
            |(name, text): (String, &str)| format!("{} = {}", bare_or_quoted(&name), quote(text));
        let lines: Vec<String> = self.0.iter().map(|entry| line(entry.pair())).collect();
        if lines.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", lines.join(", ")) }
    }
    fn is_set(&self) -> bool {
        !self.0.is_empty()
    }
}

/// The TOML type of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A string.
    Text,
    /// An integer.
    Number,
    /// An integer or the string `auto`.
    NumberOrAuto,
    /// `true` or `false`.
    Switch,
    /// `true` or `false`, or an array of strings.
    SwitchOrList,
    /// An array of strings.
    List,
    /// A string, or an array of strings.
    TextOrList,
    /// A table with strings as values, or with integers.
    Table,
}

/// A number, or the choice of Forebay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AutoCount {
    /// Forebay chooses the number.
    #[default]
    Auto,
    /// This number.
    Fixed(u64),
}

impl AutoCount {
    /// The number, or `auto` if Forebay chooses.
    pub fn or(self, auto: u64) -> u64 {
        match self {
            AutoCount::Auto => auto,
            AutoCount::Fixed(number) => number,
        }
    }
}

impl Value for bool {
    fn form(&self) -> Form {
        Form::Switch
    }
    fn expected(&self) -> &'static str {
        "true or false"
    }
    fn set(&mut self, text: &str) -> Result<(), Wrong> {
        *self = text.parse().map_err(|_| wrong(self, text))?;
        Ok(())
    }
    fn show(&self) -> String {
        self.to_string()
    }
    fn guess(&self, text: &str) -> Option<String> {
        match text {
            "true" | "on" | "yes" | "1" => Some("true".to_owned()),
            "false" | "off" | "no" | "0" => Some("false".to_owned()),
            _ => None,
        }
    }
}

impl Value for u64 {
    fn form(&self) -> Form {
        Form::Number
    }
    fn expected(&self) -> &'static str {
        "a whole number"
    }
    fn set(&mut self, text: &str) -> Result<(), Wrong> {
        *self = number(text).ok_or_else(|| wrong(self, text))?;
        Ok(())
    }
    fn show(&self) -> String {
        self.to_string()
    }
    fn amount(&self, text: &str) -> Option<u64> {
        number(text)
    }
}

impl Value for AutoCount {
    fn form(&self) -> Form {
        Form::NumberOrAuto
    }
    fn expected(&self) -> &'static str {
        "a whole number or \"auto\""
    }
    fn set(&mut self, text: &str) -> Result<(), Wrong> {
        *self = match number(text) {
            Some(number) => AutoCount::Fixed(number),
            None if text == "auto" => AutoCount::Auto,
            None => return Err(wrong(self, text)),
        };
        Ok(())
    }
    fn show(&self) -> String {
        match self {
            AutoCount::Auto => quote("auto"),
            AutoCount::Fixed(number) => number.to_string(),
        }
    }
    fn amount(&self, text: &str) -> Option<u64> {
        number(text)
    }
}

impl Value for Duration {
    fn form(&self) -> Form {
        Form::Text
    }
    fn expected(&self) -> &'static str {
        "a duration such as \"10s\" (units: ms, s, m, h, d)"
    }
    fn set(&mut self, text: &str) -> Result<(), Wrong> {
        let milliseconds = units::milliseconds(text).map_err(|_| wrong(self, text))?;
        *self = Duration::from_millis(milliseconds);
        Ok(())
    }
    fn show(&self) -> String {
        let mut text = String::new();
        // writing into a string does not fail
        let _ = units::show_duration(*self, &mut text);
        quote(&text)
    }
    fn amount(&self, text: &str) -> Option<u64> {
        units::milliseconds(text).ok()
    }
    fn guess(&self, text: &str) -> Option<String> {
        let short = text.replace("sec", "s").replace("min", "m").replace(' ', "");
        [short, format!("{text}s")].into_iter().find(|guess| units::milliseconds(guess).is_ok())
    }
}

impl Value for Size {
    fn form(&self) -> Form {
        Form::Text
    }
    fn expected(&self) -> &'static str {
        "a size such as \"64KiB\" (units: B, KiB, MiB, GiB, TiB)"
    }
    fn set(&mut self, text: &str) -> Result<(), Wrong> {
        *self = text.parse().map_err(|_| wrong(self, text))?;
        Ok(())
    }
    fn show(&self) -> String {
        quote(&self.to_string())
    }
    fn amount(&self, text: &str) -> Option<u64> {
        text.parse::<Size>().ok().map(|size| size.0)
    }
    fn guess(&self, text: &str) -> Option<String> {
        let binary = text.to_uppercase().replace([' ', 'B', 'I'], "") + "iB";
        [format!("{text}B"), binary].into_iter().find(|guess| guess.parse::<Size>().is_ok())
    }
}

impl Value for ByteRate {
    fn form(&self) -> Form {
        Form::Text
    }
    fn expected(&self) -> &'static str {
        "a rate such as \"1KiB/s\" (units: B/s, KiB/s, MiB/s, GiB/s)"
    }
    fn set(&mut self, text: &str) -> Result<(), Wrong> {
        *self = text.parse().map_err(|_| wrong(self, text))?;
        Ok(())
    }
    fn show(&self) -> String {
        quote(&self.to_string())
    }
    fn amount(&self, text: &str) -> Option<u64> {
        text.parse::<ByteRate>().ok().map(|rate| rate.0)
    }
    fn guess(&self, text: &str) -> Option<String> {
        [format!("{text}/s"), format!("{text}B/s")]
            .into_iter()
            .find(|guess| guess.parse::<ByteRate>().is_ok())
    }
}

impl Value for Percent {
    fn form(&self) -> Form {
        Form::Text
    }
    fn expected(&self) -> &'static str {
        "a share such as \"20%\" or \"2.5%\""
    }
    fn set(&mut self, text: &str) -> Result<(), Wrong> {
        *self = text.parse().map_err(|_| wrong(self, text))?;
        Ok(())
    }
    fn show(&self) -> String {
        quote(&self.to_string())
    }
    fn amount(&self, text: &str) -> Option<u64> {
        text.parse::<Percent>().ok().map(|percent| percent.0)
    }
    fn guess(&self, text: &str) -> Option<String> {
        let percent = format!("{}%", text.trim_end_matches(['%', ' ']));
        percent.parse::<Percent>().is_ok().then_some(percent)
    }
}

/// Paths of files and directories.
impl Written for PathBuf {
    const EXPECTED: &'static str = "a path such as \"/srv/www\"";
    fn read(text: &str) -> Result<PathBuf, Wrong> {
        if text.is_empty() || text.contains('\0') {
            return Err(PathBuf::misread(text));
        }
        Ok(PathBuf::from(text))
    }
    fn text(&self) -> String {
        self.to_string_lossy().into_owned()
    }
}

/// File names.
impl Written for String {
    const EXPECTED: &'static str = "a file name without a slash such as \"index.html\"";
    const MAY_BE_EMPTY: bool = false;
    fn read(text: &str) -> Result<String, Wrong> {
        if matches!(text, "" | "." | "..") || text.contains(['/', '\0']) {
            return Err(String::misread(text));
        }
        Ok(text.to_owned())
    }
    fn text(&self) -> String {
        self.clone()
    }
}

/// The fault that `text` does not belong into `value`.
pub(crate) fn wrong(value: &dyn Value, text: &str) -> Wrong {
    Wrong::Form { expected: value.expected(), found: quote(text), near: suggest(value, text) }
}

/// Reads the status in `text`, if that is one that belongs into `value`.
pub(crate) fn status(
    value: &dyn Value,
    text: &str,
    belongs: impl Fn(&u16) -> bool,
) -> Result<u16, Wrong> {
    let wrong = || Wrong::Form {
        expected: value.expected(),
        found: format!("the number {text}"),
        near: None,
    };
    text.parse().ok().filter(belongs).ok_or_else(wrong)
}

/// The value that was probably meant by a wrong text, as TOML.
pub(crate) fn suggest(value: &dyn Value, text: &str) -> Option<String> {
    let near = value.guess(text)?;
    match value.form() {
        Form::Switch | Form::SwitchOrList | Form::Number => Some(near),
        Form::Text | Form::List | Form::TextOrList | Form::NumberOrAuto | Form::Table => {
            Some(quote(&near))
        }
    }
}

/// A whole number without a sign.
pub(crate) fn number(text: &str) -> Option<u64> {
    // str::parse would take a sign
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}
