//! Tests with the examples of RFC 7541 appendix C, and with invalid input.

use super::*;
use crate::fields::{FieldLimits, MessageKind};

const LIMITS: FieldLimits = FieldLimits { bytes: 16 * 1024, fields: 100 };

pub(crate) fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(pair).collect()
}

/// The fields as text: pseudo-fields in brackets, then the others.
fn text(fields: &DecodedFields) -> String {
    let mut text = format!("[{} ", String::from_utf8_lossy(fields.method()));
    text += &format!("{} ", String::from_utf8_lossy(fields.scheme()));
    text += &format!("{} ", String::from_utf8_lossy(fields.authority()));
    text += &format!("{} {}]", String::from_utf8_lossy(fields.path()), fields.status());
    for (name, value) in fields.iter() {
        let line = [b" ", name, b"=", value].concat();
        text += &String::from_utf8_lossy(&line);
    }
    text
}

fn decode(decoder: &mut HpackDecoder, message: MessageKind, hex: &str) -> String {
    let mut fields = DecodedFields::default();
    fields.reset(message, LIMITS);
    decoder.decode(&bytes(hex), &mut fields).unwrap();
    text(&fields)
}

#[test]
fn c_2_representations() {
    let mut decoder = HpackDecoder::new(4096);
    let mut one = |hex| decode(&mut decoder, MessageKind::Request, hex);
    let custom = "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572";
    assert_eq!(one(custom), "[    0] custom-key=custom-header");
    assert_eq!(one("040c 2f73 616d 706c 652f 7061 7468"), "[   /sample/path 0]");
    assert_eq!(one("1008 7061 7373 776f 7264 0673 6563 7265 74"), "[    0] password=secret");
    assert_eq!(one("82"), "[GET    0]");
    assert_eq!(one("be"), "[    0] custom-key=custom-header");
}

#[test]
fn c_3_and_c_4_requests() {
    let plain = [
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ];
    let huffman = [
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ];
    let expected = [
        ("[GET http www.example.com / 0]", 57),
        ("[GET http www.example.com / 0] cache-control=no-cache", 110),
        ("[GET https www.example.com /index.html 0] custom-key=custom-value", 164),
    ];
    for blocks in [plain, huffman] {
        let mut decoder = HpackDecoder::new(4096);
        for (block, (text, size)) in blocks.into_iter().zip(expected) {
            assert_eq!(decode(&mut decoder, MessageKind::Request, block), text);
            assert_eq!(decoder.table.size(), size);
        }
    }
}

#[test]
fn c_5_and_c_6_responses_with_a_table_of_256() {
    let plain = [
        "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a
         3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "4803 3330 37c1 c0bf",
        "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04
         677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49
         553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
    ];
    let huffman = [
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e
         919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7
         821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed
         4ee5 b106 3d50 07",
    ];
    let rest = "cache-control=private date=Mon, 21 Oct 2013 20:13:2";
    let location = "location=https://www.example.com";
    let cookie = "set-cookie=foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1";
    let expected = [
        (format!("[    302] {rest}1 GMT {location}"), 222),
        (format!("[    307] {rest}1 GMT {location}"), 222),
        (format!("[    200] {rest}2 GMT {location} content-encoding=gzip {cookie}"), 215),
    ];
    for blocks in [plain, huffman] {
        let mut decoder = HpackDecoder::new(256);
        for (block, (text, size)) in blocks.into_iter().zip(&expected) {
            assert_eq!(decode(&mut decoder, MessageKind::Response, block), *text);
            assert_eq!(decoder.table.size(), *size);
        }
    }
}

