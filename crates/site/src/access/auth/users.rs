//! The users of a realm: names and hashes from the configuration, and from a file that may change.

use crate::rules::{PasswordHash, User};
use arc_swap::ArcSwap;
use std::collections::HashMap;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

/// The largest file of users that is read.
const MOST_FILE_BYTES: u64 = 16 << 20;
/// The time after a change in which a file may change again without its time stamp moving.
const YOUNG: Duration = Duration::from_secs(2);

/// The hash that is verified against if a realm has no user at all, so that the time it takes does
/// not give that away. It has the costs that `forebay hash-password` uses, and a password that is
/// known to no one.
static NOBODY: LazyLock<Option<PasswordHash>> = LazyLock::new(|| {
    let text = "$argon2id$v=19$m=19456,t=2,p=1$bm9ib2R5IGlzIGhlcmUh$\
                oAmEYQm1cQ3tqvoXKnGz0A0BPqWZMsJmCjKpNbAzqRQ";
    PasswordHash::parse(text).ok()
});

/// The users of one realm at one time.
#[derive(Debug, Default)]
struct UserTable {
    places: HashMap<Box<[u8]>, usize>,
    hashes: Vec<PasswordHash>,
}

impl UserTable {
    fn add(&mut self, user: &User) {
        self.places.insert(user.name().as_bytes().into(), self.hashes.len());
        self.hashes.push(user.hash().clone());
    }
}

/// The users as they were last read.
#[derive(Debug)]
struct UsersState {
    /// `None` while the file cannot be read.
    table: Option<UserTable>,
    /// The file that was read.
    stamp: Option<Stamp>,
}

/// The fields of `stat` that differ between two states of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    mtime: (i64, i64),
    ctime: (i64, i64),
    /// The file may change again without this stamp moving. Such a stamp is not equal to the same
    /// file's a moment later.
    is_young: bool,
}

impl Stamp {
    fn of(state: &fs::Metadata) -> Stamp {
        let age = state.modified().ok().and_then(|at| SystemTime::now().duration_since(at).ok());
        Stamp {
            device: state.dev(),
            inode: state.ino(),
            size: state.size(),
            mtime: (state.mtime(), state.mtime_nsec()),
            ctime: (state.ctime(), state.ctime_nsec()),
            is_young: age.is_none_or(|age| age < YOUNG),
        }
    }
}

/// An error of a file of users.
#[derive(Debug)]
pub enum UsersError {
    /// The file cannot be read; every user of it is refused.
    Unreadable(io::Error),
    /// A line of the file is not `NAME:HASH`; the user on it is refused.
    Line {
        /// The line's number, from 1 on.
        line: usize,
        /// The error, without the line itself.
        reason: String,
    },
}

impl std::fmt::Display for UsersError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            UsersError::Unreadable(error) => write!(f, "it cannot be read: {error}"),
            UsersError::Line { line, reason } => write!(f, "line {line}: {reason}"),
        }
    }
}

impl std::error::Error for UsersError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            UsersError::Unreadable(error) => Some(error),
            UsersError::Line { .. } => None,
        }
    }
}

/// The errors of a file of users. Reads the file; may block.
pub fn users_errors(file: &Path) -> Vec<UsersError> {
    Users::new(Vec::new(), Some(file.to_owned())).look()
}

/// The users of one realm.
#[derive(Debug)]
pub(crate) struct Users {
    configured: Vec<User>,
    file: Option<PathBuf>,
    state: ArcSwap<UsersState>,
    /// The number of the state: odd while the file cannot be read.
    generation: AtomicU64,
    /// The choice of the user's hash with which an unknown user's password is compared.
    strangers: RandomState,
}

impl Users {
    /// The users that are configured. If there is a file, no user passes before the first
    /// [`look`](Users::look).
    pub(crate) fn new(configured: Vec<User>, file: Option<PathBuf>) -> Users {
        let mut table = UserTable::default();
        configured.iter().for_each(|user| table.add(user));
        let state = UsersState { table: file.is_none().then_some(table), stamp: None };
        let generation = AtomicU64::new(u64::from(file.is_some()));
        let strangers = RandomState::new();
        Users { configured, file, state: ArcSwap::from_pointee(state), generation, strangers }
    }

