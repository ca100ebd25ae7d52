//! An authority that speaks ACME (RFC 8555), as far as a test of renewal, of limits and of crashes needs
//! one. It looks at no signature, and checks a name only where a test has set the address to look at.
//! That the protocol is kept is tested with pebble.

use crate::server::free_addr;
use crate::tls::Authority;
use crate::wire;
use base64ct::{Base64UrlUnpadded, Encoding};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::{fs, io, thread};

/// The behaviour of the authority, which a test may change at any time.
#[derive(Debug, Default)]
pub struct Behaviour {
    /// The address to which requests for `/.well-known/acme-challenge/` go; without one none are sent.
    pub looks_at: Option<SocketAddr>,
    /// New orders are answered with this problem: status, type, `Retry-After`.
    pub refuses: Option<(u16, &'static str, Option<u64>)>,
    /// The number of further requests that are refused with `badNonce`, whatever their nonce is.
    pub stale_nonces: u32,
    /// Whether the authority forgets the first account after it was opened.
    pub forgets_first: bool,
    /// Whether answers about orders are held back while the certificates are made all the same.
    pub holds_certificates: bool,
    /// The window in which each certificate should be replaced, if the authority gives one (RFC 9773).
    pub window: Option<(&'static str, &'static str)>,
}

/// The requests that the authority has seen.
#[derive(Clone, Debug, Default)]
pub struct AuthorityRecord {
    /// The number of accounts that were opened.
    pub accounts: usize,
    /// The bodies of new orders that were taken.
    pub orders: Vec<Value>,
    /// The number of new orders that were refused.
    pub refused: usize,
    /// The number of certificates that were fetched.
    pub fetched: usize,
}

#[derive(Debug, Default)]
struct State {
    behaviour: Behaviour,
    seen: AuthorityRecord,
    orders: HashMap<usize, Order>,
    nonce: u64,
}

#[derive(Debug)]
struct Order {
    hosts: Vec<String>,
    replaces: Option<String>,
    status: &'static str,
    error: Option<Value>,
    pem: Option<String>,
}

/// A running authority. Its server runs until the process ends.
#[derive(Debug)]
pub struct Acme {
    addr: SocketAddr,
    /// The key pair that has signed the certificate of the authority's own server, and signs the others.
    pub authority: Arc<Authority>,
    state: Arc<(Mutex<State>, Condvar)>,
}

impl Acme {
    /// Starts the authority; its server's certificate lies in `folder`.
    ///
    /// # Panics
    /// If it cannot listen.
    pub fn start(folder: &Path) -> Acme {
        let authority = Arc::new(Authority::new());
        let listener = TcpListener::bind((free_addr().ip(), 0)).unwrap();
        let addr = listener.local_addr().unwrap();
        let (host, kind) = (addr.ip().to_string(), &rcgen::PKCS_ECDSA_P256_SHA256);
        authority.write(folder, "acme", &[&host], kind);
        fs::write(folder.join("acme-ca.pem"), &authority.pem).unwrap();
        let config = Arc::new(crate::tls::server(folder, "acme"));
        let state = Arc::<(Mutex<State>, Condvar)>::default();
        let acme = Acme { addr, authority, state };
        let (authority, state) = (Arc::clone(&acme.authority), Arc::clone(&acme.state));
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let talk = Talk {
                    base: format!("https://{addr}"),
                    authority: Arc::clone(&authority),
                    state: Arc::clone(&state),
                };
                let config = Arc::clone(&config);
                // a client that leaves early has its reasons
                thread::spawn(move || drop(talk.run(client, config)));
            }
        });
        acme
    }

    /// Lines of a configuration in which this authority makes the certificates, and `storage` keeps them.
    pub fn lines(&self, folder: &Path, storage: &Path) -> String {
        let ca: PathBuf = folder.join("acme-ca.pem");
        format!(
            "[acme]\ndirectory = \"https://{}/directory\"\nagree = true\nca = {ca:?}\nstorage = \
             {storage:?}\n",
            self.addr
        )
    }

    /// Changes the authority's behaviour.
    pub fn behave(&self, change: impl FnOnce(&mut Behaviour)) {
        change(&mut self.state.0.lock().unwrap().behaviour);
        self.state.1.notify_all();
    }

    /// The requests so far.
    pub fn seen(&self) -> AuthorityRecord {
        self.state.0.lock().unwrap().seen.clone()
    }
}

struct Talk {
    base: String,
    authority: Arc<Authority>,
    state: Arc<(Mutex<State>, Condvar)>,
}

