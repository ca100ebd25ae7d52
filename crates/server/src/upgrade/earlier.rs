//! Replaced servers, which serve their connections to their end.

use super::handed::OpenConnections;
use super::predecessor::EarlierServer;
use forebay_http::client::ClientKey;
use forebay_sys::stderr::say;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// The largest number of replaced servers: beyond it, the oldest is told to end its connections.
const MOST: usize = 2;

/// The replaced servers that still have connections, oldest first.
#[derive(Debug, Default)]
pub struct EarlierServers(Vec<EarlierServer>);

impl EarlierServers {
    /// How long the servers may take to end once they were asked to stop.
    pub const STOP: Duration = Duration::from_secs(2);

    /// The process numbers and open connections of these servers, for the process that takes the
    /// place of this one. Descriptors of their connections are appended to `descriptors`.
    ///
    /// # Errors
    /// Lack of descriptors.
    pub fn hand(&self, descriptors: &mut Vec<OwnedFd>) -> io::Result<Vec<(u32, OpenConnections)>> {
        for earlier in &self.0 {
            descriptors.push(earlier.hand()?);
        }
        Ok(self.0.iter().map(|earlier| (earlier.process, earlier.open.clone())).collect())
    }

    /// The servers that the predecessor has replaced, and the predecessor. `tell` gets the open
    /// connections of each at each report, and `None` when it has ended.
    pub fn new(
        before: Vec<EarlierServer>,
        predecessor: EarlierServer,
        tell: impl Fn(u32, Option<OpenConnections>) + Clone + Send + 'static,
    ) -> EarlierServers {
        let mut all = before;
        all.push(predecessor);
        let most = all.len().saturating_sub(MOST);
        all.iter().take(most).for_each(EarlierServer::end);
        for earlier in &all {
            let (process, tell) = (earlier.process, tell.clone());
            if let Err(error) = earlier.listen(move |open| tell(process, open)) {
                say(format_args!(
                    "upgrade: which connections process {process} has is not heard: {error}"
                ));
            }
        }
        EarlierServers(all)
    }

    /// Records the open connections that a server has reported; `None` if it has ended.
    pub fn heard(&mut self, process: u32, open: Option<OpenConnections>) {
        match open {
            Some(open) => {
                let known = self.0.iter_mut().find(|earlier| earlier.process == process);
                if let Some(earlier) = known {
                    earlier.open = open;
                }
            }
            None => {
                self.0.retain(|earlier| earlier.process != process);
                say(format_args!("upgrade: process {process}, which was replaced, has ended"));
            }
        }
    }

    /// The number of open connections of all servers. A server that reports more than
    /// `most_of_each` counts as that many.
    pub fn open(&self, most_of_each: usize) -> usize {
        let has = |earlier: &EarlierServer| earlier.open.count.min(most_of_each);
        self.0.iter().map(has).fold(0, usize::saturating_add)
    }

    /// The number of open connections of each client.
    pub fn clients(&self) -> HashMap<ClientKey, usize> {
        let mut clients = HashMap::new();
        for (client, count) in self.0.iter().flat_map(|earlier| &earlier.open.clients) {
            *clients.entry(ClientKey::from_u64(*client)).or_default() += count;
        }
        clients
    }

    /// Announces that the log files were moved.
    pub fn reopen_logs(&self) {
        self.0.iter().for_each(EarlierServer::reopen_logs);
    }

    /// Has the servers bring their connections to their end now.
    pub fn end(&self) {
        self.0.iter().for_each(EarlierServer::end);
    }

    /// Has the servers cut their connections.
    pub fn stop(&self) {
        self.0.iter().for_each(EarlierServer::stop);
    }

    /// Forgets the servers: another process listens to them from now on.
    pub fn leave(&mut self) {
        self.0.clear();
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
