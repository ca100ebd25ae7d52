//! A TOML text into a [`Config`], or everything that is wrong with it.

use super::Config;
use super::problem::{Problem, Wrong, nearest};
use super::table::{Preset, SETTINGS, Setting};
use super::value::{Form, quote, suggest};
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::Path;
use toml_edit::{Document, Item, Key, Table, TableLike, Value};

/// Most bytes of a configuration file.
const LONGEST: u64 = 1024 * 1024;

/// Reads and checks the configuration at `path`, the directories it names included.
///
/// # Errors
/// Everything that is wrong with it; at least one problem.
pub fn load(path: &Path) -> Result<Config, Vec<Problem>> {
    let file = path.display().to_string();
    let whole =
        |wrong| vec![Problem { file: file.clone(), place: None, key: String::new(), wrong }];
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|opened| opened.take(LONGEST + 1).read_to_end(&mut bytes))
        .map_err(|error| whole(Wrong::Unreadable(error)))?;
    if bytes.len() as u64 > LONGEST {
        return Err(whole(Wrong::TooLong { limit: LONGEST }));
    }
    let text = match std::str::from_utf8(&bytes) {
        Ok(text) => text,
        Err(error) => {
            // the part up to the bad byte is UTF-8
            let good = std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or("");
            let place = Some(place(good, good.len()));
            return Err(vec![Problem { file, place, key: String::new(), wrong: Wrong::NotUtf8 }]);
        }
    };
    let config = parse(text, &file)?;
    let problems: Vec<_> = config
        .missing_files()
        .into_iter()
        .map(|(key, wrong)| Problem {
            file: file.clone(),
            place: position(text, key),
            key: key.to_owned(),
            wrong,
        })
        .collect();
    if problems.is_empty() { Ok(config) } else { Err(problems) }
}

/// Reads a configuration from `text`. `file` is its name for messages, and the directory it names
/// is where relative paths begin. Touches no file.
///
/// # Errors
/// Everything that is wrong with it, in the order of the text. Of a text that is not TOML, the
/// first place where it is not.
pub fn parse(text: &str, file: &str) -> Result<Config, Vec<Problem>> {
    let mut reader = Reader { text, file, config: Config::default(), problems: Vec::new() };
    match Document::parse(text) {
        Ok(document) => {
            reader.section("", document.as_table());
            reader.required(document.as_table());
        }
        Err(error) => {
            let span = error.span().unwrap_or(0..0);
            let message = error.message().replace('\n', ", ").replace(char::is_control, " ");
            reader.note("", span, Wrong::Syntax(message));
        }
    }
    let Reader { mut config, mut problems, .. } = reader;
    if problems.is_empty() {
        config.rebase(Path::new(file).parent().unwrap_or(Path::new("")));
        return Ok(config);
    }
    problems.sort_by_key(|problem| problem.place);
    Err(problems)
}

/// Where the value of the setting `key` stands in `text`.
fn position(text: &str, key: &str) -> Option<(usize, usize)> {
    let document = Document::parse(text).ok()?;
    let span = find(document.as_table(), key)?.span()?;
    Some(place(text, span.start))
}

fn find<'t>(table: &'t Table, key: &str) -> Option<&'t Item> {
    let mut parts = key.split('.');
    let first = table.get(parts.next()?)?;
    parts.try_fold(first, |item, part| item.as_table_like()?.get(part))
}

/// Line and column of a byte offset, both from 1, the column in characters.
fn place(text: &str, offset: usize) -> (usize, usize) {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    let before = &text[..offset];
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let line = before.bytes().filter(|b| *b == b'\n').count() + 1;
    (line, before[line_start..].chars().count() + 1)
}

