//! The division of the remaining descriptors between clients, requests for applications, and
//! requests between stages.

use super::{Plan, as_usize};
use forebay_config::{Config, Role};
use forebay_handler::upstream_sockets::SocketLimits;
use forebay_upstream::settings::ApplicationSettings;

/// The part of the descriptors for idle connections, as a divisor.
const IDLE_SHARE: u64 = 8;

/// The largest number of connections through which processes of a stage check that a process of the next
/// one lives: one for each possible process, but at most this part of the descriptors, as a divisor.
const MOST_PINGS: u64 = 32;
const PINGS_SHARE: u64 = 16;

/// How many descriptors each use may take.
pub(super) struct DescriptorShares {
    /// Connections of clients.
    pub(super) connections: u64,
    /// Requests that are passed on to an application or a stage.
    exchanges: u64,
    /// Idle connections to these.
    idle: u64,
    /// The largest number of streams on a connection of HTTP/2.
    streams: u64,
}

impl DescriptorShares {
    /// Divides `spare` descriptors. Each of `loops` loops keeps idle connections of its
    /// own to the `applications`.
    pub(super) fn new(
        config: &Config,
        applications: &[Vec<ApplicationSettings>],
        loops: usize,
        spare: u64,
    ) -> DescriptorShares {
        let role = config.place.as_ref().map(|place| place.role);
        let kept = applications.iter().flatten().map(|application| {
            let group = application.group();
            group.to.len() as u64 * u64::from(group.keep_alive.connections)
        });
        let kept = kept.fold(0, u64::saturating_add).saturating_mul(loops as u64);
        let most_idle = spare / IDLE_SHARE;
        let idle = match role {
            // each request is passed on to the next stage
            Some(Role::Receive) => most_idle,
            // the same holds here, but all processes may keep their idle connections to one process
            Some(Role::Process) => most_idle / config.isolated.process.max(1),
            Some(Role::Respond) | None => kept.min(most_idle),
        };
        let (room, through) = (spare - idle, through_stages(spare));
        // each connection may have a request that is passed on
        let beside = |connections: u64| room.saturating_sub(connections).max(connections.min(room));
        let clients = config.limits.connections;
        let asks = role.is_some() || applications.iter().any(|routes| !routes.is_empty());
        let (connections, exchanges) = match role {
            // the receive stage has limited the connections already
            Some(Role::Process | Role::Respond) => (room - through, through),
            Some(Role::Receive) if config.isolated.process_at.is_empty() => {
                let connections = clients.or(through);
                (connections, beside(connections).min(through))
            }
            Some(Role::Receive) | None => {
                let connections = clients.or(if asks { room / 2 } else { spare });
                (connections, beside(connections))
            }
        };
        DescriptorShares { connections, exchanges, idle, streams: config.limits.streams }
    }

    /// The limits for requests that are passed on, if a client may have `per_client` connections. A
    /// client gets half of the requests, or one for each of its connections, or one for each stream
    /// of a connection if that leaves a quarter to others.
    pub(super) fn sockets(&self, per_client: u64) -> SocketLimits {
        let &DescriptorShares { exchanges, idle, streams, .. } = self;
        let of_streams = streams.min(exchanges - exchanges / 4);
        let of_client = (exchanges / 2).max(per_client).max(of_streams).min(exchanges);
        SocketLimits {
            exchanges: as_usize(exchanges),
            exchanges_per_client: as_usize(of_client),
            idle: as_usize(idle),
        }
    }
}

/// How many requests there may be at once in stages whose processes have `spare` descriptors each:
/// as many as one process of each stage can take, in case it gets all of them. A request takes two
/// there, to the stage before and to the stage behind. Both sides keep idle connections, and one of
/// them has connections for pings.
fn through_stages(spare: u64) -> u64 {
    let idle = 2 * (spare / IDLE_SHARE);
    let pings = MOST_PINGS.min(spare / PINGS_SHARE);
    (spare - idle - pings) / 2
}

