//! The settings that all routes to applications have: the choice of an upstream, time limits, and the
//! handling of failures.

mod reserves;
mod rows;
pub(crate) mod told;
mod values;
mod weights;

use crate::problems::problem::Wrong;
use crate::problems::quoted::quote;
use crate::values::optional::{OneOrMore, Optional, OptionalList};
use crate::values::units::{Percent, Size};
use crate::values::value::{AutoCount, Written};
use forebay_http::coding::Coding;
use forebay_site::rules::Scope;
use forebay_upstream::settings::{
    Balance, BodySettings, Errors, GroupSettings, HealthCheckSettings, KeepAliveSettings,
    QueueSettings, UpstreamAddress, UpstreamTimeouts, UpstreamTlsSettings, WhenDown,
};
pub(crate) use reserves::ClassReserves;
pub(crate) use rows::HasUpstreams;
use std::iter;
use std::path::PathBuf;
use std::time::Duration;
pub(crate) use values::{
    CertificateName, CheckPath, Destinations, FastCgiAddress, HashKey, HttpAddress, OldestTls,
    ProxyProtocolVersion, ReceiverAddress, Redirects, Statuses, ToldHost, Variables,
};
pub(crate) use weights::UpstreamWeights;

/// Active health checks, as they are written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Checks {
    /// `check.path`; without it there are none
    pub path: Option<CheckPath>,
    /// `check.interval`
    pub interval: Optional<Duration>,
    /// `check.status`
    pub status: OneOrMore<Statuses>,
}

impl Checks {
    const INTERVAL: Duration = Duration::from_secs(5);

    pub(crate) fn settings(&self) -> Option<HealthCheckSettings> {
        let statuses = match &self.status.0[..] {
            [] => vec![(200, 299)],
            statuses => statuses.iter().map(|Statuses(least, most)| (*least, *most)).collect(),
        };
        Some(HealthCheckSettings {
            path: self.path.as_ref()?.0.clone(),
            interval: self.interval.0.unwrap_or(Checks::INTERVAL),
            statuses,
        })
    }

    /// A key that means nothing without a path.
    pub(crate) fn idle(&self) -> Option<&'static str> {
        let is_alone = self.path.is_none();
        let keys = [
            ("check.interval", self.interval.0.is_some()),
            ("check.status", !self.status.0.is_empty()),
        ];
        keys.iter().find(|(_, is_set)| is_alone && *is_set).map(|(key, _)| *key)
    }
}

/// Settings that all routes to applications have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UpstreamsConfig {
    /// `compress`
    pub compress: OptionalList<Coding>,
    /// `balance`
    pub balance: Balance,
    /// `hash`
    pub hash: Optional<HashKey>,
    /// `weights`
    pub weights: UpstreamWeights,
    /// `in_flight`
    pub in_flight: Optional<AutoCount>,
    /// `in_flight_min`
    pub in_flight_min: Optional<u64>,
    /// `in_flight_max`
    pub in_flight_max: Optional<u64>,
    /// `reserve`
    pub reserve: ClassReserves,
    /// `queue.*`
    pub queue: QueueConfig,
    /// `retries`
    pub retries: u64,
    /// `retry_budget`
    pub retry_budget: Percent,
    /// `max_fails`
    pub max_fails: u64,
    /// `fail_time`
    pub fail_time: Duration,
    /// `slow_start`
    pub slow_start: Optional<Duration>,
    /// `body_bytes`
    pub body_bytes: Size,
    /// `buffer_bytes`
    pub buffer_bytes: Size,
    /// `errors`
    pub errors: Errors,
    /// `abort_on_close`
    pub abort_on_close: bool,
    /// `accel_redirect`
    pub sends: Vec<Scope>,
    /// `keep_alive.*`
    pub keep_alive: KeptConnections,
    /// `timeouts.*`
    pub timeouts: UpstreamTimes,
}

