//! Rates as people write them: `300/s`, `10/m`, `1/h`, `unlimited`.

use std::fmt;

/// The largest number of events per unit of time. Above it the interval in nanoseconds would be too coarse.
pub const MOST: u32 = 10_000_000;

/// An average rate of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Events per unit; 0 for no limit.
    count: u32,
    unit: Unit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Second,
    Minute,
    Hour,
}

impl Unit {
    const ALL: [(&'static str, Unit); 3] =
        [("s", Unit::Second), ("m", Unit::Minute), ("h", Unit::Hour)];

    fn ns(self) -> u64 {
        match self {
            Unit::Second => 1_000_000_000,
            Unit::Minute => 60_000_000_000,
            Unit::Hour => 3_600_000_000_000,
        }
    }
}

/// The text of [`Rate::UNLIMITED`].
const UNLIMITED: &str = "unlimited";

impl Rate {
    /// No limit. A rule with this rate keeps later rules from setting a limit.
    pub const UNLIMITED: Rate = Rate { count: 0, unit: Unit::Second };

    /// Reads a whole number from 1 to [`MOST`] and a unit: `/s`, `/m` (minute) or `/h`; or `unlimited`.
    ///
    /// # Errors
    /// [`RateError`] for any other text.
    pub fn parse(text: &str) -> Result<Rate, RateError> {
        if text == UNLIMITED {
            return Ok(Rate::UNLIMITED);
        }
        let (number, unit) = text.split_once('/').ok_or(RateError::Form)?;
        let known = Unit::ALL.into_iter().find(|(name, _)| *name == unit);
        let (_, unit) = known.ok_or(RateError::Form)?;
        if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(RateError::Form);
        }
        match number.parse() {
            Ok(count @ 1..=MOST) => Ok(Rate { count, unit }),
            _ => Err(RateError::Range),
        }
    }

    /// A rate of `count` per second, at least 1 and at most [`MOST`].
    pub fn per_second(count: u32) -> Rate {
        Rate { count: count.clamp(1, MOST), unit: Unit::Second }
    }

    /// Events per second; 0 if there is no limit.
    pub fn per_s(self) -> f64 {
        f64::from(self.count) * 1e9 / self.unit.ns() as f64
    }

    /// Whether the rate is no limit.
    pub fn is_unlimited(self) -> bool {
        self.count == 0
    }

    /// The time between two events at this rate, in nanoseconds, rounded up so that events are never more
    /// frequent than stated. 0 if there is no limit.
    pub fn interval_ns(self) -> u64 {
        match self.count {
            0 => 0,
            count => self.unit.ns().div_ceil(u64::from(count)),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_unlimited() {
            return f.write_str(UNLIMITED);
        }
        let name =
            Unit::ALL.iter().find(|(_, unit)| *unit == self.unit).map_or("", |(name, _)| name);
        write!(f, "{}/{name}", self.count)
    }
}

/// Why a text is not a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateError {
    /// The text is not a whole number with a unit.
    Form,
    /// The number is 0 or more than [`MOST`].
    Range,
}

impl fmt::Display for RateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RateError::Form => f.write_str(
                "a rate is a whole number and a unit: 300/s, 10/m (minute) or 1/h; or \"unlimited\"",
            ),
            RateError::Range => write!(f, "a rate is from 1 to {MOST} per unit"),
        }
    }
}

impl std::error::Error for RateError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_and_written() {
        for (text, interval_ns) in [
            ("1/s", 1_000_000_000),
            ("300/s", 3_333_334),
            ("10/m", 6_000_000_000),
            ("1/h", 3_600_000_000_000),
            ("10000000/s", 100),
            ("unlimited", 0),
        ] {
            let rate = Rate::parse(text).unwrap();
            assert_eq!(rate.interval_ns(), interval_ns);
            assert_eq!(rate.to_string(), text);
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in ["", "10", "/s", "1.5/s", "-1/s", "+1/s", "1/d", "1 /s", "1/ s", "1/min", "١/s"]
        {
            assert_eq!(Rate::parse(text), Err(RateError::Form), "{text}");
        }
        for text in ["0/s", "10000001/s", "99999999999999999999/h"] {
            assert_eq!(Rate::parse(text), Err(RateError::Range), "{text}");
        }
    }
}
