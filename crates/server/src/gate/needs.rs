//! The gate's requirements, and whether this machine meets them.

use super::KernelGate;
use forebay_config::GateMode;
use forebay_sys::privileges;
use std::fs;
use std::path::Path;

/// The oldest kernel in which the gate can judge SYNs.
const OLDEST: (u32, u32) = (6, 1);

/// The oldest kernel that makes connections of SYN cookies that are not its own.
const OLDEST_FULL: (u32, u32) = (6, 9);

/// A requirement, and whether it is met; `Err` says what is missing.
pub(crate) type Need = (&'static str, Result<String, String>);

/// The first unmet requirement for rules in the kernel, with everything that `gate` asks for, as
/// far as a process without rights can see.
pub(crate) fn lack(mode: GateMode) -> Option<String> {
    let mut seen = vec![built(), kernel(), types()];
    if mode == GateMode::Full {
        seen.extend([kernel_for_full(), cookies()]);
    }
    seen.into_iter().find_map(|(need, found)| Some(format!("{need}: {}", found.err()?)))
}

/// The requirements of the rung `address`.
pub(crate) fn needs() -> Vec<Need> {
    let mut needs = vec![built(), kernel(), types(), rights()];
    if has_all(&needs) {
        needs.push(("the program loads", loads(false)));
    }
    needs
}

/// Whether all requirements are met.
pub(crate) fn has_all(needs: &[Need]) -> bool {
    needs.iter().all(|(_, found)| found.is_ok())
}

/// Whether the kernel loads the program of the rung `address`, or of `full` if it `steers`.
fn loads(steers: bool) -> Result<String, String> {
    KernelGate::try_load(steers).map(|way| format!("it does; attached by {way}"))
}

/// The further requirements of the rung `full`.
pub(crate) fn needs_for_full() -> Vec<Need> {
    let mut needs = vec![kernel_for_full(), cookies()];
    if super::is_built() {
        let found = match super::makes_connections() {
            true => Ok("it does".to_owned()),
            false => Err("it does not (bpf_sk_assign_tcp_reqsk)".to_owned()),
        };
        needs.push(("the kernel makes connections of cookies of others", found));
    }
    if has_all(&needs) {
        needs.push(("the programs that queue by class load", loads(true)));
    }
    needs
}

fn cookies() -> Need {
    let value = fs::read_to_string("/proc/sys/net/ipv4/tcp_syncookies").unwrap_or_default();
    let found = match value.trim() {
        "0" | "" => Err("it is 0; sysctl net.ipv4.tcp_syncookies=1".to_owned()),
        value => Ok(value.to_owned()),
    };
    ("net.ipv4.tcp_syncookies", found)
}

fn kernel_for_full() -> Need {
    ("Linux 6.9 or later", since(OLDEST_FULL))
}

fn built() -> Need {
    let found = match super::is_built() {
        true => Ok("yes".to_owned()),
        false => Err("no; cargo build --features gate, with clang, does it".to_owned()),
    };
    ("built with the gate", found)
}

fn kernel() -> Need {
    ("Linux 6.1 or later", since(OLDEST))
}

/// Whether this kernel is at least the `oldest`.
fn since(oldest: (u32, u32)) -> Result<String, String> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim();
    match version(release) {
        Some(found) if found >= oldest => Ok(release.to_owned()),
        _ => Err(format!("this is {release:?}")),
    }
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn types() -> Need {
    let path = "/sys/kernel/btf/vmlinux";
    let found = match Path::new(path).exists() {
        true => Ok(path.to_owned()),
        false => Err(format!("there is no {path} (CONFIG_DEBUG_INFO_BTF)")),
    };
    ("the kernel describes its types", found)
}

fn rights() -> Need {
    let missing = privileges::lacks_for_gate();
    let found = match &missing[..] {
        [] => Ok("CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON".to_owned()),
        missing => Err(format!("no {}; start it as root", missing.join(", "))),
    };
    ("rights to load it", found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_read() {
        for (release, expected) in [
            ("6.18.44-fc-v509", Some((6, 18))),
            ("6.1.0-18-amd64", Some((6, 1))),
            ("7.0-rc1", Some((7, 0))),
            ("", None),
            ("x", None),
        ] {
            assert_eq!(version(release), expected, "{release}");
        }
    }
}
