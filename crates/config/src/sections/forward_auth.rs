//! The servers of a site that decide which requests may pass.

use crate::problems::problem::Wrong;
use crate::sections::rules::{PATHS_EXCEPT, guarded};
use crate::sections::upstreams::{
    CheckPath, HttpAddress, KeptConnections, ToldHost, UpstreamTimes, UpstreamTlsKeys,
    UpstreamsConfig,
};
use crate::table::{Item, Preset, Section, Setting};
use crate::values::optional::OneOrMore;
use crate::values::sign_in::SignInAddress;
use crate::values::units::{Percent, Size};
use crate::values::written::ScopeRegex;
use forebay_http::field::FieldName;
use forebay_http::path::normalise;
use forebay_site::rules::{GuardedPaths, Scope};
use forebay_upstream::target::Ambiguous;
use forebay_upstream::{is_forwarding, is_own, request, settings};
use std::time::Duration;

/// A `[[forward_auth]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct ForwardAuthSection {
    /// `path`
    pub path: Option<Scope>,
    /// `regex`
    pub regex: Option<ScopeRegex>,
    /// `except`
    pub except: Vec<Scope>,
    /// `to`
    pub to: OneOrMore<HttpAddress>,
    /// `uri`
    pub uri: Option<CheckPath>,
    /// `copy`
    pub copy: Vec<FieldName>,
    /// `sign_in`
    pub sign_in: Option<SignInAddress>,
    /// `host`
    pub host: ToldHost,
    /// `keep_alive.*`
    pub keep_alive: KeptConnections,
    /// `timeouts.connect`
    pub connect: Duration,
    /// `timeouts.head`
    pub head: Duration,
    /// `tls.*`
    pub tls: UpstreamTlsKeys,
}

/// A server that decides which requests may pass, with valid settings.
#[derive(Clone, Debug, PartialEq)]
pub struct ForwardAuth {
    section: ForwardAuthSection,
    paths: GuardedPaths,
}

impl ForwardAuth {
    /// The paths for which the server is asked.
    pub fn paths(&self) -> &GuardedPaths {
        &self.paths
    }

    /// The path of the sign-in page, if it is on the same site.
    pub(crate) fn sign_in_path(&self) -> Option<&str> {
        self.section.sign_in.as_ref()?.path()
    }

    /// The addresses of the server.
    pub fn to(&self) -> &[HttpAddress] {
        &self.section.to.0
    }

    /// The addresses of the server, to be changed.
    pub(crate) fn to_mut(&mut self) -> &mut [HttpAddress] {
        &mut self.section.to.0
    }

    /// The fields that the server gives to requests.
    pub fn copy(&self) -> &[FieldName] {
        &self.section.copy
    }

    /// The settings of TLS to the server, if it is spoken.
    pub fn tls(&self) -> Option<Box<settings::UpstreamTlsSettings>> {
        self.section.tls.settings(self.to())
    }

    /// The settings of TLS as they are written.
    pub(crate) fn tls_mut(&mut self) -> &mut UpstreamTlsKeys {
        &mut self.section.tls
    }

