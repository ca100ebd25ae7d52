//! The surroundings of the server: whether names of applications can be resolved, whether this
//! machine has the addresses of listeners, and whether other processes listen there. `forebay
//! check` alone asks, because the answers may change within a minute.

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

/// A remark about the surroundings of the server.
#[derive(Debug)]
enum SurroundingsRemark {
    /// The name of an application has no address.
    NoName {
        /// The name.
        host: String,
        /// The reason, from the name service.
        reason: String,
    },
    /// A name service has no records of a service.
    NoService {
        /// The name.
        name: String,
        /// The reason.
        reason: String,
    },
    /// Another process listens at an address of this server.
    PortTaken {
        /// The address.
        address: std::net::SocketAddr,
        /// The name and number of that process, if they are known.
        by: Option<(String, u32)>,
    },
    /// This machine does not have the address of a listener.
    NotHere {
        /// The address.
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

/// The largest number of names that are looked up, all at the same time.
const MOST_NAMES: usize = 64;

/// How long the name service may take for all names together.
const PATIENCE: Duration = Duration::from_secs(5);

/// Finds names of applications that have no address now. The server itself keeps looking such names up.
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

/// A name to look up.
#[derive(Clone)]
struct NameSought {
    name: String,
    /// The port of the application; `None` for a service, whose records state the ports.
    port: Option<u16>,
}

impl NameSought {
    /// Looks the name up; an error is the reason why nothing was found.
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

/// Finds addresses at which other processes listen, or which this machine does not have. A running
/// server of this very file is expected to listen, and is not reported.
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
            // only root sees the sockets of other users' processes
            None => processes::all().any(|process| serves(&process, of.text.file())),
        };
        if !is_ours {
            let by = holder.map(|RunningProcess { name, process, .. }| (name, process));
            remarks.push((at, Wrong::said(SurroundingsRemark::PortTaken { address: taken, by })));
        }
    }
}

/// An address of the endpoint that cannot be bound, and why: it is in use, or does
/// not belong to this machine.
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
            // for a wildcard endpoint, a machine may have addresses of one family only
            ErrorKind::AddrNotAvailable => is_one,
            _ => false,
        };
        is_fault.then_some((address, kind))
    };
    addresses.into_iter().find_map(fault)
}

/// Whether a process is a server, or a stage, that runs this file, or the service manager, which
/// opens sockets for services.
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

/// Looks all names up at the same time; the results are in the same order.
fn look_up(names: Vec<NameSought>) -> Vec<Result<(), String>> {
    let until = Instant::now() + PATIENCE;
    let begun: Vec<_> = names
        .into_iter()
        .map(|name| {
            let (tell, told) = mpsc::channel();
            // a look-up that takes longer ends with the process
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
