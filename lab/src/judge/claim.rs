//! A claim in one round: whether it is true, and by which number.

use super::select::{combinations, is_selected, joined, point, row_at};
use super::shape;
use super::{ClaimFinding, ClaimSubject, JudgeMode};
use crate::experiment::{
    Claim, ClaimBound, ClaimBounds, ClaimKind, CurveShape, Experiment, ExperimentTask, PaperFigure,
    RatioTo, RowSelector, SelectedWord,
};
use crate::rows::RawRow;
use crate::summary::Spread;

/// The material by which a claim is judged in a round.
#[derive(Clone, Copy, Debug)]
pub struct ClaimInRound<'r> {
    /// The file.
    pub experiment: &'r Experiment,
    /// The figure.
    pub figure: &'r PaperFigure,
    /// The claim.
    pub claim: &'r Claim,
    /// The rows of the round.
    pub rows: &'r [&'r RawRow],
    /// The rows of all rounds that are judged; they show which peer is best.
    pub all: &'r [&'r RawRow],
    /// The mode; a short form measures some of what a claim lists.
    pub mode: JudgeMode,
}

/// One condition of a claim.
struct Check {
    number: f64,
    is_so: bool,
    /// The distance from the other outcome; of several checks the one with the least counts.
    room: f64,
}

