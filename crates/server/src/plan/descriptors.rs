//! How clients, and requests for applications and between stages, share the descriptors that are left to both.

use super::as_usize;
use crate::config::Config;
use crate::isolated::Role;
use crate::upstream_sockets::SocketLimits;
use forebay_upstream::settings::ApplicationSettings;

/// Idle connections take at most one part in so many.
const IDLE_SHARE: u64 = 8;

/// Who may have how many.
pub(super) struct DescriptorShares {
    /// Connections of clients.
    pub(super) connections: u64,
    /// Requests that are passed on.
    exchanges: u64,
    /// Connections that wait for the next of these.
    idle: u64,
    /// Streams that a connection of HTTP/2 may have open.
    streams: u64,
}

impl DescriptorShares {
    /// Of as many as are `spare`. So many `loops` keep idle connections to the `applications`, each its own.
    pub(super) fn new(
        config: &Config,
        applications: &[Vec<ApplicationSettings>],
        loops: usize,
        spare: u64,
    ) -> DescriptorShares {
        // one that asks another stage does so with every request
        let is_passing = config.place.as_ref().is_some_and(|place| place.role != Role::Respond);
        let kept = applications.iter().flatten().map(|application| {
            let group = application.group();
            group.to.len() as u64 * u64::from(group.keep_alive.connections)
        });
        let kept = kept.fold(0, u64::saturating_add).saturating_mul(loops as u64);
        let wanted = if is_passing { spare } else { kept };
        let idle = wanted.min(spare / IDLE_SHARE);
        let room = spare - idle;
        let asks = is_passing || applications.iter().any(|routes| !routes.is_empty());
        let connections = config.limits.connections.or(if asks { room / 2 } else { spare });
        // each connection may have a request that is passed on
        let exchanges = room.saturating_sub(connections).max(connections.min(room));
        DescriptorShares { connections, exchanges, idle, streams: config.limits.streams }
    }

    /// The same for requests that are passed on, where a client may have so many connections. It has half of them,
    /// or as many as it has connections, or as one of these has streams if that leaves others a quarter.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use crate::isolated::StageProcess;
    use crate::plan::{MachineResources, Plan};

    fn machine(descriptors: u64) -> MachineResources {
        MachineResources { cores: 2, memory_bytes: 8 << 30, descriptors }
    }

    #[test]
    fn requests_for_applications_have_as_many_as_clients() {
        let shares = |lines: &str| {
            let text = format!(
                "root = \"/site\"\n{lines}\n[[proxy]]\npath = \"/\"\n\
                 to = [\"http://10.0.0.1\", \"http://10.0.0.2\"]\nkeep_alive.connections = 4\n"
            );
            let config = config::parse(&text, "/etc/forebay.toml").unwrap();
            let plan = Plan::new(&config, &machine(1024)).unwrap();
            let SocketLimits { exchanges, exchanges_per_client, idle } = plan.sockets;
            let of_clients = (plan.connections, plan.connections_per_client);
            (of_clients, (exchanges, exchanges_per_client), idle)
        };
        // of 512; each of two loops keeps four connections to both
        assert_eq!(shares(""), ((248, 124), (248, 128), 16));
        assert_eq!(shares("limits.connections = 96"), ((96, 48), (400, 200), 16));
        // as many as are wanted
        assert_eq!(shares("limits.connections = 300"), ((300, 150), (300, 150), 16));
        assert_eq!(shares("limits.connections = 5000"), ((5000, 2500), (496, 496), 16));
        let alone = shares("limits.connections_per_client = 200");
        assert_eq!(alone, ((248, 200), (248, 200), 16));
    }

    #[test]
    fn stages_that_ask_others_have_some_for_that() {
        let plan = |role| {
            let place = StageProcess { role, instance: 1, links: "/run/links".into() };
            Plan::new(&Config::default().at(place), &machine(20_000)).unwrap()
        };
        let [receive, process, respond] = Role::ALL.map(plan);
        assert!(receive.sockets.exchanges >= receive.connections);
        assert!(receive.sockets.exchanges_per_client < receive.sockets.exchanges);
        assert!(receive.sockets.idle > 0 && respond.sockets.idle == 0);
        // clients have been counted before
        assert_eq!(process.sockets.exchanges_per_client, process.sockets.exchanges);
        assert!(process.connections >= receive.connections);
        assert!(respond.connections >= process.sockets.exchanges + process.sockets.idle);
    }
}
