//! Constants that are wrong on purpose, and how far `forebay calibrate` corrects them: at least 80
//! % of the lost performance must come back. Where nothing is lost, nothing can.

use crate::Error;
use crate::benchmark::{Benchmark, BenchmarkNetwork, Measure, nothing};
use crate::claim::{Against, BenchmarkClaim, DecidedBy, Goal};
use crate::columns::{figure, key};
use crate::options::Axis;
use crate::rows::RawRow;
use crate::run::{Run, Trial};
use std::fs;
use std::process::{Command, Stdio};

/// The experiment.
pub const CALIBRATION: Benchmark = Benchmark {
    name: "calibration",
    title: "Wrong constants, calibrated",
    about: "How much of what wrong constants lose `forebay calibrate` recovers, with 95 % intervals. Its own \
            words and what it has found are beside this file.",
    servers: Axis::new("server", "servers", "Who calibrates", || vec!["forebay"], ""),
    peers: &[],
    clients: &[],
    sweep: &[Axis::new("wrong", "wrong", "Constants that are wrong on purpose", wrong, "")],
    points: None,
    settings: &[],
    rounds: 1,
    // the length is that of the calibration itself
    measured: "0s",
    network: BenchmarkNetwork::Shared,
    pinned: false,
    columns: &[
        key("wrong"),
        key("what"),
        figure("recovered_pc").shown("recovered, %", 0),
        figure("low_pc").shown("at least", 0),
        figure("high_pc").shown("at most", 0),
    ],
    tables: &[],
    lines: &["wrong", "what"],
    ratios: &[],
    claims: &[BenchmarkClaim {
        what: "recovered, %",
        of: &[],
        figure: "recovered_pc",
        against: Against::Nothing,
        goal: Goal::AtLeast(0.0, 80.0),
        by: DecidedBy::Median,
    }],
    more: nothing,
    prepare,
};

fn wrong() -> Vec<&'static str> {
    WRONG.map(|wrong| wrong.name).to_vec()
}

struct CalibrationMeasure;

fn prepare(_run: &Run) -> Result<Box<dyn Measure>, Error> {
    Ok(Box::new(CalibrationMeasure))
}

impl Measure for CalibrationMeasure {
    fn measure(&mut self, trial: &Trial<'_>) -> Result<Vec<RawRow>, Error> {
        let run = trial.run;
        let found = WRONG.iter().find(|wrong| wrong.name == trial.at("wrong"));
        let Some(wrong) = found else { return Ok(Vec::new()) };
        let from = run.scratch().join(format!("{}.toml", wrong.name));
        fs::write(&from, wrong.file()).map_err(Error::io("cannot write", &from))?;
        let found = run.out.join(format!("{}.toml", wrong.name));
        let mut command = Command::new(&run.options.program);
        command.arg("calibrate").arg("--from").arg(&from).arg("--out").arg(&found);
        if run.options.quick {
            command.arg("--quick");
        }
        // what it says is worth keeping, and how far it is goes to the terminal
        let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
        let output = output.map_err(Error::io("cannot start", &run.options.program))?;
        let said = run.out.join(format!("{}.txt", wrong.name));
        fs::write(&said, &output.stdout).map_err(Error::io("cannot write", &said))?;
        if !output.status.success() {
            return Err(Error::Client(format!("forebay calibrate ended with {}", output.status)));
        }
        let text = fs::read_to_string(&found).map_err(Error::io("cannot read", &found))?;
        Ok(Recovered::of(&text).rows())
    }
}

/// Constants that are wrong.
#[derive(Clone, Copy, Debug)]
struct WrongConstants {
    /// The name in tables.
    name: &'static str,
    file_bytes: &'static str,
    segment_bytes: &'static str,
    /// Threads for each waiting task.
    per_waiting: f64,
}

