//! The published sets of files: SPECweb99's static set and WebStone's standard list.
//!
//! SPECweb99 draws a directory by Zipf's law (the i-th is requested in proportion to 1/i), then a
//! class of sizes, then one of nine files in it. WebStone draws one of five files. [`write()`]
//! writes a set to disk; the mixes request it in the published proportions.

use crate::mix::{Mix, MixPath};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// The percentage of all requests for each class of SPECweb99.
pub const CLASS_PERCENT: [f64; 4] = [35.0, 50.0, 14.0, 1.0];

/// The share of each of the nine files in its class.
pub const FILE_SHARE: [f64; 9] = [0.039, 0.059, 0.088, 0.177, 0.353, 0.118, 0.071, 0.050, 0.044];

/// WebStone's standard list: name, bytes, requests per 1,000.
pub const WEBSTONE: [(&str, u64, f64); 5] = [
    ("file500.html", 500, 350.0),
    ("file5k.html", 5 * 1024, 500.0),
    ("file50k.html", 50 * 1024, 140.0),
    ("file500k.html", 500 * 1024, 9.0),
    ("file5m.html", 5 * 1024 * 1024, 1.0),
];

/// The size of file `file` (1 to 9) of class `class` (0 to 3), in bytes.
pub fn specweb99_bytes(class: u32, file: u32) -> u64 {
    // class 0 has tenths of a KiB, each further class ten times the one before
    let tenths = 10u64.pow(class) * u64::from(file);
    tenths * 1024 / 10
}

/// The number of directories that SPECweb99 prescribes for a number of simultaneous connections.
///
/// The formula is in its run rules: 25 + connections × (400,000 / 122,000) / 5, cut to a whole
/// number. 400,000 bit/s are a connection's line, 122,000 bit a mean operation, and 5 operations
/// per second need one more directory.
pub fn specweb99_directories(connections: u32) -> u32 {
    (25.0 + f64::from(connections) * (400_000.0 / 122_000.0) / 5.0) as u32
}

/// SPECweb99's static mix over this number of directories, below the path `base`.
pub fn specweb99_mix(base: &str, directories: u32) -> Mix {
    let base = base.trim_end_matches('/');
    let mut entries = Vec::with_capacity(directories as usize * 36);
    for directory in 0..directories {
        for (class, percent) in (0..).zip(CLASS_PERCENT) {
            for (file, share) in (1..).zip(FILE_SHARE) {
                entries.push(MixPath {
                    path: format!("{base}/file_set/dir{directory:05}/class{class}_{file}").into(),
                    weight: percent * share / f64::from(directory + 1),
                    length_bytes: Some(specweb99_bytes(class, file)),
                });
            }
        }
    }
    Mix::new(entries)
}

/// WebStone's standard mix, below the path `base`.
pub fn webstone_mix(base: &str) -> Mix {
    let base = base.trim_end_matches('/');
    let entries = WEBSTONE.map(|(name, bytes, weight)| MixPath {
        path: format!("{base}/{name}").into(),
        weight,
        length_bytes: Some(bytes),
    });
    Mix::new(entries.to_vec())
}

/// Writes every file of a mix below `folder`; returns their number and bytes. Existing files of the
/// right length stay as they are.
///
/// # Errors
/// The error of the file system.
pub fn write(mix: &Mix, folder: &Path) -> io::Result<(usize, u64)> {
    let block = block();
    let mut total_bytes = 0;
    let mut last_parent = None;
    for entry in mix.entries() {
        let bytes = entry.length_bytes.unwrap_or(0);
        let path = folder.join(entry.path.trim_start_matches('/'));
        total_bytes += bytes;
        if path.metadata().is_ok_and(|found| found.is_file() && found.len() == bytes) {
            continue;
        }
        let parent = path.parent().map(Path::to_owned);
        if let Some(parent) = parent.as_ref().filter(|_| parent != last_parent) {
            std::fs::create_dir_all(parent)?;
        }
        last_parent = parent;
        write_one(&path, &entry.path, bytes, &block)?;
    }
    Ok((mix.entries().len(), total_bytes))
}

/// Writes one file. The file begins with its own path, so that files differ and a wrong one is
/// recognised.
fn write_one(path: &Path, name: &str, bytes: u64, block: &[u8]) -> io::Result<()> {
    let mut file = BufWriter::with_capacity(256 * 1024, File::create(path)?);
    let head = format!("{name}\n");
    let head = &head.as_bytes()[..head.len().min(bytes as usize)];
    file.write_all(head)?;
    let mut left = bytes as usize - head.len();
    while left > 0 {
        let part = &block[..left.min(block.len())];
        file.write_all(part)?;
        left -= part.len();
    }
    file.flush()
}