/// Requests that wait for an upstream.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueueConfig {
    /// `queue.requests`
    pub requests: Optional<u64>,
    /// `queue.time`
    pub time: Optional<Duration>,
    /// `queue.down`
    pub down: WhenDown,
}

/// Idle connections to upstreams.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeptConnections {
    /// `keep_alive.connections`
    pub connections: u64,
    /// `keep_alive.idle`
    pub idle: Duration,
}

/// Time limits for upstreams.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UpstreamTimes {
    /// `timeouts.connect`
    pub connect: Duration,
    /// `timeouts.head`
    pub head: Duration,
    /// `timeouts.silence`
    pub silence: Duration,
    /// `timeouts.body`
    pub body: Optional<Duration>,
}

impl UpstreamsConfig {
    /// A key that has no effect without another one, and that other one. Requests may wait for a stream if
    /// connections `are_shared`.
    pub(crate) fn idle(&self, are_shared: bool) -> Option<(&'static str, &'static str)> {
        const NEEDS: &str = "in_flight or queue.down = \"wait\"";
        const AUTO: &str = "in_flight = \"auto\"";
        let is_unbounded = self.in_flight.0.is_none();
        let is_set = !self.is_learnt();
        let never_waits = is_unbounded && self.queue.down == WhenDown::Fail;
        let keys = [
            ("in_flight_min", self.in_flight_min.0.is_some() && is_set, AUTO),
            ("in_flight_max", self.in_flight_max.0.is_some() && is_set, AUTO),
            ("reserve", self.reserve.sum() > 0 && is_unbounded, "in_flight"),
            ("hash", self.hash.0.is_some() && self.balance != Balance::Hash, "balance = \"hash\""),
            ("queue.requests", self.queue.requests.0.is_some() && never_waits, NEEDS),
            ("queue.time", self.queue.time.0.is_some() && never_waits && !are_shared, NEEDS),
            ("timeouts.body", self.timeouts.body.0.is_some() && is_unbounded, "in_flight"),
        ];
        keys.iter().find(|(_, is_idle, _)| *is_idle).map(|(key, _, needs)| (*key, *needs))
    }

    /// Whether the limit on requests under way is learnt.
    pub(crate) fn is_learnt(&self) -> bool {
        self.in_flight.0 == Some(AutoCount::Auto)
    }

    /// The first fault of the settings together, if there is one, with its key.
    pub(crate) fn unfit(&self) -> Option<(&'static str, Wrong)> {
        let unfit = |reason: String| Wrong::Unfit { found: String::new(), reason };
        let (least, most) = self.in_flight_bounds()?;
        if least > most {
            let reason = format!("in_flight_min is {least}, and this no less");
            return Some(("in_flight_max", Wrong::Unfit { found: most.to_string(), reason }));
        }
        let kept = self.reserve.sum();
        let (key, is_too_much) = match self.is_learnt() {
            true => ("in_flight_min", kept >= least),
            false => ("in_flight", kept >= most),
        };
        is_too_much.then(|| {
            let all = if self.is_learnt() { least } else { most };
            let reason = format!(
                "classes keep {kept} of {all} places ({key}), and nothing is left for the others"
            );
            ("reserve", unfit(reason))
        })
    }

    /// The bounds of the places of each upstream: both are the same, unless the number is learnt.
    fn in_flight_bounds(&self) -> Option<(u64, u64)> {
        Some(match self.in_flight.0? {
            AutoCount::Fixed(most) => (most, most),
            AutoCount::Auto => (
                self.in_flight_min.0.unwrap_or(UpstreamsConfig::LEAST),
                self.in_flight_max.0.unwrap_or(UpstreamsConfig::MOST),
            ),
        })
    }

    /// The default bounds between which the places of an application are learnt.
    const LEAST: u64 = 1;
    const MOST: u64 = 1000;

    const QUEUE_REQUESTS: u32 = 1000;
    const QUEUE_TIME: Duration = Duration::from_secs(10);
    const BODY_TIME: Duration = Duration::from_secs(20);

