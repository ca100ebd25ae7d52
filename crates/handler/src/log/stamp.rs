//! The time as lines show it; the text is made anew once a second.

use forebay_http::date;

/// The last second of the year 9999, the last that either form can show.
const LAST_SECOND: u64 = 253_402_300_799;

const MONTHS: &[u8; 36] = b"JanFebMarAprMayJunJulAugSepOctNovDec";

/// The time as the common and combined formats show it: `06/Nov/1994:08:49:37 +0000`.
#[derive(Debug)]
pub struct Clf {
    second: u64,
    text: [u8; 26],
}

impl Default for Clf {
    fn default() -> Clf {
        Clf { second: 0, text: *b"01/Jan/1970:00:00:00 +0000" }
    }
}

impl Clf {
    /// The text for a time in milliseconds since 1970.
    #[inline]
    pub fn at(&mut self, unix_ms: u64) -> &[u8; 26] {
        let second = (unix_ms / 1000).min(LAST_SECOND);
        if second != self.second {
            self.second = second;
            let imf = date::format(second);
            let Parts { day, month, year, time } = Parts::of(&imf);
            self.text[..2].copy_from_slice(day);
            self.text[3..6].copy_from_slice(month);
            self.text[7..11].copy_from_slice(year);
            self.text[12..20].copy_from_slice(time);
        }
        &self.text
    }
}

/// The time as JSON lines show it (RFC 3339): `1994-11-06T08:49:37.000000Z`.
#[derive(Debug)]
pub struct Rfc3339 {
    second: u64,
    text: [u8; 27],
}

impl Default for Rfc3339 {
    fn default() -> Rfc3339 {
        Rfc3339 { second: 0, text: *b"1970-01-01T00:00:00.000000Z" }
    }
}

impl Rfc3339 {
    /// The text for a time in microseconds since 1970.
    #[inline]
    pub fn at(&mut self, unix_us: u64) -> &[u8; 27] {
        let second = (unix_us / 1_000_000).min(LAST_SECOND);
        if second != self.second {
            self.second = second;
            let imf = date::format(second);
            let Parts { day, month, year, time } = Parts::of(&imf);
            let number = MONTHS.chunks(3).position(|name| name == month).map_or(0, |at| at + 1);
            self.text[..4].copy_from_slice(year);
            self.text[5..7].copy_from_slice(&two_digits(number as u32));
            self.text[8..10].copy_from_slice(day);
            self.text[11..19].copy_from_slice(time);
        }
        let us = (unix_us % 1_000_000) as u32;
        for (at, number) in [us / 10_000, us / 100 % 100, us % 100].into_iter().enumerate() {
            self.text[20 + 2 * at..][..2].copy_from_slice(&two_digits(number));
        }
        &self.text
    }
}

fn two_digits(number: u32) -> [u8; 2] {
    [b'0' + (number / 10 % 10) as u8, b'0' + (number % 10) as u8]
}

/// The parts of `Sun, 06 Nov 1994 08:49:37 GMT`.
struct Parts<'i> {
    day: &'i [u8],
    month: &'i [u8],
    year: &'i [u8],
    time: &'i [u8],
}

impl Parts<'_> {
    fn of(imf: &[u8; date::IMF_LEN]) -> Parts<'_> {
        Parts { day: &imf[5..7], month: &imf[8..11], year: &imf[12..16], time: &imf[17..25] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_follows_the_clock_in_both_directions() {
        let (mut clf, mut rfc3339) = (Clf::default(), Rfc3339::default());
        let mut texts = |unix_us: u64| {
            let text = [&clf.at(unix_us / 1000)[..], b" ", rfc3339.at(unix_us)].concat();
            String::from_utf8(text).unwrap()
        };
        assert_eq!(texts(0), "01/Jan/1970:00:00:00 +0000 1970-01-01T00:00:00.000000Z");
        let now_us = 1_795_156_863_007_065;
        assert_eq!(texts(now_us), "20/Nov/2026:06:41:03 +0000 2026-11-20T06:41:03.007065Z");
        let before_us = now_us - 8000;
        assert_eq!(texts(before_us), "20/Nov/2026:06:41:02 +0000 2026-11-20T06:41:02.999065Z");
        let leap_us = 951_782_400_123_456;
        assert_eq!(texts(leap_us), "29/Feb/2000:00:00:00 +0000 2000-02-29T00:00:00.123456Z");
        assert_eq!(texts(u64::MAX), "31/Dec/9999:23:59:59 +0000 9999-12-31T23:59:59.551615Z");
    }
}
