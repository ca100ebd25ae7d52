//! The routes of a site to applications that speak HTTP.

use crate::problems::problem::Wrong;
use crate::sections::conditions::ConditionKeys;
use crate::sections::upstreams::{
    Checks, ClassReserves, Destinations, HasUpstreams, HttpAddress, ProxyProtocolVersion,
    Redirects, ToldHost, UpstreamTlsKeys, UpstreamsConfig, backups_fit, rebase,
    rows_with_upstreams, told,
};
use crate::table::{Item, Preset, Section, Setting};
use crate::values::optional::{OneOrMore, Optional};
use crate::values::written::HeaderFields;
use forebay_http::field::{FieldName, FieldValue};
use forebay_http::response::ResponseHeadLimits;
use forebay_site::rules::{RequestConditions, Route, Scope};
use forebay_upstream::destination::DestinationTold;
use forebay_upstream::target::{Ambiguous, Base};
use forebay_upstream::{is_own, request, settings};
use std::path::PathBuf;

/// A `[[proxy]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct ProxySection {
    /// `path`
    pub path: Option<Scope>,
    /// `files_first`
    pub files_first: bool,
    /// `to`
    pub to: OneOrMore<HttpAddress>,
    /// `backup`
    pub backup: OneOrMore<HttpAddress>,
    /// `host`
    pub host: ToldHost,
    /// `strip`
    pub strip: Option<Base>,
    /// `prefix`
    pub prefix: Option<Base>,
    /// `ambiguous`
    pub ambiguous: Ambiguous,
    /// `set`
    pub set: HeaderFields,
    /// `remove`
    pub remove: Vec<FieldName>,
    /// `redirects`
    pub redirects: Redirects,
    /// `destination`
    pub destination: Destinations,
    /// `upgrade`
    pub upgrade: bool,
    /// `half_close`
    pub half_close: bool,
    /// `http2`
    pub http2: bool,
    /// `http2_connections`
    pub http2_connections: Optional<u64>,
    /// `when.*`
    pub(crate) conditions: ConditionKeys,
    /// `bare_lf`
    pub bare_lf: bool,
    /// `connection_auth`
    pub connection_auth: settings::ConnectionAuth,
    /// `proxy_protocol`
    pub proxy_protocol: Optional<ProxyProtocolVersion>,
    /// Settings that all routes have.
    pub upstreams: UpstreamsConfig,
    /// `tls.*`
    pub tls: UpstreamTlsKeys,
    /// `check.*`
    pub check: Checks,
}

/// A route to applications that speak HTTP whose settings are valid.
#[derive(Clone, Debug, PartialEq)]
pub struct ProxyConfig(ProxySection);

impl ProxyConfig {
    /// The places that classes keep.
    pub(crate) fn reserve(&self) -> &ClassReserves {
        &self.0.upstreams.reserve
    }

    /// The paths that the applications answer.
    pub fn path(&self) -> Scope {
        self.0.path.clone().unwrap_or_else(Scope::any)
    }

    /// The conditions on requests.
    pub(crate) fn conditions(&self) -> RequestConditions {
        // faults in the conditions were reported when the route was read
        self.0.conditions.clone().conditions().unwrap_or_default()
    }

    /// The route as the site takes it.
    pub fn route(&self) -> Route {
        let ProxySection { set, upstreams, .. } = &self.0;
        let UpstreamsConfig { sends, compress, .. } = upstreams;
        Route {
            sends: sends.clone(),
            compress: compress.0.clone(),
            passes: self.0.ambiguous == Ambiguous::Pass,
            files_first: self.0.files_first,
            conditions: self.conditions(),
            // faults in the values were reported when the route was read
            told: told::templates(set.0.iter().map(|(_, value)| value.as_str())),
            ..Route::all(self.path())
        }
    }

