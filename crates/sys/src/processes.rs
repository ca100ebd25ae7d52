//! The processes that run, and which of them listens at an address (proc(5)).

use std::fs;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

/// The longest command line that is read.
const MOST_WORD_BYTES: u64 = 64 * 1024;

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningProcess {
    /// The number of the process.
    pub process: u32,
    /// The name of its program, of 15 bytes at most.
    pub name: String,
    /// The command line, the program first.
    pub words: Vec<String>,
    /// The current directory, if this process may know it.
    pub directory: Option<PathBuf>,
}

/// All processes that this one may see.
pub fn all() -> impl Iterator<Item = RunningProcess> {
    numbers().filter_map(read)
}

/// The process that listens at this address, or at all addresses of its family; `None` if there is
/// none, or if this process may not know: only root sees the descriptors of others.
pub fn listener_at(address: SocketAddr) -> Option<RunningProcess> {
    let tables = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
    let tables = tables.map(|table| fs::read_to_string(table).unwrap_or_default());
    let inodes: Vec<u64> = tables.iter().flat_map(|table| listeners(table, address)).collect();
    let names: Vec<PathBuf> =
        inodes.iter().map(|inode| PathBuf::from(format!("socket:[{inode}]"))).collect();
    let holds = |process: &u32| {
        let descriptors = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten();
        let mut leads = descriptors.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
        leads.any(|to| names.contains(&to))
    };
    if names.is_empty() { None } else { numbers().find(holds).and_then(read) }
}

fn numbers() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn read(process: u32) -> Option<RunningProcess> {
    let at = |name: &str| format!("/proc/{process}/{name}");
    let mut line = Vec::new();
    fs::File::open(at("cmdline")).ok()?.take(MOST_WORD_BYTES).read_to_end(&mut line).ok()?;
    let words = line.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    let name = fs::read_to_string(at("comm")).ok()?;
    Some(RunningProcess {
        process,
        name: name.trim_end().to_owned(),
        words: words.map(|word| String::from_utf8_lossy(word).into_owned()).collect(),
        directory: fs::read_link(at("cwd")).ok(),
    })
}

/// The inodes of the sockets of a table that listen where `address` is, or would be.
fn listeners(table: &str, address: SocketAddr) -> impl Iterator<Item = u64> {
    table.lines().skip(1).filter_map(move |line| {
        let mut columns = line.split_whitespace().skip(1);
        let (local, state) = (columns.next()?, columns.nth(1)?);
        let inode = columns.nth(5)?.parse().ok()?;
        let at = parse(local)?;
        let is_same = at.ip().to_canonical() == address.ip().to_canonical();
        let is_any = at.ip().is_unspecified() || address.ip().is_unspecified();
        // 0A: the socket listens
        (state == "0A" && at.port() == address.port() && (is_same || is_any)).then_some(inode)
    })
}

/// Reads an address as the kernel prints it: words in memory order, in hexadecimal.
fn parse(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let word = |at: usize| Some(u32::from_str_radix(ip.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    let ip = match ip.len() {
        8 => IpAddr::from(Ipv4Addr::from(word(0)?)),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?];
            let mut bytes = [0; 16];
            bytes.copy_from_slice(words.as_flattened());
            IpAddr::from(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn who_listens_is_found() {
        for at in ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0"] {
            let listener = TcpListener::bind(at).unwrap();
            let address = listener.local_addr().unwrap();
            let holder = listener_at(address).unwrap();
            assert_eq!(holder.process, std::process::id(), "{at}");
            assert!(holder.words[0].contains("forebay_sys"), "{holder:?}");
            assert_eq!(holder.directory, std::env::current_dir().ok());
            assert!(all().any(|process| process == holder));
            drop(listener);
            assert_eq!(listener_at(address), None, "{at}");
        }
    }
}
