//! Reads a TOML text, and those it includes, into a [`ConfigDraft`], or into all their faults.

use crate::problems::path::Path;
use crate::problems::problem::{Finding, Wrong};
use crate::reading::draft::ConfigDraft;
use crate::reading::stray::{self, SECTIONS};
use crate::table::{ConfigReader, Section};
use crate::texts::source::{ConfigSource, IncludedFile, NoSource};
use crate::values::include::IncludePattern;
use crate::{ClassConfig, ProtectConfig, RuleConfig, SiteConfig, TcpConfig};
use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::{fmt, mem};
use toml_edit::{Document, Table};

/// The most bytes of a configuration file. Ten thousand rules fit.
pub const LONGEST: u64 = 4 * 1024 * 1024;

/// The most bytes of all files of a configuration together.
const LONGEST_TOGETHER: usize = 64 * 1024 * 1024;

/// The number of a text, and the text parsed.
type ParsedText = (usize, Document<Arc<str>>);

/// A fault of `include`, or a remark about it.
#[derive(Debug)]
enum IncludeFinding {
    /// No file fits the pattern.
    Nothing,
    /// The directory or the file that it names cannot be read.
    Unreadable {
        /// The pattern as a path, with stars.
        pattern: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// All files together are too long.
    TooLong {
        /// The number of bytes allowed.
        limit: usize,
    },
}

impl Finding for IncludeFinding {}

impl fmt::Display for IncludeFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IncludeFinding::Nothing => f.write_str("no file fits it, so nothing is included"),
            IncludeFinding::Unreadable { pattern, error } => {
                write!(f, "cannot include {pattern:?}: {error}")?;
                match error.kind() {
                    ErrorKind::PermissionDenied => f.write_str(
                        "; if the server is to read it since it runs, its sandbox may keep it out: restart it, or \
                         name the directory in sandbox.read",
                    ),
                    ErrorKind::NotFound => {
                        f.write_str("; a pattern with a star may name files that are not there yet")
                    }
                    _ => Ok(()),
                }
            }
            IncludeFinding::TooLong { limit } => {
                write!(f, "all files together are longer than {limit} bytes")
            }
        }
    }
}

/// Both names of the table of stages.
const STAGES: &str = "stages";
const ISOLATED: &str = "isolated";

/// The table of stages stands there under its other name, too.
#[derive(Debug)]
struct SameTable {
    other: &'static str,
}

impl Finding for SameTable {}

impl fmt::Display for SameTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "this is the same table as [{}], which is there, too: write all of it into one",
            self.other
        )
    }
}

