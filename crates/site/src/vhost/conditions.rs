//! The conditions of one site's rules: a bit for each of them that is different, and which hold for a request.

use crate::request_context::RequestContext;
use crate::routing::hosts::host_of;
use crate::routing::route::{self, HeldRules};
use crate::rules::{ConditionBits, MOST_HOST_BYTES, RequestConditions};
use crate::settings::{MOST_CONDITIONS, SiteSettings};
use forebay_conn::Request;

/// The conditions of a site.
#[derive(Debug, Default)]
pub(crate) struct SiteConditions {
    /// The different conditions, each for the bit with its number.
    all: Vec<RequestConditions>,
    /// The conditions that each header rule needs, by its number.
    headers: Box<[ConditionBits]>,
    /// The conditions that each redirect needs.
    redirects: Box<[ConditionBits]>,
    /// The conditions that each access rule needs.
    access: Box<[ConditionBits]>,
    /// The conditions that each rewrite needs.
    rewrites: Box<[ConditionBits]>,
    /// The conditions that each route needs.
    routes: Box<[ConditionBits]>,
    needs_host: bool,
}

impl SiteConditions {
    /// The conditions of all rules.
    pub(crate) fn of(settings: &SiteSettings) -> SiteConditions {
        let mut own = SiteConditions::default();
        let headers = settings.headers.iter().map(|rule| own.needed(rule.conditions()));
        let headers = headers.collect();
        let redirects = settings.redirects.iter().map(|rule| own.needed(rule.conditions()));
        let redirects = redirects.collect();
        let access = settings.access.iter().map(|rule| own.needed(&rule.conditions));
        let access = access.collect();
        let rewrites = settings.rewrites.iter().map(|rule| own.needed(rule.conditions()));
        let rewrites = rewrites.collect();
        let routes = settings.routes.iter().map(|route| own.needed(&route.conditions));
        let routes = routes.collect();
        let needs_host = own.all.iter().any(|one| !one.of_policy.site.is_empty());
        SiteConditions { headers, redirects, access, rewrites, routes, needs_host, ..own }
    }

    /// The bits for these conditions. The checks of a configuration let no more conditions through
    /// than there are bits; those beyond would never hold.
    fn needed(&mut self, conditions: &RequestConditions) -> ConditionBits {
        if conditions.is_empty() {
            return ConditionBits::default();
        }
        let known = self.all.iter().position(|one| one == conditions);
        let number = known.unwrap_or_else(|| {
            self.all.push(conditions.clone());
            self.all.len() - 1
        });
        match number < MOST_CONDITIONS {
            true => ConditionBits(1 << number),
            false => ConditionBits(u64::MAX),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The conditions that hold for a request.
    pub(crate) fn outcome(
        &self,
        request: &Request<'_>,
        context: &impl RequestContext,
    ) -> ConditionBits {
        if self.is_empty() {
            return ConditionBits::default();
        }
        let mut room = [0; MOST_HOST_BYTES];
        let host = match host_of(request.head.authority) {
            host if self.needs_host && host.len() <= room.len() => {
                let room = &mut room[..host.len()];
                room.copy_from_slice(host);
                room.make_ascii_lowercase();
                &*room
            }
            _ => b"",
        };
        let numbered = self.all.iter().take(MOST_CONDITIONS).enumerate();
        let held = numbered.filter(|(_, one)| one.hold(host, request, context));
        ConditionBits(held.fold(0, |held, (number, _)| held | 1 << number))
    }

    /// The conditions on which the answers for a path depend, which has these header rules whether
    /// their conditions hold or not.
    pub(crate) fn relevant(
        &self,
        settings: &SiteSettings,
        header_rules: &[u16],
        path: &[u8],
    ) -> ConditionBits {
        if self.is_empty() {
            return ConditionBits::default();
        }
        let mut bits = 0;
        for number in header_rules {
            bits |= self.header(*number).0;
        }
        for (rule, needed) in settings.redirects.iter().zip(&self.redirects) {
            if rule.pattern().matches(path) {
                bits |= needed.0;
                if *needed == ConditionBits::default() {
                    break;
                }
            }
        }
        for (rule, needed) in settings.rewrites.iter().zip(&self.rewrites) {
            if rule.pattern().matches(path) {
                bits |= needed.0;
                if *needed == ConditionBits::default() {
                    break;
                }
            }
        }
        let is_conditional = |needed: &ConditionBits| *needed != ConditionBits::default();
        if self.routes.iter().any(is_conditional) {
            let rewritten: Vec<_> = route::rewrites(settings, path).collect();
            let paths = rewritten.iter().map(Vec::as_slice).chain([path]);
            for (route, needed) in settings.routes.iter().zip(&self.routes) {
                if paths.clone().any(|path| route.path.contains(path)) {
                    bits |= needed.0;
                }
            }
        }
        ConditionBits(bits)
    }

    /// The rewrites and routes that hold where this does.
    pub(crate) fn held(&self, outcome: ConditionBits) -> HeldRules<'_> {
        HeldRules { rewrites: &self.rewrites, routes: &self.routes, outcome }
    }

    /// The conditions that the header rule with this number needs.
    pub(crate) fn header(&self, number: u16) -> ConditionBits {
        self.headers.get(usize::from(number)).copied().unwrap_or_default()
    }

    /// The conditions that the access rule with this number needs.
    #[inline]
    pub(crate) fn access(&self, number: u16) -> ConditionBits {
        self.access.get(usize::from(number)).copied().unwrap_or_default()
    }

    /// The conditions that the redirect in this place needs.
    pub(crate) fn redirect(&self, place: usize) -> ConditionBits {
        self.redirects.get(place).copied().unwrap_or_default()
    }
}
