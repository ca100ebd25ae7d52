//! The messages between the server and a receiver, byte by byte. `docs/manual/hand-over.md` defines
//! them. Numbers are in network byte order.

use std::fmt::Write;
use std::net::SocketAddr;

/// The version of these messages.
pub const VERSION: u8 = 1;

/// The first bytes of a message of the server.
pub const MAGIC: [u8; 4] = *b"FBHO";

/// The number of bytes before the lines of a message of the server.
pub const HEADER_BYTES: usize = 20;

/// The length of a receiver's report.
pub const REPORT_BYTES: usize = 16;

/// The flag for a connection that does not come back.
const KEEPS: u8 = 1;

/// The flag for a connection that is closed after this request.
const IS_LAST: u8 = 2;

/// The flag that reading the whole message takes the request, without a confirmation.
const TAKEN_BY_READING: u8 = 4;

/// A request that is handed over. The client's socket goes with the first byte of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer<'o> {
    /// The unique number of the request.
    pub id: u128,
    /// The client's address, as a trusted proxy has stated it.
    pub client: SocketAddr,
    /// The address that the client has connected to.
    pub server: SocketAddr,
    /// Whether the receiver keeps the connection.
    pub keeps: bool,
    /// Whether the connection is closed after this request.
    pub is_last: bool,
    /// Whether a receiver that has read the whole message has taken the request, and need not confirm
    /// it.
    pub taken_by_reading: bool,
    /// The head of the request, as it came.
    pub head: &'o [u8],
    /// The part of its body that has come.
    pub body: &'o [u8],
    /// The number of bytes of its body that are still to come; `None` if only its framing shows the
    /// end.
    pub body_left: Option<u64>,
}

impl Offer<'_> {
    /// The offer as a message.
    pub fn message(&self) -> Vec<u8> {
        let Offer { id, client, server, .. } = self;
        let mut lines = String::with_capacity(128);
        // writing into a string does not fail
        let _ = write!(lines, "client {client}\nserver {server}\nid {id:032x}\n");
        let request_bytes = self.head.len() + self.body.len();
        let flags = (u8::from(self.keeps) * KEEPS)
            | (u8::from(self.is_last) * IS_LAST)
            | (u8::from(self.taken_by_reading) * TAKEN_BY_READING);
        let mut message = Vec::with_capacity(HEADER_BYTES + lines.len() + request_bytes);
        message.extend_from_slice(&MAGIC);
        message.extend_from_slice(&[VERSION, flags]);
        message.extend_from_slice(&(lines.len() as u16).to_be_bytes());
        // a head and a buffer are far smaller than 4 GiB
        message.extend_from_slice(&u32::try_from(request_bytes).unwrap_or(u32::MAX).to_be_bytes());
        message.extend_from_slice(&self.body_left.unwrap_or(u64::MAX).to_be_bytes());
        message.extend_from_slice(lines.as_bytes());
        message.extend_from_slice(self.head);
        message.extend_from_slice(self.body);
        message
    }
}

/// The report of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiverReport {
    /// The receiver has the request, and is about to look at it.
    Taken,
    /// The request is answered, and the connection is at its end.
    Done(AnswerReport),
    /// The request is answered, and the connection is at the next one.
    GivenBack(AnswerReport),
}

/// What a receiver reports about its answer, for the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerReport {
    /// The status of the answer; 0 if the receiver does not know it.
    pub status: u16,
    /// The length of the answer's body.
    pub body_bytes: u64,
}

/// The error for bytes that are no report of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misspoken;

