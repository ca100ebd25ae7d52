//! The settings of a site: its hosts, and its answers.

use crate::sections::cgi::CgiConfig;
use crate::sections::fastcgi::FastCgiConfig;
use crate::sections::forward_auth::ForwardAuth;
use crate::sections::hand_over::HandOverConfig;
use crate::sections::handler::HandlerRoute;
use crate::sections::proxy::ProxyConfig;
use crate::table::{Preset, Section, SectionList, Setting};
use crate::values::optional::Optional;
use crate::values::written::{ErrorPages, HttpsStatus, MediaTypes, PathSwitch};
use crate::{ClientCertificates, KeyPairs, LogConfig, Member, OptionalFieldValue, Size};
use forebay_conn::Hsts;
use forebay_http::coding::Coding;
use forebay_site::rules::{
    AccessRule, Alias, Auth, FieldName, HeaderRule, Host, MountPath, Redirect, Rewrite, Route,
    Scope, SiteName, TryFiles, WorkHandler,
};
use forebay_site::{EtagMode, SiteSettings, ToHttps};
use forebay_upstream::settings::{ApplicationSettings, UpstreamAddress, UpstreamTlsSettings};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The field by which browsers learn to ask for a host through TLS only.
pub(crate) const HSTS: &str = "Strict-Transport-Security";

/// The settings of a site's TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteTls {
    /// `tls.certificate`, `tls.key`
    pub pairs: KeyPairs,
    /// `tls.acme`
    pub acme: bool,
    /// `tls.client`, `tls.client_ca`, `tls.client_crl`
    pub clients: ClientCertificates,
    /// `tls.redirect`
    pub redirect: Optional<HttpsStatus>,
    /// `tls.hsts`
    pub hsts: Optional<Duration>,
    /// `tls.hsts_subdomains`
    pub hsts_subdomains: bool,
    /// `tls.hsts_preload`
    pub hsts_preload: bool,
}

impl SiteTls {
    /// The value of `Strict-Transport-Security`, if clients get one.
    fn hsts(&self) -> Option<Hsts> {
        let max_age_s = self.hsts.0?.as_secs();
        Some(Hsts { max_age_s, subdomains: self.hsts_subdomains, preload: self.hsts_preload })
    }
}

/// A virtual host.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteConfig {
    /// `name`
    pub name: Option<SiteName>,
    /// `hosts`; empty for the default site
    pub hosts: Vec<Host>,
    /// `root`
    pub root: Option<PathBuf>,
    /// `links`
    pub links: Vec<MountPath>,
    /// `index`
    pub index: Vec<String>,
    /// `try_files`
    pub try_files: TryFiles,
    /// `try_files_except`
    pub try_files_except: Vec<Scope>,
    /// `hidden`
    pub hidden: bool,
    /// `repeat_idempotent`
    pub repeat_idempotent: bool,
    /// `listing`
    pub listing: PathSwitch,
    /// `appended`
    pub appended: PathSwitch,
    /// `precompressed`
    pub precompressed: bool,
    /// `compress`
    pub compress: Vec<Coding>,
    /// `compress_bytes`
    pub compress_bytes: Size,
    /// `etag`
    pub etag: EtagMode,
    /// `types`
    pub types: MediaTypes,
    /// `cache_control`
    pub cache_control: OptionalFieldValue,
    /// `server_header`
    pub server_header: bool,
    /// `errors`
    pub errors: ErrorPages,
    /// `tls.*`
    pub tls: SiteTls,
    /// `log.*`
    pub log: LogConfig,
    /// `[[alias]]`
    pub aliases: Vec<Alias>,
    /// `[[redirect]]`
    pub redirects: Vec<Redirect>,
    /// `[[rewrite]]`
    pub rewrites: Vec<Rewrite>,
    /// `[[header]]`
    pub headers: Vec<HeaderRule>,
    /// `[[auth]]`
    pub auth: Vec<Auth>,
    /// `[[access]]`
    pub access: Vec<AccessRule>,
    /// `[[work]]`
    pub work: Vec<WorkHandler>,
    /// `[[proxy]]`
    pub proxies: Vec<ProxyConfig>,
    /// `[[fastcgi]]`
    pub fastcgi: Vec<FastCgiConfig>,
    /// `[[hand_over]]`
    pub hand_overs: Vec<HandOverConfig>,
    /// `[[cgi]]`
    pub cgi: Vec<CgiConfig>,
    /// `[[forward_auth]]`
    pub authorities: Vec<ForwardAuth>,
    /// Routes to handlers of the program.
    pub handlers: Vec<HandlerRoute>,
}

