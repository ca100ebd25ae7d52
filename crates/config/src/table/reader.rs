//! Reads sections of a TOML text by their tables.
//!
//! The reader walks the text once and asks the tables of the sections what may be there. It remembers where
//! everything stood, so that a later check can report the place.

mod expanding;

use self::expanding::{MAY_BE_SECRET, OutsideFault, is_one_of};
use super::{Items, Preset, Section, Setting, in_range, split};
use crate::Remarks;
use crate::problems::path::Path;
use crate::problems::problem::{Finding, Problem, Wrong, did_you_mean};
use crate::problems::quoted::quote;
use crate::problems::text_place::TextPlace;
use crate::texts::origin::ConfigOrigin;
use crate::texts::positions::Positions;
use crate::texts::source::ConfigSource;
use crate::values::value::{Form, Value, suggest};
use forebay_policy::near::nearest;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use toml_edit::{Item, Key, TableLike, Value as Toml};

/// A fault of a value.
#[derive(Debug)]
enum MisreadValue {
    /// A value stands where a section belongs.
    NoSection {
        /// The value that is there.
        found: String,
        /// The section that is probably meant, as it would be written in the file.
        example: String,
    },
    /// A word that is not allowed, in a list for which an earlier message has shown the words allowed.
    OtherChoice {
        /// The word that is there.
        found: String,
        /// The words allowed.
        choices: &'static [&'static str],
    },
}

impl Finding for MisreadValue {}

impl fmt::Display for MisreadValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MisreadValue::NoSection { found, example } => write!(
                f,
                "expected a section with settings of its own such as {example}, found {found}"
            ),
            MisreadValue::OtherChoice { found, choices } => {
                write!(f, "{found:?} is none of them either")?;
                did_you_mean(f, nearest(found, choices.iter().copied()))
            }
        }
    }
}

/// The places of everything in a text, by [`Path::exact`].
type TextPositions = HashMap<String, Range<usize>>;

/// The lists of a site that answer some requests without a root.
const ANSWERS: [&str; 4] = ["redirect", "work", "alias", "proxy"];

/// Reads a text, and notes its faults.
pub struct ConfigReader<'t> {
    file: &'t str,
    pub(crate) texts: Positions,
    /// The offset of the text that is being read; places within it are counted from there.
    pub(crate) start: usize,
    /// The source of the variables, files and secrets that the texts name.
    pub(crate) source: Box<dyn ConfigSource>,
    /// The files, variables and secrets that they named.
    pub(crate) origin: ConfigOrigin,
    /// The places of the values with secrets, by [`Path::exact`], and the files of the secrets.
    secrets: Vec<(Path, PathBuf)>,
    places: TextPositions,
    /// The number of sections in each list of the top level so far: several texts may have some.
    counts: HashMap<String, usize>,
    /// Keys that were probably meant although they cannot be read: the likely meanings of unknown keys, and
    /// sections that are not sections. By [`Path::exact`].
    meant: HashSet<String>,
    /// The faults so far, each with its offset.
    problems: Vec<(usize, Problem)>,
    remarks: Remarks,
    pub(crate) is_toml: bool,
    /// The name under which the table of stages was read first.
    stages: Option<String>,
    /// The fault of a key that does not exist in a section.
    unknown: fn(section: &str, name: &str) -> Wrong,
    /// The lists of a site, which no site inherits.
    site_lists: Vec<&'static str>,
}

