//! Unknown keys: what was probably meant, or where the key belongs.

mod foreign;

use crate::problems::problem::{Finding, Wrong};
use crate::table::{Section, SettingDescription, rows};
use crate::{
    ClassConfig, Config, ListenerConfig, ProtectConfig, RuleConfig, SiteConfig, TcpConfig,
};
use forebay_policy::near::nearest;
use std::fmt;

/// The setting exists, but in another section.
#[derive(Debug)]
struct Misplaced {
    /// The section where it belongs.
    home: String,
}

impl Finding for Misplaced {}

impl fmt::Display for Misplaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Misplaced { home } = self;
        write!(f, "unknown key here, it belongs in {home}")
    }
}

/// The lists of sections at the top level that are not a site's.
pub(crate) const SECTIONS: [&str; 6] = ["listener", "site", "class", "rule", "tcp", "protect"];

/// What is wrong with `name` in `section`. The section is empty at the top level, and otherwise as messages
/// show it, such as `site.redirect`. Only a name that may stand there is suggested.
pub(crate) fn wrong(section: &str, name: &str) -> Wrong {
    if let Some(wrong) = foreign::wrong(section, name) {
        return wrong;
    }
    if let Some(home) = home(name).filter(|_| !section.is_empty()) {
        return Wrong::said(Misplaced { home });
    }
    let here = below(section);
    let all = vocabulary();
    let mut homes: Vec<&str> =
        here.iter().filter(|key| is_deep(key) && last(key) == name).map(String::as_str).collect();
    // a list of a site stands below [[site]], too
    let is_other = |key: &&str| is_deep(key) && last(key) == name && !key.starts_with("site.");
    let others: Vec<&str> = all.iter().map(String::as_str).filter(is_other).collect();
    if let [only] = homes[..]
        && (!section.is_empty() || others.len() == 1)
    {
        return Wrong::Unknown { near: Some(only.to_owned()) };
    }
    let is_here = !homes.is_empty();
    if !is_here || section.is_empty() {
        homes = others;
    }
    if let Some(near) = nearest(name, here.iter().map(|key| last(key))).filter(|_| !is_here) {
        let mut same = here.iter().filter(|key| last(key) == near);
        let near = here.iter().find(|key| *key == near).or_else(|| same.next()).cloned();
        return Wrong::Unknown { near };
    }
    match homes[..] {
        [] => Wrong::Unknown { near: None },
        _ => {
            let section = Some(section).filter(|section| is_here && !section.is_empty());
            let brackets: Vec<_> = homes.iter().map(|key| bracket(section, key)).collect();
            Wrong::said(Misplaced { home: or(&brackets) })
        }
    }
}

/// The section where the setting `key` may stand, in words, if that is not `section`.
pub(crate) fn elsewhere(section: &str, key: &str) -> Option<&'static str> {
    if below(section).iter().any(|other| other == key) {
        return None;
    }
    match key {
        _ if has::<ListenerConfig>(key) => Some("in [[listener]] or before the first section"),
        _ if has::<SiteConfig>(key) => Some("in [[site]] or before the first section"),
        _ => Some("before the first section"),
    }
}

/// The names that may stand in a section; a list of sections is given by its name alone.
pub(crate) fn below(section: &str) -> Vec<String> {
    let all = vocabulary();
    let keys = all.iter().filter_map(|key| match section {
        "" => Some(key.as_str()),
        _ => key.strip_prefix(section)?.strip_prefix('.'),
    });
    let lists = || SECTIONS.into_iter().chain(SiteConfig::LISTS.iter().map(|list| list.name));
    let mut keys: Vec<String> = keys
        .map(|key| match key.split_once('.') {
            Some((first, _)) if lists().any(|list| list == first) => first.to_owned(),
            _ => key.to_owned(),
        })
        .collect();
    // sections, too, may be what is meant
    let sections: Vec<_> =
        keys.iter().filter_map(|key| Some(key.split_once('.')?.0.to_owned())).collect();
    keys.extend(sections);
    keys.sort();
    keys.dedup();
    keys
}

fn is_deep(key: &str) -> bool {
    key.contains('.')
}

