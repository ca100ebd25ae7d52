//! Requests to the authority: one request on one connection, while the calling thread waits.

use bytes::Bytes;
use forebay_http::body::{BodyDecoder, Trailers};
use forebay_http::framing::Framing;
use forebay_http::head::{self, Lines};
use forebay_http::response::{
    BodyFraming, ParsedResponse, Response, ResponseContext, ResponseHeadLimits,
};
use forebay_tls::{
    ClientError, KeptSessions, Roots, TlsClient, TlsClientSettings, TlsRefusal, Trust, Versions,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use http_body::Body as _;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use serde::Deserialize;
use std::fmt;
use std::future::Future;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// The longest time for one request.
const LIMIT: Duration = Duration::from_secs(60);

/// The longest time to connect to one address.
const CONNECT: Duration = Duration::from_secs(10);

/// The largest answer, in bytes. Chains of certificates have some kilobytes.
const MOST_BYTES: usize = 1 << 20;

/// The last `Retry-After` of the authority.
#[derive(Clone, Debug, Default)]
pub(crate) struct RetryAfter(Arc<Mutex<Option<Duration>>>);

impl RetryAfter {
    /// Takes the time out, so that it is used only once.
    pub(crate) fn take(&self) -> Option<Duration> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn note(&self, headers: &HeaderMap) {
        let said = headers.get(http::header::RETRY_AFTER).and_then(|value| value.to_str().ok());
        let seconds = said.and_then(|text| text.trim().parse().ok()).map(Duration::from_secs);
        let noted = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *noted = seconds.or(*noted);
    }
}

/// The authority's own name for DNS records, from its last challenge that had it
/// (draft-ietf-acme-dns-persist-01 §3). The library does not pass it on.
#[derive(Clone, Debug, Default)]
pub(crate) struct IssuerName(Arc<Mutex<Option<String>>>);

impl IssuerName {
    /// The name, if a challenge had it.
    pub(crate) fn get(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, body: &[u8]) {
        #[derive(Deserialize)]
        struct Authorization {
            challenges: Vec<Challenge>,
        }
        #[derive(Deserialize)]
        struct Challenge {
            #[serde(default, rename = "issuer-domain-names")]
            issuers: Vec<String>,
        }
        let Ok(Authorization { challenges }) = serde_json::from_slice(body) else { return };
        let is_name = |name: &String| {
            let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-');
            !name.is_empty() && name.len() <= 253 && name.bytes().all(fits)
        };
        let issuer = challenges.into_iter().flat_map(|challenge| challenge.issuers).find(is_name);
        if issuer.is_some() {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = issuer;
        }
    }
}

/// An HTTPS client, as the library needs it.
pub(crate) struct Https {
    pub(crate) roots: Roots,
    pub(crate) retry_after: RetryAfter,
    pub(crate) issuer: IssuerName,
}

/// Why a request got no answer.
#[derive(Debug)]
pub(crate) enum HttpsError {
    /// The URL is not an https URL.
    Address(String),
    /// The host was not found or cannot be reached.
    Connect { host: String, error: io::Error },
    /// The server's certificate is not trusted, or the handshake was refused.
    Tls { host: String, refusal: TlsRefusal },
    /// No TLS client can be made for such a name.
    Client(ClientError),
    /// The connection was lost.
    Cut { host: String, error: io::Error },
    /// The answer is not valid HTTP.
    Answer { host: String, what: &'static str },
}

impl fmt::Display for HttpsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HttpsError::Address(uri) => write!(f, "{uri:?} is no address with https"),
            HttpsError::Connect { host, error } => write!(f, "cannot reach {host}: {error}"),
            HttpsError::Tls { host, refusal } => write!(f, "no connection with {host}: {refusal}"),
            HttpsError::Client(error) => write!(f, "{error}"),
            HttpsError::Cut { host, error } => {
                write!(f, "the connection with {host} was lost: {error}")
            }
            HttpsError::Answer { host, what } => write!(f, "{host} has not answered: {what}"),
        }
    }
}

impl std::error::Error for HttpsError {}

impl HttpClient for Https {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let answered = self.ask(request).map_err(|error| Error::Other(Box::new(error)));
        if let Ok(response) = &answered {
            self.retry_after.note(&response.parts.headers);
        }
        Box::pin(std::future::ready(answered))
    }
}

/// The output of a future that is ready at once: [`Https`] does its waiting before it returns a future.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
            return result;
        }
    }
}

