//! The statement to clients that a host is reached through TLS only (`Strict-Transport-Security`).

use std::io::Write;

/// The field `Strict-Transport-Security` (RFC 6797): the host must be asked through TLS only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hsts {
    /// How long the statement holds, in seconds; 0 withdraws an earlier one.
    pub max_age_s: u64,
    /// Whether the statement also holds for all hosts below this one.
    pub subdomains: bool,
    /// Whether browsers may have the host in the list that they come with (`preload`).
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
