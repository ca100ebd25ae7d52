//! The settings of a site: the hosts it answers for, and what it answers with.

use super::table::{List, Preset, Section, Setting};
use super::{FieldValue, Host, Log, SiteName};
use std::path::PathBuf;

/// A virtual host.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// `name`
    pub name: Option<SiteName>,
    /// `hosts`; empty for the default site
    pub hosts: Vec<Host>,
    /// `root`
    pub root: Option<PathBuf>,
    /// `index`
    pub index: Vec<String>,
    /// `hidden`
    pub hidden: bool,
    /// `listing`
    pub listing: bool,
    /// `precompressed`
    pub precompressed: bool,
    /// `cache_control`
    pub cache_control: FieldValue,
    /// `log.*`
    pub log: Log,
}

impl Site {
    /// Its name in logs, metrics and messages: the one it has, else its first host, else
    /// `default`.
    pub fn name(&self) -> &str {
        match (&self.name, self.hosts.first()) {
            (Some(name), _) => name.as_str(),
            (None, Some(host)) => host.as_str(),
            (None, None) => "default",
        }
    }

    /// What a `[[site]]` begins with: the settings of the top level, but neither its names nor its
    /// lists.
    pub(super) fn heir(&self) -> Site {
        Site { name: None, hosts: Vec::new(), ..self.clone() }
    }

    /// Whether it answers some requests without any file, by its own rules or by those of `top`.
    pub(super) fn answers_without_root(&self, _top: &Site) -> bool {
        false
    }

    /// With the rules of the top level beside its own.
    pub(super) fn inherit(self, _top: &Site) -> Site {
        self
    }
}

impl Default for Site {
    /// Every setting at its default; there is no root.
    fn default() -> Site {
        Site::preset()
    }
}

impl Section for Site {
    const SETTINGS: &'static [Setting<Site>] = SETTINGS;
    const LISTS: &'static [List<Site>] = LISTS;

    fn blank() -> Site {
        Site {
            name: None,
            hosts: Vec::new(),
            root: None,
            index: Vec::new(),
            hidden: false,
            listing: false,
            precompressed: false,
            cache_control: FieldValue::default(),
            log: Log::default(),
        }
    }
}

const LISTS: &[List<Site>] = &[];

const SETTINGS: &[Setting<Site>] = &[
    Setting {
        key: "name",
        preset: Preset::Unset("the first host, or \"default\" if there is none"),
        range: None,
        meaning: "The name of the site in logs, metrics and messages.",
        example: "\"shop\"",
        at: |s| &mut s.name,
    },
    Setting {
        key: "hosts",
        preset: Preset::Unset(
            "none, which makes it the default site: it answers for every host \
                               that no other site has",
        ),
        range: None,
        meaning: "Host names the site answers for. \"*.shop.example\" stands for all names below \
                  shop.example. Port and letter case of a request do not matter.",
        example: "[\"shop.example\", \"*.shop.example\"]",
        at: |s| &mut s.hosts,
    },
    Setting {
        key: "root",
        preset: Preset::Unset("none; a site needs one unless it has a redirect or a work rule"),
        range: None,
        meaning: "The directory that is served; relative to the configuration file.",
        example: "\"/srv/www\"",
        at: |s| &mut s.root,
    },
    Setting {
        key: "index",
        preset: Preset::Value("index.html"),
        range: None,
        meaning: "Names of the file that answers for a directory, the first that exists.",
        example: "[\"index.html\", \"index.htm\"]",
        at: |s| &mut s.index,
    },
    Setting {
        key: "hidden",
        preset: Preset::Value("false"),
        range: None,
        meaning: "Whether files and directories whose names begin with a dot are served. \
                  /.well-known always is.",
        example: "true",
        at: |s| &mut s.hidden,
    },
    Setting {
        key: "listing",
        preset: Preset::Value("false"),
        range: None,
        meaning: "Whether a directory without an index file answers with a list of what is in it: a \
                  page, or JSON for clients that ask for that.",
        example: "true",
        at: |s| &mut s.listing,
    },
    Setting {
        key: "precompressed",
        preset: Preset::Value("true"),
        range: None,
        meaning: "Whether FILE.br, FILE.zst and FILE.gz are sent for FILE to clients that take them.",
        example: "false",
        at: |s| &mut s.precompressed,
    },
    Setting {
        key: "cache_control",
        preset: Preset::Value("no-cache"),
        range: None,
        meaning: "Cache-Control of files; \"off\" sends none, and browsers guess how long to keep \
                  them.",
        example: "\"public, max-age=3600\"",
        at: |s| &mut s.cache_control,
    },
    Setting {
        key: "log.access",
        preset: Preset::Value("-"),
        range: None,
        meaning: "Where the access log goes: \"off\", \"-\" for standard output, or a file.",
        example: "\"/var/log/forebay/access.log\"",
        at: |s| &mut s.log.access,
    },
    Setting {
        key: "log.format",
        preset: Preset::Value("combined"),
        range: None,
        meaning: "How its lines are written: common, combined or json.",
        example: "\"json\"",
        at: |s| &mut s.log.format,
    },
];