    /// The addresses of the applications, each list with its key: backups come last.
    pub fn to(&self) -> [(&'static str, &[HttpAddress]); 2] {
        [("to", &self.0.to.0), ("backup", &self.0.backup.0)]
    }

    /// Makes paths relative to a directory.
    pub(crate) fn rebase(&mut self, join: &impl Fn(&mut PathBuf)) {
        let ProxySection { to, backup, upstreams, tls, .. } = &mut self.0;
        let before = to.0.clone();
        let all = to.0.iter_mut().chain(&mut backup.0);
        all.for_each(|to| rebase(&mut to.0.address, join));
        upstreams.weights.rename(&before, &to.0);
        tls.rebase(join);
    }

    /// The settings of TLS to the applications, if it is spoken.
    pub fn tls(&self) -> Option<Box<settings::UpstreamTlsSettings>> {
        self.0.tls.settings(&self.0.to.0)
    }

    /// Whether connections to the application begin with a PROXY header, which names the client.
    pub fn tells_client_first(&self) -> bool {
        self.0.proxy_protocol.0.is_some()
    }

    /// What happens to sign-ins that hold for a connection.
    pub fn connection_auth(&self) -> settings::ConnectionAuth {
        self.0.connection_auth
    }

    /// Whether connections may become tunnels.
    pub fn upgrades(&self) -> bool {
        self.0.upgrade
    }

    /// The fields that are set in requests to the application.
    pub fn set(&self) -> &[(FieldName, FieldValue)] {
        &self.0.set.0
    }

    /// The settings of the application as the proxy takes them.
    pub fn settings(&self) -> settings::ProxySettings {
        let ProxySection {
            to, backup, host, strip, prefix, ambiguous, set, remove, upstreams, ..
        } = &self.0;
        let addresses = |of: &[HttpAddress]| of.iter().map(|to| to.0.address.clone()).collect();
        let (to, backup) = (addresses(&to.0), addresses(&backup.0));
        let mut group = upstreams.group(to, backup, self.0.check.settings());
        group.tls = self.tls();
        group.http2 = self.0.http2;
        let connections = self.0.http2_connections.0;
        group.http2_connections =
            connections.map(|number| u32::try_from(number).unwrap_or(u32::MAX));
        // a connection that begins with one client's address is for that client alone
        if self.0.proxy_protocol.0.is_some() {
            group.keep_alive.connections = 0;
        }
        settings::ProxySettings {
            request: request::RequestSettings {
                host: host.0.clone(),
                strip: strip.clone().unwrap_or_default(),
                prefix: prefix.clone().unwrap_or_default(),
                ambiguous: *ambiguous,
                destination: match self.0.destination {
                    Destinations::Client => DestinationTold::Client,
                    Destinations::Upstream => {
                        DestinationTold::Upstream { is_tls: group.tls.is_some() }
                    }
                },
                upgrade: self.0.upgrade,
                ends_with_client: !self.0.half_close,
                close: group.keep_alive.connections == 0,
                set: told::set_values(&set.0),
                remove: remove.clone(),
            },
            bodies: upstreams.bodies(0),
            rewrites: self.0.redirects == Redirects::Rewrite,
            group,
            limits: ResponseHeadLimits { bare_lf: self.0.bare_lf, ..Default::default() },
            errors: upstreams.errors,
            connection_auth: self.0.connection_auth,
            proxy_protocol: self.0.proxy_protocol.0.map(Into::into),
            buffer_bytes: upstreams.buffer_bytes.0,
            authority: None,
        }
    }
}

impl Item for ProxyConfig {
    type Section = ProxySection;

