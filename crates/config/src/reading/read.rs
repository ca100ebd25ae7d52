//! A TOML text into a [`ConfigDraft`], or everything that is wrong with it.

use crate::problems::path::Path;
use crate::problems::problem::Wrong;
use crate::reading::draft::ConfigDraft;
use crate::reading::stray::{self, SECTIONS};
use crate::table::{ConfigReader, Section};
use crate::{ClassConfig, RuleConfig, SiteConfig};
use toml_edit::{Document, Table};

/// Most bytes of a configuration file. Ten thousand rules fit.
pub const LONGEST: u64 = 4 * 1024 * 1024;

impl<'t> ConfigReader<'t> {
    /// For a text; `file` is its name for messages.
    pub fn new(text: &'t str, file: &'t str) -> ConfigReader<'t> {
        let site_lists = SiteConfig::LISTS.iter().map(|list| list.name).collect();
        ConfigReader::with(text, file, stray::wrong, site_lists)
    }

    /// Reads the whole text. Of a text that is not TOML only the first place where it is not is
    /// noted.
    pub fn draft(&mut self) -> ConfigDraft {
        let mut draft = ConfigDraft::new();
        match Document::parse(self.text) {
            Ok(document) => self.top(&mut draft, document.as_table()),
            Err(error) => {
                self.is_toml = false;
                let span = error.span().unwrap_or(0..0);
                let mut message =
                    error.message().replace('\n', ", ").replace(char::is_control, " ");
                if message == "duplicate key"
                    && let Some(key) = self.text.get(span.clone())
                {
                    message = format!("duplicate key: {}", key.replace(char::is_control, " "));
                }
                self.note("", span, Wrong::Syntax(message));
            }
        }
        draft
    }

    /// The top level: three kinds of section at once, and the lists of two of them. Listeners and
    /// sites come last, when everything they inherit has been read.
    fn top(&mut self, draft: &mut ConfigDraft, table: &Table) {
        let root = Path::default();
        for (name, item) in table.iter() {
            let Some(key) = table.key(name) else { continue };
            let known = (SECTIONS.contains(&name) && self.remember(&root, key, item))
                || self.entry(&mut draft.process, "", &root, key, item)
                || self.entry(&mut draft.listener, "", &root, key, item)
                || self.entry(&mut draft.site, "", &root, key, item);
            if !known {
                self.unknown(&root, key, item);
            }
        }
        self.each(table, "listener", || draft.listener.heir(), &mut draft.listeners);
        self.each(table, "site", || draft.site.heir(), &mut draft.sites);
        self.each(table, "class", ClassConfig::preset, &mut draft.classes);
        self.each(table, "rule", RuleConfig::preset, &mut draft.rules);
    }

    /// Reads the sections of a list of the top level, whatever is wrong with them, so that each keeps
    /// its place in the list.
    fn each<T: Section>(
        &mut self,
        table: &Table,
        name: &str,
        begin: impl Fn() -> T,
        into: &mut Vec<T>,
    ) {
        let Some((key, item)) = table.get_key_value(name) else { return };
        self.sections(&Path::default().child(name), key, item, |reader, path, table| {
            let mut section = begin();
            reader.fill(&mut section, path, table);
            into.push(section);
        });
    }
}
