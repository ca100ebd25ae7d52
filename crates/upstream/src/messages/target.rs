//! The target that an upstream is asked for: the path that was judged, never another form of it.
//!
//! Rules are applied to the normal form of a path: decoded, without `.` and `..`. An application that
//! reads `//` or `%2e%2e` in another way would be asked for something that was not judged. So a path
//! whose form is ambiguous is refused, or sent in its normal form. Whatever is sent has the normal
//! form that was judged. Where paths are passed as they came, all their readings were judged.

use forebay_http::path;
use forebay_http::readings::{PathReadings, is_ambiguous};
use std::fmt;

/// How a path that can be read in more than one way is treated: one with `//`, with an encoded slash
/// or backslash, or with segments `.` or `..`, encoded or not. Control bytes are always refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ambiguous {
    /// The request is refused with 400.
    #[default]
    Refuse,
    /// The upstream gets the normal form. A path with an encoded slash or backslash has none, and is
    /// refused with 400.
    Normalise,
    /// The upstream gets the path as it was sent, if rules allow all [readings](PathReadings) of it.
    /// A path with segments `.` or `..` has no such readings, and is refused with 400.
    Pass,
}

/// A path that rules have judged.
#[derive(Clone, Copy, Debug)]
pub enum JudgedPath<'j> {
    /// A path that was judged by its normal form.
    Normal(&'j [u8]),
    /// A path that was judged by all its readings.
    Readings(&'j PathReadings),
}

impl JudgedPath<'_> {
    /// Whether either all readings of the path begin with this base, or none does.
    fn is_one_beneath(self, base: &Base) -> bool {
        match self {
            JudgedPath::Normal(_) => true,
            JudgedPath::Readings(readings) => {
                let mut are = readings.iter().map(|reading| base.has(reading));
                let first = are.next();
                are.all(|is| Some(is) == first)
            }
        }
    }
}

/// The beginning of paths: empty, or one or more whole segments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Base(Box<str>);

impl Base {
    /// Reads `/api` or `/api/`, decoded.
    ///
    /// # Errors
    /// [`BaseError`] if the text is no path, or has `.`, `..` or stars.
    pub fn parse(text: &str) -> Result<Base, BaseError> {
        let inside = text.strip_prefix('/').ok_or(BaseError)?;
        let inside = inside.strip_suffix('/').unwrap_or(inside);
        let is_name = |name: &str| !["", ".", ".."].contains(&name);
        let is_good = inside.split('/').all(is_name)
            && !inside.chars().any(|c| c.is_control() || ['\\', '*', '?', '#'].contains(&c));
        is_good.then(|| Base(format!("/{inside}").into())).ok_or(BaseError)
    }

    /// The base, decoded, without a slash at its end; may be empty.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the base is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a decoded path is the base or beneath it.
    fn has(&self, path: &[u8]) -> bool {
        let rest = path.strip_prefix(self.0.as_bytes());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    }

    /// The number of bytes of `raw`, a path as it is sent, that are this base.
    pub(crate) fn len_in(&self, raw: &[u8]) -> Option<usize> {
        let mut at = 0;
        for &wanted in self.0.as_bytes() {
            let (byte, len) = decoded(&raw[at..])?;
            if byte != wanted {
                return None;
            }
            at += len;
        }
        matches!(raw.get(at), None | Some(b'/')).then_some(at)
    }
}

impl fmt::Display for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The error for a text that is no base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BaseError;

impl fmt::Display for BaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a path below / is expected, without stars and dots")
    }
}

impl std::error::Error for BaseError {}

/// Why a request is not passed on. In all cases the client is to blame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetRefusal {
    /// The path can be read in more than one way, and that is refused; the text says how. 400.
    Ambiguous(&'static str),
    /// The method is not for a gateway: CONNECT, TRACE. 405.
    Method,
    /// `Max-Forwards` ends the request here, and this server answers it.
    LastHop,
    /// The destination of a COPY or MOVE does not belong to the application (RFC 4918 §9.8.5). 502.
    Elsewhere,
}

