//! The programs and maps in the kernel: loading, links, look-ups. Nothing here decides anything.

use crate::error::GateError;
use crate::types::{ANSWER, COMPLETE, Control, JUDGE, Plain, REPLY, SEND, SERVE, SERVE_ON, WATCH};
use libbpf_rs::libbpf_sys as sys;
use libbpf_rs::{
    AsRawLibbpf, MapCore, MapFlags, MapHandle, MapType, ObjectBuilder, OpenMapMut, PrintLevel,
};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::Mutex;

/// A wrapper that aligns its content: libbpf reads the object in place.
#[repr(align(8))]
struct Aligned<T: ?Sized>(T);

/// The object file that clang has made of `bpf/`.
pub(crate) static OBJECT: &[u8] = {
    static ALIGNED: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/gate.o")));
    &ALIGNED.0
};

/// The messages of libbpf while it loads, which become a part of the error if that fails.
static SAID: Mutex<String> = Mutex::new(String::new());

/// The bytes of these messages that are kept, from the end: the verifier can print megabytes, and its end
/// matters.
const MOST_SAID: usize = 64 << 10;

/// The loaded programs and maps. The kernel frees them when this is dropped, or when the process ends,
/// however it ends.
pub(crate) struct Kernel {
    program: OwnedFd,
    /// The program in a filter, which tail-calls `program`.
    caller: OwnedFd,
    pub(crate) control: Mapped,
    pub(crate) words: Mapped,
    pub(crate) ports: MapHandle,
    pub(crate) listeners: MapHandle,
    pub(crate) locals: MapHandle,
    pub(crate) tables: Outer,
    pub(crate) tallies: MapHandle,
    pub(crate) pending: MapHandle,
    pub(crate) ignored: MapHandle,
    pub(crate) counts: MapHandle,
    pub(crate) sockets: MapHandle,
    pub(crate) keys: MapHandle,
    pub(crate) judged: MapHandle,
    pub(crate) ranks: MapHandle,
    /// The maps for first requests.
    pub(crate) first: Option<FirstMaps>,
    /// The maps for answers from the cache.
    pub(crate) answers: Option<AnswerMaps>,
    /// The map for tail calls. The kernel empties it when no process holds it.
    programs: MapHandle,
}

/// The maps for first requests that are judged, where handshakes are completed.
pub(crate) struct FirstMaps {
    pub(crate) pages: MapHandle,
    pub(crate) charged: MapHandle,
    pub(crate) counts: MapHandle,
}

/// The room for answers from the cache. The kernel allocates all of it at loading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerRoom {
    /// The most answers that are known at once, a quarter of a KiB each.
    pub answers: u32,
    /// The most variants of answers, 4 KiB each.
    pub variants: u32,
    /// The most connections that have had an answer and may go on, 140 bytes each. The least recently used
    /// one is evicted first, and then gets a reset.
    pub connections: u32,
    /// The bytes of the buffer for records, a power of two, 4096 or more. A record has 72 bytes and the head
    /// of the request.
    pub record_bytes: u32,
}

impl Default for AnswerRoom {
    /// Room of 15 MiB.
    fn default() -> AnswerRoom {
        AnswerRoom { answers: 1024, variants: 1024, connections: 65_536, record_bytes: 2 << 20 }
    }
}

impl AnswerRoom {
    /// The room of a gate that answers no requests, and goes on with connections that had answers from
    /// another gate.
    pub(crate) const LEAST: AnswerRoom =
        AnswerRoom { answers: 1, variants: 1, connections: 1, record_bytes: 4096 };

    /// The number of entries of the map with this name, if it depends on the room.
    fn entries_of(&self, map: &OsStr) -> Option<u32> {
        match map.to_str()? {
            "answers" => Some(self.answers.max(1)),
            "objects" => Some(self.variants.max(1)),
            SERVED => Some(self.connections.max(1)),
            "records" => Some(self.record_bytes.max(4096).next_power_of_two()),
            _ => None,
        }
    }
}

/// The maps for answers from the cache.
pub(crate) struct AnswerMaps {
    pub(crate) serving: Mapped,
    pub(crate) answers: MapHandle,
    pub(crate) objects: MapHandle,
    pub(crate) dates: MapHandle,
    pub(crate) fields: MapHandle,
    pub(crate) records: MapHandle,
    pub(crate) counts: MapHandle,
    pub(crate) served: MapHandle,
}

/// The map of connections that have had an answer.
pub(crate) const SERVED: &str = "served";