impl Plan {
    /// The warning of the receive stage if it may have more connections than requests can go on to
    /// the stages behind it, each of whose processes may open `descriptors`.
    pub fn lack(&self, config: &Config, descriptors: u64) -> Option<String> {
        let is_receive = config.place.as_ref().is_some_and(|place| place.role == Role::Receive);
        let (connections, requests) = (self.connections, self.sockets.exchanges);
        (is_receive && connections > requests).then(|| {
            format!(
                "limits.connections is {connections}, but only {requests} requests may be under \
                 way at once, and more get 503: each stage may open {descriptors} descriptors, and \
                 a request takes two; raise the limit of open files, or say less"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isolated;
    use crate::plan::MachineResources;
    use forebay_config::StageProcess;

    fn machine(descriptors: u64) -> MachineResources {
        MachineResources { cores: 2, memory_bytes: 8 << 30, descriptors, threads: 10_000 }
    }

    #[test]
    fn requests_for_applications_have_as_many_as_clients() {
        let shares = |lines: &str| {
            let text = format!(
                "root = \"/site\"\n{lines}\n[[proxy]]\npath = \"/\"\n\
                 to = [\"http://10.0.0.1\", \"http://10.0.0.2\"]\nkeep_alive.connections = 4\n"
            );
            let config = forebay_config::parse(&text, "/etc/forebay.toml").unwrap();
            let plan = Plan::new(&config, &machine(1024)).unwrap();
            let SocketLimits { exchanges, exchanges_per_client, idle } = plan.sockets;
            let of_clients = (plan.connections, plan.connections_per_client);
            (of_clients, (exchanges, exchanges_per_client), idle)
        };
        // 512 descriptors; each of two loops keeps four connections to both
        assert_eq!(shares(""), ((248, 124), (248, 128), 16));
        assert_eq!(shares("limits.connections = 96"), ((96, 48), (400, 200), 16));
        // as configured
        assert_eq!(shares("limits.connections = 300"), ((300, 150), (300, 150), 16));
        assert_eq!(shares("limits.connections = 5000"), ((5000, 2500), (496, 496), 16));
        let alone = shares("limits.connections_per_client = 200");
        assert_eq!(alone, ((248, 200), (248, 200), 16));
    }

    #[test]
    fn stages_that_ask_others_have_some_for_that() {
        let plan = |role| {
            let place = StageProcess {
                role,
                instance: 1,
                file: "forebay.toml".into(),
                links: "/run/links".into(),
            };
            Plan::new(&isolated::at(Config::default(), place), &machine(20_000)).unwrap()
        };
        let [receive, process, respond] = Role::ALL.map(plan);
        assert!(receive.sockets.exchanges >= receive.connections);
        assert!(receive.sockets.exchanges_per_client < receive.sockets.exchanges);
        assert!(receive.sockets.idle > 0 && respond.sockets.idle == 0);
        // the stage before has counted the clients
        assert_eq!(process.sockets.exchanges_per_client, process.sockets.exchanges);
        assert!(process.connections >= receive.connections);
        assert!(respond.connections >= process.sockets.exchanges + process.sockets.idle);
    }

    /// A configuration with stages, and the plan of each stage.
    fn stages(lines: &str, descriptors: u64) -> (Config, [Plan; 3]) {
        let text = format!("root = \"/site\"\nengine = \"isolated\"\n{lines}");
        let config = forebay_config::parse(&text, "/etc/forebay.toml").unwrap();
        let plans = Role::ALL.map(|role| {
            let place = StageProcess {
                role,
                instance: 1,
                file: "forebay.toml".into(),
                links: "/run/links".into(),
            };
            Plan::new(&isolated::at(config.clone(), place), &machine(descriptors)).unwrap()
        });
        (config, plans)
    }

    #[test]
    fn one_process_of_each_stage_can_take_all_that_receive_passes_on() {
        for lines in [
            "",
            "isolated.process = 1\n",
            "isolated.process = 32\n",
            "limits.connections = 100\n",
            "limits.connections = 5000\n",
            "[[proxy]]\npath = \"/\"\nto = \"http://10.0.0.1:80\"\nkeep_alive.connections = 400\n",
        ] {
            for descriptors in [100, 1024, 20_000] {
                let (config, [receive, process, respond]) = stages(lines, descriptors);
                let at_once = receive.sockets.exchanges;
                assert!(at_once > 0);
                assert!(process.connections >= at_once + receive.sockets.idle);
                let idle = as_usize(config.isolated.process) * process.sockets.idle;
                assert!(respond.connections >= at_once + idle);
                assert!([process, respond].iter().all(|plan| plan.sockets.exchanges >= at_once));
            }
        }
    }

    #[test]
    fn stages_have_no_descriptor_twice_unless_that_is_said() {
        let shares = |lines: &str| {
            let (config, plans) = stages(lines, 1024);
            let place = StageProcess {
                role: Role::Receive,
                instance: 1,
                file: "forebay.toml".into(),
                links: "/run".into(),
            };
            let lack = plans[0].lack(&isolated::at(config, place), 1024);
            let shares = plans.map(|plan| {
                let SocketLimits { exchanges, idle, .. } = plan.sockets;
                (plan.connections, exchanges, idle)
            });
            (shares, lack.is_some())
        };
        // 512 descriptors, 32 of them for pings
        let behind = [(304, 176, 32), (336, 176, 0)];
        let with = |receive| [receive, behind[0], behind[1]];
        assert_eq!(shares(""), (with((176, 176, 64)), false));
        assert_eq!(shares("limits.connections = 100"), (with((100, 176, 64)), false));
        assert_eq!(shares("limits.connections = 5000"), (with((5000, 176, 64)), true));
        // the capacity of other software is not known
        let other = "isolated.process_at = [\"http://10.0.0.1:80\"]";
        assert_eq!(shares(other).0[0], (224, 224, 64));
    }
}
