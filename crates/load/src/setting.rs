//! The settings of a group as `key=value`: one table for `--group` and for the TOML file.

use crate::arrivals::{Arrivals, Bursts, RateStep, TraceError, read_trace};
use crate::fileset;
use crate::mix::{Mix, MixError};
use crate::plan::{BodyCheck, ClientGroup, LoadModel, RequestsPerConnection, StatedVersion};
use crate::target::{LoadTarget, TargetError};
use crate::units;
use forebay_tls::{Roots, Versions};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

/// A key, the form of its value, and its meaning.
pub type SettingRow = (&'static str, &'static str, &'static str);

/// Every setting of a group.
pub const SETTINGS: &[SettingRow] = &[
    ("connections", "N", "closed loop: so many clients; with a rate: the most connections at once"),
    ("think", "TIME or FROM-TO", "closed loop: pause between answer and next request"),
    ("ramp", "TIME", "closed loop: the clients begin spread over this time"),
    ("pause", "TIME or FROM-TO", "closed loop: wait after a failed request before the next (10ms)"),
    ("rate", "N/s", "open loop: arrivals per second"),
    ("arrivals", "constant | poisson", "open loop: equal or random gaps (constant)"),
    ("steps", "RATE:TIME+RATE:TIME+…", "open loop: rates that follow each other; 0 pauses"),
    ("bursts", "LEAST-MOST@N/s", "open loop: so many requests at once, N times per second"),
    ("trace", "FILE", "open loop: one `SECONDS [PATH]` per line"),
    ("url", "PATH or http[s]://…", "what is asked for, and whom"),
    ("urls", "FILE", "one `PATH [WEIGHT [BYTES]]` per line, drawn by weight"),
    ("set", "specweb99:CONNECTIONS | webstone", "a file set and its mix, at the url's path"),
    (
        "requests",
        "N",
        "so many in all, warm-up apart; the run is over when every group has made its own",
    ),
    ("method", "NAME", "GET, HEAD, … (GET; POST with `request_body`)"),
    ("header", "NAME: VALUE", "a line for every request; may be given again"),
    ("request_body", "TEXT or @FILE", "what every request carries, with its length"),
    ("http", "1.0 | 1.1 | 2", "the version of the requests (1.1)"),
    ("per_connection", "N | unlimited | specweb99", "requests per connection (unlimited)"),
    ("pipeline", "N", "requests under way at once on one connection of HTTP/1 (1)"),
    ("streams", "N", "requests under way at once on one connection of HTTP/2 (1)"),
    ("ca", "FILE", "certificates of trusted authorities in PEM (those of this machine)"),
    ("insecure", "true | false", "take any certificate; the report says so (false)"),
    ("tls", "auto | 1.2 | 1.3", "versions of TLS that are spoken (auto: both)"),
    ("resume", "true | false", "resume a client's last session; false: full handshakes (true)"),
    ("post_quantum", "true | false", "offer X25519 with ML-KEM first; false: X25519 (true)"),
    ("from", "TIME", "when the group begins (0)"),
    ("until", "TIME", "when it ends (with the run)"),
    ("timeout", "TIME", "how long an answer may take (10s)"),
    ("connect_timeout", "TIME", "how long a connection may take, with its handshake (10s)"),
    ("within", "TIME", "a later answer is not goodput"),
    ("receive", "RATE", "the most a connection receives: 400kbit/s, 50KB/s"),
    ("receive_buffer", "SIZE", "the socket's receive buffer (16KiB with `receive`)"),
    ("source", "ADDRESS[+ADDRESS…] or FIRST-LAST", "local addresses, used in turn"),
    ("source_ports", "FIRST-LAST", "local ports, used in turn"),
    ("status", "CODE", "the status of a good answer (any below 400)"),
    ("length", "SIZE", "the length of a good body"),
    ("body", "same | CRC32", "content of a good body: as the first one, or its CRC-32 in hex"),
    ("hold", "TIME", "keep a connection open and silent after its last request (0)"),
];

/// Why a setting cannot be used.
#[derive(Debug)]
pub enum SettingError {
    /// The key is unknown.
    Unknown {
        /// The unknown key.
        key: String,
        /// The known key that is most similar to it.
        similar: Option<&'static str>,
    },
    /// The value does not have the form that the key requires.
    Value {
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// The form that it should have.
        expected: &'static str,
    },
    /// A part of `--group` is not `key=value`.
    NoValue(String),
    /// The group's URL is wrong.
    Target(TargetError),
    /// The file of paths is wrong.
    Mix(MixError),
    /// The file of arrivals is wrong.
    Trace(TraceError),
    /// The group has both a rate and a setting of closed loops.
    BothLoops(&'static str),
    /// A group's name is empty, or has other characters than letters, digits, `-` and `_`.
    Name(String),
    /// Neither the group nor the run has a URL.
    NoTarget,
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingError::Unknown { key, similar } => {
                write!(f, "{key}: no such setting")?;
                similar.map_or(Ok(()), |similar| write!(f, "; did you mean {similar}?"))
            }
            SettingError::Value { key, value, expected } => {
                write!(f, "{key}={value}: {}", units::not(value, expected))
            }
            SettingError::NoValue(part) => write!(f, "{part}: expected KEY=VALUE"),
            SettingError::Target(error) => error.fmt(f),
            SettingError::Mix(error) => error.fmt(f),
            SettingError::Trace(error) => error.fmt(f),
            SettingError::BothLoops(key) => {
                write!(f, "{key}: a group with a rate is an open loop, where it has no meaning")
            }
            SettingError::Name(name) => {
                write!(f, "{name:?}: a group's name has letters, digits, - and _ only")
            }
            SettingError::NoTarget => write!(f, "no URL; give one for all groups, or url=http://…"),
        }
    }
}

