//! What must hold for any bytes given to the HPACK decoder.

use forebay_http2::hpack::{HpackDecoder, encode};
use forebay_http2::{DecodedFields, FieldLimits, MessageKind};

const WIDE: FieldLimits = FieldLimits { bytes: 64 * 1024, fields: 1000 };
const NARROW: FieldLimits = FieldLimits { bytes: 200, fields: 4 };

/// The first byte is the length of the first block, and so on. Panics if something does not hold.
pub(crate) fn check(bytes: &[u8]) {
    for (limits, table_bytes) in [(WIDE, 4096), (NARROW, 4096), (WIDE, 100), (WIDE, 0)] {
        let (mut decoder, mut fields, mut rest) =
            (HpackDecoder::new(table_bytes), DecodedFields::default(), bytes);
        while let Some((&len, more)) = rest.split_first() {
            let (block, more) = more.split_at(usize::from(len).min(more.len()));
            rest = more;
            fields.reset(MessageKind::Request, limits);
            if let Err(damage) = decoder.decode(block, &mut fields) {
                assert!(!damage.reason().is_empty());
                break;
            }
            check_fields(&fields, limits);
            assert!(decoder.heap_bytes() <= HpackDecoder::most_heap_bytes(table_bytes));
        }
    }
}

fn check_fields(fields: &DecodedFields, limits: FieldLimits) {
    let size = |(name, value): (&[u8], &[u8])| name.len() + value.len() + 32;
    let sum: usize = fields.iter().map(size).sum();
    // crumbs of a cookie are joined by two bytes for 32, unless something was wrong
    let is_whole = !fields.is_over() && fields.fault().is_none();
    assert!(!is_whole || fields.list().len() <= limits.fields);
    assert!(sum <= limits.bytes);
    assert!(fields.values().len() <= 2 * limits.bytes);
    if is_whole {
        // what was decoded is encoded, and decoded again
        let mut block = Vec::new();
        let pseudo = [
            (&b":method"[..], fields.method()),
            (b":scheme", fields.scheme()),
            (b":path", fields.path()),
        ];
        for (name, value) in pseudo.into_iter().filter(|(_, value)| !value.is_empty()) {
            encode::field(&mut block, name, value);
        }
        for (name, value) in fields.iter() {
            match value.len() % 2 {
                0 => encode::field(&mut block, name, value),
                _ => encode::secret(&mut block, name, value),
            }
        }
        let mut again = DecodedFields::default();
        again.reset(MessageKind::Request, FieldLimits { bytes: 1 << 20, fields: 2000 });
        assert_eq!(HpackDecoder::new(0).decode(&block, &mut again), Ok(()));
        assert!(again.iter().eq(fields.iter()));
        assert_eq!((again.method(), again.path()), (fields.method(), fields.path()));
    }
}