    fn new(mut section: ProxySection) -> Result<ProxyConfig, (&'static str, Wrong)> {
        let unfit = |reason: String| Wrong::Unfit { found: String::new(), reason };
        if let (Some(path), Some(strip)) = (&section.path, &section.strip)
            && !path.is_below(strip.as_str())
        {
            let reason =
                format!("not all paths of {:?} begin with {:?}", path.as_str(), strip.as_str());
            return Err(("strip", unfit(reason)));
        }
        let own = |name: &FieldName| {
            let name = name.as_str();
            let instead = if name.eq_ignore_ascii_case("host") { "; host says which" } else { "" };
            unfit(format!("{name} is written by the proxy and cannot be changed{instead}"))
        };
        let set = &section.set.0;
        for (at, (name, value)) in set.iter().enumerate() {
            told::template(value.as_str()).map_err(|error| ("set", unfit(error.to_string())))?;
            if is_own(name.as_str()) {
                return Err(("set", own(name)));
            }
            let is_again = set[..at].iter().any(|(before, _)| before.is(name.as_str()));
            if is_again || section.remove.iter().any(|removed| removed.is(name.as_str())) {
                return Err(("set", unfit(format!("{name} is there twice"))));
            }
        }
        if let Some(name) = section.remove.iter().find(|name| is_own(name.as_str())) {
            return Err(("remove", own(name)));
        }
        let conditions = section.conditions.clone().conditions();
        let conditions = conditions.map_err(|(key, wrong)| (when(key), wrong))?;
        if !conditions.is_empty() && section.ambiguous == Ambiguous::Pass {
            let reason =
                "which application is told the path may hang on no condition: leave when out";
            return Err(("ambiguous", unfit(reason.to_owned())));
        }
        if !conditions.is_empty() && section.files_first {
            let reason = "which files there are hangs on no condition: leave when out";
            return Err(("files_first", unfit(reason.to_owned())));
        }
        if let Some(wrong) = section.tls.wrong(&section.to.0) {
            return Err(wrong);
        }
        backups_fit(&section.to.0, &section.backup.0)?;
        let several = section.to.0.len() + section.backup.0.len() > 1;
        if section.destination == Destinations::Upstream
            && section.host.0 == forebay_upstream::request::HostSent::Upstream
            && several
        {
            let reason = "with host = \"upstream\" each of several is sent another host, and the address is written before it is known who is asked: name one host";
            return Err(("destination", unfit(reason.to_owned())));
        }
        if section.backup.0.iter().any(|backup| backup.0.is_tls != section.to.0[0].0.is_tls) {
            let reason = "backups are spoken with as those in to are: through TLS, or not";
            return Err(("backup", unfit(reason.to_owned())));
        }
        let ProxySection { upstreams, to, .. } = &mut section;
        upstreams.weights.put_in_order(&to.0).map_err(|wrong| ("weights", wrong))?;
        let are_shared = section.http2 && section.http2_connections.0.is_some();
        if let Some((key, needs)) = section.upstreams.idle(are_shared) {
            return Err((key, Wrong::Idle { needs }));
        }
        if let Some(wrong) = section.upstreams.unfit() {
            return Err(wrong);
        }
        if let Some(key) = section.check.idle() {
            return Err((key, Wrong::Idle { needs: "check.path" }));
        }
        Ok(ProxyConfig(section))
    }

    fn section(&self) -> ProxySection {
        self.0.clone()
    }
}

/// The key of a condition as it stands in this section.
fn when(key: &str) -> &'static str {
    let keys = [
        "when.client",
        "when.host",
        "when.method",
        "when.query",
        "when.header",
        "when.cookie",
        "when.class",
        "when.scheme",
    ];
    let is_it = |known: &&&str| known.strip_prefix("when.") == Some(key);
    keys.iter().find(is_it).copied().unwrap_or("when.ignore_case")
}

impl HasUpstreams for ProxySection {
    fn upstreams(&mut self) -> &mut UpstreamsConfig {
        &mut self.upstreams
    }
}

