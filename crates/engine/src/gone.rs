//! Clients who leave while they wait: nobody works for them.
//!
//! That a client has left is certain when its connection fails or is over in both directions. A client
//! that says it sends no more may still wait for its answer (RFC 9112 §9.6).
//!
//! Loops are told by the kernel, and close the connection; so it leaves the line, and its job the queue
//! of the helper threads. Where a thread or a list has the connection, it is looked at when its turn has
//! come (ADR 0029).

use crate::helpers::Claim;
use crate::worker::Served;
use forebay_conn::Handler;
use forebay_sys::poll::{self, Interest};
use std::os::fd::AsFd;

impl<H: Handler> Served<H> {
    /// It waits for this job from now on. Returns the claim of whoever does it.
    pub fn wait_for(&mut self, job: H::Job) -> Claim<H::Job> {
        let claim = Claim::new(job);
        self.job = Some(claim.clone());
        claim
    }

    /// It waits for its job no longer: that is done.
    pub fn job_done(&mut self) {
        self.job = None;
    }

    /// Nobody waits for its request any more: a job that has not begun never will. Says whether the
    /// request was waiting for that job, or for its turn.
    pub fn take_back(&mut self) -> bool {
        let job = self.job.take().and_then(|claim| claim.take());
        (job.is_some() && self.pending.is_none()) || self.conn.is_in_line()
    }

    /// Whether its client has left. A system call, for engines that are not told.
    pub fn is_gone(&self) -> bool {
        let state = poll::wait([(self.socket.as_fd(), Interest::End)], 0);
        state.is_ok_and(|[socket]| socket.broken)
    }
}
