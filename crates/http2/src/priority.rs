//! Priorities (RFC 9218): the urgency of a response, and whether parts of it are useful.

/// The priority of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority {
    /// The urgency, from 0, which goes first, to 7.
    pub urgency: u8,
    /// Whether parts of the response are useful by themselves, so that it takes turns with others.
    pub is_incremental: bool,
}

impl Default for Priority {
    fn default() -> Priority {
        Priority { urgency: 3, is_incremental: false }
    }
}

impl Priority {
    /// Reads a field value (§4): a dictionary of structured fields (RFC 9651), of which `u` and `i` are
    /// known. Invalid input is ignored, and so is a value out of range.
    pub fn read(value: &[u8]) -> Priority {
        let mut priority = Priority::default();
        for member in value.split(|&byte| byte == b',') {
            let member = member.trim_ascii();
            let without_parameters = member.split(|&byte| byte == b';').next().unwrap_or(member);
            match without_parameters.trim_ascii_end() {
                [b'u', b'=', digit @ b'0'..=b'7'] => priority.urgency = digit - b'0',
                b"i" | b"i=?1" => priority.is_incremental = true,
                b"i=?0" => priority.is_incremental = false,
                _ => {}
            }
        }
        priority
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_can_be_read_count() {
        let of = |text: &str| {
            let Priority { urgency, is_incremental } = Priority::read(text.as_bytes());
            (urgency, is_incremental)
        };
        assert_eq!(of(""), (3, false));
        assert_eq!(of("u=5, i"), (5, true));
        assert_eq!(of("i,u=0"), (0, true));
        assert_eq!(of("u=1;x=2 , i=?0"), (1, false));
        assert_eq!(of("u=2, u=4"), (4, false));
        assert_eq!(of("i=?1, x=\"a\""), (3, true));
        for ignored in ["u=8", "u=-1", "u=a", "u", "u=10", "i=1", "u=1.0", "U=1", "=,;"] {
            assert_eq!(of(ignored), (3, false), "{ignored}");
        }
    }
}