impl SettingError {
    /// Whether the only error is that a name has no address.
    pub fn is_unresolved(&self) -> bool {
        matches!(self, SettingError::Target(error) if error.is_unresolved())
    }
}

/// A group under construction; [`finish`](GroupDraft::finish) completes it.
#[derive(Clone, Debug)]
pub struct GroupDraft {
    group: Option<ClientGroup>,
    name: String,
    connections: Option<u32>,
    think: Option<RangeInclusive<Duration>>,
    ramp: Option<Duration>,
    arrivals: Arrivals,
    set: Option<Mix>,
    per_connection: Option<RequestsPerConnection>,
    settings: Vec<(String, String)>,
}

impl GroupDraft {
    /// A draft of a group with this name; `base` is the URL for groups that have none.
    pub fn new(name: &str, base: Option<&LoadTarget>) -> GroupDraft {
        GroupDraft {
            group: base.map(|target| ClientGroup::new(name, target.clone())),
            name: name.to_owned(),
            connections: None,
            think: None,
            ramp: None,
            arrivals: Arrivals::default(),
            set: None,
            per_connection: None,
            settings: Vec::new(),
        }
    }

    /// Reads `NAME:KEY=VALUE,KEY=VALUE,…`; a comma inside a value is written `\,`.
    ///
    /// # Errors
    /// The first part that has an error.
    pub fn parse(text: &str, base: Option<&LoadTarget>) -> Result<GroupDraft, SettingError> {
        let (name, settings) = text.split_once(':').unwrap_or((text, ""));
        let mut draft = GroupDraft::new(name, base);
        let settings = settings.replace("\\,", "\0");
        for part in settings.split(',').filter(|part| !part.is_empty()) {
            let part = part.replace('\0', ",");
            let (key, value) = part.split_once('=').ok_or(SettingError::NoValue(part.clone()))?;
            draft.set(key.trim(), value.trim());
        }
        Ok(draft)
    }

    /// Adds a setting. A later one of the same key replaces it, except that headers add up.
    pub fn set(&mut self, key: &str, value: &str) {
        self.settings.push((key.to_owned(), value.to_owned()));
    }

    /// Completes the group.
    ///
    /// # Errors
    /// The first setting that has an error, or the lack of a URL.
    pub fn finish(mut self) -> Result<ClientGroup, SettingError> {
        let sound = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
        if self.name.is_empty() || !self.name.chars().all(sound) {
            return Err(SettingError::Name(self.name));
        }
        // the URL first: other settings apply to the group that it makes
        let mut settings = std::mem::take(&mut self.settings);
        settings.sort_by_key(|(key, _)| key != "url");
        for (key, value) in settings {
            self.apply(&key, &value)?;
        }
        let open =
            self.arrivals != Arrivals { poisson: self.arrivals.poisson, ..Arrivals::default() };
        let mut group = self.group.ok_or(SettingError::NoTarget)?;
        if let Some(mix) = self.set {
            group.mix = mix;
        }
        if let Some(per_connection) = self.per_connection {
            group.per_connection = per_connection;
        }
        if !open {
            group.load = LoadModel::Closed {
                connections: self.connections.unwrap_or(1),
                think: self.think.unwrap_or(Duration::ZERO..=Duration::ZERO),
                ramp: self.ramp.unwrap_or_default(),
            };
            return Ok(group);
        }
        if self.think.is_some() {
            return Err(SettingError::BothLoops("think"));
        }
        if self.ramp.is_some() {
            return Err(SettingError::BothLoops("ramp"));
        }
        let connections = self.connections.unwrap_or(OPEN_CONNECTIONS);
        group.load = LoadModel::Open { arrivals: self.arrivals, connections };
        Ok(group)
    }

