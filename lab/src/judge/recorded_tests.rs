//! Verdicts on rows that were recorded before there was a judge, good ones and bad.

use super::verdict::judge;
use super::*;
use crate::experiment::*;
use crate::rows::formats::OldFormats;
use crate::rows::{KeptRound, RawRow};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// The rows of a recorded run of the old `overload` whose case begins with a text. `limit` and
/// `load` are words of the case; server and form stood in one column.
fn recorded(run: &str, case: &str) -> Vec<KeptRound> {
    let runs = Path::new(env!("CARGO_MANIFEST_DIR")).join("runs");
    let text = fs::read_to_string(runs.join("formats.toml")).expect("formats.toml");
    let formats = OldFormats::read(&text).expect("formats");
    let text = fs::read_to_string(runs.join(run).join("rows.csv")).expect("rows");
    let file = formats.of_folder(run).expect("a format").rows(&text);
    let last = file.rows.iter().map(|row| row.round).max().unwrap_or_default();
    let of_round = |number: u32| {
        let mine = file.rows.iter().filter(|row| row.round == number);
        let rows = mine.filter_map(|row| {
            let rest = row.text("case").strip_prefix(case)?.trim();
            Some(as_today(row, rest))
        });
        let (run, rows) = (run.to_owned(), rows.collect());
        KeptRound { run, number, rows, ..KeptRound::default() }
    };
    (1..=last).map(of_round).collect()
}

fn as_today(row: &RawRow, case: &str) -> RawRow {
    let (server, form) = row.text("server").split_once(", ").unwrap_or((row.text("server"), ""));
    let mut today = RawRow::new(row.round, row.place).word("server", server).word("form", form);
    let (load, rest) = match case.strip_prefix("load ×") {
        Some(rest) => rest.split_once(' ').unwrap_or((rest, "")),
        None => ("", case),
    };
    let per_s = rest.split_once("/s").and_then(|(number, _)| number.parse::<f64>().ok());
    // a limit that differs with a server's capacity is the same part of it
    let part = match per_s {
        None if rest.ends_with("connections/s") || rest == "no flood" => rest,
        None => "off",
        Some(number) if number > 250.0 => "high",
        Some(number) if number > 90.0 => "middle",
        Some(_) => "low",
    };
    today = today.word("limit", part).word("load", load).word("group", row.text("group"));
    if let Some(per_s) = per_s {
        today = today.figure("limit_at", per_s);
    }
    let flood = rest.strip_suffix(" connections/s").and_then(|number| number.parse().ok());
    if let Some(flood) = flood {
        today = today.figure("flood_at", flood);
    }
    let figures = row.figures().iter();
    figures.fold(today, |today, (name, value)| today.figure(name, *value))
}

fn selector(words: &[(&str, &[&str])]) -> RowSelector {
    let word = |(key, words): &(&str, &[&str])| SelectedWord {
        key: (*key).to_owned(),
        words: words.iter().map(|word| (*word).to_owned()).collect(),
    };
    RowSelector(words.iter().map(word).collect())
}

fn bound(number: f64, of: &str) -> Option<ClaimBound> {
    Some(ClaimBound { number, of: of.to_owned() })
}

fn claim(id: &str, of: RowSelector, kind: ClaimKind) -> Claim {
    let (id, figure, why) = (id.to_owned(), "good_per_s".to_owned(), String::new());
    Claim { id, of, figure, kind, rounds: 1, interval: false, quick: false, why }
}

fn experiment(ours: &[&str], axes: &[(&str, &[&str])], voids: Vec<VoidRule>) -> Experiment {
    let texts = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
    let forms = texts(&["user space", "kernel"]);
    let cast = Cast { ours: texts(ours), forms, ..Cast::default() };
    let axis = |(name, values): &(&str, &[&str])| SweepAxis {
        name: (*name).to_owned(),
        values: texts(values),
    };
    Experiment {
        name: "recorded".to_owned(),
        title: String::new(),
        question: String::new(),
        set: ExperimentSet::Papers,
        edition: 1,
        minutes: 1.0,
        needs: Vec::new(),
        repeats: 1,
        sweep: axes.iter().map(axis).collect(),
        skip: Vec::new(),
        task: ExperimentTask::Load(Box::new(LoadTask {
            place: PlaceText::default(),
            cast,
            capacities: Vec::new(),
            groups: Vec::new(),
            content: Vec::new(),
            fileset: None,
            measures: Vec::new(),
            warmup: Duration::from_secs(3),
            measured: Duration::from_secs(2),
        })),
        voids,
        figures: Vec::new(),
        quick: None,
        note: String::new(),
    }
}