fn last(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

/// The section that `key` stands in, in brackets as in a file, within `section` or at the top level.
fn bracket(section: Option<&str>, key: &str) -> String {
    let within = section.map_or(String::new(), |section| format!("{section}."));
    let home = format!("{within}{}", key.rsplit_once('.').map_or("", |(home, _)| home));
    let is_list =
        SECTIONS.contains(&home.as_str()) || SiteConfig::LISTS.iter().any(|list| list.name == home);
    if is_list { format!("[[{home}]]") } else { format!("[{home}]") }
}

/// Joins items as in a sentence.
fn or(items: &[String]) -> String {
    match items {
        [front @ .., last] if !front.is_empty() => format!("{} or {last}", front.join(", ")),
        items => items.concat(),
    }
}

/// All keys that exist, each with the section it stands in.
fn vocabulary() -> Vec<String> {
    fn add(keys: &mut Vec<String>, section: &str, rows: &[SettingDescription]) {
        let dot = if section.is_empty() { "" } else { "." };
        keys.extend(rows.iter().map(|row| format!("{section}{dot}{}", row.key)));
    }
    let (listener, site) = (rows::<ListenerConfig>(), rows::<SiteConfig>());
    let mut keys = Vec::new();
    add(&mut keys, "", &rows::<Config>());
    add(&mut keys, "", &listener);
    add(&mut keys, "", &site);
    add(&mut keys, "listener", &listener);
    add(&mut keys, "site", &site);
    add(&mut keys, "class", &rows::<ClassConfig>());
    add(&mut keys, "rule", &rows::<RuleConfig>());
    add(&mut keys, "tcp", &rows::<TcpConfig>());
    add(&mut keys, "protect", &rows::<ProtectConfig>());
    let mut blank = SiteConfig::blank();
    for list in SiteConfig::LISTS {
        let rows = (list.at)(&mut blank).rows();
        add(&mut keys, list.name, &rows);
        add(&mut keys, &format!("site.{}", list.name), &rows);
    }
    keys
}

fn has<T: Section>(name: &str) -> bool {
    T::SETTINGS.iter().any(|setting| setting.key == name)
        || T::LISTS.iter().any(|list| list.name == name)
}

/// The section where the key or section `name` belongs, if that is the top level or a section next to it.
pub(crate) fn home(name: &str) -> Option<String> {
    let is_section = |row: &SettingDescription| row.subsection() == name;
    match name {
        "class" | "rule" | "tcp" | "protect" => {
            Some(format!("a list of sections of its own, [[{name}]]"))
        }
        _ if rows::<Config>().iter().any(is_section) => {
            Some(format!("a section of its own, [{name}]"))
        }
        _ if has::<Config>(name) => Some("the top level, before the first section".to_owned()),
        _ if has::<ListenerConfig>(name) => {
            Some("[[listener]], or before the first section".to_owned())
        }
        _ if has::<SiteConfig>(name) => Some("[[site]], or before the first section".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The message about a key in a section.
    fn said(section: &str, name: &str) -> String {
        wrong(section, name).to_string()
    }

    #[test]
    fn what_is_suggested_may_stand_there() {
        for (section, name, expected) in [
            ("", "from", "unknown key"),
            ("", "permanent", "unknown key"),
            ("", "open", "unknown key, did you mean \"cache.open_files\"?"),
            ("", "url", "unknown key"),
            ("", "idel", "unknown key, did you mean \"timeouts.idle\"?"),
            ("", "send_rate", "unknown key, did you mean \"limits.send_rate\"?"),
            ("", "max_connections", "unknown key, did you mean \"limits.connections\"?"),
            ("", "lisen", "unknown key, did you mean \"listen\"?"),
            ("", "redirects", "unknown key, did you mean \"redirect\"?"),
            ("", "timeout", "unknown key, did you mean \"timeouts\"?"),
            (
                "",
                "regex",
                "unknown key here, it belongs in [[access]], [[auth]], [[forward_auth]], [[redirect]], [[rewrite]] or [[header]]",
            ),
            (
                "",
                "cookie",
                "unknown key here, it belongs in [identity], [[rule]], [[access]], [[redirect]], [proxy.when], \
                 [[rewrite]] or [[header]]",
            ),
            ("site", "hots", "unknown key, did you mean \"hosts\"?"),
            ("site", "formt", "unknown key, did you mean \"log.format\"?"),
            ("site", "send_rate", "unknown key here, it belongs in [limits]"),
            ("site.redirect", "regexp", "unknown key, did you mean \"regex\"?"),
            ("auth", "regexp", "unknown key, did you mean \"regex\"?"),
            ("work", "regexp", "unknown key"),
            ("timeouts", "send_rate", "unknown key here, it belongs in [limits]"),
            (
                "rule",
                "burst",
                "unknown key here, it belongs in [rule.connections] or [rule.requests]",
            ),
            (
                "rule.in_flight",
                "burst",
                "unknown key here, it belongs in [rule.connections] or [rule.requests]",
            ),
            (
                "log",
                "workers",
                "unknown key here, it belongs in [[listener]], or before the first section",
            ),
        ] {
            assert_eq!(said(section, name), expected, "{section} {name}");
        }
    }

    /// Each key, and each with a typing error, in every section.
    #[test]
    fn nothing_is_suggested_that_would_be_unknown_again() {
        let keys = vocabulary();
        let mut sections: Vec<_> =
            keys.iter().filter_map(|key| Some(key.rsplit_once('.')?.0)).collect();
        sections.push("");
        sections.dedup();
        let words = keys.iter().flat_map(|key| [last(key).to_owned(), format!("{}x", last(key))]);
        for word in words.collect::<std::collections::BTreeSet<_>>() {
            for section in &sections {
                if let Wrong::Unknown { near: Some(near) } = wrong(section, &word) {
                    assert!(below(section).contains(&near), "{section}: {word} for {near}");
                }
            }
        }
    }
}
