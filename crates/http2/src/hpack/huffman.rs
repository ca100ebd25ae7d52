//! The Huffman code of RFC 7541 appendix B.
//!
//! The code is canonical: codes of one length are consecutive and follow the order of their symbols, so the
//! lengths determine it. Text consists of codes of at most 10 bits, which one lookup finds; longer ones are
//! found by length.

use super::HpackError;

/// The number of bits of each symbol's code; the last symbol is EOS.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

const EOS: u16 = 256;
const LONGEST: usize = 30;
/// The largest number of bits of a code that one lookup finds.
const QUICK: usize = 10;

/// The codes of one length: the first code, and its index in [`Code::symbols`].
#[derive(Clone, Copy)]
struct CodeGroup {
    first: u32,
    count: u32,
    at: u32,
}

struct Code {
    /// All symbols by length, then by value.
    symbols: [u16; 257],
    groups: [CodeGroup; LONGEST + 1],
    codes: [u32; 257],
    /// The symbols by the next [`QUICK`] bits: symbol × 16 + length, 0 if the code is longer.
    quick: [u16; 1 << QUICK],
}

static CODE: Code = Code::new();

impl Code {
    const fn new() -> Code {
        let none = CodeGroup { first: 0, count: 0, at: 0 };
        let mut code = Code {
            symbols: [0; 257],
            groups: [none; LONGEST + 1],
            codes: [0; 257],
            quick: [0; 1 << QUICK],
        };
        let (mut next, mut at, mut length) = (0u32, 0usize, 1usize);
        while length <= LONGEST {
            next <<= 1;
            code.groups[length].first = next;
            code.groups[length].at = at as u32;
            let mut symbol = 0;
            while symbol < 257 {
                if LENGTHS[symbol] as usize == length {
                    code.symbols[at] = symbol as u16;
                    code.codes[symbol] = next;
                    code.quicken(symbol, length);
                    next += 1;
                    at += 1;
                }
                symbol += 1;
            }
            code.groups[length].count = next - code.groups[length].first;
            length += 1;
        }
        code
    }

    const fn quicken(&mut self, symbol: usize, length: usize) {
        if length > QUICK {
            return;
        }
        let free = QUICK - length;
        let (mut at, end) =
            ((self.codes[symbol] as usize) << free, ((self.codes[symbol] as usize) + 1) << free);
        while at < end {
            self.quick[at] = (symbol as u16) << 4 | length as u16;
            at += 1;
        }
    }

    /// The symbol at the front of `bits`, whose code is longer than [`QUICK`], and its length.
    #[cold]
    fn long(&self, bits: u64) -> (u16, u32) {
        for length in QUICK + 1..=LONGEST {
            let group = self.groups[length];
            let code = (bits >> (64 - length)) as u32;
            let place = code.wrapping_sub(group.first);
            if place < group.count {
                return (self.symbols[(group.at + place) as usize], length as u32);
            }
        }
        // only all ones is left, which is EOS, because the code is complete
        (EOS, LONGEST as u32)
    }
}

/// Appends the decoded text of `coded` to `out`: at most 8/5 of its length.
pub(super) fn decode(mut coded: &[u8], out: &mut Vec<u8>) -> Result<(), HpackError> {
    out.reserve(coded.len() * 8 / 5 + 1);
    // the next bits, from the top; `count` of them come from `coded`
    let (mut bits, mut count) = (0u64, 0u32);
    loop {
        if let Some(eight) = coded.first_chunk::<8>() {
            bits |= u64::from_be_bytes(*eight) >> count;
            let taken = (63 - count) / 8;
            coded = &coded[taken as usize..];
            count += taken * 8;
            // there are at least 56 bits; those of bytes not counted are there as well, and are read again
        } else {
            while count <= 56
                && let Some((&byte, rest)) = coded.split_first()
            {
                bits |= u64::from(byte) << (56 - count);
                count += 8;
                coded = rest;
            }
            if coded.is_empty() {
                break;
            }
        }
        while count > LONGEST as u32 {
            let (symbol, length) = next(bits);
            if symbol == EOS {
                return Err(HpackError::Huffman);
            }
            out.push(symbol as u8);
            bits <<= length;
            count -= length;
        }
    }
    // missing bits after the last byte count as ones, like padding
    let mut ahead = bits | u64::MAX.checked_shr(count).unwrap_or_default();
    while ahead != u64::MAX {
        let (symbol, length) = next(ahead);
        if symbol == EOS || length > count {
            return Err(HpackError::Huffman);
        }
        out.push(symbol as u8);
        ahead = !(!ahead << length);
        count -= length;
    }
    // padding: fewer than 8 bits, all ones
    if count < 8 { Ok(()) } else { Err(HpackError::Huffman) }
}

