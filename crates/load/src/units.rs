//! Durations, sizes and rates as people write them.

use std::time::Duration;

/// The error of a text that does not have the required form: a description of that form.
pub type UnitError = &'static str;

/// The longest duration, in seconds. Sums of a few such durations still fit in nanoseconds.
const YEAR_S: f64 = 366.0 * 86_400.0;

/// Splits a text into a number and the unit after it.
fn number(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    Some((number, text[end..].trim()))
}

/// The description of a duration's form.
const A_DURATION: UnitError = "a duration such as 15ms, 1.5s or 2m";

/// The message that `text` does not have the expected form, with what it probably means.
pub fn not(text: &str, expected: UnitError) -> String {
    match duration(&format!("{text}s")) {
        Ok(_) if expected == A_DURATION => format!("expected {expected}, did you mean {text}s?"),
        _ => format!("expected {expected}"),
    }
}

/// Reads `15ms`, `1.5s`, `200us`, `2m`, `1h`, and `0`; at most a year.
///
/// # Errors
/// The text does not have this form.
pub fn duration(text: &str) -> Result<Duration, UnitError> {
    const EXPECTED: UnitError = A_DURATION;
    let (number, unit) = number(text).ok_or(EXPECTED)?;
    let seconds = match unit {
        "us" | "µs" => number / 1e6,
        "ms" => number / 1e3,
        "s" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        "" if number == 0.0 => 0.0,
        _ => return Err(EXPECTED),
    };
    if seconds > YEAR_S {
        return Err("a duration of at most a year");
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| EXPECTED)
}

/// Reads `512`, `64KiB`, `8KB`, `1MiB` as bytes.
///
/// # Errors
/// The text does not have this form.
pub fn size(text: &str) -> Result<u64, UnitError> {
    const EXPECTED: UnitError = "a size such as 512, 8KB or 64KiB";
    let (number, unit) = number(text).ok_or(EXPECTED)?;
    let factor = match unit {
        "" | "B" => 1.0,
        "KB" | "kB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "KiB" => 1024.0,
        "MiB" => 1024.0 * 1024.0,
        "GiB" => 1024.0 * 1024.0 * 1024.0,
        _ => return Err(EXPECTED),
    };
    Ok((number * factor) as u64)
}

/// Reads `200/s`, `200` and `6000/min` as a number per second, more than 0 and at most a billion.
///
/// # Errors
/// The text does not have this form.
pub fn rate(text: &str) -> Result<f64, UnitError> {
    const EXPECTED: UnitError = "a rate such as 200/s, more than 0";
    let (number, unit) = number(text).ok_or(EXPECTED)?;
    let per_second = match unit {
        "" | "/s" => number,
        "/m" | "/min" => number / 60.0,
        _ => return Err(EXPECTED),
    };
    if per_second > 0.0 && per_second <= 1e9 { Ok(per_second) } else { Err(EXPECTED) }
}

/// Reads `400kbit/s`, `1Mbit/s`, `50KB/s` and `100B/s` as bytes per second, more than 0.
///
/// # Errors
/// The text does not have this form.
pub fn bytes_per_second(text: &str) -> Result<f64, UnitError> {
    const EXPECTED: UnitError = "a line rate such as 400kbit/s or 50KB/s";
    let (number, unit) = number(text).ok_or(EXPECTED)?;
    let factor = match unit {
        "bit/s" => 1.0 / 8.0,
        "kbit/s" => 1e3 / 8.0,
        "Mbit/s" => 1e6 / 8.0,
        "B/s" => 1.0,
        "KB/s" | "kB/s" => 1e3,
        "MB/s" => 1e6,
        "KiB/s" => 1024.0,
        "MiB/s" => 1024.0 * 1024.0,
        _ => return Err(EXPECTED),
    };
    let bytes = number * factor;
    if bytes >= 1.0 { Ok(bytes) } else { Err(EXPECTED) }
}

/// Writes microseconds as `950 µs`, `12.3 ms`, `1.50 s`.
pub fn show_us(us: f64) -> String {
    match us {
        us if us < 1e3 => format!("{us:.0} µs"),
        us if us < 1e4 => format!("{:.2} ms", us / 1e3),
        us if us < 1e5 => format!("{:.1} ms", us / 1e3),
        us if us < 1e6 => format!("{:.0} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}

/// Writes a count or a rate with three or four significant digits: `950`, `12.3 k`, `1.50 M`.
pub fn show_count(count: f64) -> String {
    match count {
        count if count == count.trunc() && count < 1e4 => format!("{count:.0}"),
        count if count < 100.0 => format!("{count:.1}"),
        count if count < 1e4 => format!("{count:.0}"),
        count if count < 1e6 => format!("{:.1} k", count / 1e3),
        count => format!("{:.2} M", count / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_is_read() {
        assert_eq!(duration("15ms"), Ok(Duration::from_millis(15)));
        assert_eq!(duration("1.5 s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        assert_eq!(size("64KiB"), Ok(65_536));
        assert_eq!(size("8KB"), Ok(8_000));
        assert_eq!(rate("200/s"), Ok(200.0));
        assert_eq!(rate("600/min"), Ok(10.0));
        assert_eq!(bytes_per_second("400kbit/s"), Ok(50_000.0));
    }

    #[test]
    fn what_has_no_meaning_is_refused() {
        assert!(duration("15").is_err() && duration("-1s").is_err() && duration("").is_err());
        assert!(size("12 bananas").is_err() && size(".").is_err());
        assert!(duration("9000h").is_err() && rate("1000000000000/s").is_err());
        assert!(rate("0").is_err() && rate("5/h").is_err());
        assert!(bytes_per_second("400").is_err());
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(show_us(950.4), "950 µs");
        assert_eq!(show_us(12_340.0), "12.3 ms");
        assert_eq!(show_count(161_700.0), "161.7 k");
        assert_eq!(show_count(42.0), "42");
    }
}
