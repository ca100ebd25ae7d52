//! `forebay policy explain`: which rule decides what about a connection and a request, and why. An
//! explanation needs a policy, but no running server.

use forebay_config::{Config, Listen};
use forebay_conn::{Peer, Request};
use forebay_handler::client::TrustedProxies;
use forebay_handler::identity::{Keys, KeysError, PresentedToken, Remembered, Verifier};
use forebay_handler::policy::Facts;
use forebay_http::head::{Head, HeadError, Lines, ParsedHead};
use forebay_http::path::NormalPath;
use forebay_policy::facts::ConnectionFacts;
use forebay_policy::rule::Action;
use forebay_policy::{Explanation, FactsNeeded, Policy};
use forebay_sys::clock;
use std::fmt::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// A connection and a request to explain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The address of the client: port 0 if the port does not matter, `0.0.0.0:0` for
    /// a client at a Unix socket.
    pub client: SocketAddr,
    /// The address that the client connects to; `None` for the first listener.
    pub local: Option<SocketAddr>,
    /// Whether to assume overload.
    pub overload: bool,
    /// Whether every rule is shown, or only those that matter.
    pub all: bool,
    /// The head of the request, with the empty line.
    pub head: String,
}

/// The reason why there is no explanation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExplainError {
    /// The question cannot be read.
    Question,
    /// The head is incomplete.
    Partial,
    /// The server would refuse the head under any rules.
    Head(HeadError),
}

impl fmt::Display for ExplainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExplainError::Question => f.write_str("the question cannot be read"),
            ExplainError::Partial => f.write_str("the head of the request is not whole"),
            ExplainError::Head(error) => write!(
                f,
                "no rule is asked: the server answers this head with {} ({})",
                error.status(),
                error.reason()
            ),
        }
    }
}

impl std::error::Error for ExplainError {}

/// The question as it is sent to a server.
impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let local = self.local.map_or("-".to_owned(), |local| local.to_string());
        let when = if self.overload { "overload" } else { "always" };
        let rules = if self.all { "all" } else { "brief" };
        write!(f, "policy explain {} {local} {when} {rules}\n{}", self.client, self.head)
    }
}

impl Question {
    /// Reads the arguments of `policy explain `.
    ///
    /// # Errors
    /// [`ExplainError::Question`] if the text is not in the form in which a question is shown.
    pub fn parse(text: &str) -> Result<Question, ExplainError> {
        let read = || {
            let (line, head) = text.split_once('\n')?;
            let mut words = line.split(' ');
            let client = words.next()?.parse().ok()?;
            let local = match words.next()? {
                "-" => None,
                address => Some(address.parse().ok()?),
            };
            let overload = match words.next()? {
                "overload" => true,
                "always" => false,
                _ => return None,
            };
            let all = match words.next()? {
                "all" => true,
                "brief" => false,
                _ => return None,
            };
            let head = head.to_owned();
            words.next().is_none().then_some(Question { client, local, overload, all, head })
        };
        read().ok_or(ExplainError::Question)
    }

    /// Explains what `policy`, the policy of `config`, decides: first about the connection, then
    /// about the request.
    ///
    /// # Errors
    /// When there is no valid request to which rules could apply.
    pub fn explain(&self, policy: &Policy, config: &Config) -> Result<String, ExplainError> {
        // the end of the empty line is lost on the way through the socket
        let bytes = format!("{}\r\n\r\n", self.head.trim_end_matches(['\r', '\n']));
        let mut lines = Lines::new();
        let head = match Head::parse(bytes.as_bytes(), &mut lines, &config.limits.head()) {
            Ok(ParsedHead::Complete(head)) => head,
            Ok(ParsedHead::Partial) => return Err(ExplainError::Partial),
            Err(error) => return Err(ExplainError::Head(error)),
        };
        let local = self.local.unwrap_or_else(|| first_local(config, self.client));
        let ends = ConnectionFacts { client: self.client, local };
        let mut text = String::new();
        // writing into a string does not fail
        let _ = self.write(policy, config, ends, &head, &mut text);
        Ok(text)
    }

