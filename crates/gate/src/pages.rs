//! The error pages that the kernel sends to clients whose first request is refused.
//!
//! In: status and `Retry-After` of rules. Out: whole answers in a map, which keep their numbers as long as
//! the gate lives, since a client may get one again after rules have changed. `Date` is brought up to date at
//! every call of [`attach`](crate::Gate::attach).

use crate::kernel::plain;
use crate::types::{PAGE_BYTES, PAGES, Plain, RawPage};
use forebay_http::{date, status};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

/// The pages: status, and seconds of `Retry-After` or 0. The index is the number of a page.
#[derive(Debug, Default)]
pub(crate) struct KernelPages {
    places: Vec<(u16, u32)>,
    /// The number of pages that are in the map.
    written: usize,
    date: u64,
    /// The one of the two copies of all pages that is in force.
    half: u32,
}

impl KernelPages {
    /// The number of a page; `None` if there are too many.
    pub(crate) fn place(&mut self, status: u16, retry_after_s: u32) -> Option<u16> {
        let wanted = (status, retry_after_s);
        let known = self.places.iter().position(|place| *place == wanted);
        let place = known.or_else(|| {
            (self.places.len() < PAGES).then(|| self.places.push(wanted))?;
            Some(self.places.len() - 1)
        })?;
        u16::try_from(place).ok()
    }

    /// Writes pages into the map, and returns the half that is to be in force. Within one second only new
    /// pages are written, which no rule refers to yet. Later all are written with the new date, into the half
    /// that is not in force, because a page that is being sent must stay whole.
    pub(crate) fn write(&mut self, map: &MapHandle) -> io::Result<u32> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let (first, half) =
            if self.date == now { (self.written, self.half) } else { (0, 1 - self.half) };
        for (at, (status, retry_after_s)) in self.places.iter().enumerate().skip(first) {
            let page = page(&answer(*status, *retry_after_s, now));
            let at = half * PAGES as u32 + at as u32;
            map.update(&at.to_ne_bytes(), page.bytes(), MapFlags::ANY).map_err(plain)?;
        }
        (self.written, self.date, self.half) = (self.places.len(), now, half);
        Ok(half)
    }
}

/// Makes head and content of a page.
fn answer(status: u16, retry_after_s: u32, unix_s: u64) -> [String; 2] {
    let reason = status::reason(status);
    let content = format!("{status} {reason}\n");
    let date = String::from_utf8_lossy(&date::format(unix_s)).into_owned();
    let mut head = format!("HTTP/1.1 {status} {reason}\r\nDate: {date}\r\n");
    if retry_after_s > 0 {
        head += &format!("Retry-After: {retry_after_s}\r\n");
    }
    head += &format!(
        "Content-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        content.len()
    );
    [head, content]
}

fn page([head, content]: &[String; 2]) -> RawPage {
    let mut page = RawPage::default();
    let whole = [head.as_bytes(), content.as_bytes()].concat();
    // reasons are short, so nothing is ever cut off
    let bytes = whole.len().min(PAGE_BYTES);
    page.text[..bytes].copy_from_slice(&whole[..bytes]);
    page.head_bytes = head.len().min(bytes) as u32;
    page.bytes = bytes as u32;
    page.head_sum = sum(&page.text[..head.len().min(bytes)]);
    page.sum = sum(&page.text[..bytes]);
    page
}

/// The Internet checksum of bytes, not folded: the sum of their words in host byte order, as in the kernel
/// (RFC 1071).
pub(crate) fn sum(bytes: &[u8]) -> u32 {
    let word = |two: &[u8]| u32::from(u16::from_ne_bytes([two[0], *two.get(1).unwrap_or(&0)]));
    bytes.chunks(2).map(word).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_a_whole_answer() {
        let page = page(&answer(503, 7, 784_111_777));
        let text = std::str::from_utf8(&page.text[..page.bytes as usize]).unwrap();
        assert_eq!(
            text,
            "HTTP/1.1 503 Service Unavailable\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nRetry-After: 7\r\n\
             Content-Type: text/plain; charset=utf-8\r\nContent-Length: 24\r\nConnection: close\r\n\r\n\
             503 Service Unavailable\n"
        );
        assert_eq!(text.len() - 24, page.head_bytes as usize);
        // even the longest page leaves room
        let longest = (400..600).map(|status| answer(status, u32::MAX, 0).concat().len()).max();
        assert!(longest.unwrap() <= 448, "{longest:?}");
    }

    #[test]
    fn an_error_keeps_its_place() {
        let mut pages = KernelPages::default();
        assert_eq!((pages.place(503, 1), pages.place(429, 1)), (Some(0), Some(1)));
        assert_eq!((pages.place(503, 2), pages.place(503, 1)), (Some(2), Some(0)));
        for more in 3..PAGES as u32 {
            assert_eq!(pages.place(503, more), u16::try_from(more).ok());
        }
        assert_eq!((pages.place(400, 0), pages.place(429, 1)), (None, Some(1)));
    }
}
