//! Each kind of claim, over invented rows.

use super::verdict::judge;
use super::*;
use crate::experiment::Experiment;
use crate::experiment::read::parse;
use crate::rows::{KeptRound, NOISY, RawRow};
use ClaimFinding::{False, Missing, True};
use PaperVerdict::{DoesNotHold, Holds, NotYet};

/// An experiment with a server of ours in two forms and two peers, and with these claims.
fn experiment(claims: &str, more: &str) -> Experiment {
    let text = format!(
        r#"title = "A"
question = "Is it so?"
set = "papers"
kind = "load"
minutes = 1
measures = ["mean_ms", "good_per_s"]
sweep = {{ load = ["1", "2", "3"] }}
load = {{ warmup = "1s", measured = "3s" }}
group = [{{ name = "all", connections = 1 }}]
place = {{ network = "pair" }}
{more}
[servers]
ours = ["pool"]
forms = ["user space", "kernel"]
peers = ["nginx", "apache"]
[[figure]]
id = "keta-t1"
title = "Table 1"
at = {{ group = "all" }}
table = ["mean_ms"]
claim = [{claims}]
"#
    );
    parse("a", &text).unwrap_or_else(|(line, what)| panic!("{line}: {what}"))
}

fn row(server: &str, form: &str, load: &str, good: f64) -> RawRow {
    let row = RawRow::new(1, 1).word("server", server).word("form", form).word("load", load);
    row.word("group", "all").figure("good_per_s", good)
}

/// A number of rounds with the same rows.
fn rounds(count: u32, rows: &[RawRow]) -> Vec<KeptRound> {
    let round = |number| KeptRound { number, rows: rows.to_vec(), ..KeptRound::default() };
    (1..=count).map(round).collect()
}

/// A server that does ten times its load, and a kernel form that does twice as much; peers do less.
fn rows() -> Vec<RawRow> {
    let one = |(load, times): (&str, f64)| {
        [
            row("pool", "user space", load, 10.0 * times),
            row("pool", "kernel", load, 20.0 * times),
            row("nginx", "", load, 8.0 * times),
            row("apache", "", load, 9.0),
        ]
    };
    [("1", 1.0), ("2", 2.0), ("3", 3.0)].into_iter().flat_map(one).collect()
}

/// The verdict on a claim about each subject, and its number.
fn found(claim: &str, rows: &[RawRow]) -> Vec<(String, PaperVerdict, ClaimFinding)> {
    let experiment = experiment(&format!("{{ id = \"a\", figure = \"good_per_s\", {claim} }}"), "");
    let judged = judge(&experiment, &experiment.figures[0], &rounds(5, rows), JudgeMode::Whole);
    let one =
        |claim: JudgedClaim| (claim.subject.text(), claim.verdict, claim.rounds[4].finding.clone());
    judged.claims.into_iter().map(one).collect()
}

#[test]
fn a_ratio_to_a_peer_is_for_every_form_of_ours() {
    let claim = r#"kind = "ratio", of = { server = "pool", load = "3" }, to = { server = "nginx" }, min = 2"#;
    assert_eq!(
        found(claim, &rows()),
        [
            ("pool user space".to_owned(), DoesNotHold, False(30.0 / 24.0)),
            ("pool kernel".to_owned(), Holds, True(60.0 / 24.0)),
        ]
    );
    // the best peer is another one where there is little load
    let claim =
        r#"kind = "ratio", of = { server = "pool", form = "kernel" }, to = "best", min = 2.4"#;
    assert_eq!(found(claim, &rows()), [("pool kernel".to_owned(), DoesNotHold, False(20.0 / 9.0))]);
}

#[test]
fn a_list_has_to_hold_for_each_and_a_word_that_is_missing_is_said() {
    let claim =
        r#"kind = "value", of = { server = "pool", form = "kernel", load = ["2", "3"] }, min = 40"#;
    assert_eq!(found(claim, &rows()), [("pool kernel".to_owned(), Holds, True(40.0))]);
    let mut less = rows();
    less.retain(|row| row.text("load") != "2");
    assert_eq!(found(claim, &less), [("pool kernel".to_owned(), NotYet, Missing)]);
}

#[test]
fn orders_are_of_servers_or_of_forms() {
    let of_servers = r#"kind = "order", of = { load = "2" }, order = [{ server = "pool", form = "kernel" }, { server = "nginx" }, { server = "apache" }]"#;
    assert_eq!(found(of_servers, &rows()), [("all".to_owned(), Holds, True(16.0 / 9.0))]);
    let of_several = r#"kind = "order", of = { load = "2" }, order = [{ server = "pool", form = ["user space", "kernel"] }, { server = ["nginx", "apache"] }]"#;
    assert_eq!(found(of_several, &rows()), [("all".to_owned(), Holds, True(20.0 / 16.0))]);
    let of_forms = r#"kind = "order", of = { load = ["2", "3"] }, order = [{ form = "user space" }, { form = "kernel" }], slack = 0.02"#;
    assert_eq!(found(of_forms, &rows()), [("pool".to_owned(), DoesNotHold, False(0.5))]);
}

