//! Decisions and changes, each with its reason: the marks in the charts.

use super::columns::value;
use forebay_control::agent::history::Record;
use forebay_control::level::{Cause, Level};
use forebay_metrics::{ClassLimits, Gauge, Snapshot, UpstreamRow, UpstreamState};
use serde_json::{Value, json};
use std::collections::VecDeque;

/// The number of events that are kept: the last ones.
const MOST: usize = 500;

/// The factor by which a limit must have moved since its last event to be an event again.
const MOVED: f64 = 1.5;

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PageEvent {
    /// Milliseconds since 1970.
    unix_ms: u64,
    /// The kind: `level`, `limit`, `reload`, `upstream`, `stage`, `override`, `ban`.
    kind: &'static str,
    /// A sentence.
    text: String,
}

/// The last events, and the state from which new ones are found.
#[derive(Debug, Default)]
pub(super) struct PageEvents {
    events: VecDeque<PageEvent>,
    /// The beginning of the agent's last record that was examined, and its level.
    agent_ns: u64,
    level: Option<(Level, Cause)>,
    /// The limit of each class at its last event.
    limits: Vec<(String, Option<u64>)>,
}

impl PageEvents {
    fn push(&mut self, unix_ms: u64, kind: &'static str, text: String) {
        if self.events.len() == MOST {
            self.events.pop_front();
        }
        self.events.push_back(PageEvent { unix_ms, kind, text });
    }

    /// The time of the agent's last record that was examined.
    pub(super) fn agent_ns(&self) -> u64 {
        self.agent_ns
    }

    /// Adds the agent's decisions since the last call, the oldest first. `now_ns` is the time on
    /// the agent's clock; `classes` has the names of the classes by rank.
    pub(super) fn decided(
        &mut self,
        (unix_ms, now_ns): (u64, u64),
        classes: &[&str],
        records: &[Record],
    ) {
        for record in records {
            self.agent_ns = record.at_ns;
            let (level, cause) = (record.level, record.cause);
            let before = self.level.replace((level, cause)).unwrap_or_default();
            let is_same = if level.is_overload() {
                before == (level, cause)
            } else {
                before.0.is_overload() == level.is_overload()
            };
            if is_same {
                continue;
            }
            let at_ms = unix_ms.saturating_sub(now_ns.saturating_sub(record.at_ns) / 1_000_000);
            let class = cause.rank().and_then(|rank| classes.get(usize::from(rank)));
            let class = class.map(|name| format!(" of class {name}")).unwrap_or_default();
            let text = match level.is_overload() {
                true => format!(
                    "level {} because of {}{class}; offered load {:.0} %",
                    level.name().replace('_', " "),
                    cause.name().replace('_', " "),
                    record.load * 100.0
                ),
                false => format!("level {}: the overload is over", level.name()),
            };
            self.push(at_ms, "level", text);
        }
    }

    /// Adds the end of a process of a stage.
    pub(super) fn stage(&mut self, at_ms: u64, text: String) {
        self.push(at_ms, "stage", text);
    }

    /// Adds the differences between two snapshots.
    pub(super) fn changed(&mut self, unix_ms: u64, before: &Snapshot, now: &Snapshot) {
        self.reloads(unix_ms, before, now);
        for row in &now.upstreams {
            let is_same = |base: &&UpstreamRow| {
                (&base.site, &base.route, &base.upstream) == (&row.site, &row.route, &row.upstream)
            };
            let base = before.upstreams.iter().find(is_same).map(|base| base.state);
            if base.unwrap_or(UpstreamState::Asked) != row.state {
                let UpstreamRow { site, route, upstream, state, .. } = row;
                let text =
                    format!("{upstream} ({site}, {route}): {}", state.as_str().replace('_', " "));
                self.push(unix_ms, "upstream", text);
            }
        }
        for (setting, _) in &now.overrides {
            if !before.overrides.iter().any(|(known, _)| known == setting) {
                self.push(unix_ms, "override", format!("policy set: {setting}"));
            }
        }
        let bans = |of: &Snapshot| value(of, Gauge::BansByCommand) + value(of, Gauge::BansByFile);
        if bans(before) != bans(now) {
            self.push(unix_ms, "ban", format!("{} addresses and networks are banned", bans(now)));
        }
        for (class, limits) in &now.limits {
            self.limit(unix_ms, class, limits);
        }
    }

