//! Many receivers, fast and slow, of short and long answers: what does the order in which they go on do for
//! the time to an answer?
//!
//! emu §2 leaves its fibers first in, first out, and believes that little is gained by letting those go first
//! whose clients take more. voigt §6 tells of Crovella et al.: short answers are sent before long ones.

use crate::Error;
use crate::content::body;
use crate::summary::Spread;
use forebay_load::mix::{Mix, MixPath};
use forebay_load::{ClientGroup, LoadModel, LoadPlan, LoadTarget};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// What a socket of the server takes to be sent: with the 4 MiB of today, which loopback grants at once, no
/// answer would ever wait.
pub const SEND_BUFFER_BYTES: usize = 64 << 10;
/// The receive buffer of a slow receiver.
const SLOW_BUFFER_BYTES: usize = 64 << 10;
/// Sizes of files, KB, by what tables call them.
const SIZES: [(&str, &[u64]); 3] =
    [("short", &[1, 3, 10]), ("medium", &[32, 100]), ("long", &[316, 1000])];
/// Receivers that take what comes, and those that take so much per second.
const SPEEDS: [&str; 2] = ["fast", "slow"];
/// Groups of receivers.
pub const GROUPS: usize = SPEEDS.len() * SIZES.len();

/// Orders as the configuration names them; the first is the default.
pub const ORDERS: [&str; 3] = ["arrival", "fastest", "shortest"];

/// The names of the groups, in the order of all figures.
pub fn names() -> [String; GROUPS] {
    let (speed, size) =
        (|at: usize| SPEEDS[at / SIZES.len()], |at: usize| SIZES[at % SIZES.len()].0);
    std::array::from_fn(|at| format!("{} {}", speed(at), size(at)))
}

/// The clients, and how they ask.
#[derive(Clone, Copy, Debug)]
pub struct Receivers {
    /// All of them; as many in each group.
    pub connections: u32,
    /// What a slow one takes, bytes per second.
    pub slow_bytes_per_s: f64,
    /// How long each thinks between an answer and the next request, on average.
    pub think: Duration,
    /// How long it is measured, after half as long a warm-up.
    pub seconds: f64,
}

impl Receivers {
    /// The load on a server at `port`: a group for each of [`names`].
    ///
    /// # Errors
    /// When the address cannot be used.
    pub fn plan(&self, port: u16, core: usize, round: u32) -> Result<LoadPlan, Error> {
        let base = LoadTarget::parse(&format!("http://127.0.0.1:{port}/"));
        let base = base.map_err(|error| Error::Client(error.to_string()))?;
        let group = |(at, name): (usize, String)| {
            let mut group = ClientGroup::new(&name, base.clone());
            let connections = (self.connections / GROUPS as u32).max(1);
            let (think, ramp) = (Duration::ZERO..=2 * self.think, self.think);
            group.load = LoadModel::Closed { connections, think, ramp };
            group.timeout = Duration::from_secs(60);
            group.mix = Mix::new(SIZES[at % SIZES.len()].1.iter().map(|kb| entry(*kb)).collect());
            if at >= SIZES.len() {
                group.receive = Some(self.slow_bytes_per_s);
                group.receive_buffer_bytes = Some(SLOW_BUFFER_BYTES);
            }
            group
        };
        Ok(LoadPlan {
            duration: Duration::from_secs_f64(self.seconds),
            warmup: Duration::from_secs_f64(self.seconds / 2.0),
            cores: vec![core],
            seed: round.into(),
            groups: names().into_iter().enumerate().map(group).collect(),
            ..LoadPlan::default()
        })
    }
}

fn entry(kb: u64) -> MixPath {
    MixPath { path: format!("/{kb}.bin").into(), weight: 1.0, length_bytes: Some(kb * 1000) }
}

/// Writes the files below `root`.
///
/// # Errors
/// When the disk does not take them.
pub fn write(root: &Path) -> Result<(), Error> {
    for kb in SIZES.iter().flat_map(|(_, sizes)| *sizes) {
        let path = root.join(format!("{kb}.bin"));
        let written = fs::write(&path, body(*kb as usize * 1000));
        written.map_err(Error::io("cannot write", &path))?;
    }
    Ok(())
}

/// One run.
#[derive(Clone, Debug)]
pub struct Row {
    /// Which of the repetitions.
    pub round: u32,
    /// The place in [`ORDERS`].
    pub order: usize,
    /// The mean time to an answer of each group, ms.
    pub mean_ms: [f64; GROUPS],
    /// The 99th percentile of that, ms.
    pub p99_ms: [f64; GROUPS],
    /// Answers per second, of all groups.
    pub answers_per_s: f64,
    /// How often an answer had to wait until its client had taken some of it, on average (emu figure 8).
    pub waits: f64,
    /// Failed requests.
    pub failed: u64,
}

impl Row {
    /// The names of the columns, for a file: a line for each group.
    pub const HEAD: &'static str = "round,order,group,mean_ms,p99_ms,answers_per_s,waits,failed";

