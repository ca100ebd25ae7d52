//! `forebay policy`: what the policy of a server is, why it decides as it does, and how to change it
//! while the server runs.

use crate::exit::CommandFailure;
use crate::policy_error::{PolicyCommandError, TokenError};
use crate::running_server::{ServerArgs, find, print};
use crate::{load, print_out, say};
use clap::{Args, Subcommand};
use forebay_handler::identity::token;
use forebay_handler::identity::{Keys, Rejected, TokenNetwork};
use forebay_http::cidr::{self, CidrBlock, CidrError};
use forebay_policy::bans::banned_network;
use forebay_server::command::CommandAnswer;
use forebay_server::control_socket;
use forebay_server::policy_command::bans::BanOrder;
use forebay_server::policy_command::counts::{ClassRates, CountsReport};
use forebay_server::policy_command::{Question, Which};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The longest head that is read from standard input.
const MOST_BYTES: u64 = 64 * 1024;

/// What is done with a policy.
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Say which rule decides what about a connection and a request, and why: by what is in force in
    /// the server that runs the configuration file or, if none runs, by the file itself. Told are the
    /// rules that match, that would match at another time, or that lack one of several conditions
    Explain(Explain),
    /// Show the classes in force and what has become of the requests of each, and of the rules those
    /// that limit something or have decided something
    Show {
        #[command(flatten)]
        server: ServerArgs,
        /// Show the rules with this name and no others; each star stands for any characters
        #[arg(value_name = "NAME")]
        name: Option<String>,
        /// Show every rule
        #[arg(long, conflicts_with = "name")]
        all: bool,
    },
    /// Change settings of classes and rules at once, in the running server only: the next reload takes
    /// what the file says, unless they are kept. Several are changed together, or none
    Set {
        #[command(flatten)]
        server: ServerArgs,
        /// What is to be: NAME.KEY=VALUE with the name of a class or rule and a key of the
        /// configuration, such as gold.delay=20ms or 'costly search.requests.rate=10/s'; or
        /// agent=on. VALUE none takes a setting away, or a limit as a whole
        #[arg(required = true, value_name = "NAME.KEY=VALUE")]
        assignments: Vec<String>,
        /// Through reloads and upgrades, too, for as long as the file says of these settings what it
        /// says now
        #[arg(long)]
        keep: bool,
    },
    /// Add a rule to the running server, before all others, or take it away again. The next reload takes
    /// it away, too
    #[command(subcommand)]
    Rule(RuleCommand),
    /// Keep clients out for a time, from their next connection or request on, in the running server:
    /// through reloads and upgrades, until the ban ends or is lifted. Trusted proxies, administrators
    /// and the server's own addresses are never banned
    Ban {
        #[command(flatten)]
        server: ServerArgs,
        /// An address, or a network such as 203.0.113.0/24; an IPv6 address alone stands for its /64.
        /// Several are banned together, or none
        #[arg(required = true, value_name = "ADDRESS|NETWORK", value_parser = banned)]
        networks: Vec<CidrBlock>,
        /// For how long, such as 30m, 12h or 7d
        #[arg(long = "for", value_name = "TIME", default_value = "1h", value_parser = period)]
        period: Duration,
        /// Why, for whoever looks at the list
        #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
        why: String,
        /// Ban a network that is more than /8, or more than /19 of IPv6
        #[arg(long)]
        force: bool,
    },
    /// Lift bans that were set with the same address or network
    Unban {
        #[command(flatten)]
        server: ServerArgs,
        /// As it was banned
        #[arg(required = true, value_name = "ADDRESS|NETWORK", value_parser = banned)]
        networks: Vec<CidrBlock>,
    },
    /// Show who is banned, for how long yet, why, and how many connections and requests that has refused
    Bans {
        #[command(flatten)]
        server: ServerArgs,
        /// Show all that files ban, and not only those that have refused most
        #[arg(long)]
        all: bool,
    },
    /// Make a token that proves an identity to rules, or say what one proves: by the keys of
    /// identity.keys in the configuration file. Whoever has a token can be whom it names until it
    /// expires
    Token(Token),
    /// Print what the agent has decided in the last minute, each time with what followed: what it let in,
    /// and what was offered, refused and done, and how long it waited
    History(ServerArgs),
    /// Print a line per second and class, until interrupted: requests offered, admitted and refused,
    /// connections refused, how long work waited for a worker, how much is unfinished and how much may
    /// be, and whether there is overload
    Watch {
        #[command(flatten)]
        server: ServerArgs,
        /// End after so many seconds
        #[arg(long, value_name = "SECONDS", value_parser = whole_seconds)]
        seconds: Option<u64>,
    },
}