/// The status, more fields, and the body of an answer.
type AcmeReply = (u16, String, String);

impl Talk {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.0.lock().unwrap()
    }

    fn run(&self, socket: TcpStream, config: Arc<ServerConfig>) -> io::Result<()> {
        socket.set_read_timeout(Some(wire::PATIENCE))?;
        let session = ServerConnection::new(config).map_err(io::Error::other)?;
        let mut stream = StreamOwned::new(session, socket);
        let (line, body) = request(&mut stream)?;
        let mut words = line.split(' ');
        let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let (status, fields, said) = self.answer(method, target, &body);
        let nonce = {
            let mut state = self.lock();
            state.nonce += 1;
            state.nonce
        };
        let length = said.len();
        let said = if method == "HEAD" { String::new() } else { said };
        write!(
            stream,
            "HTTP/1.1 {status} x\r\nReplay-Nonce: n{nonce}\r\nContent-Length: {length}\r\n{fields}\
             Connection: close\r\n\r\n{said}"
        )?;
        stream.flush()?;
        stream.conn.send_close_notify();
        stream.flush()
    }

    fn answer(&self, method: &str, target: &str, body: &[u8]) -> AcmeReply {
        let base = &self.base;
        let payload = payload(body);
        let mut parts = target.trim_start_matches('/').split('/');
        let (what, number) = (parts.next().unwrap_or(""), parts.next());
        let number: usize = number.and_then(|number| number.parse().ok()).unwrap_or(0);
        if method == "POST" {
            let stale = &mut self.lock().behaviour.stale_nonces;
            if *stale > 0 {
                *stale -= 1;
                return (400, String::new(), problem("badNonce", "it was good once").to_string());
            }
        }
        let is_forgotten = {
            let state = self.lock();
            state.behaviour.forgets_first && state.seen.accounts == 1
        };
        if is_forgotten && method == "POST" && what != "account" {
            let said = problem("accountDoesNotExist", "it did once");
            return (400, String::new(), said.to_string());
        }
        match (method, what) {
            ("GET", "directory") => {
                let mut directory = json!({
                    "newNonce": format!("{base}/nonce"),
                    "newAccount": format!("{base}/account"),
                    "newOrder": format!("{base}/orders"),
                });
                if self.lock().behaviour.window.is_some() {
                    directory["renewalInfo"] = format!("{base}/renewal").into();
                }
                (200, String::new(), directory.to_string())
            }
            ("HEAD", "nonce") => (200, String::new(), String::new()),
            ("POST", "account") => {
                self.lock().seen.accounts += 1;
                let location = format!("Location: {base}/account/1\r\n");
                (201, location, json!({ "status": "valid" }).to_string())
            }
            ("POST", "orders") => self.order(&payload),
            ("POST", "order") => self.told(number, 200),
            ("POST", "authorization") => {
                let state = self.lock();
                let Some(order) = state.orders.get(&number) else { return unknown() };
                let host = &order.hosts[0];
                let challenge = |kind: &str| {
                    json!({
                        "type": kind, "status": "pending", "token": format!("token{number}"),
                        "url": format!("{base}/challenge/{number}"), "error": order.error,
                    })
                };
                let mut persist = challenge("dns-persist-01");
                persist["issuer-domain-names"] = json!(["acme.example"]);
                persist.as_object_mut().unwrap().remove("token");
                let wildcard = host.starts_with("*.");
                let host = host.trim_start_matches("*.");
                let challenges = match wildcard {
                    true => json!([persist]),
                    false => json!([challenge("http-01"), challenge("tls-alpn-01"), persist]),
                };
                let status = if order.status == "ready" { "valid" } else { order.status };
                let said = json!({
                    "identifier": { "type": "dns", "value": host }, "status": status,
                    "challenges": challenges, "wildcard": wildcard,
                });
                (200, String::new(), said.to_string())
            }
            ("POST", "challenge") => {
                let (host, place) = {
                    let state = self.lock();
                    let Some(order) = state.orders.get(&number) else { return unknown() };
                    (order.hosts[0].clone(), state.behaviour.looks_at)
                };
                // without the lock: the server that is asked may send requests here meanwhile
                let found = place.is_none_or(|place| is_proven(place, &host, number));
                let mut state = self.lock();
                let Some(order) = state.orders.get_mut(&number) else { return unknown() };
                order.status = if found { "ready" } else { "invalid" };
                if !found {
                    order.error = Some(problem("incorrectResponse", "it says something else"));
                }
                let said = json!({
                    "type": "http-01", "status": "processing", "token": format!("token{number}"),
                    "url": format!("{base}/challenge/{number}"),
                });
                (200, String::new(), said.to_string())
            }
            ("POST", "finalize") => {
                let request = payload["csr"].as_str().unwrap_or("").to_owned();
                let request = Base64UrlUnpadded::decode_vec(&request).unwrap_or_default();
                let pem = self.authority.sign(request);
                if let Some(order) = self.lock().orders.get_mut(&number) {
                    order.pem = Some(pem);
                    order.status = "valid";
                }
                let mut state = self.lock();
                while state.behaviour.holds_certificates {
                    state = self.state.1.wait(state).unwrap();
                }
                drop(state);
                self.told(number, 200)
            }
            ("POST", "certificate") => {
                let mut state = self.lock();
                state.seen.fetched += 1;
                let pem = state.orders.get(&number).and_then(|order| order.pem.clone());
                pem.map_or_else(unknown, |pem| (200, String::new(), pem))
            }
            ("GET", "renewal") => match self.lock().behaviour.window {
                Some((start, end)) => {
                    let said = json!({ "suggestedWindow": { "start": start, "end": end } });
                    (200, "Retry-After: 21600\r\n".to_owned(), said.to_string())
                }
                None => unknown(),
            },
            _ => unknown(),
        }
    }

    /// Answers a new order.
    fn order(&self, payload: &Value) -> AcmeReply {
        let mut state = self.lock();
        if let Some((status, kind, after)) = state.behaviour.refuses {
            state.seen.refused += 1;
            let after = after.map_or_else(String::new, |s| format!("Retry-After: {s}\r\n"));
            return (status, after, problem(kind, "so it was told").to_string());
        }
        let hosts = payload["identifiers"].as_array().cloned().unwrap_or_default();
        let host = |one: &Value| one["value"].as_str().unwrap_or("").to_owned();
        let order = Order {
            hosts: hosts.iter().map(host).collect(),
            replaces: payload["replaces"].as_str().map(str::to_owned),
            status: "pending",
            error: None,
            pem: None,
        };
        state.seen.orders.push(payload.clone());
        let number = state.seen.orders.len();
        state.orders.insert(number, order);
        drop(state);
        let (status, _, said) = self.told(number, 201);
        (status, format!("Location: {}/order/{number}\r\n", self.base), said)
    }

    /// Answers with the state of an order.
    fn told(&self, number: usize, status: u16) -> AcmeReply {
        let (state, base) = (self.lock(), &self.base);
        let Some(order) = state.orders.get(&number) else { return unknown() };
        let identifiers: Vec<Value> =
            order.hosts.iter().map(|host| json!({ "type": "dns", "value": host })).collect();
        let mut said = json!({
            "status": order.status, "identifiers": identifiers,
            "authorizations": [format!("{base}/authorization/{number}")],
            "finalize": format!("{base}/finalize/{number}"),
        });
        if order.pem.is_some() {
            said["certificate"] = format!("{base}/certificate/{number}").into();
        }
        if let Some(replaces) = &order.replaces {
            said["replaces"] = replaces.clone().into();
        }
        (status, String::new(), said.to_string())
    }
}

