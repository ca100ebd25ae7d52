//! Settings that name an account of this machine.

use crate::problems::problem::Wrong;
use crate::values::value::Written;

/// A user or group: its name, or its number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Account(String);

impl Account {
    /// The name or number.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Written for Account {
    const EXPECTED: &'static str = "a name such as \"www-data\", or a number in quotes";
    fn read(text: &str) -> Result<Account, Wrong> {
        let is_letter = |b: u8| b.is_ascii_graphic() && !matches!(b, b':' | b'/' | b',');
        if text.is_empty() || text.len() > 256 || !text.bytes().all(is_letter) {
            return Err(Account::misread(text));
        }
        Ok(Account(text.to_owned()))
    }
    fn text(&self) -> String {
        self.0.clone()
    }
}
