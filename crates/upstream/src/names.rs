//! Names of fields that mean something between here and an upstream.

/// What becomes of a client's field on its way to an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
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
}

/// What proxies say about the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
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
    /// `X-Real-IP`
    RealIp,
    /// `X-Request-Id`
    RequestId,
    /// Others, which are passed on as they are.
    Other,
}

/// The longest of the names that are known.
const LONGEST: usize = 20;

/// What becomes of a field with this name. An application that hands names on as variables (CGI, WSGI,
/// Rack) takes `X_Real_IP` for `X-Real-IP`: so does this.
pub(crate) fn kind(name: &str) -> Kind {
    let mut room = [0u8; LONGEST];
    let len = name.len().min(LONGEST);
    let mut has_underscore = false;
    for (place, byte) in room.iter_mut().zip(name.bytes()) {
        has_underscore |= byte == b'_';
        *place = if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    }
    let begins = &room[..len];
    let name = if name.len() <= LONGEST { begins } else { b"" };
    use Forwarding as F;
    let kind = match name {
        b"te" | b"host" | b"proxy" | b"expect" | b"upgrade" | b"connection" | b"keep-alive" => {
            Kind::Own
        }
        b"content-length" | b"transfer-encoding" | b"http2-settings" => Kind::Own,
        // what stages say to one another
        b"forebay-attempt" | b"forebay-local" | b"forebay-tunnel" => Kind::Own,
        b"cookie" => Kind::Cookie,
        b"trailer" => Kind::Trailer,
        b"max-forwards" => Kind::MaxForwards,
        b"forwarded" => Kind::Forwarding(F::Forwarded),
        b"x-real-ip" => Kind::Forwarding(F::RealIp),
        b"x-request-id" => Kind::Forwarding(F::RequestId),
        b"x-forwarded-for" => Kind::Forwarding(F::For),
        b"x-forwarded-proto" => Kind::Forwarding(F::Proto),
        b"x-forwarded-host" => Kind::Forwarding(F::Host),
        b"x-forwarded-port" => Kind::Forwarding(F::Port),
        // some applications believe these more than the target
        b"x-forwarded" | b"x-original-url" | b"x-rewrite-url" => Kind::Forwarding(F::Other),
        _ if begins.starts_with(b"x-forwarded-") => Kind::Forwarding(F::Other),
        _ if begins.starts_with(b"proxy-") => Kind::Own,
        _ => Kind::Plain,
    };
    // not the field itself, only what some take for it
    if has_underscore && kind != Kind::Plain { Kind::Own } else { kind }
}

/// Whether two names are one for an application that hands them on as variables.
pub(crate) fn is_same(one: &str, other: &str) -> bool {
    let plain = |byte: u8| if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    one.len() == other.len() && one.bytes().map(plain).eq(other.bytes().map(plain))
}

/// Whether a person may set or remove this field of requests: what frames a message, or is about its
/// connection, is not theirs.
pub fn is_own(name: &str) -> bool {
    matches!(kind(name), Kind::Own | Kind::Trailer | Kind::MaxForwards) && !is_same(name, "proxy")
}

/// Whether a field says which client a proxy speaks for, or how it calls a request: these are put
/// together here.
pub fn is_forwarding(name: &str) -> bool {
    matches!(kind(name), Kind::Forwarding(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_in_any_case() {
        for (name, expected) in [
            ("Host", Kind::Own),
            ("TE", Kind::Own),
            ("pRoXy", Kind::Own),
            ("Proxy-Authorization", Kind::Own),
            ("Proxy-Something-Very-Long-Indeed", Kind::Own),
            ("Transfer-Encoding", Kind::Own),
            ("Transfer_Encoding", Kind::Own),
            ("COOKIE", Kind::Cookie),
            ("X-Forwarded-For", Kind::Forwarding(Forwarding::For)),
            ("X_Forwarded-For", Kind::Own),
            ("x-forwarded-anything-at-all-that-is-long", Kind::Forwarding(Forwarding::Other)),
            ("x_forwarded_anything-at-all-that-is-long", Kind::Own),
            ("X-Request-ID", Kind::Forwarding(Forwarding::RequestId)),
            ("X_Custom", Kind::Plain),
            ("Accept", Kind::Plain),
            ("Hosts", Kind::Plain),
            ("Content-Length-Of-Something", Kind::Plain),
            ("", Kind::Plain),
        ] {
            assert_eq!(kind(name), expected, "{name}");
        }
        assert!(is_same("X_User", "x-user") && !is_same("X-User", "X-Users"));
        assert!(is_own("Content-Length") && is_own("host") && !is_own("X-Forwarded-For"));
    }
}