impl ReceiverReport {
    /// Reads one report.
    ///
    /// # Errors
    /// The bytes are no report.
    pub fn read(bytes: &[u8; REPORT_BYTES]) -> Result<ReceiverReport, Misspoken> {
        let [kind, flags, high, low, reserved @ .., _, _, _, _, _, _, _, _] = *bytes;
        let status = u16::from_be_bytes([high, low]);
        let is_status = status == 0 || (200..600).contains(&status);
        if flags != 0 || reserved != [0; 4] || !is_status {
            return Err(Misspoken);
        }
        let body_bytes = bytes.last_chunk().map_or(0, |last| u64::from_be_bytes(*last));
        let answered = AnswerReport { status, body_bytes };
        match kind {
            b'T' if answered == AnswerReport::default() => Ok(ReceiverReport::Taken),
            b'D' => Ok(ReceiverReport::Done(answered)),
            b'B' => Ok(ReceiverReport::GivenBack(answered)),
            _ => Err(Misspoken),
        }
    }

    /// The report as a message, for receivers that are written in Rust.
    pub fn message(self) -> [u8; REPORT_BYTES] {
        let (kind, answered) = match self {
            ReceiverReport::Taken => (b'T', AnswerReport::default()),
            ReceiverReport::Done(answered) => (b'D', answered),
            ReceiverReport::GivenBack(answered) => (b'B', answered),
        };
        let mut bytes = [0; REPORT_BYTES];
        bytes[0] = kind;
        bytes[2..4].copy_from_slice(&answered.status.to_be_bytes());
        bytes[8..].copy_from_slice(&answered.body_bytes.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_offer_byte_by_byte() {
        let offer = Offer {
            id: 0x1f,
            client: ([192, 0, 2, 7], 4711).into(),
            server: ([127, 0, 0, 1], 80).into(),
            keeps: false,
            is_last: true,
            taken_by_reading: false,
            head: b"POST / HTTP/1.1\r\n\r\n",
            body: b"abc",
            body_left: Some(258),
        };
        let lines =
            "client 192.0.2.7:4711\nserver 127.0.0.1:80\nid 0000000000000000000000000000001f\n";
        let mut expected = b"FBHO\x01\x02".to_vec();
        expected.extend([0, lines.len() as u8, 0, 0, 0, 22, 0, 0, 0, 0, 0, 0, 1, 2]);
        expected.extend(lines.bytes());
        expected.extend(b"POST / HTTP/1.1\r\n\r\nabc");
        assert_eq!(offer.message(), expected);
        let kept = Offer { keeps: true, is_last: false, body_left: None, ..offer }.message();
        assert_eq!((kept[5], &kept[12..20]), (1, &[0xff; 8][..]));
        assert_eq!(Offer { taken_by_reading: true, ..offer }.message()[5], 6);
    }

    #[test]
    fn what_is_no_report() {
        let good = ReceiverReport::Done(AnswerReport { status: 200, body_bytes: 7 }).message();
        assert_eq!(good, *b"D\0\0\xc8\0\0\0\0\0\0\0\0\0\0\0\x07");
        for (at, byte) in [(0, b'X'), (1, 1), (2, 9), (4, 1), (7, 1)] {
            let mut bad = good;
            bad[at] = byte;
            assert_eq!(ReceiverReport::read(&bad), Err(Misspoken), "byte {at}");
        }
        // a report that the request was taken cannot have a status
        assert_eq!(ReceiverReport::read(b"T\0\0\xc8\0\0\0\0\0\0\0\0\0\0\0\0"), Err(Misspoken));
    }

    proptest! {
        #[test]
        fn reports_are_read_as_they_were_written(status in 200u16..600, body_bytes: u64, is_back: bool) {
            let answered = AnswerReport { status, body_bytes };
            let report = if is_back { ReceiverReport::GivenBack(answered) } else { ReceiverReport::Done(answered) };
            prop_assert_eq!(ReceiverReport::read(&report.message()), Ok(report));
        }

        #[test]
        fn no_bytes_are_too_strange(bytes: [u8; REPORT_BYTES]) {
            if let Ok(report) = ReceiverReport::read(&bytes) {
                prop_assert_eq!(report.message(), bytes);
            }
        }
    }
}
