//! The names of the fields that the server looks at.

/// A field that the server looks at. [`Head::parse`](super::Head::parse) notes which of them are
/// present, so that asking for an absent one costs a bit test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Name {
    Host,
    Connection,
    KeepAlive,
    ContentLength,
    TransferEncoding,
    Expect,
    Upgrade,
    AcceptEncoding,
    Accept,
    Range,
    IfRange,
    IfMatch,
    IfNoneMatch,
    IfModifiedSince,
    IfUnmodifiedSince,
    UserAgent,
    Referer,
    Cookie,
    Authorization,
    XForwardedFor,
    XForwardedProto,
    Forwarded,
}

pub(super) const NAMES: [(Name, &str); 22] = [
    (Name::Host, "host"),
    (Name::Connection, "connection"),
    (Name::KeepAlive, "keep-alive"),
    (Name::ContentLength, "content-length"),
    (Name::TransferEncoding, "transfer-encoding"),
    (Name::Expect, "expect"),
    (Name::Upgrade, "upgrade"),
    (Name::AcceptEncoding, "accept-encoding"),
    (Name::Accept, "accept"),
    (Name::Range, "range"),
    (Name::IfRange, "if-range"),
    (Name::IfMatch, "if-match"),
    (Name::IfNoneMatch, "if-none-match"),
    (Name::IfModifiedSince, "if-modified-since"),
    (Name::IfUnmodifiedSince, "if-unmodified-since"),
    (Name::UserAgent, "user-agent"),
    (Name::Referer, "referer"),
    (Name::Cookie, "cookie"),
    (Name::Authorization, "authorization"),
    (Name::XForwardedFor, "x-forwarded-for"),
    (Name::XForwardedProto, "x-forwarded-proto"),
    (Name::Forwarded, "forwarded"),
];

impl Name {
    /// The field's name in lower case.
    pub fn as_str(self) -> &'static str {
        NAMES[self as usize].1
    }

    /// The known name that is `text` in any case.
    pub(super) fn known(text: &str) -> Option<Name> {
        let mut alike = Name::of_length(text.len()).iter().copied();
        alike.find(|name| name.as_str().eq_ignore_ascii_case(text))
    }

    /// The known name that is `text`, which is in lower case.
    pub(super) fn known_lower(text: &str) -> Option<Name> {
        Name::of_length(text.len()).iter().copied().find(|name| name.as_str() == text)
    }

    /// The known names of this length.
    fn of_length(len: usize) -> &'static [Name] {
        match len {
            4 => &[Name::Host],
            5 => &[Name::Range],
            6 => &[Name::Accept, Name::Cookie, Name::Expect],
            7 => &[Name::Referer, Name::Upgrade],
            8 => &[Name::IfRange, Name::IfMatch],
            9 => &[Name::Forwarded],
            10 => &[Name::Connection, Name::UserAgent, Name::KeepAlive],
            13 => &[Name::IfNoneMatch, Name::Authorization],
            14 => &[Name::ContentLength],
            15 => &[Name::AcceptEncoding, Name::XForwardedFor],
            17 => &[Name::IfModifiedSince, Name::TransferEncoding, Name::XForwardedProto],
            19 => &[Name::IfUnmodifiedSince],
            _ => &[],
        }
    }
}
