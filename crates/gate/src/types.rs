//! The types that the programs and the server share: `bpf/types.h` in Rust. A test compares size and
//! offset of every field with those in the compiled program.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The longest life of a cookie: its clock ticks every 2^36 ns, and a cookie is valid for two ticks at
/// most.
pub(crate) const COOKIE_LIFE: Duration = Duration::from_nanos(2 << 36);

/// The most rules, by name, that get a bucket or counts in the kernel while the server runs.
pub(crate) const SLOTS: usize = 4096;
/// The most entries of one list.
pub(crate) const LONGEST: usize = 4096;

/// The bytes of a `gate_path`: the number of bits, and the prefix of a path, or a whole one with a zero
/// behind it.
pub(crate) const PATH_KEY_BYTES: usize = 168;

/// A type that the kernel knows by this name, without padding.
///
/// # Safety
/// Every byte of a value is initialised, and every pattern of bytes is a value.
pub(crate) unsafe trait Plain: Copy + Default {
    fn bytes(&self) -> &[u8] {
        // SAFETY: all bytes of a `Plain` are initialised, and `self` is borrowed as long.
        unsafe { std::slice::from_raw_parts((&raw const *self).cast(), size_of::<Self>()) }
    }

    fn of(bytes: &[u8]) -> Option<Self> {
        let fits = bytes.len() >= size_of::<Self>();
        // SAFETY: there are as many bytes, and every pattern of them is a value.
        fits.then(|| unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() })
    }
}

/// Declares a struct of `bpf/types.h`, and what a test needs to compare it.
macro_rules! shared {
    ($(#[$doc:meta])* $name:ident = $c:literal { $($field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[repr(C)]
        pub(crate) struct $name {
            $(pub(crate) $field: $type,)*
        }

        // SAFETY: numbers and arrays of them; there is no padding, as the next line checks.
        unsafe impl Plain for $name {}
        const _: () = assert!(size_of::<$name>() == 0 $(+ size_of::<$type>())*);

        #[cfg(test)]
        impl $name {
            pub(crate) fn layout() -> (&'static str, usize, Vec<(&'static str, usize)>) {
                let fields = vec![$((stringify!($field), std::mem::offset_of!($name, $field)),)*];
                ($c, size_of::<$name>(), fields)
            }
        }
    };
}

pub(crate) use shared;

shared! {
    /// The settings that the server changes while the programs run.
    Control = "gate_control" {
        table: u32,
        degree: u32,
        charge: u32,
        ignores: u32,
        answers: u32,
        completes: u32,
        offers: u32,
        judges: u32,
        pages: u32,
        reads_cookies: u32,
        default_rank: u32,
        forwards: u32,
        watches: u32,
        serves: u32,
        unused: [u32; 2],
    }
}

shared! {
    /// The rules that may match clients of one network.
    RawList = "gate_list" {
        first: u32,
        count: u32,
    }
}

shared! {
    /// One way in which a rule can match a client.
    RawEntry = "gate_entry" {
        local_hi: u64,
        local_lo: u64,
        mask_hi: u64,
        mask_lo: u64,
        client_first: u16,
        client_last: u16,
        local_first: u16,
        local_last: u16,
        rule: u32,
        unused: u32,
    }
}

shared! {
    /// A rule by addresses, and what it says.
    Says = "gate_rule" {
        interval_ns: u64,
        tolerance_ns: u64,
        ignore_ns: u64,
        slot: u32,
        says: u8,
        marks: u8,
        action: u8,
        over: u8,
        action_page: u16,
        over_page: u16,
        unused: u32,
    }
}

shared! {
    /// A rule's counts: SYNs, handshakes and first requests, by what became of them.
    RawTally = "gate_tally" {
        admitted: u64,
        dropped: u64,
        reset: u64,
        answered: u64,
        requests: u64,
    }
}

shared! {
    /// Both ends of a connection, ports in network byte order.
    Tuple = "gate_tuple" {
        client: [u8; 16],
        local: [u8; 16],
        client_port: u16,
        local_port: u16,
    }
}

shared! {
    /// A connection that was admitted and is not accepted yet.
    RawPending = "gate_pending" {
        interval_ns: u64,
        tolerance_ns: u64,
        ignore_ns: u64,
        slot: u32,
        sequence: u32,
        state: u32,
        over: u32,
    }
}

