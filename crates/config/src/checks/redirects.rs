//! Checks that no redirect leads back to itself, by following redirects as a client would.

use crate::problems::path::Path as At;
use crate::problems::problem::{Finding, Wrong};
use crate::reading::draft::ConfigDraft;
use forebay_http::path;
use forebay_site::rules::{Captures, Redirect, TemplatePart};
use std::collections::HashSet;
use std::fmt;

/// A redirect that leads back to itself, perhaps through others.
#[derive(Debug)]
struct EndlessRedirect {
    /// A path from which the redirect leads back.
    from: String,
}

impl Finding for EndlessRedirect {}

impl fmt::Display for EndlessRedirect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EndlessRedirect { from } = self;
        write!(
            f,
            "whoever asks for {from:?} is redirected for ever; let the pattern of the path leave \
             out where it leads to"
        )
    }
}

/// The number of redirects after which clients give up.
const MOST_STEPS: usize = 20;

impl ConfigDraft {
    /// Checks that no redirect leads back to itself.
    pub(crate) fn check_redirects(&self, wrong: &mut Vec<(At, Wrong)>) {
        let mut told = HashSet::new();
        for (path, site) in self.every_site() {
            let inherited = if path.exact.is_empty() { &[][..] } else { &self.site.redirects };
            let own = site.redirects.len();
            let rules: Vec<_> = site.redirects.iter().chain(inherited).collect();
            for (index, from) in endless(&rules) {
                let at = match index.checked_sub(own) {
                    None => path.child("redirect").item(index),
                    Some(index) => At::default().child("redirect").item(index),
                };
                if told.insert(at.exact.clone()) {
                    wrong.push((at.child("to"), Wrong::said(EndlessRedirect { from })));
                }
            }
        }
    }
}

/// The rules that a client never leaves when it follows them, each with a path from which that is so; one
/// rule of each circle. The paths that are tried are those that patterns with stars fit, and those that
/// rules lead to; the paths that a regular expression fits are not known.
fn endless(rules: &[&Redirect]) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut circles: Vec<Vec<u8>> = Vec::new();
    for rule in rules {
        let fitting = (!rule.pattern().is_regex()).then(|| example(rule.pattern().as_str()));
        let fixed = matches!(rule.to().parts(), [TemplatePart::Text(_)]);
        let target = fixed.then(|| filled(rule, b"/", &Captures::default())).flatten();
        for start in fitting.into_iter().chain(target) {
            let Some(Endless { index, circle }) = follow(rules, start) else { continue };
            let Some(from) = circle.first().filter(|from| !circles.contains(from)) else {
                continue;
            };
            if !found.iter().any(|(known, _)| *known == index) {
                found.push((index, String::from_utf8_lossy(from).into_owned()));
            }
            circles.extend(circle);
        }
    }
    found
}

/// A path that fits a pattern with stars.
fn example(pattern: &str) -> Vec<u8> {
    let text = pattern.replace('*', "x");
    if text.starts_with('/') { text.into_bytes() } else { format!("/{text}").into_bytes() }
}

/// A circle of redirects.
struct Endless {
    /// The rule that is met again, or that is met last before a client gives up.
    index: usize,
    /// The paths of the circle, beginning with that of the rule; of a chain that only grows, its first path.
    circle: Vec<Vec<u8>>,
}

/// Follows the rules from a path.
fn follow(rules: &[&Redirect], start: Vec<u8>) -> Option<Endless> {
    let mut seen: Vec<Vec<u8>> = Vec::new();
    let mut path = start;
    loop {
        let fits = |(index, rule): (usize, &&Redirect)| {
            // a client that does not meet its conditions goes on to the next
            if !rule.conditions().is_empty() {
                return None;
            }
            rule.pattern().captures(&path).map(|captures| (index, filled(rule, &path, &captures)))
        };
        let (index, next) = rules.iter().enumerate().find_map(fits)?;
        if let Some(met) = seen.iter().position(|known| *known == path) {
            return Some(Endless { index, circle: seen.split_off(met) });
        }
        if seen.len() >= MOST_STEPS {
            // the path grows: its beginning says more
            return Some(Endless { index, circle: vec![seen.swap_remove(0)] });
        }
        seen.push(std::mem::replace(&mut path, next?));
    }
}

/// The path of this site that a rule leads to, as the server sees it; `None` if the rule leads elsewhere.
fn filled(rule: &Redirect, path: &[u8], captures: &Captures<'_>) -> Option<Vec<u8>> {
    let mut to = Vec::new();
    for part in rule.to().parts() {
        match part {
            TemplatePart::Text(text) => to.extend_from_slice(text.as_bytes()),
            TemplatePart::Capture(number) => to.extend_from_slice(captures.get(*number)),
            TemplatePart::Path => to.extend_from_slice(path),
            TemplatePart::Query => {}
            TemplatePart::Host | TemplatePart::Of(_) => return None,
        }
    }
    if !to.starts_with(b"/") || to.starts_with(b"//") {
        return None;
    }
    let end = to.iter().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(to.len());
    let mut normal = Vec::new();
    path::normalise(&to[..end], &mut normal).ok()?;
    Some(normal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_site::rules::{Pattern, Template};

    fn found(rules: &[(&str, &str)]) -> Vec<(usize, String)> {
        let rules: Vec<_> = rules
            .iter()
            .map(|(path, to)| {
                let pattern = match path.strip_prefix('~') {
                    Some(regex) => Pattern::regex(regex).unwrap(),
                    None => Pattern::parse(path).unwrap(),
                };
                Redirect::new(pattern, Template::parse(to).unwrap(), 301).unwrap()
            })
            .collect();
        endless(&rules.iter().collect::<Vec<_>>())
    }

    #[test]
    fn what_leads_back_is_found() {
        for (rules, index, from) in [
            (&[("/a", "/a")][..], 0, "/a"),
            (&[("/a", "/a?x=1")], 0, "/a"),
            (&[("/a b", "/a%20b")], 0, "/a b"),
            (&[("/a", "/b"), ("/b", "/a")], 0, "/a"),
            (&[("/*", "/new")], 0, "/new"),
            (&[("*", "/maintenance.html")], 0, "/maintenance.html"),
            (&[("/a/*", "/a/$1")], 0, "/a/x"),
            (&[("/x", "/y"), ("/docs/*", "$path")], 1, "/docs/x"),
            (&[("~^/shop", "/shop/closed")], 0, "/shop/closed"),
        ] {
            assert_eq!(found(rules), [(index, from.to_owned())], "{rules:?}");
        }
        // never the same address twice, and never an end
        assert_eq!(found(&[("/a/*", "/a/b/$1")]), [(0, "/a/x".to_owned())]);
    }

    #[test]
    fn what_comes_to_an_end_is_good() {
        for rules in [
            &[("/a", "/b"), ("/b", "/c")][..],
            &[("/old/*", "/new/$1")],
            &[("/a", "https://other.example/a"), ("/b", "//other.example/b")],
            &[("/*", "https://$host$path")],
            &[("/new", "https://other.example/"), ("/*", "/new")],
            &[("~^/([^/]+)$", "/$1/")],
            &[("/index.html", "/")],
        ] {
            assert_eq!(found(rules), [], "{rules:?}");
        }
    }
}
