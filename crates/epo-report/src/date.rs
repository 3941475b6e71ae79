//! Converts dates to text.

/// Returns the UTC date and time of a number of seconds since 1970, such as `2026-11-15-21-05-46`.
///
/// Names of run folders contain this form. The date is computed with Hinnant's algorithm.
pub fn utc(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day_of_month = day - (153 * month + 2) / 5 + 1;
    let (year, month) =
        (year + era * 400 + u64::from(month > 9), if month < 10 { month + 3 } else { month - 9 });
    let (h, m, s) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day_of_month:02}-{h:02}-{m:02}-{s:02}")
}

/// Returns `2026-11-15 21:05` from a text that contains a date in the form of [`utc`], such as
/// `seed-000-2026-11-15-21-05-46`.
pub(crate) fn minutes(text: &str) -> Option<String> {
    let is_date = |at: usize| {
        let part = text.get(at..at + 19)?;
        let shape = |(i, b): (usize, u8)| {
            if [4, 7, 10, 13, 16].contains(&i) { b == b'-' } else { b.is_ascii_digit() }
        };
        part.bytes().enumerate().all(shape).then_some(part)
    };
    let date = (0..text.len().saturating_sub(18)).find_map(is_date)?;
    Some(format!("{} {}:{}", &date[..10], &date[11..13], &date[14..16]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_converted_to_dates() {
        for (seconds, date) in [
            (0, "1970-01-01-00-00-00"),
            (951_782_400, "2000-02-29-00-00-00"),
            (1_767_225_599, "2025-12-31-23-59-59"),
            (4_107_542_400, "2100-03-01-00-00-00"),
        ] {
            assert_eq!(utc(seconds), date);
        }
    }

    #[test]
    fn the_date_of_a_folder_is_found_in_its_name() {
        assert_eq!(minutes("seed-000-2026-11-15-21-05-46-2").as_deref(), Some("2026-11-15 21:05"));
        assert_eq!(minutes("epo-SafetyPointGoal1-v0-seed-000-1a2b3c4d"), None);
        assert_eq!(minutes("µ2026-11-15"), None);
    }
}
