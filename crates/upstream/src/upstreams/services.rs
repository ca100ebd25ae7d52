//! Services: names whose records (SRV, RFC 2782) list the servers, their ports and their weights.
//!
//! A service has a number of places among the upstreams of a group. A server has one as long as the
//! records name it; what is known of the server, and what it has under way, belongs to the place. A
//! thread that may wait for the name service looks the records up again when their time to live is
//! over. While the name service does not answer, everything stays as it is.

mod records;

use crate::group::balance::hash;
use crate::group::{MemberIndex, ServerTerms};
use crate::settings::upstream_address::UpstreamAddress;
use forebay_sys::name_service;
use records::{ServiceRecords, ServiceServer};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The least and the longest time until records are looked up again, whatever their time to live, in
/// milliseconds.
const TIME_TO_LIVE_MS: (u64, u64) = (1_000, 300_000);

/// How soon records that were not found are looked up again, in milliseconds.
const AGAIN_MS: u64 = 10_000;

/// The largest weight that the balancer gets; larger ones are scaled down to it.
const MOST_WEIGHT: u32 = 100;

/// The services of a group of upstreams.
#[derive(Debug)]
pub(crate) struct NamedServices(Vec<NamedService>);

#[derive(Debug)]
struct NamedService {
    name: Box<str>,
    places: Range<MemberIndex>,
    state: Mutex<ServiceState>,
    /// The lines for the operator that are due: the service, and what to say of it.
    said: Mutex<Vec<(String, String)>>,
}

/// The state of one service.
#[derive(Debug)]
struct ServiceState {
    /// The servers by place.
    servers: Vec<Option<ServiceServer>>,
    due_ms: u64,
    /// Whether the records were not found the last time.
    is_lost: bool,
    /// How many servers without a place the records named the last time.
    too_many: usize,
}

/// A change of a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlaceChange {
    /// The place.
    pub(crate) member: MemberIndex,
    /// The name and the port of the server that has it; `None` if it is empty.
    pub(crate) server: Option<(Box<str>, u16)>,
    /// What the records say of that server.
    pub(crate) said: Option<ServerTerms>,
    /// Whether another server, or none, had the place before.
    pub(crate) is_other: bool,
    /// Whether no server had it before.
    pub(crate) was_vacant: bool,
}

impl NamedServices {
    /// The services among these addresses, where the places of one service are next to each other.
    pub(crate) fn new(to: &[UpstreamAddress]) -> NamedServices {
        let mut services: Vec<NamedService> = Vec::new();
        for (at, address) in to.iter().enumerate() {
            let UpstreamAddress::Service(place) = address else { continue };
            match services.last_mut() {
                Some(last) if place.place > 0 && last.places.end == at => last.places.end += 1,
                _ => services.push(NamedService::new(&place.name, at)),
            }
        }
        NamedServices(services)
    }

    /// Looks up the services that are due, and returns the changes of their places. `is_free` says
    /// whether a place has no requests under way. May wait for a name service.
    pub(crate) fn look_up(
        &self,
        now_ms: u64,
        is_free: impl Fn(MemberIndex) -> bool,
    ) -> Vec<PlaceChange> {
        let due = self.0.iter().filter(|service| service.state().due_ms <= now_ms);
        let changes = due.flat_map(|service| {
            let found = name_service::records(&service.name, name_service::SRV).ok();
            let found = found.and_then(|answer| ServiceRecords::read(&answer));
            service.take(found, now_ms, &is_free)
        });
        changes.collect()
    }

    /// The lines for the operator since the last call: the service, and what to say of it.
    pub(crate) fn notices(&self) -> Vec<(String, String)> {
        let said = |service: &NamedService| {
            std::mem::take(&mut *service.said.lock().unwrap_or_else(PoisonError::into_inner))
        };
        self.0.iter().flat_map(said).collect()
    }
}

impl NamedService {
    fn new(name: &str, at: MemberIndex) -> NamedService {
        let state = ServiceState { servers: Vec::new(), due_ms: 0, is_lost: false, too_many: 0 };
        NamedService {
            name: name.into(),
            places: at..at + 1,
            state: Mutex::new(state),
            said: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, ServiceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, what: String) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.push((self.name.to_string(), what));
    }

