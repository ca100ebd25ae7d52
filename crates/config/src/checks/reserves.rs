//! Checks of classes that keep places of applications: the classes exist, and are not the last in the
//! order.

use crate::problems::path::Path as At;
use crate::problems::problem::{Finding, Remarks, Wrong};
use crate::reading::draft::ConfigDraft;
use crate::sections::upstreams::ClassReserves;
use std::fmt;

/// A reserve that keeps places from no other class.
#[derive(Debug)]
struct KeptFromNobody {
    /// The class that the places are kept for.
    class: String,
}

impl Finding for KeptFromNobody {}

impl fmt::Display for KeptFromNobody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let KeptFromNobody { class } = self;
        write!(f, "no class comes after {class:?}, so its places are kept from nobody")
    }
}

impl ConfigDraft {
    /// Checks that the classes that keep places exist.
    pub(crate) fn check_reserves(&self, wrong: &mut Vec<(At, Wrong)>) {
        let known = self.class_names();
        for (at, reserve) in self.reserves() {
            let is_known = |class: &&str| known.iter().any(|one| one == class);
            if let Some(class) = reserve.classes().find(|class| !is_known(class)) {
                wrong.push((at, Wrong::NoClass { found: class.to_owned(), known: known.clone() }));
            }
        }
    }

    /// Remarks on reserves for the last class: no class is below it, so the places are kept from no
    /// request.
    pub(crate) fn remark_reserves(&self, remarks: &mut Remarks) {
        let last = self.classes.iter().max_by_key(|class| class.priority.0);
        let last = last.and_then(|class| class.name.as_ref()).map(ToString::to_string);
        let last = last.or_else(|| self.class_names().pop());
        for (at, reserve) in self.reserves() {
            let found = reserve.classes().find(|class| Some(*class) == last.as_deref());
            remarks.extend(found.map(|class| {
                let class = class.to_owned();
                (at, Wrong::said(KeptFromNobody { class }))
            }));
        }
    }

    /// The places that classes keep at applications, with their place in the configuration.
    fn reserves(&self) -> Vec<(At, &ClassReserves)> {
        let mut found = Vec::new();
        for (at, site) in self.every_site() {
            let place = |list: &str, index: usize| at.child(list).item(index).child("reserve");
            let proxies = site.proxies.iter().map(|one| one.reserve()).enumerate();
            let scripts = site.fastcgi.iter().map(|one| one.reserve()).enumerate();
            let hand_overs = site.hand_overs.iter().map(|one| one.reserve()).enumerate();
            found.extend(proxies.map(|(index, one)| (place("proxy", index), one)));
            found.extend(scripts.map(|(index, one)| (place("fastcgi", index), one)));
            found.extend(hand_overs.map(|(index, one)| (place("hand_over", index), one)));
        }
        found.retain(|(_, reserve)| reserve.classes().next().is_some());
        found
    }
}