#[inline]
fn next(bits: u64) -> (u16, u32) {
    match CODE.quick[(bits >> (64 - QUICK)) as usize] {
        0 => CODE.long(bits),
        quick => (quick >> 4, u32::from(quick & 15)),
    }
}

/// The encoded length of `text`, in bytes.
pub(super) fn len(text: &[u8]) -> usize {
    let bits: usize = text.iter().map(|&byte| usize::from(LENGTHS[usize::from(byte)])).sum();
    bits.div_ceil(8)
}

/// Appends the code of `text`.
pub(super) fn encode(text: &[u8], out: &mut Vec<u8>) {
    let (mut bits, mut count) = (0u64, 0u32);
    for &byte in text {
        let length = u32::from(LENGTHS[usize::from(byte)]);
        bits = bits << length | u64::from(CODE.codes[usize::from(byte)]);
        count += length;
        while count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    if count > 0 {
        out.push((bits << (8 - count)) as u8 | 0xff >> count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back(text: &[u8]) {
        let (mut coded, mut back) = (Vec::new(), Vec::new());
        encode(text, &mut coded);
        assert_eq!(coded.len(), len(text));
        assert_eq!(decode(&coded, &mut back), Ok(()), "{text:?}");
        assert_eq!(back, text);
    }

    #[test]
    fn codes_of_the_rfc() {
        // RFC 7541 appendix B: '0', 'a', '&', NUL, '\\', LF, 255, EOS
        for (symbol, code) in [
            (48, 0x0),
            (97, 0x3),
            (38, 0xf8),
            (0, 0x1ff8),
            (92, 0x7fff0),
            (10, 0x3fff_fffc),
            (255, 0x3ff_ffee),
            (256, 0x3fff_ffff),
        ] {
            assert_eq!(CODE.codes[symbol], code, "{symbol}");
        }
        // Kraft's sum is 1: the code is complete
        let sum: u64 = LENGTHS.iter().map(|&length| 1u64 << (30 - length)).sum();
        assert_eq!(sum, 1 << 30);
    }

    #[test]
    fn every_byte_and_every_pair_comes_back() {
        for first in 0..=255u8 {
            there_and_back(&[first]);
            for second in 0..=255u8 {
                there_and_back(&[first, second]);
            }
        }
    }

    #[test]
    fn texts_of_any_length_come_back() {
        let mut random = fastrand::Rng::with_seed(7);
        for length in 0..200 {
            let text: Vec<u8> = (0..length).map(|_| random.u8(32..127)).collect();
            there_and_back(&text);
            let bytes: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
            there_and_back(&bytes);
        }
    }

    #[test]
    fn only_up_to_seven_ones_are_padding() {
        let decode = |coded: &[u8]| {
            let mut out = Vec::new();
            decode(coded, &mut out).map(|()| out)
        };
        // 'a' is 00011
        assert_eq!(decode(&[0b0001_1111]), Ok(b"a".to_vec()));
        assert_eq!(decode(&[]), Ok(Vec::new()));
        assert_eq!(decode(&[0b0001_1000]), Err(HpackError::Huffman));
        assert_eq!(decode(&[0b0001_1110]), Err(HpackError::Huffman));
        assert_eq!(decode(&[0b0001_1111, 0xff]), Err(HpackError::Huffman));
        assert_eq!(decode(&[0xff]), Err(HpackError::Huffman));
        // EOS
        assert_eq!(decode(&[0xff, 0xff, 0xff, 0xff]), Err(HpackError::Huffman));
        let mut long = vec![0xff; 4];
        long.extend([0; 20]);
        assert_eq!(decode(&long), Err(HpackError::Huffman));
    }

    #[test]
    fn any_bytes_decode_to_what_encodes_to_them_or_to_an_error() {
        let mut random = fastrand::Rng::with_seed(8);
        for _ in 0..20_000 {
            let coded: Vec<u8> = (0..random.usize(..24)).map(|_| random.u8(..)).collect();
            let (mut text, mut again) = (Vec::new(), Vec::new());
            if decode(&coded, &mut text).is_ok() {
                encode(&text, &mut again);
                assert_eq!(again, coded);
            }
        }
    }
}
