//! The settings of a server besides this one whose connections the kernel judges.

use crate::problems::problem::Wrong;
use crate::table::{Preset, Section, Setting};
use crate::values::optional::Optional;
use crate::values::value::Written;
use std::net::IpAddr;

/// The ports of protocols in which the server speaks first: FTP, SSH, Telnet, SMTP, POP3, NNTP, IMAP,
/// submission of mail, MySQL, VNC.
const SPEAK_FIRST: [u16; 10] = [21, 22, 23, 25, 110, 119, 143, 587, 3306, 5900];

/// The most protected servers that there can be.
pub(crate) const MOST_PROTECTED: usize = 64;

/// A server besides this one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProtectConfig {
    /// `port`
    pub port: Optional<u64>,
    /// `address` of another machine
    pub address: Option<MachineAddress>,
    /// `queue`
    pub queue: u64,
    /// `speaks_first`
    pub speaks_first: Optional<bool>,
}

/// The address of another machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineAddress(pub IpAddr);

impl Written for MachineAddress {
    const EXPECTED: &'static str = "an IP address such as \"192.0.2.7\"";
    fn read(text: &str) -> Result<MachineAddress, Wrong> {
        text.parse().map(MachineAddress).map_err(|_| MachineAddress::misread(text))
    }
    fn text(&self) -> String {
        self.0.to_string()
    }
}

impl ProtectConfig {
    /// The port of the protected server; 0 if none is set.
    pub fn port(&self) -> u16 {
        self.port.0.and_then(|port| port.try_into().ok()).unwrap_or_default()
    }

    /// Whether the server is the first to send on a connection.
    pub fn speaks_first(&self) -> bool {
        self.speaks_first.0.unwrap_or_else(|| SPEAK_FIRST.contains(&self.port()))
    }
}

impl Section for ProtectConfig {
    const SETTINGS: &'static [Setting<ProtectConfig>] = SETTINGS;

    fn blank() -> ProtectConfig {
        ProtectConfig::default()
    }
}

const SETTINGS: &[Setting<ProtectConfig>] = &[
    Setting {
        key: "port",
        preset: Preset::Required,
        range: Some(("1", "65535")),
        meaning: "The port of another server on this machine, at whatever address it listens there. Rules \
                  judge its SYNs in the kernel. With gate = \"full\" the kernel also completes its handshakes, \
                  refuses first requests (gate_rules), and makes its connections in the order of classes. \
                  The server itself is not asked and not changed.",
        example: "9090",
        at: |c| &mut c.port,
    },
    Setting {
        key: "address",
        preset: Preset::Unset("the server is on this machine"),
        range: None,
        meaning: "The address of another machine, which this one passes packets on to. Its SYNs are judged by \
                  rules about addresses alone, and refused by silence or a reset.",
        example: "\"192.0.2.7\"",
        at: |c| &mut c.address,
    },
    Setting {
        key: "queue",
        preset: Preset::Value("16"),
        range: Some(("1", "65535")),
        meaning: "How many connections may wait in that server's own queue before one of a class below the \
                  first is made: what waits there cannot be overtaken. Others come again, after 0.2 s at first; \
                  few is for servers with as many processes as may answer, such as Apache prefork.",
        example: "4",
        at: |c| &mut c.queue,
    },
    Setting {
        key: "speaks_first",
        preset: Preset::Unset(
            "the server does at ports 21, 22, 23, 25, 110, 119, 143, 587, 3306 and 5900",
        ),
        range: None,
        meaning: "Whether the server is the first to say something on a connection, as with SMTP, SSH or MySQL. Then \
                  its SYNs alone are judged, whatever gate says: with gate = \"full\" the kernel makes a connection \
                  when the client's first data comes, which never would.",
        example: "true",
        at: |c| &mut c.speaks_first,
    },
];
