//! The result of a calibration as a file, and as a report for its reader.

use super::bench::{CalibrationBench, Measured};
use super::costs::{self, CostPoint};
use super::{
    BY_FILE, BeforeAfter, Calibrate, CalibrationResult, GIVEN, IN_PIECES, NOISE, crossover, is_good,
};
use forebay_config::quote;
use forebay_config::{Calibration, Size, calibration};
use forebay_control::utilisation::Costs;
use forebay_http::date;
use forebay_server::machine::name_of_machine;
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// The text of the file.
pub(super) fn file(options: &Calibrate, found: &CalibrationResult, took: Duration) -> String {
    let CalibrationResult { fit, costs, factors, file_bytes, segment_bytes, .. } = found;
    let calibration = Calibration {
        request_s: rounded(costs.request_s),
        byte_s: rounded(costs.byte_s),
        per_waiting: factors.per_waiting,
        per_rate: factors.per_rate,
        file_bytes: Size(*file_bytes),
        segment_bytes: Size(*segment_bytes),
    };
    let now_s = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
    let about = format!(
        "Constants of this machine, found by forebay calibrate. A configuration takes them over with\n\
         pipeline.calibration = {}",
        quote(&options.out.display().to_string())
    );
    let number = |number: f64| format!("{:?}", rounded(number));
    let phases = |times: &[u64; 4]| format!("{:?}", times.map(|ns| ns as f64 / 1e3));
    let command: Vec<_> = std::env::args().skip(1).collect();
    let mut notes = vec![
        ("command", quote(&format!("forebay {}", command.join(" ")))),
        ("date", quote(&date::rfc3339(now_s))),
        (calibration::MACHINE, quote(&name_of_machine(found.cores))),
        ("version", quote(env!("CARGO_PKG_VERSION"))),
        ("seconds", took.as_secs().to_string()),
        ("runs", found.points.len().to_string()),
        ("server_used_least", number(least_used(found))),
        ("c1_of_the_fit", number(fit.costs.request_s)),
        ("c2_of_the_fit", number(fit.costs.byte_s)),
        ("r_squared", number(fit.r_squared)),
        ("service_r_squared", number(fit.service_r_squared)),
        ("c1_standard_error", number(fit.request_error_s)),
        ("c2_standard_error", number(fit.byte_error_s)),
        ("hot_cpu_us", phases(&found.hot.cpu_ns)),
        ("cold_cpu_us", phases(&found.cold.cpu_ns)),
        ("cold_blocked_us", phases(&found.cold.blocked_ns)),
        ("simulated_mean_ms_before", number(factors.before_ms)),
        ("simulated_mean_ms", number(factors.after_ms)),
    ];
    if let Some(parts) = found.held.as_ref().and_then(BeforeAfter::recovered) {
        notes.push(("recovered", format!("{:?}", parts.map(rounded))));
    }
    if let Some(part) = found.recovered_by_factors() {
        notes.push(("simulated_recovered", number(part)));
    }
    calibration.to_toml(&about, &notes)
}