    /// The file, if there is one.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The number of the users' state, which changes whenever they change. A verdict on credentials
    /// holds for one generation.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Acquire)
    }

    /// Whether no user may pass because the file cannot be read.
    #[inline]
    pub(crate) fn is_unreadable(&self) -> bool {
        self.generation() % 2 == 1
    }

    /// Reads the file if it changed, and returns its errors each time it changes. May block. Called
    /// by one thread at a time.
    pub(crate) fn look(&self) -> Vec<UsersError> {
        let Some(file) = &self.file else { return Vec::new() };
        let before = self.state.load();
        let seen = fs::metadata(file).map(|state| Stamp::of(&state)).ok();
        if seen.is_some_and(|seen| !seen.is_young && before.stamp == Some(seen)) {
            return Vec::new();
        }
        match self.read(file) {
            Ok((table, stamp, errors)) => {
                let is_same = before.stamp.is_some_and(|old| {
                    Stamp { is_young: false, ..old } == Stamp { is_young: false, ..stamp }
                }) && before.table.as_ref().is_some_and(|old| *old == table);
                self.state.store(Arc::new(UsersState { table: Some(table), stamp: Some(stamp) }));
                if is_same {
                    return Vec::new();
                }
                self.move_to(0);
                errors
            }
            Err(_) if before.table.is_none() && before.stamp.is_none() && self.was_told() => {
                Vec::new()
            }
            Err(error) => {
                self.state.store(Arc::new(UsersState { table: None, stamp: None }));
                self.move_to(1);
                vec![UsersError::Unreadable(error)]
            }
        }
    }

    /// Whether the failure has been reported. The first one is reported too: the generation begins
    /// at 1 and is higher after it.
    fn was_told(&self) -> bool {
        self.generation() > 1
    }

    /// Moves to the next generation with this remainder of 2.
    fn move_to(&self, parity: u64) {
        let next = self.generation.load(Acquire) + 1;
        self.generation.store(next + (next + parity) % 2, Release);
    }

    fn read(&self, file: &Path) -> io::Result<(UserTable, Stamp, Vec<UsersError>)> {
        if !fs::metadata(file)?.is_file() {
            return Err(io::Error::other("it is not a file"));
        }
        let file = fs::File::open(file)?;
        let stamp = Stamp::of(&file.metadata()?);
        if stamp.size > MOST_FILE_BYTES {
            return Err(io::Error::other("it has more than 16 MiB"));
        }
        let mut text = Vec::new();
        (&file).take(MOST_FILE_BYTES).read_to_end(&mut text)?;
        let mut table = UserTable::default();
        let mut errors = Vec::new();
        // some editors put a mark before UTF-8
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&text);
        for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            match read_line(line) {
                Ok(user) if table.places.contains_key(user.name().as_bytes()) => {
                    let reason = "this user is in the file twice; the first one counts".to_owned();
                    errors.push(UsersError::Line { line: index + 1, reason });
                }
                Ok(user) => table.add(&user),
                Err(reason) => errors.push(UsersError::Line { line: index + 1, reason }),
            }
        }
        // the configuration has the last word
        self.configured.iter().for_each(|user| table.add(user));
        Ok((table, stamp, errors))
    }

    /// Whether the user is known and this is the password. Takes tens of milliseconds of CPU time,
    /// for an unknown user as long as for some known one. `None` while the file cannot be read.
    pub(crate) fn verify(&self, name: &[u8], password: &[u8]) -> Option<bool> {
        let state = self.state.load_full();
        let table = state.table.as_ref()?;
        if let Some(hash) = table.places.get(name).and_then(|&place| table.hashes.get(place)) {
            return Some(hash.verify(password));
        }
        // the same stranger always costs the same, as a user would
        let some = self.strangers.hash_one(name) as usize % table.hashes.len().max(1);
        if let Some(hash) = table.hashes.get(some).or(NOBODY.as_ref()) {
            std::hint::black_box(hash.verify(password));
        }
        Some(false)
    }
}

impl PartialEq for UserTable {
    fn eq(&self, other: &UserTable) -> bool {
        self.places == other.places && self.hashes == other.hashes
    }
}

