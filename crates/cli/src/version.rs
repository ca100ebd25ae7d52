//! `forebay version --verbose`: the revision of this program, and the features that are built in.

use forebay_server::status::REVISION;

/// The version in one line, which programs may rely on.
pub(crate) fn short() -> String {
    format!("forebay {}\n", env!("CARGO_PKG_VERSION"))
}

/// The version, with all that differs between builds of one version.
pub(crate) fn verbose() -> String {
    let features = [("gate", cfg!(feature = "gate")), ("work", cfg!(feature = "work"))];
    let in_it = features.iter().filter(|(_, is_in)| *is_in).map(|(name, _)| *name);
    let in_it = match in_it.collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => "none".to_owned(),
        some => some,
    };
    format!(
        "{}revision: {REVISION}\nbuilt for: {} Linux, {}{}\nfeatures: {in_it}\nrungs of the gate: {}\n",
        short(),
        std::env::consts::ARCH,
        C_LIBRARY,
        if cfg!(debug_assertions) { ", with assertions" } else { "" },
        rungs(),
    )
}

/// The C library, and the memory allocator.
const C_LIBRARY: &str = match cfg!(target_env = "musl") {
    true => "musl (static), memory by mimalloc",
    false => "glibc",
};

/// The rungs of [the ladder](../../../docs/manual/gate.md) that this build has, for a kernel that supports
/// them.
fn rungs() -> &'static str {
    match cfg!(feature = "gate") {
        true => "off, address, full; `forebay doctor` says which of them this machine has",
        false => {
            "off; address and full are not in this build, which lacks the feature gate. The server alone enforces rules"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scripts read the output line by line.
    #[test]
    fn each_line_has_a_name() {
        let text = verbose();
        let mut lines = text.lines();
        assert_eq!(lines.next().map(|line| format!("{line}\n")), Some(short()));
        let names: Vec<_> = lines.map(|line| line.split_once(": ").unwrap().0).collect();
        assert_eq!(names, ["revision", "built for", "features", "rungs of the gate"]);
    }

    #[test]
    fn what_is_not_built_in_is_said() {
        assert_eq!(verbose().contains("not in this build"), !cfg!(feature = "gate"));
    }
}
