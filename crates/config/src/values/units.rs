//! Durations, sizes, rates and shares as people write them: a number and a unit, `15ms`, `64KiB`,
//! `1KiB/s`, `2.5%`. What is printed is read back to the same value.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Units of time, in milliseconds, smallest first.
const TIMES: [(&str, u64); 5] =
    [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Units of size, in bytes, smallest first.
const SIZES: [(&str, u64); 5] =
    [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];

/// The text is not a number with one of the units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAQuantity;

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub u64);

/// Bytes per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteRate(pub u64);

/// A part of a whole, in hundredths of a percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Percent(pub u64);

impl Percent {
    /// All of it.
    pub const WHOLE: Percent = Percent(10_000);

    /// The share as a fraction: 1 is the whole.
    pub fn fraction(self) -> f64 {
        self.0 as f64 / Percent::WHOLE.0 as f64
    }
}

impl FromStr for Percent {
    type Err = NotAQuantity;
    /// Reads a percentage with at most two digits behind the point.
    fn from_str(text: &str) -> Result<Percent, NotAQuantity> {
        let number = text.strip_suffix('%').ok_or(NotAQuantity)?;
        let (whole, part) = match number.split_once('.') {
            Some((whole, part)) if matches!(part.len(), 1 | 2) => (whole, part),
            Some(_) => return Err(NotAQuantity),
            None => (number, ""),
        };
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(whole) || !is_number(part) {
            return Err(NotAQuantity);
        }
        let whole: u64 = whole.parse().map_err(|_| NotAQuantity)?;
        let part: u64 = format!("{part:0<2}").parse().map_err(|_| NotAQuantity)?;
        let sum = whole.checked_mul(100).and_then(|whole| whole.checked_add(part));
        sum.map(Percent).ok_or(NotAQuantity)
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0 / 100, self.0 % 100) {
            (whole, 0) => write!(f, "{whole}%"),
            (whole, part) if part % 10 == 0 => write!(f, "{whole}.{}%", part / 10),
            (whole, part) => write!(f, "{whole}.{part:02}%"),
        }
    }
}

impl FromStr for Size {
    type Err = NotAQuantity;
    fn from_str(text: &str) -> Result<Size, NotAQuantity> {
        quantity(text, &SIZES).map(Size)
    }
}

impl FromStr for ByteRate {
    type Err = NotAQuantity;
    fn from_str(text: &str) -> Result<ByteRate, NotAQuantity> {
        quantity(text.strip_suffix("/s").ok_or(NotAQuantity)?, &SIZES).map(ByteRate)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(self.0, &SIZES, f)
    }
}

impl fmt::Display for ByteRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", Size(self.0))
    }
}

/// The milliseconds of a text such as `10s`. Units are `ms`, `s`, `m` (minutes), `h` and `d`.
///
/// # Errors
/// When the text is not a whole number directly followed by a unit, or too large for 64 bits.
pub(crate) fn milliseconds(text: &str) -> Result<u64, NotAQuantity> {
    quantity(text, &TIMES)
}

/// Writes a duration as `10s`; a rest below a millisecond is cut off.
pub(crate) fn show_duration(duration: Duration, f: &mut impl fmt::Write) -> fmt::Result {
    show(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX), &TIMES, f)
}

fn quantity(text: &str, units: &[(&str, u64)]) -> Result<u64, NotAQuantity> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| NotAQuantity)?;
    let (_, factor) = units.iter().find(|(name, _)| *name == unit).ok_or(NotAQuantity)?;
    number.checked_mul(*factor).ok_or(NotAQuantity)
}

/// Writes a quantity in the largest unit that leaves no rest.
fn show(quantity: u64, units: &[(&str, u64)], f: &mut impl fmt::Write) -> fmt::Result {
    let exact = |(_, factor): &&(&str, u64)| quantity != 0 && quantity.is_multiple_of(*factor);
    let (name, factor) = units.iter().rev().find(exact).unwrap_or(&units[0]);
    write!(f, "{}{name}", quantity / factor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn units_are_read_and_the_largest_exact_one_is_printed() {
        let time = |text| {
            let mut printed = String::new();
            show_duration(Duration::from_millis(milliseconds(text).unwrap()), &mut printed)
                .unwrap();
            printed
        };
        assert_eq!(time("15ms"), "15ms");
        assert_eq!(time("90s"), "90s");
        assert_eq!(time("60s"), "1m");
        assert_eq!(time("24h"), "1d");
        assert_eq!(time("0s"), "0ms");
        assert_eq!("65536B".parse::<Size>().unwrap().to_string(), "64KiB");
        assert_eq!("1KiB/s".parse::<ByteRate>(), Ok(ByteRate(1024)));
        assert_eq!(ByteRate(1536).to_string(), "1536B/s");
        assert_eq!("2.5%".parse(), Ok(Percent(250)));
        assert_eq!("2.05%".parse::<Percent>().unwrap().to_string(), "2.05%");
        assert_eq!("100%".parse::<Percent>().unwrap().fraction(), 1.0);
    }

    #[test]
    fn anything_else_is_refused() {
        for text in
            ["", "10", "s", "-1s", "1.5s", " 1s", "1 s", "1S", "1h30m", "99999999999999999d"]
        {
            assert_eq!(milliseconds(text), Err(NotAQuantity), "{text}");
        }
        for text in ["1KB", "1kib", "64K", "1KiB/s", "16777216TiB", "+1B", "١B"] {
            assert_eq!(text.parse::<Size>(), Err(NotAQuantity), "{text}");
        }
        assert_eq!("1KiB".parse::<ByteRate>(), Err(NotAQuantity));
        for text in ["", "%", "20", "0.2", ".5%", "1.%", "1.234%", "-1%", "+1%", "1e2%", "1 %"] {
            assert_eq!(text.parse::<Percent>(), Err(NotAQuantity), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(number: u64) {
            prop_assert_eq!(Size(number).to_string().parse(), Ok(Size(number)));
            prop_assert_eq!(ByteRate(number).to_string().parse(), Ok(ByteRate(number)));
            prop_assert_eq!(Percent(number).to_string().parse(), Ok(Percent(number)));
            let mut text = String::new();
            show_duration(Duration::from_millis(number), &mut text).unwrap();
            prop_assert_eq!(milliseconds(&text), Ok(number));
        }
    }
}