impl<'t> ConfigReader<'t> {
    /// A reader for a text; `file` is its name for messages. `unknown` gives the fault of a key that a
    /// section does not have; `site_lists` are not inherited.
    pub(crate) fn with(
        text: &'t str,
        file: &'t str,
        source: Box<dyn ConfigSource>,
        unknown: fn(section: &str, name: &str) -> Wrong,
        site_lists: Vec<&'static str>,
    ) -> ConfigReader<'t> {
        let mut texts = Positions::default();
        texts.add(file, text);
        ConfigReader {
            file,
            texts,
            start: 0,
            source,
            origin: ConfigOrigin::default(),
            secrets: Vec::new(),
            places: TextPositions::new(),
            counts: HashMap::new(),
            meant: HashSet::new(),
            problems: Vec::new(),
            remarks: Vec::new(),
            is_toml: true,
            stages: None,
            unknown,
            site_lists,
        }
    }

    /// Everything noted so far, in the order of the text.
    pub fn problems(&mut self) -> Vec<Problem> {
        self.problems.sort_by_key(|(offset, _)| *offset);
        std::mem::take(&mut self.problems).into_iter().map(|(_, problem)| problem).collect()
    }

    /// The remarks of the text so far; they are taken out.
    pub fn take_remarks(&mut self) -> Remarks {
        std::mem::take(&mut self.remarks)
    }

    /// The line and column of the end of the main file's text.
    pub fn end(&self) -> (usize, usize) {
        let main = self.texts.0.first();
        main.map_or((1, 1), |main| main.position(main.text.len()))
    }

    /// The places of the values with secrets, and the file of each.
    pub fn secrets(&self) -> &[(Path, PathBuf)] {
        &self.secrets
    }

    /// The other texts and files that the configuration was read from.
    pub fn origin(&self) -> &ConfigOrigin {
        &self.origin
    }

    /// The name of the main text for messages: the path of its file.
    pub fn file(&self) -> &'t str {
        self.file
    }

    /// Whether the text is TOML at all.
    pub fn is_toml(&self) -> bool {
        self.is_toml
    }

    /// Whether no fault was noted.
    pub fn is_content(&self) -> bool {
        self.problems.is_empty()
    }

    /// Whether the table of stages has this name. The first name that is asked for stays.
    pub(crate) fn is_called(&mut self, name: &str) -> bool {
        self.stages.get_or_insert_with(|| name.to_owned()) == name
    }

    /// The name of a setting in messages: as in the text, if that has another name for its table.
    fn called(&self, shown: &str) -> String {
        match (shown.strip_prefix("isolated."), &self.stages) {
            (Some(key), Some(name)) => format!("{name}.{key}"),
            _ => shown.to_owned(),
        }
    }

    /// Notes a fault at a place that was read, or otherwise at the section that the place is missing in.
    pub fn note_at(&mut self, path: &Path, wrong: Wrong) {
        let span = self.span(&path.exact).unwrap_or(0..0);
        let is_within = |secret: &str| {
            secret
                .strip_prefix(&path.exact)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        // a message may repeat a part of a secret value; a message about the secret's file does not
        let is_of_secret = is_one_of(&path.shown, &MAY_BE_SECRET)
            && self.secrets.iter().any(|(secret, _)| is_within(&secret.exact));
        let wrong = if is_of_secret { Wrong::said(OutsideFault::OfSecret) } else { wrong };
        self.note(&self.called(&path.shown), span, wrong);
    }

    /// The line and column of what was read at `exact`; for an inherited setting, those of the original.
    pub fn place(&self, exact: &str) -> Option<TextPlace> {
        self.span(exact).map(|span| self.texts.place(span.start))
    }

    /// The offset of something in the texts, by which things are ordered.
    pub(crate) fn offset(&self, exact: &str) -> Option<usize> {
        self.span(exact).map(|span| span.start)
    }

    /// Whether something stands at `path` itself, valid or not.
    pub fn says(&self, path: &Path) -> bool {
        self.places.contains_key(&path.exact)
    }

    /// The place of an item, which may stand alone where a list could.
    pub fn item(&self, list: &Path, index: usize) -> Path {
        Some(list.item(index)).filter(|item| self.says(item)).unwrap_or_else(|| list.clone())
    }

    /// Whether the text has something about a setting, even if that is wrong or misspelt; or about a
    /// setting that makes it unnecessary.
    pub fn has(&self, path: &Path) -> bool {
        let says = |exact: &str| self.own_or_inherited(exact).is_some();
        let instead = match path.exact.strip_suffix("root") {
            Some("") => ANSWERS.iter().chain(&["site"]).any(|list| says(list)),
            Some(site) => ANSWERS.iter().any(|list| says(&format!("{site}{list}"))),
            None => false,
        };
        instead || says(&path.exact) || self.meant.contains(&path.exact)
    }

    /// A span within the text that is being read, as one of all texts.
    pub(crate) fn here(&self, span: Option<Range<usize>>) -> Range<usize> {
        span.map_or(self.start..self.start, |span| span.start + self.start..span.end + self.start)
    }

    fn own_or_inherited(&self, exact: &str) -> Option<Range<usize>> {
        let inherited = || {
            let (section, rest) = exact.split_once("].")?;
            // a site does not inherit the keys that distinguish it from other sites, nor does a listener
            let own: &[&str] = match section.split_once('[')?.0 {
                "site" => &["name", "hosts"],
                "listener" => &["listen"],
                _ => return None,
            };
            let first = rest.split(['.', '[']).next()?;
            let is_list = self.site_lists.contains(&first);
            let inherits = !is_list && !own.contains(&first);
            if inherits { self.places.get(rest) } else { None }
        };
        self.places.get(exact).or_else(inherited).cloned()
    }

    /// The place of something, or otherwise of the section that it is missing in.
    fn span(&self, exact: &str) -> Option<Range<usize>> {
        let section = || self.span(exact.rsplit_once('.')?.0);
        self.own_or_inherited(exact).or_else(section)
    }

    pub(crate) fn note(&mut self, shown: &str, span: Range<usize>, wrong: Wrong) {
        let TextPlace { line, column, .. } = self.texts.place(span.start);
        let number = self.texts.number(span.start);
        let file = self.texts.0.get(number).map_or(self.file, |text| &*text.file).to_owned();
        let problem = Problem { file, place: Some((line, column)), key: shown.to_owned(), wrong };
        self.problems.push((span.start, problem));
    }

    /// Notes a fault of one of the texts, or of its file, as a whole.
    pub(crate) fn note_file(&mut self, file: &str, place: Option<(usize, usize)>, wrong: Wrong) {
        let problem = Problem { file: file.to_owned(), place, key: String::new(), wrong };
        self.problems.push((usize::MAX, problem));
    }

    /// Notes a remark: something is valid and probably not meant.
    pub(crate) fn remark(&mut self, path: &Path, wrong: Wrong) {
        self.remarks.push((path.clone(), wrong));
    }

    pub(crate) fn remember(&mut self, parent: &Path, key: &Key, item: &Item) -> bool {
        let span = self.here(item.span().or(key.span()));
        self.places.entry(parent.key(key).exact).or_insert(span);
        true
    }

    /// Calls `each` for the sections of a list, in whatever form of TOML it is written.
    pub(crate) fn sections(
        &mut self,
        path: &Path,
        key: &Key,
        item: &Item,
        mut each: impl FnMut(&mut Self, &Path, &dyn TableLike),
    ) {
        // earlier texts may have sections of a list of the top level
        let is_top = !path.exact.contains('.');
        let before = if is_top { self.counts.get(&path.exact).copied().unwrap_or(0) } else { 0 };
        let mut one = |reader: &mut Self, index, span: Option<Range<usize>>, table| {
            if is_top {
                reader.counts.insert(path.exact.clone(), before + index + 1);
            }
            let path = path.item(before + index);
            let span = reader.here(span.or(key.span()));
            reader.places.insert(path.exact.clone(), span);
            each(reader, &path, table);
        };
        match item {
            Item::ArrayOfTables(tables) => {
                for (index, table) in tables.iter().enumerate() {
                    one(self, index, table.span(), table);
                }
            }
            Item::Value(Toml::Array(values)) if values.iter().all(Toml::is_inline_table) => {
                let tables = values.iter().filter_map(Toml::as_inline_table);
                for (index, table) in tables.enumerate() {
                    one(self, index, table.span(), table);
                }
            }
            _ => {
                let near = item.is_table_like().then(|| format!("[[{}]]", path.shown));
                let expected = "a list of sections";
                let span = self.here(key.span().or(item.span()));
                self.note(&path.shown, span, Wrong::Form { expected, found: describe(item), near });
            }
        }
    }

    /// A section of a list; `None` if it has faults.
    pub fn whole<T: Section>(&mut self, path: &Path, table: &dyn TableLike) -> Option<T> {
        let before = self.problems.len();
        let mut section = T::preset();
        self.fill(&mut section, path, table);
        (self.problems.len() == before).then_some(section)
    }

    /// Reads all keys of a table into a section, and notes those that must be there.
    pub(crate) fn fill<T: Section>(&mut self, section: &mut T, path: &Path, table: &dyn TableLike) {
        self.table(section, "", path, table);
        for setting in T::SETTINGS {
            let at = path.child(setting.key);
            if setting.preset == Preset::Required && !self.has(&at) {
                let example = format!("{} = {}", setting.key, setting.example);
                self.note_at(&at, Wrong::Missing { example });
            }
        }
    }

    pub(crate) fn table<T: Section>(
        &mut self,
        section: &mut T,
        subsection: &str,
        path: &Path,
        table: &dyn TableLike,
    ) {
        for (name, item) in table.iter() {
            let Some(key) = table.key(name) else { continue };
            if !self.entry(section, subsection, path, key, item) {
                self.unknown(path, key, item);
            }
        }
    }

    /// Reads one key into a section that may have it. Returns whether the section has it.
    pub(crate) fn entry<T: Section>(
        &mut self,
        section: &mut T,
        subsection: &str,
        parent: &Path,
        key: &Key,
        item: &Item,
    ) -> bool {
        let path = parent.key(key);
        let name = match subsection {
            "" => key.get().to_owned(),
            _ => format!("{subsection}.{}", key.get()),
        };
        let at = self.here(key.span().or(item.span()));
        if let Some(setting) = T::SETTINGS.iter().find(|setting| setting.key == name) {
            let span = self.here(item.span().or(key.span()));
            if path.exact == "include" && self.start > 0 {
                self.note(&path.shown, at, Wrong::said(OutsideFault::MainOnly));
                return true;
            }
            if let Some(first) = self.places.get(&path.exact).cloned()
                && self.texts.number(first.start) != self.texts.number(self.start)
            {
                let first = self.texts.place(first.start);
                self.note(&path.shown, at, Wrong::said(OutsideFault::SetTwice { first }));
                return true;
            }
            self.places.insert(path.exact.clone(), span.clone());
            self.setting(setting, section, item, &path, span);
        } else if let Some(list) = T::LISTS.iter().find(|list| list.name == name) {
            self.remember(parent, key, item);
            let items: &mut dyn Items = (list.at)(section);
            self.sections(&path, key, item, |reader, path, table| items.read(reader, path, table));
        } else if !T::SETTINGS.iter().any(|setting| setting.subsection() == name) {
            return false;
        } else if let Some(inner) = item.as_table_like() {
            self.places.entry(path.exact.clone()).or_insert(at);
            self.table(section, &name, &path, inner);
        } else {
            self.meant.insert(path.exact.clone());
            let (found, example) = (describe(item), section_of::<T>(&name, item));
            self.note(&path.shown, at, Wrong::said(MisreadValue::NoSection { found, example }));
        }
        true
    }

    pub(crate) fn unknown(&mut self, parent: &Path, key: &Key, item: &Item) {
        let at = self.here(key.span().or(item.span()));
        let wrong = (self.unknown)(&parent.shown, key.get());
        let meant = match &wrong {
            Wrong::Unknown { near } => near.as_deref(),
            Wrong::Foreign { meant, .. } => *meant,
            _ => None,
        };
        self.meant.extend(meant.map(|meant| parent.child(meant).exact));
        self.note(&parent.key(key).shown, at, wrong);
    }

    fn setting<T>(
        &mut self,
        setting: &Setting<T>,
        section: &mut T,
        item: &Item,
        path: &Path,
        span: Range<usize>,
    ) {
        let value = (setting.at)(section);
        let form = value.form();
        let string = match item.as_value() {
            Some(Toml::String(text)) => match self.expanded(text.value(), path) {
                Ok(expanded) => Some(expanded),
                Err(wrong) => return self.note(&path.shown, span, wrong),
            },
            _ => None,
        };
        let set = |value: &mut dyn Value, text: &str| {
            in_range(value, setting.range, text)?;
            value.set(text)
        };
        let result = match (form, item.as_value()) {
            (Form::List | Form::TextOrList | Form::SwitchOrList, Some(Toml::Array(items))) => {
                return self.list(value, items, path, span);
            }
            (Form::TextOrList, _) if let Some(string) = &string => {
                value.clear();
                set(value, &string.text)
            }
            (Form::Text | Form::NumberOrAuto, _) if let Some(string) = &string => {
                set(value, &string.text)
            }
            // a variable has no type of its own
            (Form::Number | Form::Switch | Form::SwitchOrList, _)
                if let Some(string) = string.as_ref().filter(|string| string.has_variable) =>
            {
                set(value, &string.text)
            }
            (Form::Number | Form::NumberOrAuto, Some(Toml::Integer(number))) => {
                match (setting.range, *number.value()) {
                    // values have no sign: a negative number is out of range, and not of the wrong form
                    (Some((least, most)), number @ ..0) => {
                        Err(Wrong::Range { found: number.to_string(), least, most })
                    }
                    (_, number) => set(value, &number.to_string()),
                }
            }
            (Form::Switch | Form::SwitchOrList, Some(Toml::Boolean(switch))) => {
                set(value, &switch.value().to_string())
            }
            (Form::Table, _) if let Some(table) = item.as_table_like() => {
                return self.names(value, setting.range, table, path);
            }
            _ => Err(misfit(value, item)),
        };
        if let Err(wrong) = result {
            self.note(&path.shown, span, wrong);
        }
    }

    fn list(
        &mut self,
        value: &mut dyn Value,
        items: &toml_edit::Array,
        path: &Path,
        span: Range<usize>,
    ) {
        value.clear();
        if items.is_empty() && !value.may_be_empty() {
            return self.note(&path.shown, span, Wrong::Empty);
        }
        let mut are_choices_told = false;
        for (index, item) in items.iter().enumerate() {
            let at = item.span().map_or(span.clone(), |span| self.here(Some(span)));
            self.places.insert(path.item(index).exact, at.clone());
            let result = match item {
                Toml::String(text) => {
                    self.expanded(text.value(), path).and_then(|string| value.set(&string.text))
                }
                other => Err(misfit(value, &Item::Value(other.clone()))),
            };
            let result = result.map_err(|wrong| match wrong {
                Wrong::Choice { found, choices } if are_choices_told => {
                    Wrong::said(MisreadValue::OtherChoice { found, choices })
                }
                wrong => {
                    are_choices_told |= matches!(wrong, Wrong::Choice { .. });
                    wrong
                }
            });
            if let Err(wrong) = result {
                self.note(&path.shown, at, wrong);
            }
        }
    }

    /// Reads a table whose keys are not settings but names.
    fn names(
        &mut self,
        value: &mut dyn Value,
        range: Option<(&'static str, &'static str)>,
        table: &dyn TableLike,
        path: &Path,
    ) {
        for (name, item) in table.iter() {
            let Some(key) = table.key(name) else { continue };
            let path = path.key(key);
            let at = self.here(item.span().or(key.span()));
            self.places.insert(path.exact.clone(), at.clone());
            let string = match item.as_value() {
                Some(Toml::String(text)) => match self.expanded(text.value(), &path) {
                    Ok(expanded) => Some(expanded),
                    Err(wrong) => {
                        self.note(&path.shown, at, wrong);
                        continue;
                    }
                },
                _ => None,
            };
            let is_secret = string.as_ref().is_some_and(|string| string.is_secret);
            let text = match (value.has_numbers(), string, item.as_value()) {
                (false, Some(string), _) => Some(string.text),
                (true, Some(string), _) if string.has_variable => Some(string.text),
                (true, _, Some(Toml::Integer(number))) => Some(number.value().to_string().into()),
                _ => None,
            };
            let put = |value: &mut dyn Value, text: &str| {
                in_range(value, range, text)?;
                value.put(name, text)
            };
            let result = match text {
                Some(text) => put(value, &text),
                None => Err(misfit(value, item)),
            };
            if let Err(mut wrong) = result {
                if is_secret {
                    wrong = Wrong::said(OutsideFault::UnfitSecret { expected: value.expected() });
                }
                if let Wrong::Unfit { found, .. } = &mut wrong
                    && *found == quote(name)
                {
                    found.clear();
                }
                self.note(&path.shown, at, wrong);
            }
        }
    }
}

