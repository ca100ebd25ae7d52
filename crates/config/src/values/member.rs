//! The members that JSON lines may have, and which of them a log has.

macro_rules! members {
    ($($member:ident = $name:literal,)*) => {
        /// A member of JSON lines. Members stand in this order.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        #[expect(missing_docs, reason = "docs/manual/logs.md explains each")]
        pub enum Member {
            $($member,)*
        }

        impl Member {
            /// All members.
            pub const ALL: [Member; Member::NAMES.len()] = [$(Member::$member,)*];

            /// The names of all members.
            pub const NAMES: [&str; [$($name,)*].len()] = [$($name,)*];

            /// The text before the member's value, if that is a number.
            #[inline]
            pub const fn before_number(self) -> &'static [u8] {
                match self {
                    $(Member::$member => concat!(",\"", $name, "\":").as_bytes(),)*
                }
            }

            /// The text before the member's value, if that is a string.
            #[inline]
            pub const fn before_text(self) -> &'static [u8] {
                match self {
                    $(Member::$member => concat!(",\"", $name, "\":\"").as_bytes(),)*
                }
            }
        }
    };
}

members! {
    Time = "time",
    RequestId = "request_id",
    Site = "site",
    Client = "client",
    User = "user",
    Method = "method",
    Target = "target",
    Version = "version",
    Host = "host",
    Referer = "referer",
    UserAgent = "user_agent",
    Sni = "sni",
    TlsVersion = "tls_version",
    TlsCipher = "tls_cipher",
    Alpn = "alpn",
    TlsResumed = "tls_resumed",
    ClientSubject = "client_subject",
    ClientFingerprint = "client_fingerprint",
    Class = "class",
    Rule = "rule",
    Refused = "refused",
    RefusedBy = "refused_by",
    Token = "token",
    Upstream = "upstream",
    UpstreamStatus = "upstream_status",
    UpstreamError = "upstream_error",
    UpstreamAttempts = "upstream_attempts",
    UpstreamQueueUs = "upstream_queue_us",
    UpstreamConnectUs = "upstream_connect_us",
    UpstreamHeadUs = "upstream_head_us",
    Status = "status",
    ReceiveUs = "receive_us",
    ProcessUs = "process_us",
    UpstreamUs = "upstream_us",
    SendUs = "send_us",
    Bytes = "bytes",
    BytesReceived = "bytes_received",
    Ended = "ended",
}

/// Members that a line has or not without a choice, and the lines that have them.
pub const NOT_CHOSEN: [(&str, &str); 2] = [
    ("given_up", "each line of a request that was given up has it"),
    ("sample", "each line that stands for several requests has it"),
];

impl Member {
    /// The member's name.
    pub fn name(self) -> &'static str {
        Member::NAMES[self as usize]
    }

    /// The member with this name.
    pub fn named(name: &str) -> Option<Member> {
        Member::ALL.into_iter().find(|member| member.name() == name)
    }
}

/// The members that lines have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Members(u64);

impl Members {
    /// The set of these members.
    pub fn of(members: &[Member]) -> Members {
        Members(members.iter().fold(0, |all, member| all | 1 << *member as u64))
    }

    /// Whether a member is in the set.
    #[inline]
    pub fn have(self, member: Member) -> bool {
        self.0 & 1 << member as u64 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_stand_at_their_place() {
        for (place, member) in Member::ALL.into_iter().enumerate() {
            assert_eq!(member as usize, place);
            assert_eq!(Member::named(member.name()), Some(member));
        }
        let some = Members::of(&[Member::Time, Member::Bytes]);
        assert!(some.have(Member::Bytes) && !some.have(Member::Status));
    }
}
