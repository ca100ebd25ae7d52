//! Servers that can take turns: `lab/servers.toml`.

use std::path::Path;
use toml_edit::{Document, Item, TableLike};

/// A server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerEntry {
    /// The server's name.
    pub name: String,
    /// The server's files in `lab/peers`, the one that clients connect to first; none if it is
    /// Forebay.
    pub peers: Vec<String>,
    /// Lines of Forebay's configuration.
    pub lines: String,
    /// A program that has Forebay inside and is started in its place, built where the Laboratory is.
    pub program: String,
    /// Words for its files or lines.
    pub words: Vec<(String, String)>,
    /// The path that a peer answers with 200 when it is ready; empty if it only has to listen.
    pub ready: String,
}

/// A way to set Forebay up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FormEntry {
    /// The form's name.
    pub name: String,
    /// Tags of lines that stay.
    pub tags: Vec<String>,
    /// Words for the lines.
    pub words: Vec<(String, String)>,
}

/// All of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownServers {
    /// Servers.
    pub servers: Vec<ServerEntry>,
    /// Ways to set Forebay up.
    pub forms: Vec<FormEntry>,
}

impl KnownServers {
    /// Reads the file.
    ///
    /// # Errors
    /// The error.
    pub fn read(file: &Path) -> Result<KnownServers, String> {
        let wrong = |what: String| format!("{}: {what}", file.display());
        let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
        let document = Document::parse(text).map_err(|error| wrong(error.to_string()))?;
        let mut known = KnownServers::default();
        let tables = |key: &str| {
            let all = document.get(key).and_then(Item::as_table_like);
            let all = all.into_iter().flat_map(TableLike::iter);
            all.filter_map(|(name, item)| Some((name.to_owned(), item.as_table_like()?)))
                .collect::<Vec<_>>()
        };
        for (name, table) in tables("server") {
            let (peers, lines) = (texts(table, "peer"), texts(table, "lines").concat());
            if peers.is_empty() == lines.is_empty() {
                return Err(wrong(format!("server.{name} needs either peer or lines")));
            }
            let (program, ready) =
                (texts(table, "program").concat(), texts(table, "ready").concat());
            if !program.is_empty() && !peers.is_empty() {
                return Err(wrong(format!(
                    "server.{name}: program goes with lines, not with peer"
                )));
            }
            let words = words(table);
            known.servers.push(ServerEntry { name, peers, lines, program, words, ready });
        }
        for (name, table) in tables("form") {
            let (tags, words) = (texts(table, "tags"), words(table));
            known.forms.push(FormEntry { name, tags, words });
        }
        Ok(known)
    }

    /// The server of a name.
    pub fn server(&self, name: &str) -> Option<&ServerEntry> {
        self.servers.iter().find(|server| server.name == name)
    }

    /// The form of a name; the empty name is that of a server without forms.
    pub fn form(&self, name: &str) -> Option<&FormEntry> {
        self.forms.iter().find(|form| form.name == name)
    }
}

/// The texts of the table `words`.
fn words(table: &dyn TableLike) -> Vec<(String, String)> {
    let words = table.get("words").and_then(Item::as_table_like);
    let words = words.into_iter().flat_map(TableLike::iter);
    words.filter_map(|(word, item)| Some((word.to_owned(), item.as_str()?.to_owned()))).collect()
}

/// A text, or a list of them.
fn texts(table: &dyn TableLike, key: &str) -> Vec<String> {
    let Some(item) = table.get(key) else { return Vec::new() };
    match item.as_array() {
        Some(list) => list.iter().filter_map(|value| value.as_str().map(str::to_owned)).collect(),
        None => item.as_str().map(str::to_owned).into_iter().collect(),
    }
}
