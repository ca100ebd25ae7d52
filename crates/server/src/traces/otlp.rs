//! Spans in the format of OTLP: the messages of `opentelemetry/proto` that a span
//! needs, with their field numbers.
//!
//! `prost` encodes them. They are defined here because the crate with all definitions depends on
//! the OpenTelemetry library; the end-to-end tests decode what is sent with that crate
//! ([ADR 0177](../../../../docs/adr/0177-traces.md)).

use forebay_handler::traces::Tracing;
use forebay_handler::traces::span::{FinishedTrace, SpanKind, SpanValue, TraceSpan};
use prost::Message;

/// The body of a request.
pub(super) fn request(traces: &Tracing, finished: &[Box<FinishedTrace>]) -> Vec<u8> {
    let spans = finished.iter().flat_map(|trace| trace.spans.iter().map(|span| told(trace, span)));
    let scope =
        SpanScope { name: "forebay".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
    let scope_spans = vec![ScopeSpans { scope: Some(scope), spans: spans.collect() }];
    let resource = Resource { attributes: resource(traces) };
    let resource_spans = vec![ResourceSpans { resource: Some(resource), scope_spans }];
    ExportRequest { resource_spans }.encode_to_vec()
}

/// The attributes of this process.
fn resource(traces: &Tracing) -> Vec<KeyValue> {
    let text = |key: &str, value: &str| KeyValue::new(key, AnyValueKind::Text(value.to_owned()));
    let mut attributes = vec![
        text("service.name", traces.config.service()),
        text("service.version", env!("CARGO_PKG_VERSION")),
        KeyValue::new("process.pid", AnyValueKind::Number(std::process::id().into())),
    ];
    if let Some(role) = traces.role {
        attributes.push(text("forebay.stage", role.name()));
    }
    attributes
}

fn told(trace: &FinishedTrace, span: &TraceSpan) -> OtlpSpan {
    /// The bit of `SpanFlags` that says whether `REMOTE_PARENT` is meaningful.
    const KNOWS_PARENT: u32 = 0x100;
    /// The bit that says that the parent span is from another process.
    const REMOTE_PARENT: u32 = 0x200;
    /// The bit that says that the trace is recorded.
    const SAMPLED: u32 = 1;
    let remote = if span.is_parent_remote { REMOTE_PARENT } else { 0 };
    let attributes = span.attributes.iter().map(|(key, value)| {
        KeyValue::new(
            key,
            match value {
                SpanValue::Text(text) => AnyValueKind::Text(text.clone().into_owned()),
                SpanValue::Number(number) => AnyValueKind::Number(*number),
            },
        )
    });
    OtlpSpan {
        trace_id: trace.trace_id.to_be_bytes().to_vec(),
        span_id: span.id.to_be_bytes().to_vec(),
        trace_state: trace.state.to_string(),
        parent_span_id: match span.parent_id {
            0 => Vec::new(),
            id => id.to_be_bytes().to_vec(),
        },
        name: span.name.clone().into_owned(),
        kind: match span.kind {
            SpanKind::Internal => 1,
            SpanKind::Server => 2,
            SpanKind::Client => 3,
        },
        begun_unix_ns: trace.epoch_ns.wrapping_add(span.begun_ns),
        ended_unix_ns: trace.epoch_ns.wrapping_add(span.ended_ns.max(span.begun_ns)),
        attributes: attributes.collect(),
        status: span.is_error.then_some(SpanStatus { code: 2 }),
        flags: SAMPLED | KNOWS_PARENT | remote,
    }
}

/// `collector.trace.v1.ExportTraceServiceRequest`
#[derive(Clone, PartialEq, Message)]
struct ExportRequest {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

/// `trace.v1.ResourceSpans`
#[derive(Clone, PartialEq, Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
}

/// `resource.v1.Resource`
#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

/// `trace.v1.ScopeSpans`
#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    scope: Option<SpanScope>,
    #[prost(message, repeated, tag = "2")]
    spans: Vec<OtlpSpan>,
}

/// `common.v1.InstrumentationScope`
#[derive(Clone, PartialEq, Message)]
struct SpanScope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

/// `trace.v1.Span`
#[derive(Clone, PartialEq, Message)]
struct OtlpSpan {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(string, tag = "3")]
    trace_state: String,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    begun_unix_ns: u64,
    #[prost(fixed64, tag = "8")]
    ended_unix_ns: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
    #[prost(message, optional, tag = "15")]
    status: Option<SpanStatus>,
    #[prost(fixed32, tag = "16")]
    flags: u32,
}

/// `trace.v1.Status`
#[derive(Clone, Copy, PartialEq, Eq, Message)]
struct SpanStatus {
    #[prost(int32, tag = "3")]
    code: i32,
}

/// `common.v1.KeyValue`
#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

impl KeyValue {
    fn new(key: &str, value: AnyValueKind) -> KeyValue {
        KeyValue { key: key.to_owned(), value: Some(AnyValue { kind: Some(value) }) }
    }
}

/// `common.v1.AnyValue`
#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(oneof = "AnyValueKind", tags = "1, 3")]
    kind: Option<AnyValueKind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum AnyValueKind {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "3")]
    Number(i64),
}