shared! {
    /// The key of a listening socket.
    RawListener = "gate_listener" {
        address: [u8; 16],
        port: u16,
        family: u16,
    }
}

shared! {
    /// The key of the cookies' MAC.
    RawKey = "gate_key" {
        low: u64,
        high: u64,
    }
}

shared! {
    /// The alternatives that a rule has for one text: a range of the patterns.
    RawAsked = "gate_asked" {
        first: u32,
        count: u16,
        marks: u16,
    }
}

shared! {
    /// A rule for first requests.
    UrlRule = "gate_url_rule" {
        method: RawAsked,
        path: RawAsked,
        host: RawAsked,
        cookie: RawAsked,
        rank: u32,
        marks: u32,
        interval_ns: u64,
        tolerance_ns: u64,
        ignore_ns: u64,
        slot: u32,
        says: u8,
        action: u8,
        over: u8,
        busy: u8,
        action_page: u16,
        over_page: u16,
        busy_page: u16,
        unused: u16,
    }
}

shared! {
    /// The buckets of a rule.
    RawWord = "gate_word" {
        arrival: u64,
        requests: u64,
        full_until: u64,
        interval_ns: u64,
        unused: [u64; 4],
    }
}

/// The most bytes of an error page.
pub(crate) const PAGE_BYTES: usize = 512;
/// The most error pages; the map has each of them twice.
pub(crate) const PAGES: usize = 256;

/// A `gate_page`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct RawPage {
    pub(crate) head_bytes: u32,
    pub(crate) bytes: u32,
    pub(crate) head_sum: u32,
    pub(crate) sum: u32,
    pub(crate) text: [u8; PAGE_BYTES],
}

impl Default for RawPage {
    fn default() -> RawPage {
        RawPage { head_bytes: 0, bytes: 0, head_sum: 0, sum: 0, text: [0; PAGE_BYTES] }
    }
}

// SAFETY: numbers and an array of them; there is no padding, as the next line checks.
unsafe impl Plain for RawPage {}
const _: () = assert!(size_of::<RawPage>() == 16 + PAGE_BYTES);

shared! {
    /// A first request that was charged.
    RawCharged = "gate_charged" {
        slot: u32,
        sequence: u32,
    }
}

shared! {
    /// A text.
    RawPattern = "gate_pattern" {
        words: [u64; 20],
        length: u32,
        is_prefix: u32,
    }
}

shared! {
    /// The sockets of a listener's classes: `loops` of them for each rank, one after another.
    RawSockets = "gate_sockets" {
        first: u32,
        loops: u16,
        ranks: u16,
        speaks_tls: u32,
        marks: u32,
        queue: u32,
        place: u32,
        answers: u32,
    }
}