impl TargetRefusal {
    /// The status of the answer.
    pub fn status(self) -> u16 {
        match self {
            TargetRefusal::Ambiguous(_) => 400,
            TargetRefusal::Method => 405,
            TargetRefusal::LastHop => 200,
            TargetRefusal::Elsewhere => 502,
        }
    }

    /// The reason in a few words, for the client and the log.
    pub fn reason(self) -> &'static str {
        match self {
            TargetRefusal::Ambiguous(what) => what,
            TargetRefusal::Method => "This method is not passed on",
            TargetRefusal::LastHop => "The request ends here",
            TargetRefusal::Elsewhere => "The destination is not within this application",
        }
    }
}

const DETOUR: TargetRefusal =
    TargetRefusal::Ambiguous("The path has a detour: //, /./ or /../; see `ambiguous`");
const PARAMETER: TargetRefusal = TargetRefusal::Ambiguous("The path has a parameter behind dots");
const NOT_JUDGED: TargetRefusal =
    TargetRefusal::Ambiguous("The path can be read in more than one way; see `ambiguous`");
const NOT_STRIPPED: TargetRefusal = TargetRefusal::Ambiguous(
    "Not all readings of the path begin with what `strip` takes away; see `ambiguous`",
);
const HOST: TargetRefusal = TargetRefusal::Ambiguous(
    "Without what `strip` takes away the path could name a host; see `ambiguous`",
);

/// Checks that the path `raw`, as it came, cannot be read as anything else than its normal form,
/// which was judged.
///
/// # Errors
/// The path could be read in another way.
pub fn has_one_reading(raw: &[u8], normal: &[u8]) -> Result<(), TargetRefusal> {
    push(raw, JudgedPath::Normal(normal), Ambiguous::Refuse, &mut Vec::with_capacity(raw.len()))
}

/// Appends the path `raw`, as it came; `judged` is how rules have judged it.
pub(crate) fn push(
    raw: &[u8],
    judged: JudgedPath<'_>,
    ambiguous: Ambiguous,
    out: &mut Vec<u8>,
) -> Result<(), TargetRefusal> {
    let normal = match judged {
        JudgedPath::Normal(_) if ambiguous == Ambiguous::Pass && is_ambiguous(raw) => {
            return Err(NOT_JUDGED);
        }
        JudgedPath::Normal(normal) => normal,
        JudgedPath::Readings(readings) if ambiguous == Ambiguous::Pass => {
            if let Some(problem) = readings.problem() {
                return Err(TargetRefusal::Ambiguous(problem));
            }
            out.extend_from_slice(raw);
            return Ok(());
        }
        JudgedPath::Readings(_) => return Err(NOT_JUDGED),
    };
    if raw.split(|&b| b == b'/').any(has_dots_with_parameter) {
        return Err(PARAMETER);
    }
    if raw == normal {
        out.extend_from_slice(raw);
        return Ok(());
    }
    let begin = out.len();
    let mut rest = raw.strip_prefix(b"/").ok_or(NOT_JUDGED)?;
    out.push(b'/');
    loop {
        let end = rest.iter().position(|&b| b == b'/').unwrap_or(rest.len());
        let (segment, is_last) = (&rest[..end], end == rest.len());
        let dots = dots(segment);
        if ambiguous != Ambiguous::Normalise && (dots.is_some() || (segment.is_empty() && !is_last))
        {
            return Err(DETOUR);
        }
        match dots {
            Some(2) => up(begin, out)?,
            Some(_) => {}
            None if segment.is_empty() => {}
            None => {
                match ambiguous {
                    Ambiguous::Normalise => push_segment(segment, out),
                    Ambiguous::Refuse | Ambiguous::Pass => out.extend_from_slice(segment),
                }
                if !is_last {
                    out.push(b'/');
                }
            }
        }
        if is_last {
            break;
        }
        rest = &rest[end + 1..];
    }
    // normalised once more by the code that rules use: whatever was done above, only what was judged is sent
    is_judged(&out[begin..], normal)
}

