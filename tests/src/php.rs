//! A real php-fpm, which runs the scripts of a folder.

use crate::faults::site::Folder;
use crate::faults::{has, soon};
use crate::wire::PATIENCE;
use rustix::process::{Pid, Signal, geteuid, kill_process};
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A running php-fpm. It ends when this is dropped.
#[derive(Debug)]
pub struct Fpm {
    child: Child,
    folder: Folder,
}

impl Drop for Fpm {
    fn drop(&mut self) {
        // SIGTERM ends its workers, too
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

/// The path of php-fpm, whatever its version.
fn program() -> Option<PathBuf> {
    let files = fs::read_dir("/usr/sbin").ok()?.flatten().map(|file| file.path());
    let is_it = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("php-fpm"))
    };
    files.filter(is_it).max()
}

impl Fpm {
    /// Runs the scripts below `root` of this folder, with this number of workers. `None`, with a loud
    /// line about this test, if there is no php-fpm.
    ///
    /// # Panics
    /// If it does not come up.
    pub fn start(folder: Folder, workers: usize, test: &str) -> Option<Fpm> {
        Fpm::with(folder, workers, &[], test)
    }

    /// Starts php-fpm with these settings of PHP.
    ///
    /// # Panics
    /// If it does not come up.
    pub fn with(folder: Folder, workers: usize, settings: &[&str], test: &str) -> Option<Fpm> {
        let there = program().ok_or("there is no php-fpm, see scripts/install");
        let program = has(there, test)?;
        let socket = folder.join("php.sock");
        // without root, php-fpm runs as the user that starts it
        let user = if geteuid().is_root() { "user = root\ngroup = root\n" } else { "" };
        let text = format!(
            "[global]\nerror_log = {log}\ndaemonize = no\nprocess_control_timeout = 0\n\
             [www]\nlisten = {socket}\n{user}pm = static\npm.max_children = {workers}\n\
             pm.status_path = /fpm-status\n\
             php_admin_flag[log_errors] = on\nphp_admin_flag[display_errors] = off\nphp_admin_value[error_log] =\n",
            log = folder.join("fpm.log").display(),
            socket = socket.display(),
        );
        let file = folder.write("fpm.conf", text);
        let mut command = Command::new(program);
        command.args(["-n", "-F", "-y"]).arg(file).stdin(Stdio::null());
        command.args(settings.iter().flat_map(|setting| ["-d", setting]));
        if geteuid().is_root() {
            command.arg("-R");
        }
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let fpm = Fpm { child, folder };
        let log = || fs::read_to_string(fpm.folder.join("fpm.log")).unwrap_or_default();
        assert!(soon(PATIENCE, || log().contains("ready to handle")), "{}", log());
        Some(fpm)
    }

    /// The folder of this php-fpm.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// The directory of the scripts.
    pub fn root(&self) -> PathBuf {
        self.folder.join("root")
    }

    /// The socket of php-fpm.
    pub fn socket(&self) -> PathBuf {
        self.folder.join("php.sock")
    }

    /// Lines of a configuration by which php-fpm runs the scripts of a site, with more of that section.
    pub fn lines(&self, more: &str) -> String {
        format!("[[fastcgi]]\nto = \"unix:{}\"\n{more}", self.socket().display())
    }
}
