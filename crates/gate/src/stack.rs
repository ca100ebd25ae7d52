//! The TCP options and SYN cookies that the stack of this network namespace has switched on.

use crate::types::{OFFER_ECN, OFFER_SACK, OFFER_SCALE, OFFER_TIMES};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The switches of options that a SYN-ACK may offer.
const OFFERS: [(&str, u32); 4] = [
    ("window_scaling", OFFER_SCALE),
    ("sack", OFFER_SACK),
    ("timestamps", OFFER_TIMES),
    ("ecn", OFFER_ECN),
];

/// The switches. Their files stay open, because a process that has confined itself cannot open them any more.
#[derive(Debug)]
pub(crate) struct Stack {
    cookies: File,
    offers: Vec<(File, u32)>,
}

impl Stack {
    /// # Errors
    /// The files cannot be opened.
    pub(crate) fn open() -> io::Result<Stack> {
        let open = |name: &str| File::open(format!("/proc/sys/net/ipv4/tcp_{name}"));
        let offers = OFFERS.iter().map(|&(name, offer)| Ok((open(name)?, offer)));
        Ok(Stack { cookies: open("syncookies")?, offers: offers.collect::<io::Result<_>>()? })
    }

    /// The options that the stack offers now; `None` if it accepts no SYN cookies.
    pub(crate) fn offers(&self) -> Option<u32> {
        let on = self.offers.iter().filter(|(file, _)| is_on(file));
        is_on(&self.cookies).then(|| on.fold(0, |offers, (_, offer)| offers | offer))
    }
}

fn is_on(file: &File) -> bool {
    let mut text = [0; 16];
    let count = file.read_at(&mut text, 0).unwrap_or(0);
    // the file has a number: any digit other than 0 means that the switch is on
    text[..count].iter().any(|digit| (b'1'..=b'9').contains(digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_read_each_time() {
        let path = std::env::temp_dir().join(format!("forebay-switch-{}", std::process::id()));
        std::fs::write(&path, "0\n").unwrap();
        let file = File::open(&path).unwrap();
        assert!(!is_on(&file));
        for (text, on) in [("2\n", true), ("0\n", false), ("10\n", true), ("", false)] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(is_on(&file), on, "{text:?}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(Stack::open().is_ok());
    }
}
