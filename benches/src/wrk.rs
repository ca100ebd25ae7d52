//! The client: one thread of wrk on its own core.

use crate::Error;
use crate::case::{Case, Mode};
use crate::cpu::Used;
use crate::running::Process;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Time wrk may take beyond the measured seconds before it is ended.
const GRACE: Duration = Duration::from_secs(15);
/// Begins the one line that is read from its output.
const MARK: &str = "measured ";

/// Prints what is counted in a form made to be read back.
const DONE: &str = r#"
done = function(summary, latency)
  local errors = summary.errors
  print(string.format("measured %d %d %d %d %d %d %d %d %d %d", summary.requests,
    summary.duration, summary.bytes, errors.connect, errors.read, errors.write, errors.status,
    errors.timeout, latency:percentile(50), latency:percentile(99)))
end
"#;

/// How the client loads a server.
#[derive(Clone, Copy, Debug)]
pub struct Load<'l> {
    /// The program.
    pub program: &'l Path,
    /// The core it runs on.
    pub core: usize,
    /// Connections open at the same time.
    pub connections: u32,
    /// A folder for its script and output.
    pub scratch: &'l Path,
}

/// What the client counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Answers.
    pub requests: u64,
    /// Time of the whole run in microseconds.
    pub duration_us: u64,
    /// Bytes received, heads included.
    pub bytes: u64,
    /// Connections that could not be made.
    pub connect_errors: u64,
    /// Reads that failed.
    pub read_errors: u64,
    /// Writes that failed.
    pub write_errors: u64,
    /// Answers with a status of 400 or more.
    pub status_errors: u64,
    /// Answers that took longer than wrk's two seconds.
    pub timeouts: u64,
    /// Half of the answers took at most this many microseconds.
    pub p50_us: u64,
    /// All but one in a hundred took at most this many microseconds.
    pub p99_us: u64,
    /// Processor time of the client itself, in nanoseconds.
    pub cpu_ns: u64,
}

impl Counted {
    /// Everything that went wrong.
    pub fn errors(&self) -> u64 {
        self.connect_errors
            + self.read_errors
            + self.write_errors
            + self.status_errors
            + self.timeouts
    }
}

/// Writes the script for `case`; `etag` is what the server names its file.
pub fn script(case: &Case, etag: &str, scratch: &Path) -> Result<PathBuf, Error> {
    let path = scratch.join("client.lua");
    fs::write(&path, lua(case, etag)).map_err(Error::io("cannot write", &path))?;
    Ok(path)
}

fn lua(case: &Case, etag: &str) -> String {
    let requests = match case.mode {
        Mode::KeepAlive => String::new(),
        Mode::Close => "wrk.headers[\"Connection\"] = \"close\"\n".into(),
        // Long brackets: an ETag holds quotes.
        Mode::NotModified => format!("wrk.headers[\"If-None-Match\"] = [==[{etag}]==]\n"),
        Mode::Pipelined(depth) => format!(
            "init = function() batch = string.rep(wrk.format(), {depth}) end\n\
             request = function() return batch end\n"
        ),
    };
    requests + DONE
}

/// Loads the server on `port` for `seconds` and returns what was counted.
pub fn run(
    load: &Load<'_>,
    script: &Path,
    url: &str,
    seconds: u32,
    stop: &AtomicBool,
) -> Result<Counted, Error> {
    let output = load.scratch.join("client.out");
    let file = File::create(&output).map_err(Error::io("cannot write", &output))?;
    let both = file.try_clone().map_err(Error::io("cannot write", &output))?;
    let mut command = Command::new(load.program);
    command.args(["--threads", "1", "--connections", &load.connections.to_string()]);
    command.args(["--duration", &format!("{seconds}s"), "--script"]).arg(script).arg(url);
    command.stdin(Stdio::null()).stdout(file).stderr(both);
    let client = Process::start(command, load.core)?;
    if !client.wait(Duration::from_secs(seconds.into()) + GRACE, stop)? {
        return Err(Error::Client("did not end in time".into()));
    }
    // A process that ended and was not waited for still has its counters.
    let used = Used::read(&[client.pid()]).since(&Used::default());
    drop(client);
    let text = fs::read_to_string(&output).map_err(Error::io("cannot read", &output))?;
    let counted = parse(&text).ok_or_else(|| Error::Client(format!("printed no counts:\n{text}")));
    Ok(Counted { cpu_ns: used, ..counted? })
}

fn parse(text: &str) -> Option<Counted> {
    let line = text.lines().find_map(|line| line.strip_prefix(MARK))?;
    let mut numbers = line.split(' ').map(|number| number.parse::<u64>().ok());
    let mut next = || numbers.next().flatten();
    Some(Counted {
        requests: next()?,
        duration_us: next()?,
        bytes: next()?,
        connect_errors: next()?,
        read_errors: next()?,
        write_errors: next()?,
        status_errors: next()?,
        timeouts: next()?,
        p50_us: next()?,
        p99_us: next()?,
        cpu_ns: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_are_read_back() {
        let text = "Running 3s test\nmeasured 10 3000000 900 0 1 0 2 0 55 99\nRequests/sec: 3\n";
        let counted = parse(text).expect("a line of counts");
        assert_eq!((counted.requests, counted.errors(), counted.p99_us), (10, 3, 99));
        assert_eq!(parse("unable to connect\n"), None);
    }
}
