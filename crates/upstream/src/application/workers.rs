//! Pools of workers that report how many there are: php-fpm by its status page, where `in_flight` is
//! learnt.

use crate::application::Application;
use crate::group::MemberIndex;
use crate::messages::fastcgi::{PoolStatus, question};
use crate::upstreams::connection::UpstreamConnection;
use forebay_sys::client;
use forebay_sys::poll::{self, PollInterest};
use forebay_sys::socket::{Received, Sent};
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// How long a pool may take to answer: all of its workers may be busy.
const PATIENCE: Duration = Duration::from_secs(5);

/// The largest status that is read.
const MOST_BYTES: usize = 16 * 1024;

impl Application {
    /// The path of the pools' status page, if there is one and the number is of use.
    pub(crate) fn status_path(&self) -> Option<&str> {
        let group = self.settings().group();
        self.settings().fastcgi()?.status.as_deref().filter(|_| group.in_flight_from.is_some())
    }

    /// Asks a pool how many workers it has. A pool that does not answer counts with its last number.
    pub(crate) fn ask_workers(&self, member: MemberIndex, path: &str, now_ms: u64) {
        let Ok(connection) = self.connect(member, &[], false, now_ms) else { return };
        let answer = exchange(connection, &question(path));
        if let Some(status) = answer.ok().and_then(|answer| PoolStatus::read(&answer)) {
            let mut seen = self.upstreams().seen().into_iter();
            let learnt = seen.find(|one| one.member == member).and_then(|one| one.learnt);
            let known = learnt.and_then(|learnt| learnt.workers);
            self.upstreams().has_workers(member, status.bound(known));
        }
    }
}

/// Sends a request, and returns all that comes.
fn exchange(mut connection: UpstreamConnection, question: &[u8]) -> io::Result<Vec<u8>> {
    let end = Instant::now() + PATIENCE;
    wait(&connection, PollInterest::Write, end)?;
    client::connect_result(connection.as_fd())?;
    let mut rest = question;
    while !rest.is_empty() {
        match connection.send(rest, true) {
            Sent::Bytes(count) => rest = &rest[count..],
            Sent::Blocked => wait(&connection, PollInterest::Write, end)?,
            Sent::Broken => return Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
    let mut answer = Vec::new();
    while answer.len() < MOST_BYTES {
        let most = MOST_BYTES - answer.len();
        match connection.receive_more(&mut answer, most, 0) {
            Received::Bytes(_) => {}
            Received::Blocked => wait(&connection, PollInterest::Read, end)?,
            Received::Ended => return Ok(answer),
            Received::Broken => return Err(io::ErrorKind::ConnectionReset.into()),
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

/// Waits until the socket is ready.
fn wait(socket: &impl AsFd, interest: PollInterest, end: Instant) -> io::Result<()> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let left_ms = left.as_millis().try_into().unwrap_or(u64::MAX);
    poll::wait([(socket.as_fd(), interest)], left_ms.max(1)).map(drop)
}
