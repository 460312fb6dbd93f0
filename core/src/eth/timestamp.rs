//! Points in time: unix seconds on chain, ISO 8601 in the API.

use std::fmt;

use super::json::serialize_as_text;

/// A point in time, UTC, to the millisecond. Times on chain are whole seconds; hosts' clocks have
/// milliseconds.
///
/// Serializes as the specification's `<timestamp>`: ISO 8601 UTC with milliseconds (`service.md` section 2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    seconds: u64,
    millis: u16,
}

impl Timestamp {
    /// Creates a time from unix seconds.
    pub const fn from_seconds(seconds: u64) -> Self {
        Self { seconds, millis: 0 }
    }

    /// Creates a time from unix milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self { seconds: millis / 1000, millis: (millis % 1000) as u16 }
    }

    /// Returns unix milliseconds.
    pub const fn as_millis(self) -> u64 {
        self.seconds.saturating_mul(1000).saturating_add(self.millis as u64)
    }

    /// Returns whole unix seconds.
    pub const fn seconds(self) -> u64 {
        self.seconds
    }

    /// Returns the first whole unix second that is not before this.
    pub const fn seconds_rounded_up(self) -> u64 {
        self.seconds.saturating_add((self.millis > 0) as u64)
    }
}

impl Timestamp {
    /// Parses the form that [`Display`](fmt::Display) writes for the years 1970 to 9999.
    pub fn parse(text: &str) -> Option<Self> {
        let number = |from: usize, to: usize| {
            let digits = text.get(from..to)?;
            digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse::<u64>().ok())?
        };
        let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
        let (hour, minute, second, millis) =
            (number(11, 13)?, number(14, 16)?, number(17, 19)?, number(20, 23)?);
        let days = days_from_civil(year, month, day)?;
        let seconds = days * 86_400 + hour * 3_600 + minute * 60 + second;
        let parsed = Self::from_millis(seconds * 1_000 + millis);
        // Fields out of range, other separators and years before 1970 are written differently.
        (parsed.to_string() == text).then_some(parsed)
    }
}

impl fmt::Display for Timestamp {
    /// Written by hand: date libraries stop long before `u64::MAX` seconds, which a contract may store. Years
    /// above 9999 have ISO 8601's expanded form with a plus sign.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, second_of_day) = (self.seconds / 86_400, self.seconds % 86_400);
        let (year, month, day) = civil_from_days(days);
        let (hour, minute, second) = (second_of_day / 3600, second_of_day / 60 % 60, second_of_day % 60);
        // Digit by digit: the formatter's padding is slow, and a verdict has several times.
        let mut text = *b"0000-00-00T00:00:00.000Z";
        write_digits(&mut text[..4], year);
        write_digits(&mut text[5..7], month);
        write_digits(&mut text[8..10], day);
        write_digits(&mut text[11..13], hour);
        write_digits(&mut text[14..16], minute);
        write_digits(&mut text[17..19], second);
        write_digits(&mut text[20..23], self.millis.into());
        let text = std::str::from_utf8(&text).map_err(|_| fmt::Error)?;
        match year {
            0..=9999 => f.write_str(text),
            _ => write!(f, "+{year:06}{}", text.get(4..).unwrap_or_default()),
        }
    }
}

/// Writes the last decimal digits of a number, as many as there is room for.
fn write_digits(room: &mut [u8], mut number: u64) {
    for digit in room.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

serialize_as_text!(Timestamp);

impl<'de> serde::Deserialize<'de> for Timestamp {
    /// Reads the form that [`Timestamp::parse`] accepts.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("no timestamp"))
    }
}

/// Inverts [`civil_from_days`] for the years from 1970 on.
fn days_from_civil(year: u64, month: u64, day: u64) -> Option<u64> {
    const DAYS_FROM_0000_03_01: u64 = 719_468;
    let year = year.checked_sub((month <= 2) as u64)?;
    let march_month = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * march_month + 2) / 5 + day.checked_sub(1)?;
    let days = 365 * year + year / 4 - year / 100 + year / 400 + day_of_year;
    days.checked_sub(DAYS_FROM_0000_03_01)
}

/// Returns the date of the proleptic Gregorian calendar, from days since 1970-01-01. Years begin in March, so
/// that the leap day is the last of a year; all eras of 400 years have 146,097 days.
const fn civil_from_days(days: u64) -> (u64, u64, u64) {
    const DAYS_FROM_0000_03_01: u64 = 719_468;
    let shifted = days + DAYS_FROM_0000_03_01;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = era * 400 + year_of_era + (month <= 2) as u64;
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::Timestamp;
    use proptest::prelude::*;

    #[test]
    fn known_dates_are_written_as_the_calendar_has_them() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_700_991_453, "2023-11-26T09:37:33.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
            (253_402_300_799, "9999-12-31T23:59:59.000Z"),
            (253_402_300_800, "+010000-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(Timestamp::from_seconds(seconds).to_string(), text);
        }
        assert_eq!(Timestamp::from_millis(1_500).to_string(), "1970-01-01T00:00:01.500Z");
    }

    proptest! {
        #[test]
        fn any_second_is_written_without_overflow(seconds: u64) {
            let text = Timestamp::from_seconds(seconds).to_string();
            prop_assert!(text.ends_with(".000Z"));
        }

        #[test]
        fn what_is_written_is_parsed_and_nothing_else(millis in 0u64..253_402_300_800_000, junk in ".{0,26}") {
            let time = Timestamp::from_millis(millis);
            prop_assert_eq!(Timestamp::parse(&time.to_string()), Some(time));
            prop_assert!(Timestamp::parse(&junk).is_none_or(|time| time.to_string() == junk));
        }
    }
}