/// The maps that are created only where requests are answered from the cache.
const OF_ANSWERS: [&str; 8] =
    ["serving", "answers", "objects", "dates", "fields", "records", "serves", SERVED];

/// The maps that are created only where handshakes are completed.
const OF_FIRST: [&str; 5] = ["pages", "refused", "charged", "watched", "firsts"];

/// The maps that hold tables.
pub(crate) struct Outer {
    pub(crate) clients4: MapHandle,
    pub(crate) clients6: MapHandle,
    pub(crate) entries: MapHandle,
    pub(crate) rules: MapHandle,
    pub(crate) url_clients4: MapHandle,
    pub(crate) url_clients6: MapHandle,
    pub(crate) url_paths: MapHandle,
    pub(crate) hello_clients4: MapHandle,
    pub(crate) hello_clients6: MapHandle,
    pub(crate) url_entries: MapHandle,
    pub(crate) url_rules: MapHandle,
    pub(crate) patterns: MapHandle,
}

impl Kernel {
    /// Loads the programs and maps that are needed: with `steers` also those for handshakes without state,
    /// with `answers` also those for answers from the cache. Nothing is attached yet. The `kept` maps of an
    /// earlier gate are used instead of new ones with their names.
    ///
    /// # Errors
    /// [`GateError::Load`] with the messages of libbpf.
    pub(crate) fn load(
        steers: bool,
        answers: Option<&AnswerRoom>,
        kept: &[(String, OwnedFd)],
    ) -> Result<Kernel, GateError> {
        libbpf_rs::set_print(Some((PrintLevel::Info, |_, text| {
            if let Ok(mut said) = SAID.lock() {
                said.push_str(&text);
                if said.len() > MOST_SAID {
                    let cut = said.len() - MOST_SAID;
                    let cut = (cut..said.len()).find(|at| said.is_char_boundary(*at));
                    said.drain(..cut.unwrap_or(0));
                }
            }
        })));
        Kernel::try_load(steers, answers, kept).map_err(|error| {
            let said = SAID.lock().map(|mut said| std::mem::take(&mut *said)).unwrap_or_default();
            GateError::Load { error: error.to_string(), said }
        })
    }

    fn try_load(
        steers: bool,
        answers: Option<&AnswerRoom>,
        kept: &[(String, OwnedFd)],
    ) -> libbpf_rs::Result<Kernel> {
        // libbpf caches the number; once the process has confined itself, the file with it may be out of
        // reach
        libbpf_rs::num_possible_cpus()?;
        let mut object = ObjectBuilder::default().open_memory(OBJECT)?;
        for mut map in object.maps_mut() {
            let is_of_first = OF_FIRST.iter().any(|name| map.name() == *name);
            let is_of_answers = OF_ANSWERS.iter().any(|name| map.name() == *name);
            if map.name() == "shapes"
                || is_of_first && !steers
                || is_of_answers && answers.is_none()
            {
                map.set_autocreate(false)?;
            }
            if let Some(entries) = answers.and_then(|room| room.entries_of(map.name())) {
                map.set_max_entries(entries)?;
            }
            if let Some((_, of_other)) = kept.iter().find(|(name, _)| map.name() == name.as_str()) {
                // a map that is handed over keeps the size that the first process has given it
                if map.name() == SERVED && answers.is_some() {
                    map.set_max_entries(shape_of(of_other.as_fd())?[3])?;
                }
                if shape_of(of_other.as_fd())? != shape(&map) {
                    return Err(io::Error::other("a map that was handed is none of ours").into());
                }
                map.reuse_fd(of_other.as_fd())?;
            }
        }
        // older kernels reject these programs, so they are loaded only where they are needed
        let of_steering =
            [("answer", ANSWER), ("complete", COMPLETE), ("reply", REPLY), ("watch_first", WATCH)];
        let of_answers = [("serve_on", SERVE_ON), ("serve", SERVE), ("send_answer", SEND)];
        let is_among = |programs: &[(&str, u32)], name: &OsStr| {
            programs.iter().any(|(program, _)| name == *program)
        };
        for mut program in object.progs_mut() {
            let is_wanted = (steers || !is_among(&of_steering, program.name()))
                && (answers.is_some() || !is_among(&of_answers, program.name()));
            program.set_autoload(is_wanted);
        }
        let object = object.load()?;
        let program = |name: &str| -> libbpf_rs::Result<OwnedFd> {
            let found =
                object.progs().find(|program| program.name() == name).ok_or_else(missing)?;
            Ok(found.as_fd().try_clone_to_owned()?)
        };
        let map = |name: &str| -> libbpf_rs::Result<MapHandle> {
            let found = object.maps().find(|map| map.name() == name).ok_or_else(missing)?;
            MapHandle::try_from(&found)
        };
        let (judge, programs) = (program("gate")?, map("programs")?);
        place_program(&programs, JUDGE, &judge)?;
        let of_steering = of_steering.into_iter().filter(|_| steers);
        let of_answers = of_answers.into_iter().filter(|_| answers.is_some());
        for (name, at) in of_steering.chain(of_answers) {
            place_program(&programs, at, &program(name)?)?;
        }
        let first = || -> libbpf_rs::Result<FirstMaps> {
            Ok(FirstMaps { pages: map("pages")?, charged: map("charged")?, counts: map("firsts")? })
        };
        let answer_maps = || -> libbpf_rs::Result<AnswerMaps> {
            Ok(AnswerMaps {
                serving: Mapped::new(map("serving")?)?,
                answers: map("answers")?,
                objects: map("objects")?,
                dates: map("dates")?,
                fields: map("fields")?,
                records: map("records")?,
                counts: map("serves")?,
                served: map(SERVED)?,
            })
        };
        Ok(Kernel {
            program: judge,
            caller: program("forebay_gate")?,
            control: Mapped::new(map("control")?)?,
            words: Mapped::new(map("words")?)?,
            ports: map("ports")?,
            listeners: map("listeners")?,
            locals: map("locals")?,
            tables: Outer {
                clients4: map("tables_clients4")?,
                clients6: map("tables_clients6")?,
                entries: map("tables_entries")?,
                rules: map("tables_rules")?,
                url_clients4: map("tables_url_clients4")?,
                url_clients6: map("tables_url_clients6")?,
                url_paths: map("tables_url_paths")?,
                hello_clients4: map("tables_hello_clients4")?,
                hello_clients6: map("tables_hello_clients6")?,
                url_entries: map("tables_url_entries")?,
                url_rules: map("tables_url_rules")?,
                patterns: map("tables_patterns")?,
            },
            tallies: map("tallies")?,
            pending: map("pending")?,
            ignored: map("ignored")?,
            counts: map("counts")?,
            sockets: map("sockets")?,
            keys: map("keys")?,
            judged: map("judged")?,
            ranks: map("ranks")?,
            first: steers.then(first).transpose()?,
            answers: answers.map(|_| answer_maps()).transpose()?,
            programs,
        })
    }

