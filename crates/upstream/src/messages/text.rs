//! Numbers and addresses as text. Each request has several of them, and the standard formatter takes
//! longer for one than the rest of its line takes.

pub(crate) use forebay_http::decimal::push as number;
use std::io::Write;
use std::net::IpAddr;

const DIGITS: [u8; 16] = *b"0123456789abcdef";

/// Appends an address.
pub(crate) fn address(ip: IpAddr, out: &mut Vec<u8>) {
    match ip {
        IpAddr::V4(ip) => {
            // written by hand because each request has an IPv4 address at least twice
            let (mut text, mut len) = ([0; 16], 0);
            for octet in ip.octets() {
                let digits = [octet / 100, octet / 10 % 10, octet % 10];
                let skipped = usize::from(octet < 100) + usize::from(octet < 10);
                for digit in &digits[skipped..] {
                    text[len] = b'0' + digit;
                    len += 1;
                }
                text[len] = b'.';
                len += 1;
            }
            out.extend_from_slice(&text[..len - 1]);
        }
        // writing into a vector does not fail
        IpAddr::V6(ip) => _ = write!(out, "{ip}"),
    }
}

/// Appends the 32 hexadecimal digits of a number.
pub(crate) fn hexadecimal(number: u128, out: &mut Vec<u8>) {
    let mut text = [0; 32];
    for (two, byte) in text.chunks_exact_mut(2).zip(number.to_be_bytes()) {
        let (high, low) = (byte >> 4, byte & 0xf);
        two.copy_from_slice(&[DIGITS[usize::from(high)], DIGITS[usize::from(low)]]);
    }
    out.extend_from_slice(&text);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(write: impl Fn(&mut Vec<u8>)) -> String {
        let mut out = b"a".to_vec();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn it_is_what_a_formatter_writes() {
        for one in [0, 7, 10, 65_535, 1 << 40, u64::MAX] {
            assert_eq!(said(|out| number(one, out)), format!("a{one}"));
        }
        for one in ["0.0.0.0", "192.0.2.255", "::1", "2001:db8::7", "::ffff:192.0.2.1"] {
            assert_eq!(said(|out| address(one.parse().unwrap(), out)), format!("a{one}"));
        }
        for one in [0, 0xabc, u128::MAX, u128::MAX << 7] {
            assert_eq!(said(|out| hexadecimal(one, out)), format!("a{one:032x}"));
        }
    }
}
