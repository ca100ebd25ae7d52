//! Connections to receivers that get one end of a socket pair instead of their client's socket, which
//! is of no use to them through TLS and over HTTP/2. HTTP/1.1 is spoken on the other end, so that for
//! an exchange this is a connection like one to any application.
//!
//! The first bytes, the head and what there is of the body, go with the offer over the link. Nothing
//! of an answer counts before the receiver has confirmed that it has taken the request, and no answer
//! is over before the receiver has reported that it is done: the kernel reports no end while a child
//! of the receiver has the other end of the pair.

use crate::receivers::frame::{Offer, REPORT_BYTES, ReceiverReport};
use crate::receivers::loan::{Loan, LoanEvent, LoanOutcome};
use crate::upstreams::stream::UpstreamStream;
use forebay_conn::{SocketId, Wants};
use forebay_http::framing::Framing;
use forebay_sys::lend::{self, TooManyInFlight};
use forebay_sys::socket::{Received, Sent};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// How much is received from a receiver at a time: both of its reports, and enough to notice that
/// there are too many.
const HEARD_BYTES: usize = 4 * REPORT_BYTES;

/// The data of the announcement to a receiver, for a request that is passed on to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassedRequest {
    /// The unique number of the request.
    pub id: u128,
    /// The client's address, as receivers get it.
    pub client: SocketAddr,
    /// The address that the client has connected to.
    pub server: SocketAddr,
    /// The length of the head, as it is written for the receiver.
    pub head_bytes: usize,
    /// The framing of the body.
    pub framing: Framing,
}

/// A link to a receiver, and the socket pair of which the receiver gets one end.
#[derive(Debug)]
pub(crate) struct OfferedPair {
    link: UpstreamStream,
    link_id: SocketId,
    here: UpstreamStream,
    /// The end that goes with the offer, until the kernel has it.
    there: Option<OwnedFd>,
    request: PassedRequest,
    /// The offer to the receiver; empty before anything is sent.
    offer: Vec<u8>,
    sent: usize,
    loan: Loan,
    heard: Vec<u8>,
    end: OfferEnd,
    /// Whether the receiver has closed its end of the pair.
    is_shut: bool,
    /// Whether the kernel has taken nothing of the offer, because too many descriptors are in flight.
    has_no_room: bool,
}

/// How the request has ended, as far as the receiver reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OfferEnd {
    Open,
    /// The receiver has reported that it is done.
    Done,
    /// The receiver has died, or sent something that is no report.
    Failed,
}

impl OfferedPair {
    /// An offer of this request over this link, which loops know by `link_id`.
    ///
    /// # Errors
    /// There are no more descriptors.
    pub(crate) fn new(
        link: UpstreamStream,
        link_id: SocketId,
        request: PassedRequest,
    ) -> io::Result<OfferedPair> {
        let (here, there) = lend::pair()?;
        Ok(OfferedPair {
            link,
            link_id,
            here: UpstreamStream::from(here),
            there: Some(there),
            request,
            offer: Vec::new(),
            sent: 0,
            loan: Loan::new(false, false),
            heard: Vec::new(),
            end: OfferEnd::Open,
            is_shut: false,
            has_no_room: false,
        })
    }

