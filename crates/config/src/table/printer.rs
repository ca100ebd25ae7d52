//! Writes sections as TOML by their tables.

use super::{Section, Setting, SettingDescription, rows};
use crate::texts::origin::{ConfigOrigin, Shown};
use std::collections::HashSet;

/// The columns of a comment.
const WIDTH: usize = 96;

/// Writes sections as TOML.
#[derive(Debug, Default)]
pub struct Printer {
    pub(crate) text: String,
    /// The path of the list item that is being printed, with a dot at its end.
    prefix: String,
    /// The kinds of list items that have been explained.
    explained: HashSet<String>,
    /// Whether comments with explanations are left out.
    pub(crate) terse: bool,
    /// The texts that the values were read from.
    origin: ConfigOrigin,
    shown: Shown,
}

impl Printer {
    /// A printer for values that were read from `origin`.
    pub(crate) fn of(origin: ConfigOrigin, shown: Shown) -> Printer {
        Printer { origin, shown, ..Printer::default() }
    }

    /// Prints a section of a list with everything in it.
    pub fn item<T: Section>(&mut self, name: &str, mut section: T) {
        let path = format!("{}{name}", self.prefix);
        self.line(&format!("[[{path}]]"));
        let outer = (std::mem::replace(&mut self.prefix, format!("{path}.")), self.terse);
        self.terse = !self.explained.insert(path);
        self.settings(&mut section, "");
        self.subsections(&mut section);
        let terse = self.terse;
        self.lists(section);
        debug_assert!(self.terse == terse);
        (self.prefix, self.terse) = outer;
    }

    pub(crate) fn lists<T: Section>(&mut self, mut section: T) {
        for list in T::LISTS {
            (list.at)(&mut section).print(self, list.name);
        }
    }

    pub(crate) fn subsections<T: Section>(&mut self, section: &mut T) {
        let mut last = "";
        for setting in T::SETTINGS {
            let subsection = setting.subsection();
            if subsection == last {
                continue;
            }
            last = subsection;
            let of_it = || T::SETTINGS.iter().filter(|setting| setting.subsection() == subsection);
            // a subsection without settings is an example, too
            let is_set = of_it().any(|setting| (setting.at)(section).is_set());
            let header = format!("[{}{subsection}]", self.prefix);
            if is_set {
                self.line(&header);
            } else if !self.terse {
                self.line(&format!("# {header}"));
            }
            self.settings(section, subsection);
        }
    }

    /// Prints the settings of a subsection, or of none.
    pub(crate) fn settings<T: Section>(&mut self, section: &mut T, subsection: &str) {
        let rows = rows::<T>();
        for (setting, row) in T::SETTINGS.iter().zip(rows) {
            if setting.subsection() == subsection {
                self.setting(setting, &row, section);
            }
        }
    }

    /// Prints one setting, which is in no subsection.
    pub(crate) fn only<T: Section>(&mut self, section: &mut T, key: &str) {
        for (setting, row) in T::SETTINGS.iter().zip(rows::<T>()) {
            if setting.key == key {
                self.setting(setting, &row, section);
            }
        }
    }

    fn setting<T>(&mut self, setting: &Setting<T>, row: &SettingDescription, section: &mut T) {
        let value = (setting.at)(section);
        if !self.terse {
            let comment = row.comment();
            self.line(comment.trim_end());
        }
        if value.is_set() {
            self.text.push_str(&format!(
                "{} = {}\n",
                row.name(),
                self.origin.written(&value.show(), self.shown)
            ));
        } else if !self.terse {
            self.text.push_str(&format!("# {}\n", row.line()));
        }
    }

    /// Prints a line after an empty one, unless a section or the text begins with it.
    pub(crate) fn line(&mut self, line: &str) {
        let header = self.text.trim_end().rsplit('\n').next().unwrap_or("");
        if !header.is_empty() && (line.starts_with('[') || !header.starts_with('[')) {
            self.text.push('\n');
        }
        self.text.push_str(line);
        self.text.push('\n');
    }
}

impl SettingDescription {
    /// The setting's meaning, default and range as comment lines of TOML.
    pub fn comment(&self) -> String {
        let range = self.range.map(|(least, most)| format!("; from {least} to {most}"));
        let default = format!("Default: {}{}.", self.default(), range.unwrap_or_default());
        let lines = wrap(self.meaning, WIDTH - 2).into_iter().chain(wrap(&default, WIDTH - 2));
        lines.map(|line| format!("# {line}\n")).collect()
    }
}

/// Breaks a text into lines at spaces.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
