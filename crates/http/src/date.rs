//! Instants in the formats of HTTP (RFC 9110 §5.6.7), written and read; and in that of RFC 3339.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The bytes of an IMF-fixdate such as `Sun, 06 Nov 1994 08:49:37 GMT`.
pub const IMF_LEN: usize = 29;

/// Writes whole seconds since 1970 as an IMF-fixdate.
pub fn format(unix_seconds: u64) -> [u8; IMF_LEN] {
    let text = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(unix_seconds));
    let mut bytes = [b' '; IMF_LEN];
    bytes.copy_from_slice(text.as_bytes());
    bytes
}

/// Writes whole seconds since 1970 as RFC 3339 does, in UTC: `1994-11-06T08:49:37Z`.
pub fn rfc3339(unix_seconds: u64) -> String {
    let (days, second) = (unix_seconds / 86_400, unix_seconds % 86_400);
    // eras of 400 years that begin on the 1st of March; day 0 is in the year 0
    let day = days + 719_468;
    let (era, day) = (day / 146_097, day % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let shifted = (5 * day + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let day = day - (153 * shifted + 2) / 5 + 1;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Reads an instant of RFC 3339, such as `2026-12-01T06:00:00Z` or `2026-12-01T07:00:00.5+01:00`,
/// as seconds since 1970; fractions are dropped. `None` for anything else and for instants before
/// 1970.
///
/// ```
/// use forebay_http::date;
///
/// assert_eq!(date::parse_rfc3339("1994-11-06T08:49:37Z"), Some(784_111_777));
/// assert_eq!(date::parse_rfc3339("1994-11-06T09:49:37+01:00"), Some(784_111_777));
/// ```
pub fn parse_rfc3339(text: &str) -> Option<u64> {
    let (date, rest) = text.split_at_checked(10)?;
    let (time, rest) = rest.strip_prefix(['T', 't', ' '])?.split_at_checked(8)?;
    let number = |text: &str| {
        text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u64>().ok())?
    };
    fn three(text: &str, mark: char) -> Option<[&str; 3]> {
        let mut parts = text.split(mark);
        let found = [parts.next()?, parts.next()?, parts.next()?];
        parts.next().is_none().then_some(found)
    }
    let [year, month, day] = three(date, '-')?;
    let is_long = year.len() == 4 && month.len() == 2 && day.len() == 2;
    let (year, month, day) = (number(year)?, number(month)?, number(day)?);
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days_of = |month: u64| match month {
        2 => 28 + u64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    let is_date = is_long && (1..=12).contains(&month) && (1..=days_of(month)).contains(&day);
    let [hour, minute, second] = three(time, ':')?;
    let is_long = hour.len() == 2 && minute.len() == 2 && second.len() == 2;
    let (hour, minute, second) = (number(hour)?, number(minute)?, number(second)?);
    // a leap second counts as the second after it
    if !is_date || !is_long || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let zone = match rest.strip_prefix('.') {
        Some(parts) => {
            let zone = parts.trim_start_matches(|letter: char| letter.is_ascii_digit());
            (zone.len() < parts.len()).then_some(zone)?
        }
        None => rest,
    };
    let east_s = match zone {
        "Z" | "z" => 0,
        _ => {
            let (sign, offset) = zone.split_at_checked(1)?;
            let (hours, minutes) = offset.split_once(':')?;
            let is_long = hours.len() == 2 && minutes.len() == 2;
            let (hours, minutes) = (number(hours)?, number(minutes)?);
            if !is_long || hours > 23 || minutes > 59 {
                return None;
            }
            let offset_s = (hours * 3600 + minutes * 60) as i64;
            match sign {
                "+" => offset_s,
                "-" => -offset_s,
                _ => return None,
            }
        }
    };
    let leaps = |year: u64| year / 4 - year / 100 + year / 400;
    let before = (year.checked_sub(1970)?) * 365 + leaps(year - 1) - leaps(1969);
    let days = before + (1..month).map(days_of).sum::<u64>() + day - 1;
    let local_s = days * 86_400 + hour * 3600 + minute * 60 + second;
    u64::try_from(local_s as i64 - east_s).ok()
}

/// Reads any of the three formats a recipient must accept. `None` for anything else and for
/// instants before 1970.
pub fn parse(text: &[u8]) -> Option<u64> {
    let time: SystemTime = httpdate::parse_http_date(std::str::from_utf8(text).ok()?).ok()?;
    Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_three_formats_name_one_instant() {
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            assert_eq!(parse(text.as_bytes()), Some(784_111_777), "{text}");
        }
        assert_eq!(&format(784_111_777), b"Sun, 06 Nov 1994 08:49:37 GMT");
    }

    #[test]
    fn rfc3339_names_the_same_instant() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (784_111_777, "1994-11-06T08:49:37Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_208_000, "2024-02-29T12:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (253_402_300_799, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(rfc3339(seconds), expected);
            assert_eq!(parse_rfc3339(expected), Some(seconds));
        }
        for day in 0..100_000u64 {
            let seconds = day * 86_400 + day % 86_400;
            assert_eq!(parse_rfc3339(&rfc3339(seconds)), Some(seconds));
        }
    }

    #[test]
    fn what_is_no_instant_of_rfc3339_is_refused() {
        for (text, expected) in [
            ("1970-01-01t00:00:00z", Some(0)),
            ("1970-01-01 00:00:01.999Z", Some(1)),
            ("1970-01-01T00:00:00-01:30", Some(5400)),
            ("1970-01-01T00:00:00+00:01", None),
            ("2026-02-29T00:00:00Z", None),
            ("2028-02-29T00:00:00Z", Some(1_835_395_200)),
            ("2026-13-01T00:00:00Z", None),
            ("2026-00-01T00:00:00Z", None),
            ("2026-12-01T24:00:00Z", None),
            ("2026-12-01T00:00:00", None),
            ("2026-12-01T00:00:00.Z", None),
            ("2026-12-01T00:00:00+1:00", None),
            ("2026-12-01T00:00:00Zx", None),
            ("2026-12-+1T00:00:00Z", None),
            ("2026-12-01", None),
            ("0000-01-01T00:00:00Z", None),
            ("1969-12-31T23:59:59Z", None),
            ("äääää", None),
            ("", None),
        ] {
            assert_eq!(parse_rfc3339(text), expected, "{text}");
        }
    }
}
