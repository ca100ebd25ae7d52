//! Remarks on patterns for paths that are written as in a URL.

use crate::checks::guarded::guarded;
use crate::problems::problem::{Finding, Remarks, Wrong};
use crate::reading::draft::{ConfigDraft, numbered};
use crate::table::ConfigReader;
use forebay_http::path;
use forebay_site::rules::{GuardedPaths, Pattern};
use std::fmt;

/// A pattern for paths with a percent-encoding.
#[derive(Debug)]
struct EncodedPattern {
    /// The pattern as the text has it.
    found: String,
    /// The pattern that is probably meant.
    decoded: Option<String>,
}

impl Finding for EncodedPattern {}

impl fmt::Display for EncodedPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EncodedPattern { found, decoded } = self;
        write!(
            f,
            "{found:?} fits only what a client has encoded twice: paths are decoded \
             before rules see them"
        )?;
        decoded.iter().try_for_each(|text| write!(f, ", write {text:?}"))
    }
}

impl ConfigDraft {
    /// Remarks on patterns for paths that are written as in a URL.
    pub(crate) fn remark_paths(&self, text: &ConfigReader<'_>, remarks: &mut Remarks) {
        for (at, rule) in numbered("rule", &self.rules) {
            for (index, pattern) in rule.conditions.path.0.iter().enumerate() {
                let at = text.item(&at.child("path"), index);
                remarks.extend(encoded(pattern.as_str()).map(|found| (at, Wrong::said(found))));
            }
        }
        for (at, site) in self.every_site() {
            let links = site.links.iter().enumerate();
            links.for_each(|(index, link)| {
                let at = text.item(&at.child("links"), index);
                remarks.extend(encoded(link.as_str()).map(|found| (at, Wrong::said(found))));
            });
            for (key, scopes) in [
                ("listing", &site.listing.0),
                ("appended", &site.appended.0),
                ("try_files_except", &site.try_files_except),
            ] {
                for (index, scope) in scopes.iter().enumerate() {
                    let at = text.item(&at.child(key), index);
                    remarks.extend(encoded(scope.as_str()).map(|found| (at, Wrong::said(found))));
                }
            }
            for (at, GuardedPaths { except, .. }) in guarded(&at, site) {
                for (index, scope) in except.iter().enumerate() {
                    let at = text.item(&at.child("except"), index);
                    remarks.extend(encoded(scope.as_str()).map(|found| (at, Wrong::said(found))));
                }
            }
            let mut note = |list: &str, index, text: &str| {
                let at = at.child(list).item(index).child("path");
                remarks.extend(encoded(text).map(|found| (at, Wrong::said(found))));
            };
            let access = site.access.iter().map(|rule| &rule.paths.path).enumerate();
            let access = access.filter(|(_, scope)| scope.as_regex().is_none());
            access.for_each(|(index, scope)| note("access", index, scope.as_str()));
            let auth = site.auth.iter().map(|rule| &rule.paths.path).enumerate();
            let auth = auth.filter(|(_, scope)| scope.as_regex().is_none());
            auth.for_each(|(index, scope)| note("auth", index, scope.as_str()));
            let asks = site.authorities.iter().map(|one| &one.paths().path).enumerate();
            let asks = asks.filter(|(_, scope)| scope.as_regex().is_none());
            asks.for_each(|(index, scope)| note("forward_auth", index, scope.as_str()));
            let aliases = site.aliases.iter().enumerate();
            aliases.for_each(|(index, alias)| note("alias", index, alias.path().as_str()));
            let proxies = site.proxies.iter().enumerate();
            proxies.for_each(|(index, proxy)| note("proxy", index, proxy.path().as_str()));
            let fastcgi = site.fastcgi.iter().enumerate();
            fastcgi.for_each(|(index, one)| note("fastcgi", index, one.path().as_str()));
            let hand_overs = site.hand_overs.iter().enumerate();
            hand_overs.for_each(|(index, one)| note("hand_over", index, one.path().as_str()));
            let cgi = site.cgi.iter().enumerate();
            cgi.for_each(|(index, one)| note("cgi", index, one.path().as_str()));
            let mut look = |list: &str, index, pattern: &Pattern| {
                if !pattern.is_regex() {
                    note(list, index, pattern.as_str());
                }
            };
            site.work.iter().enumerate().for_each(|(index, rule)| look("work", index, &rule.path));
            let redirects = site.redirects.iter().enumerate();
            redirects.for_each(|(index, rule)| look("redirect", index, rule.pattern()));
            let rewrites = site.rewrites.iter().enumerate();
            rewrites.for_each(|(index, rule)| look("rewrite", index, rule.pattern()));
            let headers = site.headers.iter().enumerate();
            let headers = headers.filter_map(|(index, rule)| Some((index, rule.path()?)));
            headers.for_each(|(index, pattern)| look("header", index, pattern));
        }
    }
}

/// The remark about a pattern that has `%20` or the like.
fn encoded(pattern: &str) -> Option<EncodedPattern> {
    let is_escape = |three: &[u8]| three[0] == b'%' && three[1..].iter().all(u8::is_ascii_hexdigit);
    pattern.as_bytes().windows(3).any(is_escape).then(|| {
        let decoded = decoded(pattern);
        EncodedPattern { found: pattern.to_owned(), decoded }
    })
}

/// The pattern as rules see the path, decoded, if that means the same in a pattern.
fn decoded(pattern: &str) -> Option<String> {
    let mut path = Vec::new();
    let has_slash = pattern.starts_with('/');
    let raw = if has_slash { pattern.to_owned() } else { format!("/{pattern}") };
    path::normalise(raw.as_bytes(), &mut path).ok()?;
    let text = String::from_utf8(path).ok()?;
    let text = if has_slash { text } else { text.strip_prefix('/')?.to_owned() };
    let is_same = text.matches('*').count() == pattern.matches('*').count();
    (is_same && !text.contains(['?', '#'])).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_found_and_decoded() {
        for (pattern, expected) in [
            ("/a%20b/*", Some(Some("/a b/*"))),
            ("*%c3%A9.html", Some(Some("*é.html"))),
            ("/a%2fb", Some(None)),
            ("/a%2Ab", Some(None)),
            ("/%ff", Some(None)),
            ("/100%", None),
            ("/100%.html", None),
            ("/a b", None),
        ] {
            let found = encoded(pattern).map(|found| found.decoded);
            assert_eq!(found, expected.map(|text| text.map(str::to_owned)), "{pattern}");
        }
    }
}