    fn write(
        &self,
        policy: &Policy,
        config: &Config,
        ends: ConnectionFacts,
        head: &Head<'_>,
        f: &mut String,
    ) -> fmt::Result {
        let load = if self.overload { "overload" } else { "normal (--overload: what holds then)" };
        let assumed = if self.local.is_some() { "" } else { " (assumed: --local)" };
        writeln!(
            f,
            "connection from {}, to {}{assumed}",
            ShownAddress(ends.client),
            ShownAddress(ends.local)
        )?;
        writeln!(f, "load         {load}")?;
        let rules = if self.all { "all" } else { "those that matter (--all: every one)" };
        writeln!(f, "rules        {rules}")?;
        let connection = policy.explain_connection(&ends, self.overload);
        writeln!(f, "{}", self.told(&connection))?;
        let action = connection.decisions.action.and_then(|rule| policy.rules().get(rule as usize));
        let action = action.and_then(|rule| rule.action);
        if let Some(Action::Reject(_) | Action::Reset | Action::Drop) = action {
            return writeln!(f, "no request is read on this connection");
        }
        let trusted = TrustedProxies::of(config);
        let peer = Peer::new(ends.client, ends.local);
        let mut facts = Facts::default();
        let all = FactsNeeded { host: true, path: true, fields: true, ..policy.needs() };
        let normal_path = NormalPath::default();
        let request = Request::new(head, &peer, &normal_path);
        let (normal, judged) = (request.path(), judged_paths(config, &request));
        let path = judged.first().map(Vec::as_slice).or(normal.as_deref().ok());
        let (verifier, mut remembered) = (verifier(config, policy), Remembered::default());
        let mut facts = facts.of(all, &request, path, &trusted);
        let (by, mut brought) = (facts.ends.client.ip(), PresentedToken::Nothing);
        if let Some(Ok(verifier)) = &verifier {
            (facts.identity, brought) = verifier.identify(head, by, unix_s(), &mut remembered);
        }
        let text = String::from_utf8_lossy;
        let client = facts.ends.client;
        let by = match client == ends.client {
            true => String::new(),
            false => format!(" ({} of a trusted proxy)", trusted.client_field()),
        };
        writeln!(
            f,
            "request {} {} from {}{by}",
            head.method_text,
            text(head.target),
            ShownAddress(client)
        )?;
        let host = text(facts.host);
        let shown = if host.is_empty() { "none" } else { &host };
        writeln!(f, "host         {shown}{}", NoSite { config, host: &host })?;
        write!(f, "path         {}", text(facts.path).escape_debug())?;
        match &normal {
            _ if judged.len() > 1 => {
                writeln!(f, " (and read in another way, as the application may:)")?;
                for other in &judged[1..] {
                    writeln!(f, "or           {}", text(other).escape_debug())?;
                }
            }
            Err(error) if head.path.starts_with(b"/") => {
                writeln!(f, " (answered with {}: {})", error.status(), error.reason())?;
            }
            _ if !judged.is_empty() => writeln!(f, " (without parameters, for applications)")?,
            _ => writeln!(f)?,
        }
        match (verifier.as_ref(), facts.identity, brought) {
            (None, ..) => {}
            (Some(Err(error)), ..) => writeln!(f, "identity     unknown: the keys {error}")?,
            (_, Some(name), _) => writeln!(f, "identity     {name}")?,
            (_, None, PresentedToken::Rejected(why)) => writeln!(f, "identity     none: {why}")?,
            (_, None, _) => writeln!(f, "identity     none: it sends no such cookie")?,
        }
        let explanation = policy.explain_request(&facts, self.overload);
        write!(f, "{}", self.told(&explanation))?;
        // an application may read the path in several ways: if rules decide differently about them,
        // the server refuses the request
        for other in judged.iter().skip(1) {
            facts.path = other;
            let others = policy.explain_request(&facts, self.overload);
            if others.decisions != explanation.decisions {
                writeln!(f, "answered with 400: rules decide differently about {}", text(other))?;
                write!(f, "{}", self.told(&others))?;
            }
        }
        Ok(())
    }

