//! Reports: JSON there and back, conditions, comparison, and a page that loads nothing from
//! elsewhere.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use crate::target::{always, group, run_for, run_until};
use forebay_load::Report;
use forebay_load::report::expect::Expectation;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// The report of a run that had answers in its measured time.
fn report() -> Report {
    let server = always(OK);
    run_until(300, &group(server.address, "rate=100"), |report| report.groups[0].rate > 0.0)
}

#[test]
fn json_holds_everything() {
    let report = report();
    let again = Report::from_json(&report.to_json()).unwrap();
    assert_eq!(again.groups[0].failures, report.groups[0].failures);
    assert_eq!(again.groups[0].good, report.groups[0].good);
    assert_eq!(again.groups[0].latency.curve.len(), report.groups[0].latency.curve.len());
    assert!(Report::from_json("{}").is_err());
}

/// A good but late answer counts as good, but not as goodput; a refusal is an answer, but not good.
#[test]
fn rates_tell_good_late_and_refused_apart() {
    let server = always(OK);
    let is_answered = |report: &Report| report.groups[0].rate > 0.0;
    let late = run_until(300, &group(server.address, "rate=100,within=1us"), is_answered);
    let late = &late.groups[0];
    assert!(late.good_rate > 0.0 && late.goodput < f64::EPSILON);
    let server = always("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n");
    let refused = run_until(300, &group(server.address, "rate=100"), is_answered);
    let refused = &refused.groups[0];
    assert!(refused.rate > 0.0 && refused.good_rate < f64::EPSILON);
}

/// Files of earlier versions lack the fields that were added since.
#[test]
fn an_older_file_is_read() {
    let text = report().to_json();
    let is_newer = |line: &&str| {
        ["good_rate", "goaways", "\"tls\"", "reasons"].iter().any(|key| line.contains(key))
    };
    let older: String = text.lines().filter(|line| !is_newer(line)).collect();
    assert!(Report::from_json(&older).is_ok_and(|older| older.groups[0].good_rate < f64::EPSILON));
}

#[test]
fn conditions_are_held_against_it() {
    let report = report();
    let missed = |text: &str| text.parse::<Expectation>().unwrap().missed(&report);
    assert_eq!(missed("test.p99<1h"), None);
    assert_eq!(missed("errors<1%"), None);
    assert!(missed("p50<1us").unwrap().starts_with("expected p50<1us: test has "));
    assert!(missed("rate>1000").is_some());
}

/// For a group without a good answer no condition holds, except those on its failures.
#[test]
fn of_a_group_without_a_good_answer_nothing_holds_but_its_errors() {
    let server = always("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n");
    let report = run_for(300, group(server.address, "rate=100"));
    let missed = |text: &str| text.parse::<Expectation>().unwrap().missed(&report);
    for condition in ["p99<1h", "rate>1", "goodput<1000"] {
        let said = missed(condition).unwrap();
        assert!(said.contains("test has not one good answer (wrong status × 30)"), "{said}");
    }
    assert!(missed("errors<1%").unwrap().ends_with("test has 100.000 %"));
    assert_eq!(missed("errors>99%"), None);
    assert_eq!(report.failed_whole().unwrap(), "not one good answer: test (wrong status × 30)");
    // a run that was stopped before any request ended has no result either
    let mut nothing = report;
    nothing.groups[0].failed = 0;
    nothing.groups[0].failures.clear();
    let missed = |text: &str| text.parse::<Expectation>().unwrap().missed(&nothing);
    assert!(missed("errors<1%").unwrap().ends_with("test has not one good answer"));
    assert_eq!(nothing.failed_whole().unwrap(), "not one good answer: test");
    nothing.groups[0].cut = 3;
    let said = nothing.failed_whole().unwrap();
    assert_eq!(said, "not one good answer: test (no answer by the end × 3)");
    (nothing.groups[0].cut, nothing.groups[0].offered) = (0, 0);
    let said = nothing.failed_whole().unwrap();
    assert_eq!(said, "not one good answer: test (no request was due)");
}

#[test]
fn a_run_is_compared_with_another() {
    let mut better = report();
    let before = better.clone();
    better.groups[0].rate *= 1.5;
    better.groups[0].latency.p99_us *= 2.0;
    let table = better.compare(&before);
    let line = |figure: &str| table.lines().find(|line| line.contains(figure)).unwrap().to_owned();
    assert!(line("answers/s").contains("+50.0 %") && line("answers/s").ends_with("better"));
    assert!(line(" p99 ").contains("+100.0 %") && line(" p99 ").ends_with("worse"));
    assert!(!line("p50").contains("better") && !line("p50").contains("worse"));
}

#[test]
fn the_page_stands_alone() {
    let mut report = report();
    report.groups[0].name = "<script>".to_owned();
    let page = report.to_html(Some(&report));
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    // only the group's own URL
    assert_eq!(page.matches("http").count(), page.matches("http://127.0.0.1").count());
    assert!(!page.contains("<script>") && page.contains("&lt;script&gt;"));
    assert!(!page.contains("NaN") && !page.contains("inf"));
}

#[test]
fn the_table_names_every_group() {
    let table = report().to_table();
    assert!(table.contains("test (open, constant, 100/s"));
    assert!(table.contains("from the intended start"));
}