impl SiteConfig {
    /// The site's name in logs, metrics and messages: the configured one; without one, a name after the
    /// first host; without hosts, `default`.
    pub fn name(&self) -> SiteName {
        self.name.clone().unwrap_or_else(|| SiteName::of(&self.hosts))
    }

    /// The settings that a `[[site]]` inherits: those of the top level, without its names and lists.
    pub(crate) fn heir(&self) -> SiteConfig {
        SiteConfig {
            name: None,
            hosts: Vec::new(),
            aliases: Vec::new(),
            redirects: Vec::new(),
            rewrites: Vec::new(),
            headers: Vec::new(),
            auth: Vec::new(),
            access: Vec::new(),
            work: Vec::new(),
            proxies: Vec::new(),
            fastcgi: Vec::new(),
            hand_overs: Vec::new(),
            cgi: Vec::new(),
            authorities: Vec::new(),
            handlers: Vec::new(),
            ..self.clone()
        }
    }

    /// The site with the rules of the top level behind its own. Header rules of the top level come first,
    /// because the last header rule that fits decides. An alias or a route of the site replaces one of the
    /// top level for the same path.
    /// the same path.
    pub(crate) fn inherit(mut self, top: &SiteConfig) -> SiteConfig {
        add_others(&mut self.aliases, &top.aliases, |own, top| own.path() == top.path());
        self.redirects.extend_from_slice(&top.redirects);
        self.rewrites.extend_from_slice(&top.rewrites);
        self.headers.splice(0..0, top.headers.iter().cloned());
        self.auth.extend_from_slice(&top.auth);
        self.access.extend_from_slice(&top.access);
        self.authorities.extend_from_slice(&top.authorities);
        self.work.extend_from_slice(&top.work);
        add_others(&mut self.proxies, &top.proxies, |own, top| own.path() == top.path());
        add_others(&mut self.fastcgi, &top.fastcgi, |own, top| own.path() == top.path());
        add_others(&mut self.hand_overs, &top.hand_overs, |own, top| own.path() == top.path());
        add_others(&mut self.cgi, &top.cgi, |own, top| own.path() == top.path());
        add_others(&mut self.handlers, &top.handlers, |own, top| own.path == top.path);
        self
    }

    /// Whether the site answers some requests without any file.
    pub(crate) fn has_answers(&self) -> bool {
        !self.redirects.is_empty()
            || !self.work.is_empty()
            || !self.aliases.is_empty()
            || !self.proxies.is_empty()
            || !self.hand_overs.is_empty()
            || !self.cgi.is_empty()
            || !self.handlers.is_empty()
    }

    /// The routes of the site to applications.
    fn routes(&self) -> Vec<Route> {
        let proxies = self.proxies.iter().map(ProxyConfig::route);
        let fastcgi = self.fastcgi.iter().map(FastCgiConfig::route);
        let hand_overs = self.hand_overs.iter().map(HandOverConfig::route);
        let cgi = self.cgi.iter().map(CgiConfig::route);
        let handlers = self.handlers.iter().map(HandlerRoute::route);
        proxies.chain(fastcgi).chain(hand_overs).chain(cgi).chain(handlers).collect()
    }

    /// The applications behind each of the [routes](SiteSettings::routes), in the same order, and then
    /// behind each of the rules that [ask](SiteSettings::asks). `script_root` turns a directory into the
    /// path that scripts get for it: whole, and without `..`.
    pub fn applications(&self, script_root: fn(&Path) -> PathBuf) -> Vec<ApplicationSettings> {
        let proxies = self.proxies.iter().map(|proxy| ApplicationSettings::Proxy(proxy.settings()));
        let root = self.root.as_deref();
        let fastcgi = self
            .fastcgi
            .iter()
            .map(|one| ApplicationSettings::FastCgi(one.settings(&script_root(one.root(root)))));
        let hand_overs = self.hand_overs.iter();
        let hand_overs = hand_overs.map(|one| ApplicationSettings::HandOver(one.settings()));
        let documents = root.map(script_root).unwrap_or_default();
        let cgi = self.cgi.iter();
        let cgi = cgi.map(|one| ApplicationSettings::FastCgi(one.settings(&documents)));
        let handlers = self.handlers.iter();
        let handlers = handlers.map(|one| ApplicationSettings::Inside(one.settings()));
        let authorities = self.authorities.iter();
        let authorities = authorities.map(|one| ApplicationSettings::Proxy(one.settings()));
        let routes = proxies.chain(fastcgi).chain(hand_overs).chain(cgi).chain(handlers);
        routes.chain(authorities).collect()
    }