/// Appends a path that a rule has made, in its normal form.
pub(crate) fn push_made(made: &[u8], out: &mut Vec<u8>) -> Result<(), TargetRefusal> {
    let begin = out.len();
    path::encode(made, out);
    if out[begin..].split(|&b| b == b'/').any(has_dots_with_parameter) {
        return Err(PARAMETER);
    }
    is_judged(&out[begin..], made)
}

/// Checks that the path that is about to be sent is the one that was judged.
fn is_judged(sent: &[u8], normal: &[u8]) -> Result<(), TargetRefusal> {
    let mut again = Vec::with_capacity(normal.len());
    match path::normalise(sent, &mut again) {
        Ok(()) if again == normal => Ok(()),
        _ => Err(NOT_JUDGED),
    }
}

/// Replaces the beginning `strip` of the path at the end of `out` by `prefix`. Returns whether the
/// path begins with `strip`.
pub(crate) fn rebase(
    begin: usize,
    judged: JudgedPath<'_>,
    (strip, prefix): (&Base, &Base),
    out: &mut Vec<u8>,
) -> Result<bool, TargetRefusal> {
    if !judged.is_one_beneath(strip) {
        return Err(NOT_STRIPPED);
    }
    let Some(len) = strip.len_in(&out[begin..]) else { return Ok(false) };
    let rest = &out[begin + len..];
    let may_be_host = !strip.is_empty() && prefix.is_empty() && rest.starts_with(b"//");
    if may_be_host && rest[2..].contains(&b'/') {
        return Err(HOST);
    }
    let mut base = Vec::with_capacity(prefix.as_str().len());
    path::encode(prefix.as_str().as_bytes(), &mut base);
    if base.is_empty() && begin + len == out.len() {
        base.push(b'/');
    }
    out.splice(begin..begin + len, base);
    Ok(true)
}

/// Removes the last segment.
fn up(begin: usize, out: &mut Vec<u8>) -> Result<(), TargetRefusal> {
    let parent = out[begin..out.len() - 1].iter().rposition(|&b| b == b'/');
    out.truncate(begin + parent.ok_or(NOT_JUDGED)? + 1);
    Ok(())
}

/// The first byte of `raw`, which may be percent-encoded, and the length of its encoding.
fn decoded(raw: &[u8]) -> Option<(u8, usize)> {
    let digit = |at: usize| char::from(*raw.get(at)?).to_digit(16);
    match *raw.first()? {
        b'%' => {
            let value = digit(1)? << 4 | digit(2)?;
            Some((u8::try_from(value).ok()?, 3))
        }
        byte => Some((byte, 1)),
    }
}

/// The number of dots of a segment that is `.` or `..`, encoded or not.
fn dots(segment: &[u8]) -> Option<usize> {
    let (count, rest) = leading_dots(segment);
    (rest.is_empty() && (1..=2).contains(&count)).then_some(count)
}

/// Whether a segment is dots with a parameter. Some applications ignore what follows a semicolon in a
/// segment: `..;x` is `..` for them.
fn has_dots_with_parameter(segment: &[u8]) -> bool {
    let (count, rest) = leading_dots(segment);
    (1..=2).contains(&count) && decoded(rest).is_some_and(|(byte, _)| byte == b';')
}

fn leading_dots(segment: &[u8]) -> (usize, &[u8]) {
    let (mut count, mut rest) = (0, segment);
    while let Some((b'.', len)) = decoded(rest) {
        (count, rest) = (count + 1, &rest[len..]);
    }
    (count, rest)
}

