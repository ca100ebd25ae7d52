//! The text about the number of requests under way at an upstream that is useful, where this was learnt.

use forebay_control::concurrency::LimitChange;
use forebay_upstream::learnt::LearntReport;

/// The text. `now_ms` is the time on the clock of upstreams.
pub(super) fn words(report: &LearntReport, now_ms: u64) -> String {
    let LearntReport { useful, workers, tunnels } = report;
    let mut text = match useful.answers {
        0 => format!(
            "{} at once to begin with: nothing is learnt before more requests wait",
            useful.held
        ),
        answers => {
            let (low, high) = useful.likely;
            format!(
                "{} at once are useful ({low} to {high}), learnt from {answers} answers",
                useful.held
            )
        }
    };
    if let Some((before, why, at_ns)) = useful.changed {
        let ago_s = now_ms.saturating_sub(at_ns / 1_000_000) / 1000;
        text += &format!("; {before} until {ago_s} s ago, when {}", reason(why));
    }
    if useful.limit != useful.held {
        let what = if useful.limit > useful.held { "more" } else { "fewer" };
        text += &format!("; {} now, to see whether {what} would be better", useful.limit);
    }
    if let Some(workers) = workers {
        text += &format!("; it says that it has {workers} workers");
    }
    if *tunnels > 0 {
        text += &format!("; {tunnels} tunnels beside");
    }
    text
}

fn reason(why: LimitChange) -> &'static str {
    match why {
        LimitChange::MoreGaveMore => "as many as that had given more than fewer",
        LimitChange::MoreIsUseful => "more gave more",
        LimitChange::FewerGiveAsMuch => "fewer gave as much",
        LimitChange::MoreFailed => "most of more answers were errors",
        LimitChange::NothingEnds => "requests waited and none ended",
        LimitChange::Bounds => "its bounds changed",
        LimitChange::Handed => "this process took over what the one before had learnt",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_control::concurrency::ConcurrencyReport;

    #[test]
    fn a_number_is_explained() {
        let useful =
            ConcurrencyReport { limit: 8, held: 8, likely: (1, 900), answers: 0, changed: None };
        let report = LearntReport { useful, workers: None, tunnels: 0 };
        assert_eq!(
            words(&report, 0),
            "8 at once to begin with: nothing is learnt before more requests wait"
        );
        let changed = Some((16, LimitChange::FewerGiveAsMuch, 2_000_000_000));
        let useful =
            ConcurrencyReport { limit: 10, held: 12, likely: (11, 13), answers: 1532, changed };
        let report = LearntReport { useful, workers: Some(12), tunnels: 3 };
        assert_eq!(
            words(&report, 42_000),
            "12 at once are useful (11 to 13), learnt from 1532 answers; 16 until 40 s ago, when fewer gave as \
             much; 10 now, to see whether fewer would be better; it says that it has 12 workers; 3 tunnels beside"
        );
    }
}