/// Text that compresses like text: words of a small vocabulary in random order.
fn block() -> Vec<u8> {
    const WORDS: [&str; 16] = [
        "water", "gate", "turbine", "basin", "flood", "river", "channel", "intake", "level",
        "stream", "pressure", "spill", "dam", "lock", "weir", "current",
    ];
    let mut rng = fastrand::Rng::with_seed(99);
    let mut text = Vec::new();
    while text.len() < 64 * 1024 {
        text.extend_from_slice(WORDS[rng.usize(..WORDS.len())].as_bytes());
        text.push(if rng.u8(..) < 24 { b'\n' } else { b' ' });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sizes SPEC prints in its run rules: 102 … 921, 1024 … 9216, 10240 … 92160, 102400 …
    /// 921600; all 36 of a directory are 5,119,484 bytes.
    #[test]
    fn specweb99_sizes_are_the_published_ones() {
        let class0: Vec<_> = (1..=9).map(|file| specweb99_bytes(0, file)).collect();
        assert_eq!(class0, [102, 204, 307, 409, 512, 614, 716, 819, 921]);
        for (class, step) in [(1, 1024), (2, 10_240), (3, 102_400)] {
            for file in 1..=9 {
                assert_eq!(specweb99_bytes(class, file), step * u64::from(file));
            }
        }
        let mix = specweb99_mix("/", 1);
        let bytes: u64 = mix.entries().iter().filter_map(|entry| entry.length_bytes).sum();
        assert_eq!((mix.entries().len(), bytes), (36, 5_119_484));
    }

    /// keta §5 gives 1.1, 2.1 and 3.5 GB for 300, 600 and 1,000 connections.
    #[test]
    fn specweb99_grows_with_the_connections() {
        for (connections, directories, gigabytes) in
            [(300, 221, 1.1), (600, 418, 2.1), (1000, 680, 3.5)]
        {
            assert_eq!(specweb99_directories(connections), directories);
            let bytes = f64::from(directories) * 5_119_484.0;
            assert!((bytes / 1e9 - gigabytes).abs() < 0.05, "{connections}: {bytes}");
        }
    }

    #[test]
    fn specweb99_mix_is_the_published_one() {
        let directories = 4;
        let mix = specweb99_mix("/spec", directories);
        assert_eq!(&*mix.entries()[0].path, "/spec/file_set/dir00000/class0_1");
        assert_eq!(&*mix.entries()[143].path, "/spec/file_set/dir00003/class3_9");
        let share = |matches: &dyn Fn(usize) -> bool| -> f64 {
            (0..mix.entries().len()).filter(|place| matches(*place)).map(|p| mix.share(p)).sum()
        };
        for (class, percent) in CLASS_PERCENT.iter().enumerate() {
            assert!((share(&|p| p / 9 % 4 == class) - percent / 100.0).abs() < 1e-9);
        }
        // the published shares of the nine files add up to 0.999
        for (file, published) in FILE_SHARE.iter().enumerate() {
            assert!((share(&|p| p % 9 == file) - published / 0.999).abs() < 1e-9);
        }
        let harmonic = 1.0 + 1.0 / 2.0 + 1.0 / 3.0 + 1.0 / 4.0;
        for directory in 0..directories as usize {
            let zipf = 1.0 / (directory + 1) as f64 / harmonic;
            assert!((share(&|p| p / 36 == directory) - zipf).abs() < 1e-9);
        }
        // keta's tables: mean time × line rate at the floor, 300 ms × 400 kbit/s, is 15 KB
        assert!((14_500.0..14_900.0).contains(&mix.mean_bytes().unwrap()));
    }

    #[test]
    fn webstone_mix_is_the_published_one() {
        let mix = webstone_mix("");
        let shares: Vec<_> = (0..5).map(|p| (mix.share(p) * 1e4).round() / 1e4).collect();
        assert_eq!(shares, [0.35, 0.5, 0.14, 0.009, 0.001]);
        let lengths: Vec<_> = mix.entries().iter().filter_map(|e| e.length_bytes).collect();
        assert_eq!(lengths, [500, 5_120, 51_200, 512_000, 5_242_880]);
    }

    #[test]
    fn a_set_is_written_once() {
        let folder = std::env::temp_dir().join(format!("forebay-set-{}", std::process::id()));
        let mix = specweb99_mix("/", 2);
        assert_eq!(write(&mix, &folder).unwrap(), (72, 2 * 5_119_484));
        let file = folder.join("file_set/dir00001/class2_3");
        let stamp = |file: &Path| file.metadata().unwrap().modified().unwrap();
        let (length, before) = (file.metadata().unwrap().len(), stamp(&file));
        assert_eq!(length, 30_720);
        assert!(std::fs::read(&file).unwrap().starts_with(b"/file_set/dir00001/class2_3\n"));
        write(&mix, &folder).unwrap();
        assert_eq!(stamp(&file), before);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
