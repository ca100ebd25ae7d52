//! What lies outside of this file and of the files that it names: whether names of applications are known, whether this
//! machine has the addresses of listeners, and whether others listen there. `forebay check` alone asks, because the
//! answers are another minute's, too.

use super::LintSubject;
use forebay_config::applications::addresses;
use forebay_config::path::Path as At;
use forebay_config::problem::{Finding, Wrong};
use forebay_config::{Listen, ListenEndpoint, Remarks};
use forebay_sys::processes::{self, RunningProcess};
use forebay_sys::{name_service, socket};
use forebay_upstream::settings::UpstreamAddress;
use std::collections::HashSet;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// What lies outside of the file does not fit it.
#[derive(Debug)]
enum SurroundingsRemark {
    /// The name of an application has no address.
    NoName {
        /// The name.
        host: String,
        /// What the name service says.
        reason: String,
    },
    /// A name service has no records of a service.
    NoService {
        /// The name.
        name: String,
        /// What was found out.
        reason: String,
    },
    /// Another process listens where this server is to.
    PortTaken {
        /// Where.
        address: std::net::SocketAddr,
        /// Its name and number, if that may be known.
        by: Option<(String, u32)>,
    },
    /// This machine does not have an address where the server is to listen.
    NotHere {
        /// Which one.
        address: IpAddr,
    },
}

impl Finding for SurroundingsRemark {}

impl fmt::Display for SurroundingsRemark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SurroundingsRemark::NoName { host, reason } => write!(
                f,
                "the name {host:?} has no address here ({reason}); until it has one, requests get 502"
            ),
            SurroundingsRemark::NoService { name, reason } => write!(
                f,
                "no server of the service {name:?} is known here ({reason}); until one is, requests get 503"
            ),
            SurroundingsRemark::PortTaken { address, by: Some((name, process)) } => write!(
                f,
                "{name} (process {process}) listens at {address}: a server with this file cannot start beside it"
            ),
            SurroundingsRemark::PortTaken { address, by: None } => write!(
                f,
                "another process listens at {address}, and root may see which: a server with this file cannot \
                 start beside it"
            ),
            SurroundingsRemark::NotHere { address } => write!(
                f,
                "this machine does not have the address {address}: a server with this file cannot start here"
            ),
        }
    }
}

/// No more names are looked up, all at the same time.
const MOST_NAMES: usize = 64;

/// How long a name service may take for all of them.
const PATIENCE: Duration = Duration::from_secs(5);

/// Names of applications that have no address here. One that comes later is found then.
pub(super) fn names(of: &LintSubject<'_>, remarks: &mut Remarks) {
    let mut places: Vec<(At, NameSought)> = Vec::new();
    let mut known = HashSet::new();
    for (at, site) in of.draft.every_site() {
        for (place, address) in addresses(of.text, &at, site) {
            let (name, port) = match address {
                UpstreamAddress::Name { host, port } => (host, Some(*port)),
                UpstreamAddress::Service(service) => (&service.name, None),
                _ => continue,
            };
            if known.insert(name.clone()) {
                places.push((place, NameSought { name: name.to_string(), port }));
            }
        }
    }
    places.truncate(MOST_NAMES);
    let names = places.iter().map(|(_, sought)| sought.clone()).collect();
    for ((at, sought), found) in places.into_iter().zip(look_up(names)) {
        if let Err(reason) = found {
            let NameSought { name, port } = sought;
            remarks.push((
                at,
                Wrong::said(match port {
                    Some(_) => SurroundingsRemark::NoName { host: name, reason },
                    None => SurroundingsRemark::NoService { name, reason },
                }),
            ));
        }
    }
}

/// A name that a name service is asked about.
#[derive(Clone)]
struct NameSought {
    name: String,
    /// The port of what has the name; `None` for a service, of which records say that.
    port: Option<u16>,
}