    fn apply(&mut self, key: &str, value: &str) -> Result<(), SettingError> {
        if !SETTINGS.iter().any(|(known, _, _)| *known == key) {
            return Err(unknown(key));
        }
        let expect = |expected| SettingError::Value {
            key: key.to_owned(),
            value: value.to_owned(),
            expected,
        };
        match key {
            "url" => return self.url(value),
            "connections" => self.connections = Some(count(value).map_err(expect)?),
            "think" => self.think = Some(range(value).map_err(expect)?),
            "ramp" => self.ramp = Some(units::duration(value).map_err(expect)?),
            "rate" => {
                self.arrivals.steps =
                    vec![RateStep { rate: units::rate(value).map_err(expect)?, lasts: None }]
            }
            "steps" => self.arrivals.steps = steps(value).map_err(expect)?,
            "bursts" => self.arrivals.bursts = Some(bursts(value).map_err(expect)?),
            "trace" => {
                let trace = read_trace(Path::new(value)).map_err(SettingError::Trace)?;
                self.arrivals.trace = Some(trace);
            }
            "arrivals" => {
                self.arrivals.poisson = match value {
                    "constant" => false,
                    "poisson" => true,
                    _ => return Err(expect("constant or poisson")),
                }
            }
            "urls" => self.set = Some(Mix::read(Path::new(value)).map_err(SettingError::Mix)?),
            "set" => self.file_set(value).map_err(expect)?,
            "per_connection" => self.per_connection = Some(per_connection(value).map_err(expect)?),
            _ => {
                let group = self.group.as_mut().ok_or(SettingError::NoTarget)?;
                plain(group, key, value).map_err(expect)?;
            }
        }
        Ok(())
    }

    fn url(&mut self, value: &str) -> Result<(), SettingError> {
        if value.starts_with('/') {
            let group = self.group.as_mut().ok_or(SettingError::NoTarget)?;
            group.mix = Mix::one(value);
            group.target.path = value.to_owned();
        } else {
            let target = LoadTarget::parse(value).map_err(SettingError::Target)?;
            self.group = Some(ClientGroup::new(&self.name, target));
        }
        Ok(())
    }

    fn file_set(&mut self, value: &str) -> Result<(), &'static str> {
        const EXPECTED: &str = "specweb99:CONNECTIONS or webstone";
        let base = self.group.as_ref().map_or("/", |group| &group.target.path);
        match value.split_once(':') {
            None if value == "webstone" => self.set = Some(fileset::webstone_mix(base)),
            Some(("specweb99", connections)) => {
                let directories = fileset::specweb99_directories(count(connections)?);
                self.set = Some(fileset::specweb99_mix(base, directories));
                self.per_connection =
                    self.per_connection.or(Some(RequestsPerConnection::Specweb99));
            }
            _ => return Err(EXPECTED),
        }
        Ok(())
    }
}

/// The largest number of connections of an open loop that does not state one.
const OPEN_CONNECTIONS: u32 = 10_000;

fn unknown(key: &str) -> SettingError {
    let keys = SETTINGS.iter().map(|(known, _, _)| (strsim::jaro_winkler(known, key), *known));
    let best = keys.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(likeness, _)| *likeness > 0.75);
    SettingError::Unknown { key: key.to_owned(), similar: best.map(|(_, known)| known) }
}

