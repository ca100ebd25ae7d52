//! Numbers with a prefix of a few bits (RFC 7541 §5.1).

use super::HpackError;

/// The largest number of bytes after the prefix that are read: 28 bits, far more than any length or
/// index here. Further bytes could only be zeros, which an honest encoder does not send.
const MOST_BYTES: u32 = 4;

/// Reads a number whose prefix is the lower `bits` bits of the first byte. Returns it and its length.
#[inline]
pub(super) fn read(bytes: &[u8], bits: u32) -> Result<(usize, usize), HpackError> {
    let mask = (1u8 << bits) - 1;
    let first = *bytes.first().ok_or(HpackError::Cut)? & mask;
    if first < mask {
        return Ok((usize::from(first), 1));
    }
    read_long(bytes, usize::from(mask))
}

fn read_long(bytes: &[u8], mask: usize) -> Result<(usize, usize), HpackError> {
    let mut value = mask;
    for at in 0..MOST_BYTES {
        let byte = *bytes.get(1 + at as usize).ok_or(HpackError::Cut)?;
        value += usize::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Ok((value, 2 + at as usize));
        }
    }
    Err(HpackError::Number)
}

/// Writes `value` with a prefix of `bits` bits, the bits before it being those of `first`.
#[inline]
pub(super) fn write(out: &mut Vec<u8>, first: u8, bits: u32, value: usize) {
    let mask = (1usize << bits) - 1;
    if value < mask {
        return out.push(first | value as u8);
    }
    out.push(first | mask as u8);
    let mut rest = value - mask;
    while rest >= 0x80 {
        out.push(0x80 | (rest & 0x7f) as u8);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_rfc() {
        // RFC 7541 §C.1
        for (value, bits, bytes) in
            [(10, 5, &[10u8][..]), (1337, 5, &[31, 154, 10]), (42, 8 - 1, &[42])]
        {
            let mut out = Vec::new();
            write(&mut out, 0, bits, value);
            assert_eq!(out, bytes);
            assert_eq!(read(bytes, bits), Ok((value, bytes.len())));
        }
    }

    #[test]
    fn every_number_comes_back_whatever_the_prefix() {
        for bits in 1..=7 {
            for value in (0..600).chain([16_383, 16_384, 70_000, 1 << 20, (1 << 28) - 1]) {
                let mut out = Vec::new();
                write(&mut out, 0, bits, value);
                assert_eq!(read(&out, bits), Ok((value, out.len())), "{bits}");
                assert_eq!(read(&out[..out.len() - 1], bits), Err(HpackError::Cut));
            }
        }
    }

    #[test]
    fn a_number_that_does_not_end_is_refused() {
        assert_eq!(read(&[0x7f, 0xff, 0xff, 0xff, 0xff, 0x0f], 7), Err(HpackError::Number));
        assert_eq!(read(&[0x7f, 0x80, 0x80, 0x80, 0x80, 0x00], 7), Err(HpackError::Number));
    }
}
