//! The answer of a name service to a query for the servers of a service.

use crate::settings::upstream_address::UpstreamAddress;
use simple_dns::rdata::RData;
use simple_dns::{Packet, RCODE};

/// The records of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServiceRecords {
    /// The servers; empty if the records say that the service is not available.
    pub(super) servers: Vec<ServiceServer>,
    /// The time to live of the records, in seconds.
    pub(super) lives_s: u32,
}

/// A server of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServiceServer {
    /// The host name of the server.
    pub(super) host: Box<str>,
    /// The port of the server.
    pub(super) port: u16,
    /// The priority: servers with the least number are asked first.
    pub(super) priority: u16,
    /// The weight among servers of the same priority.
    pub(super) weight: u16,
}

impl ServiceServer {
    /// Whether another record means the same server.
    pub(super) fn is_same(&self, other: &ServiceServer) -> bool {
        (&self.host, self.port) == (&other.host, other.port)
    }

    /// The server's name and port, for logs.
    pub(super) fn called(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

impl ServiceRecords {
    /// Reads an answer. Returns `None` if it has no records of a service.
    pub(super) fn read(answer: &[u8]) -> Option<ServiceRecords> {
        let packet = Packet::parse(answer).ok()?;
        if packet.rcode() != RCODE::NoError {
            return None;
        }
        let mut servers = Vec::new();
        let mut lives_s = None;
        for record in &packet.answers {
            let RData::SRV(said) = &record.rdata else { continue };
            lives_s = Some(lives_s.map_or(record.ttl, |least: u32| least.min(record.ttl)));
            // the root as the target means that there is no service (RFC 2782); invalid names are
            // left out as well
            let found = UpstreamAddress::fastcgi(&format!("{}:{}", said.target, said.port));
            if let Ok(UpstreamAddress::Name { host, port }) = found {
                let (priority, weight) = (said.priority, said.weight);
                servers.push(ServiceServer { host, port, priority, weight });
            }
        }
        Some(ServiceRecords { servers, lives_s: lives_s? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use simple_dns::rdata::SRV;
    use simple_dns::{CLASS, Name, ResourceRecord};

    fn answer(records: &[(&str, u16, u32)]) -> Vec<u8> {
        let mut packet = Packet::new_reply(1);
        for (target, port, ttl) in records {
            let target = Name::new_unchecked(target);
            let srv = SRV { priority: 1, weight: 2, port: *port, target };
            let name = Name::new_unchecked("_http._tcp.app.internal");
            packet.answers.push(ResourceRecord::new(name, CLASS::IN, *ttl, RData::SRV(srv)));
        }
        packet.build_bytes_vec().unwrap()
    }

    #[test]
    fn records_are_servers() {
        let read = |records: &[_]| ServiceRecords::read(&answer(records));
        let found = read(&[("A1.app.internal", 8080, 60), ("a2.app.internal", 81, 5)]).unwrap();
        assert_eq!(found.lives_s, 5);
        let called: Vec<_> = found.servers.iter().map(ServiceServer::called).collect();
        assert_eq!(called, ["a1.app.internal:8080", "a2.app.internal:81"]);
        assert_eq!((found.servers[0].priority, found.servers[0].weight), (1, 2));
        assert_eq!(read(&[("", 0, 9)]), Some(ServiceRecords { servers: Vec::new(), lives_s: 9 }));
        assert_eq!(read(&[("a.app.internal", 0, 9)]).unwrap().servers, []);
        assert_eq!(read(&[]), None);
    }

    #[test]
    fn no_bytes_are_too_strange() {
        let good = answer(&[("a1.app.internal", 8080, 60), ("a2.app.internal", 81, 5)]);
        for end in 0..good.len() {
            _ = ServiceRecords::read(&good[..end]);
        }
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bytes = good.clone();
                bytes[at] ^= 1 << bit;
                _ = ServiceRecords::read(&bytes);
            }
        }
    }
}
