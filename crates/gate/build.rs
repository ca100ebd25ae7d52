//! Compiles the programs for the kernel with clang; what comes of it becomes a part of the library.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() -> Result<(), String> {
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-env-changed=CLANG");
    let folder = env::var_os("OUT_DIR").ok_or("cargo says where")?;
    let object = PathBuf::from(folder).join("gate.o");
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let mut command = Command::new(&clang);
    command.args(["-g", "-O2", "-Wall", "-Wextra", "-Werror", "-target", "bpf", "-mcpu=v3"]);
    // paths of the machine that builds are nobody's business
    command.arg("-fdebug-prefix-map=".to_owned() + env!("CARGO_MANIFEST_DIR") + "=");
    // where Debian has the headers that depend on the architecture
    let arch = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let headers = format!("/usr/include/{arch}-linux-gnu");
    if Path::new(&headers).exists() {
        command.arg(format!("-I{headers}"));
    }
    let status = command.args(["-c", "bpf/gate.c", "-o"]).arg(&object).status();
    let status = status.map_err(|error| {
        format!("{clang} is needed to build the gate (`scripts/install test` installs it): {error}")
    })?;
    if !status.success() || fs::metadata(&object).is_err() {
        return Err(format!("{clang} could not compile bpf/gate.c"));
    }
    Ok(())
}