    /// Takes over the records that were found, or notes that there were none.
    fn take(
        &self,
        found: Option<ServiceRecords>,
        now_ms: u64,
        is_free: impl Fn(MemberIndex) -> bool,
    ) -> Vec<PlaceChange> {
        let mut state = self.state();
        let Some(found) = found else {
            state.due_ms = now_ms + AGAIN_MS;
            if !std::mem::replace(&mut state.is_lost, true) {
                self.say(
                    "the name service has no records of it; its servers stay as they are".into(),
                );
            }
            return Vec::new();
        };
        if std::mem::take(&mut state.is_lost) {
            self.say("the name service has records of it again".into());
        }
        let lives_ms = u64::from(found.lives_s) * 1000;
        state.due_ms = now_ms + lives_ms.clamp(TIME_TO_LIVE_MS.0, TIME_TO_LIVE_MS.1);
        let before = std::mem::take(&mut state.servers);
        let (servers, too_many) =
            assign(&before, self.places.len(), found.servers, |at| is_free(self.places.start + at));
        if std::mem::replace(&mut state.too_many, too_many) != too_many && too_many > 0 {
            let (all, most) = (self.places.len() + too_many, self.places.len());
            self.say(format!("its records name {all} servers, of which {most} are asked"));
        }
        let changes = self.changes(&before, &servers);
        state.servers = servers;
        changes
    }

    fn changes(
        &self,
        before: &[Option<ServiceServer>],
        now: &[Option<ServiceServer>],
    ) -> Vec<PlaceChange> {
        let first = now.iter().flatten().map(|server| server.priority).min();
        let heaviest = now.iter().flatten().map(|server| server.weight).max().unwrap_or(0);
        let terms = |server: &ServiceServer| ServerTerms {
            weight: weight(server.weight, heaviest),
            is_backup: Some(server.priority) > first,
            key: hash(server.called().as_bytes()),
        };
        let mut changes = Vec::new();
        for (at, one) in now.iter().enumerate() {
            let had = before.get(at).and_then(Option::as_ref);
            let is_other = match (had, one) {
                (Some(had), Some(one)) => !had.is_same(one),
                (None, None) => false,
                _ => true,
            };
            if is_other {
                self.tell(at, had, one.as_ref());
            }
            changes.push(PlaceChange {
                member: self.places.start + at,
                server: one.as_ref().map(|one| (one.host.clone(), one.port)),
                said: one.as_ref().map(terms),
                is_other,
                was_vacant: had.is_none(),
            });
        }
        changes
    }

    fn tell(&self, at: usize, had: Option<&ServiceServer>, has: Option<&ServiceServer>) {
        let number = at + 1;
        self.say(match (had, has) {
            (_, Some(has)) => format!("#{number} is {} now", has.called()),
            (Some(had), None) => {
                format!("{}, which was #{number}, is none of its servers any more", had.called())
            }
            (None, None) => return,
        });
    }
}

/// Scales a weight to the heaviest one; 0 remains 0.
fn weight(weight: u16, heaviest: u16) -> u16 {
    let scaled = match u32::from(heaviest) {
        heaviest if heaviest > MOST_WEIGHT => u32::from(weight) * MOST_WEIGHT / heaviest,
        _ => u32::from(weight),
    };
    u16::try_from(scaled.max(1)).unwrap_or(u16::MAX)
}

