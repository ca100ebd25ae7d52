//! The seal: what a process of a stage gives up once it has what it needs.
//!
//! *Process* decides with what it got at its start, and has connections from the stage before, and
//! to the next stage those that the supervisor makes for it. Attackers who have taken it over can
//! read no file and open no connection (`forebay_sys::seal`); they can give wrong answers to its
//! requests, and send requests to the next stage, which checks the rules again.
//!
//! *Receive* and *respond* open the connections and files that Landlock allows, and cannot reach
//! other processes or unusual parts of the kernel (`forebay_sys::restrain`).

use crate::privileges::PrivilegeError;
use forebay_config::{Config, Confine, GateMode, Role};
use forebay_site::FilesLocation;
use forebay_sys::stderr::say;
use forebay_sys::{broker, privileges, restrain, seal as kernel};
use std::fmt;

/// The seal is required, and the kernel does not support it.
#[derive(Debug)]
pub struct SealError {
    /// The missing feature.
    pub reason: String,
}

impl fmt::Display for SealError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sandbox.seccomp is on, but the process cannot be sealed: {}", self.reason)
    }
}

impl std::error::Error for SealError {}

/// Whether the process of this configuration is sealed, if the kernel supports it.
pub fn is_sealed(config: &Config) -> bool {
    let place = config.place.as_ref();
    place.is_some_and(|place| place.role == Role::Process)
        // without the supervisor's help it would have to connect by itself
        && broker::is_offered()
        && config.sandbox.seccomp != Confine::Off
}

/// The place where the process of this configuration finds files.
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

/// Gives up the privileges of root, before there are threads.
///
/// # Errors
/// The error of the kernel; the process must then end.
pub fn give_up(config: &Config) -> Result<(), PrivilegeError> {
    let is_another = privileges::become_nobody(Some(std::os::unix::process::parent_id()));
    let is_another = is_another.map_err(|error| PrivilegeError::Refused { error })?;
    if !is_another {
        miss(config, "it has no user of its own, because the server was not started as root");
    }
    Ok(())
}

/// Seals a process of *process*, which gets nothing new from the kernel from here on, and keeps one
/// of another stage from other processes. The result is whether the process is sealed.
///
/// # Errors
/// If the setting requires it, and it is not possible.
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

/// Logs, once for all instances of a stage, what an attacker in one of them could do.
pub(crate) fn miss(config: &Config, what: &str) {
    if let Some(place) = config.place.as_ref().filter(|place| place.instance == 1) {
        say(format_args!("stage {} is less confined: {what}", place.role));
    }
}
