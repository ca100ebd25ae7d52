//! The assignment of slots to sites, through reloads.

use crate::local::Totals;
use crate::sites::{FIRST_NAMED, MOST_SITES, SiteSlot, SiteTotals};

/// The names of the slots that belong to no single site.
const UNNAMED: [(SiteSlot, &str); FIRST_NAMED] =
    [(SiteSlot::NONE, "-"), (SiteSlot::OTHER, "other")];

/// The assignment of slots to sites, by name.
#[derive(Clone, Debug, Default)]
pub struct SiteNames(Vec<NamedSite>);

#[derive(Clone, Debug)]
struct NamedSite {
    name: String,
    /// The counts of this slot when it got this name.
    base: SiteTotals,
    /// Whether the configuration in force has the site.
    used: bool,
}

impl SiteNames {
    /// Assigns slots to the sites of a new configuration, in the order of `names`. A site that
    /// existed before keeps its slot; one that is gone keeps it until another site needs it.
    /// `counted` has the counts so far.
    pub fn assign(&mut self, names: &[&str], counted: &Totals) -> Vec<SiteSlot> {
        for named in &mut self.0 {
            named.used = names.contains(&named.name.as_str());
        }
        names.iter().map(|name| self.slot(name, counted)).collect()
    }

    fn slot(&mut self, name: &str, counted: &Totals) -> SiteSlot {
        // a site whose name is that of such a slot is counted there, too
        if let Some((slot, _)) = UNNAMED.iter().find(|(_, unnamed)| *unnamed == name) {
            return *slot;
        }
        if let Some(at) = self.0.iter().position(|named| named.name == name) {
            return SiteSlot::named(at);
        }
        let at = if self.0.len() < MOST_SITES {
            self.0.len()
        } else {
            match self.0.iter().position(|named| !named.used) {
                Some(at) => at,
                None => return SiteSlot::OTHER,
            }
        };
        let slot = SiteSlot::named(at);
        let named = NamedSite { name: name.to_owned(), base: counted.site(slot), used: true };
        match self.0.get_mut(at) {
            Some(before) => *before = named,
            None => self.0.push(named),
        }
        slot
    }

    /// The counts of each site that has a slot, and of the rest.
    pub fn rows(&self, counted: &Totals) -> Vec<(String, SiteTotals)> {
        let unnamed = UNNAMED.map(|(slot, name)| (name.to_owned(), counted.site(slot)));
        let named = self.0.iter().enumerate().map(|(at, named)| {
            (named.name.clone(), counted.site(SiteSlot::named(at)).since(&named.base))
        });
        named.chain(unnamed).collect()
    }
}