    /// The names of the site's [applications](SiteConfig::applications), in the same order: the list of the
    /// route and its path.
    pub fn route_names(&self) -> Vec<String> {
        let routed = |list: &str, path: &Scope| format!("{list} {}", path.as_str());
        let proxies = self.proxies.iter().map(|one| routed("proxy", &one.path()));
        let fastcgi = self.fastcgi.iter().map(|one| routed("fastcgi", &one.path()));
        let hand_overs = self.hand_overs.iter().map(|one| routed("hand_over", &one.path()));
        let cgi = self.cgi.iter().map(|one| routed("cgi", &one.path()));
        let authorities =
            self.authorities.iter().map(|one| routed("forward_auth", &one.paths().path));
        let handlers = self.handlers.iter().map(|one| routed("handler", &one.path));
        let routes = proxies.chain(fastcgi).chain(hand_overs).chain(cgi).chain(handlers);
        routes.chain(authorities).collect()
    }

    /// The settings of TLS to the site's applications: the list of the route, its place there, and the
    /// settings.
    pub fn upstream_tls(&self) -> Vec<(&'static str, usize, UpstreamTlsSettings)> {
        let proxies = self.proxies.iter().enumerate();
        let proxies = proxies.map(|(index, one)| ("proxy", index, one.tls()));
        let authorities = self.authorities.iter().enumerate();
        let authorities = authorities.map(|(index, one)| ("forward_auth", index, one.tls()));
        let all = proxies.chain(authorities);
        all.filter_map(|(list, index, tls)| Some((list, index, *tls?))).collect()
    }

    /// Whether the site has applications whose names must be looked up.
    pub fn names_upstreams(&self) -> bool {
        let proxies = self.proxies.iter().flat_map(ProxyConfig::to).flat_map(|(_, to)| to);
        let proxies = proxies.map(|to| &to.0.address);
        let fastcgi = self.fastcgi.iter().flat_map(FastCgiConfig::to).flat_map(|(_, to)| to);
        let fastcgi = fastcgi.map(|to| &to.0);
        let authorities = self.authorities.iter().flat_map(ForwardAuth::to).map(|to| &to.0.address);
        proxies.chain(fastcgi).chain(authorities).any(UpstreamAddress::is_looked_up)
    }

    /// The directories beneath paths: those of aliases, and the targets of links that may leave the root.
    pub fn mounts(&self) -> impl Iterator<Item = Alias> {
        self.aliases.iter().cloned().chain(self.linked())
    }

    /// The targets of links that may leave the root.
    fn linked(&self) -> impl Iterator<Item = Alias> {
        let below = |link: &MountPath| {
            let root = self.root.as_deref()?;
            Some(Alias::new(link.clone(), link.below(root)))
        };
        self.links.iter().filter_map(below)
    }

    /// Whether one of the site's header rules decides about this field.
    pub(crate) fn has_rule_for(&self, field: &str) -> bool {
        let is_it = |name: &FieldName| name.as_str().eq_ignore_ascii_case(field);
        let sets = |rule: &HeaderRule| rule.set().iter().any(|(name, _)| is_it(name));
        self.headers.iter().any(|rule| sets(rule) || rule.remove().iter().any(is_it))
    }

