//! What the machine's firewall does for the server, and the name of a table of nftables.

use crate::FirewallMode;
use crate::problems::problem::Wrong;
use crate::values::value::Written;
use std::time::Duration;

/// What the machine's firewall does for the server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FirewallSettings {
    /// `firewall.mode`
    pub mode: FirewallMode,
    /// `firewall.table`
    pub table: Option<TableName>,
    /// `firewall.clients`
    pub clients: u64,
    /// `firewall.sets_interval`
    pub sets_interval: Duration,
}

impl FirewallSettings {
    /// The name of the table.
    pub fn table(&self) -> &str {
        self.table.as_ref().map_or("forebay", TableName::as_str)
    }
}

/// The name of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableName(String);

impl TableName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Written for TableName {
    const EXPECTED: &'static str =
        "a letter, and up to 30 letters, digits and \"_\" behind it, such as \"forebay\"";
    fn read(text: &str) -> Result<TableName, Wrong> {
        let is_letter = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        let begins = text.bytes().next().is_some_and(|b| b.is_ascii_alphabetic());
        if !begins || text.len() > 31 || !text.bytes().all(is_letter) {
            return Err(TableName::misread(text));
        }
        Ok(TableName(text.to_owned()))
    }
    fn text(&self) -> String {
        self.0.clone()
    }
}
