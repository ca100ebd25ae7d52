//! Settings that are addresses: where connections are accepted.

use super::problem::Wrong;
use super::value::{Form, Value, number, quote, show_list, wrong};
use std::fmt;
use std::net::SocketAddr;

/// Where connections are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    /// At this address. `[::]` is all IPv6 addresses and no IPv4.
    At(SocketAddr),
    /// At this port of all addresses: IPv4, and IPv6 if the machine has it.
    All(u16),
}

/// Where the admin listener is, if it is on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loopback(pub Option<SocketAddr>);

impl Value for Vec<Listen> {
    fn form(&self) -> Form {
        Form::List
    }
    fn expected(&self) -> &'static str {
        "an address and port such as \"127.0.0.1:8080\", \"[::]:80\" or \":8080\""
    }
    fn set(&mut self, text: &str) -> Result<(), Wrong> {
        let all = text.strip_prefix(':').and_then(number).and_then(|port| port.try_into().ok());
        let item = match (all, text.parse()) {
            (Some(port), _) => Listen::All(port),
            (None, Ok(address)) => Listen::At(address),
            (None, Err(_)) => return Err(wrong(self, text)),
        };
        // port 0 is another port each time
        if self.contains(&item) && !matches!(item, Listen::All(0)) {
            return Err(Wrong::Repeated { found: text.to_owned() });
        }
        self.push(item);
        Ok(())
    }
    fn show(&self) -> String {
        show_list(self.iter().map(Listen::to_string))
    }
    fn guess(&self, text: &str) -> Option<String> {
        let port = |text: &str| text.parse::<u16>().is_ok();
        let (host, end) = text.rsplit_once(':').unwrap_or((text, ""));
        match host {
            _ if port(text) => Some(format!(":{text}")),
            "*" if port(end) => Some(format!(":{end}")),
            "localhost" if port(end) => Some(format!("127.0.0.1:{end}")),
            _ if text.parse::<std::net::Ipv4Addr>().is_ok() => Some(format!("{text}:80")),
            _ if text.parse::<std::net::Ipv6Addr>().is_ok() => Some(format!("[{text}]:80")),
            _ => None,
        }
    }
    fn clear(&mut self) {
        Vec::clear(self);
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::At(address) => write!(f, "{address}"),
            Listen::All(port) => write!(f, ":{port}"),
        }
    }
}

impl Value for Loopback {
    fn form(&self) -> Form {
        Form::Text
    }
    fn expected(&self) -> &'static str {
        "a loopback address and port such as \"127.0.0.1:9090\", or \"off\""
    }
    fn set(&mut self, text: &str) -> Result<(), Wrong> {
        *self = Loopback(match text.parse::<SocketAddr>() {
            Ok(address) if address.ip().is_loopback() => Some(address),
            Ok(_) => return Err(Wrong::NotLoopback { found: text.to_owned() }),
            Err(_) if text == "off" => None,
            Err(_) => return Err(wrong(self, text)),
        });
        Ok(())
    }
    fn show(&self) -> String {
        quote(&self.0.map_or("off".to_owned(), |address| address.to_string()))
    }
    fn guess(&self, text: &str) -> Option<String> {
        let port = text.strip_prefix("localhost:").or(text.strip_prefix(':')).unwrap_or(text);
        port.parse::<u16>().is_ok().then(|| format!("127.0.0.1:{port}"))
    }
}
