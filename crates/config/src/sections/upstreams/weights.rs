//! The weights of upstreams, by their addresses.

use crate::problems::problem::Wrong;
use crate::problems::quoted::{bare_or_quoted, quote};
use crate::values::value::{Form, Value, Written};

/// Weights by addresses, as they are written; and in the order of the upstreams once these are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamWeights {
    named: Vec<(String, u64)>,
    in_order: Vec<u16>,
}

impl UpstreamWeights {
    /// Puts the weights in the order of the upstreams at `to`. An upstream that is not named has 1.
    ///
    /// # Errors
    /// A named address is none of these, or the only one.
    pub(crate) fn put_in_order<A: Written>(&mut self, to: &[A]) -> Result<(), Wrong> {
        let mut in_order = vec![1; if self.named.is_empty() { 0 } else { to.len() }];
        for (name, weight) in &self.named {
            let address = A::read(name)?;
            if name.to_ascii_lowercase().starts_with("srv") && name.contains("://") {
                let reason =
                    "the records of a service say what each of its servers gets".to_owned();
                return Err(Wrong::Unfit { found: quote(name), reason });
            }
            let reason = || "to names no such application".to_owned();
            let unknown = || Wrong::Unfit { found: quote(name), reason: reason() };
            let at = to.iter().position(|one| *one == address).ok_or_else(unknown)?;
            // the setting's range keeps weights far below the maximum of u16
            in_order[at] = u16::try_from(*weight).unwrap_or(u16::MAX);
        }
        if in_order.len() == 1 {
            return Err(Wrong::Idle { needs: "several in to" });
        }
        self.in_order = in_order;
        Ok(())
    }

    /// Renames the upstreams, in the same order: relative paths have become absolute.
    pub(crate) fn rename<A: Written>(&mut self, before: &[A], now: &[A]) {
        for (name, _) in &mut self.named {
            // the address was found when the weights were put in order
            let Ok(address) = A::read(name) else { continue };
            let at = before.iter().position(|one| *one == address);
            if let Some(now) = at.and_then(|at| now.get(at)) {
                *name = now.text();
            }
        }
    }

    /// The weights in the order of the upstreams; empty if all are equal.
    pub(crate) fn in_order(&self) -> &[u16] {
        &self.in_order
    }
}

impl Value for UpstreamWeights {
    fn form(&self) -> Form {
        Form::Table
    }
    fn expected(&self) -> &'static str {
        "addresses with numbers such as { \"http://10.0.0.1:9000\" = 9 }"
    }
    fn set(&mut self, text: &str) -> Result<(), Wrong> {
        self.put("", text)
    }
    fn put(&mut self, name: &str, text: &str) -> Result<(), Wrong> {
        let mut weight = 0;
        u64::set(&mut weight, text)?;
        self.named.push((name.to_owned(), weight));
        Ok(())
    }
    fn show(&self) -> String {
        let pair = |(name, weight): &(String, u64)| format!("{} = {weight}", bare_or_quoted(name));
        let pairs: Vec<_> = self.named.iter().map(pair).collect();
        if pairs.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", pairs.join(", ")) }
    }
    fn amount(&self, text: &str) -> Option<u64> {
        0u64.amount(text)
    }
    fn is_set(&self) -> bool {
        !self.named.is_empty()
    }
    fn has_numbers(&self) -> bool {
        true
    }
}
