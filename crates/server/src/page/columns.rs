//! Turns two snapshots, a second apart, into the figures of that second.

use forebay_metrics::{ClassTotals, Counter, Gauge, RefusedAt, SiteTotals, Snapshot, UpstreamRow};

/// The identity of a figure: a group such as `class`, a name in it, and the kind of figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HistoryColumn {
    pub(super) group: &'static str,
    pub(super) name: String,
    pub(super) figure: &'static str,
}

/// The figures of one moment, each with its column.
pub(super) type PageFigures = Vec<(HistoryColumn, f32)>;

/// The largest numbers of sites and upstreams with figures in the history: the first ones. Tables show all.
const MOST_SITES: usize = 20;
const MOST_UPSTREAMS: usize = 20;

/// The rates in the `seconds` between two snapshots, and the state at the end.
pub(super) fn figures(before: &Snapshot, now: &Snapshot, seconds: f64) -> PageFigures {
    let mut made = FigureMaker { figures: Vec::with_capacity(64), seconds: seconds.max(1e-3) };
    made.of_server(before, now);
    made.of_pipeline(before, now);
    for (name, totals) in &now.classes {
        let base = of_name(&before.classes, name);
        made.of_class(name, &base, totals);
    }
    for (name, totals) in now.sites.iter().take(MOST_SITES) {
        let base = of_name(&before.sites, name);
        made.of_site(name, &base, totals);
    }
    for row in now.upstreams.iter().take(MOST_UPSTREAMS) {
        let is_same = |base: &&UpstreamRow| {
            (&base.site, &base.route, &base.upstream) == (&row.site, &row.route, &row.upstream)
        };
        if let Some(base) = before.upstreams.iter().find(is_same) {
            made.of_upstream(base, row);
        }
    }
    made.figures
}

/// The earlier count of this name; zero for a new name.
fn of_name<T: Clone + Default>(rows: &[(String, T)], name: &str) -> T {
    rows.iter()
        .find(|(known, _)| known == name)
        .map(|(_, totals)| totals.clone())
        .unwrap_or_default()
}

struct FigureMaker {
    figures: PageFigures,
    seconds: f64,
}

impl FigureMaker {
    fn put(&mut self, group: &'static str, name: &str, figure: &'static str, value: f64) {
        self.figures.push((HistoryColumn { group, name: name.to_owned(), figure }, value as f32));
    }

    /// A rate per second.
    fn rate(
        &mut self,
        group: &'static str,
        name: &str,
        figure: &'static str,
        before: u64,
        now: u64,
    ) {
        self.put(group, name, figure, now.saturating_sub(before) as f64 / self.seconds);
    }