    fn reloads(&mut self, unix_ms: u64, before: &Snapshot, now: &Snapshot) {
        let (base, reloads) = (value(before, Gauge::ReloadsGood), value(now, Gauge::ReloadsGood));
        if reloads > base {
            let number = value(now, Gauge::Generation);
            self.push(unix_ms, "reload", format!("reload: configuration {number} is in force"));
        }
        if value(now, Gauge::ReloadsFailed) > value(before, Gauge::ReloadsFailed) {
            let text = "a reload has failed: what was in force stays; the log says why";
            self.push(unix_ms, "reload", text.to_owned());
        }
    }

    fn limit(&mut self, unix_ms: u64, class: &str, limits: &ClassLimits) {
        let at = match self.limits.iter().position(|(known, _)| known == class) {
            Some(at) => at,
            None => {
                self.limits.push((class.to_owned(), None));
                self.limits.len() - 1
            }
        };
        let (before, now) = (self.limits[at].1, limits.window_jobs);
        let is_news = match (before, now) {
            (Some(before), Some(now)) => {
                let (less, more) = (before.min(now) as f64, before.max(now) as f64);
                more > less.max(1.0) * MOVED
            }
            (before, now) => before != now,
        };
        if is_news {
            self.limits[at].1 = now;
            let text = match now {
                Some(most) => format!("class {class}: at most {most} jobs at once"),
                None => format!("class {class}: no limit"),
            };
            self.push(unix_ms, "limit", text);
        }
    }

    /// The events later than `after_ms`, the oldest first.
    pub(super) fn json(&self, after_ms: u64) -> Value {
        let later = self.events.iter().filter(|event| event.unix_ms > after_ms);
        let one = |PageEvent { unix_ms, kind, text }: &PageEvent| json!({"ms": unix_ms, "kind": kind, "text": text});
        Value::Array(later.map(one).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(events: &PageEvents) -> Vec<&str> {
        events.events.iter().map(|event| event.text.as_str()).collect()
    }

    #[test]
    fn a_change_of_the_level_is_an_event_at_its_time() {
        let mut events = PageEvents::default();
        let record =
            |at_ns, level, cause| Record { at_ns, level, cause, load: 1.5, ..Record::default() };
        let calm = record(1_000_000, Level::default(), Cause::default());
        let busy = record(50_000_000, Level::ClassOrder, Cause::Delay(1));
        events.decided(
            (10_000, 100_000_000),
            &["gold", "bulk"],
            &[calm.clone(), busy.clone(), busy],
        );
        assert_eq!(
            texts(&events),
            ["level class order because of delay of class bulk; offered load 150 %"]
        );
        assert_eq!((events.events[0].unix_ms, events.agent_ns()), (9_950, 50_000_000));
        events.decided((11_000, 200_000_000), &[], &[Record { at_ns: 150_000_000, ..calm }]);
        assert_eq!(texts(&events)[1], "level normal: the overload is over");
    }

    #[test]
    fn limits_that_move_little_are_no_event() {
        let mut events = PageEvents::default();
        for most in [Some(10), Some(11), Some(14), Some(30), None] {
            events.limit(1, "gold", &ClassLimits { window_jobs: most, ..ClassLimits::default() });
        }
        let expected = ["at most 10 jobs at once", "at most 30 jobs at once", "no limit"];
        assert_eq!(texts(&events), expected.map(|text| format!("class gold: {text}")));
    }

    #[test]
    fn what_changes_is_told_once_and_the_oldest_go() {
        let mut events = PageEvents::default();
        let row =
            |state| UpstreamRow { upstream: "a:1".to_owned(), state, ..UpstreamRow::default() };
        let of = |state, good| Snapshot {
            upstreams: vec![row(state)],
            gauges: vec![(Gauge::ReloadsGood, good), (Gauge::Generation, 2)],
            ..Snapshot::default()
        };
        events.changed(1, &of(UpstreamState::Asked, 0), &of(UpstreamState::LeftAlone, 1));
        events.changed(2, &of(UpstreamState::LeftAlone, 1), &of(UpstreamState::LeftAlone, 1));
        assert_eq!(texts(&events), ["reload: configuration 2 is in force", "a:1 (, ): left alone"]);
        (0..2 * MOST as u64).for_each(|at| events.push(at, "ban", String::new()));
        assert_eq!(events.json(0).as_array().unwrap().len(), MOST);
    }
}
