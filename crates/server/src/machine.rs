//! Which machine this is, by its processor and cores, which addresses it has, and where its directories lead.

use forebay_sys::addresses;
use std::fs;
use std::net::IpAddr;
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

/// The addresses that it has now, for [who is spared](forebay_config::spared). If the kernel does not tell them there
/// are none: limits then hold for them as they do for everybody.
pub(crate) fn own_addresses() -> Vec<IpAddr> {
    addresses::held().unwrap_or_default()
}

/// The same place without `..`: php-fpm runs nothing whose path has it. Symbolic links stay, so that one which is
/// set to another place leads there at once, unless the way up depends on where one leads. A place that is not
/// here, but where an application is, is taken by its name.
pub(crate) fn without_parents(path: PathBuf) -> PathBuf {
    if !path.components().any(|part| part == Component::ParentDir) {
        return path;
    }
    let whole = std::path::absolute(&path).unwrap_or(path);
    forebay_config::without_parents(whole, |place| place.canonicalize().unwrap_or(place))
}

/// The path that scripts are told of a directory.
pub(crate) fn script_root(root: &Path) -> PathBuf {
    without_parents(std::path::absolute(root).unwrap_or_else(|_| root.to_owned()))
}

/// Its name in a file of constants: processor, cores, kernel.
pub fn name_of_machine(cores: usize) -> String {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let processor = processor().unwrap_or(UNKNOWN);
    format!("{processor}{CORES}{cores}, Linux {}", kernel.trim())
}

/// What separates the processor from what follows it.
const CORES: &str = ", cores: ";

/// A processor that the kernel does not name.
const UNKNOWN: &str = "unknown processor";

/// The processor of this machine, if the kernel names it. Read once: a server that is confined does not
/// reach it any more.
pub fn processor() -> Option<&'static str> {
    static NAME: OnceLock<Option<String>> = OnceLock::new();
    let name = || processor_in(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default());
    NAME.get_or_init(name).as_deref()
}

/// The processor that the kernel names in this text: by its name, or by the numbers that ARM has for its
/// maker and its kind.
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

/// Whether constants of this machine were found on another one than that with this processor and so many
/// cores. Where nobody knows the processor, cores have to do.
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
            // a link, and the way up from where it leads
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
            // no name is the beginning of another
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