impl ClaimInRound<'_> {
    /// The selection of rows that the claim is about.
    pub fn of(&self) -> RowSelector {
        joined(&self.figure.at, &self.claim.of)
    }

    /// Finds out whether the claim is true of a subject.
    pub fn find(&self, subject: &ClaimSubject) -> ClaimFinding {
        let checks = match &self.claim.kind {
            ClaimKind::Value(bounds) => self.values(subject, bounds),
            ClaimKind::Ratio { to, bounds } => self.ratios(subject, to, bounds),
            ClaimKind::Order { order, slack } => self.orders(subject, order, *slack),
            ClaimKind::Along { over, shape, slack } => self.curves(subject, over, shape, *slack),
            ClaimKind::CannotBeJudged(_) => None,
        };
        let worst = checks.filter(|checks| !checks.is_empty()).and_then(|checks| {
            checks.into_iter().min_by(|one, other| one.room.total_cmp(&other.room))
        });
        match worst {
            None => ClaimFinding::Missing,
            Some(Check { number, is_so: true, .. }) => ClaimFinding::True(number),
            Some(Check { number, .. }) => ClaimFinding::False(number),
        }
    }

    /// The rows of a subject; `None` if a word that the claim names is in none of them.
    fn mine(&self, subject: &ClaimSubject, without: &[&str]) -> Option<Vec<&RawRow>> {
        let named = |word: &&SelectedWord| !without.contains(&word.key.as_str());
        let of = RowSelector(self.of().0.iter().filter(named).cloned().collect());
        let is_mine = |row: &&RawRow| {
            is_selected(row, &of) && subject.0.iter().all(|(key, word)| row.text(key) == word)
        };
        let mine: Vec<&RawRow> = self.rows.iter().copied().filter(is_mine).collect();
        let is_whole = of.0.iter().filter(|word| subject.word(&word.key).is_none()).all(|word| {
            let mut there =
                word.words.iter().map(|one| mine.iter().any(|row| row.text(&word.key) == one));
            match self.mode {
                JudgeMode::Whole => there.all(|is_there| is_there),
                JudgeMode::Quick => there.any(|is_there| is_there),
            }
        });
        is_whole.then_some(mine)
    }

    fn values(&self, subject: &ClaimSubject, bounds: &ClaimBounds) -> Option<Vec<Check>> {
        let mine = self.mine(subject, &[])?;
        mine.iter().map(|row| Some(check(row.get(&self.claim.figure)?, bounds, row))).collect()
    }

    fn ratios(
        &self,
        subject: &ClaimSubject,
        to: &RatioTo,
        bounds: &ClaimBounds,
    ) -> Option<Vec<Check>> {
        let mine = self.mine(subject, &[])?;
        let mut checks = Vec::new();
        for row in mine {
            let value = row.get(&self.claim.figure)?;
            let (words, figure) = match to {
                RatioTo::Rows { words, figure } if figure.is_empty() => {
                    (words.clone(), &self.claim.figure)
                }
                RatioTo::Rows { words, figure } => (words.clone(), figure),
                RatioTo::Best => {
                    let key = "server".to_owned();
                    let words = vec![self.best_peer(row)?];
                    (RowSelector(vec![SelectedWord { key, words }]), &self.claim.figure)
                }
            };
            for instead in combinations(&words) {
                let other = row_at(self.rows, &point(row, &[]), &instead);
                if other.is_none() && self.mode == JudgeMode::Quick {
                    continue;
                }
                let other = other?.get(figure)?;
                checks.push(check(value / other.abs().max(1e-12), bounds, row));
            }
        }
        Some(checks)
    }

    /// The peer with the largest median where a row was measured.
    fn best_peer(&self, row: &RawRow) -> Option<String> {
        let ExperimentTask::Load(load) = &self.experiment.task else { return None };
        let point = point(row, &["server", "form"]);
        let median = |peer: &&String| {
            let here = self.all.iter().filter(|other| {
                other.is_valid()
                    && other.text("server") == *peer
                    && point.iter().all(|(key, word)| other.text(key) == *word)
            });
            Spread::of(here.filter_map(|row| row.get(&self.claim.figure)))
                .map(|spread| spread.median)
        };
        let known = load.cast.peers.iter().filter_map(|peer| Some((median(&peer)?, peer)));
        known.max_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, peer)| peer.clone())
    }

    fn orders(
        &self,
        subject: &ClaimSubject,
        order: &[RowSelector],
        slack: f64,
    ) -> Option<Vec<Check>> {
        let named: Vec<&str> =
            order.iter().flat_map(|one| &one.0).map(|word| word.key.as_str()).collect();
        let mut without = named.clone();
        if named.contains(&"server") {
            without.push("form");
        }
        let first = order.first()?;
        let mine = self.mine(subject, &without)?;
        let mut checks = Vec::new();
        for row in mine.iter().filter(|row| is_selected(row, first)) {
            let place = point(row, &without);
            // of several words, each comes before each of the next
            let values: Vec<Spread> = order
                .iter()
                .map(|selector| {
                    let one = |words: Vec<(&str, &str)>| {
                        row_at(&mine, &place, &words)?.get(&self.claim.figure)
                    };
                    let all: Vec<f64> =
                        combinations(selector).into_iter().map(one).collect::<Option<_>>()?;
                    Spread::of(all)
                })
                .collect::<Option<_>>()?;
            for two in values.windows(2) {
                let (first, next) = (two[0].least, two[1].most);
                // both are 0, so none comes before the other
                let number = if first == next { 1.0 } else { first / next.max(1e-12) };
                let room = number - (1.0 - slack);
                checks.push(Check { number, is_so: room >= 0.0, room });
            }
        }
        Some(checks)
    }

    fn curves(
        &self,
        subject: &ClaimSubject,
        over: &str,
        curve: &CurveShape,
        slack: f64,
    ) -> Option<Vec<Check>> {
        let mine = self.mine(subject, &[])?;
        let mut places: Vec<Vec<(&str, &str)>> = Vec::new();
        for row in &mine {
            let place = point(row, &[over]);
            if !places.contains(&place) {
                places.push(place);
            }
        }
        // a place with one point is no curve: a program may sweep one thing at one value of another only
        let count =
            |place: &[(&str, &str)]| mine.iter().filter(|row| point(row, &[over]) == place).count();
        places.retain(|place| count(place) > 1);
        // the rows that a curve is made of: those of a place, or those beside them
        let curve_of = |rows: Vec<&RawRow>| -> Option<Vec<(f64, f64)>> {
            // a limit that is off has no place on an axis of limits
            let placed = rows.iter().filter_map(|row| Some((at(row, over)?, row)));
            let one = |(x, row): (f64, &&RawRow)| Some((x, row.get(&self.claim.figure)?));
            let mut points: Vec<(f64, f64)> = placed.map(one).collect::<Option<_>>()?;
            points.sort_by(|one, other| one.0.total_cmp(&other.0));
            Some(points)
        };
        let one = |place: &Vec<(&str, &str)>| {
            let here: Vec<&RawRow> =
                mine.iter().filter(|row| point(row, &[over]) == *place).copied().collect();
            let other = match curve {
                CurveShape::Crosses(other) => {
                    let instead = combinations(other);
                    let beside =
                        |row: &&RawRow| row_at(self.rows, &point(row, &[]), instead.first()?);
                    curve_of(here.iter().map(beside).collect::<Option<_>>()?)?
                }
                _ => Vec::new(),
            };
            let found = shape::find(curve, &curve_of(here)?, &other, slack)?;
            let room = if found.has_shape { 1.0 } else { 0.0 };
            Some(Check { number: found.number, is_so: found.has_shape, room })
        };
        places.iter().map(one).collect()
    }
}

