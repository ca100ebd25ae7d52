//! Which class has which ledger, through reloads.

use crate::classes::{ClassSlot, ClassTotals, MOST_CLASSES};
use crate::local::Totals;

/// Which class has which ledger.
#[derive(Clone, Debug, Default)]
pub struct ClassNames(Vec<NamedSlot>);

#[derive(Clone, Debug)]
struct NamedSlot {
    name: String,
    /// What had been counted in this slot when it got this name.
    base: ClassTotals,
    /// The configuration in force has it.
    used: bool,
}

impl ClassNames {
    /// Gives the classes of a new configuration, at most [`MOST_CLASSES`], their ledgers. A class that
    /// was there before keeps its own; one that is gone keeps it until another needs it. `counted` is
    /// what was counted so far.
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

    /// What was counted for each class of the configuration in force, and for those that are gone and
    /// whose ledger no other has needed.
    pub fn rows(&self, counted: &Totals) -> Vec<(String, ClassTotals)> {
        let rows = (0..).zip(&self.0).map(|(at, named)| {
            (named.name.clone(), counted.class(ClassSlot(at)).since(&named.base))
        });
        rows.collect()
    }
}