    /// The settings of bodies, of which those up to `spool_bytes` may be collected.
    pub(crate) fn bodies(&self, spool_bytes: u64) -> BodySettings {
        BodySettings { most_bytes: self.body_bytes.0, spool_bytes }
    }

    /// The settings of a group with upstreams at these addresses, and backups at others.
    pub(crate) fn group(
        &self,
        to: Vec<UpstreamAddress>,
        backup: Vec<UpstreamAddress>,
        check: Option<HealthCheckSettings>,
    ) -> GroupSettings {
        let weights = self.weights.in_order();
        // a service stands for several upstreams, which each get its weight beside those of its records
        let places = to.iter().map(|to| to.clone().places().len());
        let weights =
            weights.iter().zip(places).flat_map(|(weight, of)| iter::repeat_n(*weight, of));
        let weights = weights.collect();
        let to: Vec<_> = to.into_iter().flat_map(UpstreamAddress::places).collect();
        let backup: Vec<_> = backup.into_iter().flat_map(UpstreamAddress::places).collect();
        // ranges keep the numbers small
        let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        GroupSettings {
            backups: backup.len(),
            to: to.into_iter().chain(backup).collect(),
            weights,
            balance: self.balance,
            key: self.hash.0.clone().unwrap_or_default().0,
            in_flight: self.in_flight_bounds().map(|(_, most)| small(most)),
            in_flight_from: self
                .in_flight_bounds()
                .filter(|_| self.is_learnt())
                .map(|(least, _)| small(least)),
            reserve: self.reserve.settings(),
            queue: QueueSettings {
                requests: self.queue.requests.0.map_or(UpstreamsConfig::QUEUE_REQUESTS, small),
                time: self.queue.time.0.unwrap_or(UpstreamsConfig::QUEUE_TIME),
                down: self.queue.down,
            },
            keep_alive: KeepAliveSettings {
                connections: small(self.keep_alive.connections),
                idle: self.keep_alive.idle,
            },
            timeouts: UpstreamTimeouts {
                connect: self.timeouts.connect,
                head: self.timeouts.head,
                body: self.timeouts.body.0.unwrap_or(UpstreamsConfig::BODY_TIME),
                silence: self.timeouts.silence,
            },
            retries: small(self.retries),
            retry_permille: small(self.retry_budget.0 / 10),
            max_fails: small(self.max_fails),
            fail_time: self.fail_time,
            slow_start: self.slow_start.0.unwrap_or_default(),
            check,
            abort_on_close: self.abort_on_close,
            tls: None,
            http2: false,
            http2_connections: None,
        }
    }
}

/// Checks that these can be backups of the upstreams at `to`.
///
/// # Errors
/// An address that is there already.
pub(crate) fn backups_fit<A: Written>(to: &[A], backup: &[A]) -> Result<(), (&'static str, Wrong)> {
    match backup.iter().find(|backup| to.contains(backup)) {
        Some(backup) => {
            let reason = "it is in to, and cannot be its own backup".to_owned();
            Err(("backup", Wrong::Unfit { found: quote(&backup.text()), reason }))
        }
        None => Ok(()),
    }
}

/// Settings of TLS to upstreams, as they are written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UpstreamTlsKeys {
    /// `tls.ca`
    pub ca: Vec<PathBuf>,
    /// `tls.server_name`
    pub server_name: Option<CertificateName>,
    /// `tls.certificate`
    pub certificate: Option<PathBuf>,
    /// `tls.key`
    pub key: Option<PathBuf>,
    /// `tls.min_version`
    pub min_version: Optional<OldestTls>,
    /// `tls.verify`
    pub verify: bool,
}

impl UpstreamTlsKeys {
    /// Makes paths relative to a directory.
    pub(crate) fn rebase(&mut self, join: &impl Fn(&mut PathBuf)) {
        self.ca.iter_mut().chain(&mut self.certificate).chain(&mut self.key).for_each(join);
    }

