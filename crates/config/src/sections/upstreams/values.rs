//! The types of settings of routes to applications: addresses, keys, paths, statuses, words.

use crate::problems::problem::Wrong;
use crate::problems::quoted::quote;
use crate::values::choice::Keyword;
use crate::values::value::{Form, TableEntry, TableOf, Value, Written, wrong};
use crate::values::written::written;
use forebay_http::field::FieldName;
use forebay_site::rules::ScriptSuffix;
use forebay_tls::TlsClient;
use forebay_upstream::settings::{
    AddressError, Balance, BalanceKey, ConnectionAuth, Errors, HttpUpstream, ProxyProtocol,
    UpstreamAddress, WhenDown,
};
use forebay_upstream::target::{Ambiguous, Base};

impl Keyword for Balance {
    const EXPECTED: &'static str = "\"least\", \"round-robin\", \"two-choices\" or \"hash\"";
    const WORDS: &'static [&'static str] = &["least", "round-robin", "two-choices", "hash"];
    const MEANINGS: &'static [Balance] =
        &[Balance::Least, Balance::RoundRobin, Balance::TwoChoices, Balance::Hash];
}

impl Keyword for Errors {
    const EXPECTED: &'static str = "\"theirs\" or \"ours\"";
    const WORDS: &'static [&'static str] = &["theirs", "ours"];
    const MEANINGS: &'static [Errors] = &[Errors::Theirs, Errors::Ours];
}

impl Keyword for WhenDown {
    const EXPECTED: &'static str = "\"fail\" or \"wait\"";
    const WORDS: &'static [&'static str] = &["fail", "wait"];
    const MEANINGS: &'static [WhenDown] = &[WhenDown::Fail, WhenDown::Wait];
}

impl Keyword for Ambiguous {
    const EXPECTED: &'static str = "\"refuse\", \"normalise\" or \"pass\"";
    const WORDS: &'static [&'static str] = &["refuse", "normalise", "pass"];
    const MEANINGS: &'static [Ambiguous] =
        &[Ambiguous::Refuse, Ambiguous::Normalise, Ambiguous::Pass];
}

/// Whether addresses in answers are rewritten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Redirects {
    /// The addresses lead back to this server.
    #[default]
    Rewrite,
    /// The addresses stay as they are.
    Keep,
}

impl Keyword for Redirects {
    const EXPECTED: &'static str = "\"rewrite\" or \"keep\"";
    const WORDS: &'static [&'static str] = &["rewrite", "keep"];
    const MEANINGS: &'static [Redirects] = &[Redirects::Rewrite, Redirects::Keep];
}

/// The address of a resource that an application gets in `Destination` and `If`: the client's or its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Destinations {
    /// The client's.
    #[default]
    Client,
    /// The application's own.
    Upstream,
}

impl Keyword for Destinations {
    const EXPECTED: &'static str = "\"client\" or \"upstream\"";
    const WORDS: &'static [&'static str] = &["client", "upstream"];
    const MEANINGS: &'static [Destinations] = &[Destinations::Client, Destinations::Upstream];
}

impl Keyword for ConnectionAuth {
    const EXPECTED: &'static str = "\"bind\", \"request\" or \"refuse\"";
    const WORDS: &'static [&'static str] = &["bind", "request", "refuse"];
    const MEANINGS: &'static [ConnectionAuth] =
        &[ConnectionAuth::Bind, ConnectionAuth::Request, ConnectionAuth::Refuse];
}

/// The version of the PROXY protocol by which an upstream gets the client's address before anything else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProxyProtocolVersion {
    /// Version 1, a line of text.
    #[default]
    V1,
    /// Version 2, in binary.
    V2,
}

impl Keyword for ProxyProtocolVersion {
    const EXPECTED: &'static str = "\"v1\" or \"v2\"";
    const WORDS: &'static [&'static str] = &["v1", "v2"];
    const MEANINGS: &'static [ProxyProtocolVersion] =
        &[ProxyProtocolVersion::V1, ProxyProtocolVersion::V2];
}

impl From<ProxyProtocolVersion> for ProxyProtocol {
    fn from(preface: ProxyProtocolVersion) -> ProxyProtocol {
        match preface {
            ProxyProtocolVersion::V1 => ProxyProtocol::V1,
            ProxyProtocolVersion::V2 => ProxyProtocol::V2,
        }
    }
}

/// The part of a request whose hash chooses the upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HashKey(pub BalanceKey);

impl Value for HashKey {
    fn form(&self) -> Form {
        Form::Text
    }
    fn expected(&self) -> &'static str {
        "\"client\", \"url\" or a cookie such as \"cookie=session\""
    }
    fn set(&mut self, text: &str) -> Result<(), Wrong> {
        self.0 = match (text, text.strip_prefix("cookie=")) {
            ("client", _) => BalanceKey::Client,
            ("url", _) => BalanceKey::Url,
            (_, Some(name)) if FieldName::parse(name).is_ok() => BalanceKey::Cookie(name.into()),
            _ => return Err(wrong(self, text)),
        };
        Ok(())
    }
    fn show(&self) -> String {
        match &self.0 {
            BalanceKey::Client => quote("client"),
            BalanceKey::Url => quote("url"),
            BalanceKey::Cookie(name) => quote(&format!("cookie={name}")),
        }
    }
    fn guess(&self, text: &str) -> Option<String> {
        match text {
            "ip" | "source" | "client_ip" | "ip_hash" => Some("client".to_owned()),
            "uri" | "path" | "target" => Some("url".to_owned()),
            _ => None,
        }
    }
}