/// What is done with rules from the command line.
#[derive(Debug, Subcommand)]
pub(crate) enum RuleCommand {
    /// Add a rule, which stands before all others until it is removed or the server is reloaded
    Add {
        #[command(flatten)]
        server: ServerArgs,
        /// Its name
        #[arg(value_name = "NAME")]
        name: String,
        /// What it says: KEY=VALUE with the keys of a rule of the configuration, such as
        /// 'path=/search*' requests.rate=5/s
        #[arg(required = true, value_name = "KEY=VALUE")]
        assignments: Vec<String>,
    },
    /// Remove a rule that was added so
    Remove {
        #[command(flatten)]
        server: ServerArgs,
        /// Its name
        #[arg(value_name = "NAME")]
        name: String,
    },
}

/// Options of `policy token`.
#[derive(Debug, Args)]
pub(crate) struct Token {
    /// The configuration file
    #[arg(short, long, value_name = "FILE", default_value = "forebay.toml")]
    config: PathBuf,
    /// The keys, in the place of those that the configuration file names
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
    /// The identity
    #[arg(required_unless_present = "check")]
    name: Option<String>,
    /// How long it is good, such as 30m, 12h or 7d
    #[arg(long = "for", value_name = "TIME", default_value = "1d", value_parser = period)]
    period: Duration,
    /// The network of clients that it is good for, such as 192.0.2.0/24 [default: everywhere]
    #[arg(long, value_name = "NETWORK", value_parser = TokenNetwork::parse)]
    network: Option<TokenNetwork>,
    /// The name of the key that signs [default: the first one of the file]
    #[arg(long, value_name = "NAME")]
    key: Option<String>,
    /// Say what this token proves now
    #[arg(long, value_name = "TOKEN", conflicts_with_all = ["name", "network", "key"])]
    check: Option<String>,
    /// With --check: to whom it is good
    #[arg(long, value_name = "ADDR", requires = "check")]
    client: Option<IpAddr>,
}

/// Options of `policy explain`.
#[derive(Debug, Args)]
pub(crate) struct Explain {
    #[command(flatten)]
    server: ServerArgs,
    /// Go by what the configuration file says, and ask no server
    #[arg(long, conflicts_with = "socket")]
    offline: bool,
    /// The client's address, with or without a port; "unix" is one that comes through a Unix socket
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1", value_parser = end)]
    client: SocketAddr,
    /// The address and port that the client connects to [default: the first listener]
    #[arg(long, value_name = "ADDR:PORT", value_parser = end)]
    local: Option<SocketAddr>,
    /// Say what holds in overload
    #[arg(long)]
    overload: bool,
    /// Tell of every rule
    #[arg(long)]
    all: bool,
    /// A field of the request; may be given several times
    #[arg(short = 'H', value_name = "NAME: VALUE", value_parser = field)]
    header: Vec<String>,
    /// The request line, such as "GET /search?q=a HTTP/1.1"; method and version may be left out.
    /// Without it the whole head is read from standard input
    request: Option<String>,
}

/// Does it.
///
/// # Errors
/// When the file is wrong, no server answers, or it says no.
pub(crate) fn run(command: PolicyCommand) -> Result<(), CommandFailure> {
    match command {
        PolicyCommand::Explain(options) => explain(options),
        PolicyCommand::Show { server, name, all } => {
            let named = name.map(|name| Which::Named(name.replace('\n', " ")));
            let which = named.unwrap_or(if all { Which::All } else { Which::InUse });
            print(server.ask(&format!("policy show{which}"))?)
        }
        PolicyCommand::Set { server, assignments, keep } => {
            let assignments =
                assignments.iter().map(|text| format!("\n{}", text.replace('\n', " ")));
            let set = if keep { "policy set keep" } else { "policy set" };
            print(server.ask(&format!("{set}{}", assignments.collect::<String>()))?)
        }
        PolicyCommand::Rule(RuleCommand::Add { server, name, assignments }) => {
            let lines = std::iter::once(&name).chain(&assignments);
            let lines: String =
                lines.map(|text| format!("\n{}", text.replace('\n', " "))).collect();
            print(server.ask(&format!("policy rule add{lines}"))?)
        }
        PolicyCommand::Rule(RuleCommand::Remove { server, name }) => {
            print(server.ask(&format!("policy rule remove\n{}", name.replace('\n', " ")))?)
        }
        PolicyCommand::Ban { server, networks, period, why, force } => {
            let order = BanOrder { networks, period, is_forced: force, why };
            print(server.ask(&order.to_string())?)
        }
        PolicyCommand::Unban { server, networks } => {
            let networks = networks.iter().map(|network| format!("\n{network}"));
            print(server.ask(&format!("policy unban{}", networks.collect::<String>()))?)
        }
        PolicyCommand::Bans { server, all } => {
            print(server.ask(if all { "policy bans all" } else { "policy bans" })?)
        }
        PolicyCommand::Token(options) => token(&options),
        PolicyCommand::History(server) => print(server.ask("policy history")?),
        PolicyCommand::Watch { server, seconds } => watch(&server, seconds),
    }
}