struct Reader<'t> {
    text: &'t str,
    file: &'t str,
    config: Config,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn note(&mut self, key: &str, span: Range<usize>, wrong: Wrong) {
        self.problems.push(Problem {
            file: self.file.to_owned(),
            place: Some(place(self.text, span.start)),
            key: key.to_owned(),
            wrong,
        });
    }

    /// Reads all keys of a table; `section` is its path, empty for the file itself.
    fn section(&mut self, section: &str, table: &dyn TableLike) {
        for (name, item) in table.iter() {
            let Some(key) = table.key(name) else { continue };
            let path = join(section, key);
            let at = key.span().or(item.span()).unwrap_or(0..0);
            let known_section = SETTINGS.iter().any(|setting| setting.section() == path);
            if let Some(setting) = Setting::find(&path) {
                self.setting(setting, item, at);
            } else if !known_section {
                self.note(&path, at, Wrong::Unknown { near: similar(section, name) });
            } else if let Some(inner) = item.as_table_like() {
                self.section(&path, inner);
            } else {
                let found = describe(item);
                let expected = "a section with settings of its own";
                self.note(&path, at, Wrong::Form { expected, found, near: None });
            }
        }
    }

    fn setting(&mut self, setting: &'static Setting, item: &Item, key: Range<usize>) {
        let span = item.span().unwrap_or(key);
        let form = (setting.at)(&mut self.config).form();
        let result = match (form, item.as_value()) {
            (Form::List, Some(Value::Array(items))) => {
                return self.list(setting, items, span);
            }
            (Form::Text, Some(Value::String(text))) => setting.set(&mut self.config, text.value()),
            (Form::NumberOrAuto, Some(Value::String(text))) => {
                setting.set(&mut self.config, text.value())
            }
            (Form::Number | Form::NumberOrAuto, Some(Value::Integer(number))) => {
                self.number(setting, *number.value())
            }
            (Form::Switch, Some(Value::Boolean(switch))) => {
                setting.set(&mut self.config, if *switch.value() { "true" } else { "false" })
            }
            _ => Err(self.misfit(setting, item)),
        };
        if let Err(wrong) = result {
            self.note(setting.key, span, wrong);
        }
    }

    fn number(&mut self, setting: &Setting, number: i64) -> Result<(), Wrong> {
        match setting.range {
            Some((least, most)) if number < 0 => {
                Err(Wrong::Range { found: number.to_string(), least, most })
            }
            _ => setting.set(&mut self.config, &number.to_string()),
        }
    }

    fn list(&mut self, setting: &'static Setting, items: &toml_edit::Array, span: Range<usize>) {
        (setting.at)(&mut self.config).clear();
        if items.is_empty() {
            return self.note(setting.key, span, Wrong::Empty);
        }
        for item in items {
            let at = item.span().unwrap_or(span.clone());
            let result = match item {
                Value::String(text) => setting.set(&mut self.config, text.value()),
                other => Err(self.misfit(setting, &Item::Value(other.clone()))),
            };
            if let Err(wrong) = result {
                self.note(setting.key, at, wrong);
            }
        }
    }

    /// The value is not of the TOML type the setting has.
    fn misfit(&mut self, setting: &Setting, item: &Item) -> Wrong {
        let value = (setting.at)(&mut self.config);
        let found = describe(item);
        let text = match item.as_value() {
            Some(Value::Integer(number)) => number.value().to_string(),
            Some(Value::Boolean(switch)) => switch.value().to_string(),
            Some(Value::String(text)) => text.value().clone(),
            _ => String::new(),
        };
        let (expected, near) = match value.form() {
            Form::List if item.is_str() => ("a list", Some(format!("[{found}]"))),
            Form::Number | Form::NumberOrAuto => {
                let number = value.amount(&text).map(|number| number.to_string());
                (value.expected(), number)
            }
            _ => (value.expected(), suggest(value, &text)),
        };
        Wrong::Form { expected, found, near }
    }

    fn required(&mut self, table: &Table) {
        for setting in SETTINGS {
            if let Preset::Required(example) = setting.preset
                && find(table, setting.key).is_none()
            {
                self.note(setting.key, 0..0, Wrong::Missing { example });
            }
        }
    }
}

/// The path of a key. A name that cannot be a setting's is quoted, so that it cannot spoil a
/// message.
fn join(section: &str, key: &Key) -> String {
    let name = key.get();
    let bare = !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
    let name = if bare { name.to_owned() } else { quote(name) };
    if section.is_empty() { name } else { format!("{section}.{name}") }
}

/// The setting or section that was probably meant: one of the same section, else one elsewhere.
fn similar(section: &str, name: &str) -> Option<String> {
    let top = SETTINGS.iter().map(|s| s.section()).filter(|s| section.is_empty() && !s.is_empty());
    let here = SETTINGS.iter().filter(|s| s.section() == section).map(Setting::name);
    if let Some(near) = nearest(name, here.chain(top)) {
        return Some(near.to_owned());
    }
    let near = nearest(name, SETTINGS.iter().map(Setting::name))?;
    SETTINGS.iter().find(|setting| setting.name() == near).map(|setting| setting.key.to_owned())
}

/// What stands in the file, in words.
fn describe(item: &Item) -> String {
    let value = match item {
        Item::Value(value) => value,
        Item::Table(_) => return "a section".to_owned(),
        Item::ArrayOfTables(_) => return "a list of sections".to_owned(),
        Item::None => return "nothing".to_owned(),
    };
    match value {
        Value::String(text) => quote(text.value()),
        Value::Integer(number) => format!("the number {}", number.value()),
        Value::Float(number) => format!("the number {}", number.value()),
        Value::Boolean(switch) => switch.value().to_string(),
        Value::Datetime(_) => "a date or time".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::InlineTable(_) => "a section".to_owned(),
    }
}
