//! The file of process ends: the supervisor of the next stage appends to it how processes have ended,
//! and the stage before reads it when a connection has ended with a request on it.

use crate::group::MemberIndex;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The length of one record: when the end was seen, in milliseconds of the monotonic clock (8 bytes,
/// little-endian), the stage, the instance from 0, whether the process ended by itself, and five
/// unused bytes.
const RECORD_BYTES: usize = 16;

/// The end of a process of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessEnd {
    /// When the supervisor saw the end, in milliseconds of the monotonic clock.
    pub at_ms: u64,
    /// The number of the stage.
    pub stage: u8,
    /// The instance of the stage, from 0.
    pub instance: MemberIndex,
    /// Whether the process crashed, or the system was out of memory. Otherwise it was stopped on
    /// purpose.
    pub was_by_itself: bool,
}

impl ProcessEnd {
    fn record(self) -> [u8; RECORD_BYTES] {
        let mut record = [0; RECORD_BYTES];
        record[..8].copy_from_slice(&self.at_ms.to_le_bytes());
        // there are at most 64 instances, so the number fits
        record[8..11].copy_from_slice(&[
            self.stage,
            self.instance as u8,
            self.was_by_itself.into(),
        ]);
        record
    }

    fn read(record: &[u8; RECORD_BYTES]) -> ProcessEnd {
        let [at_ms @ .., _, _, _, _, _, _, _, _] = record;
        ProcessEnd {
            at_ms: u64::from_le_bytes(*at_ms),
            stage: record[8],
            instance: MemberIndex::from(record[9]),
            was_by_itself: record[10] != 0,
        }
    }

    /// Appends this record to a file that no other process writes.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn append(self, file: &mut impl io::Write) -> io::Result<()> {
        // in one call: a reader sees the whole of it or nothing
        file.write_all(&self.record())
    }
}

/// A reader of the file, for one stage.
#[derive(Debug)]
pub struct Ends {
    file: File,
    /// The number of bytes that were read.
    read_bytes: u64,
    stage: u8,
}

impl Ends {
    /// Reads the records of this stage that are appended from now on.
    ///
    /// # Errors
    /// What the kernel says of the file.
    pub fn new(file: File, stage: u8) -> io::Result<Ends> {
        let read_bytes = file.metadata()?.len();
        Ok(Ends { file, read_bytes, stage })
    }

    /// Passes the ends since the last call to `tell`.
    pub fn look(&mut self, mut tell: impl FnMut(ProcessEnd)) {
        let mut record = [0; RECORD_BYTES];
        while self.file.read_exact_at(&mut record, self.read_bytes).is_ok() {
            self.read_bytes += RECORD_BYTES as u64;
            let end = ProcessEnd::read(&record);
            if end.stage == self.stage {
                tell(end);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_appends_the_other_reads_once() {
        let path = std::env::temp_dir().join(format!("forebay-ends-{}", std::process::id()));
        let mut file = File::options().append(true).create_new(true).open(&path).unwrap();
        let end = ProcessEnd { at_ms: 1 << 40, stage: 2, instance: 63, was_by_itself: true };
        end.append(&mut file).unwrap();
        let mut ends = Ends::new(File::open(&path).unwrap(), 2).unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut told = Vec::new();
        ends.look(|end| told.push(end));
        assert!(told.is_empty(), "it was before");
        let other = ProcessEnd { at_ms: 7, was_by_itself: false, ..end };
        for one in [end, ProcessEnd { stage: 1, ..end }, other] {
            one.append(&mut file).unwrap();
        }
        io::Write::write_all(&mut file, &[0; RECORD_BYTES - 1]).unwrap();
        for _ in 0..2 {
            ends.look(|end| told.push(end));
            assert_eq!(told, [end, other]);
        }
    }
}
