//! The client: one thread on its own core.

mod h2load;
mod wrk;

use crate::Error;
use crate::case::StaticCase;
use crate::cpu::Used;
use crate::peers;
use crate::running::ChildProcess;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// A configuration by which the clients, which speak TLS with OpenSSL, agree on the same with every
/// server.
const AGREED: &str = "openssl_conf = all\n[all]\nssl_conf = ssl\n[ssl]\nsystem_default = same\n\
    [same]\nCiphersuites = TLS_AES_128_GCM_SHA256\nGroups = X25519\n";

/// Time a client may take beyond the measured seconds before it is ended.
const GRACE: Duration = Duration::from_secs(15);

/// A load generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientProgram {
    /// The program.
    pub program: &'static str,
    /// The Debian package that has it.
    pub package: &'static str,
    /// The argument that makes the program print its version.
    pub version: &'static str,
}

/// The client for HTTP/1.
pub const WRK: ClientProgram = ClientProgram { program: "wrk", package: "wrk", version: "-v" };
/// The client for HTTP/2.
const H2LOAD: ClientProgram =
    ClientProgram { program: "h2load", package: "nghttp2-client", version: "--version" };

/// All of them.
pub const CLIENTS: &[ClientProgram] = &[WRK, H2LOAD];

impl ClientProgram {
    /// The client for `case`.
    pub fn of(case: &StaticCase) -> ClientProgram {
        if case.http2.is_some() { H2LOAD } else { WRK }
    }

    /// The program's path.
    pub fn located(&self) -> PathBuf {
        peers::locate(self.program).unwrap_or_else(|| self.program.into())
    }
}

/// The load that a client puts on a server.
#[derive(Clone, Copy, Debug)]
pub struct ProgramLoad<'l> {
    /// The program.
    pub program: &'l Path,
    /// The core it runs on, if it has one of its own.
    pub core: Option<usize>,
    /// Connections open at the same time.
    pub connections: u32,
    /// A folder for its script and output.
    pub scratch: &'l Path,
}

/// The client's counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Answers.
    pub requests: u64,
    /// Time of the whole run in microseconds.
    pub duration_us: u64,
    /// Bytes received, heads included; of HTTP/2, which packs heads, the bodies' alone.
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
    /// Half of the answers took at most this many microseconds; h2load does not say.
    pub p50_us: Option<u64>,
    /// All but one in a hundred took at most this many microseconds; h2load does not say.
    pub p99_us: Option<u64>,
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

/// Runs the client with `case` on `url` for this time and returns its counts; `etag` is the
/// server's tag for the file.
pub fn run(
    load: &ProgramLoad<'_>,
    case: &StaticCase,
    etag: &str,
    url: &str,
    time: Duration,
    stop: &AtomicBool,
) -> Result<Counted, Error> {
    // the programs count whole seconds
    let seconds = (time.as_secs_f64().ceil() as u32).max(1);
    let mut command = match case.http2 {
        Some(http2) => h2load::command(http2.streams, load, seconds),
        None => wrk::command(case, etag, load, seconds)?,
    };
    if case.tls {
        let agreed = load.scratch.join("openssl.cnf");
        fs::write(&agreed, AGREED).map_err(Error::io("cannot write", &agreed))?;
        command.env("OPENSSL_CONF", agreed);
    }
    let parse = if case.http2.is_some() { h2load::parse } else { wrk::parse };
    let output = load.scratch.join("client.out");
    let file = File::create(&output).map_err(Error::io("cannot write", &output))?;
    let both = file.try_clone().map_err(Error::io("cannot write", &output))?;
    command.arg(url).stdin(Stdio::null()).stdout(file).stderr(both);
    let client = ChildProcess::start(command, load.core)?;
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
