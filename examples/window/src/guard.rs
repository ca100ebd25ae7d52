//! The guard of the page: which requests may read it, and which may change what it shows.
//!
//! A page that any browser on this machine shows can send requests here. It cannot choose their `Host` (unless its name
//! leads here, which is refused), it cannot hide their `Origin`, and it does not know the token.

use std::fmt;
use std::io;
use subtle::ConstantTimeEq;

/// Bytes of a token, enough that it cannot be guessed.
const TOKEN_BYTES: usize = 16;

/// The guard of the page: names of the server, and a token.
#[derive(Clone, Debug)]
pub struct PageGuard {
    hosts: [String; 2],
    token: String,
}

/// A reason to refuse a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageRefusal {
    /// The request is for another name.
    Host,
    /// The request comes from the page of another site.
    Origin,
    /// The request has no token, or another.
    Token,
}

impl PageRefusal {
    /// The status of the refusal.
    pub fn status(self) -> u16 {
        match self {
            PageRefusal::Host => 421,
            PageRefusal::Origin | PageRefusal::Token => 403,
        }
    }
}

impl fmt::Display for PageRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PageRefusal::Host => "this program is not called that\n",
            PageRefusal::Origin => "only the program's own page changes anything\n",
            PageRefusal::Token => "only the link that the program has shown changes anything\n",
        })
    }
}

impl PageGuard {
    /// A guard for a server at this port of the machine's own address, with a new token.
    ///
    /// # Errors
    /// The kernel has no random numbers.
    pub fn new(port: u16) -> io::Result<PageGuard> {
        let mut bytes = [0; TOKEN_BYTES];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        let token = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(PageGuard { hosts: [format!("127.0.0.1:{port}"), format!("localhost:{port}")], token })
    }

    /// The link that a person opens. The part behind the `#` stays in the browser: no server, log or
    /// other page gets it.
    pub fn link(&self) -> String {
        format!("http://{}/#{}", self.hosts[0], self.token)
    }

    /// The token.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Whether a request with this `Host` may read.
    ///
    /// # Errors
    /// The reason to refuse it.
    pub fn read(&self, host: &str) -> Result<(), PageRefusal> {
        let is_own = self.hosts.iter().any(|own| own.eq_ignore_ascii_case(host));
        if is_own { Ok(()) } else { Err(PageRefusal::Host) }
    }

    /// Whether a request with this `Host`, `Origin` and token may write.
    ///
    /// # Errors
    /// The reason to refuse it.
    pub fn write(
        &self,
        host: &str,
        origin: Option<&str>,
        token: Option<&str>,
    ) -> Result<(), PageRefusal> {
        self.read(host)?;
        // browsers send Origin with every request that may change something
        let from = origin.and_then(|origin| origin.strip_prefix("http://"));
        if !from.is_some_and(|from| from.eq_ignore_ascii_case(host)) {
            return Err(PageRefusal::Origin);
        }
        let is_known =
            token.is_some_and(|token| bool::from(token.as_bytes().ct_eq(self.token.as_bytes())));
        if is_known { Ok(()) } else { Err(PageRefusal::Token) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_page_with_the_token_writes() {
        let guard = PageGuard::new(8080).expect("a token");
        let (host, origin, token) =
            ("127.0.0.1:8080", Some("http://127.0.0.1:8080"), guard.token());
        assert_eq!(guard.write(host, origin, Some(token)), Ok(()));
        assert_eq!(
            guard.write("LOCALHOST:8080", Some("http://localhost:8080"), Some(token)),
            Ok(())
        );
        // a name that leads here (DNS rebinding), another port, no port, no host
        for host in ["evil.example:8080", "127.0.0.1:8081", "127.0.0.1", ""] {
            assert_eq!(guard.read(host), Err(PageRefusal::Host), "{host}");
        }
        let others =
            ["http://evil.example", "https://127.0.0.1:8080", "http://localhost:8080", "null", ""];
        for origin in others.map(Some).into_iter().chain([None]) {
            assert_eq!(
                guard.write(host, origin, Some(token)),
                Err(PageRefusal::Origin),
                "{origin:?}"
            );
        }
        for token in [None, Some(""), Some(&token[1..]), Some("0123456789abcdef0123456789abcdef")] {
            assert_eq!(guard.write(host, origin, token), Err(PageRefusal::Token), "{token:?}");
        }
        assert_ne!(guard.token(), PageGuard::new(8080).expect("a token").token());
    }
}
