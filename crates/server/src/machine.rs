//! The identity of this machine: its processor and cores, its addresses, and its directories.

use forebay_sys::addresses;
use std::fs;
use std::net::IpAddr;
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

/// The present addresses of this machine, for [spared addresses](forebay_config::spared). If the
/// kernel does not list them, the result is empty: limits then hold for them as for every client.
pub(crate) fn own_addresses() -> Vec<IpAddr> {
    addresses::held().unwrap_or_default()
}

/// The same path without `..`, because php-fpm runs no script whose path has it. Symbolic links
/// stay in the path, so that a link which is changed takes effect at once, unless a `..` follows
/// it. A path that does not exist on this machine, but perhaps on the application's, is resolved by
/// its names alone.
pub(crate) fn without_parents(path: PathBuf) -> PathBuf {
    if !path.components().any(|part| part == Component::ParentDir) {
        return path;
    }
    let whole = std::path::absolute(&path).unwrap_or(path);
    forebay_config::without_parents(whole, |place| place.canonicalize().unwrap_or(place))
}

/// The path of a directory as scripts get it.
pub(crate) fn script_root(root: &Path) -> PathBuf {
    without_parents(std::path::absolute(root).unwrap_or_else(|_| root.to_owned()))
}

/// The name of this machine in a file of constants: processor, cores, kernel.
pub fn name_of_machine(cores: usize) -> String {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let processor = processor().unwrap_or(UNKNOWN);
    format!("{processor}{CORES}{cores}, Linux {}", kernel.trim())
}

/// The text between the processor and the number of cores.
const CORES: &str = ", cores: ";

/// The name of a processor that the kernel does not name.
const UNKNOWN: &str = "unknown processor";

/// The processor of this machine, if the kernel names it. It is read once, because the sandbox puts
/// the kernel's file out of reach later.
pub fn processor() -> Option<&'static str> {
    static NAME: OnceLock<Option<String>> = OnceLock::new();
    let name = || processor_in(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default());
    NAME.get_or_init(name).as_deref()
}

/// The processor in a text of `/proc/cpuinfo`: its name, or on ARM the numbers of its maker and its kind.
fn processor_in(cpuinfo: &str) -> Option<String> {
    let field = |name: &str| {
        let fields = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        let mut values =
            fields.filter(|(key, _)| key.trim() == name).map(|(_, value)| value.trim());
        values.find(|value| !value.is_empty())
    };
    let by_number = || Some(format!("CPU {} of {}", field("CPU part")?, field("CPU implementer")?));
    field("model name").map(str::to_owned).or_else(by_number)
}

/// Whether constants that were measured on `machine` come from another machine than one with this
/// processor and so many cores. If the processor is unknown, the cores are compared.
pub(crate) fn is_other(machine: &str, processor: Option<&str>, cores: usize) -> bool {
    let (name, rest) = machine.rsplit_once(CORES).unwrap_or((machine, ""));
    match processor {
        Some(processor) => name != processor,
        None if name == UNKNOWN => rest.split(',').next() != Some(&*cores.to_string()),
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_up_are_gone_and_links_stay() {
        for (path, expected) in [
            ("/nowhere/app/../public", "/nowhere/public"),
            ("/nowhere/../../public", "/public"),
            ("/nowhere/public/..", "/nowhere"),
            ("/nowhere/public", "/nowhere/public"),
            // a link, and `..` from its target
            ("/proc/self/exe", "/proc/self/exe"),
            ("/proc/self/root/../exe", "/exe"),
            ("/..", "/"),
        ] {
            assert_eq!(without_parents(path.into()), Path::new(expected), "{path}");
        }
    }

    #[test]
    fn a_machine_is_another_if_its_processor_is() {
        let x86 = "processor\t: 0\nmodel\t\t: 17\nmodel name\t: Abacus 3\n";
        let arm = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n";
        assert_eq!(processor_in(x86).as_deref(), Some("Abacus 3"));
        assert_eq!(processor_in(arm).as_deref(), Some("CPU 0xd0c of 0x41"));
        assert_eq!(processor_in("model name\t:\n"), None);
        assert_eq!(processor_in(""), None);
        for (machine, processor, expected) in [
            ("Abacus 3, cores: 2, Linux 6.18", Some("Abacus 3"), false),
            ("Abacus 3, cores: 64, Linux 6.1", Some("Abacus 3"), false),
            ("Abacus 3", Some("Abacus 3"), false),
            // no name may match because it begins another
            ("Abacus 31, cores: 2, Linux 6.18", Some("Abacus 3"), true),
            ("Abacus 3, cores: 2, Linux 6.18", Some("Abacus 31"), true),
            ("unknown processor, cores: 2, Linux 6.18", Some("Abacus 3"), true),
            ("Abacus 3, cores: 2, Linux 6.18", None, true),
            ("unknown processor, cores: 64, Linux 6.18", None, true),
            ("unknown processor, cores: 2, Linux 6.18", None, false),
        ] {
            assert_eq!(is_other(machine, processor, 2), expected, "{machine} {processor:?}");
        }
    }
}
