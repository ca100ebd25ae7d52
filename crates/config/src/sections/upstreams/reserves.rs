//! Places of an application that are kept for classes.

use crate::problems::problem::Wrong;
use crate::problems::quoted::bare_or_quoted;
use crate::values::value::{Form, Value};
use forebay_upstream::settings::ClassReserve;

/// The number of places that each class keeps, as it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassReserves(Vec<(String, u64)>);

impl ClassReserves {
    /// The classes that keep places.
    pub(crate) fn classes(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(class, _)| class.as_str())
    }

    /// The number of places that all classes keep together.
    pub(crate) fn sum(&self) -> u64 {
        self.0.iter().fold(0, |sum, (_, places)| sum.saturating_add(*places))
    }

    /// The reserves as the upstreams take them, which do not know the order of classes yet.
    pub(crate) fn settings(&self) -> Vec<ClassReserve> {
        let each = self.0.iter().map(|(class, places)| ClassReserve {
            class: class.as_str().into(),
            rank: None,
            // the range keeps them small
            places: u32::try_from(*places).unwrap_or(u32::MAX),
        });
        each.collect()
    }
}

impl Value for ClassReserves {
    fn form(&self) -> Form {
        Form::Table
    }
    fn expected(&self) -> &'static str {
        "classes with numbers such as { gold = 2 }"
    }
    fn set(&mut self, text: &str) -> Result<(), Wrong> {
        self.put("", text)
    }
    fn put(&mut self, name: &str, text: &str) -> Result<(), Wrong> {
        let mut places = 0;
        u64::set(&mut places, text)?;
        self.0.push((name.to_owned(), places));
        Ok(())
    }
    fn show(&self) -> String {
        let pair =
            |(class, places): &(String, u64)| format!("{} = {places}", bare_or_quoted(class));
        let pairs: Vec<_> = self.0.iter().map(pair).collect();
        if pairs.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", pairs.join(", ")) }
    }
    fn amount(&self, text: &str) -> Option<u64> {
        0u64.amount(text)
    }
    fn is_set(&self) -> bool {
        !self.0.is_empty()
    }
    fn has_numbers(&self) -> bool {
        true
    }
}
