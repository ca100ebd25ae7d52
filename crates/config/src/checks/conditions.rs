//! Checks of the conditions of a site's rules: classes that exist, the number of conditions, and what
//! stages know of a request.

use crate::problems::path::Path as At;
use crate::problems::problem::{Finding, Wrong};
use crate::reading::draft::ConfigDraft;
use crate::{FastCgiConfig, ForwardAuth, ProxyConfig, SiteConfig};
use forebay_http::field::is_same;
use forebay_site::rules::{
    HeaderRule, Redirect, RequestConditions, RequestVariable, Rewrite, Template,
};
use forebay_site::settings::MOST_CONDITIONS;
use forebay_upstream::{is_forwarding, is_own};
use std::borrow::Cow;
use std::fmt;

/// A fault in conditions, or a remark about them.
#[derive(Debug)]
enum ConditionFinding {
    /// A site has too many different conditions.
    TooMany {
        /// The number of different conditions in the site.
        count: usize,
    },
    /// A condition on something that stages do not pass on to one another.
    NotBehind {
        /// The reason.
        what: &'static str,
    },
    /// A condition reads the client's field, not the one that a server of `forward_auth` gives.
    ClientsWord {
        /// The name of the field.
        name: String,
    },
}

impl Finding for ConditionFinding {}

impl fmt::Display for ConditionFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConditionFinding::TooMany { count } => write!(
                f,
                "the site has {count} different conditions with those of the top level, and {MOST_CONDITIONS} at \
                 most are looked at; several values of one condition count as one"
            ),
            ConditionFinding::ClientsWord { name } => write!(
                f,
                "{name} is a field that the server of a [[forward_auth]] gives, but here it is what the client \
                 says: only `set` of a [[proxy]], and the application, have what that server has said"
            ),
            ConditionFinding::NotBehind { what } => {
                write!(f, "not with stages: {what}")
            }
        }
    }
}

/// The conditions of a site's rules, each with the list of its rule and the place there.
pub(crate) fn conditions_of(
    site: &SiteConfig,
) -> impl Iterator<Item = (&'static str, usize, Cow<'_, RequestConditions>)> {
    let redirects = site.redirects.iter().map(Redirect::conditions).enumerate();
    let headers = site.headers.iter().map(HeaderRule::conditions).enumerate();
    let redirects = redirects.map(|(index, one)| ("redirect", index, one));
    let headers = headers.map(|(index, one)| ("header", index, one));
    let access =
        site.access.iter().enumerate().map(|(index, one)| ("access", index, &one.conditions));
    let rewrites = site.rewrites.iter().map(Rewrite::conditions).enumerate();
    let rewrites = rewrites.map(|(index, one)| ("rewrite", index, one));
    let lent = redirects.chain(headers).chain(access).chain(rewrites);
    let lent = lent.map(|(list, index, one)| (list, index, Cow::Borrowed(one)));
    let routes = site.proxies.iter().map(ProxyConfig::conditions).enumerate();
    let routes = routes.map(|(index, one)| ("proxy", index, Cow::Owned(one)));
    lent.chain(routes).filter(|(.., one)| !one.is_empty())
}

impl ConfigDraft {
    /// Checks that conditions name classes that exist, and things that are known where the conditions are
    /// evaluated.
    pub(crate) fn check_conditions(&self, wrong: &mut Vec<(At, Wrong)>) {
        let known = self.class_names();
        for (path, site) in self.every_site() {
            for (list, index, one) in conditions_of(site) {
                let at = path.child(list).item(index);
                let at = if list == "proxy" { at.child("when") } else { at };
                let stranger =
                    one.classes.iter().find(|class| !known.iter().any(|one| *one == ***class));
                if let Some(class) = stranger {
                    let (found, known) = (class.to_string(), known.clone());
                    wrong.push((at.child("class"), Wrong::NoClass { found, known }));
                }
                if self.is_isolated() {
                    let unknown = unknown_behind(&one);
                    wrong.extend(unknown.map(|(key, what)| {
                        (at.child(key), Wrong::said(ConditionFinding::NotBehind { what }))
                    }));
                }
            }
        }
        self.check_variables(wrong);
        self.check_their_number(wrong);
    }

