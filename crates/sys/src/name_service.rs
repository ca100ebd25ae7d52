//! The name service of the system, asked for records other than addresses.

use std::ffi::{CString, c_char, c_int, c_uchar};
use std::io;

// both C libraries have it; that of musl appends no domains to a name
unsafe extern "C" {
    fn res_search(
        name: *const c_char,
        class: c_int,
        kind: c_int,
        answer: *mut c_uchar,
        most: c_int,
    ) -> c_int;
}

/// The class of records of the internet.
const INTERNET: c_int = 1;

/// The type of records that name the servers of a service (RFC 2782).
pub const SRV: u16 = 33;

/// The longest possible answer.
const MOST_BYTES: u16 = u16::MAX;

/// The answer of the name service to a question for records of this type (RFC 1035 section 3.2.2),
/// unparsed. The system's settings (`resolv.conf`) decide which servers are asked, how often, and
/// which domains are tried after the name. Waits for the servers.
///
/// # Errors
/// `NotFound` where there is no such record, or no server has answered.
pub fn records(name: &str, kind: u16) -> io::Result<Vec<u8>> {
    let name = CString::new(name)?;
    let mut answer = vec![0; usize::from(MOST_BYTES)];
    // SAFETY: the name ends with NUL and outlives the call, and `answer` has as many bytes as are
    // given; each thread has a resolver of its own
    let length = unsafe {
        res_search(name.as_ptr(), INTERNET, kind.into(), answer.as_mut_ptr(), MOST_BYTES.into())
    };
    let length = usize::try_from(length).map_err(|_| io::ErrorKind::NotFound)?;
    answer.truncate(length);
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_none_is_not_found() {
        assert_eq!(records("a\0b", 33).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(records("a..b.invalid", 33).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