impl Https {
    fn ask(&self, request: Request<BodyWrapper<Bytes>>) -> Result<BytesResponse, HttpsError> {
        let (parts, mut body) = request.into_parts();
        let uri = &parts.uri;
        let (Some("https"), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(HttpsError::Address(uri.to_string()));
        };
        let mut content = Vec::new();
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut body).poll_frame(&mut context) {
            content.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
        }
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        let mut message = format!(
            "{} {target} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n",
            parts.method
        )
        .into_bytes();
        for (name, value) in &parts.headers {
            for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                message.extend_from_slice(part);
            }
        }
        if parts.method == Method::POST {
            message.extend_from_slice(format!("Content-Length: {}\r\n", content.len()).as_bytes());
        }
        message.extend_from_slice(b"\r\n");
        message.extend_from_slice(&content);
        let host = authority.host().trim_matches(['[', ']']);
        let port = authority.port_u16().unwrap_or(443);
        let is_head = parts.method == Method::HEAD;
        let mut exchange = HttpsConnection::open(&self.roots, host, port)?;
        let (response, body) = exchange.ask(&message, is_head)?;
        self.issuer.note(&body);
        Ok(response)
    }
}

/// One connection to the authority.
struct HttpsConnection {
    host: String,
    session: forebay_tls::ClientSession,
    socket: TcpStream,
    until: Instant,
}

impl HttpsConnection {
    fn open(roots: &Roots, host: &str, port: u16) -> Result<HttpsConnection, HttpsError> {
        let terms = TlsClientSettings {
            trust: Trust::Roots(roots.clone()),
            versions: Versions::Both,
            is_for_http2: false,
            sessions: KeptSessions::None,
            shows: None,
            is_post_quantum: true,
        };
        let client = TlsClient::new(&terms, host).map_err(HttpsError::Client)?;
        let host = host.to_owned();
        let connected = (host.as_str(), port).to_socket_addrs().and_then(|addresses| {
            let mut last = io::Error::new(io::ErrorKind::NotFound, "it has no address");
            for address in addresses {
                match TcpStream::connect_timeout(&address, CONNECT) {
                    Ok(socket) => return Ok(socket),
                    Err(error) => last = error,
                }
            }
            Err(last)
        });
        let socket = match connected {
            Ok(socket) => socket,
            Err(error) => return Err(HttpsError::Connect { host, error }),
        };
        match client.connect() {
            Ok(session) => {
                Ok(HttpsConnection { host, session, socket, until: Instant::now() + LIMIT })
            }
            Err(refusal) => Err(HttpsError::Tls { host, refusal }),
        }
    }

    fn ask(&mut self, message: &[u8], is_head: bool) -> Result<(BytesResponse, Bytes), HttpsError> {
        let (mut wire, mut input) = (Vec::new(), Vec::new());
        let (mut buffer, mut plain) = (vec![0; 16 * 1024], vec![0; 16 * 1024]);
        let mut is_asked = false;
        self.session.flush(&mut wire);
        loop {
            if !is_asked && !self.session.is_handshaking() {
                self.session.write(message, &mut wire);
                is_asked = true;
            }
            self.session.flush(&mut wire);
            self.send(&wire)?;
            wire.clear();
            let count = self.receive(&mut buffer)?;
            let mut rest = &buffer[..count];
            loop {
                match self.session.receive(&mut rest, &mut plain) {
                    Ok(0) => break,
                    Ok(count) => input.extend_from_slice(&plain[..count]),
                    Err(refusal) => {
                        // sends the TLS alert with the reason; whether the server reads it does not matter
                        self.session.flush(&mut wire);
                        let _ = self.socket.write_all(&wire);
                        return Err(HttpsError::Tls { host: self.host.clone(), refusal });
                    }
                }
            }
            let has_ended = count == 0 || self.session.has_ended();
            match answer(&input, is_head, has_ended) {
                Ok(Some(response)) => return Ok(response),
                Ok(None) if has_ended => return Err(self.no_answer("the connection has ended")),
                Ok(None) if input.len() > MOST_BYTES => {
                    return Err(self.no_answer("the answer is too large"));
                }
                Ok(None) => {}
                Err(what) => return Err(self.no_answer(what)),
            }
        }
    }

    fn no_answer(&self, what: &'static str) -> HttpsError {
        HttpsError::Answer { host: self.host.clone(), what }
    }

    fn cut(&self, error: io::Error) -> HttpsError {
        HttpsError::Cut { host: self.host.clone(), error }
    }

    /// The rest of the request's time.
    fn patience(&self) -> Result<Duration, HttpsError> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(self.cut(io::ErrorKind::TimedOut.into())) } else { Ok(left) }
    }

    fn send(&mut self, wire: &[u8]) -> Result<(), HttpsError> {
        let patience = self.patience()?;
        let sent = self.socket.set_write_timeout(Some(patience));
        sent.and_then(|()| self.socket.write_all(wire)).map_err(|error| self.cut(error))
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Result<usize, HttpsError> {
        let patience = self.patience()?;
        let ready = self.socket.set_read_timeout(Some(patience));
        ready.and_then(|()| self.socket.read(buffer)).map_err(|error| self.cut(error))
    }
}