fn figure(id: &str, claims: Vec<Claim>) -> PaperFigure {
    PaperFigure {
        id: id.to_owned(),
        title: String::new(),
        at: RowSelector::default(),
        view: FigureView::Table(Vec::new()),
        paper: PaperNumbers::default(),
        note: String::new(),
        claims,
        absent: Vec::new(),
    }
}

fn verdict_of<'j>(judged: &'j JudgedFigure, server: &str, form: &str) -> &'j JudgedSubject {
    let mut all = judged.subjects.iter();
    let found = all.find(|one| {
        one.subject.word("server") == Some(server)
            && one.subject.word("form").is_none_or(|mine| mine == form)
    });
    found.expect("a verdict")
}

#[test]
fn the_row_that_spoils_table_3_spoils_it() {
    let limits = ["off", "high", "middle"];
    let experiment =
        experiment(&["event-policy", "pool-policy"], &[("limit", &limits)], Vec::new());
    let policed = ["high", "middle"];
    let of = |group: &str| selector(&[("group", &[group]), ("limit", &policed)]);
    let bounds = ClaimBounds { min: None, max: bound(1.05, "limit") };
    let claims = vec![
        claim("the top class gets its limit", of("high"), ClaimKind::Value(bounds)),
        claim(
            "the rest goes down the order",
            of("medium"),
            ClaimKind::Value(ClaimBounds { min: bound(60.0, ""), max: None }),
        ),
    ];
    let judged = judge(
        &experiment,
        &figure("voigt-t3", claims),
        &recorded("2026-11-26-overload-gate", "table 3:"),
        JudgeMode::Whole,
    );
    assert_eq!(judged.verdict, PaperVerdict::InPart, "{}", judged.sentence);
    for (server, form, verdict) in [
        ("event-policy", "user space", PaperVerdict::Holds),
        ("event-policy", "kernel", PaperVerdict::Holds),
        ("pool-policy", "user space", PaperVerdict::Holds),
        ("pool-policy", "kernel", PaperVerdict::DoesNotHold),
    ] {
        let found = verdict_of(&judged, server, form);
        assert_eq!(found.verdict, verdict, "{server} {form}: {}", found.sentence);
    }
    let spoiled = verdict_of(&judged, "pool-policy", "kernel");
    assert!(spoiled.sentence.contains("369"), "{}", spoiled.sentence);
    assert!(judged.sentence.contains("pool-policy kernel does not"), "{}", judged.sentence);
}

#[test]
fn a_flood_that_got_less_than_it_may_is_void() {
    let void = VoidRule {
        what: "the others came in step".to_owned(),
        of: selector(&[("group", &["others"])]),
        figure: "good_per_s".to_owned(),
        bounds: ClaimBounds { min: bound(0.8, "limit"), max: None },
        whole_round: false,
    };
    let limits = ["off", "high", "middle", "low"];
    let experiment = experiment(&["event-policy"], &[("limit", &limits)], vec![void]);
    let to = RatioTo::Rows { words: selector(&[("limit", &["off"])]), figure: String::new() };
    let bounds = ClaimBounds { min: bound(1.5, ""), max: None };
    let of = selector(&[("group", &["preferred"]), ("limit", &["low"])]);
    let rising = claim("the preferred client gains", of, ClaimKind::Ratio { to, bounds });
    let rounds = recorded("2026-11-26-overload-gate", "figure 5:");
    let judged =
        judge(&experiment, &figure("voigt-f5", vec![rising.clone()]), &rounds, JudgeMode::Whole);
    assert_eq!(judged.verdict, PaperVerdict::Void, "{}", judged.sentence);
    let user = verdict_of(&judged, "event-policy", "user space");
    assert!(user.sentence.contains("good_per_s is 8.00, and should be ≥ 0.8 × limit"), "{user:?}");
    let kernel = verdict_of(&judged, "event-policy", "kernel");
    assert_eq!(kernel.verdict, PaperVerdict::Void, "{kernel:?}");
    // without the rule the figure would have passed
    let blind = Experiment { voids: Vec::new(), ..experiment };
    let judged = judge(&blind, &figure("voigt-f5", vec![rising]), &rounds, JudgeMode::Whole);
    assert_eq!(judged.verdict, PaperVerdict::Holds);
}

