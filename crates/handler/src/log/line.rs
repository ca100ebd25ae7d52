//! One answer as a line, up to the number of its bytes, which is known later.
//!
//! The fields Authorization and Cookie are never looked at; a user's name comes from the code that has
//! verified it.

use super::redaction::Redaction;
use super::text::{push_address, push_json, push_number, push_quoted, push_word};
use crate::policy::TraceWords;
use forebay_config::member::{Member, Members};
use forebay_conn::peer::ClientCertificate;
use forebay_conn::{Request, Secured};
use forebay_http::head::{Name, Version};
use std::borrow::Cow;
use std::net::IpAddr;

/// Writes a line in the common format, or in the combined one, which has two fields more; returns
/// where the number of bytes belongs.
///
/// `client - user [time] "METHOD target HTTP/1.1" status bytes "referer" "user agent"`. Text of the
/// client is [quoted](push_quoted), including spaces in a user's name; `-` stands for a missing value.
pub fn clf(
    out: &mut Vec<u8>,
    time: &[u8],
    client: IpAddr,
    user: Option<&[u8]>,
    request: Option<&Request<'_>>,
    status: u16,
    (is_combined, redaction): (bool, Option<&Redaction>),
) -> usize {
    push_address(out, client);
    out.extend_from_slice(b" - ");
    match user {
        Some(user) => push_word(out, user),
        None => out.push(b'-'),
    }
    out.extend_from_slice(b" [");
    out.extend_from_slice(time);
    out.extend_from_slice(b"] \"");
    match request {
        Some(Request { head, .. }) => {
            push_quoted(out, head.method_text.as_bytes());
            out.push(b' ');
            push_quoted(out, &address(redaction, head.target));
            out.extend_from_slice(match head.version {
                Version::Http10 => b" HTTP/1.0\" ",
                Version::Http11 => b" HTTP/1.1\" ",
                Version::Http2 => b" HTTP/2.0\" ",
            });
        }
        None => out.extend_from_slice(b"-\" "),
    }
    push_number(out, u64::from(status));
    out.push(b' ');
    let gap = out.len();
    if is_combined {
        for name in [Name::Referer, Name::UserAgent] {
            out.extend_from_slice(b" \"");
            match request.and_then(|request| request.head.values(name).next()) {
                Some(value) => push_quoted(out, &field(redaction, name, value)),
                None => out.push(b'-'),
            }
            out.push(b'"');
        }
    }
    out.push(b'\n');
    gap
}

/// An address as the line shows it.
#[inline]
fn address<'t>(redaction: Option<&Redaction>, address: &'t [u8]) -> Cow<'t, [u8]> {
    redaction.map_or(Cow::Borrowed(address), |redaction| redaction.address(address))
}

/// A field as the line shows it.
#[inline]
fn field<'v>(redaction: Option<&Redaction>, name: Name, value: &'v [u8]) -> Cow<'v, [u8]> {
    redaction.map_or(Cow::Borrowed(value), |redaction| redaction.field(name, value))
}

/// The answer that a JSON line is about.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'s> {
    /// The members of the line.
    pub members: Members,
    /// The redaction of the line.
    pub redaction: Option<&'s Redaction>,
    /// How many answers the line stands for.
    pub sample: u64,
    /// When the request began to arrive.
    pub time: &'s [u8],
    /// The identifier of the request; it needs no escape.
    pub request_id: &'s [u8],
    /// The site's name; empty if the request belongs to none.
    pub site: &'s str,
    /// The client.
    pub client: IpAddr,
    /// The user that the client has proved to be.
    pub user: Option<&'s [u8]>,
    /// The result of the TLS handshake; `None` on a plain connection.
    pub secured: Option<&'s Secured>,
    /// The verdict on the request.
    pub judged: TraceWords<'s>,
    /// The request to an application, if there was one.
    pub relayed: Option<LoggedUpstream<'s>>,
    /// Microseconds from the first byte of the request until all of it was there.
    pub receive_us: u64,
    /// Microseconds from then until the answer was written.
    pub process_us: u64,
}

