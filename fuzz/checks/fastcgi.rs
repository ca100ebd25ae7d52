//! What must hold for any bytes that a FastCGI application sends.

use forebay_http::head::Lines;
use forebay_http::response::{ParsedResponse, Response, ResponseContext, ResponseHeadLimits};
use forebay_upstream::fastcgi::{FastCgiPiece, FastCgiReader, RecordsRead};

const LIMITS: ResponseHeadLimits =
    ResponseHeadLimits { head_bytes: 300, head_lines: 8, bare_lf: false };

/// Panics if something does not hold for `bytes`.
pub(crate) fn check(bytes: &[u8]) {
    let whole = read(bytes, bytes.len().max(1));
    for cut in [1, 2, 7, 64] {
        assert_eq!(read(bytes, cut), whole, "in pieces of {cut}");
    }
}

/// Head, body, words for the log, and how it ended: not yet, with a status, or wrong.
type Found = (Vec<u8>, Vec<u8>, Vec<u8>, Option<Result<u32, &'static str>>);

/// Reads in pieces of so many bytes.
fn read(bytes: &[u8], cut: usize) -> Found {
    let mut reader = FastCgiReader::new(ResponseContext::default(), LIMITS);
    let (mut body, mut ended) = (Vec::new(), None);
    'pieces: for piece in bytes.chunks(cut) {
        let mut rest = piece;
        while !rest.is_empty() {
            match reader.read(rest) {
                Ok(RecordsRead { used, piece }) => {
                    assert!(used <= rest.len());
                    rest = &rest[used..];
                    match piece {
                        FastCgiPiece::More => assert!(rest.is_empty()),
                        FastCgiPiece::Head => check_head(reader.head()),
                        FastCgiPiece::Body(data) => {
                            assert!(!data.is_empty() && !reader.head().is_empty());
                            body.extend_from_slice(data);
                        }
                        FastCgiPiece::End { status } => {
                            ended = Some(Ok(status));
                            break 'pieces;
                        }
                    }
                }
                Err(error) => {
                    assert_eq!(reader.read(rest), Err(error), "once wrong, always wrong");
                    ended = Some(Err(error.reason()));
                    break 'pieces;
                }
            }
        }
    }
    (reader.head().to_vec(), body, reader.stderr().to_vec(), ended)
}

/// Whatever a script has said, it is one head of HTTP, or none.
fn check_head(head: &[u8]) {
    assert!(head.starts_with(b"HTTP/1.1 ") && head.ends_with(b"\r\n\r\n"));
    let mut lines = Lines::new();
    let limits = ResponseHeadLimits { head_bytes: 4096, ..LIMITS };
    match Response::parse(head, &mut lines, ResponseContext::default(), &limits) {
        Ok(ParsedResponse::Complete(parsed)) => assert_eq!(parsed.len, head.len()),
        other => panic!("{other:?}"),
    }
}
