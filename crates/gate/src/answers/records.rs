//! The records of requests that the kernel has answered, one for each.

use super::raw::{RawRecord, SERVED_HEAD, SERVED_LAST, SERVED_NOT_MODIFIED};
use crate::kernel::plain;
use crate::types::{NO_SLOT, Plain};
use forebay_http::coding::Coding;
use libbpf_rs::{MapHandle, RingBuffer, RingBufferBuilder};
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};

/// A request that the kernel has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerRecord<'r> {
    /// The time of the answer, in nanoseconds of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// The client's address.
    pub client: SocketAddr,
    /// The local address of the connection.
    pub local: SocketAddr,
    /// The number that [`learn`](crate::Gate::learn) has returned for the answer.
    pub answer: u32,
    /// The slot of the rule that the request was charged to
    /// ([`Tables::rule_of_requests`](crate::Tables::rule_of_requests)).
    pub charged: Option<u32>,
    /// The rank of the request's class.
    pub rank: u32,
    /// The status of the answer, 200 or 304.
    pub status: u16,
    /// Whether the method was HEAD.
    pub is_head: bool,
    /// Whether the answer announces the end of the connection.
    pub closes: bool,
    /// The coding of the variant.
    pub coding: Coding,
    /// The bytes of the body that were sent.
    pub body_bytes: u32,
    /// The bytes of head and body that were sent.
    pub sent_bytes: u32,
    /// The number of the request on its connection, from 1 on.
    pub request: u32,
    /// The head of the request as received, with the empty line.
    pub head: &'r [u8],
}

impl AnswerRecord<'_> {
    /// Parses a record that the kernel has written.
    pub(crate) fn of(bytes: &[u8]) -> Option<AnswerRecord<'_>> {
        let raw = RawRecord::of(bytes)?;
        let head = bytes.get(size_of::<RawRecord>()..)?.get(..usize::from(raw.head_bytes))?;
        let end = |address, port: u16| {
            let address = IpAddr::V6(Ipv6Addr::from(address)).to_canonical();
            SocketAddr::new(address, u16::from_be(port))
        };
        let is = |mark| raw.marks & mark != 0;
        Some(AnswerRecord {
            at_ns: raw.at_ns,
            client: end(raw.ends.client, raw.ends.client_port),
            local: end(raw.ends.local, raw.ends.local_port),
            answer: raw.number,
            charged: (raw.charged != NO_SLOT).then_some(raw.charged),
            rank: raw.rank,
            status: if is(SERVED_NOT_MODIFIED) { 304 } else { 200 },
            is_head: is(SERVED_HEAD),
            closes: is(SERVED_LAST),
            coding: *Coding::ALL.get(usize::from(raw.coding))?,
            body_bytes: raw.body_bytes,
            sent_bytes: raw.sent_bytes,
            request: raw.request,
            head,
        })
    }
}

/// The ring buffer of records. It has one reader.
pub struct AnswerRecords {
    ring: RingBuffer<'static>,
    map: MapHandle,
    /// The records that the ring buffer has delivered, each preceded by its length.
    read: Arc<Mutex<Vec<u8>>>,
}

impl fmt::Debug for AnswerRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerRecords").finish_non_exhaustive()
    }
}

impl AnswerRecords {
    pub(crate) fn of(map: &MapHandle) -> io::Result<AnswerRecords> {
        let map = MapHandle::try_from(map).map_err(plain)?;
        let read = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&read);
        let mut builder = RingBufferBuilder::new();
        let keep = move |bytes: &[u8]| {
            let mut into = into.lock().unwrap_or_else(PoisonError::into_inner);
            into.extend((bytes.len() as u32).to_ne_bytes());
            into.extend_from_slice(bytes);
            0
        };
        builder.add(&map, keep).map_err(plain)?;
        let ring = builder.build().map_err(plain)?;
        Ok(AnswerRecords { ring, map, read })
    }

    /// Hands all records out, in their order, without waiting; returns how many there were.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn read(&mut self, mut each: impl FnMut(&AnswerRecord<'_>)) -> io::Result<usize> {
        let consumed = self.ring.consume_raw();
        if consumed < 0 {
            return Err(io::Error::from_raw_os_error(-consumed));
        }
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut rest, mut count) = (read.as_slice(), 0);
        while let Some((len, behind)) = rest.split_first_chunk() {
            let (bytes, behind) = behind.split_at(u32::from_ne_bytes(*len) as usize);
            if let Some(record) = AnswerRecord::of(bytes) {
                each(&record);
                count += 1;
            }
            rest = behind;
        }
        read.clear();
        Ok(count)
    }

    /// The descriptor to wait for with epoll or poll, readable when half of the buffer is full. Below that
    /// the reader polls: a wake-up would cost more than the answer itself.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}