    /// The settings of the authority as the proxy takes them.
    pub fn settings(&self) -> settings::ProxySettings {
        let ForwardAuthSection { to, uri, copy, sign_in, host, .. } = &self.section;
        let to = to.0.iter().map(|to| to.0.address.clone()).collect();
        let uri = uri.as_ref().map_or("/", |uri| &*uri.0);
        let (raw, query) = match uri.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (uri, None),
        };
        let mut path = Vec::new();
        // the path was checked when it was read
        let _ = normalise(raw.as_bytes(), &mut path);
        // settings that this section lacks are those of a route without any
        let upstreams = UpstreamsConfig {
            retries: 1,
            retry_budget: Percent(2000),
            max_fails: 3,
            fail_time: Duration::from_secs(10),
            body_bytes: Size(0),
            keep_alive: self.section.keep_alive.clone(),
            timeouts: UpstreamTimes {
                connect: self.section.connect,
                head: self.section.head,
                silence: self.section.head,
                ..UpstreamTimes::default()
            },
            ..UpstreamsConfig::default()
        };
        let group =
            settings::GroupSettings { tls: self.tls(), ..upstreams.group(to, Vec::new(), None) };
        settings::ProxySettings {
            request: request::RequestSettings {
                host: host.0.clone(),
                ambiguous: Ambiguous::Normalise,
                close: group.keep_alive.connections == 0,
                ..request::RequestSettings::default()
            },
            bodies: upstreams.bodies(0),
            rewrites: false,
            group,
            limits: Default::default(),
            errors: settings::Errors::Theirs,
            connection_auth: Default::default(),
            proxy_protocol: None,
            buffer_bytes: 0,
            authority: Some(settings::ForwardAuthSettings {
                path: path.into(),
                query: query.map(|query| query.as_bytes().into()),
                copy: copy.clone(),
                sign_in: sign_in.as_ref().map(|address| address.parts().into()),
            }),
        }
    }
}

impl Item for ForwardAuth {
    type Section = ForwardAuthSection;

    fn new(section: ForwardAuthSection) -> Result<ForwardAuth, (&'static str, Wrong)> {
        let ForwardAuthSection { path, regex, except, .. } = section.clone();
        let paths = guarded(path, regex, except)?;
        if let Some(wrong) = section.tls.wrong(&section.to.0) {
            return Err(wrong);
        }
        let unfit = |reason: String| Wrong::Unfit { found: String::new(), reason };
        if let Some(CheckPath(uri)) = &section.uri {
            let path = uri.split('?').next().unwrap_or_default();
            if let Err(error) = normalise(path.as_bytes(), &mut Vec::new()) {
                return Err(("uri", unfit(error.reason().to_owned())));
            }
        }
        let is_ours = |name: &&FieldName| is_own(name.as_str()) || is_forwarding(name.as_str());
        if let Some(name) = section.copy.iter().find(is_ours) {
            let reason = format!("{name} is written by the proxy and cannot be copied");
            return Err(("copy", unfit(reason)));
        }
        Ok(ForwardAuth { section, paths })
    }

    fn section(&self) -> ForwardAuthSection {
        self.section.clone()
    }
}

impl Section for ForwardAuthSection {
    fn blank() -> ForwardAuthSection {
        ForwardAuthSection {
            path: None,
            regex: None,
            except: Vec::new(),
            to: OneOrMore::default(),
            uri: None,
            copy: Vec::new(),
            sign_in: None,
            host: ToldHost::default(),
            keep_alive: KeptConnections::default(),
            connect: Duration::ZERO,
            head: Duration::ZERO,
            tls: UpstreamTlsKeys::default(),
        }
    }

