//! The machine that everything ran on.

use std::fs;
use std::process::{Command, Stdio};

/// Lines of a markdown list: processor, kernel, distribution, load.
pub fn describe() -> String {
    let processor = field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".into());
    // Not the processors this process may use: it is pinned by now.
    let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cores = processors.lines().filter(|line| line.starts_with("processor")).count();
    let hypervisor = match field("/proc/cpuinfo", "flags") {
        Some(flags) if flags.split(' ').any(|flag| flag == "hypervisor") => ", virtual machine",
        _ => "",
    };
    let kernel = read("/proc/sys/kernel/osrelease");
    let system = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let system = system.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let load = read("/proc/loadavg");
    let load: Vec<&str> = load.split(' ').take(3).collect();
    // Paced ones (bbr) cost the sender timers, window based ones (cubic) do not.
    let congestion = read("/proc/sys/net/ipv4/tcp_congestion_control");
    format!(
        "- processor: {processor}, {cores} cores{hypervisor}\n\
         - kernel: Linux {kernel}, TCP congestion control {congestion}\n\
         - distribution: {}\n\
         - load average at the start: {}\n",
        system.unwrap_or("unknown").trim_matches('"'),
        load.join(" "),
    )
}

/// The name that tells machines apart: processor, cores, kernel.
pub fn name() -> String {
    let processor = field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".into());
    let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cores = processors.lines().filter(|line| line.starts_with("processor")).count();
    format!("{processor}, {cores} cores, Linux {}", read("/proc/sys/kernel/osrelease"))
}

/// Now, in UTC, as `date` formats it.
pub fn date(format: &str) -> String {
    first_line(Command::new("date").args(["-u", format]))
}

/// The version of an installed Debian package, or nothing where there is no dpkg.
pub fn package_version(package: &str) -> String {
    let said = first_line(Command::new("dpkg-query").args(["-W", "-f", "${Version}", package]));
    // Anything else is a complaint: versions begin with a digit.
    if said.starts_with(|first: char| first.is_ascii_digit()) { said } else { String::new() }
}

/// The first line `command` prints, to standard output or else to standard error; empty if it
/// cannot be run.
pub fn first_line(command: &mut Command) -> String {
    let Ok(output) = command.stdin(Stdio::null()).output() else { return String::new() };
    let text = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    String::from_utf8_lossy(&text).lines().next().unwrap_or("").trim().to_owned()
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn field(path: &str, key: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim().to_owned())
    })
}