#[test]
fn a_plateau_without_thrashing_is_void() {
    let rule = |figure: &str| VoidRule {
        what: "nothing thrashes".to_owned(),
        of: selector(&[("limit", &["off"]), ("load", &["2.4"])]),
        figure: figure.to_owned(),
        bounds: ClaimBounds { min: bound(100.0, ""), max: None },
        whole_round: false,
    };
    let loads = ["0.5", "1", "2.4"];
    let axes: &[(&str, &[&str])] = &[("limit", &["off", "low"]), ("load", &loads)];
    let flat = ClaimKind::Value(ClaimBounds { min: bound(55.0, ""), max: None });
    let of = selector(&[("group", &["scripts"]), ("limit", &["low"]), ("load", &["1", "2.4"])]);
    let figure = figure("voigt-f11", vec![claim("flat with the limit", of, flat)]);
    let mut rounds = recorded("2026-11-26-overload-gate", "figure 11:");
    let with = |rule: VoidRule| experiment(&["event-policy"], axes, vec![rule]);
    let unknown = judge(&with(rule("refaults_per_s")), &figure, &rounds, JudgeMode::Whole);
    assert_eq!(unknown.verdict, PaperVerdict::Void);
    assert!(unknown.sentence.contains("refaults_per_s was not measured"), "{}", unknown.sentence);
    for row in &mut rounds[0].rows {
        *row = row.clone().figure("refaults_per_s", 0.0);
    }
    let calm = judge(&with(rule("refaults_per_s")), &figure, &rounds, JudgeMode::Whole);
    assert_eq!(calm.verdict, PaperVerdict::Void);
    assert!(
        calm.sentence.contains("refaults_per_s is 0, and should be ≥ 100"),
        "{}",
        calm.sentence
    );
    for row in &mut rounds[0].rows {
        *row = row.clone().figure("refaults_per_s", 300.0);
    }
    let thrashing = judge(&with(rule("refaults_per_s")), &figure, &rounds, JudgeMode::Whole);
    assert_eq!(thrashing.verdict, PaperVerdict::Holds, "{}", thrashing.sentence);
    // where the point that shows the effect is not measured, nothing is shown
    rounds[0].rows.retain(|row| row.text("limit") != "off");
    let unseen = judge(&with(rule("refaults_per_s")), &figure, &rounds, JudgeMode::Whole);
    assert!(unseen.sentence.contains("the point that shows it was not measured"));
}

/// Servers whose forms are compared, and those that are not there yet.
#[test]
fn orders_need_all_whom_they_name() {
    let flood = "3785 connections/s";
    let axes: &[(&str, &[&str])] = &[("limit", &[flood])];
    let experiment = experiment(&["event-policy", "pool-policy"], axes, Vec::new());
    let order = vec![selector(&[("form", &["kernel"])]), selector(&[("form", &["user space"])])];
    let of = selector(&[("group", &["normal"]), ("limit", &[flood])]);
    let first = claim("the kernel is ahead", of, ClaimKind::Order { order, slack: 0.02 });
    let rounds = recorded("2026-11-26-overload-gate", "figures 12 and 13:");
    let judged = judge(&experiment, &figure("voigt-f12", vec![first]), &rounds, JudgeMode::Whole);
    let event = verdict_of(&judged, "event-policy", "");
    assert_eq!(event.verdict, PaperVerdict::Holds, "{}", judged.sentence);
    assert_eq!(judged.claims[0].rounds[0].finding, ClaimFinding::True(363.5 / 337.0));
    // `pool` was never measured there: that is reported, and the others do not pass the figure for
    // it
    assert_eq!(verdict_of(&judged, "pool-policy", "").verdict, PaperVerdict::NotYet);
    assert_eq!(judged.verdict, PaperVerdict::NotYet);
}
