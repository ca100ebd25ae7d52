//! Constants that are wrong on purpose, and what `forebay calibrate` makes of them.

use std::fmt::Write;

/// At least so much of what wrong constants lose is to be recovered.
pub const GOAL: f64 = 0.8;

/// Constants that are wrong.
#[derive(Clone, Copy, Debug)]
pub struct Wrong {
    /// What tables call them.
    pub name: &'static str,
    file_bytes: &'static str,
    segment_bytes: &'static str,
    /// Threads for each waiting task.
    per_waiting: f64,
}

/// Both ways in which a machine's constants can be wrong on another one, so far off that something is lost.
pub const WRONG: [Wrong; 2] = [
    // everything by sendfile, and a controller that moves no thread: however small, a factor that is not 0
    // gives a phase with tasks one thread in each period
    Wrong { name: "too-low", file_bytes: "0B", segment_bytes: "0B", per_waiting: 0.0 },
    // the largest files from memory, in more pieces than there need be, and as many threads at once as
    // there may be
    Wrong { name: "too-high", file_bytes: "1GiB", segment_bytes: "64KiB", per_waiting: 100.0 },
];

impl Wrong {
    /// As `forebay calibrate --from` reads them.
    pub fn file(&self) -> String {
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

/// How much came back, as the file says that calibrate has written.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Recovered {
    /// Of processor time per answer, and between which figures that lies; `None` if nothing was lost.
    pub cost: Option<[f64; 3]>,
    /// Of the simulated mean time of a pipeline; `None` if nothing was lost.
    pub simulated: Option<f64>,
}

impl Recovered {
    /// What `text` says.
    pub fn of(text: &str) -> Recovered {
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
}

/// What came back of each, as markdown.
pub fn table(rows: &[(&str, Recovered)]) -> String {
    let answer = |part: Option<f64>| match part {
        None => "nothing was lost",
        Some(part) if part >= GOAL => "yes",
        Some(_) => "**no**",
    };
    let mut text =
        "\n| wrong constants | what | recovered, % | goal |\n|---|---|---|---|\n".to_owned();
    for (name, Recovered { cost, simulated }) in rows {
        let shown = cost.map_or("–".to_owned(), |parts| {
            let [part, low, high] = parts.map(|part| part * 100.0);
            format!("{part:.0} ({low:.0} to {high:.0})")
        });
        // writing to a string does not fail
        let cost = answer(cost.map(|[part, ..]| part));
        let _ = writeln!(text, "| {name} | processor time per answer | {shown} | {cost} |");
        let shown = simulated.map_or("–".to_owned(), |part| format!("{:.0}", part * 100.0));
        let simulated = answer(*simulated);
        let _ =
            writeln!(text, "| {name} | simulated pipeline, mean time | {shown} | {simulated} |");
    }
    text
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
        let table = table(&[("too-low", recovered), ("too-high", Recovered::default())]);
        assert!(table.contains("| too-low | processor time per answer | 91 (82 to 100) | yes |"));
        assert!(
            table.contains("| too-high | simulated pipeline, mean time | – | nothing was lost |")
        );
    }

    #[test]
    fn what_is_wrong_can_be_read() {
        for wrong in WRONG {
            let folder = crate::content::Scratch::new().expect("a folder");
            let path = folder.path().join("wrong.toml");
            std::fs::write(&path, wrong.file()).expect("a file");
            assert!(forebay_server::config::Calibration::load(&path).is_ok(), "{}", wrong.file());
        }
    }
}
