//! Names of fields that mean something between here and an upstream.

use forebay_http::field::byte_of_variable;
pub(crate) use forebay_http::field::is_same;

/// What becomes of a client's field on its way to an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldKind {
    /// It is passed on.
    Plain,
    /// It is about the connection, or written anew.
    Own,
    /// It says which client a proxy speaks for, and is believed only from proxies that are trusted.
    Forwarding(Forwarding),
    /// `Cookie`: all of them are one.
    Cookie,
    /// `Max-Forwards`
    MaxForwards,
    /// `Trailer`
    Trailer,
    /// Where the request stands in a trace: passed on as it came, or told by this server, which stands there itself.
    Trace,
}

/// What proxies say about the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forwarding {
    /// `Forwarded`
    Forwarded,
    /// `X-Forwarded-For`
    For,
    /// `X-Forwarded-Proto`
    Proto,
    /// `X-Forwarded-Host`
    Host,
    /// `X-Forwarded-Port`
    Port,
    /// `X-Forwarded-Prefix`
    Prefix,
    /// `X-Real-IP`
    RealIp,
    /// `X-Request-Id`
    RequestId,
    /// Others of their family, which are passed on as they are.
    Other,
    /// What was asked for, which is passed on as it is.
    Url,
}

/// The longest of the names that are known.
const LONGEST: usize = 20;

/// What becomes of a field with this name, however it is spelt.
pub(crate) fn kind(name: &str) -> FieldKind {
    let mut buffer = [0u8; LONGEST];
    let len = name.len().min(LONGEST);
    let mut is_spelt_otherwise = false;
    for (place, byte) in buffer.iter_mut().zip(name.bytes()) {
        *place = byte_of_variable(byte);
        is_spelt_otherwise |= *place == b'-' && byte != b'-';
    }
    let begins = &buffer[..len];
    let name = if name.len() <= LONGEST { begins } else { b"" };
    use Forwarding as F;
    let kind = match name {
        b"te" | b"host" | b"proxy" | b"expect" | b"upgrade" | b"connection" | b"keep-alive" => {
            FieldKind::Own
        }
        b"content-length" | b"transfer-encoding" | b"http2-settings" => FieldKind::Own,
        // what stages say to one another
        b"forebay-attempt" | b"forebay-class" | b"forebay-local" | b"forebay-overload"
        | b"forebay-port" | b"forebay-sent" | b"forebay-tunnel" => FieldKind::Own,
        b"cookie" => FieldKind::Cookie,
        b"trailer" => FieldKind::Trailer,
        b"traceparent" | b"tracestate" => FieldKind::Trace,
        b"max-forwards" => FieldKind::MaxForwards,
        b"forwarded" => FieldKind::Forwarding(F::Forwarded),
        b"x-real-ip" => FieldKind::Forwarding(F::RealIp),
        b"x-request-id" => FieldKind::Forwarding(F::RequestId),
        b"x-forwarded-for" => FieldKind::Forwarding(F::For),
        b"x-forwarded-proto" => FieldKind::Forwarding(F::Proto),
        b"x-forwarded-host" => FieldKind::Forwarding(F::Host),
        b"x-forwarded-port" => FieldKind::Forwarding(F::Port),
        b"x-forwarded-prefix" => FieldKind::Forwarding(F::Prefix),
        // some applications believe these more than the target
        b"x-original-url" | b"x-rewrite-url" => FieldKind::Forwarding(F::Url),
        b"x-forwarded" => FieldKind::Forwarding(F::Other),
        _ if begins.starts_with(b"x-forwarded-") => FieldKind::Forwarding(F::Other),
        _ if begins.starts_with(b"proxy-") => FieldKind::Own,
        _ => FieldKind::Plain,
    };
    // not the field itself, only what some take for it
    if is_spelt_otherwise && kind != FieldKind::Plain { FieldKind::Own } else { kind }
}

/// Whether a person may set or remove this field of requests: what frames a message, or is about its
/// connection, is not theirs.
pub fn is_own(name: &str) -> bool {
    matches!(kind(name), FieldKind::Own | FieldKind::Trailer | FieldKind::MaxForwards)
        && !is_same(name, "proxy")
}

/// Whether a field says which client a proxy speaks for, or how it calls a request: these are put
/// together here.
pub fn is_forwarding(name: &str) -> bool {
    matches!(kind(name), FieldKind::Forwarding(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_in_any_case() {
        for (name, expected) in [
            ("Host", FieldKind::Own),
            ("TE", FieldKind::Own),
            ("pRoXy", FieldKind::Own),
            ("Proxy-Authorization", FieldKind::Own),
            ("Proxy-Something-Very-Long-Indeed", FieldKind::Own),
            ("Transfer-Encoding", FieldKind::Own),
            ("Transfer_Encoding", FieldKind::Own),
            ("COOKIE", FieldKind::Cookie),
            ("X-Forwarded-For", FieldKind::Forwarding(Forwarding::For)),
            ("X_Forwarded-For", FieldKind::Own),
            ("x-forwarded-anything-at-all-that-is-long", FieldKind::Forwarding(Forwarding::Other)),
            ("x_forwarded_anything-at-all-that-is-long", FieldKind::Own),
            ("X-Request-ID", FieldKind::Forwarding(Forwarding::RequestId)),
            ("X.Forwarded.For", FieldKind::Own),
            ("X-Real~IP", FieldKind::Own),
            ("Proxy.Authorization", FieldKind::Own),
            ("X_Custom", FieldKind::Plain),
            ("X.Custom", FieldKind::Plain),
            ("Accept", FieldKind::Plain),
            ("Hosts", FieldKind::Plain),
            ("Content-Length-Of-Something", FieldKind::Plain),
            ("", FieldKind::Plain),
        ] {
            assert_eq!(kind(name), expected, "{name}");
        }
        assert!(is_same("X_User", "x-user") && !is_same("X-User", "X-Users"));
        assert!(is_own("Content-Length") && is_own("host") && !is_own("X-Forwarded-For"));
    }
}