    /// The settings as the site takes them, where TLS is spoken at this port.
    pub fn settings(&self, tls_port: Option<u16>) -> SiteSettings {
        let to_https = self.tls.redirect.0.zip(tls_port);
        let to_https = to_https.map(|(HttpsStatus(status), port)| ToHttps { status, port });
        let hsts = self.tls.hsts().filter(|_| !self.has_rule_for(HSTS));
        SiteSettings {
            name: self.name(),
            hosts: self.hosts.clone(),
            root: self.root.clone(),
            aliases: self.aliases.clone(),
            links: self.linked().collect(),
            index: self.index.clone(),
            hidden: self.hidden,
            precompressed: self.precompressed,
            compress: self.compress.clone(),
            compress_bytes: self.compress_bytes.0,
            etag: self.etag,
            types: self.types.0.clone(),
            listing: self.listing.0.clone(),
            appended: self.appended.0.clone(),
            hsts,
            to_https,
            cache_control: self.cache_control.0.clone(),
            server_header: self.server_header,
            try_files: self.try_files.clone(),
            try_files_except: self.try_files_except.clone(),
            errors: self.errors.0.clone(),
            redirects: self.redirects.clone(),
            rewrites: self.rewrites.clone(),
            headers: self.headers.clone(),
            auth: self.auth.clone(),
            access: self.access.clone(),
            work: self.work.clone(),
            asks: self.authorities.iter().map(|one| one.paths().clone()).collect(),
            internal: self.routes().into_iter().flat_map(|route| route.sends).collect(),
            routes: self.routes(),
        }
    }
}

/// Adds items of the top level to a site's, for paths that the site has no item for.
fn add_others<T: Clone>(own: &mut Vec<T>, top: &[T], is_same_path: impl Fn(&T, &T) -> bool) {
    let is_other = |item: &&T| !own.iter().any(|own| is_same_path(own, item));
    let others: Vec<T> = top.iter().filter(is_other).cloned().collect();
    own.extend(others);
}

impl Default for SiteConfig {
    /// Every setting at its default, without a root.
    fn default() -> SiteConfig {
        SiteConfig::preset()
    }
}

impl Section for SiteConfig {
    const SETTINGS: &'static [Setting<SiteConfig>] = SETTINGS;
    const LISTS: &'static [SectionList<SiteConfig>] = LISTS;

    fn blank() -> SiteConfig {
        SiteConfig {
            name: None,
            hosts: Vec::new(),
            root: None,
            links: Vec::new(),
            index: Vec::new(),
            try_files: TryFiles::default(),
            try_files_except: Vec::new(),
            hidden: false,
            repeat_idempotent: false,
            listing: PathSwitch::default(),
            appended: PathSwitch::default(),
            precompressed: false,
            compress: Vec::new(),
            compress_bytes: Size(0),
            etag: EtagMode::default(),
            types: MediaTypes::default(),
            cache_control: OptionalFieldValue::default(),
            server_header: false,
            errors: ErrorPages::default(),
            tls: SiteTls::default(),
            log: LogConfig::default(),
            aliases: Vec::new(),
            redirects: Vec::new(),
            rewrites: Vec::new(),
            headers: Vec::new(),
            auth: Vec::new(),
            access: Vec::new(),
            work: Vec::new(),
            proxies: Vec::new(),
            fastcgi: Vec::new(),
            hand_overs: Vec::new(),
            cgi: Vec::new(),
            authorities: Vec::new(),
            handlers: Vec::new(),
        }
    }
}

const LISTS: &[SectionList<SiteConfig>] = &[
    SectionList {
        name: "alias",
        meaning: "Serves another directory beneath a path, or a file at one. The longest path that fits \
                  decides, before the root; all other rules go by the path that is asked for.",
        at: |s| &mut s.aliases,
    },
    SectionList {
        name: "access",
        meaning: "Admits clients by their address. Every rule whose path fits must admit a client; \
                  others get 403.",
        at: |s| &mut s.access,
    },
    SectionList {
        name: "auth",
        meaning: "Asks for a name and a password (HTTP basic authentication). The first rule whose \
                  path fits decides. Without TLS in front, the password can be read on the way.",
        at: |s| &mut s.auth,
    },
    SectionList {
        name: "forward_auth",
        meaning: "Asks another server whether a request may pass, whatever answers it: a status of 2xx lets \
                  it through; 401, 403 and redirects are the client's answer; anything else is 502. It is \
                  asked after access and auth, for each request.",
        at: |s| &mut s.authorities,
    },
    SectionList {
        name: "redirect",
        meaning: "Sends clients to another address. The first rule whose path fits decides.",
        at: |s| &mut s.redirects,
    },
    SectionList {
        name: "proxy",
        meaning: "Passes requests on to an application that speaks HTTP, and its answers back. All rules \
                  come first: access, auth, redirect, rewrite; header rules change its answers.",
        at: |s| &mut s.proxies,
    },
    SectionList {
        name: "fastcgi",
        meaning: "Has files run by an application that speaks FastCGI, such as php-fpm. The site needs the \
                  root in which they are. All rules come first, and hold for the script whichever way it is \
                  reached.",
        at: |s| &mut s.fastcgi,
    },
    SectionList {
        name: "hand_over",
        meaning: "Gives requests of HTTP/1 without TLS to another program of this machine, with the sockets of \
                  their clients: it reads and answers them itself, and the connection comes back. All rules come \
                  first, but those that change answers do nothing here.",
        at: |s| &mut s.hand_overs,
    },
    SectionList {
        name: "cgi",
        meaning: "Has a program run for each request (CGI, RFC 3875), by a process beside the server that does \
                  nothing else. All rules come first.",
        at: |s| &mut s.cgi,
    },
    SectionList {
        name: "work",
        meaning: "A handler that takes CPU time and memory, for tests and demonstrations. A program that was \
                  built without the Cargo feature work refuses it.",
        at: |s| &mut s.work,
    },
    SectionList {
        name: "rewrite",
        meaning: "Answers with the file of another path; the client does not see it. The first rule \
                  whose path fits decides, once.",
        at: |s| &mut s.rewrites,
    },
    SectionList {
        name: "header",
        meaning: "Changes the fields of answers, errors and redirects included; but an error never says \
                  that it may be kept for long (max-age, public). All rules that fit \
                  apply, in order.",
        at: |s| &mut s.headers,
    },
];