    /// Attaches the program to an interface, before the programs that are there. It stays as long as the link
    /// is open.
    ///
    /// # Errors
    /// Errors of the kernel; before Linux 6.6 it has no such links.
    pub(crate) fn attach(&self, interface: u32) -> io::Result<OwnedFd> {
        let index = interface.cast_signed();
        // SAFETY: the program's descriptor is open; no options are given.
        let link = unsafe {
            sys::bpf_link_create(self.program.as_raw_fd(), index, sys::BPF_TCX_INGRESS, ptr::null())
        };
        owned(link)
    }

    /// Replaces the program of a link by this one, from one packet to the next.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub(crate) fn replace(&self, link: BorrowedFd<'_>) -> io::Result<()> {
        // SAFETY: both descriptors are open; no options are given.
        let result = unsafe {
            sys::bpf_link_update(link.as_raw_fd(), self.program.as_raw_fd(), ptr::null())
        };
        if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) }
    }

    /// The maps that another process may take over, by name. Their content means the same there if
    /// [`LAYOUT`](crate::handing::LAYOUT) is the same.
    pub(crate) fn kept(&self) -> Vec<(&'static str, BorrowedFd<'_>)> {
        let first = self
            .first
            .as_ref()
            .map(|first| [("charged", first.charged.as_fd()), ("firsts", first.counts.as_fd())]);
        let always = [
            ("words", self.words.map.as_fd()),
            ("tallies", self.tallies.as_fd()),
            ("pending", self.pending.as_fd()),
            ("ignored", self.ignored.as_fd()),
            ("counts", self.counts.as_fd()),
            ("keys", self.keys.as_fd()),
            ("judged", self.judged.as_fd()),
        ];
        // connections that had an answer go on in the other process
        let served = self.answers.as_ref().map(|answers| (SERVED, answers.served.as_fd()));
        always.into_iter().chain(first.into_iter().flatten()).chain(served).collect()
    }

    /// The map through which the attached program tail-calls the others.
    pub(crate) fn programs(&self) -> BorrowedFd<'_> {
        self.programs.as_fd()
    }

    /// Whether the kernel has links at TC.
    pub(crate) fn has_links(&self) -> bool {
        // no interface has the index 0: a kernel with such links answers ENODEV, an older one another error
        let none = self.attach(0);
        none.is_err_and(|error| error.raw_os_error() == Some(libc::ENODEV))
    }

    /// The program that a filter runs, where there are no links.
    pub(crate) fn caller(&self) -> BorrowedFd<'_> {
        self.caller.as_fd()
    }

    /// The kernel's id of the program that judges.
    #[cfg(test)]
    pub(crate) fn program_number(&self) -> u32 {
        let mut info = sys::bpf_prog_info::default();
        let mut bytes = size_of::<sys::bpf_prog_info>() as u32;
        // SAFETY: the program is open, and so many bytes are writable.
        let result = unsafe {
            sys::bpf_prog_get_info_by_fd(self.program.as_raw_fd(), &raw mut info, &raw mut bytes)
        };
        assert_eq!(result, 0);
        info.id
    }

    /// Runs the program `times` times on a packet that begins with its Ethernet header. Returns the
    /// verdict, the packet as the program left it, and the nanoseconds of one run on average.
    ///
    /// # Errors
    /// Errors of the kernel, mostly of packets that are too short.
    pub(crate) fn run_on(&self, packet: &[u8], times: u32) -> io::Result<(u32, Vec<u8>, u32)> {
        // an answer from the cache may be as long as a segment
        let mut out = vec![0_u8; packet.len() + 2048];
        let mut options = sys::bpf_test_run_opts {
            sz: size_of::<sys::bpf_test_run_opts>() as sys::size_t,
            data_in: packet.as_ptr().cast(),
            data_size_in: packet.len() as u32,
            data_out: out.as_mut_ptr().cast(),
            data_size_out: out.len() as u32,
            repeat: times.cast_signed(),
            ..sys::bpf_test_run_opts::default()
        };
        // SAFETY: both buffers are as long as is said, and outlive the call.
        let result =
            unsafe { sys::bpf_prog_test_run_opts(self.program.as_raw_fd(), &raw mut options) };
        if result < 0 {
            return Err(io::Error::from_raw_os_error(-result));
        }
        out.truncate(options.data_size_out as usize);
        Ok((options.retval, out, options.duration))
    }
}

