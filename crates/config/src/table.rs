//! The tables of settings. One row makes a setting: how it is parsed, its default, its range, and what the
//! manual, the sample and `forebay check --print` say about it.
//!
//! A kind of section is a type with a table: [`Config`](crate::Config) has the rows of the process,
//! [`ListenerConfig`](crate::ListenerConfig) those of a listener, [`SiteConfig`](crate::SiteConfig) those of a site, and
//! each list of a site is a kind of its own. The reader, the printer and the manual need nothing else.

mod printer;
mod reader;

use crate::problems::path::Path;
use crate::problems::problem::{Finding, Wrong};
use crate::values::value::{Form, Value};
pub use printer::Printer;
pub use reader::ConfigReader;
use std::fmt;
use toml_edit::TableLike;

/// A section or setting exists, but not in this program.
#[derive(Debug)]
pub(crate) struct NotBuilt {
    /// The Cargo feature that the program was built without.
    pub(crate) feature: &'static str,
}

impl Finding for NotBuilt {}

impl fmt::Display for NotBuilt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NotBuilt { feature } = self;
        write!(f, "this program was built without it (the Cargo feature {feature})")
    }
}

/// One setting of a section of the kind `T`.
pub struct Setting<T: 'static> {
    /// The setting's path within the section: `name` or `subsection.name`.
    pub key: &'static str,
    /// The value, or its absence, if nothing is set.
    pub preset: Preset,
    /// The smallest and the largest value allowed.
    pub range: Option<(&'static str, &'static str)>,
    /// The meaning, in plain sentences for the operator. The first one stands alone.
    pub meaning: &'static str,
    /// A value as it may stand in a file, other than the default where that makes sense.
    pub example: &'static str,
    /// The field in which the value is kept.
    pub at: fn(&mut T) -> &mut dyn Value,
}

/// The value of a setting that is not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// A default, as text.
    Value(&'static str),
    /// The items of a list.
    Items(&'static [&'static str]),
    /// No value; with the effect of that.
    Unset(&'static str),
    /// None: the setting must be set.
    Required,
}

/// A list of sections within a section of the kind `T`: `[[name]]`.
pub struct SectionList<T: 'static> {
    /// The list's name.
    pub name: &'static str,
    /// The purpose of the list, in plain sentences.
    pub meaning: &'static str,
    /// The field in which the list is kept.
    pub at: fn(&mut T) -> &mut dyn Items,
}

/// A kind of section.
pub trait Section: Sized + 'static {
    /// The section's settings: first those without a subsection, then those of each subsection together.
    const SETTINGS: &'static [Setting<Self>];
    /// The lists of sections within the section.
    const LISTS: &'static [SectionList<Self>] = &[];

    /// A section in which nothing is set, not even to its default.
    fn blank() -> Self;

    /// A section with every setting at its default.
    fn preset() -> Self {
        let mut section = Self::blank();
        for setting in Self::SETTINGS {
            let items = match &setting.preset {
                Preset::Value(default) => std::slice::from_ref(default),
                Preset::Items(items) => items,
                Preset::Unset(_) | Preset::Required => &[],
            };
            for item in items {
                // a test sets every default, so that no row can hold one that is not accepted
                let accepted = setting.set(&mut section, item);
                debug_assert!(accepted.is_ok(), "{}: {accepted:?}", setting.key);
            }
        }
        section
    }
}

/// The sections of a list, whatever their kind.
pub trait Items {
    /// Reads one more section.
    fn read(&mut self, reader: &mut ConfigReader<'_>, path: &Path, table: &dyn TableLike);
    /// Prints all sections.
    fn print(&self, printer: &mut Printer, name: &str);
    /// The settings of this kind of section, as rows.
    fn rows(&self) -> Vec<SettingDescription>;
}

/// The value that is made of each section of a list.
pub trait Item: Sized + 'static {
    /// The kind of section from which the value is made.
    type Section: Section;

