//! A provider of identities that speaks OpenID Connect, as far as a test of signing in needs one: each
//! visitor is Ada, and is signed in at once.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use base64ct::{Base64UrlUnpadded, Encoding};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::SystemTime;

/// The provider's client: the name and the secret that it knows.
pub const CLIENT: (&str, &str) = ("forebay-tests", "a secret of tests");

/// A running provider. It runs until the process ends.
#[derive(Debug)]
pub struct IdentityProvider {
    addr: SocketAddr,
    state: Arc<ProviderState>,
}

#[derive(Debug)]
struct ProviderState {
    key: EcdsaKeyPair,
    issuer: String,
    /// The nonce for which each code was given.
    nonces: Mutex<HashMap<String, String>>,
    refreshed: Mutex<usize>,
}

impl IdentityProvider {
    /// Starts the provider.
    ///
    /// # Panics
    /// If it cannot listen.
    pub fn start() -> IdentityProvider {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        let issuer = format!("http://{addr}");
        let state =
            ProviderState { key, issuer, nonces: Mutex::default(), refreshed: Mutex::default() };
        let state = Arc::new(state);
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let state = Arc::clone(&shared);
                thread::spawn(move || state.serve(stream));
            }
        });
        IdentityProvider { addr, state }
    }

    /// The provider's name, which is its URL.
    pub fn issuer(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// The number of times that a session was refreshed.
    ///
    /// # Panics
    /// If a thread of the provider has panicked.
    pub fn refreshed(&self) -> usize {
        *self.state.refreshed.lock().unwrap()
    }
}

impl ProviderState {
    fn serve(&self, mut stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while let Some((target, body)) = request(&mut reader) {
            let (path, query) = target.split_once('?').unwrap_or((&target, ""));
            let answer = match path {
                "/.well-known/openid-configuration" => json_answer(&self.configuration()),
                "/keys" => json_answer(&self.keys()),
                "/authorize" => self.authorize(&parameters(query)),
                "/token" => self.token(&parameters(&body)),
                _ => "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned(),
            };
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }

    fn configuration(&self) -> Value {
        let at = |path: &str| format!("{}{path}", self.issuer);
        json!({
            "issuer": self.issuer,
            "authorization_endpoint": at("/authorize"),
            "token_endpoint": at("/token"),
            "jwks_uri": at("/keys"),
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        })
    }

    fn keys(&self) -> Value {
        // 4, and the two coordinates
        let point = self.key.public_key().as_ref();
        let part = |bytes: &[u8]| Base64UrlUnpadded::encode_string(bytes);
        json!({ "keys": [{
            "kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": "one",
            "x": part(&point[1..33]), "y": part(&point[33..]),
        }] })
    }

    /// Sends each visitor back with a code.
    fn authorize(&self, asked: &HashMap<String, String>) -> String {
        let nonces = &mut self.nonces.lock().unwrap();
        let code = format!("code-{}", nonces.len());
        nonces.insert(code.clone(), asked.get("nonce").cloned().unwrap_or_default());
        let state = encoded(&asked["state"]);
        let to = format!("{}?code={code}&state={state}", asked["redirect_uri"]);
        format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n")
    }

    fn token(&self, asked: &HashMap<String, String>) -> String {
        let nonce = match asked["grant_type"].as_str() {
            "refresh_token" => {
                *self.refreshed.lock().unwrap() += 1;
                String::new()
            }
            _ => self.nonces.lock().unwrap().get(&asked["code"]).cloned().unwrap(),
        };
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
        let mut claims = json!({
            "iss": self.issuer, "sub": "ada", "aud": CLIENT.0, "iat": now, "exp": now + 3600,
            "email": "ada@example.com", "email_verified": true, "preferred_username": "ada",
        });
        if !nonce.is_empty() {
            claims["nonce"] = nonce.into();
        }
        json_answer(&json!({
            "access_token": "access", "token_type": "Bearer", "expires_in": 3600,
            "refresh_token": "again", "id_token": self.signed(&claims),
        }))
    }

    fn signed(&self, claims: &Value) -> String {
        let head = json!({ "alg": "ES256", "kid": "one", "typ": "JWT" });
        let part = |value: &Value| Base64UrlUnpadded::encode_string(value.to_string().as_bytes());
        let text = format!("{}.{}", part(&head), part(claims));
        let signature = self.key.sign(&SystemRandom::new(), text.as_bytes()).unwrap();
        format!("{text}.{}", Base64UrlUnpadded::encode_string(signature.as_ref()))
    }
}

/// Reads the next request of a connection: its target and its body.
fn request(reader: &mut BufReader<TcpStream>) -> Option<(String, String)> {
    let (mut target, mut length) = (None, 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        if target.is_none() {
            target = line.split(' ').nth(1).map(str::to_owned);
        } else if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((target?, String::from_utf8(body).unwrap()))
}

fn json_answer(value: &Value) -> String {
    let text = value.to_string();
    let length = text.len();
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{text}"
    )
}

/// The parameters of a query or a form.
fn parameters(text: &str) -> HashMap<String, String> {
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (decoded(name), decoded(value))).collect()
}

fn decoded(text: &str) -> String {
    let (mut out, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, behind @ ..] = rest {
        rest = behind;
        match first {
            b'+' => out.push(b' '),
            b'%' => {
                let hex = std::str::from_utf8(&behind[..2]).unwrap();
                out.push(u8::from_str_radix(hex, 16).unwrap());
                rest = &behind[2..];
            }
            byte => out.push(*byte),
        }
    }
    String::from_utf8(out).unwrap()
}

fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let one = |byte: u8| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(one).collect()
}