/// An upstream that speaks HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpAddress(pub HttpUpstream);

impl Written for HttpAddress {
    const EXPECTED: &'static str =
        "an application such as \"http://10.0.0.1:9000\" or \"unix:/run/app.sock\"";
    const MAY_BE_EMPTY: bool = false;
    fn read(text: &str) -> Result<HttpAddress, Wrong> {
        HttpUpstream::parse(text).map(HttpAddress).map_err(|error| match Self::guess(text) {
            Some(_) => Self::misread(text),
            None => Wrong::Unfit { found: quote(text), reason: error.to_string() },
        })
    }
    fn text(&self) -> String {
        self.0.to_string()
    }
    fn guess(text: &str) -> Option<String> {
        if text.starts_with('/') {
            return Some(format!("unix:{text}"));
        }
        if let Some(bare) = text.strip_suffix('/')
            && HttpUpstream::parse(bare).is_ok()
        {
            return Some(bare.to_owned());
        }
        let guess = format!("http://{text}");
        let is_bare = UpstreamAddress::http(text) == Err(AddressError::Scheme);
        (is_bare && UpstreamAddress::http(&guess).is_ok()).then_some(guess)
    }
}

/// A name or an address that a certificate is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateName(pub Box<str>);

impl Written for CertificateName {
    const EXPECTED: &'static str = "a name or an address such as \"app.internal\"";
    fn read(text: &str) -> Result<CertificateName, Wrong> {
        match TlsClient::may_name(text) {
            true => Ok(CertificateName(text.to_ascii_lowercase().into())),
            false => Err(Self::misread(text)),
        }
    }
    fn text(&self) -> String {
        self.0.to_string()
    }
    fn guess(text: &str) -> Option<String> {
        let bare = text.strip_prefix("https://").unwrap_or(text);
        let bare = bare.split(['/', ':']).next()?;
        (bare != text && TlsClient::may_name(bare)).then(|| bare.to_owned())
    }
}

/// The oldest version of TLS that is accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OldestTls {
    /// TLS 1.2
    #[default]
    Tls12,
    /// TLS 1.3
    Tls13,
}

impl Keyword for OldestTls {
    const EXPECTED: &'static str = "\"1.2\" or \"1.3\"";
    const WORDS: &'static [&'static str] = &["1.2", "1.3"];
    const MEANINGS: &'static [OldestTls] = &[OldestTls::Tls12, OldestTls::Tls13];
}

/// An upstream that speaks FastCGI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastCgiAddress(pub UpstreamAddress);

impl Written for FastCgiAddress {
    const EXPECTED: &'static str =
        "an application such as \"unix:/run/php/php-fpm.sock\" or \"127.0.0.1:9000\"";
    const MAY_BE_EMPTY: bool = false;
    fn read(text: &str) -> Result<FastCgiAddress, Wrong> {
        UpstreamAddress::fastcgi(text).map(FastCgiAddress).map_err(|error| {
            match Self::guess(text) {
                Some(_) => Self::misread(text),
                None => Wrong::Unfit { found: quote(text), reason: error.to_string() },
            }
        })
    }
    fn text(&self) -> String {
        match &self.0 {
            UpstreamAddress::Service(service) => format!("srv://{}", service.name),
            address => address.to_string(),
        }
    }
    fn guess(text: &str) -> Option<String> {
        if text.starts_with('/') {
            return Some(format!("unix:{text}"));
        }
        let schemes = ["fastcgi://", "http://", "tcp://"];
        let bare = schemes.iter().find_map(|scheme| text.strip_prefix(scheme))?;
        UpstreamAddress::fastcgi(bare).is_ok().then(|| bare.to_owned())
    }
}

/// A program that receives sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiverAddress(pub UpstreamAddress);

impl Written for ReceiverAddress {
    const EXPECTED: &'static str = "a Unix socket such as \"unix:/run/app/receiver.sock\"";
    const MAY_BE_EMPTY: bool = false;
    fn read(text: &str) -> Result<ReceiverAddress, Wrong> {
        if !text.starts_with("unix:") && Self::guess(text).is_none() {
            let reason =
                "sockets are given over a Unix socket of the same machine: unix:/…".to_owned();
            return Err(Wrong::Unfit { found: quote(text), reason });
        }
        UpstreamAddress::fastcgi(text).map(ReceiverAddress).map_err(|error| {
            match Self::guess(text) {
                Some(_) => Self::misread(text),
                None => Wrong::Unfit { found: quote(text), reason: error.to_string() },
            }
        })
    }
    fn text(&self) -> String {
        self.0.to_string()
    }
    fn guess(text: &str) -> Option<String> {
        text.starts_with('/').then(|| format!("unix:{text}"))
    }
}

