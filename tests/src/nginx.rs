//! A real nginx, with the `http` block that Debian's `nginx.conf` has around the blocks of a site.

use crate::faults::site::Folder;
use crate::faults::{has, soon};
use crate::wire::PATIENCE;
use rustix::process::{Pid, Signal, geteuid, kill_process};
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A running nginx. It ends when this is dropped.
#[derive(Debug)]
pub struct Nginx {
    child: Child,
    folder: Folder,
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // SIGTERM ends its worker, too
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("nginx said:\n{}", self.said());
        }
    }
}

impl Nginx {
    /// Starts nginx with these blocks, and waits until it listens at `addr`. `None`, with a loud line
    /// about this test, if there is no nginx.
    ///
    /// # Panics
    /// If nginx refuses the blocks, or does not listen.
    pub fn start(blocks: &str, addr: SocketAddr, test: &str) -> Option<Nginx> {
        let there = Command::new("nginx").arg("-v").output();
        has(there.map_err(|error| format!("nginx: {error}, see scripts/install")), test)?;
        let folder = Folder::new();
        // nginx looks for included files beside the configuration
        for name in ["fastcgi.conf", "fastcgi_params", "mime.types", "proxy_params", "snippets"] {
            symlink(Path::new("/etc/nginx").join(name), folder.join(name)).unwrap();
        }
        let file = folder.write("nginx.conf", configuration(&folder, blocks));
        let mut command = Command::new("nginx");
        command.arg("-p").arg(folder.path()).arg("-e").arg(folder.join("error.log"));
        command.arg("-c").arg(file).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.stderr(Stdio::null()).spawn().unwrap();
        let mut nginx = Nginx { child, folder };
        let is_up = soon(PATIENCE, || {
            let has_ended = nginx.child.try_wait().unwrap().is_some();
            assert!(!has_ended, "nginx refuses\n{blocks}\nand says\n{}", nginx.said());
            TcpStream::connect(addr).is_ok()
        });
        assert!(is_up, "nginx does not listen at {addr}: {}", nginx.said());
        Some(nginx)
    }

    /// The process that takes signals, as `nginx -s reload` sends them.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The lines of nginx's error log.
    pub fn said(&self) -> String {
        fs::read_to_string(self.folder.join("error.log")).unwrap_or_default()
    }
}

fn configuration(folder: &Folder, blocks: &str) -> String {
    let at = folder.path().display();
    // files and sockets of tests belong to the user that runs the tests
    let user = if geteuid().is_root() { "user root;\n" } else { "" };
    let own = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("    {name}_temp_path {at}/{name};\n"))
        .concat();
    format!(
        "{user}daemon off;\nworker_processes 1;\npid {at}/nginx.pid;\n\
         events {{ worker_connections 512; }}\n\
         http {{\n    sendfile on;\n    tcp_nopush on;\n    types_hash_max_size 2048;\n    \
         include mime.types;\n    default_type application/octet-stream;\n    \
         ssl_prefer_server_ciphers on;\n    access_log off;\n    gzip on;\n{own}{blocks}}}\n"
    )
}
