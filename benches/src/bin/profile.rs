//! `profile`: duke's figure 7. Where the time of a request goes in an engine that is flooded, and what
//! opening its listening socket takes.
#![forbid(unsafe_code)]

use clap::Parser;
use forebay_benches::content::{Scratch, body};
use forebay_benches::forebay::{Forebay, Place, header};
use forebay_benches::profile::{self, Cache, FILE_BYTES, Profile};
use forebay_benches::{Error, machine, measure, probe, running};
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Where the time of a request goes, activity by activity.
#[derive(Parser)]
struct Options {
    /// The engine
    #[arg(long, default_value = "threads")]
    engine: String,
    /// Clients that wait for their answers, a connection for each request
    #[arg(long, default_value_t = 15)]
    clients: u32,
    /// Length of each of the two measurements in seconds
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// The server's program [default: forebay beside this one]
    #[arg(long)]
    forebay: Option<PathBuf>,
    /// The core the server runs on
    #[arg(long, default_value_t = 0)]
    server_core: usize,
    /// The core the load comes from
    #[arg(long, default_value_t = 1)]
    client_core: usize,
    /// A folder for the table; without it it is only printed
    #[arg(long)]
    out: Option<PathBuf>,
}

fn main() -> ExitCode {
    match bench(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("profile: {error}");
            ExitCode::FAILURE
        }
    }
}

fn bench(options: &Options) -> Result<(), Error> {
    let stop = measure::stop_on_signals().map_err(Error::io("cannot watch for", "signals"))?;
    let own = std::env::current_exe().map_err(Error::io("cannot find", "this program"))?;
    let program = options.forebay.clone().unwrap_or_else(|| own.with_file_name("forebay"));
    let scratch = Scratch::new()?;
    let file = scratch.path().join("file.html");
    fs::write(&file, body(FILE_BYTES)).map_err(Error::io("cannot write", &file))?;
    let title = format!("Profile of {}, flooded (duke's figure 7)", options.engine);
    let mut text = header(&title, "profile", &machine::describe());
    // writing to a string does not fail
    let _ = writeln!(
        text,
        "- {} clients that wait for their answers, {FILE_BYTES} bytes, a connection for each request; {} s \
         each; every request is timed; server on core {}, load on core {}",
        options.clients, options.seconds, options.server_core, options.client_core
    );
    running::pin(options.client_core)?;
    let place = Place {
        program: &program,
        scratch: scratch.path(),
        core: options.server_core,
        caged: false,
    };
    for cache in Cache::ALL {
        let (profile, per_s) = one(options, &place, cache, &stop)?;
        let name = cache.name();
        let _ = writeln!(text, "\n## Where {name}: {per_s:.0} answers per second");
        text += &profile.table();
    }
    println!("{text}");
    if let Some(out) = &options.out {
        fs::create_dir_all(out).map_err(Error::io("cannot make the folder", out))?;
        let file = out.join("README.md");
        fs::write(&file, &text).map_err(Error::io("cannot write", &file))?;
    }
    Ok(())
}

/// Starts the server, floods it, stops it.
fn one(
    options: &Options,
    place: &Place<'_>,
    cache: Cache,
    stop: &Arc<AtomicBool>,
) -> Result<(Profile, f64), Error> {
    let lines = format!(
        "root = {:?}\nengine = \"{}\"\nsample = 1\n{}",
        place.scratch,
        options.engine,
        cache.lines()
    );
    let server = Forebay::start(place, &lines, 20_000 + (std::process::id() % 8000) as u16)?;
    let asked = probe::get(server.port(), "file.html", "Connection: close\r\n");
    asked.map_err(Error::io("no answer for", "file.html"))?;
    let before = Profile::read(&server.metrics());
    let plan = profile::plan(server.port(), options.clients, options.seconds, options.client_core)?;
    let report = forebay_load::run(&plan, stop, &mut |_| {});
    if stop.load(Ordering::Relaxed) {
        return Err(Error::Interrupted);
    }
    let report = report.map_err(|error| Error::Client(error.to_string()))?;
    let profile = Profile::read(&server.metrics()).since(&before);
    let group = &report.groups[0];
    Ok((profile, group.good as f64 / group.seconds.max(1e-9)))
}