fn token(options: &Token) -> Result<(), CommandFailure> {
    let Token { config, keys, name, period, network, key, check, client } = options;
    let wrong = |error| CommandFailure::Policy(PolicyCommandError::Token(error));
    let path = match keys {
        Some(path) => path.clone(),
        None => load(config)?.identity.keys.ok_or_else(|| wrong(TokenError::NoKeys))?,
    };
    let keys = Keys::open(&path).map_err(|error| wrong(TokenError::Keys { path, error }))?;
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    if let Some(text) = check {
        let rejected = |why| wrong(TokenError::Rejected(why));
        let verified = token::verify(text.as_bytes(), &keys).map_err(rejected)?;
        let client = client.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        match verified.holds(client, now_s) {
            // without the client's address its network cannot be checked
            Err(Rejected::Elsewhere) if options.client.is_none() => {}
            other => other.map_err(rejected)?,
        }
        let bound = verified.bound.map_or("everywhere".to_owned(), |bound| format!("in {bound}"));
        let left_s = verified.until_s.saturating_sub(now_s);
        let name = verified.name();
        return print_out(&format!("{name}, {bound}, for {left_s} s from now on\n"));
    }
    let until_s = now_s.saturating_add(period.as_secs());
    let name = name.as_deref().unwrap_or_default();
    let made = token::make(&keys, key.as_deref(), name, until_s, *network);
    print_out(&format!("{}\n", made.map_err(|error| wrong(TokenError::Make(error)))?))
}

fn banned(text: &str) -> Result<CidrBlock, CidrError> {
    banned_network(text)
}

fn period(text: &str) -> Result<Duration, String> {
    const EXPECTED: &str = "a whole number and a unit are expected, such as 30m, 12h or 7d";
    let units = [("s", 1), ("m", 60), ("h", 3600), ("d", 86_400)];
    let find = |(unit, unit_s)| Some((text.strip_suffix(unit)?.parse::<u32>().ok()?, unit_s));
    let found = units.into_iter().find_map(find).ok_or_else(|| EXPECTED.to_owned());
    found.map(|(number, unit_s)| Duration::from_secs(u64::from(number) * unit_s))
}

fn explain(options: Explain) -> Result<(), CommandFailure> {
    let question = options.question()?;
    let file = &options.server.config;
    if !options.offline {
        match options.server.ask(&question.to_string()) {
            Ok(answer) => return print(answer),
            // if no server runs, the file shows what one would do
            Err(failure) if options.server.socket.is_none() && has_no_server(&failure) => {
                say(&format!("no server runs {}: this is what the file says", file.display()));
            }
            Err(failure) => return Err(failure),
        }
    }
    let config = load(file)?;
    let wrong = |error| CommandFailure::Policy(PolicyCommandError::Policy(error));
    let explained = question.explain(&config.policy().map_err(wrong)?, &config);
    print_out(
        &explained.map_err(|error| CommandFailure::Policy(PolicyCommandError::Explain(error)))?,
    )
}

/// Whether a command has failed because no server runs, as far as that can be known.
fn has_no_server(failure: &CommandFailure) -> bool {
    match failure {
        CommandFailure::Unanswered(unanswered) => unanswered.has_no_server(),
        CommandFailure::NoSocket { .. } => true,
        _ => false,
    }
}

/// The number of lines after which the names of the columns are printed again.
const PAGE: usize = 40;

