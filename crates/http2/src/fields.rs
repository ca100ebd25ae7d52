//! The fields of one message, in an arena that its owner uses again for the next.

use crate::known_names::KnownName;
use std::ops::Range;

/// The size that a field counts besides its bytes (SETTINGS_MAX_HEADER_LIST_SIZE, RFC 9113 §6.5.2).
pub const FIELD_BYTES: usize = 32;

/// The memory kept from one message to the next, in bytes of names and of values; for fields it is a
/// sixteenth of that number of fields. What a large message needed beyond it is freed.
const KEPT_BYTES: usize = 32 * 1024;

/// The largest size of a message's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldLimits {
    /// The number of bytes of all fields: names, values and [`FIELD_BYTES`] each.
    pub bytes: usize,
    /// The number of fields, not counting pseudo-fields and the further parts of a split cookie.
    pub fields: usize,
}

/// The kind of message to which the fields belong, which decides what they may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MessageKind {
    /// The head of a request.
    #[default]
    Request,
    /// The head of a response.
    Response,
    /// The trailers after a body.
    Trailers,
}

/// The position of a text in its buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The index of its first byte.
    pub start: u32,
    /// The index after its last byte.
    pub end: u32,
}

impl Span {
    /// The span as a range.
    #[inline]
    pub fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    fn until(start: usize, end: usize) -> Span {
        Span { start: start as u32, end: end as u32 }
    }
}

/// A field; pseudo-fields are kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The position of the name in [`DecodedFields::names`].
    pub name: Span,
    /// The position of the value in [`DecodedFields::values`].
    pub value: Span,
    /// The number of the name, if it is a known one.
    pub known: KnownName,
}

/// The fields of the message decoded last.
///
/// A loop, thread or fiber owns this and lends it to every connection.
#[derive(Debug)]
pub struct DecodedFields {
    names: Vec<u8>,
    values: Vec<u8>,
    list: Vec<Field>,
    limits: FieldLimits,
    message: MessageKind,
    /// The beginning of the field that is being added.
    name_start: usize,
    value_start: usize,
    /// Pseudo-fields, in the order of [`Pseudo`].
    pseudo: [Option<Span>; 6],
    content_length: Option<u64>,
    priority: Option<Span>,
    host: Option<Span>,
    cookies: usize,
    /// The size that counts against the limits.
    bytes: usize,
    is_over: bool,
    fault: Option<&'static str>,
}

#[derive(Clone, Copy)]
enum Pseudo {
    Method,
    Scheme,
    Authority,
    Path,
    Status,
    Protocol,
}

/// The place where the next field is written.
pub(crate) struct FieldSpace<'f> {
    pub(crate) names: &'f mut Vec<u8>,
    pub(crate) values: &'f mut Vec<u8>,
    pub(crate) name_start: usize,
    pub(crate) value_start: usize,
}

impl Default for DecodedFields {
    fn default() -> DecodedFields {
        DecodedFields {
            names: Vec::new(),
            values: Vec::new(),
            list: Vec::new(),
            limits: FieldLimits { bytes: usize::MAX, fields: usize::MAX },
            message: MessageKind::Request,
            name_start: 0,
            value_start: 0,
            pseudo: [None; 6],
            content_length: None,
            priority: None,
            host: None,
            cookies: 0,
            bytes: 0,
            is_over: false,
            fault: None,
        }
    }
}

impl DecodedFields {
    /// Removes the last message; the next one is of this kind and has these limits.
    pub fn reset(&mut self, message: MessageKind, limits: FieldLimits) {
        self.names.clear();
        self.values.clear();
        self.list.clear();
        self.names.shrink_to(KEPT_BYTES);
        self.values.shrink_to(KEPT_BYTES);
        self.list.shrink_to(KEPT_BYTES / 16);
        (self.limits, self.message, self.pseudo) = (limits, message, [None; 6]);
        (self.content_length, self.priority, self.host, self.fault) = (None, None, None, None);
        (self.cookies, self.bytes, self.is_over) = (0, 0, false);
    }

