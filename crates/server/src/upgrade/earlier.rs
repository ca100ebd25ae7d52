//! Servers that were replaced, and serve what they have to the end.

use super::handed::OpenConnections;
use super::predecessor::EarlierServer;
use forebay_http::client::ClientKey;
use forebay_sys::stderr::say;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// As many at most: the oldest beyond that ends what it has.
const MOST: usize = 2;

/// Those that have connections yet, oldest first.
#[derive(Debug, Default)]
pub struct EarlierServers(Vec<EarlierServer>);

impl EarlierServers {
    /// How long they may take to end once they are told to stop.
    pub const STOP: Duration = Duration::from_secs(2);

    /// What the process that takes the place of this one has to know of them: their numbers, and which connections
    /// they have. Their descriptors come behind `descriptors`.
    ///
    /// # Errors
    /// Lack of descriptors.
    pub fn hand(&self, descriptors: &mut Vec<OwnedFd>) -> io::Result<Vec<(u32, OpenConnections)>> {
        for earlier in &self.0 {
            descriptors.push(earlier.hand()?);
        }
        Ok(self.0.iter().map(|earlier| (earlier.process, earlier.open.clone())).collect())
    }

    /// Those before the server whose place this one has taken, and that one. `tell` hears of each which connections
    /// it has, and at last `None`: it has ended.
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

    /// One has said which connections it has; `None` if it has ended.
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

    /// The connections that they have. One that says more than there may be has as many as that.
    pub fn open(&self, most_of_each: usize) -> usize {
        let has = |earlier: &EarlierServer| earlier.open.count.min(most_of_each);
        self.0.iter().map(has).fold(0, usize::saturating_add)
    }

    /// How many connections of them each client has.
    pub fn clients(&self) -> HashMap<ClientKey, usize> {
        let mut clients = HashMap::new();
        for (client, count) in self.0.iter().flat_map(|earlier| &earlier.open.clients) {
            *clients.entry(ClientKey::from_u64(*client)).or_default() += count;
        }
        clients
    }

    /// Log files were moved.
    pub fn reopen_logs(&self) {
        self.0.iter().for_each(EarlierServer::reopen_logs);
    }

    /// What they have comes to its end now.
    pub fn end(&self) {
        self.0.iter().for_each(EarlierServer::end);
    }

    /// What they have is cut.
    pub fn stop(&self) {
        self.0.iter().for_each(EarlierServer::stop);
    }

    /// Another process hears of them from now on.
    pub fn leave(&mut self) {
        self.0.clear();
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
