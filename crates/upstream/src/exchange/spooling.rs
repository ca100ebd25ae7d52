//! The spooling of request bodies: a body is collected before an application is asked, in memory
//! first, then on disk, if that is allowed. From the disk it goes to an upstream in parts, and to
//! another upstream from its beginning again.

use super::collected::BodyOnDisk;
use super::outcome::Failed;
use super::phase::ExchangePhase;
use super::state::Exchange;
use super::upload::{NextPart, UP_BYTES};
use crate::group::Unavailable;
use crate::group::retry::AttemptFailure;
use crate::messages::fastcgi;
use crate::places::queue::Asking;
use crate::spool::{NoSpool, SpoolFile};
use crate::upstreams;
use forebay_conn::handler::relay::RelayNext;

impl<T> Exchange<T> {
    /// Adds bytes to a body that is collected.
    pub(super) fn collect(&mut self, bytes: &[u8]) {
        let ExchangePhase::Spooling(body) = &mut self.phase else { return };
        body.bytes.extend_from_slice(bytes);
        // a client that sends has not left, but it may not drip for ever
        self.upload.has_moved = true;
        self.upload.pace.came(bytes.len() as u64);
        if let Err(error) = body.write() {
            self.has_no_spool(error);
        }
    }

    /// Ends the collecting: all of the body has come.
    pub(super) fn end_collecting(&mut self) -> Result<(), AttemptFailure> {
        let ExchangePhase::Spooling(body) = &mut self.phase else { return Ok(()) };
        body.is_whole = true;
        self.upload.encoding = None;
        if body.is_busy() { Ok(()) } else { self.end_spool() }
    }

    /// Takes the result of a write.
    pub(super) fn look_at_spool(&mut self) -> Result<Option<RelayNext>, AttemptFailure> {
        let ExchangePhase::Spooling(body) = &mut self.phase else { return Ok(None) };
        match body.look() {
            Err(error) => {
                self.has_no_spool(error);
                Ok(None)
            }
            Ok(()) if body.is_whole && !body.is_busy() => self.end_spool().map(|()| None),
            Ok(()) => Ok(Some(RelayNext::Wait)),
        }
    }

    /// Asks an upstream, since all of the body is collected.
    fn end_spool(&mut self) -> Result<(), AttemptFailure> {
        if let ExchangePhase::Spooling(body) = &mut self.phase {
            let on_disk = body.file.as_ref().map_or(0, SpoolFile::len);
            if self.upload.is_chunked {
                fastcgi::length(on_disk + body.bytes.len() as u64, &mut self.upload.to);
            }
            match body.file.take() {
                None => {
                    fastcgi::stdin(&body.bytes, &mut self.upload.to);
                    fastcgi::end_of_stdin(&mut self.upload.to);
                    self.upload.kept = UP_BYTES.max(self.upload.to.len());
                }
                Some(file) => {
                    let tail = std::mem::take(&mut body.bytes);
                    let head = self.upload.to.len();
                    self.upload.on_disk = Some(Box::new(BodyOnDisk::new(file, tail, head)));
                    // the body can be sent again from the disk
                    self.upload.kept = usize::MAX;
                }
            }
        }
        let asking = Asking::new(self.asked.owner, self.asked.key);
        match self.application.upstreams().ask(asking) {
            Ok(upstreams::SlotOrWait::Begun(slot)) => return self.begin_with(slot, None),
            Ok(upstreams::SlotOrWait::Waits(wait)) => self.wait_for(wait),
            Err(unavailable) => self.give_up(Failed::Unasked(unavailable)),
        }
        Ok(())
    }

    /// Makes the next part of a body on disk ready, once all that was ready is sent. Returns whether
    /// there is more to send now.
    pub(super) fn refill(&mut self) -> bool {
        let may_send = self.phase.attempt().is_some_and(|attempt| {
            attempt.connection.is_some() && attempt.can_write && !attempt.is_cut
        });
        if !may_send {
            return false;
        }
        match self.upload.next_part() {
            NextPart::Ready => true,
            NextPart::None | NextPart::Waits => false,
            NextPart::Failed => {
                self.phase.leave_attempt();
                match self.phase.is_answered() {
                    // the answer has begun, so the client can get no error any more
                    true => self.upload.is_refused = true,
                    false => self.has_no_spool(NoSpool::Full),
                }
                false
            }
        }
    }

    /// Fails the exchange because the disk takes too long.
    pub(super) fn has_no_spool_in_time(&mut self) {
        self.has_no_spool(NoSpool::Full);
    }

    fn has_no_spool(&mut self, error: NoSpool) {
        self.give_up(match error {
            NoSpool::Full => Failed::SpoolFull,
            NoSpool::Descriptors => Failed::Unasked(Unavailable::Descriptors),
        });
    }

    /// The file of the body, while the exchange waits for an operation on it.
    pub(super) fn busy_file(&self) -> Option<&SpoolFile> {
        match &self.phase {
            ExchangePhase::Spooling(body) => body.busy_file(),
            ExchangePhase::Asking(_) | ExchangePhase::Answered(_) => self.upload.busy_file(),
            _ => None,
        }
    }
}