/// A request that an application was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoggedUpstream<'s> {
    /// The upstream that was asked last; empty if none was asked.
    pub upstream: &'s str,
    /// The status of its answer, if there was one.
    pub status: Option<u16>,
    /// Why there was no answer.
    pub error: Option<&'s str>,
    /// How many upstreams were asked.
    pub attempts: u32,
    /// Microseconds for which the request has waited for its turn.
    pub queue_us: u64,
    /// Microseconds until the last one had a connection, if it had one.
    pub connect_us: Option<u64>,
    /// Microseconds until the head of the answer was there.
    pub head_us: Option<u64>,
    /// Microseconds until all of the answer was there, if it is over; else until the client has got it.
    pub total_us: Option<u64>,
    /// When the last upstream was asked, in nanoseconds.
    pub begun_ns: u64,
}

/// Writes the members of a JSON object that are known before the answer is sent, each with a comma before
/// it; [`json_end`] adds the rest. Without a status the request was given up, and the line says so.
///
/// Members without a value are left out.
pub fn json(
    out: &mut Vec<u8>,
    subject: &Subject<'_>,
    request: Option<&Request<'_>>,
    status: Option<u16>,
) {
    let Subject { members, redaction, sample, .. } = *subject;
    plain(out, members, Member::Time, subject.time);
    plain(out, members, Member::RequestId, subject.request_id);
    if !subject.site.is_empty() {
        text(out, members, Member::Site, subject.site.as_bytes());
    }
    if members.have(Member::Client) {
        out.extend_from_slice(Member::Client.before_text());
        push_address(out, subject.client);
        out.push(b'"');
    }
    if let Some(user) = subject.user {
        text(out, members, Member::User, user);
    }
    if let Some(Request { head, .. }) = request {
        let version: &[u8] = match head.version {
            Version::Http10 => b"1.0",
            Version::Http11 => b"1.1",
            Version::Http2 => b"2.0",
        };
        text(out, members, Member::Method, head.method_text.as_bytes());
        text(out, members, Member::Target, &address(redaction, head.target));
        plain(out, members, Member::Version, version);
        text(out, members, Member::Host, head.authority);
        for (name, member) in
            [(Name::Referer, Member::Referer), (Name::UserAgent, Member::UserAgent)]
        {
            if let Some(value) = head.values(name).next() {
                text(out, members, member, &field(redaction, name, value));
            }
        }
    }
    if let Some(secured) = subject.secured {
        json_secured(out, members, secured);
    }
    let TraceWords { class, rule, refused, refused_by, token } = subject.judged;
    for (member, said) in [
        (Member::Class, class),
        (Member::Rule, rule),
        (Member::Refused, refused),
        (Member::RefusedBy, refused_by),
        (Member::Token, token),
    ] {
        if let Some(said) = said {
            text(out, members, member, said.as_bytes());
        }
    }
    if let Some(relayed) = &subject.relayed {
        json_relayed(out, members, relayed);
    }
    match status {
        Some(status) => number(out, members, Member::Status, status.into()),
        None => out.extend_from_slice(b",\"given_up\":true"),
    }
    if sample > 1 {
        out.extend_from_slice(b",\"sample\":");
        push_number(out, sample);
    }
    number(out, members, Member::ReceiveUs, subject.receive_us);
    number(out, members, Member::ProcessUs, subject.process_us);
}

/// Writes the members about the request to an application.
fn json_relayed(out: &mut Vec<u8>, members: Members, relayed: &LoggedUpstream<'_>) {
    let LoggedUpstream {
        upstream,
        status,
        error,
        attempts,
        queue_us,
        connect_us,
        head_us,
        total_us,
        ..
    } = *relayed;
    if !upstream.is_empty() {
        text(out, members, Member::Upstream, upstream.as_bytes());
    }
    if let Some(status) = status {
        number(out, members, Member::UpstreamStatus, status.into());
    }
    if let Some(error) = error {
        text(out, members, Member::UpstreamError, error.as_bytes());
    }
    number(out, members, Member::UpstreamAttempts, attempts.into());
    number(out, members, Member::UpstreamQueueUs, queue_us);
    for (member, us) in [
        (Member::UpstreamConnectUs, connect_us),
        (Member::UpstreamHeadUs, head_us),
        (Member::UpstreamUs, total_us),
    ] {
        if let Some(us) = us {
            number(out, members, member, us);
        }
    }
}