/// Sets a field of a group, for settings that are one field each.
fn plain(group: &mut ClientGroup, key: &str, value: &str) -> Result<(), &'static str> {
    match key {
        "pause" => group.pause = range(value)?,
        "requests" => {
            let most = value.parse().ok().filter(|most| *most > 0);
            group.requests = Some(most.ok_or("a number, 1 or more")?);
        }
        "method" => group.method = Some(token(value)?),
        "request_body" => group.body = Some(request_body(value)?),
        "header" => group.headers.push(header(value)?),
        "http" => {
            group.version = match value {
                "1.0" => StatedVersion::Http10,
                "1.1" => StatedVersion::Http11,
                "2" => StatedVersion::Http2,
                _ => return Err("1.0, 1.1 or 2"),
            }
        }
        "streams" => group.streams = count(value)?,
        "ca" => group.tls.roots = Some(roots(value)?),
        "insecure" => group.tls.insecure = flag(value)?,
        "tls" => {
            group.tls.versions = match value {
                "auto" => Versions::Both,
                "1.2" => Versions::Only12,
                "1.3" => Versions::Only13,
                _ => return Err("auto, 1.2 or 1.3"),
            }
        }
        "resume" => group.tls.resume = flag(value)?,
        "post_quantum" => group.tls.post_quantum = flag(value)?,
        "pipeline" => group.pipeline = count(value)?,
        "from" => group.from = units::duration(value)?,
        "until" => group.until = Some(units::duration(value)?),
        "timeout" => group.timeout = units::duration(value)?,
        "connect_timeout" => group.connect_timeout = units::duration(value)?,
        "within" => group.within = Some(units::duration(value)?),
        "receive" => group.receive = Some(units::bytes_per_second(value)?),
        "receive_buffer" => group.receive_buffer_bytes = Some(units::size(value)? as usize),
        "source" => group.source.addresses = addresses(value)?,
        "source_ports" => group.source.ports = Some(ports(value)?),
        "status" => group.check.status = Some(value.parse().map_err(|_| "a status such as 200")?),
        "length" => group.check.length_bytes = Some(units::size(value)?),
        "body" => {
            group.check.body = match value {
                "same" => BodyCheck::Same,
                hex => BodyCheck::Crc32(
                    u32::from_str_radix(hex, 16).map_err(|_| "same, or a CRC-32 in hex")?,
                ),
            }
        }
        "hold" => group.hold = units::duration(value)?,
        // `apply` lets only known keys through and handles the others itself
        _ => return Err("another key"),
    }
    Ok(())
}

fn count(value: &str) -> Result<u32, &'static str> {
    value.parse().ok().filter(|count| *count > 0).ok_or("a number, 1 or more")
}

fn flag(value: &str) -> Result<bool, &'static str> {
    value.parse().map_err(|_| "true or false")
}

/// The content of a file of certificates, if they can be read.
fn roots(file: &str) -> Result<Vec<u8>, &'static str> {
    let text = std::fs::read(file).ok();
    text.filter(|text| Roots::of_pem(text).is_some())
        .ok_or("a file that can be read, with certificates in PEM")
}

fn token(value: &str) -> Result<String, &'static str> {
    let sound = !value.is_empty() && value.bytes().all(|b| b.is_ascii_alphabetic());
    if sound { Ok(value.to_owned()) } else { Err("a method such as GET or HEAD") }
}

/// The text itself, or the content of a file.
fn request_body(value: &str) -> Result<Vec<u8>, &'static str> {
    match value.strip_prefix('@') {
        Some(file) => std::fs::read(file).map_err(|_| "a text, or @ and a file that can be read"),
        None => Ok(value.as_bytes().to_vec()),
    }
}

fn header(value: &str) -> Result<String, &'static str> {
    let sound = value.contains(':') && !value.starts_with(':') && !value.contains(['\r', '\n']);
    if sound { Ok(value.to_owned()) } else { Err("NAME: VALUE") }
}

fn range(value: &str) -> Result<RangeInclusive<Duration>, &'static str> {
    let Some((from, to)) = value.split_once('-') else {
        let all = units::duration(value)?;
        return Ok(all..=all);
    };
    let ends = units::duration(from).and_then(|from| Ok(from..=units::duration(to)?));
    let range = ends.map_err(|_| "FROM-TO, two durations such as 500ms-1.5s")?;
    if range.is_empty() { Err("FROM-TO, ascending") } else { Ok(range) }
}

fn steps(value: &str) -> Result<Vec<RateStep>, &'static str> {
    const EXPECTED: &str = "RATE:TIME+RATE:TIME+…";
    let steps = value.split('+').map(|step| {
        let (rate, lasts) = step.split_once(':').ok_or(EXPECTED)?;
        let rate = if rate == "0" { 0.0 } else { units::rate(rate)? };
        Ok(RateStep { rate, lasts: Some(units::duration(lasts)?) })
    });
    steps.collect()
}