/// The answer in the received bytes, with its body, if it is complete; an error if it is invalid.
fn answer(
    mut input: &[u8],
    is_head: bool,
    has_ended: bool,
) -> Result<Option<(BytesResponse, Bytes)>, &'static str> {
    loop {
        let mut lines = Lines::new();
        let asked = ResponseContext { is_head, upgrade: false };
        let parsed = Response::parse(input, &mut lines, asked, &ResponseHeadLimits::default());
        let ParsedResponse::Complete(head) = parsed.map_err(|error| error.reason())? else {
            return Ok(None);
        };
        if head.is_interim() {
            input = &input[head.len..];
            continue;
        }
        let Some(body) = body(&head, &input[head.len..], has_ended)? else { return Ok(None) };
        let mut response = http::Response::builder().status(head.status);
        for (name, value) in head.fields() {
            let name = HeaderName::from_bytes(name.as_bytes());
            if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value)) {
                response = response.header(name, value);
            }
        }
        let response = response.body(()).map_err(|_| "the head is broken")?;
        let (parts, ()) = response.into_parts();
        let body = Bytes::from(body);
        return Ok(Some((BytesResponse { parts, body: Box::new(body.clone()) }, body)));
    }
}

/// The body of an answer, if it is complete.
fn body(
    head: &Response<'_>,
    rest: &[u8],
    has_ended: bool,
) -> Result<Option<Vec<u8>>, &'static str> {
    let framing = match head.body {
        BodyFraming::None | BodyFraming::Upgraded => Framing::None,
        BodyFraming::Sized(bytes) => Framing::Sized(bytes),
        BodyFraming::Chunked => Framing::Chunked,
        BodyFraming::UntilClose => return Ok(has_ended.then(|| rest.to_vec())),
    };
    let limits = head::HeadLimits::default();
    let decoder = BodyDecoder::new(framing, MOST_BYTES as u64, Trailers::Discard, &limits);
    let mut decoder = decoder.map_err(|error| error.reason())?;
    let (mut body, mut rest) = (Vec::new(), rest);
    while !decoder.is_done() {
        if rest.is_empty() {
            return Ok(None);
        }
        let decoded = decoder.next(rest).map_err(|error| error.reason())?;
        body.extend_from_slice(decoded.data);
        rest = &rest[decoded.used..];
    }
    Ok(Some(body))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(input: &[u8], is_head: bool, has_ended: bool) -> Option<(u16, Vec<u8>)> {
        let (mut response, seen) = answer(input, is_head, has_ended).unwrap()?;
        let body = now(response.body.into_bytes()).unwrap();
        assert_eq!(seen, body);
        Some((response.parts.status.as_u16(), body.to_vec()))
    }

    #[test]
    fn the_name_of_an_authority_is_noted() {
        let issuer = IssuerName::default();
        for other in ["", "{}", "[]", r#"{"challenges":[{"type":"dns-01"}]}"#] {
            issuer.note(other.as_bytes());
            assert_eq!(issuer.get(), None, "{other}");
        }
        let challenges = |names: &str| {
            format!(r#"{{"challenges":[{{"type":"dns-01"}},{{"issuer-domain-names":{names}}}]}}"#)
        };
        issuer.note(challenges(r#"["two\nlines","acme.example","other.example"]"#).as_bytes());
        assert_eq!(issuer.get().as_deref(), Some("acme.example"));
        issuer.note(challenges("[]").as_bytes());
        assert_eq!(issuer.get().as_deref(), Some("acme.example"));
    }

    #[test]
    fn an_answer_is_read_when_it_is_whole() {
        let sized =
            b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab";
        let chunked =
            b"HTTP/1.1 201 x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n1\r\nb\r\n0\r\n\r\n";
        for (whole, status) in [(&sized[..], 200), (chunked, 201)] {
            assert_eq!(read(whole, false, false), Some((status, b"ab".to_vec())));
            for cut in 0..whole.len() {
                assert_eq!(read(&whole[..cut], false, true), None, "{cut}");
            }
        }
        let open = b"HTTP/1.1 200 OK\r\n\r\nab";
        assert_eq!(read(open, false, false), None);
        assert_eq!(read(open, false, true), Some((200, b"ab".to_vec())));
        let nonce = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n";
        assert_eq!(read(nonce, true, false), Some((200, Vec::new())));
        assert!(answer(b"SSH-2.0", false, false).is_err());
        assert!(
            answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2000000\r\n\r\n", false, false).is_err()
        );
    }
}
