//! Values of `Cache-Control` that browsers do not understand: `forebay check` warns of them.

use crate::problems::path::Path as At;
use crate::problems::problem::{Finding, Wrong};
use crate::reading::draft::ConfigDraft;
use crate::values::value::{Value, number};
use std::fmt;
use std::time::Duration;

/// A value of `Cache-Control` that browsers do not understand.
#[derive(Debug)]
struct CacheControlRemark {
    /// The value as the text has it.
    found: String,
    /// The value that is probably meant.
    meant: Option<String>,
}

impl Finding for CacheControlRemark {}

impl fmt::Display for CacheControlRemark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CacheControlRemark { found, meant } = self;
        write!(f, "browsers do not understand {found:?}")?;
        match meant {
            Some(meant) => write!(f, ", did you mean {meant:?}?"),
            None => f.write_str("; an age is a number of seconds, such as \"max-age=3600\""),
        }
    }
}

/// Directives without a value, or with one that may be missing (RFC 9111, RFC 8246).
const FLAGS: [&str; 8] = [
    "no-cache",
    "no-store",
    "no-transform",
    "private",
    "public",
    "must-revalidate",
    "proxy-revalidate",
    "immutable",
];

/// Directives with a number of seconds (RFC 9111, RFC 5861).
const AGES: [&str; 4] = ["max-age", "s-maxage", "stale-while-revalidate", "stale-if-error"];

impl ConfigDraft {
    /// Remarks on `cache_control`, and on header rules that set the field.
    pub(crate) fn remark_caching(&self, remarks: &mut Vec<(At, Wrong)>) {
        for (at, site) in self.every_site() {
            let mut look = |at: At, value: &str| {
                if let Some(meant) = slip(value) {
                    remarks.push((
                        at,
                        Wrong::said(CacheControlRemark { found: value.to_owned(), meant }),
                    ));
                }
            };
            let inherits = !at.exact.is_empty() && site.cache_control == self.site.cache_control;
            if let Some(value) = site.cache_control.0.as_deref().filter(|_| !inherits) {
                look(at.child("cache_control"), value);
            }
            for (index, rule) in site.headers.iter().enumerate() {
                let mut fields = rule.set().iter();
                let field =
                    fields.find(|(name, _)| name.as_str().eq_ignore_ascii_case("Cache-Control"));
                if let Some((_, value)) = field {
                    look(at.child("header").item(index).child("set"), value.as_str());
                }
            }
        }
    }
}

/// `None` if the value is good, or has a directive that a cache may understand; otherwise what is probably
/// meant, if that can be guessed.
fn slip(value: &str) -> Option<Option<String>> {
    // a quoted value may have any character
    if value.contains('"') {
        return None;
    }
    let mut text = value.replace(';', ",").replace(':', "=");
    for blank in ["= ", " ="] {
        while text.contains(blank) {
            text = text.replace(blank, "=");
        }
    }
    let mut meant = Vec::new();
    for word in text.split([',', ' ', '\t']).filter(|word| !word.is_empty()) {
        let (name, amount) = match word.split_once('=') {
            Some((name, amount)) => (name, Some(amount)),
            None => (word, None),
        };
        match (known(name), amount) {
            (Some(name), None) if AGES.contains(&name) => return Some(None),
            (Some(name), Some(amount)) if AGES.contains(&name) => match seconds(amount) {
                Some(seconds) => meant.push(format!("{name}={seconds}")),
                None => return Some(None),
            },
            (Some(name), None) => meant.push(name.to_owned()),
            (None, None) => meant.push(format!("max-age={}", seconds(word)?)),
            (Some(_) | None, Some(_)) => return None,
        }
    }
    let said: Vec<_> = value.split(',').map(str::trim).filter(|said| !said.is_empty()).collect();
    let meant = meant.join(", ");
    (!said.join(", ").eq_ignore_ascii_case(&meant)).then_some(Some(meant))
}

/// The directive with this name, in upper or lower case.
fn known(name: &str) -> Option<&'static str> {
    let letters = |name: &str| name.to_ascii_lowercase().replace(['-', '_'], "");
    let mut all = FLAGS.iter().chain(&AGES);
    all.find(|known| letters(known) == letters(name)).copied()
}

/// A number of seconds, from a plain number or from a duration as settings have it.
fn seconds(text: &str) -> Option<u64> {
    number(text).or_else(|| {
        let mut duration = Duration::ZERO;
        duration.set(text).ok().map(|()| duration.as_secs())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_probably_meant_is_said() {
        for (value, expected) in [
            ("1h", "max-age=3600"),
            ("3600", "max-age=3600"),
            ("max-age=1d", "max-age=86400"),
            ("max-age: 60", "max-age=60"),
            ("max-age = 60", "max-age=60"),
            ("maxage=60", "max-age=60"),
            ("public max-age=60", "public, max-age=60"),
            ("public; max-age=60", "public, max-age=60"),
            ("public, 7d, immutable", "public, max-age=604800, immutable"),
            ("nocache", "no-cache"),
            ("NO_STORE", "no-store"),
        ] {
            assert_eq!(slip(value), Some(Some(expected.to_owned())), "{value}");
        }
        for value in ["max-age", "public, max-age=soon", "max-age="] {
            assert_eq!(slip(value), Some(None), "{value}");
        }
    }

    #[test]
    fn what_is_good_or_unknown_is_left_alone() {
        for value in [
            "no-cache",
            "public, max-age=31536000, immutable",
            "Public,Max-Age=60",
            "private=\"set-cookie, x\", no-store",
            "max-age=60, stale-while-revalidate=30",
            "no-cache=set-cookie",
            "must-understand, no-store",
            "community=UCI",
            "public, , max-age=1",
            "",
        ] {
            assert_eq!(slip(value), None, "{value}");
        }
    }
}
