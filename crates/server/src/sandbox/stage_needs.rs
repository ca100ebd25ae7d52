//! The needs of a stage beside files: the ports that it connects to, whether it binds any, and
//! whether an application has an abstract address. The kernel refuses all else (Landlock, since
//! Linux 6.7 and 6.12).

use crate::machine::script_root;
use forebay_config::{Config, GateMode, Role, SiteConfig};
use forebay_sys::unix_address::UnixAddress;
use forebay_upstream::settings::{ApplicationSettings, UpstreamAddress};
use landlock::{AccessNet, NetPort, Ruleset, RulesetAttr, RulesetError, Scope};
use std::collections::BTreeSet;

/// The port of name servers, for answers that are too long for a datagram.
const DNS: u16 = 53;

/// What a stage may do with other processes and machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StageNeeds {
    /// The ports that it connects to by TCP; `None` if they are not known beforehand.
    connects_to: Option<BTreeSet<u16>>,
    /// Whether it may bind sockets later: those of classes, where the kernel queues by class.
    binds: bool,
    /// Whether an application is at an abstract address.
    has_abstract: bool,
}

impl StageNeeds {
    /// The needs of a stage with this configuration.
    pub(super) fn of(config: &Config, role: Role) -> StageNeeds {
        let asked = asked(config, role);
        // an ACME authority itself states the addresses for further requests
        let with_acme = role == Role::Receive && config.sites.iter().any(SiteConfig::has_acme);
        let ports = asked.iter().map(ports_of).collect::<Option<Vec<_>>>();
        let is_abstract = |to: &UpstreamAddress| matches!(to, UpstreamAddress::Unix(address) if !matches!(address, UnixAddress::Path(_)));
        StageNeeds {
            connects_to: ports
                .filter(|_| !with_acme)
                .map(|ports| ports.into_iter().flatten().collect()),
            binds: role == Role::Receive && config.gate == GateMode::Full,
            has_abstract: asked.iter().any(is_abstract),
        }
    }

    /// Adds the restrictions on everything that the stage does not need.
    pub(super) fn handle(&self, rules: Ruleset) -> Result<Ruleset, RulesetError> {
        let mut rules = rules.scope(Scope::Signal)?;
        if !self.has_abstract {
            rules = rules.scope(Scope::AbstractUnixSocket)?;
        }
        if self.connects_to.is_some() {
            rules = rules.handle_access(AccessNet::ConnectTcp)?;
        }
        if !self.binds {
            rules = rules.handle_access(AccessNet::BindTcp)?;
        }
        Ok(rules)
    }

    /// The ports that the stage may connect to.
    pub(super) fn ports(&self) -> impl Iterator<Item = NetPort> {
        let ports = self.connects_to.iter().flatten();
        ports.map(|port| NetPort::new(*port, AccessNet::ConnectTcp))
    }
}

/// All addresses that a stage connects to by itself.
fn asked(config: &Config, role: Role) -> Vec<UpstreamAddress> {
    let mut asked: Vec<_> = config.traces.to.iter().map(|to| to.address.clone()).collect();
    if let Some(next) = role.next() {
        asked.extend(config.isolated.asked(next).map(|other| other.to.clone()));
    }
    match role {
        Role::Receive => {
            asked.extend(config.tcp.iter().flat_map(|tcp| tcp.settings().group.to));
        }
        Role::Process => {}
        Role::Respond => {
            let all = config.sites.iter().flat_map(|site| site.applications(script_root));
            let groups = all.filter_map(|one| match one {
                // these have no addresses to connect to
                ApplicationSettings::Inside(_) | ApplicationSettings::HandOver(_) => None,
                other => Some(other.group().to.clone()),
            });
            asked.extend(groups.flatten());
        }
    }
    asked
}

/// The ports of an upstream; `None` if records of the name service state them.
fn ports_of(to: &UpstreamAddress) -> Option<Vec<u16>> {
    match to {
        UpstreamAddress::Socket(address) => Some(vec![address.port()]),
        UpstreamAddress::Name { port, .. } => Some(vec![*port, DNS]),
        UpstreamAddress::Unix(_) | UpstreamAddress::Launched(_) => Some(Vec::new()),
        UpstreamAddress::Service(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs(lines: &str, role: Role) -> StageNeeds {
        let text = format!("root = \"/srv/www\"\n[stages]\n{lines}");
        let config = forebay_config::parse(&text, "/etc/forebay/forebay.toml").unwrap();
        StageNeeds::of(&config, role)
    }

    fn ports(lines: &str, role: Role) -> Option<Vec<u16>> {
        needs(lines, role).connects_to.map(|ports| ports.into_iter().collect())
    }

    #[test]
    fn a_stage_connects_where_the_file_says() {
        let applications = "[[proxy]]\npath = \"/\"\nto = [\"http://10.0.0.1:8080\", \"unix:/run/a\"]\n\
                            [[fastcgi]]\npath = \"/p/\"\nto = \"php.internal:9000\"\n";
        assert_eq!(ports(applications, Role::Respond), Some(vec![53, 8080, 9000]));
        assert_eq!(ports(applications, Role::Process), Some(vec![]));
        assert_eq!(ports(applications, Role::Receive), Some(vec![]));
        let elsewhere = "process_at = [\"tcp://10.0.0.2:9443\"]\nunencrypted = true\n";
        assert_eq!(ports(elsewhere, Role::Receive), Some(vec![9443]));
    }

    #[test]
    fn what_records_say_is_not_known_beforehand() {
        let service = "[[proxy]]\npath = \"/\"\nto = \"srv+http://_http._tcp.app.internal\"\n";
        assert_eq!(ports(service, Role::Respond), None);
        assert_eq!(ports(service, Role::Receive), Some(vec![]));
    }

    #[test]
    fn abstract_names_are_reached_where_an_application_has_one() {
        let at = |to: &str| {
            let lines = format!("[[proxy]]\npath = \"/\"\nto = \"{to}\"\n");
            needs(&lines, Role::Respond).has_abstract
        };
        assert!(at("unix:@app") && !at("unix:/run/app") && !at("http://10.0.0.1:80"));
    }

    #[test]
    fn receive_binds_where_the_kernel_queues_by_class_alone() {
        let binds = |gate: &str| {
            let text = format!("root = \"/srv/www\"\ngate = \"{gate}\"\n[stages]\n");
            let config = forebay_config::parse(&text, "/etc/forebay/forebay.toml").unwrap();
            Role::ALL.map(|role| StageNeeds::of(&config, role).binds)
        };
        assert_eq!(binds("address"), [false; 3]);
        assert_eq!(binds("full"), [true, false, false]);
    }
}
