//! Facts about the server's process that the kernel knows.

use crate::faults::soon;
use crate::wire::PATIENCE;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddrV4;
use std::process::Command;
use std::time::Duration;

/// The process's memory that is not shared and resident, in KiB (`VmRSS`).
///
/// # Panics
/// If the process is gone.
pub fn resident_kib(pid: u32) -> u64 {
    status_kib(pid, "VmRSS:")
}

/// The largest value of [`resident_kib`] so far, in KiB (`VmHWM`).
///
/// # Panics
/// If the process is gone.
pub fn peak_kib(pid: u32) -> u64 {
    status_kib(pid, "VmHWM:")
}

fn status_kib(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("a living process");
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.expect("a line of /proc/PID/status")
}

/// The user and system time that the process has used.
///
/// # Panics
/// If the process is gone.
pub fn processor_time(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("a living process");
    // The name in parentheses may hold spaces; utime and stime are fields 14 and 15 of proc(5).
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 =
        after_name.split_whitespace().skip(11).take(2).flat_map(str::parse::<u64>).sum();
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// The ids and names of the process's threads.
///
/// # Panics
/// If the process is gone.
pub fn threads(pid: u32) -> BTreeMap<u32, String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("a living process");
    let named = |task: std::io::Result<fs::DirEntry>| {
        let task = task.ok()?;
        // a thread that has just ended has no name
        let name = fs::read_to_string(task.path().join("comm")).ok()?;
        Some((task.file_name().to_str()?.parse().ok()?, name.trim_end().to_owned()))
    };
    tasks.filter_map(named).collect()
}

/// Stops a process, and waits until all its threads stand still.
///
/// # Panics
/// If it is gone, or goes on.
pub fn freeze(pid: u32) {
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("the id of a process");
    kill_process(raw, Signal::STOP).expect("a living process");
    let is_still = |task: std::io::Result<fs::DirEntry>| {
        let stat = task.and_then(|task| fs::read_to_string(task.path().join("stat")));
        // a thread that has just ended stands still
        stat.map_or(true, |stat| {
            stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
        })
    };
    let are_still =
        || fs::read_dir(format!("/proc/{pid}/task")).expect("a living process").all(is_still);
    assert!(soon(PATIENCE, are_still), "{pid} goes on");
}

/// Waits until everything that clients have sent to a TCP address has arrived, including the news that
/// they have left (proc_net_tcp(5)): no client has bytes or a FIN that are not acknowledged, and no
/// connection there lacks its client. A busy kernel hands packets over after the call that sent them has
/// returned.
///
/// At least `clients` connections must be open there, too, whether the server has accepted them or not.
/// Where a listener waits for a client's first bytes, a connection without any is not open.
///
/// # Panics
/// If that does not come.
pub fn wait_for_delivery(to: SocketAddrV4, clients: usize) {
    let address = u32::from_le_bytes(to.ip().octets());
    let address = format!("{address:08X}:{:04X}", to.port());
    let is_delivered = || {
        let table = fs::read_to_string("/proc/net/tcp").expect("the kernel's table of connections");
        delivered_connections(&table, &address).is_some_and(|open| open >= clients)
    };
    assert!(
        soon(PATIENCE, is_delivered),
        "what clients sent to {to}, or some of {clients} clients, are still under way"
    );
}

/// The number of open connections, unless bytes are still on their way.
fn delivered_connections(table: &str, address: &str) -> Option<usize> {
    /// The states of a connection: see `tcp_states.h`.
    const ESTABLISHED: &str = "01";
    const UNDER_WAY: [&str; 4] = ["02", "04", "09", "0B"];
    let (mut clients, mut served) = (BTreeSet::new(), Vec::new());
    for line in table.lines().filter(|line| line.contains(address)) {
        let mut fields = line.split_whitespace().skip(1);
        let mut next = || fields.next().unwrap_or_default();
        let (local, remote, state, queues) = (next(), next(), next(), next());
        if remote == address {
            if UNDER_WAY.contains(&state) || !queues.starts_with("00000000:") {
                return None;
            }
            clients.insert(local);
        } else if state == ESTABLISHED {
            served.push(remote);
        }
    }
    served.iter().all(|client| clients.contains(client)).then_some(served.len())
}

/// The largest number of threads that are reported.
const THREADS_TOLD: usize = 20;

/// A report of what each of the process's threads does: its name, its state, and where in the kernel it
/// waits.
pub fn doings(pid: u32) -> String {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return "it is gone".to_owned();
    };
    let told = tasks.filter_map(|task| {
        let task = task.ok()?.path();
        let read = |name: &str| fs::read_to_string(task.join(name)).unwrap_or_default();
        let (stat, stack) = (read("stat"), read("stack"));
        let state = stat.rsplit(") ").next()?.chars().next()?;
        Some(format!("{} {state} {}\n{stack}", read("comm").trim_end(), read("wchan")))
    });
    told.take(THREADS_TOLD).collect()
}

/// A report of the process's TCP connections: their state, what waits in their buffers, and their timers.
pub fn connections(pid: u32) -> String {
    let told = Command::new("ss").args(["-Htnop"]).output();
    let told = told.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let its = format!("pid={pid},");
    told.unwrap_or_default()
        .lines()
        .filter(|line| line.contains(&its))
        .map(|line| line.to_owned() + "\n")
        .collect()
}

/// The number of descriptors that the process has open.
///
/// # Panics
/// If the process is gone.
pub fn open_descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).expect("a living process").count()
}

/// The number of ends of pipes that the process has open.
///
/// # Panics
/// If the process is gone.
pub fn open_pipes(pid: u32) -> usize {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).expect("a living process");
    let is_pipe = |to: &std::path::PathBuf| to.to_string_lossy().starts_with("pipe:");
    links.filter_map(|link| fs::read_link(link.ok()?.path()).ok()).filter(is_pipe).count()
}
