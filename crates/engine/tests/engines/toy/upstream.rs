//! The upstreams behind the server: a thread per socket, which does what the path says.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The byte at this place of what a thread gives.
pub(super) fn gift_byte(at: usize) -> u8 {
    (at % 241) as u8
}

/// A socket to a thread that answers. `/up/echo` returns what it gets; `/up/count` says how many
/// bytes came, when all have; `/up/slow` does the same and takes a little at a time; `/up/gift/N`
/// gives N bytes at once, whatever comes; `/up/first/N` does that, ends, and then counts into its
/// own [`counted`]; `/up/flood/KEY` gives without an end; `/up/silent` waits for the end;
/// `/up/breaks` ends at once.
pub(super) fn open(path: &[u8]) -> UnixStream {
    let path = String::from_utf8(path.to_vec()).unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    std::thread::spawn(move || answer(&path, theirs));
    ours
}

/// What `/up/first` and `/up/count` have counted, by path.
static COUNTED: std::sync::Mutex<Vec<(String, u64)>> = std::sync::Mutex::new(Vec::new());

/// The bytes that `/up/flood` has given, by key.
static FLOODED: std::sync::Mutex<Vec<(String, u64)>> = std::sync::Mutex::new(Vec::new());

/// The bytes that `/up/flood` has given for this key.
pub(super) fn flooded(key: &str) -> u64 {
    let flooded = FLOODED.lock().unwrap();
    flooded.iter().filter(|(known, _)| known == key).map(|(_, count)| count).sum()
}

/// Waits until this path was counted; returns the number of bytes.
pub(super) fn counted(path: &str) -> u64 {
    loop {
        let mut counted = COUNTED.lock().unwrap();
        if let Some(at) = counted.iter().position(|(known, _)| known == path) {
            return counted.remove(at).1;
        }
        drop(counted);
        std::thread::sleep(Duration::from_millis(1));
    }
}

// the connection may end at any time
fn answer(path: &str, mut socket: UnixStream) {
    let mut buffer = vec![0; 64 * 1024];
    let count = |socket: &mut UnixStream, buffer: &mut [u8]| {
        let mut all = 0;
        while let Ok(count @ 1..) = socket.read(buffer) {
            all += count as u64;
        }
        all
    };
    if path.starts_with("/up/echo") {
        while let Ok(count @ 1..) = socket.read(&mut buffer) {
            if socket.write_all(&buffer[..count]).is_err() {
                return;
            }
        }
    } else if path.starts_with("/up/count") {
        let all = count(&mut socket, &mut buffer);
        let _ = socket.write_all(all.to_string().as_bytes());
        COUNTED.lock().unwrap().push((path.to_owned(), all));
    } else if path.starts_with("/up/slow") {
        let mut all = 0;
        while let Ok(count @ 1..) = socket.read(&mut buffer[..50_000]) {
            all += count;
            std::thread::yield_now();
        }
        let _ = socket.write_all(all.to_string().as_bytes());
    } else if let Some(len) = path.strip_prefix("/up/gift/") {
        let _ = give(&mut socket, len.parse().unwrap());
    } else if let Some(rest) = path.strip_prefix("/up/first/") {
        let len = rest.split('/').next().unwrap();
        let _ = give(&mut socket, len.parse().unwrap());
        let _ = socket.shutdown(Shutdown::Write);
        let all = count(&mut socket, &mut buffer);
        COUNTED.lock().unwrap().push((path.to_owned(), all));
    } else if let Some(key) = path.strip_prefix("/up/flood/") {
        while let Ok(count) = socket.write(&buffer) {
            FLOODED.lock().unwrap().push((key.to_owned(), count as u64));
        }
    } else if path.starts_with("/up/silent") {
        count(&mut socket, &mut buffer);
    }
}

fn give(socket: &mut UnixStream, len: usize) -> std::io::Result<()> {
    let bytes: Vec<u8> = (0..len).map(gift_byte).collect();
    socket.write_all(&bytes)
}
