//! Messages to the service manager (sd_notify(3)): that clients are served, that a reload is under
//! way, that the server ends, and, at intervals, that the loops turn.
//!
//! Without a service manager none of it has an effect.

use forebay_sys::clock;
use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// How long a message may wait. A service manager that does not read delays the server no longer;
/// one that is merely busy, as when many services start at once (net.unix.max_dgram_qlen is 10), is
/// waited for, because messages are not repeated.
const PATIENCE: Duration = Duration::from_secs(1);

/// The connection to the service manager, if there is one.
#[derive(Debug)]
pub struct Notifier {
    socket: Option<UnixDatagram>,
    /// The address of the socket, as in the environment variable.
    at: Vec<u8>,
    watchdog: Option<Duration>,
}

impl Notifier {
    /// Connects as the environment variables say.
    pub fn from_environment() -> Notifier {
        let path = env::var_os("NOTIFY_SOCKET");
        let socket = path.as_ref().and_then(|path| connect(path).ok());
        let is_ours = match number("WATCHDOG_PID") {
            Some(pid) => pid == u64::from(std::process::id()),
            None => true,
        };
        let watchdog = number("WATCHDOG_USEC").filter(|us| is_ours && *us > 0);
        let watchdog = watchdog.filter(|_| socket.is_some()).map(Duration::from_micros);
        Notifier { socket, at: path.unwrap_or_default().into_encoded_bytes(), watchdog }
    }

    /// Connects to the service manager of the process whose place this one takes.
    pub fn handed(notify: Option<(Vec<u8>, Option<u64>)>) -> Notifier {
        let (at, watchdog_us) = notify.unwrap_or_default();
        let socket = connect(OsStr::from_bytes(&at)).ok();
        let watchdog = watchdog_us.filter(|us| socket.is_some() && *us > 0);
        let watchdog = watchdog.map(Duration::from_micros);
        Notifier { socket, at, watchdog }
    }

    /// The address of the socket and the watchdog's time in microseconds, for the process that
    /// takes the place of this one.
    pub fn hand(&self) -> Option<(Vec<u8>, Option<u64>)> {
        self.socket.as_ref()?;
        Some((self.at.clone(), self.watchdog.map(|after| after.as_micros() as u64)))
    }

    /// Announces another process as the main process: the service manager supervises that one, and
    /// accepts its messages.
    pub fn main_is(&self, process: u32) {
        self.tell(&format!("MAINPID={process}\n"));
    }

    /// Reports that clients are served, with the present configuration. It also ends a reload.
    pub fn ready(&self, status: &str) {
        match status {
            // the last status stays
            "" => self.tell("READY=1\n"),
            _ => self.tell(&format!("READY=1\nSTATUS={status}\n")),
        }
    }

    /// Reports that a reload has begun; [`ready`](Notifier::ready) must follow, whether it succeeds or not.
    pub fn reloading(&self) {
        // the service manager compares it with the time of its request
        let now_us = clock::monotonic_ns() / 1000;
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={now_us}\nSTATUS=reloading\n"));
    }

    /// Reports that the server ends.
    pub fn stopping(&self, status: &str) {
        self.tell(&format!("STOPPING=1\nSTATUS={status}\n"));
    }

    /// The interval at which [`alive`](Notifier::alive) must be called: half of the watchdog's
    /// time. `None` if there is no watchdog.
    pub fn interval(&self) -> Option<Duration> {
        self.watchdog.map(|after| after / 2)
    }

    /// Reports to the watchdog that the server is alive.
    pub fn alive(&self) {
        self.tell("WATCHDOG=1\n");
    }

    /// Ends the messages.
    pub fn close(&mut self) {
        (self.socket, self.watchdog) = (None, None);
    }

    fn tell(&self, what: &str) {
        if let Some(socket) = &self.socket {
            // the server goes on if the service manager is gone, or does not read now
            let _ = socket.send(what.as_bytes());
        }
    }
}

/// How old the heartbeat of a loop may be before the watchdog gets no more messages. A loop turns
/// at least twice a second.
pub fn patience(interval: Duration) -> Duration {
    interval.max(Duration::from_millis(1500))
}

fn connect(path: &OsStr) -> io::Result<UnixDatagram> {
    let address = match path.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(path)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok(socket)
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_the_manual_of_sd_notify_says() {
        let name = format!("forebay-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        let socket = connect(format!("@{name}").as_ref()).ok();
        let notifier = Notifier { socket, at: Vec::new(), watchdog: Some(Duration::from_secs(10)) };
        let heard = || {
            let mut text = [0; 200];
            let length = manager.recv(&mut text).unwrap();
            String::from_utf8(text[..length].to_vec()).unwrap()
        };
        notifier.ready("serving");
        assert_eq!(heard(), "READY=1\nSTATUS=serving\n");
        notifier.reloading();
        let text = heard();
        let now_us: u64 = text
            .strip_prefix("RELOADING=1\nMONOTONIC_USEC=")
            .and_then(|rest| rest.strip_suffix("\nSTATUS=reloading\n"))
            .and_then(|number| number.parse().ok())
            .unwrap_or_else(|| panic!("{text}"));
        assert!(now_us <= clock::monotonic_ns() / 1000);
        notifier.alive();
        assert_eq!(heard(), "WATCHDOG=1\n");
        notifier.stopping("draining");
        assert_eq!(heard(), "STOPPING=1\nSTATUS=draining\n");
        assert_eq!(notifier.interval(), Some(Duration::from_secs(5)));
        drop(manager);
        notifier.alive();
    }
}