    fn told(&self, explanation: &Explanation<'_>) -> String {
        if self.all { explanation.to_string() } else { explanation.brief().to_string() }
    }
}

/// The verifier of identities, if rules need it.
fn verifier(config: &Config, policy: &Policy) -> Option<Result<Verifier, KeysError>> {
    let path = config.identity.keys.as_deref().filter(|_| policy.needs().identity)?;
    let cookie = config.identity.cookie();
    Some(Keys::open(path).map(|keys| Verifier::new(cookie, &Arc::new(keys))))
}

/// The paths that rules match in the server, where these are not the request's own path.
fn judged_paths(config: &Config, request: &Request<'_>) -> Vec<Vec<u8>> {
    let sites: Vec<_> = config.sites.iter().map(|site| site.settings(None)).collect();
    forebay_site::judged_paths(&sites, config.is_answered_elsewhere(), request)
}

fn unix_s() -> u64 {
    clock::unix_coarse_ms() / 1000
}

/// An address as it is shown.
struct ShownAddress(SocketAddr);

impl fmt::Display for ShownAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Peer::UNIX => f.write_str("a Unix socket"),
            address if address.port() == 0 => write!(f, "{}", address.ip()),
            address => write!(f, "{address}"),
        }
    }
}

/// The answer for a host that no site has, as it is shown.
struct NoSite<'n> {
    config: &'n Config,
    host: &'n str,
}

impl fmt::Display for NoSite<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sites = &self.config.sites;
        if sites.iter().any(|site| site.hosts.is_empty()) {
            return Ok(());
        }
        let mut hosts = sites.iter().flat_map(|site| &site.hosts);
        if hosts.clone().any(|host| host.covers(self.host)) {
            return Ok(());
        }
        match hosts.next().filter(|_| self.host.is_empty()) {
            Some(host) => write!(
                f,
                " (answered with 421: every site has hosts; name one, such as -H \"Host: {}\")",
                host.as_str().replace("*.", "www.")
            ),
            None => f.write_str(" (answered with 421: no site has it)"),
        }
    }
}