fn problem(kind: &str, detail: &str) -> Value {
    json!({ "type": format!("urn:ietf:params:acme:error:{kind}"), "detail": detail })
}

fn unknown() -> AcmeReply {
    (404, String::new(), problem("malformed", "there is nothing").to_string())
}

/// The payload of a signed request.
fn payload(body: &[u8]) -> Value {
    let signed: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = signed["payload"].as_str().unwrap_or("");
    let text = Base64UrlUnpadded::decode_vec(text).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// Reads the first line of a request, and its body.
fn request(stream: &mut impl Read) -> io::Result<(String, Vec<u8>)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.extend(byte);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let line = head.lines().next().unwrap_or("").to_owned();
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("content-length").then(|| value.parse::<usize>().ok())?
    });
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body)?;
    Ok((line, body))
}

/// Whether the server at `place` answers for a host as its account would.
fn is_proven(place: SocketAddr, host: &str, number: usize) -> bool {
    let request = format!(
        "GET /.well-known/acme-challenge/token{number} HTTP/1.1\r\nHost: {host}\r\nConnection: \
         close\r\n\r\n"
    );
    let answer = String::from_utf8_lossy(&wire::exchange(place, request.as_bytes())).into_owned();
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let thumbprint = body.strip_prefix(&format!("token{number}."));
    answer.starts_with("HTTP/1.1 200 ") && thumbprint.is_some_and(|text| text.len() == 43)
}