    /// All names, to which the [spans](Field::name) refer. They are ASCII, which is checked at each call.
    pub fn names(&self) -> &str {
        // names that are not tokens are not kept
        std::str::from_utf8(&self.names).unwrap_or_default()
    }

    /// All values, to which the spans of values refer.
    pub fn values(&self) -> &[u8] {
        &self.values
    }

    /// The fields in their order. A cookie that came in parts is one field (RFC 9113 §8.2.3).
    pub fn list(&self) -> &[Field] {
        &self.list
    }

    /// The name and value of each field.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&[u8], &[u8])> + Clone {
        self.list
            .iter()
            .map(|field| (&self.names[field.name.range()], &self.values[field.value.range()]))
    }

    /// The value of the first field with this name.
    pub fn first(&self, name: KnownName) -> Option<&[u8]> {
        let field = self.list.iter().find(|field| field.known == name)?;
        Some(&self.values[field.value.range()])
    }

    /// `:method`; empty if there is none.
    pub fn method(&self) -> &[u8] {
        self.value(Pseudo::Method)
    }

    /// `:scheme`; empty if there is none.
    pub fn scheme(&self) -> &[u8] {
        self.value(Pseudo::Scheme)
    }

    /// `:authority`, or `host` where there is none; empty if there is neither.
    pub fn authority(&self) -> &[u8] {
        match (self.pseudo[Pseudo::Authority as usize], self.host) {
            (Some(span), _) | (None, Some(span)) => &self.values[span.range()],
            (None, None) => b"",
        }
    }

    /// `:path`; empty if there is none.
    pub fn path(&self) -> &[u8] {
        self.value(Pseudo::Path)
    }

    /// `:protocol`, which only an extended CONNECT has (RFC 8441 §4).
    pub fn protocol(&self) -> Option<&[u8]> {
        self.pseudo[Pseudo::Protocol as usize].map(|span| &self.values[span.range()])
    }

    /// `:status`; 0 if there is none, or it is not a number of three digits.
    pub fn status(&self) -> u16 {
        match *self.value(Pseudo::Status) {
            [a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9'] => {
                [a, b, c].into_iter().fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0'))
            }
            _ => 0,
        }
    }

    /// `content-length`, if there is one.
    pub fn content_length(&self) -> Option<u64> {
        self.content_length
    }

    /// `priority` (RFC 9218); empty if there is none.
    pub fn priority(&self) -> &[u8] {
        self.priority.map_or(b"", |span| &self.values[span.range()])
    }

    /// Whether the message was larger than allowed; then not all of it is here.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// The reason why the message is malformed (RFC 9113 §8.1.1); `None` if it may be served.
    pub fn fault(&self) -> Option<&'static str> {
        self.fault
    }

    fn value(&self, pseudo: Pseudo) -> &[u8] {
        self.pseudo[pseudo as usize].map_or(b"", |span| &self.values[span.range()])
    }

    /// Whether a field of `len` bytes still fits. If not, it is counted and need not be added.
    #[inline]
    pub(crate) fn has_room(&mut self, len: usize) -> bool {
        let bytes = self.bytes.saturating_add(len + FIELD_BYTES);
        if bytes > self.limits.bytes {
            self.bytes = bytes;
            self.is_over = true;
        }
        !self.is_over
    }

    /// The place for a field; what is written there becomes a field by [`add`](DecodedFields::add).
    #[inline]
    pub(crate) fn begin(&mut self) -> FieldSpace<'_> {
        (self.name_start, self.value_start) = (self.names.len(), self.values.len());
        FieldSpace {
            name_start: self.name_start,
            value_start: self.value_start,
            names: &mut self.names,
            values: &mut self.values,
        }
    }

    /// Adds what was written to the [place](DecodedFields::begin) as a field with this name, whose text may
    /// be missing for a pseudo-field; `is_faulty` if the name or the value is not allowed in a field.
    #[inline]
    pub(crate) fn add(&mut self, known: KnownName, is_faulty: bool) {
        let name = Span::until(self.name_start, self.names.len());
        let value = Span::until(self.value_start, self.values.len());
        let name_len = match (name.end - name.start) as usize {
            0 => known.as_str().map_or(0, str::len),
            len => len,
        };
        let len = name_len + (value.end - value.start) as usize;
        if !self.has_room(len) {
            return self.drop_last();
        }
        self.bytes += len + FIELD_BYTES;
        if is_faulty {
            self.blame("a field's name or value has a byte that none may have");
            return self.drop_last();
        }
        if known == KnownName::OTHER {
            return self.push(Field { name, value, known });
        }
        self.add_known(Field { name, value, known });
    }

    fn add_known(&mut self, field: Field) {
        match field.known {
            KnownName::METHOD => self.add_pseudo(Pseudo::Method, field.value),
            KnownName::SCHEME => self.add_pseudo(Pseudo::Scheme, field.value),
            KnownName::AUTHORITY => self.add_pseudo(Pseudo::Authority, field.value),
            KnownName::PATH => self.add_pseudo(Pseudo::Path, field.value),
            KnownName::STATUS => self.add_pseudo(Pseudo::Status, field.value),
            KnownName::PROTOCOL => self.add_pseudo(Pseudo::Protocol, field.value),
            known if known.is_of_connection() => {
                self.blame("a field speaks about the connection, which HTTP/2 does not allow");
            }
            KnownName::TE
                if !self.values[field.value.range()].eq_ignore_ascii_case(b"trailers") =>
            {
                self.blame("te is not trailers");
            }
            KnownName::CONTENT_LENGTH => {
                self.add_length(field.value);
                self.push(field);
            }
            KnownName::COOKIE => {
                self.cookies += 1;
                self.push(field);
            }
            KnownName::HOST => {
                if self.host.replace(field.value).is_some() {
                    self.blame("host is repeated");
                }
                self.push(field);
            }
            KnownName::PRIORITY => {
                self.priority = Some(field.value);
                self.push(field);
            }
            _ => self.push(field),
        }
    }

    #[inline]
    fn push(&mut self, field: Field) {
        // further parts of a cookie are joined with the first
        if self.list.len() - self.cookies.saturating_sub(1) >= self.limits.fields {
            self.is_over = true;
            return;
        }
        self.list.push(field);
    }

    fn drop_last(&mut self) {
        self.names.truncate(self.name_start);
        self.values.truncate(self.value_start);
    }

    fn blame(&mut self, what: &'static str) {
        self.fault.get_or_insert(what);
    }

    /// Adds a pseudo-field. By RFC 9113 §8.3 these come before all others, each at most once, and only those
    /// that the message may have.
    fn add_pseudo(&mut self, pseudo: Pseudo, value: Span) {
        let is_allowed = match self.message {
            MessageKind::Request => !matches!(pseudo, Pseudo::Status),
            MessageKind::Response => matches!(pseudo, Pseudo::Status),
            MessageKind::Trailers => false,
        };
        if !is_allowed {
            return self.blame("a pseudo-field may not be in this message");
        }
        if !self.list.is_empty() {
            return self.blame("a pseudo-field comes after other fields");
        }
        if self.pseudo[pseudo as usize].replace(value).is_some() {
            self.blame("a pseudo-field is repeated");
        }
    }

    fn add_length(&mut self, value: Span) {
        let digits = &self.values[value.range()];
        let number = digits.iter().try_fold(0u64, |sum, digit| {
            let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
            sum.checked_mul(10)?.checked_add(digit)
        });
        match number {
            Some(number) if !digits.is_empty() && self.content_length.is_none() => {
                self.content_length = Some(number);
            }
            _ => self.blame("content-length is repeated or not a number"),
        }
    }

    /// Checks the fields together, when all fields of the block have been added.
    pub(crate) fn end(&mut self) {
        if self.is_over || self.fault.is_some() {
            return;
        }
        if self.cookies > 1 {
            self.join_cookies();
        }
        match self.message {
            MessageKind::Request => self.end_request(),
            MessageKind::Response => {
                if self.status() == 0 {
                    self.blame(":status is missing or not a status");
                }
            }
            MessageKind::Trailers => {}
        }
    }

    /// Checks a request by RFC 9113 §8.3.1 and, for CONNECT, §8.5 or, with a protocol, RFC 8441 §4.
    fn end_request(&mut self) {
        if self.method().is_empty() || !self.method().iter().copied().all(is_token) {
            return self.blame(":method is missing or no token");
        }
        let is_connect = self.method() == b"CONNECT";
        if let Some(protocol) = self.protocol() {
            if !is_connect || protocol.is_empty() || !protocol.iter().copied().all(is_token) {
                return self.blame(":protocol is no token, or the method is not CONNECT");
            }
            if self.content_length.is_some() {
                return self.blame("a tunnel has no content-length");
            }
        }
        if is_connect && self.protocol().is_none() {
            if !self.path().is_empty() || !self.scheme().is_empty() || self.authority().is_empty() {
                return self.blame("CONNECT has a path or a scheme, or no authority");
            }
        } else if let Some(fault) = self.target_fault() {
            return self.blame(fault);
        }
        let authority = self.pseudo[Pseudo::Authority as usize];
        if let (Some(authority), Some(host)) = (authority, self.host)
            && !self.is_same_authority(&self.values[authority.range()], &self.values[host.range()])
        {
            self.blame("host and :authority differ");
        }
    }

    /// Whether two authorities are equal once they are normalised: without the scheme's default port,
    /// ignoring case (RFC 9113 §8.3.1, RFC 9110 §4.2.3).
    fn is_same_authority(&self, one: &[u8], other: &[u8]) -> bool {
        let usual: &[u8] = match self.scheme() {
            b"http" => b":80",
            b"https" => b":443",
            _ => b":",
        };
        let bare = |authority: &'_ [u8]| {
            let bare = authority.strip_suffix(usual).or_else(|| authority.strip_suffix(b":"));
            bare.unwrap_or(authority).to_ascii_lowercase()
        };
        one.eq_ignore_ascii_case(other) || bare(one) == bare(other)
    }

    fn target_fault(&self) -> Option<&'static str> {
        let is_scheme = |scheme: &[u8]| match scheme {
            [first, rest @ ..] => {
                first.is_ascii_alphabetic()
                    && rest.iter().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(b))
            }
            [] => false,
        };
        if !matches!(self.scheme(), b"http" | b"https") && !is_scheme(self.scheme()) {
            return Some(":scheme is missing or no scheme");
        }
        let is_begun = match self.path() {
            [b'/', ..] => true,
            path => path == b"*" && self.method() == b"OPTIONS",
        };
        // values have no control bytes; a fragment must not be sent (RFC 9110 §7.1)
        if !is_begun || self.path().iter().any(|byte| matches!(byte, b' ' | b'\t' | b'#')) {
            return Some(":path is missing or no path");
        }
        if self.authority().iter().any(|byte| matches!(byte, b' ' | b'\t' | b'@' | b'/')) {
            return Some("the authority is not a host and port");
        }
        None
    }

    /// Joins the parts of a cookie into one field in the place of the first.
    #[cold]
    fn join_cookies(&mut self) {
        let start = self.values.len();
        for field in self.list.iter().filter(|field| field.known == KnownName::COOKIE) {
            // a value does not end in white space
            if field.value.range().is_empty() {
                continue;
            }
            if self.values.len() > start {
                self.values.extend_from_slice(b"; ");
            }
            self.values.extend_from_within(field.value.range());
        }
        let whole = Span::until(start, self.values.len());
        let mut is_first = true;
        self.list.retain_mut(|field| {
            if field.known != KnownName::COOKIE {
                return true;
            }
            field.value = whole;
            std::mem::take(&mut is_first)
        });
    }
}

/// Whether a byte is a `tchar` (RFC 9110 §5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests;