    const SETTINGS: &'static [Setting<ForwardAuthSection>] = &[
        Setting {
            key: "path",
            preset: Preset::Unset("every path"),
            range: None,
            meaning: "For which paths it is asked. A path without a star is meant with all below it, as \
                      in [[auth]]. Of several the first that fits is asked.",
            example: "\"/intern\"",
            at: |f| &mut f.path,
        },
        Setting {
            key: "regex",
            preset: Preset::Unset("every path"),
            range: None,
            meaning: "The same as a regular expression.",
            example: "'^/(intern|admin)/'",
            at: |f| &mut f.regex,
        },
        Setting {
            key: "except",
            preset: Preset::Items(&[]),
            range: None,
            meaning: PATHS_EXCEPT,
            example: "[\"/oauth2\"]",
            at: |f| &mut f.except,
        },
        Setting {
            key: "to",
            preset: Preset::Required,
            range: None,
            meaning: "Where it is: one server, or several that do the same. HTTP/1.1 is spoken, \
                      through TLS with https://.",
            example: "\"https://127.0.0.1:9091\"",
            at: |f| &mut f.to,
        },
        Setting {
            key: "uri",
            preset: Preset::Unset("/"),
            range: None,
            meaning: "What it is asked for, by GET and with the fields of the request but without its \
                      body; X-Forwarded-Method and X-Forwarded-Uri say what the client wants.",
            example: "\"/api/verify\"",
            at: |f| &mut f.uri,
        },
        Setting {
            key: "copy",
            preset: Preset::Items(&[]),
            range: None,
            meaning: "Fields of its answer that an application is told. What clients say in these is \
                      dropped.",
            example: "[\"Remote-User\", \"Remote-Groups\"]",
            at: |f| &mut f.copy,
        },
        Setting {
            key: "sign_in",
            preset: Preset::Unset("its answer is the client's"),
            range: None,
            meaning: "Where people sign in whom it answers 401: an address or a path, with $scheme, $host, $path \
                      and $query of the request, each encoded for where it stands. Browsers are sent there when \
                      they open a page; scripts, images and WebSockets, which say so in Sec-Fetch-Mode, get its \
                      401.",
            example: "\"/oauth2/sign_in?rd=$path$query\"",
            at: |f| &mut f.sign_in,
        },
        Setting {
            key: "host",
            preset: Preset::Value("client"),
            range: None,
            meaning: "Which host it is told: the one the client has asked for, its own, or another.",
            example: "\"upstream\"",
            at: |f| &mut f.host,
        },
        Setting {
            key: "keep_alive.connections",
            preset: Preset::Value("32"),
            range: Some(("0", "100000")),
            meaning: "Idle connections that are kept to it; 0 opens one for each request.",
            example: "100",
            at: |f| &mut f.keep_alive.connections,
        },
        Setting {
            key: "keep_alive.idle",
            preset: Preset::Value("4s"),
            range: Some(("100ms", "1h")),
            meaning: "For how long; less than the server keeps them.",
            example: "\"50s\"",
            at: |f| &mut f.keep_alive.idle,
        },
        Setting {
            key: "timeouts.connect",
            preset: Preset::Value("3s"),
            range: Some(("10ms", "5m")),
            meaning: "Time to open a connection.",
            example: "\"1s\"",
            at: |f| &mut f.connect,
        },
        Setting {
            key: "timeouts.head",
            preset: Preset::Value("10s"),
            range: Some(("100ms", "1h")),
            meaning: "Time for its answer; then the client gets 504.",
            example: "\"2s\"",
            at: |f| &mut f.head,
        },
        Setting {
            key: "tls.ca",
            preset: Preset::Items(&[]),
            range: None,
            meaning: "As tls.ca of [[proxy]]: who has signed its certificate.",
            example: "[\"/etc/forebay/internal-ca.pem\"]",
            at: |f| &mut f.tls.ca,
        },
        Setting {
            key: "tls.server_name",
            preset: Preset::Unset("the name or the address in to"),
            range: None,
            meaning: "As tls.server_name of [[proxy]]: for which name its certificate must be.",
            example: "\"app.internal\"",
            at: |f| &mut f.tls.server_name,
        },
        Setting {
            key: "tls.certificate",
            preset: Preset::Unset("none is shown"),
            range: None,
            meaning: "As tls.certificate of [[proxy]]: what is shown to it.",
            example: "\"/etc/forebay/client.pem\"",
            at: |f| &mut f.tls.certificate,
        },
        Setting {
            key: "tls.key",
            preset: Preset::Unset("none"),
            range: None,
            meaning: "The private key of that.",
            example: "\"/etc/forebay/client.key\"",
            at: |f| &mut f.tls.key,
        },
        Setting {
            key: "tls.min_version",
            preset: Preset::Unset("1.2"),
            range: None,
            meaning: "The oldest version of TLS that is spoken.",
            example: "\"1.3\"",
            at: |f| &mut f.tls.min_version,
        },
        Setting {
            key: "tls.verify",
            preset: Preset::Value("true"),
            range: None,
            meaning: "Whether its certificate is looked at. With false nobody knows who decides.",
            example: "false",
            at: |f| &mut f.tls.verify,
        },
    ];
}
