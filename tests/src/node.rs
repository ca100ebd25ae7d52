//! An application in Node, as operators run it behind servers: `tests/tools/application.js` describes it.

use crate::faults::has;
use crate::server::free_addr;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A running Node.js server. It ends when this is dropped.
#[derive(Debug)]
pub struct NodeServer {
    child: Child,
    addr: SocketAddr,
}

impl Drop for NodeServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl NodeServer {
    /// Starts an application with a name that its answers contain. `None`, with a loud line about this
    /// test, if there is no Node.
    ///
    /// # Panics
    /// If the application does not listen.
    pub fn start(name: &str, test: &str) -> Option<NodeServer> {
        let addr = free_addr();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/application.js");
        let mut command = Command::new("node");
        command.arg(script).args([name, &addr.ip().to_string(), &addr.port().to_string()]);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = command.spawn().map_err(|error| format!("node: {error}, see scripts/install"));
        let mut child = has(child, test)?;
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut()?).read_line(&mut line).unwrap();
        assert_eq!(line.trim(), addr.port().to_string(), "an application in Node does not listen");
        Some(NodeServer { child, addr })
    }

    /// The address of the application.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }
}
