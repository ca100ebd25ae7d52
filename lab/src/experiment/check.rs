//! Conditions on a file as a whole, and on all of them.

use super::read::ExperimentProblem;
use super::sheet::{self, SHEET};
use super::{
    Claim, ClaimBounds, ClaimKind, CurveShape, Experiment, ExperimentSet, ExperimentTask,
    FigureView, LoadTask, PaperFigure, RatioTo, RowSelector,
};
use crate::measure;
use forebay_load::setting::SETTINGS;
use std::path::Path;

/// The longest time that a round may take.
pub const LONGEST_ROUND_MINUTES: f64 = 100.0;
/// The longest time that all short forms together may take.
pub const LONGEST_QUICK_MINUTES: f64 = 10.0;

/// An error: the text by which its line is found, and a sentence.
type CheckFault = (String, String);

/// Columns that every row has.
const ALWAYS: &[&str] = &["round", "place"];

/// The errors of one experiment; `text` is its file, by which lines are found.
pub fn check(experiment: &Experiment, file: &Path, text: &str) -> Vec<ExperimentProblem> {
    let mut faults = Vec::new();
    of_experiment(experiment, &mut faults);
    for figure in &experiment.figures {
        of_figure(experiment, figure, &mut faults);
    }
    let problem = |(marker, what): CheckFault| {
        let line = text.lines().position(|line| line.contains(&marker)).map_or(1, |line| line + 1);
        ExperimentProblem { file: file.to_owned(), line, what }
    };
    faults.into_iter().map(problem).collect()
}

/// The errors of all of them together.
pub fn together(experiments: &[Experiment]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut ids: Vec<&str> = Vec::new();
    for figure in experiments.iter().flat_map(|experiment| &experiment.figures) {
        match ids.contains(&figure.id.as_str()) {
            true => faults.push(format!("{}: two files have this figure", figure.id)),
            false => ids.push(&figure.id),
        }
    }
    for set in ExperimentSet::ALL {
        let of_set = experiments.iter().filter(|experiment| experiment.set == set);
        let minutes: f64 = of_set.map(|experiment| experiment.minutes).sum();
        if minutes > LONGEST_ROUND_MINUTES {
            let most = LONGEST_ROUND_MINUTES;
            faults
                .push(format!("{set:?}: a round takes {minutes:.0} minutes, more than {most:.0}"));
        }
    }
    let quick = experiments.iter().filter_map(|experiment| experiment.quick.as_ref());
    let quick: f64 = quick.map(|quick| quick.minutes).sum();
    if quick > LONGEST_QUICK_MINUTES {
        faults.push(format!("all short forms take {quick:.1} minutes, more than 10"));
    }
    faults
}

fn of_experiment(experiment: &Experiment, faults: &mut Vec<CheckFault>) {
    let keys = experiment.keys();
    if experiment.figures.is_empty() {
        faults.push((String::new(), "an experiment needs a [[figure]]".to_owned()));
    }
    for axis in &experiment.sweep {
        if axis.values.is_empty() {
            faults.push(("sweep".into(), format!("{}: a sweep needs values", axis.name)));
        }
    }
    for selector in &experiment.skip {
        of_selector(experiment, selector, "skip", faults);
    }
    for void in &experiment.voids {
        of_selector(experiment, &void.of, &void.what, faults);
        of_measure(experiment, &void.figure, &void.what, faults);
        of_bounds(experiment, &void.bounds, &void.what, faults);
    }
    let quick = experiment.quick.as_ref();
    for axis in quick.iter().flat_map(|quick| &quick.sweep) {
        let own = experiment.sweep.iter().find(|own| own.name == axis.name);
        let is_part = |own: &super::SweepAxis| axis.values.iter().all(|v| own.values.contains(v));
        if !own.is_some_and(is_part) {
            let what = format!("{}: the short form may leave out values only", axis.name);
            faults.push(("quick".into(), what));
        }
    }
    let is_judged =
        experiment.figures.iter().flat_map(|figure| &figure.claims).any(|claim| claim.quick);
    if quick.is_some() != is_judged {
        let what =
            "quick: a short form needs a claim with quick = true, and such a claim needs one";
        faults.push(("quick".into(), what.to_owned()));
    }
    if let ExperimentTask::Program(program) = &experiment.task {
        let both = program.keys.iter().find(|key| program.measures.contains(key));
        if let Some(key) = both {
            faults.push(("keys".into(), format!("{key}: a column is a key or a measure")));
        }
    }
    if let ExperimentTask::Load(load) = &experiment.task {
        of_load(load, faults);
    }
    if keys.iter().any(|key| ALWAYS.contains(key)) {
        faults.push(("keys".into(), "round and place are columns of every file".to_owned()));
    }
}

