//! One span, and the spans of a request: what the exporter sends.

use std::borrow::Cow;

/// The relation of a span to those above and below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpanKind {
    /// A part of the server's work for the request.
    #[default]
    Internal,
    /// The request, as it came.
    Server,
    /// A request to another server.
    Client,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpanValue {
    /// A text.
    Text(Cow<'static, str>),
    /// A number.
    Number(i64),
}

/// One span. Its times are nanoseconds of a clock that never goes back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceSpan {
    /// The name of the span.
    pub name: Cow<'static, str>,
    /// The relation to other spans.
    pub kind: SpanKind,
    /// The id of the span.
    pub id: u64,
    /// The id of the span above; 0 if there is none.
    pub parent_id: u64,
    /// Whether the span above belongs to another process.
    pub is_parent_remote: bool,
    /// When the span began.
    pub begun_ns: u64,
    /// When the span ended.
    pub ended_ns: u64,
    /// The attributes of the span.
    pub attributes: Vec<(&'static str, SpanValue)>,
    /// Whether the operation has failed.
    pub is_error: bool,
}

impl TraceSpan {
    /// Adds a text as an attribute.
    pub(crate) fn text(&mut self, name: &'static str, value: impl Into<Cow<'static, str>>) {
        self.attributes.push((name, SpanValue::Text(value.into())));
    }

    /// Adds the address of a server: a host and perhaps a port, or the path of a socket.
    pub(crate) fn server(&mut self, address: &str) {
        let parts = address.rsplit_once(':').filter(|(host, _)| *host != "unix");
        let port = parts.and_then(|(host, port)| Some((host, port.parse().ok()?)));
        let (host, port) = port.map_or((address, None), |(host, port)| (host, Some(port)));
        self.text("server.address", host.trim_matches(['[', ']']).to_owned());
        if let Some(port) = port {
            self.number("server.port", port);
        }
    }

    /// Adds a number as an attribute; a number that is too large becomes the largest possible.
    pub(crate) fn number(&mut self, name: &'static str, value: u64) {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        self.attributes.push((name, SpanValue::Number(value)));
    }
}

/// The spans of a request that is over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FinishedTrace {
    /// The id of the trace.
    pub trace_id: u128,
    /// The `tracestate` that tracing systems have put into the request.
    pub state: Box<str>,
    /// The difference between times of spans and nanoseconds since 1970.
    pub epoch_ns: u64,
    /// The spans.
    pub spans: Vec<TraceSpan>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_servers() {
        for (address, host, port) in [
            ("shop.example", "shop.example", None),
            ("shop.example:8080", "shop.example", Some(8080)),
            ("[::1]:80", "::1", Some(80)),
            ("[::1]", "::1", None),
            ("unix:/run/app.sock", "unix:/run/app.sock", None),
        ] {
            let mut span = TraceSpan::default();
            span.server(address);
            let mut expected = vec![("server.address", SpanValue::Text(host.into()))];
            expected.extend(port.map(|port| ("server.port", SpanValue::Number(port))));
            assert_eq!(span.attributes, expected, "{address}");
        }
    }
}
