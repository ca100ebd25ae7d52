//! The collector of spans, and the choice of requests that are recorded.

use crate::Percent;
use crate::TraceParent;
use crate::problems::problem::Wrong;
use crate::problems::quoted::quote;
use crate::values::value::Written;
use forebay_upstream::settings::{AddressError, HttpUpstream, UpstreamAddress};
use std::fmt;
use std::str::FromStr;

/// The path at which collectors take spans by OTLP over HTTP.
const PATH: &str = "/v1/traces";

/// The collector of spans, and the choice of requests that are recorded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TracesConfig {
    /// `traces.to`
    pub to: Option<CollectorAddress>,
    /// `traces.rate`
    pub rate: Percent,
    /// `traces.parent`
    pub parent: TraceParent,
    /// `traces.service`
    pub service: Option<ServiceName>,
}

impl TracesConfig {
    /// The name of the service.
    pub fn service(&self) -> &str {
        self.service.as_ref().map_or("forebay", |name| &name.0)
    }
}

/// A collector that takes spans by OTLP over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorAddress {
    /// The address of the collector.
    pub address: UpstreamAddress,
    /// The path that spans are posted to.
    pub path: Box<str>,
}

impl CollectorAddress {
    /// Whether spans leave this machine on the way to the collector.
    pub fn is_far(&self) -> bool {
        match &self.address {
            UpstreamAddress::Socket(address) => !address.ip().is_loopback(),
            UpstreamAddress::Name { host, .. } => &**host != "localhost",
            UpstreamAddress::Service(_) => true,
            UpstreamAddress::Unix(_) | UpstreamAddress::Launched(_) => false,
        }
    }

    /// Whether the address is a name that must be looked up.
    pub fn is_name(&self) -> bool {
        matches!(self.address, UpstreamAddress::Name { .. })
    }
}

/// Why a text is no address of a collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectorError {
    /// The host and port are no address.
    Address(AddressError),
    /// The scheme asks for TLS.
    Tls,
    /// The name asks for service records (SRV).
    Service,
    /// The text behind the host is no path that can be sent as it is.
    Path,
}

impl fmt::Display for CollectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CollectorError::Address(error) => error.fmt(f),
            CollectorError::Tls => f.write_str(
                "spans are not sent through TLS; run a collector on this machine, which sends them on",
            ),
            CollectorError::Service => f.write_str(
                "spans are sent to one collector; name its host and port, not records of a service",
            ),
            CollectorError::Path => {
                f.write_str("behind the host stands a path of visible ASCII, without ? and #")
            }
        }
    }
}

impl std::error::Error for CollectorError {}

impl FromStr for CollectorAddress {
    type Err = CollectorError;
    fn from_str(text: &str) -> Result<CollectorAddress, CollectorError> {
        let (server, path) = match text.split_once("://") {
            Some((scheme, rest)) => {
                let end = rest.find('/').map_or(text.len(), |at| scheme.len() + 3 + at);
                text.split_at(end)
            }
            None => (text, ""),
        };
        let HttpUpstream { address, is_tls } =
            HttpUpstream::parse(server).map_err(CollectorError::Address)?;
        if is_tls {
            return Err(CollectorError::Tls);
        }
        if let UpstreamAddress::Service(_) = address {
            return Err(CollectorError::Service);
        }
        let is_path = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#');
        if !path.bytes().all(is_path) {
            return Err(CollectorError::Path);
        }
        let path = if matches!(path, "" | "/") { PATH } else { path };
        Ok(CollectorAddress { address, path: path.into() })
    }
}

impl fmt::Display for CollectorAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CollectorAddress { address, path } = self;
        match address {
            UpstreamAddress::Unix(_) | UpstreamAddress::Launched(_) => address.fmt(f),
            _ => write!(f, "http://{address}{path}"),
        }
    }
}

impl Written for CollectorAddress {
    const EXPECTED: &'static str =
        "the address of a collector, such as \"http://127.0.0.1:4318\" or \"unix:/run/otel.sock\"";
    fn read(text: &str) -> Result<CollectorAddress, Wrong> {
        let unfit =
            |error: CollectorError| Wrong::Unfit { found: quote(text), reason: error.to_string() };
        text.parse().map_err(unfit)
    }
    fn text(&self) -> String {
        self.to_string()
    }
}

/// The name of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceName(String);

impl Written for ServiceName {
    const EXPECTED: &'static str = "up to 64 characters, such as \"shop-front\"";
    fn read(text: &str) -> Result<ServiceName, Wrong> {
        let count = text.chars().count();
        if !(1..=64).contains(&count) || text.chars().any(char::is_control) {
            return Err(ServiceName::misread(text));
        }
        Ok(ServiceName(text.to_owned()))
    }
    fn text(&self) -> String {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_collectors() {
        for (text, expected) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("http://127.0.0.1:4318/", "http://127.0.0.1:4318/v1/traces"),
            ("http://[::1]:4318/otlp/v1/traces", "http://[::1]:4318/otlp/v1/traces"),
            ("http://collector", "http://collector:80/v1/traces"),
            ("unix:/run/otel.sock", "unix:/run/otel.sock"),
        ] {
            let read: CollectorAddress = text.parse().unwrap();
            assert_eq!(read.to_string(), expected);
            assert_eq!(read.to_string().parse(), Ok(read));
        }
        for (text, expected) in [
            ("https://127.0.0.1:4318", CollectorError::Tls),
            ("http://127.0.0.1:4318/a?b", CollectorError::Path),
            ("http://127.0.0.1:4318/a b", CollectorError::Path),
            ("127.0.0.1:4318", CollectorError::Address(AddressError::Scheme)),
            ("http://", CollectorError::Address(AddressError::Form)),
        ] {
            assert_eq!(text.parse::<CollectorAddress>(), Err(expected), "{text}");
            assert!(!expected.to_string().is_empty());
        }
        let is_far = |text: &str| text.parse::<CollectorAddress>().unwrap().is_far();
        assert!(
            !is_far("http://127.0.0.1:4318") && !is_far("unix:/a") && !is_far("http://localhost")
        );
        assert!(is_far("http://10.0.0.1:4318") && is_far("http://collector"));
    }
}
