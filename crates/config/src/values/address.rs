//! Settings that are addresses: where connections are accepted.

use crate::problems::problem::Wrong;
use crate::problems::quoted::{quote, show_list};
use crate::values::value::{Form, Value, Written, number, wrong};
use forebay_http::cidr;
use forebay_sys::unix_address::{UnixAddress, UnixAddressError};
use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};

/// The reason why a socket that only some may reach has no abstract name.
pub(crate) const HAS_NO_MODE: &str = "an abstract socket has no mode and no owner, so every process of this machine could connect; give a path";

/// Where connections are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// This address. `[::]` is all IPv6 addresses and no IPv4.
    At(SocketAddr),
    /// This port of all addresses: IPv4, and IPv6 if the machine has it.
    All(u16),
    /// A Unix socket.
    Unix(UnixAddress),
}

/// An address, and the protocol there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenEndpoint {
    /// The address.
    pub listen: Listen,
    /// Whether TLS is spoken, and HTTP within it.
    pub tls: bool,
    /// Whether connections are passed on as they are.
    pub raw: bool,
}

impl Listen {
    /// Whether bytes sent there stay within this machine.
    pub fn is_of_this_machine(&self) -> bool {
        match self {
            Listen::At(address) => address.ip().to_canonical().is_loopback(),
            Listen::All(_) => false,
            Listen::Unix(_) => true,
        }
    }

    /// The port of the address; a Unix socket has none.
    pub fn port(&self) -> Option<u16> {
        match self {
            Listen::At(address) => Some(address.port()),
            Listen::All(port) => Some(*port),
            Listen::Unix(_) => None,
        }
    }
}

/// The addresses of the admin listener; none if it is off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdminListen(pub Vec<ListenEndpoint>);

impl Written for Listen {
    const EXPECTED: &'static str =
        "an address and port such as \"127.0.0.1:8080\", \"[::]:80\", \":8080\" or \"unix:/path\"";

    fn read(text: &str) -> Result<Listen, Wrong> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match UnixAddress::parse(path) {
                Ok(address) => Ok(Listen::Unix(address)),
                Err(UnixAddressError::Empty) => Err(Listen::misread(text)),
                Err(error) => Err(Wrong::Unfit { found: quote(text), reason: error.to_string() }),
            };
        }
        if let Some((address, port)) = without_interface_number(text) {
            let reason = format!(
                "write the interface as its number, which \"ip link\" shows: \"[{address}%2]:{port}\"; or \":{port}\" \
                 for all addresses"
            );
            return Err(Wrong::Unfit { found: quote(text), reason });
        }
        let all = text.strip_prefix(':').and_then(number).and_then(|port| port.try_into().ok());
        match (all, text.parse()) {
            (Some(port), _) => Ok(Listen::All(port)),
            (None, Ok(address)) => Ok(Listen::At(cidr::canonical(address))),
            (None, Err(_)) => Err(Listen::misread(text)),
        }
    }
    fn text(&self) -> String {
        self.to_string()
    }
    fn guess(text: &str) -> Option<String> {
        let port = |text: &str| text.parse::<u16>().is_ok();
        let (host, end) = text.rsplit_once(':').unwrap_or((text, ""));
        match host {
            _ if port(text) => Some(format!(":{text}")),
            _ if text.starts_with('/') => Some(format!("unix:{text}")),
            "*" if port(end) => Some(format!(":{end}")),
            "localhost" if port(end) => Some(format!("127.0.0.1:{end}")),
            _ if text.parse::<std::net::Ipv4Addr>().is_ok() => Some(format!("{text}:80")),
            _ if text.parse::<Ipv6Addr>().is_ok() => Some(format!("[{text}]:80")),
            _ => None,
        }
    }
    /// Whether the address may stand in a list twice: with port 0, which is another port each time.
    fn may_repeat(&self) -> bool {
        matches!(self, Listen::All(0))
    }
}

