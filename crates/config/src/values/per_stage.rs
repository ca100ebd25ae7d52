//! Settings that each stage of the engine isolated has for itself, as tables by the names of stages.

use crate::Role;
use crate::problems::problem::Wrong;
use crate::values::value::{Form, Value};

/// A value for each stage that has one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerStage<V> {
    /// The values, by the order of the stages on a request's way.
    values: [Option<V>; 3],
}

impl<V: Copy> PerStage<V> {
    /// The value of a stage.
    pub fn of(&self, role: Role) -> Option<V> {
        self.values[usize::from(role.number())]
    }

    /// Whether no stage has a value.
    pub fn is_empty(&self) -> bool {
        self.values.iter().all(Option::is_none)
    }
}

impl<V: Value + Default + Copy> Value for PerStage<V> {
    fn form(&self) -> Form {
        Form::Table
    }
    fn expected(&self) -> &'static str {
        match V::default().form() {
            Form::Number => "stages with numbers such as { process = 200, respond = 50 }",
            _ => "stages with sizes such as { process = \"256MiB\", respond = \"1GiB\" }",
        }
    }
    fn set(&mut self, text: &str) -> Result<(), Wrong> {
        self.put("", text)
    }
    fn put(&mut self, name: &str, text: &str) -> Result<(), Wrong> {
        const STAGES: &[&str] = &["receive", "process", "respond"];
        let role = Role::ALL.into_iter().find(|role| role.name() == name);
        let choice = || Wrong::Choice { found: name.to_owned(), choices: STAGES };
        let role = role.ok_or_else(choice)?;
        let mut value = V::default();
        value.set(text)?;
        self.values[usize::from(role.number())] = Some(value);
        Ok(())
    }
    fn show(&self) -> String {
        let pair = |role: Role| Some(format!("{role} = {}", self.of(role)?.show()));
        let pairs: Vec<_> = Role::ALL.into_iter().filter_map(pair).collect();
        if pairs.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", pairs.join(", ")) }
    }
    fn amount(&self, text: &str) -> Option<u64> {
        V::default().amount(text)
    }
    fn guess(&self, text: &str) -> Option<String> {
        V::default().guess(text)
    }
    fn is_set(&self) -> bool {
        !self.is_empty()
    }
    fn has_numbers(&self) -> bool {
        V::default().form() == Form::Number
    }
}
