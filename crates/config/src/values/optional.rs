//! Settings that may have no value though their type always has one, and settings that are one text
//! or several.

use crate::problems::problem::Wrong;
use crate::problems::quoted::{quote, show_list};
use crate::values::value::{Form, Value, Written};

/// A setting that may have no value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Optional<V>(pub Option<V>);

impl<V: Value + Default> Value for Optional<V> {
    fn form(&self) -> Form {
        V::default().form()
    }
    fn expected(&self) -> &'static str {
        V::default().expected()
    }
    fn choices(&self) -> &'static [&'static str] {
        V::default().choices()
    }
    fn set(&mut self, text: &str) -> Result<(), Wrong> {
        let mut value = V::default();
        value.set(text)?;
        self.0 = Some(value);
        Ok(())
    }
    fn show(&self) -> String {
        self.0.as_ref().map_or(String::new(), V::show)
    }
    fn amount(&self, text: &str) -> Option<u64> {
        V::default().amount(text)
    }
    fn guess(&self, text: &str) -> Option<String> {
        V::default().guess(text)
    }
    fn clear(&mut self) {
        self.0 = None;
    }
    fn is_set(&self) -> bool {
        self.0.is_some()
    }
}

/// A list that may be absent, which differs from an empty one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionalList<W>(pub Option<Vec<W>>);

impl<W> Default for OptionalList<W> {
    fn default() -> OptionalList<W> {
        OptionalList(None)
    }
}

impl<W: Written> Value for OptionalList<W> {
    fn form(&self) -> Form {
        Form::List
    }
    fn expected(&self) -> &'static str {
        W::EXPECTED
    }
    fn set(&mut self, text: &str) -> Result<(), Wrong> {
        self.0.get_or_insert_default().set(text)
    }
    fn show(&self) -> String {
        show_list(self.0.iter().flatten().map(W::text))
    }
    fn guess(&self, text: &str) -> Option<String> {
        W::guess(text)
    }
    /// Makes the list empty, since its items follow.
    fn clear(&mut self) {
        self.0 = Some(Vec::new());
    }
    fn may_be_empty(&self) -> bool {
        W::MAY_BE_EMPTY
    }
    fn is_set(&self) -> bool {
        self.0.is_some()
    }
}

/// A setting that is one text or a list of them, and may have no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OneOrMore<W>(pub Vec<W>);

impl<W> Default for OneOrMore<W> {
    fn default() -> OneOrMore<W> {
        OneOrMore(Vec::new())
    }
}

impl<W: Written> Value for OneOrMore<W> {
    fn form(&self) -> Form {
        Form::TextOrList
    }
    fn expected(&self) -> &'static str {
        W::EXPECTED
    }
    fn set(&mut self, text: &str) -> Result<(), Wrong> {
        self.0.set(text)
    }
    fn show(&self) -> String {
        match &self.0[..] {
            [only] => quote(&only.text()),
            items => show_list(items.iter().map(W::text)),
        }
    }
    fn guess(&self, text: &str) -> Option<String> {
        W::guess(text)
    }
    fn clear(&mut self) {
        self.0.clear();
    }
    /// A condition without values would never hold, so it must have some.
    fn may_be_empty(&self) -> bool {
        false
    }
    fn is_set(&self) -> bool {
        !self.0.is_empty()
    }
}