    /// The Cargo feature that this program was built without, so that the list is refused.
    const LACKS: Option<&'static str> = None;

    /// Makes the value from a section, which is checked as a whole.
    ///
    /// # Errors
    /// The key at fault, and the fault.
    fn new(section: Self::Section) -> Result<Self, (&'static str, Wrong)>;

    /// The section that makes this value.
    fn section(&self) -> Self::Section;
}

impl<I: Item> Items for Vec<I> {
    fn read(&mut self, reader: &mut ConfigReader<'_>, path: &Path, table: &dyn TableLike) {
        if let Some(feature) = I::LACKS {
            return reader.note_at(path, Wrong::said(NotBuilt { feature }));
        }
        let Some(section) = reader.whole::<I::Section>(path, table) else { return };
        match I::new(section) {
            Ok(item) => self.push(item),
            Err((key, wrong)) => reader.note_at(&path.child(key), wrong),
        }
    }
    fn print(&self, printer: &mut Printer, name: &str) {
        for item in self {
            printer.item(name, item.section());
        }
    }
    fn rows(&self) -> Vec<SettingDescription> {
        rows::<I::Section>()
    }
}

/// A setting without its field, for texts about it.
#[derive(Clone, Debug)]
pub struct SettingDescription {
    /// The setting's path within the section.
    pub key: &'static str,
    /// The value, or its absence, if nothing is set.
    pub preset: Preset,
    /// The default as TOML, if it has one.
    pub preset_toml: Option<String>,
    /// The smallest and the largest value allowed.
    pub range: Option<(&'static str, &'static str)>,
    /// The meaning, in plain sentences.
    pub meaning: &'static str,
    /// An example of a value.
    pub example: &'static str,
    /// The form of a value, in words.
    pub expected: &'static str,
    /// The words allowed, if the value is one of a few.
    pub choices: &'static [&'static str],
    /// The TOML type.
    pub form: Form,
}

/// The settings of a kind of section, as rows.
pub fn rows<T: Section>() -> Vec<SettingDescription> {
    let mut preset = T::preset();
    let row = |setting: &Setting<T>| {
        let value = (setting.at)(&mut preset);
        let has_default = matches!(setting.preset, Preset::Value(_) | Preset::Items(_));
        SettingDescription {
            key: setting.key,
            preset: setting.preset,
            preset_toml: has_default.then(|| value.show()),
            range: setting.range,
            meaning: setting.meaning,
            example: setting.example,
            expected: value.expected(),
            choices: value.choices(),
            form: value.form(),
        }
    };
    T::SETTINGS.iter().map(row).collect()
}

impl<T> Setting<T> {
    /// The part of the key before the dot; empty outside a subsection.
    pub fn subsection(&self) -> &'static str {
        split(self.key).0
    }

    /// Sets the setting to the value of `text`, if that is within the range. A list takes it as one more
    /// item.
    ///
    /// # Errors
    /// What is wrong with the text; then nothing is set.
    pub fn set(&self, section: &mut T, text: &str) -> Result<(), Wrong> {
        let value = (self.at)(section);
        in_range(value, self.range, text)?;
        value.set(text)
    }
}

/// Whether the amount that `text` means is within a range.
pub(crate) fn in_range(
    value: &dyn Value,
    range: Option<(&'static str, &'static str)>,
    text: &str,
) -> Result<(), Wrong> {
    let (Some(amount), Some((least, most))) = (value.amount(text), range) else { return Ok(()) };
    let below = value.amount(least).is_some_and(|least| amount < least);
    let above = value.amount(most).is_some_and(|most| amount > most);
    if below || above {
        return Err(Wrong::Range { found: text.to_owned(), least, most });
    }
    Ok(())
}

/// Splits a key into its subsection, which may be empty, and its name.
pub fn split(key: &str) -> (&str, &str) {
    key.rsplit_once('.').unwrap_or(("", key))
}

