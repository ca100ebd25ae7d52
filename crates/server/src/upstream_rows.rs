//! The upstreams of applications as metrics and status show them: by site and route, with their state.

use forebay_config::Config;
use forebay_handler::applications::Applications;
use forebay_handler::policy::InForce;
use forebay_metrics::upstreams::MOST_UPSTREAMS;
use forebay_metrics::{UpstreamRow, UpstreamState};
use forebay_upstream::health::UpstreamCondition;

/// The names of sites and of their routes, as a configuration has them.
#[derive(Clone, Debug, Default)]
pub(crate) struct RouteNames(Vec<(String, Vec<String>)>);

impl RouteNames {
    /// The names in a configuration.
    pub(crate) fn of(config: &Config) -> RouteNames {
        let of = |site: &forebay_config::SiteConfig| (site.name().to_string(), site.route_names());
        RouteNames(config.sites.iter().map(of).collect())
    }

    fn get(&self, site: usize, route: usize) -> (String, String) {
        let Some((name, routes)) = self.0.get(site) else { return Default::default() };
        (name.clone(), routes.get(route).cloned().unwrap_or_default())
    }
}

/// A row for each upstream, in the order of the routes; at most [`MOST_UPSTREAMS`].
pub(crate) fn rows(
    names: &RouteNames,
    applications: &Applications,
    now_ms: u64,
) -> Vec<UpstreamRow> {
    let mut rows: Vec<UpstreamRow> = Vec::new();
    for upstreams in applications.upstreams() {
        let first = applications.routes_to(upstreams).next();
        let (site, route) = first.map(|(site, route)| names.get(site, route)).unwrap_or_default();
        let waiting = upstreams.waiting() as u64;
        for seen in upstreams.seen() {
            let (state, since_ms) = state(seen.condition);
            let row = UpstreamRow {
                site: site.clone(),
                route: route.clone(),
                upstream: seen.label,
                state,
                for_s: since_ms.map(|since_ms| now_ms.saturating_sub(since_ms) / 1000),
                in_flight: seen.in_flight.into(),
                most: seen.most.map(u64::from),
                waiting,
                totals: seen.counted,
            };
            let is_same = |known: &UpstreamRow| {
                (&known.site, &known.route, &known.upstream) == (&site, &route, &row.upstream)
            };
            // an address may occur twice in a list, but a metric has one line for each upstream
            if rows.len() < MOST_UPSTREAMS && !rows.iter().any(is_same) {
                rows.push(row);
            }
        }
    }
    rows
}

fn state(condition: UpstreamCondition) -> (UpstreamState, Option<u64>) {
    match condition {
        UpstreamCondition::Well => (UpstreamState::Asked, None),
        UpstreamCondition::Backup => (UpstreamState::Backup, None),
        UpstreamCondition::Out { since_ms } => (UpstreamState::LeftAlone, Some(since_ms)),
        UpstreamCondition::Unwell { since_ms } => (UpstreamState::ChecksFail, Some(since_ms)),
        UpstreamCondition::Failing { since_ms } => (UpstreamState::Failing, Some(since_ms)),
        UpstreamCondition::Draining => (UpstreamState::Drained, None),
    }
}

/// The number of requests that wait for applications, by class.
pub(crate) fn waiting(policy: &InForce, applications: &Applications) -> Vec<(String, u64)> {
    let of = |rank: u8| -> u64 {
        applications.upstreams().map(|one| u64::from(one.counts(rank).waiting)).sum()
    };
    let classes = (0..).zip(policy.policy.classes());
    classes.map(|(rank, class)| (class.name.clone(), of(rank))).collect()
}