/// The report of the result.
pub(super) fn report(found: &CalibrationResult) -> String {
    let CalibrationResult { fit, factors, .. } = found;
    let mut text = costs::table(&found.points, fit);
    // writing to a string does not fail
    let _ = write!(
        text,
        "\nc1          {:.2} ± {:.2} µs per request\nc2          {:.4} ± {:.4} ns per byte\n\
         R²          {:.3} of U, {:.3} of the service times, over {} runs\n\
         Seconds of one core. The server used {:.0} to {:.0} % of it; each run is scaled to 100 %,\n\
         since a client that has no more to ask is not the server's limit.\n\n{}\n\
         file_bytes  {}\n\n{}\nsegment_bytes  {}\n\n{}",
        fit.costs.request_s * 1e6,
        fit.request_error_s * 1e6,
        fit.costs.byte_s * 1e9,
        fit.byte_error_s * 1e9,
        fit.r_squared,
        fit.service_r_squared,
        found.points.len(),
        least_used(found) * 100.0,
        used(found).fold(0.0, f64::max) * 100.0,
        crossover::table(&found.by_file, BY_FILE),
        Size(found.file_bytes),
        crossover::table(&found.in_pieces, IN_PIECES),
        Size(found.segment_bytes),
        found.held.as_ref().map_or_else(String::new, held),
    );
    let us = |times: &[u64; 4]| times.map(|ns| format!("{:.1}", ns as f64 / 1e3)).join(", ");
    let _ = write!(
        text,
        "phases      accept, receive, process, send\n\
         hot file    {} µs on a core\ncold file   {} µs on a core, {} µs blocked\n\
         a           {:?}\nb           {:?}\n\
         Simulated with these times, a load that shifts is answered in {:.2} ms on average, with\n\
         {} in {:.2} ms{}{}.\n",
        us(&found.hot.cpu_ns),
        us(&found.cold.cpu_ns),
        us(&found.cold.blocked_ns),
        factors.per_waiting,
        factors.per_rate,
        factors.after_ms,
        if found.default_ms.is_some() { "those given" } else { "the defaults" },
        factors.before_ms,
        found
            .default_ms
            .map_or_else(String::new, |ms| format!(", with the defaults in {ms:.2} ms")),
        found
            .recovered_by_factors()
            .map_or_else(String::new, |part| format!("; recovered: {:.0} %", part * 100.0)),
    );
    text
}

/// The report of the comparison between the result and the constants from before.
fn held(held: &BeforeAfter) -> String {
    let BeforeAfter { pairs, names, differs, given } = held;
    let cost = |pairs| {
        let [cost, low, high] = crossover::interval(pairs).map(|ratio| ratio * 100.0);
        format!("costs {cost:.1} % ({low:.1} to {high:.1})")
    };
    let [_, other] = names;
    let end = match (held.is_kept(), differs) {
        (true, _) => "it is kept".to_owned(),
        (false, None) => format!("the {other} are kept"),
        (false, Some(file)) => format!("it sends {file} in other bytes, the {other} are kept"),
    };
    let mut text = format!(
        "{}A server with what was found {} of one with the {other}: {end}.\n",
        crossover::table(pairs, *names),
        cost(pairs)
    );
    if let Some(given) = given {
        // writing to a string does not fail
        let _ = write!(
            text,
            "\n{}A server with what was given {} of one with the defaults",
            crossover::table(given, GIVEN),
            cost(given)
        );
        if let Some(parts) = held.recovered() {
            let [part, low, high] = parts.map(|part| part * 100.0);
            let _ = write!(text, "; recovered: {part:.0} % ({low:.0} to {high:.0})");
        }
        text.push_str(".\n");
    }
    text.push('\n');
    text
}

/// Remarks on the result, and the next steps.
pub(super) fn remarks(out: &Path, found: &CalibrationResult, bench: &CalibrationBench) -> String {
    let mut text = String::new();
    let held_up = found.points.iter().map(|point| point.measured.held_up).fold(0.0, f64::max);
    if bench.client_cores.contains(&bench.server_core) {
        text.push_str("There is one core only: server and load had to share it.\n");
    } else if held_up > NOISE {
        let _ = writeln!(
            text,
            "Something else ran on the server's core ({:.0} % of the time at worst): measure again when \
             the machine is quiet.",
            (held_up * 100.0).min(100.0)
        );
    }
    if !is_good(&found.fit) {
        let Costs { request_s, byte_s } = found.costs;
        let _ = writeln!(
            text,
            "The runs do not agree well (R² above): c1 and c2 stay {:.2} µs and {:.4} ns, measure again.",
            request_s * 1e6,
            byte_s * 1e9
        );
    }
    let shown = quote(&out.display().to_string());
    let _ = write!(text, "{}: written. Use it with pipeline.calibration = {shown}", out.display());
    text
}

fn used(found: &CalibrationResult) -> impl Iterator<Item = f64> {
    found.points.iter().map(|CostPoint { measured: Measured { used, .. }, .. }| *used)
}

fn least_used(found: &CalibrationResult) -> f64 {
    used(found).fold(1.0, f64::min)
}

/// Rounds to four digits, the precision of a measurement.
fn rounded(number: f64) -> f64 {
    format!("{number:.3e}").parse().unwrap_or(number)
}