/// Appends a segment in its normal form (RFC 3986 §6.2.2): characters that need no encoding are
/// decoded, those that need one are encoded, and those that mean something else when they are encoded
/// stay as they are.
fn push_segment(segment: &[u8], out: &mut Vec<u8>) {
    let mut rest = segment;
    while let Some((byte, len)) = decoded(rest) {
        let is_unreserved = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        let may_stand = is_unreserved || (len == 1 && b"!$&'()*+,;=:@".contains(&byte));
        match may_stand {
            true => out.push(byte),
            false => {
                const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
                let (high, low) = (usize::from(byte >> 4), usize::from(byte & 15));
                out.extend_from_slice(&[b'%', DIGITS[high], DIGITS[low]]);
            }
        }
        rest = &rest[len..];
    }
    // an invalid encoding has no normal form, and was refused before
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The path that an upstream is asked for, if the path can be judged at all.
    fn sent(raw: &str, ambiguous: Ambiguous) -> Result<String, u16> {
        let mut normal = Vec::new();
        path::normalise(raw.as_bytes(), &mut normal).map_err(|error| error.status())?;
        let mut out = b"GET ".to_vec();
        push(raw.as_bytes(), JudgedPath::Normal(&normal), ambiguous, &mut out)
            .map_err(TargetRefusal::status)?;
        Ok(String::from_utf8(out[4..].to_vec()).unwrap())
    }

    #[test]
    fn what_is_not_ambiguous_is_sent_as_it_came() {
        for raw in
            ["/", "/a/b.c", "/a/", "/a%20b/%C3%BC", "/%41%2e%2Ehtml", "/a;x=1/b", "/%3b", "/..."]
        {
            assert_eq!(sent(raw, Ambiguous::Refuse).as_deref(), Ok(raw));
        }
    }

    #[test]
    fn detours_are_refused_or_taken_out() {
        for (raw, normal) in [
            ("//", "/"),
            ("//a//b", "/a/b"),
            ("/a/./b/.", "/a/b/"),
            ("/a/../b", "/b"),
            ("/a/b/..", "/a/"),
            ("/a/%2e%2E/b", "/b"),
            ("/a/.%2e/%41", "/A"),
            ("/x/..//%7euser/%c3%bc%3f", "/~user/%C3%BC%3F"),
            ("/a//b%3Bc;d", "/a/b%3Bc;d"),
        ] {
            assert_eq!(sent(raw, Ambiguous::Refuse), Err(400), "{raw}");
            assert_eq!(sent(raw, Ambiguous::Normalise).as_deref(), Ok(normal), "{raw}");
        }
    }

    #[test]
    fn what_no_rule_could_judge_is_never_sent() {
        for raw in [
            "/a%2fb",
            "/a%2Fb",
            "/a%5cb",
            "/a\\b",
            "/a%00",
            "/a/../..",
            "/%",
            "/%zz",
            "/..;/x",
            "/a/..;x=1/b",
            "/a/%2e%2e%3bx/b",
            "/.;/x",
            "/a/..;",
        ] {
            for ambiguous in [Ambiguous::Refuse, Ambiguous::Normalise] {
                assert!(sent(raw, ambiguous).is_err(), "{raw}");
            }
        }
    }

    #[test]
    fn paths_are_moved_by_whole_segments() {
        for (path, strip, prefix, expected) in [
            ("/api/a", "/api", "", "/a"),
            ("/api", "/api", "", "/"),
            ("/api/", "/api", "", "/"),
            ("/api", "/api", "/v1", "/v1"),
            ("/api/a", "/api", "/v 1/x", "/v%201/x/a"),
            ("/%61pi/%2e%2e", "/api", "", "/%2e%2e"),
            ("/apis/a", "/api", "", "/apis/a"),
            ("/a", "", "/v1", "/v1/a"),
            ("/", "", "/v1", "/v1/"),
            ("/a b", "", "", "/a b"),
        ] {
            let base = |text: &str| match text {
                "" => Base::default(),
                text => Base::parse(text).unwrap(),
            };
            let mut out = format!("GET {path}").into_bytes();
            let judged = JudgedPath::Normal(b"");
            rebase(4, judged, (&base(strip), &base(prefix)), &mut out).unwrap();
            assert_eq!(
                String::from_utf8(out).unwrap(),
                format!("GET {expected}"),
                "{path} {strip}"
            );
        }
        for text in ["", "/", "api", "/a//b", "/a/..", "/a*", "/a?b", "//"] {
            assert_eq!(Base::parse(text), Err(BaseError), "{text}");
        }
    }

    #[test]
    fn what_was_judged_in_all_readings_is_sent_as_it_came() {
        let sent = |raw: &str, strip: &str| {
            let readings = PathReadings::of(raw.as_bytes()).unwrap();
            let judged = JudgedPath::Readings(&readings);
            let mut out = Vec::new();
            push(raw.as_bytes(), judged, Ambiguous::Pass, &mut out)?;
            let strip = Base::parse(strip).unwrap_or_default();
            rebase(0, judged, (&strip, &Base::default()), &mut out)?;
            Ok::<_, TargetRefusal>(String::from_utf8(out).unwrap())
        };
        for (raw, strip, expected) in [
            ("/@acme%2ftool", "", "/@acme%2ftool"),
            ("/web/2020/http://example.com/", "", "/web/2020/http://example.com/"),
            ("/a%5cb%20", "", "/a%5cb%20"),
            ("/api/a%2Fb//c", "/api", "/a%2Fb//c"),
            ("/x/a%2Fb", "/api", "/x/a%2Fb"),
            ("/api//x", "/api", "//x"),
        ] {
            assert_eq!(sent(raw, strip).as_deref(), Ok(expected));
        }
        for (raw, strip) in [
            ("/a/..%2Fb", ""),
            ("/a//../b", ""),
            ("/api%2Fx", "/api"),
            ("//api/x", "/api"),
            ("/a%2Fb/c", "/a/b"),
            ("/api//host/admin", "/api"),
        ] {
            assert!(matches!(sent(raw, strip), Err(TargetRefusal::Ambiguous(_))), "{raw}");
        }
        let mut out = Vec::new();
        let normal = JudgedPath::Normal(b"/a/b");
        assert!(push(b"/a//b", normal, Ambiguous::Pass, &mut out).is_err(), "not in all");
        assert_eq!(push(b"/a/%62", normal, Ambiguous::Pass, &mut out), Ok(()));
        assert!(push(b"/a/./b", normal, Ambiguous::Pass, &mut out).is_err());
    }

    proptest! {
        /// For all paths: an application that decodes what is sent, as often as a URI is decoded,
        /// finds what was judged.
        #[test]
        fn what_is_sent_is_what_was_judged(
            raw in prop_oneof![
                "/[a%/.;2eEfF5cC\\\\]{0,14}",
                "(/(a|%41|%2e|[.]|%2f|%5c|;|%3b|%25|%C3%BC|ü|~|%7E|\\[)?(b|[.])?){1,6}",
            ],
            normalise in any::<bool>(),
        ) {
            let mut normal = Vec::new();
            prop_assume!(path::normalise(raw.as_bytes(), &mut normal).is_ok());
            let ambiguous = if normalise { Ambiguous::Normalise } else { Ambiguous::Refuse };
            let mut out = Vec::new();
            if push(raw.as_bytes(), JudgedPath::Normal(&normal), ambiguous, &mut out).is_ok() {
                let mut again = Vec::new();
                prop_assert_eq!(path::normalise(&out, &mut again), Ok(()));
                prop_assert_eq!(&again, &normal, "{} became {}", raw, String::from_utf8_lossy(&out));
                let mut segments = out[1..].split(|&b| b == b'/').rev();
                prop_assert!(segments.next().is_some_and(|last| dots(last).is_none()));
                prop_assert!(segments.all(|one| !one.is_empty() && dots(one).is_none()));
                if !normalise {
                    prop_assert_eq!(&out, raw.as_bytes());
                }
            }
        }

        /// For all paths that a rule makes: the application finds the path as it was made.
        #[test]
        fn what_was_made_is_sent(made in "/[a-c%/.;? \\\\ü]{0,10}") {
            let mut out = Vec::new();
            if push_made(made.as_bytes(), &mut out).is_ok() {
                let mut again = Vec::new();
                prop_assert_eq!(path::normalise(&out, &mut again), Ok(()));
                prop_assert_eq!(again, made.as_bytes());
                prop_assert!(out.is_ascii());
            }
        }
    }
}
