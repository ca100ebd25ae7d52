//! What a process of a stage gives up once it has what it needs.
//!
//! *Process* decides by what it was told at its start, and has the connections of the stage before, and those to the
//! next that the supervisor makes for it. Code that has taken it over reads no file and opens no connection
//! (`forebay_sys::seal`); it can answer wrongly what it is asked, and ask the next stage, which holds the rules again.
//!
//! *Receive* and *respond* open connections and files as Landlock lets them, and leave other processes and the kernel
//! alone (`forebay_sys::restrain`).

use crate::privileges::PrivilegeError;
use forebay_config::{Config, Confine, GateMode, Role};
use forebay_site::FilesLocation;
use forebay_sys::stderr::say;
use forebay_sys::{broker, privileges, restrain, seal as kernel};
use std::fmt;

/// The kernel seals nothing, but is told to.
#[derive(Debug)]
pub struct SealError {
    /// What is missing.
    pub reason: String,
}

impl fmt::Display for SealError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sandbox.seccomp is on, but the process cannot be sealed: {}", self.reason)
    }
}

impl std::error::Error for SealError {}

/// Whether the process that this configuration is for is sealed, if the kernel can.
pub fn is_sealed(config: &Config) -> bool {
    let place = config.place.as_ref();
    place.is_some_and(|place| place.role == Role::Process)
        // else it must connect itself
        && broker::is_offered()
        && config.sandbox.seccomp != Confine::Off
}

/// Where the process that this configuration is for finds files.
pub fn files(config: &Config) -> FilesLocation {
    match &config.place {
        Some(place) if place.role == Role::Process => {
            match config.isolated.is_foreign(Role::Respond) {
                false => FilesLocation::Behind,
                true => FilesLocation::Elsewhere,
            }
        }
        _ => FilesLocation::Here,
    }
}

/// Gives up the rights of root, before there are threads.
///
/// # Errors
/// What the kernel says; the process must then end.
pub fn give_up(config: &Config) -> Result<(), PrivilegeError> {
    let is_another = privileges::become_nobody(Some(std::os::unix::process::parent_id()));
    let is_another = is_another.map_err(|error| PrivilegeError::Refused { error })?;
    if !is_another {
        miss(config, "it has no user of its own, because the server was not started as root");
    }
    Ok(())
}

/// A process of *process* gets nothing new from the kernel from here on, and one of another stage reaches no other
/// process. Says whether it is sealed.
///
/// # Errors
/// If that must be and cannot.
pub fn seal(config: &Config) -> Result<bool, SealError> {
    let Some(place) = config.place.as_ref().filter(|_| config.sandbox.seccomp != Confine::Off)
    else {
        return Ok(false);
    };
    let is_process = place.role == Role::Process;
    let sealed = match is_process {
        true if !broker::is_offered() => {
            Err("it makes its connections itself, because forebay run has not started it".into())
        }
        true => kernel::seal().map_err(|error| error.to_string()),
        false => {
            let judges_packets = place.role == Role::Receive && config.gate != GateMode::Off;
            restrain::restrain(judges_packets).map_err(|error| error.to_string())
        }
    };
    match (sealed, config.sandbox.seccomp) {
        (Ok(()), _) => Ok(is_process),
        (Err(reason), Confine::On) => Err(SealError { reason }),
        (Err(reason), _) => {
            miss(config, &reason);
            Ok(false)
        }
    }
}

/// Says once for all instances what one that was taken over could do.
fn miss(config: &Config, what: &str) {
    if let Some(place) = config.place.as_ref().filter(|place| place.instance == 1) {
        say(format_args!("stage {} is less confined: {what}", place.role));
    }
}