fn bursts(value: &str) -> Result<Bursts, &'static str> {
    const EXPECTED: &str = "LEAST-MOST@N/s, such as 50-80@2/s";
    let (length, rate) = value.split_once('@').ok_or(EXPECTED)?;
    let (least, most) = length.split_once('-').unwrap_or((length, length));
    let bursts = Bursts { rate: units::rate(rate)?, least: count(least)?, most: count(most)? };
    if bursts.least <= bursts.most && bursts.most <= 1_000_000 { Ok(bursts) } else { Err(EXPECTED) }
}

fn per_connection(value: &str) -> Result<RequestsPerConnection, &'static str> {
    match value {
        "unlimited" => Ok(RequestsPerConnection::Unlimited),
        "specweb99" => Ok(RequestsPerConnection::Specweb99),
        number => Ok(RequestsPerConnection::Exactly(count(number)?)),
    }
}

fn addresses(value: &str) -> Result<Vec<IpAddr>, &'static str> {
    const EXPECTED: &str = "addresses joined by +, or FIRST-LAST";
    if let Some((first, last)) = value.split_once('-') {
        let first: Ipv4Addr = first.parse().map_err(|_| EXPECTED)?;
        let last: Ipv4Addr = last.parse().map_err(|_| EXPECTED)?;
        let range = u32::from(first)..=u32::from(last);
        if range.is_empty() || range.clone().count() > 65_536 {
            return Err("FIRST-LAST, ascending, at most 65536 addresses");
        }
        return Ok(range.map(|address| IpAddr::V4(address.into())).collect());
    }
    value.split('+').map(|address| address.parse().map_err(|_| EXPECTED)).collect()
}