/// The shape of a map: type, bytes of a key and of a value, entries, flags.
type MapShape = [u32; 5];

fn shape(map: &OpenMapMut<'_>) -> MapShape {
    let at = map.as_libbpf_object().as_ptr();
    // SAFETY: the map belongs to an object that is open.
    unsafe {
        [
            sys::bpf_map__type(at),
            sys::bpf_map__key_size(at),
            sys::bpf_map__value_size(at),
            sys::bpf_map__max_entries(at),
            sys::bpf_map__map_flags(at),
        ]
    }
}

fn shape_of(map: BorrowedFd<'_>) -> io::Result<MapShape> {
    let mut info = sys::bpf_map_info::default();
    let mut bytes = size_of::<sys::bpf_map_info>() as u32;
    // SAFETY: the descriptor is open, and so many bytes are writable.
    let result =
        unsafe { sys::bpf_map_get_info_by_fd(map.as_raw_fd(), &raw mut info, &raw mut bytes) };
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    Ok([info.type_, info.key_size, info.value_size, info.max_entries, info.map_flags])
}

fn missing() -> libbpf_rs::Error {
    io::Error::other("the object lacks a part").into()
}

fn owned(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the kernel has just returned the descriptor, so this is its only owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Creates a table for one of the outer maps.
pub(crate) fn table(
    kind: MapType,
    key_bytes: usize,
    value_bytes: usize,
    entries: usize,
    flags: u32,
) -> io::Result<MapHandle> {
    let options = sys::bpf_map_create_opts {
        sz: size_of::<sys::bpf_map_create_opts>() as sys::size_t,
        map_flags: flags,
        ..sys::bpf_map_create_opts::default()
    };
    let entries = entries.max(1) as u32;
    let made = MapHandle::create(
        kind,
        Some("gate_table"),
        key_bytes as u32,
        value_bytes as u32,
        entries,
        &options,
    );
    made.map_err(plain)
}

fn place_program(programs: &MapHandle, at: u32, program: &OwnedFd) -> libbpf_rs::Result<()> {
    programs.update(&at.to_ne_bytes(), &program.as_raw_fd().to_ne_bytes(), MapFlags::ANY)
}

/// Puts a table into an outer map, at index `at`.
pub(crate) fn place(outer: &MapHandle, at: u32, table: &MapHandle) -> io::Result<()> {
    let fd = table.as_fd().as_raw_fd();
    outer.update(&at.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY).map_err(plain)
}

/// Looks an entry of a map up and deletes it, without allocating; `None` if there is none.
pub(crate) fn take<V: Plain>(map: &MapHandle, key: &impl Plain) -> Option<V> {
    let mut value = V::default();
    // SAFETY: key and value are as large as those of the map, which `types` has declared.
    let result = unsafe {
        sys::bpf_map_lookup_and_delete_elem(
            map.as_fd().as_raw_fd(),
            (&raw const *key).cast(),
            (&raw mut value).cast(),
        )
    };
    (result == 0).then_some(value)
}

/// Turns an error of libbpf into one of `io`, with its text.
pub(crate) fn plain(error: libbpf_rs::Error) -> io::Error {
    io::Error::other(error.to_string())
}

/// A map of the kernel, mapped into the memory of this process for as long as the process lives, so that
/// references into it are `'static`.
pub(crate) struct Mapped {
    map: MapHandle,
    at: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory is shared with the kernel anyway, and only reached by atomic operations.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    fn new(map: MapHandle) -> io::Result<Mapped> {
        let bytes = map.value_size() as usize * map.max_entries() as usize;
        let bytes = bytes.next_multiple_of(page_bytes());
        let fd: BorrowedFd<'_> = map.as_fd();
        // SAFETY: a new mapping of our choosing; the kernel keeps the map as long as it is mapped.
        let at = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(at.cast::<u8>()) {
            Some(at) if at.as_ptr().cast() != libc::MAP_FAILED => Ok(Mapped { map, at, bytes }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The word that begins at this byte; `None` if it is not aligned, or outside of the map.
    pub(crate) fn word<T: Word>(&self, at: usize) -> Option<&'static T> {
        let fits =
            at.is_multiple_of(size_of::<T>()) && at.checked_add(size_of::<T>())? <= self.bytes;
        // SAFETY: the word lies in the mapping, which is never unmapped, and is aligned; an atomic may
        // change at any time.
        fits.then(|| unsafe { &*self.at.as_ptr().add(at).cast::<T>() })
    }
}

/// A word that the kernel and this process change at the same time.
///
/// # Safety
/// The type is an atomic integer.
pub(crate) unsafe trait Word: 'static {}
// SAFETY: an atomic integer.
unsafe impl Word for std::sync::atomic::AtomicU64 {}
// SAFETY: an atomic integer.
unsafe impl Word for std::sync::atomic::AtomicU32 {}

fn page_bytes() -> usize {
    // SAFETY: the call has no conditions.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4096)
}

/// The offsets of the fields of `gate_control`.
pub(crate) const CONTROL_TABLE: usize = std::mem::offset_of!(Control, table);
pub(crate) const CONTROL_DEGREE: usize = std::mem::offset_of!(Control, degree);
pub(crate) const CONTROL_CHARGE: usize = std::mem::offset_of!(Control, charge);
pub(crate) const CONTROL_IGNORES: usize = std::mem::offset_of!(Control, ignores);
pub(crate) const CONTROL_ANSWERS: usize = std::mem::offset_of!(Control, answers);
pub(crate) const CONTROL_COMPLETES: usize = std::mem::offset_of!(Control, completes);
pub(crate) const CONTROL_OFFERS: usize = std::mem::offset_of!(Control, offers);
pub(crate) const CONTROL_JUDGES: usize = std::mem::offset_of!(Control, judges);
pub(crate) const CONTROL_PAGES: usize = std::mem::offset_of!(Control, pages);
pub(crate) const CONTROL_READS_COOKIES: usize = std::mem::offset_of!(Control, reads_cookies);
pub(crate) const CONTROL_DEFAULT_RANK: usize = std::mem::offset_of!(Control, default_rank);
pub(crate) const CONTROL_FORWARDS: usize = std::mem::offset_of!(Control, forwards);
pub(crate) const CONTROL_WATCHES: usize = std::mem::offset_of!(Control, watches);
pub(crate) const CONTROL_SERVES: usize = std::mem::offset_of!(Control, serves);

/// Whether the kernel can make a connection of a cookie that is not its own (Linux 6.9).
pub fn makes_connections() -> bool {
    let kernel = libbpf_rs::btf::Btf::from_vmlinux();
    kernel.is_ok_and(|btf| {
        btf.type_by_name::<libbpf_rs::btf::types::Func<'_>>("bpf_sk_assign_tcp_reqsk").is_some()
    })
}