/// Checks a load: settings of groups are those of `forebay load`, measures are known, and clients
/// that are refused together do not come again together.
fn of_load(load: &LoadTask, faults: &mut Vec<CheckFault>) {
    for name in load.measures.iter().filter(|name| !measure::is_known(name)) {
        let what = format!("{name}: there are {}", measure::names().join(", "));
        faults.push(("measures".into(), what));
    }
    for group in load.groups.iter().chain(&load.capacities) {
        let marker = format!("\"{}\"", group.name);
        for (key, _) in &group.settings {
            if !SETTINGS.iter().any(|(known, ..)| known == key) {
                let known: Vec<_> = SETTINGS.iter().map(|(known, ..)| *known).collect();
                faults.push((marker.clone(), format!("{key}: a group has {}", known.join(", "))));
            }
        }
        let has = |name: &str| group.settings.iter().find(|(key, _)| key == name);
        let is_closed = has("rate").is_none() && has("steps").is_none();
        let is_drawn = has("pause").is_some_and(|(_, value)| value.contains('-'));
        let is_policed = !load.cast.lines.is_empty() && load.groups.contains(group);
        if is_closed && is_policed && !is_drawn {
            let what = "a closed group under a policy needs a pause that is drawn anew, such as 0.5s-1.5s: \
                        clients that are refused together would come again together";
            faults.push((marker, what.to_owned()));
        }
    }
}

fn of_figure(experiment: &Experiment, figure: &PaperFigure, faults: &mut Vec<CheckFault>) {
    let marker = &format!("\"{}\"", figure.id);
    let row = sheet::find(&figure.id);
    if experiment.set == ExperimentSet::Papers && row.is_none() {
        let known: Vec<_> = SHEET.iter().map(|row| row.id).collect();
        let what = format!("{}: the papers have {}", figure.id, known.join(", "));
        faults.push((marker.clone(), what));
    }
    of_selector(experiment, &figure.at, marker, faults);
    match &figure.view {
        FigureView::Table(columns) => {
            for column in columns {
                of_measure(experiment, column, marker, faults);
            }
            let is_wrong = |row: &&super::PaperRow| row.values.len() != columns.len();
            if let Some(row) = figure.paper.rows.iter().find(is_wrong) {
                let what = format!(
                    "{}: {} numbers, and the table has {}",
                    row.name,
                    row.values.len(),
                    columns.len()
                );
                faults.push((row.name.clone(), what));
            }
        }
        FigureView::Plot(plot) => {
            of_measure(experiment, &plot.y, marker, faults);
            for key in plot.series.iter().chain([&plot.x]) {
                of_key(experiment, key, marker, faults);
            }
            of_selector(experiment, &plot.at, marker, faults);
        }
    }
    let mut ids: Vec<&str> = Vec::new();
    for claim in &figure.claims {
        if ids.contains(&claim.id.as_str()) {
            faults.push((claim.id.clone(), format!("{}: two claims have this name", claim.id)));
        }
        ids.push(&claim.id);
        of_claim(experiment, claim, row.is_some_and(|row| row.may_be_beyond), faults);
    }
    if figure.claims.is_empty() && !figure.absent.iter().any(|(form, _)| form.is_empty()) {
        faults.push((marker.clone(), format!("{}: a figure needs a claim", figure.id)));
    }
}

