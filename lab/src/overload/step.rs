//! A step of the load from half to 1.4 times the capacity: how soon what is admitted has settled.
//!
//! One step is noise: ten milliseconds hold ten requests. So the load steps up and down many times,
//! and points at the same time after a step are put together.

use super::CROWD;
use super::bench::{Bench, Trial, cpu, group, patient};
use super::goodput::POLICY;
use super::server::Server;
use crate::Error;
use crate::load::client;
use forebay_load::report::IntervalPoint;
use std::fmt::Write;
use std::fs;
use std::time::Duration;

/// The part's name.
pub const PART: &str = "step";
const COST: Duration = Duration::from_millis(1);
const LOW: f64 = 0.5;
const HIGH: f64 = 1.4;
/// The time for which the load stays low, and that for which it stays high.
const LASTS: Duration = Duration::from_millis(1000);
/// Length of a point.
const POINT: Duration = Duration::from_millis(10);
/// Points that are averaged: the middle one has to be settled.
const WINDOW: usize = 5;
/// The distance from its final value at which a figure counts as settled.
const WITHIN: f64 = 0.10;
/// The factor by which answers may take longer than in the end when the delay has settled.
const SLOWER: f64 = 1.5;

/// All points at one time after the step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Folded {
    at_ms: f64,
    offered: f64,
    good: f64,
    failed: f64,
    /// The mean of the points' medians, ms.
    p50_ms: f64,
}

/// Means of points at the same time after the load became high.
fn fold(series: &[IntervalPoint]) -> Vec<Folded> {
    let per_phase = (LASTS.as_millis() / POINT.as_millis()) as usize;
    let mut folded = vec![(Folded::default(), 0.0, 0.0); per_phase];
    for point in series {
        // a point's time is its end
        let place = (point.at_s / POINT.as_secs_f64()).round() as usize;
        let in_cycle = place.saturating_sub(1) % (2 * per_phase);
        let Some(after) = in_cycle.checked_sub(per_phase) else { continue };
        let (sum, count, with_answers) = &mut folded[after];
        sum.offered += point.offered;
        sum.good += point.good;
        sum.failed += point.failed;
        *count += 1.0;
        if point.p50_us > 0.0 {
            sum.p50_ms += point.p50_us / 1e3;
            *with_answers += 1.0;
        }
    }
    let means = folded.into_iter().enumerate().map(|(place, (sum, count, with_answers))| {
        let count = f64::max(count, 1.0);
        Folded {
            at_ms: place as f64 * POINT.as_secs_f64() * 1e3,
            offered: sum.offered / count,
            good: sum.good / count,
            failed: sum.failed / count,
            p50_ms: sum.p50_ms / f64::max(with_answers, 1.0),
        }
    });
    means.collect()
}

/// The time after the step, in ms, at which `figure` has come near its final value and stays there.
/// The final value is the mean of the second half.
fn settled_ms(
    folded: &[Folded],
    figure: fn(&Folded) -> f64,
    near: impl Fn(f64, f64) -> bool,
) -> f64 {
    let mean =
        |points: &[Folded]| points.iter().map(figure).sum::<f64>() / points.len().max(1) as f64;
    let last = mean(&folded[folded.len() / 2..]);
    let is_near = |at: usize| {
        let from = at.saturating_sub(WINDOW / 2);
        near(mean(&folded[from..(at + WINDOW / 2 + 1).min(folded.len())]), last)
    };
    let far = (0..folded.len() / 2).rev().find(|at| !is_near(*at));
    far.map_or(0.0, |at| folded[at].at_ms + POINT.as_secs_f64() * 1e3)
}

fn settled(folded: &[Folded]) -> f64 {
    let rate =
        settled_ms(folded, |point| point.good, |now, last| (now - last).abs() <= WITHIN * last);
    let delay = settled_ms(folded, |point| point.p50_ms, |now, last| now <= SLOWER * last);
    rate.max(delay)
}