#[test]
fn curves_are_along_an_axis() {
    let rises = r#"kind = "along", over = "load", shape = "rises", of = { server = "pool" }"#;
    let [user, kernel] = &found(rises, &rows())[..] else { panic!("two forms") };
    assert_eq!((user.1, &kernel.2), (Holds, &True(1.5)));
    let flat = r#"kind = "along", over = "load", shape = "flat", slack = 0.02, of = { server = ["nginx", "apache"] }"#;
    let all = found(flat, &rows());
    assert_eq!([all[0].1, all[1].1], [DoesNotHold, Holds]);
    let crosses = r#"kind = "along", over = "load", shape = "crosses", of = { server = "apache" }, to = { server = "nginx" }"#;
    assert_eq!(found(crosses, &rows()), [("apache".to_owned(), Holds, True(9.0 / 24.0))]);
    // a row without a place on the axis is left out
    let more =
        [rows(), vec![row("pool", "kernel", "off", 1.0), row("pool", "user space", "off", 1.0)]];
    assert_eq!(found(rises, &more.concat())[0].1, Holds);
    let straight = r#"kind = "along", over = "load", r2 = 0.99, of = { server = "nginx" }"#;
    assert_eq!(found(straight, &rows())[0].1, Holds);
}

#[test]
fn rows_that_failed_are_void_and_noise_is_marked() {
    let claim = r#"{ id = "a", kind = "value", figure = "good_per_s", of = { server = "nginx" }, min = 1 }"#;
    let experiment = experiment(claim, "");
    let judged = |rows: &[RawRow]| {
        let rounds = rounds(5, rows);
        judge(&experiment, &experiment.figures[0], &rounds, JudgeMode::Whole).claims.remove(0)
    };
    let with = |name: &str| -> Vec<RawRow> {
        rows()
            .into_iter()
            .map(|row| row.clone().flag(name, row.text("server") == "nginx"))
            .collect()
    };
    let noisy = judged(&with(NOISY));
    assert!(noisy.verdict == Holds && noisy.rounds.iter().all(|round| round.is_noisy));
    let failed = judged(&with("wrong bodies"));
    assert_eq!(failed.verdict, PaperVerdict::Void);
    assert!(
        failed.sentence.ends_with("the measurement failed: wrong bodies"),
        "{}",
        failed.sentence
    );
}

/// Some proofs every load has to give, and others only some rows.
#[test]
fn loads_that_are_not_what_they_say_are_void() {
    let claim = r#"{ id = "a", kind = "value", figure = "good_per_s", of = { server = "nginx" }, min = 1 }"#;
    let sentence = |more: &str, name: &str, value: f64| {
        let experiment = experiment(claim, more);
        let rows: Vec<_> = rows().into_iter().map(|row| row.figure(name, value)).collect();
        let rounds = rounds(5, &rows);
        let judged = judge(&experiment, &experiment.figures[0], &rounds, JudgeMode::Whole);
        judged.claims[0].sentence.clone()
    };
    assert!(sentence("", "in_step", 3.0).starts_with("5 of 5 rounds"));
    assert!(sentence("", "in_step", 40.0).contains("group all came in step"));
    // of 8 answers a second in 3 s, thirds differ by chance
    assert!(sentence("", "steady", 0.5).starts_with("5 of 5 rounds"));
    assert!(sentence("", "steady", 4.0).contains("group all was not at rest"));
    let quota = r#"void = [{ what = "the quota does not bite", of = { server = "apache", load = "3" }, figure = "server_busy", min = 0.95, voids = "round" }]"#;
    assert!(sentence(quota, "server_busy", 0.99).starts_with("5 of 5 rounds"));
    assert!(
        sentence(quota, "server_busy", 0.5).contains("the quota does not bite: server_busy is 0.5")
    );
}

#[test]
fn a_short_form_is_judged_by_what_it_measures() {
    let claim = r#"{ id = "a", kind = "ratio", figure = "good_per_s", of = { server = "pool", load = ["1", "3"] }, to = { server = ["nginx", "apache"] }, min = 1, quick = true }"#;
    let experiment = experiment(claim, "");
    let judged = |rows: &[RawRow]| {
        judge(&experiment, &experiment.figures[0], &rounds(1, rows), JudgeMode::Quick).claims
    };
    let is_measured = |row: &RawRow| {
        row.text("load") == "3"
            && !["user space", "apache"]
                .iter()
                .any(|word| row.text("form") == *word || row.text("server") == *word)
    };
    let short: Vec<RawRow> = rows().into_iter().filter(is_measured).collect();
    let claims = judged(&short);
    assert_eq!((claims.len(), claims[0].verdict), (1, Holds), "{claims:?}");
    assert_eq!(claims[0].rounds[0].finding, True(60.0 / 24.0));
    // an experiment that measures nothing has not passed
    assert!(judged(&[]).iter().all(|claim| claim.verdict == NotYet));
}