impl SettingDescription {
    /// The part of the key before the dot; empty outside a subsection.
    pub fn subsection(&self) -> &'static str {
        split(self.key).0
    }

    /// The part of the key after the dot.
    pub fn name(&self) -> &'static str {
        split(self.key).1
    }

    /// The default in words, ready for a sentence.
    pub fn default(&self) -> String {
        match self.preset {
            // a default of signs alone, such as a slash, is quoted: it would look like a mistake
            Preset::Value(default) if !default.contains(char::is_alphanumeric) => {
                format!("{default:?}")
            }
            Preset::Value(default) => default.to_owned(),
            Preset::Items([]) => "none".to_owned(),
            Preset::Items(items) => items.join(", "),
            Preset::Unset(consequence) => consequence.to_owned(),
            Preset::Required => "none, it must be set".to_owned(),
        }
    }

    /// A line that sets the setting to its example.
    pub fn line(&self) -> String {
        format!("{} = {}", self.name(), self.example)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        CgiConfig, ClassConfig, ConfigDraft, FastCgiConfig, ForwardAuth, HandOverConfig,
        ListenerConfig, ProtectConfig, ProxyConfig, RuleConfig, SiteConfig, TcpConfig, parse,
    };
    use forebay_site::rules::{AccessRule, Auth, HeaderRule, Redirect, Rewrite, WorkHandler};

    /// Calls a generic function for every kind of section; lists of a site with their names.
    macro_rules! every_kind {
        ($check:ident) => {
            $check::<crate::Config>("");
            $check::<ListenerConfig>("");
            $check::<SiteConfig>("");
            $check::<ClassConfig>("class");
            $check::<RuleConfig>("rule");
            $check::<TcpConfig>("tcp");
            $check::<ProtectConfig>("protect");
            $check::<<Redirect as Item>::Section>("redirect");
            $check::<<Rewrite as Item>::Section>("rewrite");
            $check::<<HeaderRule as Item>::Section>("header");
            $check::<<Auth as Item>::Section>("auth");
            $check::<<AccessRule as Item>::Section>("access");
            $check::<<WorkHandler as Item>::Section>("work");
            $check::<<ProxyConfig as Item>::Section>("proxy");
            $check::<<FastCgiConfig as Item>::Section>("fastcgi");
            $check::<<HandOverConfig as Item>::Section>("hand_over");
            $check::<<CgiConfig as Item>::Section>("cgi");
            $check::<<ForwardAuth as Item>::Section>("forward_auth");
        };
    }

    #[test]
    fn every_default_and_every_bound_is_accepted() {
        fn check<T: Section>(_: &str) {
            let mut section = T::preset();
            for setting in T::SETTINGS {
                let (least, most) = setting.range.unzip();
                for text in [least, most].into_iter().flatten() {
                    let is_accepted = match (setting.at)(&mut section) {
                        // a table needs the name of a stage
                        value if value.form() == Form::Table => value.put("process", text).is_ok(),
                        _ => setting.set(&mut section, text).is_ok(),
                    };
                    assert!(is_accepted, "{} = {text}", setting.key);
                }
                (setting.at)(&mut section).clear();
                let items = match &setting.preset {
                    Preset::Value(default) => std::slice::from_ref(default),
                    Preset::Items(items) => items,
                    Preset::Unset(_) | Preset::Required => &[],
                };
                for text in items {
                    assert!(setting.set(&mut section, text).is_ok(), "{} = {text}", setting.key);
                }
            }
        }
        every_kind!(check);
    }

    #[test]
    fn keys_are_unique_and_subsections_stand_together() {
        fn check<T: Section>(_: &str) {
            for (at, setting) in T::SETTINGS.iter().enumerate() {
                let same = |other: &Setting<T>| other.key == setting.key;
                assert_eq!(T::SETTINGS.iter().position(same), Some(at), "{}", setting.key);
                let sub = setting.subsection();
                let first = T::SETTINGS.iter().position(|other| other.subsection() == sub);
                let run = &T::SETTINGS[first.unwrap()..=at];
                assert!(run.iter().all(|other| other.subsection() == sub), "{}", setting.key);
            }
        }
        every_kind!(check);
        // settings at the top level share one namespace, so their names differ
        let rows =
            [rows::<crate::Config>(), rows::<ListenerConfig>(), rows::<SiteConfig>()].concat();
        for row in &rows {
            assert_eq!(rows.iter().filter(|other| other.key == row.key).count(), 1, "{}", row.key);
        }
        assert!(ConfigDraft::new().set("site", "a").is_err());
    }

    #[test]
    fn a_meaning_is_made_of_sentences() {
        fn check<T: Section>(_: &str) {
            for setting in T::SETTINGS {
                assert!(setting.meaning.ends_with('.'), "{}", setting.key);
                assert!(!setting.meaning.contains("  "), "{}", setting.key);
            }
        }
        every_kind!(check);
    }

    /// The beginnings of messages about an example that needs another setting beside it.
    const NEEDS_ANOTHER: [&str; 11] = [
        "cannot include ",
        "nobody could connect: set trusted_proxies",
        "there is no class ",
        "means nothing without ",
        "each certificate needs its key",
        "tls.client_ca is missing",
        "clients are asked by a site that shows a certificate itself",
        "an authority makes certificates for names",
        "no [[tcp]] is for connections to this address",
        "no address in listen has the port ",
        "stages on several machines show one another certificates",
    ];

    #[test]
    fn every_example_is_accepted() {
        fn check<T: Section>(list: &str) {
            for row in rows::<T>() {
                let line = format!("{} = {}", row.key, row.example);
                let text = match list {
                    "" => line,
                    // the other keys of a rule may be needed beside it, which is another test's
                    list => format!("[[{list}]]\n{line}"),
                };
                let problems = parse(&text, "/etc/forebay.toml").err().unwrap_or_default();
                let of_the_row = |key: &str| key.ends_with(row.key);
                let is_alone = |wrong: &Wrong| {
                    let wrong = wrong.to_string();
                    !NEEDS_ANOTHER.iter().any(|start| wrong.starts_with(start))
                };
                let wrong = problems.iter().find(|problem| {
                    of_the_row(&problem.key)
                        && problem.place != Some((1, 1))
                        && is_alone(&problem.wrong)
                });
                assert!(wrong.is_none(), "{text}: {}", wrong.unwrap());
            }
        }
        every_kind!(check);
    }

    /// A kind of list that no program is built with.
    struct Lacked;

    impl Item for Lacked {
        type Section = <WorkHandler as Item>::Section;

        const LACKS: Option<&'static str> = Some("work");

        fn new(_: Self::Section) -> Result<Lacked, (&'static str, Wrong)> {
            Ok(Lacked)
        }

        fn section(&self) -> Self::Section {
            Section::blank()
        }
    }

    const REFUSED: &str =
        "f.toml:1:1: work: this program was built without it (the Cargo feature work)";

    #[test]
    fn what_the_program_was_built_without_is_refused() {
        let mut reader = ConfigReader::new("[[work]]\npath = \"/work\"\n", "f.toml");
        let (mut list, path) = (Vec::<Lacked>::new(), Path::default().child("work").item(0));
        list.read(&mut reader, &path, &toml_edit::Table::new());
        let told: Vec<String> = reader.problems().iter().map(ToString::to_string).collect();
        assert!(list.is_empty() && told == [REFUSED], "{told:?}");
    }

    #[test]
    fn the_work_handler_stands_behind_its_feature() {
        let told = parse("[[work]]\npath = \"/work\"\n", "f.toml").err().unwrap_or_default();
        let told: Vec<String> = told.iter().map(ToString::to_string).collect();
        let expected: &[&str] = if cfg!(feature = "work") { &[] } else { &[REFUSED] };
        assert_eq!(told, expected);
    }
}