    /// Checks that variables are known where the rules are evaluated.
    fn check_variables(&self, wrong: &mut Vec<(At, Wrong)>) {
        for (path, site) in self.every_site().into_iter().filter(|_| self.is_isolated()) {
            for (list, index, key, variable) in variables_of(site) {
                let RequestVariable::Field(name) = variable else { continue };
                if is_lost(&name) {
                    let at = path.child(list).item(index).child(key);
                    let what = NO_FIELD;
                    wrong.push((at, Wrong::said(ConditionFinding::NotBehind { what })));
                }
            }
        }
    }

    /// Remarks on fields that a server of `forward_auth` gives, in conditions that read what the client
    /// says.
    pub(crate) fn remark_copied_fields(&self, remarks: &mut Vec<(At, Wrong)>) {
        for (path, site) in self.every_site() {
            // rules of the top level are for each site
            let authorities = site.authorities.iter().chain(&self.site.authorities);
            let copied: Vec<_> = authorities.flat_map(ForwardAuth::copy).collect();
            let is_copied = |name: &str| copied.iter().any(|copy| is_same(copy.as_str(), name));
            let mut look = |at: At, name: &str| {
                if is_copied(name) {
                    let name = name.to_owned();
                    remarks.push((at, Wrong::said(ConditionFinding::ClientsWord { name })));
                }
            };
            for (list, index, one) in conditions_of(site) {
                let at = path.child(list).item(index);
                let at = if list == "proxy" { at.child("when") } else { at };
                let fields = one.of_policy.header.iter();
                fields.for_each(|field| look(at.child("header"), field.name()));
            }
            for (list, index, key, variable) in variables_of(site) {
                let is_told = matches!(list, "proxy" | "fastcgi");
                if let (RequestVariable::Field(name), false) = (variable, is_told) {
                    look(path.child(list).item(index).child(key), &name);
                }
            }
        }
    }

    /// Checks that a site has no more different conditions than there are bits for.
    fn check_their_number(&self, wrong: &mut Vec<(At, Wrong)>) {
        for (path, site) in self.all_sites() {
            let top = if path.exact.is_empty() { None } else { Some(&self.site) };
            let mut different: Vec<Cow<'_, RequestConditions>> = Vec::new();
            for (.., one) in conditions_of(site).chain(top.into_iter().flat_map(conditions_of)) {
                if !different.contains(&one) {
                    different.push(one);
                }
            }
            if different.len() > MOST_CONDITIONS {
                let count = different.len();
                wrong.push((path, Wrong::said(ConditionFinding::TooMany { count })));
            }
        }
    }
}

/// The variables of a site's rules, each with the list of its rule, the place there, and the key.
fn variables_of(
    site: &SiteConfig,
) -> impl Iterator<Item = (&'static str, usize, &'static str, RequestVariable)> {
    let redirects = site.redirects.iter().enumerate().flat_map(|(index, rule)| {
        rule.to().variables().map(move |one| ("redirect", index, "to", one.clone()))
    });
    let headers = site.headers.iter().enumerate().flat_map(|(index, rule)| {
        rule.variables().map(move |one| ("header", index, "set", one.clone()))
    });
    let proxies = site.proxies.iter().map(ProxyConfig::route).enumerate();
    let proxies = proxies.map(|(index, route)| ("proxy", index, route));
    let scripts = site.fastcgi.iter().map(FastCgiConfig::route).enumerate();
    let scripts = scripts.map(|(index, route)| ("fastcgi", index, route));
    let told = proxies.chain(scripts).flat_map(|(list, index, route)| {
        let variables = route.told.iter().flat_map(Template::variables).cloned();
        variables.map(|one| (list, index, "set", one)).collect::<Vec<_>>()
    });
    redirects.chain(headers).chain(told)
}

const NO_FIELD: &str = "the stages behind the first do not get this field as the client sent it";

/// Whether the stages behind the first do not get this field as the client has sent it.
fn is_lost(name: &str) -> bool {
    !name.eq_ignore_ascii_case("host") && (is_own(name) || is_forwarding(name))
}

/// The part of a condition that stages behind the first do not know of a request, with its key.
fn unknown_behind(conditions: &RequestConditions) -> Option<(&'static str, &'static str)> {
    let RequestConditions { of_policy, .. } = conditions;
    if of_policy.client.iter().any(|client| client.ports().is_some()) {
        return Some(("client", "the stages behind the first do not know the port of a client"));
    }
    let mut fields = of_policy.header.iter();
    fields.any(|field| is_lost(field.name())).then_some(("header", NO_FIELD))
}