impl<'t> ConfigReader<'t> {
    /// A reader for a text that names nothing outside of itself; `file` is its name for messages.
    pub fn new(text: &'t str, file: &'t str) -> ConfigReader<'t> {
        ConfigReader::reading(text, file, Box::new(NoSource))
    }

    /// A reader for a text, and for the files, variables and secrets that it names; `file` is its name for
    /// messages.
    pub fn reading(
        text: &'t str,
        file: &'t str,
        source: Box<dyn ConfigSource>,
    ) -> ConfigReader<'t> {
        let site_lists = SiteConfig::LISTS.iter().map(|list| list.name).collect();
        ConfigReader::with(text, file, source, stray::wrong, site_lists)
    }

    /// Reads the whole text, and those that it includes. If a text is not valid TOML, only its first syntax
    /// error is noted.
    pub fn draft(&mut self) -> ConfigDraft {
        let mut draft = ConfigDraft::new();
        let mut parsed: Vec<ParsedText> = self.parse(0).into_iter().collect();
        if let Some((_, main)) = parsed.first() {
            self.top(&mut draft, main.as_table());
            let patterns = mem::take(&mut draft.process.include);
            for number in self.include(&patterns) {
                let Some((number, document)) = self.parse(number) else { continue };
                self.top(&mut draft, document.as_table());
                parsed.push((number, document));
            }
        }
        self.lists(&mut draft, &parsed);
        draft
    }

    /// Parses a text, by its number.
    fn parse(&mut self, number: usize) -> Option<ParsedText> {
        let source = self.texts.0.get(number)?;
        self.start = source.start;
        let text = Arc::clone(&source.text);
        match Document::parse(Arc::clone(&text)) {
            Ok(document) => Some((number, document)),
            Err(error) => {
                self.is_toml = false;
                let span = error.span().unwrap_or(0..0);
                let mut message =
                    error.message().replace('\n', ", ").replace(char::is_control, " ");
                if message == "duplicate key"
                    && let Some(key) = text.get(span.clone())
                {
                    message = format!("duplicate key: {}", key.replace(char::is_control, " "));
                }
                let span = self.here(Some(span));
                self.note("", span, Wrong::Syntax(message));
                None
            }
        }
    }

    /// Adds the texts of the files that the patterns name; returns their numbers.
    fn include(&mut self, patterns: &[IncludePattern]) -> Range<usize> {
        let (key, first) = (Path::default().child("include"), self.texts.0.len());
        let directory = FilePath::new(self.file()).parent().unwrap_or(FilePath::new(""));
        let mut known = HashSet::from([self.file().to_owned()]);
        let mut length = 0;
        for (index, pattern) in patterns.iter().enumerate() {
            let at = key.item(index);
            let pattern = IncludePattern(directory.join(&pattern.0));
            self.origin.directories.push(pattern.directory());
            let files = match self.source.included(&pattern.0) {
                Ok(files) => files,
                Err(error) => {
                    let pattern = pattern.0;
                    self.note_at(&at, Wrong::said(IncludeFinding::Unreadable { pattern, error }));
                    continue;
                }
            };
            if files.is_empty() {
                self.remark(&at, Wrong::said(IncludeFinding::Nothing));
            }
            for IncludedFile { name, bytes, is_link } in files {
                if !known.insert(name.clone()) {
                    continue;
                }
                self.origin.included.push(PathBuf::from(&name));
                self.origin.links.extend(is_link.then(|| PathBuf::from(&name)));
                length += bytes.as_ref().map_or(0, Vec::len);
                if length > LONGEST_TOGETHER {
                    let limit = LONGEST_TOGETHER;
                    self.note_at(&at, Wrong::said(IncludeFinding::TooLong { limit }));
                    return first..self.texts.0.len();
                }
                match included_text(bytes) {
                    Ok(text) => self.texts.add(&name, &text),
                    Err((place, wrong)) => self.note_file(&name, place, wrong),
                }
            }
        }
        first..self.texts.0.len()
    }

    /// Reads the top level, which holds three kinds of section at once, and the lists of two of them.
    fn top(&mut self, draft: &mut ConfigDraft, table: &Table) {
        let root = Path::default();
        for (name, item) in table.iter() {
            let Some(key) = table.key(name) else { continue };
            if [STAGES, ISOLATED].contains(&name) && !self.is_called(name) {
                let (at, other) =
                    (self.here(key.span()), if name == STAGES { ISOLATED } else { STAGES });
                self.note(name, at, Wrong::said(SameTable { other }));
                continue;
            }
            if let (STAGES, Some(inner)) = (name, item.as_table_like()) {
                draft.process.isolated.is_asked = true;
                let path = Path { shown: STAGES.to_owned(), exact: ISOLATED.to_owned() };
                self.table(&mut draft.process, ISOLATED, &path, inner);
                continue;
            }
            let known = (SECTIONS.contains(&name) && self.remember(&root, key, item))
                || self.entry(&mut draft.process, "", &root, key, item)
                || self.entry(&mut draft.listener, "", &root, key, item)
                || self.entry(&mut draft.site, "", &root, key, item);
            if !known {
                self.unknown(&root, key, item);
            }
        }
    }

    /// Reads listeners and sites. They come last, when everything they inherit has been read; the sections
    /// of each list stand in the order of the texts.
    fn lists(&mut self, draft: &mut ConfigDraft, parsed: &[ParsedText]) {
        for (number, document) in parsed {
            self.start = self.texts.0.get(*number).map_or(0, |text| text.start);
            let table = document.as_table();
            self.each(table, "listener", || draft.listener.heir(), &mut draft.listeners);
            self.each(table, "site", || draft.site.heir(), &mut draft.sites);
            self.each(table, "class", ClassConfig::preset, &mut draft.classes);
            self.each(table, "rule", RuleConfig::preset, &mut draft.rules);
            self.each(table, "tcp", TcpConfig::preset, &mut draft.tcp);
            self.each(table, "protect", ProtectConfig::preset, &mut draft.protects);
        }
    }

    /// Reads the sections of a list of the top level. Each keeps its place in the list, even if it has
    /// faults.
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

/// The text of a file, or the fault of the file as a whole, and where it is.
fn included_text(bytes: io::Result<Vec<u8>>) -> Result<String, (Option<(usize, usize)>, Wrong)> {
    let bytes = bytes.map_err(|error| (None, Wrong::Unreadable(error)))?;
    if bytes.len() as u64 > LONGEST {
        return Err((None, Wrong::TooLong { limit: LONGEST }));
    }
    String::from_utf8(bytes).map_err(|error| {
        // the part up to the bad byte is UTF-8
        let good = error.utf8_error().valid_up_to();
        let good = error.as_bytes().get(..good).and_then(|good| std::str::from_utf8(good).ok());
        (Some(ConfigReader::new(good.unwrap_or(""), "").end()), Wrong::NotUtf8)
    })
}