fn watch(server: &ServerArgs, seconds: Option<u64>) -> Result<(), CommandFailure> {
    const QUESTION: &str = "policy counts";
    let read = |answer: CommandAnswer| match CountsReport::parse(&answer.text) {
        Some(counts) if answer.code == 0 => Ok(counts),
        _ => Err(CommandFailure::Answered(answer)),
    };
    let mut before = read(server.ask(QUESTION)?)?;
    // the file need not be read each time
    let (socket, _) = find(&server.config, server.socket.clone())?;
    let ask = || {
        let answer = control_socket::ask(&socket, QUESTION);
        read(answer.map_err(CommandFailure::Unanswered)?)
    };
    let (mut due, mut lines) = (Instant::now(), PAGE);
    for second in 0.. {
        if seconds.is_some_and(|most| second >= most) {
            break;
        }
        due += Duration::from_secs(1);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let now = ask()?;
        let mut text = String::new();
        if lines >= PAGE {
            text = format!("{}\n", ClassRates::HEADER);
            lines = 0;
        }
        for line in now.since(&before) {
            text.push_str(&format!("{line}\n"));
            lines += 1;
        }
        let mut stdout = io::stdout().lock();
        match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
            // the reader has closed the pipe
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => break,
            written => written.map_err(CommandFailure::Output)?,
        }
        before = now;
    }
    Ok(())
}

impl Explain {
    fn question(&self) -> Result<Question, CommandFailure> {
        let head = match &self.request {
            Some(line) => head(line, &self.header),
            None => {
                let mut head = String::new();
                let stdin = io::stdin().lock().take(MOST_BYTES).read_to_string(&mut head);
                stdin.map_err(|error| CommandFailure::Policy(PolicyCommandError::Stdin(error)))?;
                let fields = self.header.iter().map(String::as_str);
                let lines = head.lines().take_while(|line| !line.is_empty()).chain(fields);
                lines.map(|line| format!("{line}\r\n")).collect()
            }
        };
        let Explain { client, local, overload, all, .. } = *self;
        Ok(Question { client, local, overload, all, head })
    }
}

/// A head made from a request line, whose method and version may be missing. Without a host it is HTTP/1.0.
fn head(line: &str, fields: &[String]) -> String {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let names_host = fields.iter().any(|field| field.to_ascii_lowercase().starts_with("host:"));
    let version = if names_host { "HTTP/1.1" } else { "HTTP/1.0" };
    let line = match words[..] {
        [target] => format!("GET {target} {version}"),
        [method, target] => format!("{method} {target} {version}"),
        // an invalid line is reported when the head is parsed
        _ => line.trim().to_owned(),
    };
    let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
    format!("{line}\r\n{fields}")
}

/// Parses one end of a connection, with or without a port.
fn end(text: &str) -> Result<SocketAddr, String> {
    let unix = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    match (text.parse(), bare.parse::<IpAddr>()) {
        _ if text == "unix" => Ok(unix),
        (Ok(address), _) => Ok(cidr::canonical(address)),
        (_, Ok(ip)) => Ok(SocketAddr::new(ip.to_canonical(), 0)),
        _ => {
            Err("an address is expected, such as 192.0.2.7, 192.0.2.7:4711, [::1]:80 or unix"
                .into())
        }
    }
}

fn whole_seconds(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "expected a number of seconds, such as 5".to_owned())
}

fn field(text: &str) -> Result<String, String> {
    match text.split_once(':') {
        Some((name, _)) if !name.is_empty() && !text.contains(['\r', '\n']) => Ok(text.to_owned()),
        _ => Err("a name, a colon and a value are expected, such as \"Host: a.example\"".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_line_is_completed() {
        let host = ["Host: a".to_owned()];
        assert_eq!(head("/x", &[]), "GET /x HTTP/1.0\r\n");
        assert_eq!(head("/x", &host), "GET /x HTTP/1.1\r\nHost: a\r\n");
        assert_eq!(head("HEAD /x", &host), "HEAD /x HTTP/1.1\r\nHost: a\r\n");
        assert_eq!(head("GET /x HTTP/1.1", &[]), "GET /x HTTP/1.1\r\n");
    }

    #[test]
    fn addresses_are_read_with_and_without_ports() {
        for (text, expected) in [
            ("192.0.2.7", Ok("192.0.2.7:0")),
            ("192.0.2.7:80", Ok("192.0.2.7:80")),
            ("::1", Ok("[::1]:0")),
            ("[::1]", Ok("[::1]:0")),
            ("[::1]:80", Ok("[::1]:80")),
            ("unix", Ok("0.0.0.0:0")),
            ("localhost", Err(())),
            ("192.0.2.7:", Err(())),
        ] {
            let found = end(text).map_err(drop);
            assert_eq!(found, expected.map(|text| text.parse().unwrap()), "{text}");
        }
    }
}