/// Measures one server with a policy.
///
/// # Errors
/// When a server does not come up or the load cannot be made.
pub fn measure(bench: &mut Bench<'_>, round: u32, server: Server) -> Result<(), Error> {
    if !server.has_policy() {
        return Ok(());
    }
    let capacity = bench.capacity(server, COST)?.per_s;
    let case = format!("{LOW} to {HIGH} {}", cpu(COST));
    let trial = bench.trial(PART, round, &case, server, COST);
    // a cycle for each second of a measurement, and not few of them
    let cycles = (2 * trial.measured.as_secs() as u32).max(4);
    let measured = cycles * 2 * LASTS;
    let trial = Trial { lines: POLICY, measured, interval: Some(POINT), ..trial };
    let warmup = bench.settings.warmup;
    let (watched, mut rows) = bench.run(&trial, |base| {
        let ms = LASTS.as_millis();
        let (low, high) = (LOW * capacity, HIGH * capacity);
        let mut steps = format!("{low:.3}:{}ms", warmup.as_millis());
        for _ in 0..cycles {
            let _ = write!(steps, "+{low:.3}:{ms}ms+{high:.3}:{ms}ms");
        }
        let mut crowd = patient("crowd", base, COST);
        crowd.set("steps", &steps);
        crowd.set("source", CROWD);
        Ok(vec![group(crowd)?])
    })?;
    let folded = fold(&watched.report.groups[0].series);
    rows[0].figure = Some(settled(&folded));
    write_profile(bench, round, &rows[0].server, &folded).map_err(client)?;
    bench.keep(rows);
    Ok(())
}

/// Appends the course after the step to `step.csv`.
fn write_profile(
    bench: &Bench<'_>,
    round: u32,
    server: &str,
    folded: &[Folded],
) -> std::io::Result<()> {
    let file = bench.run.out.join("step.csv");
    let mut file = fs::OpenOptions::new().create(true).append(true).open(file)?;
    use std::io::Write;
    if file.metadata()?.len() == 0 {
        writeln!(file, "round,server,at_ms,offered_per_s,in_time_per_s,failed_per_s,p50_ms")?;
    }
    for Folded { at_ms, offered, good, failed, p50_ms } in folded {
        writeln!(
            file,
            "{round},{server},{at_ms:.0},{offered:.1},{good:.1},{failed:.1},{p50_ms:.3}"
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two cycles in which the delay is long for the first 60 ms after each step.
    fn series() -> Vec<IntervalPoint> {
        let point = |place: u32| {
            let in_cycle = place % 200;
            let slow = (100..106).contains(&in_cycle);
            IntervalPoint {
                at_s: f64::from(place + 1) * 0.01,
                offered: if in_cycle < 100 { 500.0 } else { 1400.0 },
                answered: 0.0,
                good: if in_cycle < 100 { 500.0 } else { 1000.0 },
                failed: 0.0,
                p50_us: if slow { 90_000.0 } else { 10_000.0 },
                p99_us: 0.0,
                max_us: 0.0,
            }
        };
        (0..400).map(point).collect()
    }

    #[test]
    fn steps_are_put_together_and_settle_where_the_delay_does() {
        let folded = fold(&series());
        assert_eq!(folded.len(), 100);
        assert!((folded[0].offered - 1400.0).abs() < 1e-9);
        assert!((folded[5].p50_ms - 90.0).abs() < 1e-9 && (folded[6].p50_ms - 10.0).abs() < 1e-9);
        // the window of five points blurs the end by two
        let ms = settled(&folded);
        assert!((60.0..=80.0).contains(&ms), "{ms}");
    }

    #[test]
    fn what_never_changes_is_settled_at_once() {
        let steady = vec![Folded { good: 10.0, p50_ms: 1.0, ..Folded::default() }; 100];
        assert!(settled(&steady) < 1e-9);
    }
}
