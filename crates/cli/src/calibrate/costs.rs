//! The costs `c1` and `c2`: the server is driven to saturation with several sizes and concurrencies (keta
//! §4.2).

use super::bench::{CalibrationBench, Measured, RunLength};
use super::error::CalibrateError;
use super::server::ServerProcess;
use forebay_control::regression::{self, Fit, FitError, SaturatedRun};
use std::fmt::Write;

/// The measurement of one size at one concurrency.
#[derive(Clone, Copy, Debug)]
pub(super) struct CostPoint {
    pub(super) bytes: u64,
    pub(super) connections: u32,
    pub(super) measured: Measured,
}

/// Measures every size with every number of connections.
pub(super) fn measure(
    bench: &CalibrationBench,
    server: &ServerProcess,
    sizes: &[u64],
    connections: &[u32],
    length: RunLength,
) -> Result<Vec<CostPoint>, CalibrateError> {
    let mut points = Vec::new();
    for &connections in connections {
        for &bytes in sizes {
            bench.bar.say(&format!("c1, c2: {bytes} bytes over {connections} connections"));
            let group = bench.group(server, &file_name(bytes), connections);
            let measured = bench.measure(server, group, length, &mut || {})?;
            points.push(CostPoint { bytes, connections, measured });
        }
    }
    Ok(points)
}

/// The name of the file with `bytes` bytes.
pub(super) fn file_name(bytes: u64) -> String {
    format!("{bytes}.bin")
}

/// The name of the text with `bytes` bytes, which is compressed for clients that accept that.
pub(super) fn text_name(bytes: u64) -> String {
    format!("{bytes}.txt")
}

/// The regression over all points. If the server used only a part of its core, because the client sent too
/// few requests, its rate is scaled up to a full core: `U` is 1 for each point.
pub(super) fn fit(points: &[CostPoint]) -> Result<Fit, FitError> {
    let runs: Vec<SaturatedRun> = points
        .iter()
        .map(|CostPoint { measured, .. }| SaturatedRun {
            requests_per_s: measured.requests_per_s / measured.used,
            bytes_per_s: measured.bytes_per_s / measured.used,
        })
        .collect();
    regression::fit(&runs)
}

/// A table of the points, with the values of the fit.
pub(super) fn table(points: &[CostPoint], fit: &Fit) -> String {
    let mut text = format!(
        "{:>9} {:>6} {:>10} {:>9} {:>6} {:>9} {:>9}\n",
        "bytes", "conns", "W /s", "R MB/s", "used", "µs each", "c1 + c2·x"
    );
    for CostPoint { bytes, connections, measured } in points {
        let each = measured.bytes_per_s / measured.requests_per_s;
        // writing to a string does not fail
        let _ = writeln!(
            text,
            "{bytes:>9} {connections:>6} {:>10.0} {:>9.1} {:>4.0} % {:>9.2} {:>9.2}",
            measured.requests_per_s,
            measured.bytes_per_s / 1e6,
            measured.used * 100.0,
            measured.cpu_us(),
            fit.costs.utilisation(1.0, each) * 1e6,
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(bytes: u64, used: f64) -> CostPoint {
        // 5 µs and 0.1 ns per byte, on a core that is used in part
        let requests_per_s = used / (5e-6 + 1e-10 * bytes as f64);
        let bytes_per_s = requests_per_s * bytes as f64;
        let measured = Measured { requests_per_s, bytes_per_s, used, held_up: 0.0 };
        CostPoint { bytes, connections: 16, measured }
    }

    #[test]
    fn a_client_that_is_the_bottleneck_does_not_change_the_costs() {
        let points = [point(1_000, 0.6), point(10_000, 0.9), point(100_000, 1.0), point(9, 0.3)];
        let fit = fit(&points).unwrap();
        assert!((fit.costs.request_s - 5e-6).abs() < 1e-12, "{fit:?}");
        assert!((fit.costs.byte_s - 1e-10).abs() < 1e-16, "{fit:?}");
        assert!(fit.r_squared > 1.0 - 1e-9);
        let text = table(&points, &fit);
        assert_eq!(text.lines().count(), 5);
        assert!(text.contains(" 60 % "), "{text}");
    }
}
