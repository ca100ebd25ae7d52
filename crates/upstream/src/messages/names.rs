//! Names of fields that have a meaning between this server and an upstream.

use forebay_http::field::byte_of_variable;
pub(crate) use forebay_http::field::is_same;

/// How a client's field is treated on its way to an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldKind {
    /// Passed on.
    Plain,
    /// Left out: the field is about the connection, or written anew.
    Own,
    /// Names the client for which a proxy speaks; believed only from trusted proxies.
    Forwarding(Forwarding),
    /// `Cookie`, whose fields are joined to one.
    Cookie,
    /// `Max-Forwards`
    MaxForwards,
    /// `Trailer`
    Trailer,
    /// The position of the request in a trace: passed on as it came, or replaced if this server takes
    /// part in the trace.
    Trace,
}

/// The fields in which proxies describe the client.
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
    /// Other fields whose names begin like these, which are passed on as they are.
    Other,
    /// The URL that was asked for, which is passed on as it is.
    Url,
}

/// The length of the longest known name.
const LONGEST: usize = 20;

/// How a field of this name is treated, in upper or lower case.
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
        // fields between stages of this server
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
        // some applications prefer these to the target
        b"x-original-url" | b"x-rewrite-url" => FieldKind::Forwarding(F::Url),
        b"x-forwarded" => FieldKind::Forwarding(F::Other),
        _ if begins.starts_with(b"x-forwarded-") => FieldKind::Forwarding(F::Other),
        _ if begins.starts_with(b"proxy-") => FieldKind::Own,
        _ => FieldKind::Plain,
    };
    // the name only looks like a known field, which some applications take it for: it is left out
    if is_spelt_otherwise && kind != FieldKind::Plain { FieldKind::Own } else { kind }
}

/// Whether an operator may not set or remove this field of requests, because it frames the message or
/// is about its connection.
pub fn is_own(name: &str) -> bool {
    matches!(kind(name), FieldKind::Own | FieldKind::Trailer | FieldKind::MaxForwards)
        && !is_same(name, "proxy")
}

/// Whether a field describes the client for which a proxy speaks, or names the request: this server
/// writes such fields itself.
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