impl NameSought {
    /// Whether something is found, or why not.
    fn look_up(&self) -> Result<(), String> {
        let Some(port) = self.port else {
            let found = name_service::records(&self.name, name_service::SRV);
            return found.map(drop).map_err(|_| "the name service has no records of it".to_owned());
        };
        match (self.name.as_str(), port).to_socket_addrs() {
            Ok(addresses) if addresses.len() > 0 => Ok(()),
            Ok(_) => Err("the name service knows none".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Addresses where others listen, or which this machine does not have. A server of this very file is to listen, and is
/// told nothing of.
pub(super) fn ports(of: &LintSubject<'_>, remarks: &mut Remarks) {
    let listeners = of.draft.all_listeners();
    let public = listeners.iter().flat_map(|(path, listener)| {
        let endpoints = listener.listen.iter().enumerate();
        endpoints.map(|(index, endpoint)| (path.child("listen").item(index), endpoint))
    });
    let admin = of.draft.admin_endpoints(Some(of.text));
    for (at, endpoint) in public.chain(admin) {
        let taken = match unusable(endpoint) {
            None => continue,
            Some((address, ErrorKind::AddrInUse)) => address,
            Some((address, _)) => {
                let remark = SurroundingsRemark::NotHere { address: address.ip() };
                remarks.push((at, Wrong::said(remark)));
                continue;
            }
        };
        let holder = processes::listener_at(taken);
        let is_ours = match &holder {
            Some(holder) => serves(holder, of.text.file()),
            // of others' processes only root sees the sockets
            None => processes::all().any(|process| serves(&process, of.text.file())),
        };
        if !is_ours {
            let by = holder.map(|RunningProcess { name, process, .. }| (name, process));
            remarks.push((at, Wrong::said(SurroundingsRemark::PortTaken { address: taken, by })));
        }
    }
}

/// Where an endpoint cannot be listened at, and why: the address is in use, or is none of this machine.
fn unusable(endpoint: &ListenEndpoint) -> Option<(SocketAddr, ErrorKind)> {
    let (addresses, is_one) = match endpoint.listen {
        Listen::At(address) => (vec![address], true),
        Listen::All(port) => {
            let (v4, v6) = (Ipv4Addr::UNSPECIFIED, Ipv6Addr::UNSPECIFIED);
            (
                [IpAddr::from(v4), IpAddr::from(v6)].map(|ip| SocketAddr::new(ip, port)).to_vec(),
                false,
            )
        }
        Listen::Unix(_) => (Vec::new(), false),
    };
    let fault = |address: SocketAddr| {
        let kind = socket::bind(address, false).err()?.kind();
        let is_fault = match kind {
            ErrorKind::AddrInUse => address.port() != 0,
            // of all addresses, a machine may have those of one family only
            ErrorKind::AddrNotAvailable => is_one,
            _ => false,
        };
        is_fault.then_some((address, kind))
    };
    addresses.into_iter().find_map(fault)
}

/// Whether a process is a server, or a stage, that runs this file; or the manager that opens sockets for services.
fn serves(process: &RunningProcess, file: &str) -> bool {
    if process.process == 1 {
        return true;
    }
    let words = &process.words;
    let is_server = words.first().is_some_and(|program| {
        Path::new(program).file_name().is_some_and(|name| name == "forebay")
    });
    let named = words.iter().enumerate().find_map(|(at, word)| match word.as_str() {
        "-c" | "--config" => words.get(at + 1).map(String::as_str),
        word => word.strip_prefix("--config="),
    });
    let beneath = process.directory.as_deref().unwrap_or(Path::new("/"));
    let named = beneath.join(named.unwrap_or("forebay.toml"));
    let is_same = || Some(named.canonicalize().ok()? == Path::new(file).canonicalize().ok()?);
    is_server && is_same().unwrap_or(false)
}

/// Whether each name has an address, or why not; in the same order.
fn look_up(names: Vec<NameSought>) -> Vec<Result<(), String>> {
    let until = Instant::now() + PATIENCE;
    let begun: Vec<_> = names
        .into_iter()
        .map(|name| {
            let (tell, told) = mpsc::channel();
            // one that waits for longer goes with the process
            let begun = thread::Builder::new().spawn(move || {
                let _ = tell.send(name.look_up());
            });
            begun.map(|_| told)
        })
        .collect();
    let late = || format!("no answer of the name service within {} s", PATIENCE.as_secs());
    let outcome = |begun: io::Result<mpsc::Receiver<Result<(), String>>>| match begun {
        Ok(told) => {
            let left = until.saturating_duration_since(Instant::now());
            told.recv_timeout(left).unwrap_or_else(|_| Err(late()))
        }
        Err(error) => Err(error.to_string()),
    };
    begun.into_iter().map(outcome).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_of_the_same_file_is_known_by_its_words() {
        let file = std::env::current_exe().unwrap();
        let directory = file.parent().unwrap().to_owned();
        let (whole, name) = (file.to_str().unwrap(), file.file_name().unwrap().to_str().unwrap());
        let process = |words: &[&str]| RunningProcess {
            process: 1000,
            name: words[0].to_owned(),
            words: words.iter().map(|word| word.to_string()).collect(),
            directory: Some(directory.clone()),
        };
        for words in [
            &["/usr/bin/forebay", "run", "-c", whole][..],
            &["forebay", "run", "--config", name],
            &["forebay", "stage", "receive", &format!("--config={whole}"), "--links", "/tmp/x"],
        ] {
            assert!(serves(&process(words), whole), "{words:?}");
        }
        for words in [
            &["forebay", "run"][..],
            &["forebay", "run", "-c", "/etc/other.toml"],
            &["nginx", "-c", whole],
        ] {
            assert!(!serves(&process(words), whole), "{words:?}");
        }
    }
}