    /// The first fault of these settings with these addresses, if there is one, with its key.
    pub(crate) fn wrong(&self, to: &[HttpAddress]) -> Option<(&'static str, Wrong)> {
        let is_tls = to.iter().any(|to| to.0.is_tls);
        if is_tls && !to.iter().all(|to| to.0.is_tls) {
            let reason = "all of them are spoken with through TLS (https://), or none: one that is not would let \
                          everything be read on the way"
                .to_owned();
            return Some(("to", Wrong::Unfit { found: String::new(), reason }));
        }
        let keys = [
            ("tls.ca", !self.ca.is_empty()),
            ("tls.server_name", self.server_name.is_some()),
            ("tls.certificate", self.certificate.is_some()),
            ("tls.key", self.key.is_some()),
            ("tls.min_version", self.min_version.0.is_some()),
            ("tls.verify", !self.verify),
        ];
        if let Some((key, _)) = keys.iter().find(|(_, is_set)| *is_set && !is_tls) {
            return Some((key, Wrong::Idle { needs: "https:// in to" }));
        }
        match (self.certificate.is_some(), self.key.is_some()) {
            (true, false) => return Some(("tls.certificate", Wrong::Idle { needs: "tls.key" })),
            (false, true) => return Some(("tls.key", Wrong::Idle { needs: "tls.certificate" })),
            _ => {}
        }
        let is_unread = !self.ca.is_empty() && !self.verify;
        is_unread.then_some(("tls.ca", Wrong::Idle { needs: "tls.verify = true" }))
    }

    /// The settings of TLS to upstreams at these addresses.
    pub(crate) fn settings(&self, to: &[HttpAddress]) -> Option<Box<UpstreamTlsSettings>> {
        let shows = self.certificate.clone().zip(self.key.clone());
        let is_tls = to.iter().any(|to| to.0.is_tls);
        is_tls.then(|| {
            Box::new(UpstreamTlsSettings {
                authorities: self.ca.clone(),
                name: self.server_name.clone().map(|name| name.0),
                shows,
                is_1_3: self.min_version.0 == Some(OldestTls::Tls13),
                verifies: self.verify,
            })
        })
    }
}

/// Makes the path of a Unix socket relative to `directory`.
pub(crate) fn rebase(address: &mut UpstreamAddress, join: &impl Fn(&mut PathBuf)) {
    if let UpstreamAddress::Unix(at) = address {
        at.path_mut().into_iter().for_each(join);
    }
}

/// The rows of a kind of section that has all of [`UpstreamsConfig`]: some of its own, those that all
/// have, those of all in subsections, and then its own in subsections; and how many connections are kept,
/// what that means, and another number.
macro_rules! rows_with_upstreams {
    ([$($plain:expr),* $(,)?], [$($below:expr),* $(,)?], $kept:literal, $keeps:literal, $more:literal) => { &[
        $($plain,)*
        Self::BALANCE,
        Self::HASH,
        Self::IN_FLIGHT,
        Self::IN_FLIGHT_MIN,
        Self::IN_FLIGHT_MAX,
        Self::RESERVE,
        Self::RETRIES,
        Self::RETRY_BUDGET,
        Self::MAX_FAILS,
        Self::FAIL_TIME,
        Self::SLOW_START,
        Self::BODY_BYTES,
        Self::BUFFER_BYTES,
        Self::ERRORS,
        Self::COMPRESS,
        Self::ABORT_ON_CLOSE,
        Self::ACCEL_REDIRECT,
        Self::QUEUE_REQUESTS,
        Self::QUEUE_TIME,
        Self::QUEUE_DOWN,
        Setting {
            preset: Preset::Value($kept),
            meaning: $keeps,
            example: $more,
            ..Self::KEEP_ALIVE_CONNECTIONS
        },
        Self::KEEP_ALIVE_IDLE,
        Self::TIMEOUTS_CONNECT,
        Self::TIMEOUTS_HEAD,
        Self::TIMEOUTS_SILENCE,
        Self::TIMEOUTS_BODY,
        $($below,)*
    ] };
}

pub(crate) use rows_with_upstreams;