/// Writes the members about the TLS handshake.
fn json_secured(out: &mut Vec<u8>, members: Members, secured: &Secured) {
    let Secured { name, version, cipher, alpn, resumed, hosts: _, policy: _, client } = secured;
    if let Some(name) = name {
        text(out, members, Member::Sni, name.as_bytes());
    }
    plain(out, members, Member::TlsVersion, version.as_bytes());
    plain(out, members, Member::TlsCipher, cipher.as_bytes());
    if let Some(alpn) = alpn {
        text(out, members, Member::Alpn, alpn.as_bytes());
    }
    if members.have(Member::TlsResumed) {
        out.extend_from_slice(Member::TlsResumed.before_number());
        out.extend_from_slice(if *resumed { b"true" } else { b"false" });
    }
    if let Some(ClientCertificate { subject, fingerprint }) = client {
        text(out, members, Member::ClientSubject, subject.as_bytes());
        plain(out, members, Member::ClientFingerprint, fingerprint.as_bytes());
    }
}

/// Writes why the answer of an application is not complete.
pub fn cut_off(out: &mut Vec<u8>, members: Members, error: &str) {
    text(out, members, Member::UpstreamError, error.as_bytes());
}

/// The values that are known when an answer was sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct LineEnds {
    /// Microseconds since an application was asked, if its answer was not complete before.
    pub asked_us: Option<u64>,
    /// Microseconds from when the answer was written until it was sent.
    pub sent_us: u64,
    /// Bytes of the body that were sent.
    pub body_bytes: u64,
    /// For a connection that was passed on: bytes of its client, and how the connection ended.
    pub passed_on: Option<(u64, &'static str)>,
}

/// Ends the line that [`json`] began and that stands in `out` from `start` on.
#[inline]
pub fn json_end(out: &mut Vec<u8>, start: usize, members: Members, ends: &LineEnds) {
    let LineEnds { asked_us, sent_us, body_bytes, passed_on } = *ends;
    if let Some(us) = asked_us {
        number(out, members, Member::UpstreamUs, us);
    }
    number(out, members, Member::SendUs, sent_us);
    number(out, members, Member::Bytes, body_bytes);
    if let Some((received_bytes, ended)) = passed_on {
        number(out, members, Member::BytesReceived, received_bytes);
        text(out, members, Member::Ended, ended.as_bytes());
    }
    // the first member, whichever it is, has a comma before it
    match out.get_mut(start) {
        Some(comma) => *comma = b'{',
        None => out.push(b'{'),
    }
    out.extend_from_slice(b"}\n");
}

#[inline]
fn number(out: &mut Vec<u8>, members: Members, member: Member, value: u64) {
    if members.have(member) {
        out.extend_from_slice(member.before_number());
        push_number(out, value);
    }
}

fn text(out: &mut Vec<u8>, members: Members, member: Member, value: &[u8]) {
    if members.have(member) {
        out.extend_from_slice(member.before_text());
        push_json(out, value);
        out.push(b'"');
    }
}