written!(ScriptSuffix, "an ending such as \".php\"");

/// Variables for scripts.
pub(crate) type Variables = TableOf<(Box<str>, Box<str>)>;

impl TableEntry for (Box<str>, Box<str>) {
    const EXPECTED: &'static str = "variables with values such as { APP_ENV = \"production\" }";
    fn read(name: &str, text: &str) -> Result<(Box<str>, Box<str>), Wrong> {
        let unfit = |found: &str, reason: &str| {
            Err(Wrong::Unfit { found: quote(found), reason: reason.to_owned() })
        };
        if name.is_empty() || name.chars().any(|c| c.is_control() || c == '=') {
            return unfit(name, "the name of a variable has no control characters and no =");
        }
        // libraries take it for the proxy of their own requests, some of them in lower case
        if name.eq_ignore_ascii_case("HTTP_PROXY") {
            return unfit(name, "it would send the requests that a script makes through a proxy");
        }
        if text.chars().any(char::is_control) {
            return unfit(text, "a control character cannot be in a variable");
        }
        Ok((name.into(), text.into()))
    }
    fn pair(&self) -> (String, &str) {
        (self.0.to_string(), &self.1)
    }
}

written!(Base, "the beginning of paths such as \"/api\"");

/// The host that an upstream gets with requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToldHost(pub forebay_upstream::request::HostSent);

impl Value for ToldHost {
    fn form(&self) -> Form {
        Form::Text
    }
    fn expected(&self) -> &'static str {
        "\"client\", \"upstream\", or a host such as \"app.internal\", perhaps with a port"
    }
    fn set(&mut self, text: &str) -> Result<(), Wrong> {
        use forebay_upstream::request::HostSent;
        let is_host = || {
            // a host as an address would have it, with or without a port
            text.is_ascii() && UpstreamAddress::http(&format!("http://{text}")).is_ok()
        };
        self.0 = match text {
            "client" => HostSent::Client,
            "upstream" => HostSent::Upstream,
            // words of other servers for these hosts are refused, and not taken for a host's name
            "$host" | "$http_host" | "preserve" | "$proxy_host" => return Err(wrong(self, text)),
            name if is_host() => HostSent::Named(name.into()),
            _ => return Err(wrong(self, text)),
        };
        Ok(())
    }
    fn show(&self) -> String {
        use forebay_upstream::request::HostSent;
        match &self.0 {
            HostSent::Client => quote("client"),
            HostSent::Upstream => quote("upstream"),
            HostSent::Named(name) => quote(name),
        }
    }
    fn guess(&self, text: &str) -> Option<String> {
        match text {
            "$host" | "$http_host" | "preserve" => Some("client".to_owned()),
            "$proxy_host" => Some("upstream".to_owned()),
            _ => None,
        }
    }
}

/// The path of a health check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckPath(pub Box<str>);

impl Written for CheckPath {
    const EXPECTED: &'static str = "a path with or without a query such as \"/health\"";
    fn read(text: &str) -> Result<CheckPath, Wrong> {
        let is_good = text.starts_with('/')
            && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
        if is_good { Ok(CheckPath(text.into())) } else { Err(CheckPath::misread(text)) }
    }
    fn text(&self) -> String {
        self.0.to_string()
    }
}

/// Statuses: `200`, `2xx` or `200-399`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statuses(pub u16, pub u16);

impl Written for Statuses {
    const EXPECTED: &'static str = "statuses such as \"200\", \"2xx\" or \"200-399\"";
    const MAY_BE_EMPTY: bool = false;
    fn read(text: &str) -> Result<Statuses, Wrong> {
        let status = |text: &str| {
            let is_one = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|status| is_one && (100..600).contains(status))
        };
        let found = match (text.strip_suffix("xx"), text.split_once('-')) {
            (Some(first), _) => {
                status(&format!("{first}00")).map(|first| Statuses(first, first + 99))
            }
            (_, Some((least, most))) => status(least)
                .zip(status(most))
                .filter(|(least, most)| least < most)
                .map(|(least, most)| Statuses(least, most)),
            _ => status(text).map(|one| Statuses(one, one)),
        };
        found.ok_or_else(|| Statuses::misread(text))
    }
    fn text(&self) -> String {
        match *self {
            Statuses(one, other) if one == other => one.to_string(),
            Statuses(least, most) if least % 100 == 0 && most == least + 99 => {
                format!("{}xx", least / 100)
            }
            Statuses(least, most) => format!("{least}-{most}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_read_as_they_are_shown() {
        for text in ["200", "2xx", "200-399", "100-101", "5xx"] {
            assert_eq!(Statuses::read(text).map(|found| found.text()).ok().as_deref(), Some(text));
        }
        assert_eq!(Statuses::read("200-299").unwrap().text(), "2xx");
        for text in ["", "xx", "6xx", "20", "2000", "300-200", "200-200", "+20", "2x"] {
            assert!(Statuses::read(text).is_err(), "{text}");
        }
    }
}
