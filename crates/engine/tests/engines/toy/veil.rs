//! The transport: records of at most 16 KiB, every byte changed, and a handshake that needs a job.

use super::handler::{Done, Work};
use forebay_conn::transport::{Broken, Plaintext};
use forebay_conn::{Opening, Transport};

const MASK: u8 = 0x5a;
/// The bytes of a record's type and length.
const HEADER: usize = 3;
const RECORD: usize = 16 * 1024;

pub(super) const HELLO: u8 = 1;
pub(super) const DATA: u8 = 2;
pub(super) const END: u8 = 3;

/// What the server answers to a hello.
pub(super) fn checksum(nonce: u64) -> u64 {
    nonce.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17)
}

/// Adds records that carry `plain`; at least one.
pub(super) fn seal(kind: u8, plain: &[u8], wire: &mut Vec<u8>) {
    let mut record = |part: &[u8]| {
        let [high, low] = (part.len() as u16).to_be_bytes();
        wire.extend([kind, high, low].iter().chain(part).map(|byte| byte ^ MASK));
    };
    if plain.is_empty() {
        return record(&[]);
    }
    plain.chunks(RECORD).for_each(record);
}

/// A parser of records.
#[derive(Default)]
pub(super) struct Opener(Vec<u8>);

impl Opener {
    pub(super) fn give(&mut self, wire: &[u8]) {
        self.0.extend(wire.iter().map(|byte| byte ^ MASK));
    }

    /// The next record, if it is complete.
    pub(super) fn next(&mut self) -> Result<Option<(u8, Vec<u8>)>, Broken> {
        let Some(&[kind, high, low]) = self.0.first_chunk::<HEADER>() else { return Ok(None) };
        let len = usize::from(u16::from_be_bytes([high, low]));
        if len > RECORD || !(HELLO..=END).contains(&kind) {
            return Err(Broken);
        }
        if self.0.len() < HEADER + len {
            return Ok(None);
        }
        let payload = self.0[HEADER..HEADER + len].to_vec();
        self.0.drain(..HEADER + len);
        Ok(Some((kind, payload)))
    }
}

#[derive(Default)]
pub(super) struct Veil {
    state: State,
    opener: Opener,
    plain: Vec<u8>,
    /// The bytes of `plain` that were read.
    read: usize,
    has_ended: bool,
    to_say: Vec<u8>,
    said_end: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum State {
    /// The client's hello is awaited.
    #[default]
    Hello,
    /// A hello is there.
    Asked(u64),
    /// The job for it runs.
    Job,
    Open,
}

impl Veil {
    fn unpack(&mut self) -> Result<(), Broken> {
        while self.state == State::Hello || self.state == State::Open {
            match (self.state, self.opener.next()?) {
                (_, None) => break,
                (State::Hello, Some((HELLO, nonce))) => {
                    let nonce = nonce.try_into().map_err(|_| Broken)?;
                    self.state = State::Asked(u64::from_be_bytes(nonce));
                }
                (State::Open, Some((DATA, plain))) if !self.has_ended => {
                    self.plain.drain(..std::mem::take(&mut self.read));
                    self.plain.extend(plain);
                }
                (State::Open, Some((END, _))) => self.has_ended = true,
                _ => return Err(Broken),
            }
        }
        Ok(())
    }
}

impl Transport<Work> for Veil {
    fn is_plain(&self) -> bool {
        false
    }

    fn open(&mut self, done: Option<Done>) -> Opening<Work> {
        match (self.state, done) {
            (State::Hello, None) => Opening::Receive,
            (State::Asked(nonce), None) => {
                self.state = State::Job;
                Opening::Job(Work::Hello(nonce))
            }
            (State::Job, Some(Done::Hello(answer))) => {
                seal(HELLO, &answer.to_be_bytes(), &mut self.to_say);
                self.state = State::Open;
                match self.unpack() {
                    Ok(()) => Opening::Open,
                    Err(Broken) => Opening::Failed,
                }
            }
            // the time for the job is over
            (State::Job, None) => Opening::Failed,
            (State::Job, Some(_)) => panic!("the result of another job"),
            (State::Open, _) => panic!("opened twice"),
            (State::Hello | State::Asked(_), Some(_)) => panic!("the result of no job"),
        }
    }

    fn receive(&mut self, wire: &[u8]) -> Result<(), Broken> {
        self.opener.give(wire);
        self.unpack()
    }

    fn read(&mut self, buffer: &mut [u8]) -> Plaintext {
        let rest = &self.plain[self.read..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.read += count;
        match (count, self.has_ended) {
            (0, true) => Plaintext::End,
            (0, false) => Plaintext::Nothing,
            _ => Plaintext::Bytes(count),
        }
    }

    fn write(&mut self, head: &[u8], body: &[u8], wire: &mut Vec<u8>) {
        assert!(self.state == State::Open, "the protocol speaks before its time");
        assert!(!self.said_end, "something after the end");
        let plain = [head, body].concat();
        assert!(plain.len() <= RECORD, "more than one record at a time");
        if !plain.is_empty() {
            seal(DATA, &plain, wire);
        }
    }

    fn flush(&mut self, wire: &mut Vec<u8>) {
        wire.append(&mut self.to_say);
    }

    fn end(&mut self, wire: &mut Vec<u8>) {
        assert!(!std::mem::replace(&mut self.said_end, true), "ended twice");
        seal(END, &[], wire);
    }
}
