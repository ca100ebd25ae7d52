//! The threads that work for applications beside requests.

use forebay_engine::worker;
use forebay_handler::applications::Applications;
use forebay_handler::live::LiveSnapshot;
use forebay_sys::stderr::say;
use forebay_upstream::pings::Pings;
use forebay_upstream::settings::UpstreamAddress;
use forebay_upstream::upkeep::{NameUpkeep, Upkeep};
use std::sync::{Arc, Weak};
use std::time::Duration;
use std::{io, thread};

/// The precision of the times of checks.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Starts two threads for the applications in force, as long as they are served: one checks
/// applications and waits for their answers, the other looks names up.
///
/// # Errors
/// Lack of threads.
pub(crate) fn keep_up(live: Weak<LiveSnapshot>) -> io::Result<()> {
    let names = Weak::clone(&live);
    let look_up = move || {
        let mut upkeep = NameUpkeep::default();
        while let Some(live) = names.upgrade() {
            let applications = live.get().applications.each();
            drop(live);
            upkeep.run(&applications);
            drop(applications);
            thread::sleep(LOOK_EVERY);
        }
    };
    thread::Builder::new().name("names".to_owned()).spawn(look_up)?;
    let run = move || {
        let mut upkeep = Upkeep::default();
        while let Some(live) = live.upgrade() {
            let applications = live.get().applications.each();
            drop(live);
            upkeep.run(&applications, worker::read_clocks().monotonic_ms);
            for upstreams in applications.iter().map(|one| one.upstreams()) {
                upstreams.turn();
                for (label, said) in upstreams.notices() {
                    say(format_args!("upstream {label}: {said}"));
                }
            }
            drop(applications);
            thread::sleep(LOOK_EVERY);
        }
    };
    thread::Builder::new().name("applications".to_owned()).spawn(run)?;
    Ok(())
}

/// Starts a thread that checks whether the instances of the next stage live, if there is a next stage.
///
/// # Errors
/// Lack of threads.
pub(crate) fn keep_up_link(applications: &Applications) -> io::Result<()> {
    let Some(stage) = applications.next_stage().map(Arc::clone) else { return Ok(()) };
    if stage.settings().group().to.iter().any(UpstreamAddress::is_looked_up) {
        let named = vec![Arc::clone(&stage)];
        let look_up = move || {
            let mut upkeep = NameUpkeep::default();
            loop {
                upkeep.run(&named);
                thread::sleep(LOOK_EVERY);
            }
        };
        thread::Builder::new().name("names".to_owned()).spawn(look_up)?;
    }
    let run = move || {
        let mut pings = Pings::default();
        loop {
            pings.run(&stage, || worker::read_clocks().monotonic_ms);
        }
    };
    thread::Builder::new().name("link".to_owned()).spawn(run)?;
    Ok(())
}