/// The place of a row along an axis: its column `AXIS_at`, or its word, if that is a number.
pub fn at(row: &RawRow, axis: &str) -> Option<f64> {
    let word = row.text(axis);
    let said = row.get(&format!("{axis}_at")).or_else(|| row.get(axis));
    said.or_else(|| word.parse().ok())
}

fn check(number: f64, bounds: &ClaimBounds, row: &RawRow) -> Check {
    let room = room(number, bounds, row).unwrap_or(f64::INFINITY);
    Check { number, is_so: room >= 0.0, room }
}

/// The distance of a number from the nearest bound, as a part of the bound; below 0 the number is
/// outside. `None` if nothing bounds it.
pub fn room(number: f64, bounds: &ClaimBounds, row: &RawRow) -> Option<f64> {
    let part = |distance: f64, bound: f64| distance / bound.abs().max(1e-9);
    let least = bounds.min.as_ref().and_then(|min| value(min, row));
    let most = bounds.max.as_ref().and_then(|max| value(max, row));
    let below = least.map(|least| part(number - least, least));
    let above = most.map(|most| part(most - number, most));
    match (below, above) {
        (Some(below), Some(above)) => Some(below.min(above)),
        (one, other) => one.or(other),
    }
}

/// A bound for a row; `None` if the row lacks the column that it is a part of, as where a limit is off.
fn value(bound: &ClaimBound, row: &RawRow) -> Option<f64> {
    if bound.of.is_empty() {
        return Some(bound.number);
    }
    Some(bound.number * at(row, &bound.of)?)
}

/// The condition in words.
pub fn goal(kind: &ClaimKind) -> String {
    let per_cent = |part: f64| format!("{} %", (part * 1000.0).round() / 10.0);
    match kind {
        ClaimKind::Value(bounds) | ClaimKind::Ratio { bounds, .. } => bounds_text(bounds),
        ClaimKind::Order { slack, .. } => format!("each ≥ {} × the next", 1.0 - slack),
        ClaimKind::Along { over, shape, slack } => match shape {
            CurveShape::Rises => format!("rises with {over}, within {}", per_cent(*slack)),
            CurveShape::Falls => format!("falls with {over}, within {}", per_cent(*slack)),
            CurveShape::Flat => format!("flat over {over}, within {}", per_cent(*slack)),
            CurveShape::Peaks(by) => format!("peaks over {over}, and falls by {}", per_cent(*by)),
            CurveShape::Crosses(_) => format!("crosses over {over}"),
            CurveShape::Slope(least, most) => format!("slope over {over} {least} to {most}"),
            CurveShape::Straight(least) => format!("straight over {over}, r² ≥ {least}"),
        },
        ClaimKind::CannotBeJudged(_) => "–".to_owned(),
    }
}

/// Bounds for people.
pub fn bounds_text(bounds: &ClaimBounds) -> String {
    let text = |bound: &ClaimBound| match bound.of.is_empty() {
        true => bound.number.to_string(),
        false => format!("{} × {}", bound.number, bound.of),
    };
    let min = bounds.min.as_ref().map(|min| format!("≥ {}", text(min)));
    let max = bounds.max.as_ref().map(|max| format!("≤ {}", text(max)));
    min.into_iter().chain(max).collect::<Vec<_>>().join(" and ")
}