/// Constants of a machine that are wrong in both directions, so far that performance is lost.
const WRONG: [WrongConstants; 2] = [
    // everything by sendfile, and a controller that moves no thread: however small, a factor that is not 0
    // gives a phase with tasks one thread in each period
    WrongConstants { name: "too-low", file_bytes: "0B", segment_bytes: "0B", per_waiting: 0.0 },
    // the largest files from memory, in more pieces than there need be, and as many threads at once as
    // there may be
    WrongConstants {
        name: "too-high",
        file_bytes: "1GiB",
        segment_bytes: "64KiB",
        per_waiting: 100.0,
    },
];

impl WrongConstants {
    /// The constants as `forebay calibrate --from` reads them.
    fn file(&self) -> String {
        let of_all = |value: f64| {
            let phases = ["accept", "receive", "process", "send"];
            let each: Vec<_> = phases.iter().map(|phase| format!("{phase} = {value:?}")).collect();
            each.join(", ")
        };
        format!(
            "c1 = 1e-5\nc2 = 1e-9\nfile_bytes = {:?}\nsegment_bytes = {:?}\na = {{ {} }}\nb = {{ {} }}\n",
            self.file_bytes,
            self.segment_bytes,
            of_all(self.per_waiting),
            of_all(0.0)
        )
    }
}

/// The shares of the lost performance that calibration wins back, by the file that it has written.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Recovered {
    /// The share for processor time per answer, with the figures it lies between; `None` if nothing
    /// was lost.
    cost: Option<[f64; 3]>,
    /// The share for the simulated mean time of a pipeline; `None` if nothing was lost.
    simulated: Option<f64>,
}

impl Recovered {
    /// The shares that `text` states.
    fn of(text: &str) -> Recovered {
        let value = |key: &str| {
            let mut lines = text.lines();
            lines.find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix('='))
        };
        let cost = value("recovered").and_then(|parts| {
            let parts = parts.trim().trim_start_matches('[').trim_end_matches(']').split(',');
            let parts: Option<Vec<f64>> = parts.map(|part| part.trim().parse().ok()).collect();
            parts?.try_into().ok()
        });
        let simulated = value("simulated_recovered").and_then(|part| part.trim().parse().ok());
        Recovered { cost, simulated }
    }

    /// A row for the cost, and one for the simulated time.
    fn rows(self) -> Vec<RawRow> {
        let [part, low, high] = self.cost.unwrap_or([f64::NAN; 3]).map(|part| part * 100.0);
        let cost = RawRow::default()
            .word("what", "processor time per answer")
            .figure("recovered_pc", part);
        let simulated = RawRow::default().word("what", "simulated pipeline, mean time");
        let part = self.simulated.unwrap_or(f64::NAN) * 100.0;
        vec![
            cost.figure("low_pc", low).figure("high_pc", high),
            simulated.figure("recovered_pc", part),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_back_is_read_from_the_file() {
        let text = "[found]\nsimulated_recovered = 0.95\nrecovered = [0.91, 0.82, 1.0]\n";
        let recovered = Recovered::of(text);
        assert_eq!(recovered.cost, Some([0.91, 0.82, 1.0]));
        assert_eq!(recovered.simulated, Some(0.95));
        assert_eq!(Recovered::of("[found]\n"), Recovered::default());
        let rows: Vec<_> = recovered.rows().iter().map(|row| row.get("recovered_pc")).collect();
        assert_eq!(rows, [Some(91.0), Some(95.0)]);
        let rows = Recovered::default().rows();
        assert!(rows.iter().all(|row| row.get("recovered_pc").is_none()));
    }

    #[test]
    fn what_is_wrong_can_be_read() {
        for wrong in WRONG {
            let folder = crate::content::Scratch::new().expect("a folder");
            let path = folder.path().join("wrong.toml");
            std::fs::write(&path, wrong.file()).expect("a file");
            assert!(
                forebay_server::config_file::load_calibration(&path).is_ok(),
                "{}",
                wrong.file()
            );
        }
    }
}