/// Address and port of a text such as `[fe80::1%eth0]:80`: a number for the interface is read as part of the address, a
/// name means something on one machine alone. Without either the kernel takes no link-local address (EINVAL).
fn without_interface_number(text: &str) -> Option<(Ipv6Addr, u16)> {
    let (host, port) = text.strip_prefix('[')?.rsplit_once("]:")?;
    let (address, interface) = host.split_once('%').unwrap_or((host, ""));
    let (address, port) = (address.parse::<Ipv6Addr>().ok()?, port.parse().ok()?);
    let is_number = !interface.is_empty() && interface.bytes().all(|byte| byte.is_ascii_digit());
    let is_without = host.contains('%') || address.is_unicast_link_local();
    (is_without && !is_number).then_some((address, port))
}

impl Written for ListenEndpoint {
    const EXPECTED: &'static str = "an address and port such as \"127.0.0.1:8080\", \"[::]:80\", \":8080\" or \"unix:/path\"; with \"https://\" before it for TLS, with \"tcp://\" to pass connections on";
    const MAY_BE_EMPTY: bool = false;

    fn read(text: &str) -> Result<ListenEndpoint, Wrong> {
        let without = |scheme: &str| text.strip_prefix(scheme);
        let (tls, raw) = (without("https://"), without("tcp://"));
        let rest = tls.or(raw).or_else(|| without("http://")).unwrap_or(text);
        match Listen::read(rest) {
            Ok(listen) => Ok(ListenEndpoint { listen, tls: tls.is_some(), raw: raw.is_some() }),
            Err(unfit @ Wrong::Unfit { .. }) => Err(unfit),
            Err(_) => Err(ListenEndpoint::misread(text)),
        }
    }
    fn text(&self) -> String {
        self.to_string()
    }
    fn guess(text: &str) -> Option<String> {
        let scheme = ["https://", "tcp://"].into_iter().find(|scheme| text.starts_with(scheme));
        let Some(scheme) = scheme else { return Listen::guess(text) };
        let rest = &text[scheme.len()..];
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let near = Listen::guess(rest).or(Listen::read(rest).ok().map(|_| rest.to_owned()));
        near.map(|near| format!("{scheme}{near}"))
    }
    fn may_repeat(&self) -> bool {
        self.listen.may_repeat()
    }
}

impl fmt::Display for ListenEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match (self.tls, self.raw) {
            (true, _) => "https://",
            (false, true) => "tcp://",
            (false, false) => "",
        };
        write!(f, "{scheme}{}", self.listen)
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::At(address) => write!(f, "{address}"),
            Listen::All(port) => write!(f, ":{port}"),
            Listen::Unix(path) => write!(f, "unix:{path}"),
        }
    }
}

impl Value for AdminListen {
    fn form(&self) -> Form {
        Form::TextOrList
    }
    fn expected(&self) -> &'static str {
        "an address and port such as \"127.0.0.1:9090\" or \":9090\", with \"https://\" before it for \
         TLS, \"unix:/path\", or \"off\""
    }
    fn set(&mut self, text: &str) -> Result<(), Wrong> {
        if text == "off" && self.0.is_empty() {
            return Ok(());
        }
        match ListenEndpoint::read(text) {
            Ok(ListenEndpoint { listen: Listen::Unix(UnixAddress::Abstract(_)), .. }) => {
                return Err(Wrong::Unfit { found: quote(text), reason: HAS_NO_MODE.to_owned() });
            }
            Err(unfit @ Wrong::Unfit { .. }) => return Err(unfit),
            read => read.map_err(|_| wrong(self, text))?,
        };
        self.0.set(text)
    }
    fn show(&self) -> String {
        match &self.0[..] {
            [] => quote("off"),
            [only] => quote(&only.to_string()),
            endpoints => show_list(endpoints.iter().map(ListenEndpoint::to_string)),
        }
    }
    fn guess(&self, text: &str) -> Option<String> {
        let port = text.strip_prefix("localhost:").unwrap_or(text);
        match port.parse::<u16>() {
            Ok(port) => Some(format!("127.0.0.1:{port}")),
            Err(_) => ListenEndpoint::guess(text),
        }
    }
    fn clear(&mut self) {
        self.0.clear();
    }
}