    /// As lines of a file.
    pub fn csv(&self) -> String {
        let Row { round, order, answers_per_s, waits, failed, .. } = self;
        let mut text = String::new();
        for (at, name) in names().iter().enumerate() {
            // writing to a string does not fail
            let _ = writeln!(
                text,
                "{round},{},{name},{:.4},{:.4},{answers_per_s:.0},{waits:.3},{failed}",
                ORDERS[*order], self.mean_ms[at], self.p99_ms[at],
            );
        }
        text
    }

    /// The mean time over all groups. A group counts as one, however often it asks: receivers that are served
    /// sooner ask more often, and would count for more.
    pub fn all_ms(&self) -> f64 {
        self.mean_ms.iter().sum::<f64>() / GROUPS as f64
    }
}

/// Medians and spreads as markdown, and each order beside the default.
pub fn tables(rows: &[Row]) -> String {
    let shown = |order: usize, digits: usize, figure: &dyn Fn(&Row) -> f64| {
        let spread = Spread::of(rows.iter().filter(|row| row.order == order).map(figure));
        spread.map_or("–".to_owned(), |spread| format!("{spread:.digits$}"))
    };
    let heads: String = names().iter().map(|name| format!(" {name} |")).collect();
    let rule = "---|".repeat(GROUPS);
    let mut text = String::new();
    for (title, which) in [("Mean time to an answer, ms", 0), ("99th percentile, ms", 1)] {
        // writing to a string does not fail
        let _ = write!(text, "\n## {title}\n\n| order | all |{heads}\n|---|---|{rule}\n");
        for (order, name) in ORDERS.iter().enumerate() {
            let of = |row: &Row, at: usize| [row.mean_ms[at], row.p99_ms[at]][which];
            let all = |row: &Row| (0..GROUPS).map(|at| of(row, at)).sum::<f64>() / GROUPS as f64;
            let _ = write!(text, "| {name} | {} |", shown(order, 2, &all));
            for at in 0..GROUPS {
                let _ = write!(text, " {} |", shown(order, 2, &|row| of(row, at)));
            }
            text.push('\n');
        }
    }
    text.push_str(
        "\n## Work\n\n| order | answers/s | waits per answer | failed |\n|---|---|---|---|\n",
    );
    for (order, name) in ORDERS.iter().enumerate() {
        let _ = writeln!(
            text,
            "| {name} | {} | {} | {} |",
            shown(order, 0, &|row| row.answers_per_s),
            shown(order, 2, &|row| row.waits),
            shown(order, 0, &|row| row.failed as f64),
        );
    }
    text.push_str("\n## Beside the default, in pairs of the same repetition\n\n");
    for (order, name) in ORDERS.iter().enumerate().skip(1) {
        let of = |figure: &dyn Fn(&Row) -> f64| {
            ratio(rows, order, figure).map_or("–".to_owned(), |spread| format!("{spread:.2}"))
        };
        let _ = write!(text, "- {name}: all {}", of(&Row::all_ms));
        for (at, group) in names().iter().enumerate() {
            let _ = write!(text, ", {group} {}", of(&|row| row.mean_ms[at]));
        }
        text.push_str(".\n");
    }
    text
}

/// A figure of an order divided by that of the default in the same repetition.
fn ratio(rows: &[Row], order: usize, figure: &dyn Fn(&Row) -> f64) -> Option<Spread> {
    let of = |order: usize| rows.iter().filter(move |row| row.order == order);
    Spread::of(of(order).filter_map(|row| {
        let default = of(0).find(|default| default.round == row.round)?;
        Some(figure(row) / figure(default))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(round: u32, order: usize, ms: f64) -> Row {
        let (mean_ms, p99_ms) = ([ms; GROUPS], [2.0 * ms; GROUPS]);
        Row { round, order, mean_ms, p99_ms, answers_per_s: 100.0, waits: 1.5, failed: 0 }
    }

    #[test]
    fn there_is_a_group_for_each_speed_and_size() {
        let receivers = Receivers {
            connections: 1000,
            slow_bytes_per_s: 1e6,
            think: Duration::from_millis(100),
            seconds: 4.0,
        };
        let plan = receivers.plan(1, 0, 1).expect("a plan");
        assert!(plan.check().is_ok() && plan.groups.len() == GROUPS);
        let slow = |group: &&ClientGroup| group.receive.is_some();
        assert!(plan.groups.iter().filter(slow).all(|group| group.name.starts_with("slow ")));
        assert_eq!(plan.groups.iter().filter(slow).count(), GROUPS / 2);
    }

    #[test]
    fn orders_are_compared_within_a_repetition() {
        let rows = [row(1, 0, 10.0), row(1, 2, 8.0), row(2, 0, 100.0), row(2, 2, 60.0)];
        let text = tables(&rows);
        assert!(text.contains("- shortest: all 0.70 (0.60–0.80), fast short"), "{text}");
        assert!(text.contains("| fastest | – |"), "{text}");
        let columns = Row::HEAD.split(',').count();
        assert!(rows[0].csv().lines().all(|line| line.split(',').count() == columns));
    }
}