    /// Our end of the pair.
    pub(crate) fn here(&self) -> BorrowedFd<'_> {
        self.here.as_fd()
    }

    /// The link, and what must happen on it before anything goes on.
    pub(crate) fn link(&self) -> (SocketId, BorrowedFd<'_>, Wants) {
        let wants = Wants { read: self.end == OfferEnd::Open, write: self.has_unsent() };
        (self.link_id, self.link.as_fd(), wants)
    }

    /// Whether more may come on the pair.
    pub(crate) fn is_open(&self) -> bool {
        !self.is_shut
    }

    /// Whether the receiver may have seen some of the offer, and has not confirmed the request.
    pub(crate) fn is_untaken(&self) -> bool {
        self.loan.is_out() && !self.loan.is_taken()
    }

    /// Whether the receiver has confirmed the request: no other receiver gets it.
    pub(crate) fn is_taken(&self) -> bool {
        self.loan.is_taken()
    }

    /// Whether the kernel has taken nothing of the offer, because too many descriptors are in flight.
    /// The receiver is not to blame for that.
    pub(crate) fn has_no_room(&self) -> bool {
        self.has_no_room
    }

    /// Whether some of the offer waits for the link.
    pub(crate) fn has_unsent(&self) -> bool {
        self.sent < self.offer.len()
    }

    /// Whether the receiver is done, as far as it has reported, and its link is ready for the next
    /// request.
    pub(crate) fn is_done(&mut self) -> bool {
        self.hear();
        self.end == OfferEnd::Done && self.heard.is_empty() && !self.has_unsent()
    }

    /// The link alone, and the number by which loops know it.
    pub(crate) fn into_link(self) -> (UpstreamStream, SocketId) {
        (self.link, self.link_id)
    }

    /// Sends some of the request: the first bytes, with all of the body that is there, go with the
    /// offer.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Sent {
        if self.offer.is_empty() {
            let sent = self.begin(bytes);
            self.offer_more();
            return match self.end {
                OfferEnd::Failed if !self.loan.is_out() => Sent::Broken,
                _ => sent,
            };
        }
        self.offer_more();
        match self.has_unsent() {
            true if self.end == OfferEnd::Failed => Sent::Broken,
            true => Sent::Blocked,
            false if bytes.is_empty() => Sent::Bytes(0),
            false => self.here.send(bytes),
        }
    }

    fn begin(&mut self, bytes: &[u8]) -> Sent {
        let PassedRequest { id, client, server, head_bytes, framing } = self.request;
        let (head, body) = bytes.split_at(head_bytes.min(bytes.len()));
        let body_left = match framing {
            Framing::None => Some(0),
            Framing::Sized(length) => Some(length.saturating_sub(body.len() as u64)),
            Framing::Chunked => None,
        };
        let offer = Offer {
            id,
            client,
            server,
            keeps: false,
            taken_by_reading: false,
            // the pair is for this request alone
            is_last: true,
            head,
            body,
            body_left,
        };
        self.offer = offer.message();
        Sent::Bytes(bytes.len())
    }

    /// Sends as much of the offer as the link takes.
    fn offer_more(&mut self) {
        while self.has_unsent() && self.end == OfferEnd::Open {
            let rest = &self.offer[self.sent..];
            let sent = match &self.there {
                Some(there) => lend::send_with(self.link.as_fd(), rest, there.as_fd()),
                None => Ok(self.link.send(rest)),
            };
            match sent {
                Ok(Sent::Bytes(count)) => {
                    // now only the receiver has this end, so that its closing is noticed
                    self.there = None;
                    self.sent += count;
                    self.note(LoanEvent::Sent);
                }
                Ok(Sent::Blocked) => return,
                Ok(Sent::Broken) => self.note(LoanEvent::Closed),
                Err(TooManyInFlight) => {
                    self.has_no_room = true;
                    self.note(LoanEvent::NoRoom);
                }
            }
        }
    }

    /// Reads the reports on the link.
    pub(crate) fn hear(&mut self) {
        while self.end == OfferEnd::Open {
            if let Some((first, rest)) = self.heard.split_first_chunk::<REPORT_BYTES>() {
                let said = ReceiverReport::read(first).map_or(LoanEvent::Misspoke, LoanEvent::Says);
                self.heard = rest.to_vec();
                self.note(said);
                continue;
            }
            match self.link.receive_more(&mut self.heard, HEARD_BYTES) {
                Received::Bytes(_) => {}
                Received::Blocked => return,
                Received::Ended | Received::Broken => self.note(LoanEvent::Closed),
            }
        }
    }

    fn note(&mut self, happened: LoanEvent) {
        self.end = match self.loan.hear(happened) {
            LoanOutcome::Waits => return,
            LoanOutcome::Back(_) | LoanOutcome::Ends(_) => OfferEnd::Done,
            LoanOutcome::Gone | LoanOutcome::Untaken(_) | LoanOutcome::Lost(_) => OfferEnd::Failed,
        };
    }

    /// Handles the end of the time for the receiver to take the request: from now on it cannot
    /// confirm it. Returns whether it has done so already, and then has its time to answer from now
    /// on.
    pub(crate) fn is_taken_late(&mut self) -> bool {
        let was_taken = self.loan.is_taken();
        self.hear();
        if self.loan.is_taken() {
            return !was_taken;
        }
        lend::shut_down(self.link.as_fd());
        self.hear();
        false
    }

    /// Appends at most `most` bytes of the answer.
    pub(crate) fn receive_more(&mut self, into: &mut Vec<u8>, most: usize) -> Received {
        self.hear();
        if !self.loan.is_taken() {
            return match self.end {
                OfferEnd::Open => Received::Blocked,
                OfferEnd::Done | OfferEnd::Failed => Received::Broken,
            };
        }
        let received = match self.is_shut {
            true => Received::Ended,
            false => self.here.receive_more(into, most),
        };
        self.is_shut |= matches!(received, Received::Ended | Received::Broken);
        match (received, self.end) {
            (Received::Bytes(count), _) => Received::Bytes(count),
            (_, OfferEnd::Open) => Received::Blocked,
            (_, OfferEnd::Done) => Received::Ended,
            (_, OfferEnd::Failed) => Received::Broken,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::receivers::frame::{AnswerReport, HEADER_BYTES};
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    const HEAD: &[u8] = b"POST /app HTTP/1.1\r\n\r\n";

    struct Bench {
        pair: OfferedPair,
        link: UnixStream,
    }

    /// An offered request with a body of five bytes, of which the first two go with the offer.
    fn offered() -> (Bench, UnixStream) {
        let (here, link) = UnixStream::pair().unwrap();
        here.set_nonblocking(true).unwrap();
        let request = PassedRequest {
            id: 1,
            client: ([192, 0, 2, 7], 4711).into(),
            server: ([127, 0, 0, 1], 443).into(),
            head_bytes: HEAD.len(),
            framing: Framing::Sized(5),
        };
        let stream = UpstreamStream::from(OwnedFd::from(here));
        let pair = OfferedPair::new(stream, SocketId::new(), request).unwrap();
        let mut bench = Bench { pair, link };
        let first = [HEAD, b"he"].concat();
        assert_eq!(bench.pair.send(&first), Sent::Bytes(first.len()));
        let mut message = [0; 999];
        let (count, client) = lend::receive_with(bench.link.as_fd(), &mut message).unwrap();
        let message = &message[..count];
        assert_eq!(message[..5], *b"FBHO\x01");
        assert_eq!(message[12..HEADER_BYTES], 3u64.to_be_bytes());
        assert!(message.ends_with(&first));
        (bench, UnixStream::from(client.unwrap()))
    }

    fn says(bench: &mut Bench, report: ReceiverReport) {
        bench.link.write_all(&report.message()).unwrap();
    }

    const DONE: ReceiverReport = ReceiverReport::Done(AnswerReport { status: 200, body_bytes: 2 });

    #[test]
    fn an_answer_ends_when_the_receiver_says_so() {
        let (mut bench, mut client) = offered();
        assert_eq!(bench.pair.send(b"llo"), Sent::Bytes(3));
        let mut body = [0; 3];
        client.read_exact(&mut body).unwrap();
        assert_eq!(&body, b"llo");
        client.write_all(b"ok").unwrap();
        let mut answer = Vec::new();
        // the receiver may not have looked at the request
        assert_eq!(bench.pair.receive_more(&mut answer, 99), Received::Blocked);
        assert!(bench.pair.is_untaken());
        says(&mut bench, ReceiverReport::Taken);
        assert_eq!(bench.pair.receive_more(&mut answer, 99), Received::Bytes(2));
        assert_eq!(bench.pair.receive_more(&mut answer, 99), Received::Blocked);
        // a child of the receiver has the descriptor, too
        let _child = client.try_clone().unwrap();
        drop(client);
        says(&mut bench, DONE);
        assert_eq!(bench.pair.receive_more(&mut answer, 99), Received::Ended);
        assert!(bench.pair.is_done());
        assert_eq!(answer, b"ok");
    }

    #[test]
    fn a_receiver_that_dies_has_not_ended_its_answer() {
        let (mut bench, mut client) = offered();
        says(&mut bench, ReceiverReport::Taken);
        client.write_all(b"ok").unwrap();
        drop(client);
        let mut answer = Vec::new();
        assert_eq!(bench.pair.receive_more(&mut answer, 99), Received::Bytes(2));
        assert_eq!(bench.pair.receive_more(&mut answer, 99), Received::Blocked);
        assert!(!bench.pair.is_open());
        drop(bench.link);
        assert_eq!(bench.pair.receive_more(&mut answer, 99), Received::Broken);
        assert!(bench.pair.is_taken() && !bench.pair.is_done());
    }

    #[test]
    fn what_is_written_without_taken_is_no_answer() {
        let (mut bench, mut client) = offered();
        client.write_all(b"ok").unwrap();
        says(&mut bench, DONE);
        let mut answer = Vec::new();
        assert_eq!(bench.pair.receive_more(&mut answer, 99), Received::Broken);
        assert!(answer.is_empty() && !bench.pair.is_taken());
    }

    #[test]
    fn a_receiver_that_is_late_cannot_take_it_any_more() {
        let (mut bench, _client) = offered();
        says(&mut bench, ReceiverReport::Taken);
        assert!(bench.pair.is_taken_late(), "it was said before");
        assert!(!bench.pair.is_taken_late());
        let (mut bench, _client) = offered();
        assert!(!bench.pair.is_taken_late());
        assert!(bench.link.write_all(&ReceiverReport::Taken.message()).is_err());
        assert_eq!(bench.pair.receive_more(&mut Vec::new(), 99), Received::Broken);
    }
}