const SETTINGS: &[Setting<SiteConfig>] = &[
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
        preset: Preset::Unset(
            "none; a site needs one unless it has a redirect, an alias, a proxy or a work rule",
        ),
        range: None,
        meaning: "The directory that is served; relative to the configuration file.",
        example: "\"/srv/www\"",
        at: |s| &mut s.root,
    },
    Setting {
        key: "links",
        preset: Preset::Items(&[]),
        range: None,
        meaning: "Paths of symbolic links to directories that may lead out of the root, or are \
                  absolute. Every other link that leads out is answered with 404. A link must be \
                  there at the start; where it leads may change.",
        example: "[\"/media\"]",
        at: |s| &mut s.links,
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
        key: "try_files",
        preset: Preset::Items(&[]),
        range: None,
        meaning: "Paths at which a file is looked for instead, the first that exists: \"$path\" is \
                  the path asked for, \"$path/\" the directory, \"/index.html\" a fixed file. A last \
                  \"=404\" is a status. Empty: only the path itself.",
        example: "[\"$path\", \"/index.html\"]",
        at: |s| &mut s.try_files,
    },
    Setting {
        key: "try_files_except",
        preset: Preset::Items(&[]),
        range: None,
        meaning: "Paths that try_files is not for: only the path itself answers, or 404. A path without a \
                  star is meant with all below it, as in [[access]].",
        example: "[\"/assets\", \"*.js\"]",
        at: |s| &mut s.try_files_except,
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
        key: "repeat_idempotent",
        preset: Preset::Value("false"),
        range: None,
        meaning: "With the engine isolated: whether a request with PUT or DELETE may be sent to another process \
                  where it is not known whether it has run. Only for applications in which it does nothing more \
                  the second time.",
        example: "true",
        at: |s| &mut s.repeat_idempotent,
    },
    Setting {
        key: "listing",
        preset: Preset::Value("false"),
        range: None,
        meaning: "Whether a directory without an index file answers with a list of what is in it: a \
                  page, or JSON for clients that ask for that. A list of paths is for those directories \
                  and all below them.",
        example: "[\"/pub\"]",
        at: |s| &mut s.listing,
    },
    Setting {
        key: "appended",
        preset: Preset::Value("false"),
        range: None,
        meaning: "Whether files only grow, as logs do. Then what the head of an answer has promised is sent whole, \
                  though the file grows meanwhile; what is added is for the next request. Without it a file that \
                  changes while it is sent from the disk (above cache.file_bytes) ends its connection. A list of \
                  paths is for those files and directories and all below them. A file there that is written over \
                  in place may be sent as a mixture; one that becomes shorter ends its connection still.",
        example: "[\"/logs\"]",
        at: |s| &mut s.appended,
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
        key: "compress",
        preset: Preset::Items(&["br", "zstd", "gzip"]),
        range: None,
        meaning: "Codings that text and other compressible files are sent in to clients that take \
                  them, compressed when first asked for; and answers of applications, unless their route says \
                  otherwise. Empty: none.",
        example: "[\"gzip\"]",
        at: |s| &mut s.compress,
    },
    Setting {
        key: "compress_bytes",
        preset: Preset::Value("4MiB"),
        range: Some(("1KiB", "64MiB")),
        meaning: "The largest file or list that is compressed when it is asked for; larger ones are \
                  sent as they are, which forebay_uncompressed_total counts. At most a sixteenth of \
                  cache.bytes counts, because what is compressed is kept there; cache.file_bytes does \
                  not matter. 4 MiB of text take a helper about 0.2 s, once.",
        example: "\"16MiB\"",
        at: |s| &mut s.compress_bytes,
    },
    Setting {
        key: "etag",
        preset: Preset::Value("auto"),
        range: None,
        meaning: "What the tags of files (ETag) are made of. \"auto\": of their bytes up to cache.file_bytes, \
                  and of size, time of modification and time of change above. \"content\": of their bytes, \
                  however many; a larger file is read once, when it is first asked for, and its client waits \
                  for that. Several machines with the same files have the same tags then. \"stat\": of size \
                  and times, so that no file is read for it. \"weak\": the same as weak tags, which are good \
                  for 304 and for no part of a file.",
        example: "\"content\"",
        at: |s| &mut s.etag,
    },
    Setting {
        key: "types",
        preset: Preset::Unset("the types that Forebay knows, and application/octet-stream"),
        range: None,
        meaning: "Media types of files by the ending of their names, instead of the known ones. .ts, \
                  .mts, .cts and .tsx are text, as programs in TypeScript are; where they are films, \
                  say ts = \"video/mp2t\".",
        example: "{ ts = \"video/mp2t\", wat = \"text/plain\" }",
        at: |s| &mut s.types,
    },
    Setting {
        key: "server_header",
        preset: Preset::Value("true"),
        range: None,
        meaning: "Whether answers say `Server: Forebay`. What the top level says holds for requests that belong to no \
                  site, too.",
        example: "false",
        at: |s| &mut s.server_header,
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
        key: "errors",
        preset: Preset::Unset("short pages of Forebay's own"),
        range: None,
        meaning: "Files of the site that stand for its errors, by status.",
        example: "{ 404 = \"/404.html\", 500 = \"/sorry.html\" }",
        at: |s| &mut s.errors,
    },
    Setting {
        key: "tls.certificate",
        preset: Preset::Items(&[]),
        range: None,
        meaning: "Files with the certificates of the site in PEM, each the server's own first and then \
                  those between it and an authority that clients trust. One for each kind of key: the \
                  first that a client can verify is used. They answer clients that ask for the hosts of \
                  the site or for a name in the certificate; those of the default site answer all \
                  others. \"forebay reload\" takes over changed files, or keeps the old ones and says why.",
        example: "[\"/etc/letsencrypt/live/shop.example/fullchain.pem\"]",
        at: |s| &mut s.tls.pairs.certificates,
    },
    Setting {
        key: "tls.key",
        preset: Preset::Items(&[]),
        range: None,
        meaning: "Files with the private keys of these certificates, in the same order: PKCS#8, PKCS#1 or \
                  SEC1 in PEM, not encrypted.",
        example: "[\"/etc/letsencrypt/live/shop.example/privkey.pem\"]",
        at: |s| &mut s.tls.pairs.keys,
    },
    Setting {
        key: "tls.acme",
        preset: Preset::Value("false"),
        range: None,
        meaning: "Whether a certificate for the hosts of the site is got by ACME, and replaced in time, if \
                  it names none in tls.certificate. [acme] says from whom. Hosts with a star are not \
                  offered.",
        example: "true",
        at: |s| &mut s.tls.acme,
    },
    Setting {
        key: "tls.client",
        preset: Preset::Value("off"),
        range: None,
        meaning: "Whether clients are asked for a certificate that one of tls.client_ca has signed: off, \
                  optional (they may come without), or required. Requests without TLS are answered with \
                  403 where it is required; those that come through a connection of a site that asks for \
                  something else, with 421.",
        example: "\"required\"",
        at: |s| &mut s.tls.clients.asked,
    },
    Setting {
        key: "tls.client_ca",
        preset: Preset::Items(&[]),
        range: None,
        meaning: "Files with the certificates of authorities, in PEM: clients are taken whose certificates \
                  they have signed, for the use by clients. They are taken over when they change, as \
                  tls.certificate is.",
        example: "[\"/etc/forebay/clients-ca.pem\"]",
        at: |s| &mut s.tls.clients.authorities,
    },
    Setting {
        key: "tls.client_crl",
        preset: Preset::Items(&[]),
        range: None,
        meaning: "Files with lists of the certificates that these authorities have revoked, in PEM. If \
                  there is one, there must be one of each authority between a client and tls.client_ca; \
                  clients of an authority whose list is missing or has expired are refused. They are \
                  taken over when they change.",
        example: "[\"/etc/forebay/clients-crl.pem\"]",
        at: |s| &mut s.tls.clients.revoked,
    },
    Setting {
        key: "tls.redirect",
        preset: Preset::Unset("off"),
        range: None,
        meaning: "Sends clients that come without TLS to the same address with https, with this status: \
                  308, or 301, after which some clients turn a POST into a GET. What is beneath \
                  /.well-known/acme-challenge/ is served as it is, for authorities that make \
                  certificates. X-Forwarded-Proto of trusted_proxies says how their clients have come; \
                  those of a proxy that speaks TLS and does not say so are sent round for ever.",
        example: "308",
        at: |s| &mut s.tls.redirect,
    },
    Setting {
        key: "tls.hsts",
        preset: Preset::Unset("off"),
        range: Some(("0s", "3650d")),
        meaning: "Tells clients that come through TLS, to this server or as X-Forwarded-Proto of \
                  trusted_proxies says, not to come without it for this long \
                  (Strict-Transport-Security): nobody can lead them to plain HTTP, and no warning about \
                  a certificate can be clicked away. Begin with \"1h\"; \"0s\" takes it back. A header \
                  rule about this field stands for it.",
        example: "\"365d\"",
        at: |s| &mut s.tls.hsts,
    },
    Setting {
        key: "tls.hsts_subdomains",
        preset: Preset::Value("false"),
        range: None,
        meaning: "Whether that holds for all hosts below this one, too (includeSubDomains).",
        example: "true",
        at: |s| &mut s.tls.hsts_subdomains,
    },
    Setting {
        key: "tls.hsts_preload",
        preset: Preset::Value("false"),
        range: None,
        meaning: "Whether browsers may ship with it (preload), which is hard to take back: see \
                  https://hstspreload.org.",
        example: "true",
        at: |s| &mut s.tls.hsts_preload,
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
    Setting {
        key: "log.if",
        preset: Preset::Items(&[]),
        range: None,
        meaning: "Which requests have a line: all, or those for which these hold. Of several about the \
                  status, the class or the site one is enough, and none with != may be wrong; a status is \
                  404, 4xx, 400-499, or none for a request without an answer. There are no other signs.",
        example: "[\"status=4xx\", \"status=5xx\"]",
        at: |s| &mut s.log.conditions,
    },
    Setting {
        key: "log.sample",
        preset: Preset::Value("1"),
        range: Some(("1", "1000000")),
        meaning: "Of the requests that would have a line, one in this many has it, drawn at random.",
        example: "100",
        at: |s| &mut s.log.sample,
    },
    Setting {
        key: "log.sample_refused",
        preset: Preset::Value("1"),
        range: Some(("1", "1000000")),
        meaning: "Of those that rules or the agent have refused, again only one in this many has it; \
                  metrics count all. JSON lines say in sample for how many they stand.",
        example: "100",
        at: |s| &mut s.log.sample_refused,
    },
    Setting {
        key: "log.fields",
        preset: Preset::Items(&Member::NAMES),
        range: None,
        meaning: "What JSON lines have, as far as a request has it. given_up and sample are no choice: a \
                  line that needs them has them.",
        example: "[\"time\", \"client\", \"target\", \"status\"]",
        at: |s| &mut s.log.fields,
    },
    Setting {
        key: "log.query",
        preset: Preset::Value("true"),
        range: None,
        meaning: "Whether lines have the query of the path, and that of the address in Referer.",
        example: "false",
        at: |s| &mut s.log.query,
    },
    Setting {
        key: "log.redact",
        preset: Preset::Items(&[]),
        range: None,
        meaning: "Whose values lines do not have, but *** in their place: query.NAME for query parameters, also \
                  those of the address in Referer and path parameters; header.Referer and header.User-Agent for \
                  these fields. Case does not matter, nor how a name is encoded.",
        example: "[\"query.token\", \"query.session\"]",
        at: |s| &mut s.log.redact,
    },
];
