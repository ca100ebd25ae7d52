//! What clients are told about TLS (`Strict-Transport-Security`).

use std::io::Write;

/// That a host is to be asked for through TLS only (`Strict-Transport-Security`, RFC 6797).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hsts {
    /// For how long, in seconds; 0 takes back what was said before.
    pub max_age_s: u64,
    /// All hosts below it, too.
    pub subdomains: bool,
    /// Browsers may know it before they come for the first time.
    pub preload: bool,
}

impl Hsts {
    /// Writes the field.
    pub(crate) fn write(self, head: &mut impl Write) -> std::io::Result<()> {
        write!(head, "Strict-Transport-Security: max-age={}", self.max_age_s)?;
        if self.subdomains {
            head.write_all(b"; includeSubDomains")?;
        }
        if self.preload {
            head.write_all(b"; preload")?;
        }
        head.write_all(b"\r\n")
    }
}