fn of_claim(
    experiment: &Experiment,
    claim: &Claim,
    may_be_beyond: bool,
    faults: &mut Vec<CheckFault>,
) {
    let marker = &claim.id;
    of_selector(experiment, &claim.of, marker, faults);
    if !claim.figure.is_empty() {
        of_measure(experiment, &claim.figure, marker, faults);
    }
    match &claim.kind {
        ClaimKind::Value(bounds) => of_bounds(experiment, bounds, marker, faults),
        ClaimKind::Ratio { to, bounds } => {
            of_bounds(experiment, bounds, marker, faults);
            if let RatioTo::Rows { words, figure } = to {
                of_selector(experiment, words, marker, faults);
                if !figure.is_empty() {
                    of_measure(experiment, figure, marker, faults);
                }
            }
        }
        ClaimKind::Order { order, .. } => {
            order.iter().for_each(|one| of_selector(experiment, one, marker, faults));
        }
        ClaimKind::Along { over, shape, .. } => {
            of_key(experiment, over, marker, faults);
            if let CurveShape::Crosses(other) = shape {
                of_selector(experiment, other, marker, faults);
            }
        }
        ClaimKind::CannotBeJudged(_) if !may_be_beyond => {
            let known: Vec<_> =
                SHEET.iter().filter(|row| row.may_be_beyond).map(|row| row.id).collect();
            let what = format!("cannot: only figures of {} may have that", known.join(", "));
            faults.push((marker.clone(), what));
        }
        ClaimKind::CannotBeJudged(_) => {}
    }
}

fn of_key(experiment: &Experiment, key: &str, marker: &str, faults: &mut Vec<CheckFault>) {
    let keys = experiment.keys();
    if !keys.contains(&key) {
        faults.push((marker.to_owned(), format!("{key}: rows have {}", keys.join(", "))));
    }
}

fn of_selector(
    experiment: &Experiment,
    selector: &RowSelector,
    marker: &str,
    faults: &mut Vec<CheckFault>,
) {
    for word in &selector.0 {
        of_key(experiment, &word.key, marker, faults);
        let Some(axis) = experiment.sweep.iter().find(|axis| axis.name == word.key) else {
            continue;
        };
        if let Some(unknown) = word.words.iter().find(|word| !axis.values.contains(word)) {
            let what =
                format!("{}: {unknown}: the sweep has {}", axis.name, axis.values.join(", "));
            faults.push((marker.to_owned(), what));
        }
    }
}

/// The figures that rows of an experiment have.
fn measures(experiment: &Experiment) -> &[String] {
    match &experiment.task {
        ExperimentTask::Program(program) => &program.measures,
        ExperimentTask::Load(load) => &load.measures,
    }
}

fn of_measure(experiment: &Experiment, figure: &str, marker: &str, faults: &mut Vec<CheckFault>) {
    let measures = measures(experiment);
    // the number that a word of the sweep stands for
    let is_axis = |axis: &super::SweepAxis| figure.strip_suffix("_at") == Some(&axis.name);
    if !measures.iter().any(|known| known == figure) && !experiment.sweep.iter().any(is_axis) {
        let what = format!("{figure}: measures are {}", measures.join(", "));
        faults.push((marker.to_owned(), what));
    }
}

fn of_bounds(
    experiment: &Experiment,
    bounds: &ClaimBounds,
    marker: &str,
    faults: &mut Vec<CheckFault>,
) {
    let named = bounds.min.iter().chain(&bounds.max).filter(|bound| !bound.of.is_empty());
    for bound in named {
        let is_key = experiment.keys().contains(&bound.of.as_str());
        if !is_key {
            of_measure(experiment, &bound.of, marker, faults);
        }
    }
}
