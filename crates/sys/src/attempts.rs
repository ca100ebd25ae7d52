//! What the kernel lets this process do to others: tried without doing it.

use rustix::process::{
    Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open, test_kill_process,
};
use std::io;

fn process(number: u32) -> io::Result<Pid> {
    let number = i32::try_from(number).ok().and_then(Pid::from_raw);
    number.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// Whether this process may signal that one.
///
/// # Errors
/// What the kernel says.
pub fn signal(other: u32) -> io::Result<()> {
    Ok(test_kill_process(process(other)?)?)
}

/// Whether it may look into it, as a debugger does, and take its descriptors.
///
/// # Errors
/// What the kernel says.
pub fn trace(other: u32) -> io::Result<()> {
    let other = pidfd_open(process(other)?, PidfdFlags::empty())?;
    Ok(pidfd_getfd(other, 0, PidfdGetfdFlags::empty()).map(drop)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_child_may_be_signalled_and_one_that_is_not_there_may_not() {
        let mut child = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
        signal(child.id()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(signal(child.id()).is_err() && trace(child.id()).is_err() && signal(0).is_err());
    }
}
