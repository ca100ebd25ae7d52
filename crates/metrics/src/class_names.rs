//! The assignment of ledgers to classes, through reloads.

use crate::classes::{ClassSlot, ClassTotals, MOST_CLASSES};
use crate::local::Totals;

/// The assignment of ledgers to classes, by name.
#[derive(Clone, Debug, Default)]
pub struct ClassNames(Vec<NamedSlot>);

#[derive(Clone, Debug)]
struct NamedSlot {
    name: String,
    /// The counts of this slot when it got this name.
    base: ClassTotals,
    /// Whether the configuration in force has the class.
    used: bool,
}

impl ClassNames {
    /// Assigns ledgers to the classes of a new configuration, at most [`MOST_CLASSES`]. A class that existed
    /// before keeps its ledger; one that is gone keeps it until another class needs it. `counted` has the
    /// counts so far.
    pub fn assign(&mut self, names: &[&str], counted: &Totals) -> Vec<ClassSlot> {
        for named in &mut self.0 {
            named.used = names.contains(&named.name.as_str());
        }
        names.iter().map(|name| self.slot(name, counted)).collect()
    }

    fn slot(&mut self, name: &str, counted: &Totals) -> ClassSlot {
        let known = |named: &NamedSlot| named.name == name;
        let at = match self.0.iter().position(known) {
            Some(at) => return ClassSlot(at as u8),
            None if self.0.len() < MOST_CLASSES => self.0.len(),
            None => self.0.iter().position(|named| !named.used).unwrap_or(MOST_CLASSES - 1),
        };
        let slot = ClassSlot(at as u8);
        let named = NamedSlot { name: name.to_owned(), base: *counted.class(slot), used: true };
        match self.0.get_mut(at) {
            Some(before) => *before = named,
            None => self.0.push(named),
        }
        slot
    }

    /// The counts of each class of the configuration in force, and of classes that are gone and whose ledger
    /// no other has needed.
    pub fn rows(&self, counted: &Totals) -> Vec<(String, ClassTotals)> {
        let rows = (0..).zip(&self.0).map(|(at, named)| {
            (named.name.clone(), counted.class(ClassSlot(at)).since(&named.base))
        });
        rows.collect()
    }
}
