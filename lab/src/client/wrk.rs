//! The client for HTTP/1: wrk.

use super::{Counted, ProgramLoad};
use crate::Error;
use crate::case::{Mode, StaticCase};
use std::fs;
use std::process::Command;

/// Begins the one line that is read from its output.
const MARK: &str = "measured ";

/// A script that prints the counts in a form that is easy to read back.
const DONE: &str = r#"
done = function(summary, latency)
  local errors = summary.errors
  print(string.format("measured %d %d %d %d %d %d %d %d %d %d", summary.requests,
    summary.duration, summary.bytes, errors.connect, errors.read, errors.write, errors.status,
    errors.timeout, latency:percentile(50), latency:percentile(99)))
end
"#;

/// The command line for `case`, but for the URL; `etag` is the server's tag for the file.
pub(super) fn command(
    case: &StaticCase,
    etag: &str,
    load: &ProgramLoad<'_>,
    seconds: u32,
) -> Result<Command, Error> {
    let script = load.scratch.join("client.lua");
    fs::write(&script, lua(case, etag)).map_err(Error::io("cannot write", &script))?;
    let mut command = Command::new(load.program);
    command.args(["--threads", "1", "--connections", &load.connections.to_string()]);
    command.args(["--duration", &format!("{seconds}s"), "--script"]).arg(script);
    Ok(command)
}

fn lua(case: &StaticCase, etag: &str) -> String {
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

/// Reads the program's output.
pub(super) fn parse(text: &str) -> Option<Counted> {
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
        p50_us: next(),
        p99_us: next(),
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
        assert_eq!((counted.requests, counted.errors(), counted.p99_us), (10, 3, Some(99)));
        assert_eq!(parse("unable to connect\n"), None);
    }
}