/// The address in IPv6's form: an IPv4 address becomes a mapped one.
pub(crate) fn mapped(address: IpAddr) -> [u8; 16] {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

impl Tuple {
    /// Makes the key of a connection.
    pub(crate) fn between(client: SocketAddr, local: SocketAddr) -> Tuple {
        Tuple {
            client: mapped(client.ip()),
            local: mapped(local.ip()),
            client_port: client.port().to_be(),
            local_port: local.port().to_be(),
        }
    }
}

/// The programs that others tail-call.
pub(crate) const ANSWER: u32 = 0;
pub(crate) const COMPLETE: u32 = 1;
pub(crate) const JUDGE: u32 = 2;
pub(crate) const REPLY: u32 = 3;
pub(crate) const WATCH: u32 = 4;
pub(crate) const SERVE: u32 = 5;
pub(crate) const SERVE_ON: u32 = 6;
pub(crate) const SEND: u32 = 7;

/// The number of sockets of classes: one half is in force, one is being filled.
pub(crate) const SOCKETS: u32 = 65536;

/// The values in the place of a listener's family: another server on this machine, and another machine.
pub(crate) const OF_OTHERS: u16 = 0;
pub(crate) const FORWARDED: u16 = 0xffff;
pub(crate) const STEERED: u32 = 1;
pub(crate) const PROTECTED: u32 = 2;
pub(crate) const LEAVING: u32 = 4;
/// The most other servers.
pub(crate) const OTHERS: usize = 64;

/// The ranks of one table.
pub(crate) const RANKS: u32 = 256;
pub(crate) const NO_SLOT: u32 = u32::MAX;

pub(crate) const OFFER_SCALE: u32 = 1;
pub(crate) const OFFER_SACK: u32 = 2;
pub(crate) const OFFER_TIMES: u32 = 4;
pub(crate) const OFFER_ECN: u32 = 8;

pub(crate) const ASKED: u16 = 1;
pub(crate) const ASKED_MORE: u16 = 2;
pub(crate) const MARK_MORE: u32 = 8;
pub(crate) const MARK_BY_REQUEST: u32 = 16;
pub(crate) const MARK_WAITS: u32 = 32;
/// The class cannot be determined, or the rule gives none.
pub(crate) const UNJUDGED: u32 = 255;

pub(crate) const SAYS_ACTION: u8 = 1;
pub(crate) const SAYS_LIMIT: u8 = 2;
pub(crate) const SAYS_BUSY: u8 = 4;
pub(crate) const SAYS_CLASS: u8 = 8;
pub(crate) const MARK_STOP: u8 = 1;
/// The degree of overload from which a rule holds: these bits, shifted.
pub(crate) const MARK_DEGREE: u8 = 6;
pub(crate) const DEGREE_SHIFT: u32 = 1;

pub(crate) const DO_ALLOW: u8 = 0;
pub(crate) const DO_DROP: u8 = 1;
pub(crate) const DO_RESET: u8 = 2;
pub(crate) const DO_USER: u8 = 3;
pub(crate) const DO_ANSWER: u8 = 4;

pub(crate) const CHARGED: u32 = 3;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::counts::{Count, FirstCount};
    use libbpf_rs::btf::{Btf, HasSize, types};

    /// Asserts that the compiled program has a struct of this name, with these fields at these offsets.
    pub(crate) fn assert_same(
        btf: &Btf<'_>,
        (name, size, fields): (&'static str, usize, Vec<(&'static str, usize)>),
    ) {
        let found: types::Struct<'_> = btf.type_by_name(name).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(found.size(), size, "{name}");
        let there: Vec<(String, usize)> = found
            .iter()
            .map(|member| {
                let types::MemberAttr::Normal { offset } = member.attr else { panic!("{name}") };
                (member.name.unwrap().to_str().unwrap().to_owned(), offset as usize / 8)
            })
            .collect();
        let here: Vec<(String, usize)> =
            fields.iter().map(|(field, offset)| ((*field).to_owned(), *offset)).collect();
        assert_eq!(there, here, "{name}");
    }

    #[test]
    fn kernel_and_server_have_the_same_structs() {
        let btf = Btf::from_raw("gate", crate::kernel::OBJECT).unwrap().unwrap();
        for layout in [
            Control::layout(),
            RawList::layout(),
            RawEntry::layout(),
            Says::layout(),
            RawTally::layout(),
            Tuple::layout(),
            RawPending::layout(),
            RawListener::layout(),
            RawKey::layout(),
            RawAsked::layout(),
            UrlRule::layout(),
            RawPattern::layout(),
            RawSockets::layout(),
            RawWord::layout(),
            RawCharged::layout(),
        ] {
            assert_same(&btf, layout);
        }
        let path: types::Struct<'_> = btf.type_by_name("gate_path").unwrap();
        assert_eq!(path.size(), PATH_KEY_BYTES);
        let page: types::Struct<'_> = btf.type_by_name("gate_page").unwrap();
        assert_eq!(page.size(), size_of::<RawPage>());
        let counts: types::Enum<'_> = btf.type_by_name("gate_first").unwrap();
        assert_eq!(counts.len(), FirstCount::ALL.len() + 1);
        for (at, count) in FirstCount::ALL.into_iter().enumerate() {
            assert_eq!(count as usize, at);
        }
        let counts: types::Enum<'_> = btf.type_by_name("gate_count").unwrap();
        assert_eq!(counts.len(), Count::ALL.len() + 1);
        for (at, count) in Count::ALL.into_iter().enumerate() {
            assert_eq!(count as usize, at);
        }
    }
}