fn ports(value: &str) -> Result<RangeInclusive<u16>, &'static str> {
    const EXPECTED: &str = "FIRST-LAST, ports from 1 to 65535";
    let (first, last) = value.split_once('-').unwrap_or((value, value));
    let range = first.parse().map_err(|_| EXPECTED)?..=last.parse().map_err(|_| EXPECTED)?;
    if range.is_empty() || *range.start() == 0 { Err(EXPECTED) } else { Ok(range) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::LoadPlan;

    fn group(text: &str) -> Result<ClientGroup, SettingError> {
        let base = LoadTarget::parse("http://127.0.0.1:81/base").unwrap();
        GroupDraft::parse(text, Some(&base)).and_then(GroupDraft::finish)
    }

    #[test]
    fn every_key_of_the_table_is_taken() {
        for (key, _, _) in SETTINGS {
            let result = group(&format!("a:{key}=\u{1}"));
            let unknown = matches!(&result, Err(SettingError::Unknown { .. }));
            let other = matches!(&result, Err(SettingError::Value { expected: "another key", .. }));
            assert!(!unknown && !other, "{key}: {result:?}");
        }
    }

    #[test]
    fn a_rate_opens_the_loop() {
        let open = group("gold:rate=200/s,arrivals=poisson,bursts=50-80@2/s,url=/buy").unwrap();
        let LoadModel::Open { arrivals, connections } = open.load else { panic!("{open:?}") };
        assert!(arrivals.poisson && connections == OPEN_CONNECTIONS);
        assert_eq!(arrivals.bursts, Some(Bursts { rate: 2.0, least: 50, most: 80 }));
        assert_eq!(arrivals.mean_rate(Duration::from_secs(1)), 330.0);
        let closed = group("b:connections=7,think=1s-2s,arrivals=poisson").unwrap();
        assert!(matches!(closed.load, LoadModel::Closed { connections: 7, .. }));
        assert!(matches!(group("c:rate=5,ramp=1s"), Err(SettingError::BothLoops("ramp"))));
    }

    #[test]
    fn a_pause_is_one_time_or_lies_between_two() {
        let ms = |from, to| Duration::from_millis(from)..=Duration::from_millis(to);
        for (text, pause) in [
            ("a:connections=2", ms(10, 10)),
            ("a:pause=0", ms(0, 0)),
            ("a:pause=1s", ms(1000, 1000)),
            ("a:pause=0.5s-1.5s", ms(500, 1500)),
        ] {
            assert_eq!(group(text).unwrap().pause, pause, "{text}");
        }
    }

    #[test]
    fn versions_and_tls_are_of_the_group() {
        let of = |url: &str, text: &str| {
            GroupDraft::parse(&format!("a:{text}"), Some(&LoadTarget::parse(url).unwrap()))
                .and_then(GroupDraft::finish)
                .unwrap()
        };
        let group = of(
            "https://127.0.0.1/",
            "http=2,streams=8,insecure=true,tls=1.2,resume=false,post_quantum=false,header=Host: a.example:8",
        );
        let tls = &group.tls;
        assert_eq!((group.version, group.streams, group.at_once()), (StatedVersion::Http2, 8, 8));
        assert!(
            tls.insecure && !tls.resume && !tls.post_quantum && tls.versions == Versions::Only12
        );
        assert_eq!((group.authority(), group.server_name()), ("a.example:8", "a.example"));
        let said = |url: &str, text: &str| {
            let plan = LoadPlan { groups: vec![of(url, text)], ..LoadPlan::default() };
            plan.check().map_or_else(|error| error.to_string(), |()| String::new())
        };
        let (plain, tls) = ("http://127.0.0.1/", "https://127.0.0.1/");
        assert_eq!(said(plain, "http=2,streams=16384"), "");
        assert_eq!(said(tls, "tls=1.3"), "");
        for (url, text, part) in [
            (plain, "insecure=true", "need an https:// URL"),
            (plain, "resume=false", "need an https:// URL"),
            (plain, "streams=2", "`streams` needs HTTP/2"),
            (tls, "http=2,pipeline=2", "HTTP/2 has `streams`"),
            (plain, "http=2,streams=16385", "at most 16384"),
            (plain, "http=2,set=specweb99:10", "SPECweb99"),
            (plain, "http=2,header=Connection: close", "no fields about the connection"),
        ] {
            assert!(said(url, text).contains(part), "{text}: {}", said(url, text));
        }
    }

    #[test]
    fn authorities_are_read_from_a_file() {
        let file = std::env::temp_dir().join(format!("forebay-ca-{}", std::process::id()));
        std::fs::write(&file, "nothing").unwrap();
        let error = group(&format!("a:ca={}", file.display())).unwrap_err().to_string();
        assert!(
            error.ends_with("expected a file that can be read, with certificates in PEM"),
            "{error}"
        );
        std::fs::remove_file(&file).unwrap();
    }

    #[test]
    fn a_file_set_lies_below_the_url() {
        let group = group("a:set=specweb99:10,url=/files/,per_connection=1").unwrap();
        assert_eq!(&*group.mix.entries()[0].path, "/files/file_set/dir00000/class0_1");
        assert_eq!(group.mix.entries().len(), 31 * 36);
        assert_eq!(group.per_connection, RequestsPerConnection::Exactly(1));
    }

    #[test]
    fn values_may_hold_commas_and_colons() {
        let group =
            group("a:header=Accept: a\\,b,header=X: y,url=http://127.0.0.1:82/c?d=e").unwrap();
        assert_eq!(group.headers, ["Accept: a,b", "X: y"]);
        assert_eq!((group.target.address.port(), &*group.mix.entries()[0].path), (82, "/c?d=e"));
    }

    #[test]
    fn nonsense_is_refused_with_a_reason() {
        for (text, said) in [
            ("a:conections=3", "conections: no such setting; did you mean connections?"),
            ("a:zzz=3", "zzz: no such setting"),
            ("a:rate", "rate: expected KEY=VALUE"),
            ("a:rate=0", "rate=0: expected a rate such as 200/s, more than 0"),
            ("a:source=127.0.0.9-127.0.0.1", "source=127.0.0.9-127.0.0.1: expected FIRST-LAST, "),
            ("a:think=2s-1s", "think=2s-1s: expected FROM-TO, ascending"),
            ("a:pause=2s-1s", "pause=2s-1s: expected FROM-TO, ascending"),
            ("a:pause=1-2s", "pause=1-2s: expected FROM-TO, two durations such as 500ms-1.5s"),
            ("a:pause=10", "pause=10: expected a duration such as 15ms, 1.5s or 2m, did you mean"),
            ("a.b:rate=1", "\"a.b\": a group's name"),
            ("a:header=no colon", "header=no colon: expected NAME: VALUE"),
        ] {
            let error = group(text).unwrap_err().to_string();
            assert!(error.starts_with(said), "{text}: {error}");
        }
        assert!(matches!(GroupDraft::new("a", None).finish(), Err(SettingError::NoTarget)));
    }
}