impl Section for ProxySection {
    fn blank() -> ProxySection {
        ProxySection {
            path: None,
            files_first: false,
            to: OneOrMore::default(),
            backup: OneOrMore::default(),
            host: ToldHost::default(),
            strip: None,
            prefix: None,
            ambiguous: Ambiguous::default(),
            set: HeaderFields::default(),
            remove: Vec::new(),
            redirects: Redirects::default(),
            destination: Destinations::default(),
            upgrade: false,
            half_close: false,
            http2: false,
            http2_connections: Optional(None),
            conditions: ConditionKeys::default(),
            bare_lf: false,
            connection_auth: settings::ConnectionAuth::default(),
            proxy_protocol: Optional::default(),
            upstreams: UpstreamsConfig::default(),
            tls: UpstreamTlsKeys::default(),
            check: Checks::default(),
        }
    }

    const SETTINGS: &'static [Setting<ProxySection>] = rows_with_upstreams!(
        [
            Setting {
                key: "path",
                preset: Preset::Required,
                range: None,
                meaning: "Which paths they answer. A path without a star is meant with all below it: \
                          \"/api\" is for /api, /api/ and /api/users, not for /apis. \"=/api\" is that \
                          path alone. Of several routes and aliases, one path alone goes first, then \
                          patterns such as \"*.php\", then the longest path; files of the root have what \
                          is left. \"/\" is everything else.",
                example: "\"/api\"",
                at: |p| &mut p.path,
            },
            Setting {
                key: "files_first",
                preset: Preset::Value("false"),
                range: None,
                meaning: "Whether GET and HEAD are answered by a file of the site where there is one, with its index, \
                          try_files and compressed forms, and only what no file answers goes to the application, as \
                          everything with another method does.",
                example: "true",
                at: |p| &mut p.files_first,
            },
            Setting {
                key: "to",
                preset: Preset::Required,
                range: None,
                meaning: "Where they are: one, or several that do the same. A name may have several \
                          addresses, is looked up again every 10 s, and one that takes no connection is \
                          left alone meanwhile. HTTP/1.1 is spoken, or HTTP/2 (http2); through TLS with https://, whose usual port \
                          is 443. \"srv+http://_http._tcp.app.internal\" is all servers that the records of a service \
                          (SRV) name, 32 at most, with the weights there; those of a higher number of priority are \
                          backups. The records are looked up again by their time to live.",
                example: "[\"https://10.0.0.1:8443\", \"https://10.0.0.2:8443\"]",
                at: |p| &mut p.to,
            },
            Setting {
                key: "backup",
                preset: Preset::Unset("there is none"),
                range: None,
                meaning: "Those that are asked only while none of to is well, and where a request that failed may be \
                          sent to no other. While all of to have as much under way as they may (in_flight), requests \
                          wait for these.",
                example: "\"https://10.0.1.1:8443\"",
                at: |p| &mut p.backup,
            },
            Setting {
                key: "weights",
                preset: Preset::Unset("all are equal"),
                range: Some(("1", "100")),
                meaning: "What each of several gets beside the others, by its address as to has it: of what is asked for \
                          one after the other nine of ten go to one with 9 beside one with 1, which is what one has that \
                          is not named. With balance = \"least\" requests under way are divided by it, with hash as many \
                          keys more are its own. in_flight is the same for each.",
                example: "{ \"https://10.0.0.1:8443\" = 9 }",
                at: |p| &mut p.upstreams.weights,
            },
            Setting {
                key: "host",
                preset: Preset::Value("client"),
                range: None,
                meaning: "Which host they are told: the one the client has asked for, that of the \
                          upstream, or another. X-Forwarded-Host is the client's in any case.",
                example: "\"upstream\"",
                at: |p| &mut p.host,
            },
            Setting {
                key: "strip",
                preset: Preset::Unset("nothing"),
                range: None,
                meaning: "What is taken from the beginning of paths before they are told: with \"/api\", \
                          /api/users is /users for them.",
                example: "\"/api\"",
                at: |p| &mut p.strip,
            },
            Setting {
                key: "prefix",
                preset: Preset::Unset("nothing"),
                range: None,
                meaning: "What is put before paths after that.",
                example: "\"/v2\"",
                at: |p| &mut p.prefix,
            },
            Setting {
                key: "ambiguous",
                preset: Preset::Value("refuse"),
                range: None,
                meaning: "What becomes of paths with //, /./ or /../, encoded or not, or with an encoded slash \
                          or backslash, which others may read in another way than the rules here. \
                          \"refuse\": 400. \"normalise\": the application is told what the rules have seen; \
                          an encoded slash or backslash is 400. \"pass\": it is told what was sent, if the \
                          rules allow every reading and choose the same for each; else, and with /./ or \
                          /../ in any reading, 400.",
                example: "\"pass\"",
                at: |p| &mut p.ambiguous,
            },
            Setting {
                key: "set",
                preset: Preset::Unset("nothing is set"),
                range: None,
                meaning: "Fields of requests to set, each instead of what the client says. Values may name \
                          $host, $path, $query, $scheme, $client, $class, $request_id, $overload, $header.NAME, \
                          $cookie.NAME and $query.NAME of the request; then $$ is a dollar sign, and one that \
                          comes out empty is not sent. $header.NAME of a field that a [[forward_auth]] copies \
                          is what that server has said, never what the client says.",
                example: "{ \"X-Environment\" = \"test\", \"X-Original-Host\" = \"$host\" }",
                at: |p| &mut p.set,
            },
            Setting {
                key: "remove",
                preset: Preset::Items(&[]),
                range: None,
                meaning: "Fields of requests to leave out. What the proxy adds can be left out, too: Via, \
                          X-Forwarded-For, X-Forwarded-Proto, X-Forwarded-Host, X-Forwarded-Port, \
                          X-Real-IP, X-Request-Id.",
                example: "[\"Authorization\"]",
                at: |p| &mut p.remove,
            },
            Setting {
                key: "redirects",
                preset: Preset::Value("rewrite"),
                range: None,
                meaning: "Whether Location, Refresh and Set-Cookie lead back here where they name an \
                          upstream, or a path as strip and prefix make it.",
                example: "\"keep\"",
                at: |p| &mut p.redirects,
            },
            Setting {
                key: "destination",
                preset: Preset::Value("client"),
                range: None,
                meaning: "Which address the application is told in Destination, and in the tags of If, of WebDAV: as the \
                          client has written it (client), or as the application itself is asked here, by scheme, host, \
                          strip and prefix (upstream): for one that knows no other address of its own, such as Apache \
                          and WsgiDAV. What names another host stays; what strip does not begin is answered with 502.",
                example: "\"upstream\"",
                at: |p| &mut p.destination,
            },
            Setting {
                key: "upgrade",
                preset: Preset::Value("true"),
                range: None,
                meaning: "Whether clients may change to another protocol, as WebSocket does. HTTP/2 \
                          without TLS is never passed on.",
                example: "false",
                at: |p| &mut p.upgrade,
            },
            Setting {
                key: "half_close",
                preset: Preset::Value("true"),
                range: None,
                meaning: "Whether a WebSocket, or another tunnel, goes on in one direction after its client has ended \
                          the other (a FIN, or END_STREAM). If not, what the client has sent is passed on, and both \
                          connections end.",
                example: "false",
                at: |p| &mut p.half_close,
            },
            Setting {
                key: "http2",
                preset: Preset::Value("false"),
                range: None,
                meaning: "Whether HTTP/2 is spoken with them, as applications with gRPC want: at once over \
                          http:// (h2c), and over https:// where they choose it (ALPN); one that does not is \
                          asked nothing (502). A connection has one request at a time, and is kept for the next \
                          as one of HTTP/1.1 is; or requests share connections (http2_connections). WebSockets, \
                          and other changes of the protocol, go by HTTP/1.1.",
                example: "true",
                at: |p| &mut p.http2,
            },
            Setting {
                key: "http2_connections",
                preset: Preset::Unset("as many as requests"),
                range: Some(("1", "1000")),
                meaning: "Requests share so many connections to each of them at most, in the whole process, and \
                          many are under way on each at once: for applications that bound connections, or \
                          where connections cost more than what they save. A request takes one that rests, a new one, \
                          or the one with the fewest. While the application takes no further streams, \
                          requests wait for one as for a place (queue.time). What a client does not take of an \
                          answer is kept here, 128 KiB at most, and holds up no other.",
                example: "4",
                at: |p| &mut p.http2_connections,
            },
            Setting {
                key: "bare_lf",
                preset: Preset::Value("false"),
                range: None,
                meaning: "Lines of an answer's head, of its chunks and of its trailers may end in LF without \
                          CR; else such an answer is a 502. The client is told in lines that end in CR LF.",
                example: "true",
                at: |p| &mut p.bare_lf,
            },
            Setting {
                key: "connection_auth",
                preset: Preset::Value("bind"),
                range: None,
                meaning: "What becomes of the schemes NTLM, Negotiate, Nego2 and Kerberos, which sign in a \
                          connection and not a request. \"bind\": a connection on which one was \
                          offered or used belongs to one client's connection over HTTP/1 and ends with it, \
                          or after idle; a client \
                          over HTTP/2 is told to come over HTTP/1.1; where one connection carries many \
                          clients (a trusted proxy, isolated) it is as with \"refuse\". \"request\": \
                          connections are shared all the same, for applications that look at each \
                          request. \"refuse\": these schemes are taken out of what an application offers; \
                          where it offers no other the answer is 502.",
                example: "\"refuse\"",
                at: |p| &mut p.connection_auth,
            },
            Setting {
                key: "proxy_protocol",
                preset: Preset::Unset("off"),
                range: None,
                meaning: "Whether each connection begins with the client's address, and how: v1 or v2 of \
                          the PROXY protocol. Where a trusted proxy has named the client in \
                          X-Forwarded-For it is that address, with port 0. Connections are not kept then.",
                example: "\"v2\"",
                at: |p| &mut p.proxy_protocol,
            },
        ],
        [
            Setting {
                key: "when.client",
                preset: Preset::Unset("every client"),
                range: None,
                meaning: "Only for these clients: addresses, networks and ranges of addresses, as in a [[rule]]. Other requests are for the next route that has the path, or for files: so with all keys of when.",
                example: "[\"10.0.0.0/8\"]",
                at: |p| &mut p.conditions.client,
            },
            Setting {
                key: "when.host",
                preset: Preset::Unset("every host of the site"),
                range: None,
                meaning: "Only where this host is asked for, without port and in any case of letters.",
                example: "\"api.shop.example\"",
                at: |p| &mut p.conditions.host,
            },
            Setting {
                key: "when.method",
                preset: Preset::Unset("every method"),
                range: None,
                meaning: "Only for requests with this method.",
                example: "[\"POST\", \"PUT\"]",
                at: |p| &mut p.conditions.method,
            },
            Setting {
                key: "when.query",
                preset: Preset::Unset("any query"),
                range: None,
                meaning: "Only with this parameter in the query, written as in a [[redirect]].",
                example: "\"version=2\"",
                at: |p| &mut p.conditions.query,
            },
            Setting {
                key: "when.header",
                preset: Preset::Unset("any fields"),
                range: None,
                meaning: "Only with this field in the request, written as in a [[redirect]]. Vary names the field in all answers for these paths.",
                example: "\"Accept=application/json*\"",
                at: |p| &mut p.conditions.header,
            },
            Setting {
                key: "when.cookie",
                preset: Preset::Unset("any cookies"),
                range: None,
                meaning: "Only with this cookie, written like a field. Vary names Cookie in all answers for these paths.",
                example: "\"beta=1\"",
                at: |p| &mut p.conditions.cookie,
            },
            Setting {
                key: "when.class",
                preset: Preset::Unset("every class"),
                range: None,
                meaning: "Only for requests to which rules have given this class. No cache may keep answers for these paths for others (Vary: *), and so it is with client.",
                example: "\"gold\"",
                at: |p| &mut p.conditions.class,
            },
            Setting {
                key: "when.scheme",
                preset: Preset::Unset("with TLS and without"),
                range: None,
                meaning: "Only for clients that have come through TLS (https) or without it (http), to this server or as one of trusted_proxies says.",
                example: "\"https\"",
                at: |p| &mut p.conditions.scheme,
            },
            Setting {
                key: "when.ignore_case",
                preset: Preset::Value("false"),
                range: None,
                meaning: "Whether capitals do not count in when.query and the values of when.header and when.cookie.",
                example: "true",
                at: |p| &mut p.conditions.ignore_case,
            },
            Setting {
                key: "tls.ca",
                preset: Preset::Items(&[]),
                range: None,
                meaning: "Files with the certificates of authorities in PEM that have signed those of the \
                          upstreams, or with theirs themselves, where nobody else has signed them; what one has \
                          signed counts if it says that it is an authority's. Without one: the authorities \
                          that the system trusts. Whether a certificate was revoked is not looked at. These files are taken over when they change, as tls.certificate of a site is.",
                example: "[\"/etc/forebay/internal-ca.pem\"]",
                at: |p| &mut p.tls.ca,
            },
            Setting {
                key: "tls.server_name",
                preset: Preset::Unset("the name or the address in to"),
                range: None,
                meaning: "For which name or address their certificates must be, and which name they are told \
                          (SNI). An address is not told.",
                example: "\"app.internal\"",
                at: |p| &mut p.tls.server_name,
            },
            Setting {
                key: "tls.certificate",
                preset: Preset::Unset("none is shown"),
                range: None,
                meaning: "A file with the certificate that is shown to upstreams that ask for one, in PEM, and \
                          those between it and an authority.",
                example: "\"/etc/forebay/client.pem\"",
                at: |p| &mut p.tls.certificate,
            },
            Setting {
                key: "tls.key",
                preset: Preset::Unset("none"),
                range: None,
                meaning: "A file with its private key: PKCS#8, PKCS#1 or SEC1 in PEM, not encrypted.",
                example: "\"/etc/forebay/client.key\"",
                at: |p| &mut p.tls.key,
            },
            Setting {
                key: "tls.min_version",
                preset: Preset::Unset("1.2"),
                range: None,
                meaning: "The oldest version of TLS that is spoken.",
                example: "\"1.3\"",
                at: |p| &mut p.tls.min_version,
            },
            Setting {
                key: "tls.verify",
                preset: Preset::Value("true"),
                range: None,
                meaning: "Whether their certificates are looked at. With false nobody knows who answers: whoever \
                          is on the way can read and change everything. tls.ca with their own certificate is \
                          better.",
                example: "false",
                at: |p| &mut p.tls.verify,
            },
            Setting {
                key: "check.path",
                preset: Preset::Unset("none; they are not asked"),
                range: None,
                meaning: "Asks each of them for this path, to learn whether it is well before a request \
                          does.",
                example: "\"/health\"",
                at: |p| &mut p.check.path,
            },
            Setting {
                key: "check.interval",
                preset: Preset::Unset("5s"),
                range: Some(("100ms", "1h")),
                meaning: "How often. Three failures in a row put it out, two good answers bring it back.",
                example: "\"30s\"",
                at: |p| &mut p.check.interval,
            },
            Setting {
                key: "check.status",
                preset: Preset::Unset("2xx"),
                range: None,
                meaning: "Which answers are good.",
                example: "[\"2xx\", \"301\"]",
                at: |p| &mut p.check.status,
            },
        ],
        "32",
        "Idle connections that are kept to each of them; 0 opens one for each request.",
        "100"
    );
}
