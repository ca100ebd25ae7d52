//! Workloads of the engines.

use crate::content::body;
use crate::load::{client, target};
use crate::{Error, engines::cold};
use forebay_load::{GroupDraft, LoadPlan};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Clients that take a large file slowly, beside those that are measured.
const SLOW_RECEIVERS: u32 = 1000;
/// The rate at which each slow receiver takes its file.
const SLOW_RATE: &str = "400kbit/s";
/// Clients that take next to nothing of a large file. They all come from one address, as the others do.
const STUCK_RECEIVERS: u32 = 70;
/// The rate at which each stuck receiver takes its file.
const STUCK_RATE: &str = "1000B/s";
/// The size of the file that they fetch: at their rate it lasts longer than a measurement.
const LARGE_BYTES: usize = 16 << 20;

/// One workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// 1 KB from memory on connections that are kept.
    Small,
    /// 10 KB from memory on connections that are kept.
    Medium,
    /// Files of 64 KiB, more of them than memory holds, in random order.
    Cold,
    /// 10 KB from memory, while others take a large file slowly.
    Slow,
    /// 10 KB from memory, while others take next to nothing of a large file.
    Stuck,
    /// 10 KB, a connection for each request.
    Close,
}

/// All, in the order of the tables.
pub const ALL: [Workload; 6] = [
    Workload::Small,
    Workload::Medium,
    Workload::Cold,
    Workload::Slow,
    Workload::Stuck,
    Workload::Close,
];

impl Workload {
    /// The workload of this name.
    pub fn find(name: &str) -> Option<Workload> {
        ALL.into_iter().find(|workload| workload.name() == name)
    }

    /// The name, as `--workloads` takes it and the tables show it.
    pub fn name(self) -> &'static str {
        match self {
            Workload::Small => "1k",
            Workload::Medium => "10k",
            Workload::Cold => "cold",
            Workload::Slow => "slow",
            Workload::Stuck => "stuck",
            Workload::Close => "close",
        }
    }

    /// Connections besides those that are measured.
    pub fn background(self) -> u32 {
        self.slow_receivers().map_or(0, |(connections, _)| connections)
    }

    /// The number of other clients that take a large file, and the rate of each.
    fn slow_receivers(self) -> Option<(u32, &'static str)> {
        match self {
            Workload::Slow => Some((SLOW_RECEIVERS, SLOW_RATE)),
            Workload::Stuck => Some((STUCK_RECEIVERS, STUCK_RATE)),
            _ => None,
        }
    }

    /// The load on a server at `port`: the group that is measured comes first.
    ///
    /// # Errors
    /// When the load generator does not take it.
    pub fn plan(
        self,
        port: u16,
        connections: u32,
        length: Duration,
        core: usize,
        root: &Path,
    ) -> Result<LoadPlan, Error> {
        let base = target(port, "")?;
        let mut measured = GroupDraft::new("measured", Some(&base));
        measured.set("connections", &connections.to_string());
        if connections > 1000 {
            measured.set("ramp", "1s");
        }
        match self {
            Workload::Small => measured.set("url", "/1k.html"),
            Workload::Medium | Workload::Slow | Workload::Stuck => measured.set("url", "/10k.html"),
            Workload::Cold => measured.set("urls", &cold::urls(root).to_string_lossy()),
            Workload::Close => {
                measured.set("url", "/10k.html");
                measured.set("per_connection", "1");
            }
        }
        measured.set("timeout", "30s");
        let mut groups = vec![measured.finish().map_err(client)?];
        if let Some((connections, rate)) = self.slow_receivers() {
            let mut slow = GroupDraft::new("slow", Some(&base));
            slow.set("connections", &connections.to_string());
            slow.set("url", "/large.bin");
            slow.set("receive", rate);
            slow.set("timeout", "600s");
            groups.push(slow.finish().map_err(client)?);
        }
        let warmup = if connections > 1000 { 3 } else { 1 };
        Ok(LoadPlan {
            duration: length,
            warmup: Duration::from_secs(warmup),
            drain: Duration::from_secs(1),
            cores: vec![core],
            groups,
            ..LoadPlan::default()
        })
    }
}

/// Writes the files of the workloads that are not cold.
///
/// # Errors
/// When the disk does not take them.
pub fn write(root: &Path) -> Result<(), Error> {
    for (name, bytes) in [("1k.html", 1024), ("10k.html", 10 * 1024), ("large.bin", LARGE_BYTES)] {
        let path = root.join(name);
        fs::write(&path, body(bytes)).map_err(Error::io("cannot write", &path))?;
    }
    Ok(())
}