/// The subsection that expresses what a plain value was meant to, if its first setting can take that.
fn section_of<T: Section>(subsection: &str, item: &Item) -> String {
    let Some(first) = T::SETTINGS.iter().find(|setting| setting.subsection() == subsection) else {
        return String::new();
    };
    let mut section = T::blank();
    let text = match ((first.at)(&mut section).form(), item.as_value()) {
        (Form::Number | Form::NumberOrAuto, Some(Toml::Integer(number))) => {
            Some(number.value().to_string())
        }
        (Form::Text | Form::TextOrList, Some(Toml::String(text))) => Some(text.value().clone()),
        _ => None,
    };
    let value = match text.is_some_and(|text| first.set(&mut section, &text).is_ok()) {
        true => (first.at)(&mut section).show(),
        false => first.example.to_owned(),
    };
    format!("{{ {} = {value} }}", split(first.key).1)
}

/// The fault that a value is not of the TOML type that the setting has.
fn misfit(value: &dyn Value, item: &Item) -> Wrong {
    let found = describe(item);
    let text = match item.as_value() {
        Some(Toml::Integer(number)) => number.value().to_string(),
        Some(Toml::Boolean(switch)) => switch.value().to_string(),
        Some(Toml::String(text)) => text.value().clone(),
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

/// What stands in the file, described in words.
fn describe(item: &Item) -> String {
    let value = match item {
        Item::Value(value) => value,
        Item::Table(_) => return "a section".to_owned(),
        Item::ArrayOfTables(_) => return "a list of sections".to_owned(),
        Item::None => return "nothing".to_owned(),
    };
    match value {
        Toml::String(text) => quote(text.value()),
        Toml::Integer(number) => format!("the number {}", number.value()),
        Toml::Float(number) => format!("the number {}", number.value()),
        Toml::Boolean(switch) => switch.value().to_string(),
        Toml::Datetime(_) => "a date or time".to_owned(),
        Toml::Array(_) => "a list".to_owned(),
        Toml::InlineTable(_) => "a section".to_owned(),
    }
}
