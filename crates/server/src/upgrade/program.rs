//! The file of the program that this process runs, and whether another program has replaced it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The program of this process, as its file was at the start.
#[derive(Clone, Debug)]
pub struct RunningProgram(Option<(PathBuf, (u64, u64))>);

impl RunningProgram {
    /// The program of this process. It is unknown if it was replaced before, or started by a descriptor.
    pub fn here() -> RunningProgram {
        let path = std::env::current_exe().ok();
        RunningProgram(path.and_then(|path| Some((path.clone(), identity(&path)?))))
    }

    /// The message for an operator who reloads the configuration, if another program has replaced this one.
    pub fn replaced(&self) -> Option<String> {
        let (path, known) = self.0.as_ref()?;
        // the kernel refuses to write the file of a running program: another program is another file
        (identity(path)? != *known).then(|| {
            let path = path.display();
            format!("another program lies at {path} since the start; forebay upgrade starts it")
        })
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_file_in_its_place_is_another_program() {
        let name = format!("forebay-program-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, "old").unwrap();
        let program = RunningProgram(Some((path.clone(), identity(&path).unwrap())));
        assert_eq!(program.replaced(), None);
        let new = path.with_extension("new");
        fs::write(&new, "new").unwrap();
        fs::rename(&new, &path).unwrap();
        assert!(program.replaced().unwrap().ends_with("forebay upgrade starts it"));
        fs::remove_file(&path).unwrap();
        // while a program is being installed, the file may be missing
        assert_eq!(program.replaced(), None);
        assert!(RunningProgram::here().0.is_some());
    }
}