/// A text that needs no escape.
#[inline]
fn plain(out: &mut Vec<u8>, members: Members, member: Member, value: &[u8]) {
    if members.have(member) {
        out.extend_from_slice(member.before_text());
        out.extend_from_slice(value);
        out.push(b'"');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_conn::Peer;
    use forebay_http::head::{Head, HeadLimits, Lines, ParsedHead};
    use forebay_http::path::NormalPath;
    use proptest::prelude::*;
    use serde_json::Value;

    const ENDS: LineEnds =
        LineEnds { asked_us: None, sent_us: 1042, body_bytes: 512, passed_on: None };
    const COMMON: bool = false;
    const COMBINED: bool = true;

    /// The line that `write` makes for a request, or for bytes that are none.
    fn line<R>(request: &[u8], write: impl Fn(&mut Vec<u8>, Option<&Request<'_>>) -> R) -> String {
        let address = "127.0.0.1:1".parse().unwrap();
        let peer = Peer::new(address, address);
        let mut lines = Lines::new();
        let mut out = Vec::new();
        match Head::parse(request, &mut lines, &HeadLimits::default()) {
            Ok(ParsedHead::Complete(head)) => {
                write(&mut out, Some(&Request::new(&head, &peer, &NormalPath::default())));
            }
            _ => {
                write(&mut out, None);
            }
        }
        String::from_utf8(out).unwrap()
    }

    /// The complete line, with 512 bytes of body.
    fn clf_line(is_combined: bool, request: &[u8]) -> String {
        line(request, |out, request| {
            let time = b"20/Nov/2026:06:41:03 +0000";
            let client = "192.0.2.7".parse().unwrap();
            let gap = clf(out, time, client, None, request, 200, (is_combined, None));
            out.splice(gap..gap, *b"512");
        })
    }

    fn subject<'s>(site: &'s str, client: &str) -> Subject<'s> {
        Subject {
            members: Members::of(&Member::ALL),
            redaction: None,
            sample: 1,
            time: b"2026-11-20T06:41:03.007065Z",
            request_id: b"0af7651916cd43dd8448eb211c80319c",
            site,
            client: client.parse().unwrap(),
            user: None,
            secured: None,
            judged: TraceWords::default(),
            relayed: None,
            receive_us: 0,
            process_us: 17,
        }
    }

    fn json_line(site: &str, request: &[u8]) -> String {
        line(request, |out, request| {
            let subject = subject(site, "2001:db8::1");
            json(out, &subject, request, Some(200));
            json_end(out, 0, subject.members, &ENDS);
        })
    }

    const BROWSER: &[u8] =
        b"GET /a?b=c HTTP/1.1\r\nHost: example.org\r\nUser-Agent: x \"y\" \\ \xc3\xa9\r\n\
        Referer: http://r/\r\nCookie: secret\r\nAuthorization: Basic secret\r\n\r\n";

    #[test]
    fn the_common_and_combined_formats() {
        let common = "192.0.2.7 - - [20/Nov/2026:06:41:03 +0000] \"GET /a?b=c HTTP/1.1\" 200 512";
        assert_eq!(clf_line(COMMON, BROWSER), format!("{common}\n"));
        assert_eq!(
            clf_line(COMBINED, BROWSER),
            format!("{common} \"http://r/\" \"x \\x22y\\x22 \\x5c \\xc3\\xa9\"\n")
        );
        let rubbish = "192.0.2.7 - - [20/Nov/2026:06:41:03 +0000] \"-\" 200 512";
        assert_eq!(clf_line(COMMON, b"rubbish\r\n\r\n"), format!("{rubbish}\n"));
        assert_eq!(clf_line(COMBINED, b"rubbish\r\n\r\n"), format!("{rubbish} \"-\" \"-\"\n"));
    }

    #[test]
    fn the_json_format() {
        assert_eq!(
            json_line("shop", BROWSER),
            r#"{"time":"2026-11-20T06:41:03.007065Z","request_id":"0af7651916cd43dd8448eb211c80319c",\
"site":"shop","client":"2001:db8::1","method":"GET","target":"/a?b=c","version":"1.1",\
"host":"example.org","referer":"http://r/","user_agent":"x \"y\" \\ é",\
"status":200,"receive_us":0,"process_us":17,"send_us":1042,"bytes":512}"#
                .replace("\\\n", "")
                + "\n"
        );
        assert_eq!(
            json_line("", b"rubbish\r\n\r\n"),
            r#"{"time":"2026-11-20T06:41:03.007065Z","request_id":"0af7651916cd43dd8448eb211c80319c",\
"client":"2001:db8::1","status":200,"receive_us":0,"process_us":17,"send_us":1042,"bytes":512}"#
                .replace("\\\n", "")
                + "\n"
        );
    }

    #[test]
    fn what_an_application_was_asked_is_in_its_line() {
        let subject = |relayed| Subject {
            members: Members::of(&Member::ALL[18..]),
            redaction: None,
            sample: 1,
            time: b"",
            request_id: b"",
            site: "",
            client: "192.0.2.7".parse().unwrap(),
            user: None,
            secured: None,
            judged: TraceWords::default(),
            relayed: Some(relayed),
            receive_us: 0,
            process_us: 17,
        };
        let written = |relayed, status| {
            let (mut out, subject) = (Vec::new(), subject(relayed));
            json(&mut out, &subject, None, Some(status));
            json_end(&mut out, 0, subject.members, &LineEnds { asked_us: Some(2000), ..ENDS });
            String::from_utf8(out).unwrap()
        };
        let answered = LoggedUpstream {
            upstream: "10.0.0.1:9000",
            status: Some(404),
            error: None,
            attempts: 2,
            queue_us: 150,
            connect_us: Some(80),
            head_us: Some(1700),
            total_us: None,
            begun_ns: 1,
        };
        assert_eq!(
            written(answered, 404),
            "{\"upstream\":\"10.0.0.1:9000\",\"upstream_status\":404,\"upstream_attempts\":2,\
             \"upstream_queue_us\":150,\"upstream_connect_us\":80,\"upstream_head_us\":1700,\
             \"status\":404,\"receive_us\":0,\"process_us\":17,\"upstream_us\":2000,\
             \"send_us\":1042,\"bytes\":512}\n"
        );
        let unasked =
            LoggedUpstream { error: Some("queue"), queue_us: 9, ..LoggedUpstream::default() };
        let line = written(unasked, 503);
        let expected =
            "{\"upstream_error\":\"queue\",\"upstream_attempts\":0,\"upstream_queue_us\":9,";
        assert!(line.starts_with(expected), "{line}");
    }

    #[test]
    fn how_a_request_was_judged_is_in_its_line() {
        let subject = Subject {
            members: Members::of(&Member::ALL),
            redaction: None,
            sample: 1,
            time: b"2026-11-20T06:41:03.007065Z",
            request_id: b"0af7651916cd43dd8448eb211c80319c",
            site: "",
            client: "192.0.2.7".parse().unwrap(),
            user: None,
            secured: None,
            judged: TraceWords {
                class: Some("gold"),
                rule: Some("buyers"),
                refused: Some("requests"),
                refused_by: Some("costly search"),
                token: Some("expired"),
            },
            relayed: None,
            receive_us: 0,
            process_us: 17,
        };
        let mut out = Vec::new();
        json(&mut out, &subject, None, Some(503));
        let expected = "\"client\":\"192.0.2.7\",\"class\":\"gold\",\"rule\":\"buyers\",\
            \"refused\":\"requests\",\"refused_by\":\"costly search\",\"token\":\"expired\",\"status\":503,";
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains(expected), "{text}");
    }

    /// A name is one word of the line, whatever characters it has.
    #[test]
    fn a_user_is_one_word() {
        let said = |user: &[u8]| {
            line(BROWSER, |out, request| {
                let client = "192.0.2.7".parse().unwrap();
                clf(out, b"now", client, Some(user), request, 200, (COMMON, None));
            })
        };
        for (user, expected) in [
            (&b"alice"[..], "alice"),
            (b"b ob", "b\\x20ob"),
            (b"x [now] \"GET", "x\\x20[now]\\x20\\x22GET"),
            ("zo\u{eb}".as_bytes(), "zo\\xc3\\xab"),
        ] {
            assert!(said(user).starts_with(&format!("192.0.2.7 - {expected} [now] \"GET ")));
        }
        let mut out = Vec::new();
        text(&mut out, Members::of(&[Member::User]), Member::User, b"a \"b\"");
        assert_eq!(out, br#","user":"a \"b\"""#);
    }

    #[test]
    fn what_was_agreed_is_in_the_lines_of_sealed_connections() {
        let mut secured = Secured {
            name: Some("shop.example".into()),
            version: "1.3",
            cipher: "TLS13_AES_128_GCM_SHA256",
            alpn: Some("http/1.1".into()),
            resumed: true,
            hosts: [].into(),
            policy: None,
            client: Some(ClientCertificate {
                subject: "CN=a\\, b".into(),
                fingerprint: "0f".into(),
            }),
        };
        let said = |members: &[Member], secured: &Secured| {
            let mut out = Vec::new();
            json_secured(&mut out, Members::of(members), secured);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(
            said(&Member::ALL, &secured),
            ",\"sni\":\"shop.example\",\"tls_version\":\"1.3\",\
            \"tls_cipher\":\"TLS13_AES_128_GCM_SHA256\",\"alpn\":\"http/1.1\",\"tls_resumed\":true,\
            \"client_subject\":\"CN=a\\\\, b\",\"client_fingerprint\":\"0f\""
        );
        assert_eq!(said(&[Member::Alpn], &secured), ",\"alpn\":\"http/1.1\"");
        (secured.name, secured.alpn, secured.resumed) = (None, None, false);
        secured.client = None;
        let some = [Member::Sni, Member::Alpn, Member::TlsResumed, Member::ClientSubject];
        assert_eq!(said(&some, &secured), ",\"tls_resumed\":false");
    }

    #[test]
    fn a_line_has_the_members_that_are_wanted() {
        let some = |members: &[Member], status| {
            line(BROWSER, |out, request| {
                let members = Members::of(members);
                let subject = Subject { members, sample: 100, ..subject("shop", "192.0.2.7") };
                json(out, &subject, request, status);
                json_end(out, 0, subject.members, &ENDS);
            })
        };
        let two = [Member::Client, Member::Bytes];
        let expected = "{\"client\":\"192.0.2.7\",\"sample\":100,\"bytes\":512}\n";
        assert_eq!(some(&two, Some(200)), expected);
        let one = [Member::Status];
        assert_eq!(some(&one, Some(404)), "{\"status\":404,\"sample\":100}\n");
        assert_eq!(some(&one, None), "{\"given_up\":true,\"sample\":100}\n");
        assert_eq!(
            some(&[Member::Rule, Member::SendUs], Some(200)),
            "{\"sample\":100,\"send_us\":1042}\n"
        );
    }

    proptest! {
        /// A request is one line, of printable characters, with its fields in their places, whatever a
        /// client sends; and JSON reads back what was sent.
        #[test]
        fn no_request_forges_a_line(
            method in proptest::collection::vec(any::<u8>(), 1..8),
            target in proptest::collection::vec(any::<u8>(), 0..40),
            agent in proptest::collection::vec(any::<u8>(), 0..40),
            referer in proptest::collection::vec(any::<u8>(), 0..40),
            secret in "[a-z]{20}",
        ) {
            let request = [
                &method[..], b" /", &target, b" HTTP/1.1\r\nHost: h\r\nAuthorization: ",
                secret.as_bytes(), b"\r\nUser-Agent: ", &agent, b"\r\nCookie: k=",
                secret.as_bytes(), b"\r\nReferer: ", &referer, b"\r\n\r\n",
            ].concat();
            for (is_combined, quotes) in [(COMMON, 2), (COMBINED, 6)] {
                let text = clf_line(is_combined, &request);
                prop_assert_eq!(text.find('\n'), Some(text.len() - 1));
                prop_assert_eq!(text.matches('"').count(), quotes);
                prop_assert!(text.trim_end().bytes().all(|b| (b' '..=b'~').contains(&b)));
                prop_assert!(!text.contains(&secret));
            }
            let text = json_line("shop", &request);
            prop_assert_eq!(text.find('\n'), Some(text.len() - 1));
            prop_assert!(text.trim_end().bytes().all(|b| (b' '..=b'~').contains(&b)));
            prop_assert!(!text.contains(&secret));
            let object: Value = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(&object["client"], "2001:db8::1");
            prop_assert_eq!(&object["bytes"], 512);
            for (member, sent) in [("user_agent", &agent), ("referer", &referer)] {
                if let Some(logged) = object[member].as_str() {
                    let bytes: Vec<u8> = logged.chars().map(|c| c as u8).collect();
                    prop_assert_eq!(&bytes[..], sent.trim_ascii());
                }
            }
        }
    }
}
