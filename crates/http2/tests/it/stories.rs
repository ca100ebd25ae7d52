//! Connections of another encoder: each block decodes to the fields in its story, one after the
//! other.

use forebay_http2::hpack::HpackDecoder;
use forebay_http2::{DecodedFields, FieldLimits, MessageKind};
use std::path::Path;

fn bytes(hex: &str) -> Vec<u8> {
    let pair = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("a story is hex");
    (0..hex.len()).step_by(2).map(pair).collect()
}

/// The fields of a block, in the order of the story; pseudo-fields are kept apart.
fn said(fields: &DecodedFields) -> Vec<String> {
    let pseudo = [
        (&b":method"[..], fields.method()),
        (b":scheme", fields.scheme()),
        (b":authority", fields.authority()),
        (b":path", fields.path()),
    ];
    let line = |(name, value): (&[u8], &[u8])| {
        let name = String::from_utf8_lossy(name);
        match &*name {
            "x-bytes" => format!("{name}={}", hex(value)),
            _ => format!("{name}={}", String::from_utf8_lossy(value)),
        }
    };
    pseudo.into_iter().chain(fields.iter()).map(line).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn stories_are_understood() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stories");
    let mut blocks = 0;
    for entry in std::fs::read_dir(folder).expect("the stories are there") {
        let file = entry.expect("a story is listed").path();
        let story = std::fs::read_to_string(&file).expect("a story is text");
        let mut decoder = HpackDecoder::new(4096);
        let mut fields = DecodedFields::default();
        for part in story.split("\n\n").skip(1) {
            let (block, expected) = part.split_once('\n').expect("a block says something");
            fields.reset(MessageKind::Request, FieldLimits { bytes: 16 * 1024, fields: 100 });
            decoder.decode(&bytes(block), &mut fields).expect(block);
            assert_eq!(fields.fault(), None, "{}", file.display());
            let expected: Vec<_> = expected.lines().collect();
            assert_eq!(said(&fields), expected, "{}: {block}", file.display());
            blocks += 1;
        }
    }
    assert_eq!(blocks, 200);
}
