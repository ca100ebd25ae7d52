//! Sets of addresses in the machine's firewall, and their contents.

use crate::problems::problem::Wrong;
use crate::values::value::Written;
use forebay_policy::endpoint::Endpoint;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The families of tables that can have sets of addresses.
const FAMILIES: [&str; 5] = ["inet", "ip", "ip6", "netdev", "bridge"];

/// The longest name that nftables has for a table or a set.
const MOST_NAME_BYTES: usize = 255;

/// A set of nftables, by the family of its table, the table and its own name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FirewallSet {
    /// The family: `inet` and so on.
    pub family: String,
    /// The table.
    pub table: String,
    /// The set in it.
    pub name: String,
}

impl fmt::Display for FirewallSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.family, self.table, self.name)
    }
}

/// A set, written as `nft list set` has it.
impl Written for FirewallSet {
    const EXPECTED: &'static str = "a family (inet, ip, ip6, netdev, bridge), a table and a set, such as \"inet filter blocked\"";
    fn read(text: &str) -> Result<FirewallSet, Wrong> {
        let is_name = |name: &&str| {
            let is_letter = |b: u8| b.is_ascii_alphanumeric() || b"_/.-".contains(&b);
            let begins = name.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
            begins && name.len() <= MOST_NAME_BYTES && name.bytes().all(is_letter)
        };
        let words: Vec<&str> = text.split(' ').collect();
        match words[..] {
            [family, table, name]
                if FAMILIES.contains(&family) && is_name(&table) && is_name(&name) =>
            {
                let [family, table, name] = [family, table, name].map(str::to_owned);
                Ok(FirewallSet { family, table, name })
            }
            _ => Err(FirewallSet::misread(text)),
        }
    }
    fn text(&self) -> String {
        self.to_string()
    }
}

/// The contents of sets of the firewall, as far as rules name them; not set by a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AddressSets(BTreeMap<FirewallSet, Arc<[Endpoint]>>);

impl AddressSets {
    /// The contents of the set; `None` if it was not read.
    pub fn get(&self, set: &FirewallSet) -> Option<&Arc<[Endpoint]>> {
        self.0.get(set)
    }

    /// The number of networks in all of them.
    pub fn networks(&self) -> usize {
        self.0.values().map(|held| held.len()).sum()
    }

    /// Stores the contents of a set.
    pub fn insert(&mut self, set: FirewallSet, holds: Arc<[Endpoint]>) {
        self.0.insert(set, holds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_a_family_a_table_and_a_name() {
        for text in ["inet filter blocked", "ip6 f2b-table addr6-set-sshd", "netdev a b.c/d"] {
            assert_eq!(FirewallSet::read(text).unwrap().to_string(), text);
        }
        for text in
            ["", "blocked", "inet filter", "arp a b", "inet a  b", "inet a 1b", "inet a b c"]
        {
            assert!(FirewallSet::read(text).is_err(), "{text}");
        }
    }
}
