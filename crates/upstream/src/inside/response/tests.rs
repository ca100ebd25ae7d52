//! Answers of handlers, and how they are sent.

use super::super::pipe::PipeRead;
use super::*;

fn answered(
    handler: impl FnOnce(&mut InsideResponse) -> HandlerResult,
) -> (Arc<HandlerPipe>, bool) {
    answered_to(false, handler)
}

fn answered_to(
    is_head: bool,
    handler: impl FnOnce(&mut InsideResponse) -> HandlerResult,
) -> (Arc<HandlerPipe>, bool) {
    let pipe = Arc::<HandlerPipe>::default();
    let mut response = InsideResponse::new(Arc::clone(&pipe), is_head);
    let result = handler(&mut response);
    let is_whole = matches!(response.end(Some(result)), Some(Ok(())));
    (pipe, is_whole)
}

#[test]
fn a_short_answer_is_sent_at_once_with_its_length() {
    let (pipe, is_whole) = answered(|response| {
        response.status(404)?.field("X-One", "1")?;
        response.write_all(b"nothing")?;
        assert!(!response.is_begun());
        Ok(())
    });
    let (head, end) = pipe.answer();
    let head = head.unwrap();
    assert!(is_whole);
    assert_eq!((head.status, head.length), (404, Some(7)));
    assert_eq!(end, Some(HandlerEnd::Whole(Vec::new())));
}

#[test]
fn texts_keep_status_and_type_that_were_set() {
    let types = |head: &HandlerHead| {
        let named = head.fields.iter().filter(|(name, _)| &**name == "Content-Type");
        named.map(|(_, value)| String::from_utf8_lossy(value).into_owned()).collect::<Vec<_>>()
    };
    let (pipe, _) = answered(|response| {
        response.status(418)?.field("Content-Type", "text/csv")?;
        Ok(response.text("a,b")?)
    });
    let head = pipe.answer().0.unwrap();
    assert_eq!((head.status, types(&head)), (418, vec!["text/csv".to_owned()]));
    let (pipe, _) = answered(|response| {
        response.status(418)?.field("content-type", "text/csv")?;
        Ok(response.send(404, "text/plain", "no")?)
    });
    let head = pipe.answer().0.unwrap();
    assert_eq!((head.status, types(&head)), (404, vec!["text/plain".to_owned()]));
    let (pipe, _) = answered(|response| Ok(response.html("<p>")?));
    let head = pipe.answer().0.unwrap();
    assert_eq!((head.status, types(&head)), (200, vec!["text/html; charset=utf-8".to_owned()]));
}

#[test]
fn a_flush_begins_an_answer_whose_length_nobody_knows() {
    let (pipe, _) = answered(|response| {
        response.write_all(b"one")?;
        response.flush()?;
        assert!(response.status(500).is_err() && response.field("A", "b").is_err());
        Ok(())
    });
    assert_eq!(pipe.answer().0.unwrap().length, None);
}

#[test]
fn a_length_that_was_said_is_kept_or_the_answer_is_broken() {
    let (pipe, is_whole) = answered(|response| {
        response.length(10)?;
        response.write_all(b"short")?;
        Ok(())
    });
    assert!(!is_whole);
    assert_eq!(pipe.read_answer(&mut Vec::new(), 9), PipeRead::Broken);
    let (_, is_whole) = answered(|response| {
        response.length(3)?;
        Ok(response.write_all(b"more")?)
    });
    assert!(!is_whole);
}

#[test]
fn an_answer_without_a_body_has_the_length_that_was_said_or_none() {
    for (is_head, status) in [(true, 200), (false, 304)] {
        for said in [None, Some(1 << 20)] {
            let (pipe, is_whole) = answered_to(is_head, |response| {
                response.status(status)?;
                said.map(|bytes| response.length(bytes).map(|_| ())).transpose()?;
                Ok(())
            });
            assert!(is_whole, "{status} {said:?}");
            assert_eq!(pipe.answer().0.unwrap().length, said, "{status}");
        }
    }
    let (pipe, _) = answered_to(true, |response| Ok(response.write_all(b"body")?));
    assert_eq!(pipe.answer().0.unwrap().length, Some(4));
}

#[test]
fn what_would_break_a_head_is_refused() {
    let (_, is_whole) = answered(|response| {
        for (name, value) in [
            ("X\r\nY", "1"),
            ("", "1"),
            ("X", "1\r\nY: 2"),
            ("X", "a\0b"),
            ("X", " padded"),
            ("Content-Length", "5"),
            ("transfer-encoding", "chunked"),
        ] {
            assert!(response.field(name, value).is_err(), "{name:?} {value:?}");
        }
        for status in [0, 100, 101, 199, 600, 1000] {
            assert!(response.status(status).is_err(), "{status}");
        }
        response.field("X", "caf\u{e9}")?;
        Ok(())
    });
    assert!(is_whole);
}
