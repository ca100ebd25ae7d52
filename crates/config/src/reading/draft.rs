//! A configuration before its parts are put together: the settings of the top level, and the listeners and
//! sites that inherit them.

use crate::problems::path::Path;
use crate::problems::problem::Wrong;
use crate::reading::stray;
use crate::sections::listener::DEFAULT_LISTEN;
use crate::table::{Section, Setting};
use crate::values::value::Written;
use crate::{
    ClassConfig, Config, ListenEndpoint, ListenerConfig, ProtectConfig, RuleConfig, SiteConfig,
    TcpConfig,
};
use forebay_engine::Engine;

/// The settings of a file or a command line, before they are resolved.
#[derive(Clone, Debug)]
pub struct ConfigDraft {
    /// The settings of the process.
    pub process: Config,
    /// The settings of a listener at the top level: a listener of its own if it has an address, and the
    /// defaults of the others.
    pub listener: ListenerConfig,
    /// The settings of a site at the top level: the only site, or the defaults of the others.
    pub site: SiteConfig,
    /// The `[[listener]]`s.
    pub listeners: Vec<ListenerConfig>,
    /// The `[[site]]`s.
    pub sites: Vec<SiteConfig>,
    /// The `[[class]]`es.
    pub classes: Vec<ClassConfig>,
    /// The `[[rule]]`s.
    pub rules: Vec<RuleConfig>,
    /// The `[[tcp]]`s.
    pub tcp: Vec<TcpConfig>,
    /// The `[[protect]]`s.
    pub protects: Vec<ProtectConfig>,
    /// The machine that the file of constants names.
    pub calibrated_on: Option<String>,
}

impl Default for ConfigDraft {
    fn default() -> ConfigDraft {
        ConfigDraft::new()
    }
}

impl ConfigDraft {
    /// A draft without any settings: the defaults.
    pub fn new() -> ConfigDraft {
        ConfigDraft {
            process: Config::preset(),
            listener: ListenerConfig::preset(),
            site: SiteConfig::preset(),
            listeners: Vec::new(),
            sites: Vec::new(),
            classes: Vec::new(),
            rules: Vec::new(),
            tcp: Vec::new(),
            protects: Vec::new(),
            calibrated_on: None,
        }
    }

    /// Sets the top level's `key` to the value of `text`. A list takes it as one more item.
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
            .unwrap_or_else(|| Err(stray::wrong("", key)))
    }

    /// The listeners that there will be, each with its place.
    pub fn all_listeners(&self) -> Vec<(Path, ListenerConfig)> {
        let mut own = self.listener.clone();
        // stages that answer other machines need no clients of their own
        let is_alone = own.listen.is_empty() && self.listeners.is_empty();
        if is_alone && !self.process.isolated.listens() {
            own.listen.extend(ListenEndpoint::read(DEFAULT_LISTEN));
        }
        let own = (!own.listen.is_empty()).then_some((Path::default(), own));
        let others = numbered("listener", &self.listeners).map(|(path, l)| (path, l.clone()));
        own.into_iter().chain(others).collect()
    }

    /// Whether there are stages: a listener has `engine = "isolated"`, or there is `[stages]`.
    pub fn is_isolated(&self) -> bool {
        self.process.isolated.is_asked || self.process.isolated.listens() || self.has_isolated()
    }

    /// Whether a listener has `engine = "isolated"`.
    pub(crate) fn has_isolated(&self) -> bool {
        self.all_listeners().iter().any(|(_, listener)| listener.engine == Engine::Isolated)
    }

    /// The sites that there will be, each with its place.
    pub fn all_sites(&self) -> Vec<(Path, &SiteConfig)> {
        if self.sites.is_empty() {
            return vec![(Path::default(), &self.site)];
        }
        numbered("site", &self.sites).collect()
    }

    /// All sites, and before them the settings of the top level for all sites, if those make no site of
    /// their own.
    pub fn every_site(&self) -> Vec<(Path, &SiteConfig)> {
        let mut sites = self.all_sites();
        if !self.sites.is_empty() {
            sites.insert(0, (Path::default(), &self.site));
        }
        sites
    }

    /// Resolves the draft into a configuration, which is valid if there are no
    /// [problems](ConfigDraft::problems).
    pub fn resolve(self) -> Config {
        let listeners: Vec<_> =
            self.all_listeners().into_iter().map(|(_, listener)| listener).collect();
        let ConfigDraft { mut process, site, sites, classes, rules, tcp, protects, .. } = self;
        process.isolated.is_behind = listeners.is_empty();
        if process.isolated.is_behind {
            // these belong to receive, and there is none
            process.admin.listen = Default::default();
            process.gate = Default::default();
            process.firewall.mode = Default::default();
        }
        let (log, server_header) = (site.log.clone(), site.server_header);
        let mut config =
            Config { listeners, classes, rules, tcp, protects, log, server_header, ..process };
        if sites.is_empty() {
            config.sites.push(site);
        } else {
            config.sites.extend(sites.into_iter().map(|own| own.inherit(&site)));
            // an inherited setting counts for the sites that it fits
            config.sites.iter_mut().for_each(|site| site.tls.acme = site.has_acme());
        }
        config
    }
}

impl Default for Config {
    /// The configuration with every setting at its default, the default listener and one site, which has no
    /// root.
    fn default() -> Config {
        ConfigDraft::new().resolve()
    }
}

/// Each of `sections` with its place in the list `name`.
pub fn numbered<'s, T>(name: &str, sections: &'s [T]) -> impl Iterator<Item = (Path, &'s T)> {
    let path = Path::default().child(name);
    sections.iter().enumerate().map(move |(index, section)| (path.item(index), section))
}
