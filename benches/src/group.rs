//! Servers that run as groups of processes, and end as such; and nginx as it is compared with.

use crate::Error;
use rustix::process::{
    Pid, Signal, WaitOptions, geteuid, kill_process_group, set_child_subreaper, waitpgid,
};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Processes that end with this.
#[derive(Debug)]
pub struct Group(Child);

impl Group {
    /// Starts it as a group of its own.
    ///
    /// # Errors
    /// If there is no such program.
    pub fn start(mut command: Command) -> Result<Group, Error> {
        // what its processes leave behind is waited for here
        let adopts = set_child_subreaper(Pid::from_raw(1));
        adopts.map_err(|error| Error::io("cannot adopt", "processes")(error.into()))?;
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(Error::io("cannot start", command.get_program()))?;
        Ok(Group(child))
    }

    /// The first of them.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    /// Whether the first has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }

    /// Sends a signal to all of them.
    pub fn signal(&self, signal: Signal) {
        // what has ended is as it should be
        let _ = kill_process_group(self.pid(), signal);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::CONT);
        self.signal(Signal::KILL);
        let _ = self.0.wait();
        // what the others have open is free when they have ended, too: the next binds the same address
        while matches!(waitpgid(self.pid(), WaitOptions::empty()), Ok(Some(_))) {}
    }
}

/// nginx with two workers and without a log, with this in its block `http`.
///
/// # Errors
/// If its file cannot be written.
pub fn nginx(within: &Path, name: &str, http: &str) -> Result<Command, Error> {
    let dir = within.join(name);
    fs::create_dir_all(&dir).map_err(Error::io("cannot make", &dir))?;
    let user = if geteuid().is_root() { "user root;" } else { "" };
    let at = dir.display();
    let file = within.join(format!("{name}.conf"));
    let text = format!(
        "daemon off; {user} worker_processes 2; pid {at}/pid; error_log /dev/null;\n\
         events {{ worker_connections 4096; }}\n\
         http {{ access_log off; client_body_temp_path {at}/a; proxy_temp_path {at}/b;\n\
         fastcgi_temp_path {at}/c; uwsgi_temp_path {at}/d; scgi_temp_path {at}/e;\n{http} }}\n"
    );
    fs::write(&file, text).map_err(Error::io("cannot write", &file))?;
    let mut command = Command::new("nginx");
    command.arg("-c").arg(file);
    Ok(command)
}
