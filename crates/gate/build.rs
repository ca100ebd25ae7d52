//! Compiles the programs for the kernel with clang; what comes of it becomes a part of the library.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

#[path = "build/stack.rs"]
mod stack;

/// The largest stack of a chain of calls that is accepted. The kernel allows 512 bytes; the rest is left for
/// compilers of other versions, which may need some more.
const MOST_STACK_BYTES: u32 = 448;

fn main() -> Result<(), String> {
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-changed=build");
    println!("cargo:rerun-if-env-changed=CLANG");
    let folder = env::var_os("OUT_DIR").ok_or("cargo says where")?;
    let folder = PathBuf::from(folder);
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let (object, assembly) = (folder.join("gate.o"), folder.join("gate.s"));
    compile(&clang, &["-g", "-c"], &object)?;
    // clang needs `-g` for both: it relocates fields of the kernel's structs by their types
    compile(&clang, &["-g", "-S"], &assembly)?;
    let text = fs::read_to_string(&assembly).map_err(|error| error.to_string())?;
    let mut told = String::new();
    for (program, bytes, chain) in stack::of_programs(&text) {
        told += &format!("{program}: {bytes} bytes of stack: {chain}\n");
        if bytes > MOST_STACK_BYTES {
            return Err(format!("bpf/gate.c: {told}At most {MOST_STACK_BYTES} are good."));
        }
    }
    println!("{told}");
    fs::write(folder.join("stack.txt"), told).map_err(|error| error.to_string())?;
    Ok(())
}

fn compile(clang: &str, how: &[&str], to: &Path) -> Result<(), String> {
    let mut command = Command::new(clang);
    command.args(["-O2", "-Wall", "-Wextra", "-Werror", "-target", "bpf", "-mcpu=v3"]);
    // the object must not contain paths of the machine that builds it
    command.arg("-fdebug-prefix-map=".to_owned() + env!("CARGO_MANIFEST_DIR") + "=");
    // Debian has the headers that depend on the architecture in a directory of their own
    let arch = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let headers = format!("/usr/include/{arch}-linux-gnu");
    if Path::new(&headers).exists() {
        command.arg(format!("-I{headers}"));
    }
    let status = command.args(how).args(["bpf/gate.c", "-o"]).arg(to).status();
    let status = status.map_err(|error| {
        format!("{clang} is needed to build the gate (`scripts/install test` installs it): {error}")
    })?;
    if !status.success() || fs::metadata(to).is_err() {
        return Err(format!("{clang} could not compile bpf/gate.c"));
    }
    Ok(())
}
