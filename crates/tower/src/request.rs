//! A request in the form in which a service gets it.

use crate::body::RequestBody;
use forebay::Request;
use http::header::HOST;
use http::{HeaderName, HeaderValue, Method, Uri, Version};
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use std::net::SocketAddr;

/// Any error.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Characters that must be encoded in a query.
const NOT_IN_QUERY: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'<').add(b'>');

/// Characters that must be encoded in a path.
const NOT_IN_PATH: &AsciiSet =
    &NOT_IN_QUERY.add(b'?').add(b'`').add(b'{').add(b'}').add(b'%').add(b'\\').add(b'^').add(b'|');

/// Facts about a request that the server knows, among its extensions.
///
/// ```
/// use axum::Extension;
/// use forebay_tower::AskedRequest;
///
/// async fn who(Extension(asked): Extension<AskedRequest>) -> String {
///     format!("{} as {}", asked.client.ip(), asked.user.as_deref().unwrap_or("nobody"))
/// }
/// let app: axum::Router = axum::Router::new().route("/who", axum::routing::get(who));
/// # let _ = app;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AskedRequest {
    /// The client's end of the connection; of a client that a trusted proxy names, with port 0.
    pub client: SocketAddr,
    /// The server's end of the connection, if it is known.
    pub local: Option<SocketAddr>,
    /// Whether the client came by https.
    pub is_secure: bool,
    /// The class that rules have given the request; empty without a policy.
    pub class: String,
    /// The user who has signed in, where the site asks for a password.
    pub user: Option<String>,
    /// The request's id in logs.
    pub id: String,
}

impl AskedRequest {
    fn of(request: &Request) -> AskedRequest {
        AskedRequest {
            client: request.client_address(),
            local: request.local_address(),
            is_secure: request.is_secure(),
            class: request.class().to_owned(),
            user: request.user().map(str::to_owned),
            id: request.id().to_owned(),
        }
    }
}

/// The head of a request, with an empty body.
pub(crate) fn head(request: &Request) -> Result<http::Request<()>, BoxError> {
    let mut head = http::Request::new(());
    *head.method_mut() = Method::from_bytes(request.method().as_bytes())?;
    *head.uri_mut() = uri(request.path_bytes(), request.query())?;
    *head.version_mut() = match request.version() {
        // hyper's upgrades are for HTTP/1.1, whichever version the client speaks
        _ if request.upgrade().is_some() => Version::HTTP_11,
        10 => Version::HTTP_10,
        11 => Version::HTTP_11,
        _ => Version::HTTP_2,
    };
    for (name, value) in request.fields() {
        let name = HeaderName::from_bytes(name.as_bytes())?;
        head.headers_mut().append(name, HeaderValue::from_bytes(value)?);
    }
    if !head.headers().contains_key(HOST) && !request.host().is_empty() {
        head.headers_mut().insert(HOST, HeaderValue::from_str(request.host())?);
    }
    head.extensions_mut().insert(AskedRequest::of(request));
    Ok(head)
}

/// The request with its body, which is read as the service reads it.
pub(crate) fn with_body(head: http::Request<()>, body: RequestBody) -> http::Request<RequestBody> {
    head.map(|()| body)
}

/// The target: the path as rules have judged it, encoded again.
fn uri(path: &[u8], query: &str) -> Result<Uri, BoxError> {
    let mut target = percent_encode(path, NOT_IN_PATH).to_string();
    if !query.is_empty() {
        target.push('?');
        target.extend(percent_encode(query.as_bytes(), NOT_IN_QUERY));
    }
    Ok(target.parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_encoded_once() {
        let text = |path: &[u8], query| uri(path, query).unwrap().to_string();
        assert_eq!(text(b"/a b/\xe4?c%", ""), "/a%20b/%E4%3Fc%25");
        assert_eq!(text(b"/", "a=%20&b=c d\"\u{e4}"), "/?a=%20&b=c%20d%22%C3%A4");
        assert_eq!(text(b"/a;b@c:d,e'f(g)*!$&+=~", "x?y/z"), "/a;b@c:d,e'f(g)*!$&+=~?x?y/z");
    }
}
