//! What everything ran on.

use std::fs;
use std::process::{Command, Stdio};

/// Lines of a markdown list: processor, cores, kernel, distribution, load.
pub fn describe() -> String {
    let processor = field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".into());
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let hypervisor = match field("/proc/cpuinfo", "flags") {
        Some(flags) if flags.split(' ').any(|flag| flag == "hypervisor") => ", virtual machine",
        _ => "",
    };
    let kernel = read("/proc/sys/kernel/osrelease");
    let system = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let system = system.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let load = read("/proc/loadavg");
    format!(
        "- processor: {processor}, {cores} cores{hypervisor}\n\
         - kernel: Linux {kernel}\n\
         - distribution: {}\n\
         - load average at the start: {load}\n",
        system.unwrap_or("unknown").trim_matches('"'),
    )
}

/// Now, in UTC, as `date` formats it.
pub fn date(format: &str) -> String {
    first_line(Command::new("date").args(["-u", format]))
}

/// The version of an installed Debian package, or nothing where there is no dpkg.
pub fn package_version(package: &str) -> String {
    first_line(Command::new("dpkg-query").args(["-W", "-f", "${Version}", package]))
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
