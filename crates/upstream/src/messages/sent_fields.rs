//! The fields about the client that a trusted proxy has sent, as one stage reports them to the next.

use crate::messages::names::{FieldKind, Forwarding, kind};
use forebay_http::forwarded::ForwardedFamily;
use forebay_http::head::Head;

/// The field that lists which fields about the client a trusted proxy has sent. A stage sends some of
/// these for every client, or converts them to `Forwarded`; a script, however, must get only those
/// that the proxy has sent.
pub(crate) const FIELD: &str = "Forebay-Sent";

/// The names of the fields about the client that a trusted proxy has sent and that count, as far as
/// scripts get them only then. Behind a stage, the list of the stage before is used instead.
pub fn names(head: &Head<'_>, counts: ForwardedFamily) -> Vec<u8> {
    let mut names: Vec<&str> = Vec::new();
    for (field, _) in head.fields().filter(|_| counts == ForwardedFamily::XForwarded) {
        let FieldKind::Forwarding(field) = kind(field) else { continue };
        names.extend(name_of(field).filter(|name| !names.contains(name)));
    }
    names.join(", ").into_bytes()
}

/// The value of [`names`] from the stage before.
pub fn before<'h>(head: &Head<'h>) -> &'h [u8] {
    let mut fields = head.fields();
    let found = fields.find(|(name, _)| name.eq_ignore_ascii_case(FIELD));
    found.map_or(&[], |(_, value)| value)
}

/// Whether a trusted proxy has sent a field about the client, as the stage before says. Kinds of
/// fields that stages do not list count as sent whenever they are there.
pub(crate) fn has(head: &Head<'_>, asked: Forwarding) -> bool {
    let Some(name) = name_of(asked) else { return true };
    let mut names = before(head).split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
    names.any(|sent| sent == name.as_bytes())
}

fn name_of(field: Forwarding) -> Option<&'static str> {
    match field {
        Forwarding::For => Some("for"),
        Forwarding::Proto => Some("proto"),
        Forwarding::Host => Some("host"),
        Forwarding::Port => Some("port"),
        Forwarding::Prefix => Some("prefix"),
        Forwarding::RealIp => Some("real-ip"),
        Forwarding::Forwarded | Forwarding::RequestId | Forwarding::Other | Forwarding::Url => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_http::head::{HeadLimits, Lines, ParsedHead};

    fn with(lines_of: &str, act: impl FnOnce(&Head<'_>)) {
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines_of}\r\n");
        let mut lines = Lines::new();
        match Head::parse(text.as_bytes(), &mut lines, &HeadLimits::default()) {
            Ok(ParsedHead::Complete(head)) => act(&head),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn fields_are_named_once_and_only_those_that_count() {
        let sent = "x-real-ip: 192.0.2.9\r\nX-Real-IP: 1\r\nX-Forwarded-Proto: http\r\nX_Forwarded_For: 10.9.9.9\r\n\
                    X-Forwarded-Server: a\r\n";
        with(sent, |head| {
            assert_eq!(names(head, ForwardedFamily::XForwarded), b"real-ip, proto");
            assert_eq!(names(head, ForwardedFamily::Forwarded), b"");
            assert!(!has(head, Forwarding::RealIp), "no stage has said so");
        });
    }

    #[test]
    fn the_next_stage_reads_what_is_named() {
        with("Forebay-Sent: real-ip,host\r\n", |head| {
            assert_eq!(before(head), b"real-ip,host");
            for (field, expected) in [
                (Forwarding::RealIp, true),
                (Forwarding::Host, true),
                (Forwarding::For, false),
                (Forwarding::Proto, false),
                (Forwarding::Other, true),
            ] {
                assert_eq!(has(head, field), expected, "{field:?}");
            }
        });
    }
}