    fn of_server(&mut self, before: &Snapshot, now: &Snapshot) {
        use Counter as C;
        let rates: [(&str, &[Counter]); 17] = [
            ("accepted", &[C::Accepted]),
            ("closed", &[C::Closed]),
            ("1xx", &[C::Status1xx]),
            ("2xx", &[C::Status2xx]),
            ("3xx", &[C::Status3xx]),
            ("4xx", &[C::Status4xx]),
            ("5xx", &[C::Status5xx]),
            ("received", &[C::ReceivedBytes]),
            ("sent", &[C::SentBytes]),
            (
                "refused_connections",
                &[
                    C::RefusedTotal,
                    C::RefusedClient,
                    C::RefusedDescriptors,
                    C::RefusedProxy,
                    C::RefusedProxyHeader,
                    C::RefusedVerdict,
                    C::RefusedHandshake,
                ],
            ),
            (
                "timeouts",
                &[
                    C::TimeoutHead,
                    C::TimeoutBody,
                    C::TimeoutIdle,
                    C::TimeoutSend,
                    C::TimeoutJob,
                    C::TimeoutPlace,
                    C::TimeoutSlot,
                ],
            ),
            ("aborted", &[C::Aborted, C::Changed, C::BrokenUpstream]),
            ("given_up", &[C::GivenUp]),
            ("cache_hits", &[C::CacheHits]),
            ("cache_misses", &[C::CacheMisses]),
            ("handshakes", &[C::HandshakesFull, C::HandshakesResumed]),
            ("send_waits", &[C::SendWaits]),
        ];
        for (figure, counters) in rates {
            let sum = |of: &Snapshot| counters.iter().map(|one| of.totals.get(*one)).sum();
            self.rate("server", "", figure, sum(before), sum(now));
        }
        for (gauge, figure) in [
            (Gauge::Connections, "connections"),
            (Gauge::OverloadLevel, "level"),
            (Gauge::OfferedLoad, "load"),
            (Gauge::QueuedByRules, "queued_by_rules"),
            (Gauge::UpstreamInFlight, "upstream_in_flight"),
            (Gauge::UpstreamWaiting, "upstream_waiting"),
        ] {
            self.put("server", "", figure, value(now, gauge) as f64);
        }
        if let (Some(base), Some(gate)) = (&before.gate, &now.gate) {
            for figure in ["passed", "dropped"] {
                let of = |syns: &[(&'static str, u64)]| -> u64 {
                    syns.iter().filter(|(name, _)| *name == figure).map(|(_, count)| count).sum()
                };
                self.rate("gate", "", figure, of(&base.syns), of(&gate.syns));
            }
        }
    }

    fn of_pipeline(&mut self, before: &Snapshot, now: &Snapshot) {
        if value(now, Gauge::ProcessThreads) == 0 {
            return;
        }
        for (phase, place) in [("accept", 0), ("receive", 1), ("process", 2), ("send", 3)] {
            let of = |gauge: Gauge| Gauge::ALL[gauge as usize + place];
            for (gauge, figure) in [
                (Gauge::AcceptThreads, "threads"),
                (Gauge::AcceptWaiting, "waiting"),
                (Gauge::AcceptBusy, "busy_percent"),
            ] {
                self.put("phase", phase, figure, value(now, of(gauge)) as f64);
            }
            let sums = |gauge: Gauge| (value(before, of(gauge)), value(now, of(gauge)));
            let (tasks_before, tasks) = sums(Gauge::AcceptTasks);
            self.rate("phase", phase, "tasks", tasks_before, tasks);
            let (queued_before, queued) = sums(Gauge::AcceptQueued);
            self.mean(
                "phase",
                phase,
                "delay_ms",
                (queued_before, queued, 1e3),
                tasks.saturating_sub(tasks_before),
            );
        }
    }

    /// The mean of what was added between the snapshots; `sums` is in units of which
    /// so many are a millisecond.
    fn mean(
        &mut self,
        group: &'static str,
        name: &str,
        figure: &'static str,
        (before, now, per_ms): (u64, u64, f64),
        count: u64,
    ) {
        let value = match count {
            0 => f64::NAN,
            count => now.saturating_sub(before) as f64 / count as f64 / per_ms,
        };
        self.put(group, name, figure, value);
    }

    fn of_class(&mut self, name: &str, before: &ClassTotals, now: &ClassTotals) {
        for (figure, of) in [
            ("offered", (|class| class.offered) as fn(&ClassTotals) -> u64),
            ("answered", |class| class.answered),
            ("cut", |class| class.cut),
            ("refused", |class| class.refused_at(RefusedAt::Request)),
            ("refused_connections", |class| class.refused_at(RefusedAt::Accept)),
            ("bytes", |class| class.body_bytes),
        ] {
            self.rate("class", name, figure, of(before), of(now));
        }
        self.put("class", name, "in_flight", now.in_flight() as f64);
        let worked = now.worked_ns.saturating_sub(before.worked_ns) as f64 / 1e9 / self.seconds;
        self.put("class", name, "cores", worked);
        let waits = now.waits().saturating_sub(before.waits());
        self.mean("class", name, "delay_ms", (before.delay_ns, now.delay_ns, 1e6), waits);
        let took = now.durations.since(&before.durations);
        if now.durations.count() > 0 {
            let p99_ms = took.quantile_us(0.99).map_or(f64::NAN, |us| us as f64 / 1e3);
            self.put("class", name, "p99_ms", p99_ms);
        }
    }

    fn of_site(&mut self, name: &str, before: &SiteTotals, now: &SiteTotals) {
        let sum = |of: &SiteTotals| of.responses.iter().sum();
        self.rate("site", name, "answers", sum(before), sum(now));
        self.rate("site", name, "5xx", before.responses[4], now.responses[4]);
    }

    fn of_upstream(&mut self, before: &UpstreamRow, now: &UpstreamRow) {
        let name = format!("{} · {} · {}", now.site, now.route, now.upstream);
        let (base, totals) = (&before.totals, &now.totals);
        let sum = |answers: &[u64; 5]| answers.iter().sum();
        self.rate("upstream", &name, "answers", sum(&base.answers), sum(&totals.answers));
        self.rate("upstream", &name, "failed", base.failed, totals.failed);
        let heads = totals.heads.since(&base.heads).count();
        self.mean(
            "upstream",
            &name,
            "head_ms",
            (base.heads.sum_ns, totals.heads.sum_ns, 1e6),
            heads,
        );
        self.put("upstream", &name, "in_flight", now.in_flight as f64);
        self.put("upstream", &name, "waiting", now.waiting as f64);
    }
}

/// The value of a gauge; 0 if the snapshot does not have it.
pub(super) fn value(snapshot: &Snapshot, gauge: Gauge) -> u64 {
    snapshot.gauges.iter().find(|(known, _)| *known == gauge).map_or(0, |(_, value)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_metrics::{ClassEvent, ClassSlot, Local, RefusalReason, Totals};

    fn get(figures: &PageFigures, group: &str, name: &str, figure: &str) -> f32 {
        let is_meant = |(one, _): &&(HistoryColumn, f32)| {
            (one.group, one.name.as_str(), one.figure) == (group, name, figure)
        };
        figures.iter().find(is_meant).unwrap().1
    }

    #[test]
    fn what_was_counted_in_between_is_a_rate() {
        let local = Local::default();
        let snapshot = |local: &Local| {
            let totals = Totals::of([local]);
            let classes = vec![("gold".to_owned(), *totals.class(ClassSlot(0)))];
            let gauges = vec![(Gauge::Connections, 7)];
            Snapshot { totals, classes, gauges, ..Snapshot::default() }
        };
        local.add(Counter::Accepted, 5);
        let before = snapshot(&local);
        local.add(Counter::Accepted, 30);
        local.enter(ClassSlot(0), ClassEvent::Offered);
        let reason = RefusalReason::Agent;
        local.enter(ClassSlot(0), ClassEvent::Refused(RefusedAt::Request, reason));
        local.waited(ClassSlot(0), 4_000_000);
        let figures = figures(&before, &snapshot(&local), 2.0);
        assert_eq!(get(&figures, "server", "", "accepted"), 15.0);
        assert_eq!(get(&figures, "server", "", "connections"), 7.0);
        assert_eq!(get(&figures, "class", "gold", "refused"), 0.5);
        assert_eq!(get(&figures, "class", "gold", "delay_ms"), 4.0);
    }

    #[test]
    fn a_mean_of_nothing_is_no_number() {
        let rows = |in_flight| {
            vec![UpstreamRow {
                upstream: "10.0.0.1:80".to_owned(),
                in_flight,
                ..UpstreamRow::default()
            }]
        };
        let of = |in_flight| Snapshot { upstreams: rows(in_flight), ..Snapshot::default() };
        let figures = figures(&of(1), &of(2), 1.0);
        let name = " ·  · 10.0.0.1:80";
        assert!(get(&figures, "upstream", name, "head_ms").is_nan());
        assert_eq!(get(&figures, "upstream", name, "in_flight"), 2.0);
    }
}
