//! One span, and the spans of a request: what the exporter sends.

use std::borrow::Cow;

/// What a span is to those above and below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpanKind {
    /// A part of what the server does for the request.
    #[default]
    Internal,
    /// The request, as it came.
    Server,
    /// Another server that is asked for it.
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
    /// Its name.
    pub name: Cow<'static, str>,
    /// What it is to others.
    pub kind: SpanKind,
    /// Its id.
    pub id: u64,
    /// The span above; 0 if there is none.
    pub parent_id: u64,
    /// The span above is another process's.
    pub is_parent_remote: bool,
    /// When it began.
    pub begun_ns: u64,
    /// When it ended.
    pub ended_ns: u64,
    /// What is said of it.
    pub attributes: Vec<(&'static str, SpanValue)>,
    /// It has failed.
    pub is_error: bool,
}

impl TraceSpan {
    /// Adds a text.
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

    /// Adds a number; one that is too large is cut to the largest.
    pub(crate) fn number(&mut self, name: &'static str, value: u64) {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        self.attributes.push((name, SpanValue::Number(value)));
    }
}

/// The spans of a request that is over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FinishedTrace {
    /// The trace.
    pub trace_id: u128,
    /// What systems of tracing have noted in the request.
    pub state: Box<str>,
    /// What is added to the times of spans for nanoseconds since 1970.
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
