//! A configuration before its parts are put together: what the top level says, and the listeners
//! and sites that inherit from it.

use super::listener::DEFAULT_LISTEN;
use super::problem::{Wrong, nearest};
use super::read::Path;
use super::table::{Row, Section, Setting, rows};
use super::value::Written;
use super::{Class, Config, Endpoint, Listener, Rule, Site};

/// The lists of sections at the top level that are not a site's.
pub(super) const SECTIONS: [&str; 4] = ["listener", "site", "class", "rule"];

/// What a file or a command line says.
#[derive(Clone, Debug)]
pub struct Draft {
    /// The settings of the process.
    pub process: Config,
    /// What the top level says about a listener: one of its own if it names an address, and the
    /// defaults of the others.
    pub listener: Listener,
    /// What the top level says about a site: the only one, or the defaults of the others.
    pub site: Site,
    /// The `[[listener]]`s.
    pub listeners: Vec<Listener>,
    /// The `[[site]]`s.
    pub sites: Vec<Site>,
    /// The `[[class]]`es.
    pub classes: Vec<Class>,
    /// The `[[rule]]`s.
    pub rules: Vec<Rule>,
}

impl Default for Draft {
    fn default() -> Draft {
        Draft::new()
    }
}

impl Draft {
    /// Nothing said: the defaults.
    pub fn new() -> Draft {
        Draft {
            process: Config::preset(),
            listener: Listener::preset(),
            site: Site::preset(),
            listeners: Vec::new(),
            sites: Vec::new(),
            classes: Vec::new(),
            rules: Vec::new(),
        }
    }

    /// Sets the top level's `key` to what `text` says. A list takes it as one more item.
    ///
    /// # Errors
    /// What is wrong with key or text; then nothing is set.
    pub fn set(&mut self, key: &str, text: &str) -> Result<(), Wrong> {
        fn set<T: Section>(section: &mut T, key: &str, text: &str) -> Option<Result<(), Wrong>> {
            let find = |setting: &&Setting<T>| setting.key == key;
            T::SETTINGS.iter().find(find).map(|setting| setting.set(section, text))
        }
        set(&mut self.process, key, text)
            .or_else(|| set(&mut self.listener, key, text))
            .or_else(|| set(&mut self.site, key, text))
            .unwrap_or(Err(Wrong::Unknown { near: similar("", key) }))
    }

    /// The listeners there will be, and where they stand.
    pub(super) fn all_listeners(&self) -> Vec<(Path, Listener)> {
        let mut own = self.listener.clone();
        if own.listen.is_empty() && self.listeners.is_empty() {
            own.listen.extend(Endpoint::read(DEFAULT_LISTEN));
        }
        let own = (!own.listen.is_empty()).then_some((Path::default(), own));
        let others = numbered("listener", &self.listeners).map(|(path, l)| (path, l.clone()));
        own.into_iter().chain(others).collect()
    }

    /// The sites there will be, and where they stand.
    pub(super) fn all_sites(&self) -> Vec<(Path, &Site)> {
        if self.sites.is_empty() {
            return vec![(Path::default(), &self.site)];
        }
        numbered("site", &self.sites).collect()
    }

    /// The same, and first what the top level says of all of them, if that is none itself.
    pub(super) fn every_site(&self) -> Vec<(Path, &Site)> {
        let mut sites = self.all_sites();
        if !self.sites.is_empty() {
            sites.insert(0, (Path::default(), &self.site));
        }
        sites
    }

    /// The configuration it comes to, if nothing is wrong with it ([`Draft::problems`]).
    pub fn resolve(self) -> Config {
        let listeners = self.all_listeners().into_iter().map(|(_, listener)| listener).collect();
        let Draft { process, site, sites, classes, rules, .. } = self;
        let log = match &sites[..] {
            [only] => only.log.clone(),
            _ => site.log.clone(),
        };
        let mut config = Config { listeners, classes, rules, log, ..process };
        if sites.is_empty() {
            config.sites.push(site);
        } else {
            config.sites.extend(sites.into_iter().map(|own| own.inherit(&site)));
        }
        config
    }
}

pub(super) fn numbered<'s, T>(
    name: &str,
    sections: &'s [T],
) -> impl Iterator<Item = (Path, &'s T)> {
    let path = Path::default().child(name);
    sections.iter().enumerate().map(move |(index, section)| (path.item(index), section))
}

/// All keys there can be, each below the section it stands in.
fn vocabulary() -> Vec<String> {
    fn add(keys: &mut Vec<String>, section: &str, rows: &[Row]) {
        let dot = if section.is_empty() { "" } else { "." };
        keys.extend(rows.iter().map(|row| format!("{section}{dot}{}", row.key)));
    }
    let (listener, site) = (rows::<Listener>(), rows::<Site>());
    let mut keys = Vec::new();
    add(&mut keys, "", &rows::<Config>());
    add(&mut keys, "", &listener);
    add(&mut keys, "", &site);
    add(&mut keys, "listener", &listener);
    add(&mut keys, "site", &site);
    add(&mut keys, "class", &rows::<Class>());
    add(&mut keys, "rule", &rows::<Rule>());
    let mut blank = Site::blank();
    for list in Site::LISTS {
        let rows = (list.at)(&mut blank).rows();
        add(&mut keys, list.name, &rows);
        add(&mut keys, &format!("site.{}", list.name), &rows);
    }
    keys
}

/// Where the key or section `name` belongs, if that is the top level or a section next to it.
pub(super) fn home(name: &str) -> Option<String> {
    fn has<T: Section>(name: &str) -> bool {
        T::SETTINGS.iter().any(|setting| setting.key == name)
            || T::LISTS.iter().any(|list| list.name == name)
    }
    let is_section = |row: &Row| row.subsection() == name;
    match name {
        "class" | "rule" => Some(format!("a list of sections of its own, [[{name}]]")),
        _ if rows::<Config>().iter().any(is_section) => {
            Some(format!("a section of its own, [{name}]"))
        }
        _ if has::<Config>(name) => Some("the top level, before the first section".to_owned()),
        _ if has::<Listener>(name) => Some("[[listener]], or before the first section".to_owned()),
        _ if has::<Site>(name) => Some("[[site]], or before the first section".to_owned()),
        _ => None,
    }
}

/// The setting or section that was probably meant by `name` in `section`: one of the same section,
/// else one elsewhere.
pub(super) fn similar(section: &str, name: &str) -> Option<String> {
    let keys = vocabulary();
    let last = |key: &str| key.rsplit('.').next().unwrap_or_default().to_owned();
    if let Some(same) = keys.iter().find(|key| key.contains('.') && last(key) == name) {
        return Some(same.clone());
    }
    // what begins below the section: names of settings and of sections within it
    let here = keys.iter().filter_map(|key| {
        let rest = match section {
            "" => Some(key.as_str()),
            _ => key.strip_prefix(section).and_then(|rest| rest.strip_prefix('.')),
        };
        rest.map(|rest| rest.split('.').next().unwrap_or(rest))
    });
    if let Some(near) = nearest(name, here) {
        return Some(near.to_owned());
    }
    let names: Vec<String> = keys.iter().map(|key| last(key)).collect();
    let near = nearest(name, names.iter().map(String::as_str))?;
    keys.iter().find(|key| key.rsplit('.').next() == Some(near)).cloned()
}