/// The address that `client` most likely connects to.
fn first_local(config: &Config, client: SocketAddr) -> SocketAddr {
    let mut listen = config.listeners.iter().flat_map(|listener| &listener.listen);
    let is_unix = client == Peer::UNIX;
    let loopback = match client.is_ipv4() {
        true => IpAddr::V4(Ipv4Addr::LOCALHOST),
        false => IpAddr::V6(Ipv6Addr::LOCALHOST),
    };
    let address = listen.find_map(|endpoint| match &endpoint.listen {
        Listen::Unix(_) if is_unix => Some(Peer::UNIX),
        Listen::At(address) if address.ip().is_unspecified() && !is_unix => {
            Some(SocketAddr::new(loopback, address.port()))
        }
        Listen::At(address) if !is_unix => Some(*address),
        Listen::All(port) if !is_unix => Some(SocketAddr::new(loopback, *port)),
        _ => None,
    });
    address.unwrap_or(Peer::UNIX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_config::parse;

    const POLICY: &str = r#"
root = "site"
listen = ["192.0.2.1:80"]
trusted_proxies = ["10.0.0.9"]
[[class]]
name = "gold"
priority = 0
[[class]]
name = "bulk"
priority = 1
[[rule]]
name = "partner network"
client = "10.0.0.0/8"
class = "gold"
connections = { rate = "300/s", burst = 5 }
[[rule]]
name = "costly search"
site = "shop.example"
path = "/cgi-bin/*"
class = "bulk"
requests = { rate = "60/s", burst = 10 }
[[rule]]
name = "only in need"
when = "overload"
in_flight.most = 5
[[rule]]
name = "scanners"
client = "203.0.113.0/24"
action = "drop"
"#;

    fn explained(client: &str, overload: bool, head: &str) -> Result<String, ExplainError> {
        told(client, overload, false, head)
    }

    fn told(client: &str, overload: bool, all: bool, head: &str) -> Result<String, ExplainError> {
        let config = parse(POLICY, "/etc/forebay.toml").unwrap();
        let client = client.parse().unwrap();
        let question = Question { client, local: None, overload, all, head: head.to_owned() };
        // as the question arrives through the socket
        let wire = question.to_string();
        let asked = Question::parse(wire.trim_end().strip_prefix("policy explain ").unwrap());
        asked.unwrap().explain(&config.policy().unwrap(), &config)
    }

    #[test]
    fn both_phases_are_explained() {
        let head = "GET /cgi-bin/../cgi%2dbin/find?q HTTP/1.1\r\nHost: Shop.example:80\r\n\r\n";
        let expected = "\
connection from 10.1.1.7:4711, to 192.0.2.1:80 (assumed: --local)
load         normal (--overload: what holds then)
rules        those that matter (--all: every one)
class        gold, by rule \"partner network\"
connections  300/s, burst 5, over: reset, by rule \"partner network\"
action       none
  \"partner network\": matches, decides class, connections
  \"only in need\": counts only in overload
  not shown: 1 about requests, 1 not matching

request GET /cgi-bin/../cgi%2dbin/find?q from 10.1.1.7:4711
host         shop.example
path         /cgi-bin/find
class        bulk, by rule \"costly search\"
requests     60/s, burst 10, over: reject 503, by rule \"costly search\"
in_flight    none
action       none
  \"partner network\": matches, decides nothing; class is decided by \"costly search\"
  \"costly search\": matches, decides class, requests
  \"only in need\": counts only in overload
  not shown: 1 not matching
";
        assert_eq!(explained("10.1.1.7:4711", false, head).unwrap(), expected);
        let overload = explained("10.1.1.7:4711", true, head).unwrap();
        assert!(
            overload.contains("in_flight    5 at once, over: reject 503, by rule"),
            "{overload}"
        );
        let all = told("10.1.1.7:4711", false, true, head).unwrap();
        assert!(all.contains("\nrules        all\n"), "{all}");
        assert_eq!(all.matches("  \"scanners\": client does not match\n").count(), 2, "{all}");
        assert_eq!(all.matches("  \"costly search\": asks for a request\n").count(), 1, "{all}");
        let other = head.replace("GET /cgi-bin/../cgi%2dbin", "GET /cgi");
        let near = explained("10.1.1.7:4711", false, &other).unwrap();
        assert!(near.contains("  \"costly search\": path does not match\n"), "{near}");
    }

    #[test]
    fn a_connection_that_is_refused_has_no_request() {
        let text = explained("203.0.113.5:0", false, "GET / HTTP/1.0\r\n\r\n").unwrap();
        assert!(text.starts_with("connection from 203.0.113.5, to "), "{text}");
        assert!(text.contains("action       drop, by rule \"scanners\"\n"), "{text}");
        assert!(text.ends_with("\nno request is read on this connection\n"), "{text}");
    }

    #[test]
    fn who_is_behind_a_proxy_is_believed_to_be() {
        let head = "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 203.0.113.5\r\n\r\n";
        let text = explained("10.0.0.9:1", false, head).unwrap();
        assert!(text.contains("from 203.0.113.5 (X-Forwarded-For of a trusted proxy)\n"), "{text}");
        assert!(text.contains("  \"scanners\": matches, decides action\n"), "{text}");
    }

    #[test]
    fn a_host_that_no_site_has_is_told() {
        let sites = "[[site]]\nhosts = [\"Shop.example\", \"*.shop.example\"]\nroot = \"a\"\n";
        let host_of = |text: &str, fields: &str| {
            let config = parse(text, "/etc/forebay.toml").unwrap();
            let head = format!("GET / HTTP/1.0\r\n{fields}\r\n");
            let client = "192.0.2.7:1".parse().unwrap();
            let question = Question { client, local: None, overload: false, all: false, head };
            let text = question.explain(&config.policy().unwrap(), &config).unwrap();
            let line = text.lines().find_map(|line| line.strip_prefix("host         "));
            line.unwrap().to_owned()
        };
        let none = "none (answered with 421: every site has hosts; name one, such as -H \"Host: \
                    Shop.example\")";
        assert_eq!(host_of(sites, ""), none);
        let unknown = "shop.test (answered with 421: no site has it)";
        assert_eq!(host_of(sites, "Host: shop.test:80\r\n"), unknown);
        assert_eq!(host_of(sites, "Host: SHOP.example\r\n"), "shop.example");
        assert_eq!(host_of(sites, "Host: www.shop.example\r\n"), "www.shop.example");
        let with_default = format!("{sites}[[site]]\nroot = \"b\"\n");
        assert_eq!(host_of(&with_default, ""), "none");
        assert_eq!(host_of(&with_default, "Host: shop.test\r\n"), "shop.test");
        assert_eq!(host_of("root = \"a\"\n", ""), "none");
    }

    fn asked(text: &str, target: &str) -> Result<String, ExplainError> {
        let config = parse(text, "/etc/forebay.toml").unwrap();
        let head = format!("GET {target} HTTP/1.0\r\n\r\n");
        let client = "192.0.2.7:1".parse().unwrap();
        let question = Question { client, local: None, overload: false, all: false, head };
        question.explain(&config.policy().unwrap(), &config)
    }

    /// Where an application may answer, or other software takes the place of a stage, rules match
    /// the path without its parameters, as in the server.
    #[test]
    fn applications_have_paths_without_parameters() {
        let rules = "[[rule]]\nname = \"login\"\npath = \"/app/login\"\naction = \"reject\"\n\
                     [[rule]]\nname = \"named\"\npath = \"/app/y;a\"\naction = \"reject\"\n";
        let files = format!("root = \"site\"\n{rules}");
        let proxy = format!("{files}[[proxy]]\npath = \"/app\"\nto = \"http://127.0.0.1:9\"\n");
        let others = "isolated.respond_at = [\"http://127.0.0.1:9\"]\n";
        let isolated = format!("engine = \"isolated\"\n{others}{files}");
        let idle = format!("{others}{files}");
        for (text, target, path, action) in [
            (&proxy, "/app/login;a", "/app/login (without parameters, for applications)", "login"),
            (&proxy, "/app/y;a", "/app/y (without parameters, for applications)", "none"),
            (&proxy, "/app/login", "/app/login", "login"),
            (&proxy, "/other;a", "/other;a", "none"),
            (&files, "/app/login;a", "/app/login;a", "none"),
            (&files, "/app/y;a", "/app/y;a", "named"),
            (
                &isolated,
                "/app/login;a",
                "/app/login (without parameters, for applications)",
                "login",
            ),
            (&isolated, "/app/login", "/app/login", "login"),
            (&idle, "/app/login;a", "/app/login;a", "none"),
        ] {
            let text = asked(text, target).unwrap();
            assert!(text.contains(&format!("\npath         {path}\n")), "{target}: {text}");
            let request = text.split("\nrequest ").nth(1).unwrap();
            let line = request.lines().find(|line| line.starts_with("action ")).unwrap();
            assert!(line.contains(action), "{target}: {text}");
        }
    }

    #[test]
    fn heads_are_read_by_the_limits_of_the_configuration() {
        let limited = "root = \"site\"\nlimits.target_bytes = \"64B\"\n";
        let long = format!("/{}", "a".repeat(100));
        let refused = asked(limited, &long).unwrap_err();
        assert!(refused.to_string().contains("answers this head with 414"), "{refused}");
        assert!(asked(limited, "/a").is_ok());
        assert!(asked("root = \"site\"\n", &long).is_ok());
    }

    #[test]
    fn what_cannot_be_explained_says_why() {
        let refused = explained("10.0.0.1:1", false, "GET / HTTP/1.1\r\n\r\n").unwrap_err();
        assert!(refused.to_string().contains("answers this head with 400"), "{refused}");
        for text in [
            "",
            "a",
            "10.0.0.1 - always all\n",
            "10.0.0.1:1 - never all\n",
            "10.0.0.1:1 - always\n",
        ] {
            assert_eq!(Question::parse(text), Err(ExplainError::Question), "{text}");
        }
    }
}
