//! Dates and times of day in UTC.

use std::time::Duration;

/// A time as a calendar and a clock have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Date {
    /// The year.
    pub year: u64,
    /// The month, from 1.
    pub month: u64,
    /// The day of the month, from 1.
    pub day: u64,
    /// Days since the last Thursday, which the first day of 1970 was.
    pub weekday: u64,
    second: u64,
}

impl Date {
    /// Of a time since 1970.
    #[must_use]
    pub const fn of(since_1970: Duration) -> Self {
        let (days, second) = (since_1970.as_secs() / 86_400, since_1970.as_secs() % 86_400);
        // Eras of 400 years are counted from 0000-03-01, so that a leap day ends its year.
        let shifted = days + 719_468;
        let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_shifted = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_shifted + 2) / 5 + 1;
        let month = if month_shifted < 10 { month_shifted + 3 } else { month_shifted - 9 };
        let year = year_of_era + era * 400 + (month <= 2) as u64;
        Self { year, month, day, weekday: days % 7, second }
    }

    /// `2025-03-05`
    #[must_use]
    pub fn day_text(&self) -> String {
        format!("{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }

    /// `22:04:36`
    #[must_use]
    pub fn time_text(&self) -> String {
        format!("{:02}:{:02}:{:02}", self.second / 3600, self.second / 60 % 60, self.second % 60)
    }
}
