//! The attributes of a request's span: names by the semantic conventions of OpenTelemetry for HTTP
//! servers, and `forebay.*` for what only this server knows.

use super::span::TraceSpan;
use crate::log::LogEntry;
use crate::log::redaction::Redaction;
use crate::log::request_id;
use forebay_conn::Request;
use forebay_http::head::{Method, Name, Version};
use forebay_upstream::request::valid_id;
use std::borrow::Cow;

/// The largest number of bytes that are kept of a client's text.
const MOST_BYTES: usize = 512;

/// The facts about a request that are not in its log entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpanSubject<'s> {
    /// The name of the request's site; empty if it belongs to none.
    pub(crate) site: &'s str,
    /// The parts that are left out.
    pub(crate) redaction: Option<&'s Redaction>,
    /// The level of the agent, where there is a policy.
    pub(crate) level: Option<&'static str>,
    /// Whether the request has come by https.
    pub(crate) is_secure: bool,
    /// The stage that this process is.
    pub(crate) stage: Option<&'static str>,
}

/// Names the span of a request, and adds the attributes that are known when its answer begins.
pub(crate) fn describe(span: &mut TraceSpan, entry: &LogEntry<'_>, subject: &SpanSubject<'_>) {
    let SpanSubject { site, redaction, level, is_secure, stage } = *subject;
    span.name = "HTTP".into();
    if let Some(request) = entry.request {
        of_request(span, request, entry, redaction);
        span.text("url.scheme", if is_secure { "https" } else { "http" });
    }
    if !entry.client.is_unspecified() {
        span.text("client.address", entry.client.to_canonical().to_string());
    }
    match entry.status {
        Some(status) => {
            span.number("http.response.status_code", status.into());
            // for the span of a server, only these statuses are errors
            if status >= 500 {
                span.text("error.type", status.to_string());
                span.is_error = true;
            }
        }
        None => span.text("error.type", "client_left"),
    }
    if !site.is_empty() {
        span.text("forebay.site", site.to_owned());
    }
    if let Some(stage) = stage {
        span.text("forebay.stage", stage);
    }
    let Some(judged) = entry.judged else { return };
    let words = judged.said();
    span.text("forebay.verdict", if words.refused.is_some() { "refused" } else { "admitted" });
    for (name, word) in [
        ("forebay.class", words.class),
        ("forebay.rule", words.rule),
        ("forebay.refused", words.refused),
        ("forebay.refused_by", words.refused_by),
        ("forebay.level", level),
    ] {
        if let Some(word) = word {
            span.text(name, word.to_owned());
        }
    }
}

fn of_request(
    span: &mut TraceSpan,
    request: &Request<'_>,
    entry: &LogEntry<'_>,
    redaction: Option<&Redaction>,
) {
    let head = request.head;
    // the name must have few values: an unknown method is only shown as such
    let method = match head.method {
        Method::Unknown => "_OTHER",
        _ => head.method_text,
    };
    span.name = match head.method {
        Method::Unknown => "HTTP".into(),
        _ => method.to_owned().into(),
    };
    span.text("http.request.method", method.to_owned());
    let path = redaction.map_or(Cow::Borrowed(head.path), |rules| rules.address(head.path));
    span.text("url.path", shown(&path));
    if !head.authority.is_empty() {
        span.server(&shown(head.authority));
    }
    span.text(
        "network.protocol.version",
        match head.version {
            Version::Http10 => "1.0",
            Version::Http11 => "1.1",
            Version::Http2 => "2",
        },
    );
    if let Some(agent) = head.values(Name::UserAgent).next() {
        let agent =
            redaction.map_or(Cow::Borrowed(agent), |rules| rules.field(Name::UserAgent, agent));
        span.text("user_agent.original", shown(&agent));
    }
    let given = valid_id(head).filter(|_| entry.via_proxy).map(shown);
    let own = || entry.id.map(|id| String::from_utf8_lossy(&request_id::text(id)).into_owned());
    if let Some(id) = given.or_else(own) {
        span.text("forebay.request_id", id);
    }
}

/// Text of a client, cut.
fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(MOST_BYTES)]).into_owned()
}