#[test]
fn damaged_blocks_are_told_apart() {
    for (hex, damage) in [
        ("80", HpackError::Index),                  // index 0
        ("be", HpackError::Index),                  // nothing in the table
        ("7e 00", HpackError::Index),               // the same for a name
        ("0f 2f 00", HpackError::Index),            // the same, not added
        ("ff ff ff ff ff 0f", HpackError::Number),  // an index without end
        ("ff", HpackError::Cut),                    // an index that ends
        ("41", HpackError::Cut),                    // no value
        ("41 05 61", HpackError::Cut),              // a value that ends
        ("40 81", HpackError::Cut),                 // a name that ends
        ("41 81 00", HpackError::Huffman),          // padding of zeros
        ("41 82 1f ff", HpackError::Huffman),       // padding too long
        ("41 84 ff ff ff ff", HpackError::Huffman), // EOS
        ("3f e2 1f", HpackError::TableSize),        // 4097
        ("82 20", HpackError::TableSize),           // after a field
        ("82 3f e1 1f", HpackError::TableSize),     // at the end, of a size that is allowed
    ] {
        let mut fields = DecodedFields::default();
        let result = HpackDecoder::new(4096).decode(&bytes(hex), &mut fields);
        assert_eq!(result, Err(damage), "{hex}");
    }
}

#[test]
fn the_table_changes_its_size_before_the_first_field() {
    let mut decoder = HpackDecoder::new(4096);
    let mut one = |hex| decode(&mut decoder, MessageKind::Request, hex);
    assert_eq!(one("40 01 61 01 62"), "[    0] a=b");
    // the size set to 0 and back: the entry is gone
    assert_eq!(one("20 3f e1 1f 82"), "[GET    0]");
    let mut fields = DecodedFields::default();
    assert_eq!(decoder.decode(&[0xbe], &mut fields), Err(HpackError::Index));
}

#[test]
fn a_block_that_is_too_large_still_builds_its_table() {
    let mut decoder = HpackDecoder::new(4096);
    let small = FieldLimits { bytes: 120, fields: 100 };
    let mut fields = DecodedFields::default();
    fields.reset(MessageKind::Request, small);
    // a=b, then a hundred references to it, then c=d, which is too much
    let mut block = bytes("40 01 61 01 62");
    block.extend([0xbe; 100]);
    block.extend(bytes("40 01 63 01 64"));
    decoder.decode(&block, &mut fields).unwrap();
    assert!(fields.is_over() && fields.list().len() == 3);
    assert_eq!(decode(&mut decoder, MessageKind::Request, "be bf"), "[    0] c=d a=b");

    fields.reset(MessageKind::Request, FieldLimits { bytes: 1 << 20, fields: 2 });
    decoder.decode(&[0xbe; 2], &mut fields).unwrap();
    assert!(!fields.is_over());
    fields.reset(MessageKind::Request, FieldLimits { bytes: 1 << 20, fields: 2 });
    decoder.decode(&[0xbe; 3], &mut fields).unwrap();
    assert!(fields.is_over());
}

#[test]
fn a_bomb_costs_what_its_bytes_cost() {
    // one field of 4000 bytes, referred to 60 000 times: 240 MB if they were copied
    let mut decoder = HpackDecoder::new(4096);
    let mut block = bytes("40 01 61 7f a1 1e");
    block.extend([b'x'; 4000]);
    block.extend(vec![0xbe; 60_000]);
    let mut fields = DecodedFields::default();
    fields.reset(MessageKind::Request, LIMITS);
    decoder.decode(&block, &mut fields).unwrap();
    assert!(fields.is_over());
    assert!(fields.values().len() <= LIMITS.bytes, "{}", fields.values().len());
}

#[test]
fn what_is_faulty_stays_so_in_the_table() {
    let mut decoder = HpackDecoder::new(4096);
    let fault = |decoder: &mut HpackDecoder, hex: &str| {
        let mut fields = DecodedFields::default();
        fields.reset(MessageKind::Trailers, LIMITS);
        decoder.decode(&bytes(hex), &mut fields).unwrap();
        fields.fault().is_some()
    };
    // the value has a line feed
    assert!(fault(&mut decoder, "40 01 61 01 0a"));
    assert!(fault(&mut decoder, "be"));
    // the name of the entry is valid, with another value
    assert!(!fault(&mut decoder, "7e 01 62"));
    // a name with a capital letter
    assert!(fault(&mut decoder, "40 01 41 01 62"));
    assert!(fault(&mut decoder, "be"));
    assert!(fault(&mut decoder, "7e 01 63"));
    // an unknown pseudo-field
    assert!(fault(&mut decoder, "40 02 3a 61 01 62"));
    assert!(fault(&mut decoder, "7e 01 63"));
}