/// Reads a line `NAME:HASH`, and perhaps `:` and a comment, as nginx has it; htpasswd and `forebay
/// hash-password` write the first two.
fn read_line(line: &[u8]) -> Result<User, String> {
    let line = std::str::from_utf8(line).map_err(|_| "it is not UTF-8".to_owned())?;
    let (name, hash) = line.split_once(':').ok_or("it is not NAME:HASH")?;
    // no hash has a colon
    let hash = hash.split_once(':').map_or(hash, |(hash, _)| hash);
    User::parse(name, hash).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Folder;

    /// "password", as cheap as bcrypt gets.
    const HASH: &str = "$2y$04$Ayqf8k2/9gHzdxxo46SsvO8l1s9GGupyEZ18Jcf3lO9QV5zPt70Xi";

    fn of(folder: &Folder) -> Users {
        Users::new(Vec::new(), Some(folder.path().join("users")))
    }

    fn configured(name: &str) -> Vec<User> {
        vec![User::parse(name, HASH).unwrap()]
    }

    #[test]
    fn only_the_right_password_of_a_known_user_passes() {
        let users = Users::new(configured("alice"), None);
        assert_eq!(users.verify(b"alice", b"password"), Some(true));
        assert_eq!(users.verify(b"alice", b"passwort"), Some(false));
        assert_eq!(users.verify(b"Alice", b"password"), Some(false));
        assert_eq!(users.verify(b"", b"password"), Some(false));
        assert!(users.look().is_empty() && !users.is_unreadable());
    }

    #[test]
    fn a_file_may_have_a_byte_order_mark_and_comments() {
        let read = |line: &str| read_line(line.as_bytes()).map(|user| user.name().to_owned());
        assert_eq!(read(&format!("bob:{HASH}:came in 2024: from sales")), Ok("bob".to_owned()));
        assert!(read("bob:nothing:comment").is_err());
        let folder = Folder::new();
        folder.write("users", format!("\u{feff}bob:{HASH}\r\neve:{HASH}:x\r\n"));
        let users = of(&folder);
        assert!(users.look().is_empty());
        for name in ["bob", "eve"] {
            assert_eq!(users.verify(name.as_bytes(), b"password"), Some(true), "{name}");
        }
    }

    #[test]
    fn an_empty_realm_compares_with_nobody() {
        assert!(NOBODY.as_ref().unwrap().as_str().contains("m=19456,t=2,p=1"));
        assert_eq!(Users::new(Vec::new(), None).verify(b"a", b""), Some(false));
    }

    #[test]
    fn nobody_passes_while_the_file_cannot_be_read() {
        let folder = Folder::new();
        let users = of(&folder);
        assert!(users.is_unreadable());
        assert_eq!(users.verify(b"alice", b"password"), None);
        assert!(matches!(users.look()[..], [UsersError::Unreadable(_)]));
        assert!(users.look().is_empty(), "it is told once");
        folder.write("users", format!("# comment\n\nalice:{HASH}\r\n"));
        assert!(users.look().is_empty() && !users.is_unreadable());
        assert_eq!(users.verify(b"alice", b"password"), Some(true));
        fs::remove_file(folder.path().join("users")).unwrap();
        let before = users.generation();
        assert_eq!(users.look().len(), 1);
        assert!(users.is_unreadable() && users.generation() != before);
        assert_eq!(users.verify(b"alice", b"password"), None);
        fs::create_dir(folder.path().join("users")).unwrap();
        assert!(users.look().is_empty() && users.is_unreadable());
    }

    #[test]
    fn a_change_is_taken_over() {
        let folder = Folder::new();
        let users = of(&folder);
        folder.write("users", format!("alice:{HASH}\n"));
        users.look();
        let first = users.generation();
        users.look();
        assert_eq!(users.generation(), first, "nothing changed");
        folder.write("users", format!("bob:{HASH}\n"));
        users.look();
        assert_ne!(users.generation(), first);
        assert_eq!(users.verify(b"alice", b"password"), Some(false));
        assert_eq!(users.verify(b"bob", b"password"), Some(true));
    }

    /// Within the tick of the file system's clock two states may have one stamp.
    #[test]
    fn a_young_file_is_read_again() {
        let folder = Folder::new();
        let users = of(&folder);
        folder.write_now("users", format!("alice:{HASH}\n"));
        users.look();
        let first = users.generation();
        users.look();
        assert_eq!(users.generation(), first, "nothing changed");
        folder.write_now("users", format!("carol:{HASH}\n"));
        users.look();
        assert_eq!(users.verify(b"alice", b"password"), Some(false));
    }

    #[test]
    fn a_bad_line_locks_out_that_user_only() {
        let folder = Folder::new();
        let users = of(&folder);
        let text = format!("alice:{HASH}\nbob\n:x\ncarol:plain\nalice:{HASH}\ndave:{HASH}");
        folder.write("users", text);
        let errors: Vec<_> = users.look().iter().map(UsersError::to_string).collect();
        assert_eq!(errors.len(), 4, "{errors:?}");
        assert_eq!(errors[0], "line 2: it is not NAME:HASH");
        assert_eq!(errors[1], "line 3: a user's name is not empty and has no colon");
        assert!(errors[2].starts_with("line 4: not a password hash"));
        assert!(errors[3].starts_with("line 5: this user is in the file twice"));
        assert_eq!(users.verify(b"dave", b"password"), Some(true));
        assert_eq!(users.verify(b"carol", b"plain"), Some(false));
    }

    #[test]
    fn the_configuration_goes_first() {
        let folder = Folder::new();
        let other = PasswordHash::make(crate::rules::Scheme::Bcrypt, b"other").unwrap();
        folder.write("users", format!("alice:{}\n", other.as_str()));
        let users = Users::new(configured("alice"), Some(folder.path().join("users")));
        users.look();
        assert_eq!(users.verify(b"alice", b"password"), Some(true));
        assert_eq!(users.verify(b"alice", b"other"), Some(false));
    }
}