/// Assigns servers to places. Servers that had a place keep it. Others get an empty place first, then
/// one whose server is gone, and last one whose server is gone and still has requests under way. Also
/// returns how many servers get none.
fn assign(
    before: &[Option<ServiceServer>],
    places: usize,
    mut named: Vec<ServiceServer>,
    is_free: impl Fn(usize) -> bool,
) -> (Vec<Option<ServiceServer>>, usize) {
    named.sort_by(|a, b| {
        let order = |one: &ServiceServer| (one.priority, std::cmp::Reverse(one.weight));
        order(a).cmp(&order(b)).then_with(|| (&a.host, a.port).cmp(&(&b.host, b.port)))
    });
    let mut kept: Vec<ServiceServer> = Vec::new();
    for one in named {
        if !kept.iter().any(|known| known.is_same(&one)) {
            kept.push(one);
        }
    }
    let too_many = kept.len().saturating_sub(places);
    kept.truncate(places);
    let mut servers: Vec<Option<ServiceServer>> = vec![None; places];
    for (at, had) in before.iter().enumerate() {
        let Some(had) = had else { continue };
        if let Some(index) = kept.iter().position(|one| one.is_same(had)) {
            servers[at] = Some(kept.remove(index));
        }
    }
    for one in kept {
        let empty =
            || servers.iter().enumerate().filter(|(_, has)| has.is_none()).map(|(at, _)| at);
        let was_vacant = |at: usize| before.get(at).is_none_or(Option::is_none);
        let at = empty().find(|at| was_vacant(*at) && is_free(*at));
        let at = at.or_else(|| empty().find(|at| is_free(*at))).or_else(|| empty().next());
        if let Some(at) = at {
            servers[at] = Some(one);
        }
    }
    (servers, too_many)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::ServicePlace;

    fn server(host: &str, priority: u16, weight: u16) -> ServiceServer {
        ServiceServer { host: host.into(), port: 80, priority, weight }
    }

    fn hosts(servers: &[Option<ServiceServer>]) -> Vec<&str> {
        servers.iter().map(|one| one.as_ref().map_or("", |one| &*one.host)).collect()
    }

    #[test]
    fn servers_keep_their_places() {
        let (first, _) =
            assign(&[], 4, vec![server("b", 1, 1), server("a", 1, 1), server("a", 1, 1)], |_| true);
        assert_eq!(hosts(&first), ["a", "b", "", ""]);
        // b is gone, and still has requests under way
        let (second, _) =
            assign(&first, 4, vec![server("c", 1, 9), server("a", 1, 1)], |at| at != 1);
        assert_eq!(hosts(&second), ["a", "", "c", ""]);
        let many = ["d", "e", "f", "a"].map(|host| server(host, 1, 1)).to_vec();
        let (third, too_many) = assign(&second, 3, many, |at| at != 1);
        assert_eq!((hosts(&third), too_many), (vec!["a", "e", "d"], 1));
        assert_eq!(hosts(&assign(&third, 3, Vec::new(), |_| true).0), ["", "", ""]);
    }

    fn service() -> NamedService {
        NamedService { places: 2..5, ..NamedService::new("_http._tcp.app.internal", 2) }
    }

    fn records(servers: Vec<ServiceServer>, lives_s: u32) -> Option<ServiceRecords> {
        Some(ServiceRecords { servers, lives_s })
    }

    #[test]
    fn priorities_are_backups_and_weights_are_parts() {
        let service = service();
        let named = vec![server("a", 1, 60_000), server("b", 1, 6_000), server("c", 5, 0)];
        let changes = service.take(records(named.clone(), 0), 7, |_| true);
        let said: Vec<_> = changes.iter().map(|one| one.said.unwrap()).collect();
        assert_eq!(said.iter().map(|one| one.weight).collect::<Vec<_>>(), [100, 10, 1]);
        assert_eq!(said.iter().map(|one| one.is_backup).collect::<Vec<_>>(), [false, false, true]);
        assert_eq!(changes.iter().map(|one| one.member).collect::<Vec<_>>(), [2, 3, 4]);
        assert!(changes.iter().all(|one| one.is_other));
        assert_eq!(service.state().due_ms, 1_007);
        // the first has gone: servers of the next priority are no backups then
        let changes = service.take(records(named[2..].to_vec(), 60), 2_000, |_| true);
        let is_other: Vec<_> = changes.iter().map(|one| one.is_other).collect();
        assert_eq!(is_other, [true, true, false]);
        assert!(!changes[2].said.unwrap().is_backup && changes[0].said.is_none());
        assert_eq!(service.state().due_ms, 62_000);
    }

    #[test]
    fn what_is_not_found_stays() {
        let service = service();
        service.take(records(vec![server("a", 1, 1)], 30), 0, |_| true);
        assert_eq!(service.take(None, 30_000, |_| true), []);
        service.take(None, 40_000, |_| true);
        assert_eq!(service.state().due_ms, 50_000);
        assert_eq!(hosts(&service.state().servers), ["a", "", ""]);
        let services = NamedServices(vec![service]);
        let said: Vec<_> = services.notices().into_iter().map(|(_, what)| what).collect();
        assert_eq!(
            said,
            [
                "#1 is a:80 now",
                "the name service has no records of it; its servers stay as they are"
            ]
        );
        assert!(services.notices().is_empty());
    }

    #[test]
    fn places_of_a_service_stand_together() {
        let of = |name: &str| {
            let place = ServicePlace { name: name.into(), place: 0 };
            UpstreamAddress::Service(place).places()
        };
        let to = [of("_a._tcp.x"), of("_b._tcp.x")].concat();
        let services = NamedServices::new(&to);
        let places: Vec<_> = services.0.iter().map(|one| one.places.clone()).collect();
        assert_eq!(places, [0..32, 32..64]);
    }
}
