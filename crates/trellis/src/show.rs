//! Text for a person: whatever another machine chose is escaped before it reaches a terminal.

use std::fmt::Write;

/// A name as a person may see it: control characters, marks that reorder text and bytes that are not UTF-8 are
/// escaped, and so is the backslash, so that two names never look alike.
pub fn text(bytes: &[u8]) -> String {
    escaped(bytes, true)
}

/// A message of several lines. Names in it were escaped when it was made, so its backslashes stay.
pub fn message(message: &str) -> String {
    message.lines().map(|l| escaped(l.as_bytes(), false)).collect::<Vec<_>>().join("\n")
}

fn escaped(bytes: &[u8], backslash: bool) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' if backslash => out.push_str("\\\\"),
                c if c.is_control() || is_invisible(c) => {
                    let _ = write!(out, "{}", c.escape_default());
                }
                c => out.push(c),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out
}

/// Bidirectional controls, joiners and line separators, which make a text look like another.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// A word of a command that a person is told to type.
pub fn word(bytes: &[u8]) -> String {
    home::ssh::shell_word(bytes)
}

/// A path in such a command.
pub fn path_word(path: &std::path::Path) -> String {
    word(path.as_os_str().as_encoded_bytes())
}

/// So many of something: `1 operation`, `2 operations`.
pub fn count(number: u64, one: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        _ => format!("{number} {one}s"),
    }
}

/// A number of bytes with a binary unit: `1.5 MiB`.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = bytes as f64;
    let mut unit = None;
    for next in UNITS {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = Some(next);
    }
    match unit {
        Some(unit) => format!("{value:.1} {unit}"),
        None => format!("{bytes} B"),
    }
}

/// A number of bytes as ls -h and du -h print it: rounded up, one digit after the point below 10.
pub fn short_size(bytes: u64) -> String {
    let mut unit = 1u128;
    for name in ["", "K", "M", "G", "T", "P", "E"] {
        let tenths = (u128::from(bytes) * 10).div_ceil(unit);
        if name.is_empty() && bytes < 1024 {
            return bytes.to_string();
        }
        if !name.is_empty() && tenths < 100 {
            return format!("{}.{}{name}", tenths / 10, tenths % 10);
        }
        let whole = u128::from(bytes).div_ceil(unit);
        if !name.is_empty() && whole < 1024 {
            return format!("{whole}{name}");
        }
        unit *= 1024;
    }
    format!("{bytes}")
}

/// A span of time in one or two units: `3m05s`.
pub fn span(seconds: f64) -> String {
    let whole = seconds as u64;
    match whole {
        0..=9 => format!("{seconds:.1}s"),
        10..=59 => format!("{whole}s"),
        60..=3599 => format!("{}m{:02}s", whole / 60, whole % 60),
        3600..=86_399 => format!("{}h{:02}m", whole / 3600, whole / 60 % 60),
        _ => format!("{}d{:02}h", whole / 86_400, whole / 3600 % 24),
    }
}

/// A moment in UTC: `2026-11-21 08:41:01.000000000`.
pub fn moment(sec: i64, nsec: u32) -> String {
    let (year, month, day) = civil(sec.div_euclid(86_400));
    let rest = sec.rem_euclid(86_400);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}.{nsec:09}",
        rest / 3600,
        rest / 60 % 60,
        rest % 60
    )
}

/// The Gregorian date of a number of days since 1970: Hinnant's `civil_from_days`, exact for every year.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// The number of days since 1970 of a Gregorian date: Hinnant's `days_from_civil`, the inverse of [`civil`].
pub fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Days of a month, 1 to 12.
pub fn days_of(year: i64, month: i64) -> i64 {
    let (next_year, next) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
    days_since_1970(next_year, next, 1) - days_since_1970(year, month, 1)
}

/// Type and permission bits as ls(1) prints them; `kind` is the first letter.
pub fn mode(kind: char, mode: u32) -> String {
    let mut out = String::from(kind);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        out.push(if bits & 4 != 0 { 'r' } else { '-' });
        out.push(if bits & 2 != 0 { 'w' } else { '-' });
        out.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    out
}

/// Columns of a table, padded to the widest cell.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |at: usize| rows.iter().filter_map(|r| r.get(at)).map(|c| c.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|at| width(at).unwrap_or(0)).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:<width$}  ");
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_the_terminal_raw() {
        assert_eq!(text(b"plain \xc3\xa4"), "plain ä");
        assert_eq!(text(b"\x1b[2J\x07\n\x7f"), "\\u{1b}[2J\\u{7}\\n\\u{7f}");
        assert_eq!(text(b"a\xffb\xc2"), "a\\xffb\\xc2");
        assert_eq!(text("\u{9b}x\u{202e}y".as_bytes()), "\\u{9b}x\\u{202e}y");
        assert_eq!(text(b"a\\n"), "a\\\\n");
        assert_eq!(message("a\x1b\nb\\x07"), "a\\u{1b}\nb\\x07");
    }

    #[test]
    fn figures() {
        assert_eq!(
            (size(1023), size(1536), size(5 << 30)),
            ("1023 B".into(), "1.5 KiB".into(), "5.0 GiB".into())
        );
        assert_eq!((span(0.25), span(75.0), span(90_000.0)), ("0.2s".into(), "1m15s".into(), "1d01h".into()));
    }

    #[test]
    fn one_is_not_many() {
        assert_eq!([0, 1, 2].map(|n| count(n, "change")), ["0 changes", "1 change", "2 changes"]);
    }

    #[test]
    fn short_sizes_are_rounded_up() {
        for (bytes, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (10 << 10, "10K"),
            ((10 << 10) + 1, "11K"),
            (1 << 20, "1.0M"),
            ((1 << 20) - 1, "1.0M"),
            (3 << 40, "3.0T"),
            (u64::MAX, "16E"),
        ] {
            assert_eq!(short_size(bytes), text);
        }
    }

    #[test]
    fn moments() {
        assert_eq!(moment(0, 1), "1970-01-01 00:00:00.000000001");
        assert_eq!(moment(-1, 0), "1969-12-31 23:59:59.000000000");
        assert_eq!(moment(951_782_400, 0), "2000-02-29 00:00:00.000000000");
        assert_eq!(moment(1_795_250_461, 0), "2026-11-21 08:41:01.000000000");
    }

    #[test]
    fn dates_are_days_and_back() {
        for days in (-800_000..800_000).step_by(97) {
            let (year, month, day) = civil(days);
            assert_eq!(days_since_1970(year, month, day), days);
        }
        assert_eq!((days_of(2000, 2), days_of(1900, 2), days_of(2026, 12)), (29, 28, 31));
    }

    #[test]
    fn modes() {
        assert_eq!(mode('-', 0o644), "-rw-r--r--");
        assert_eq!(mode('d', 0o3777), "drwxrwsrwt");
        assert_eq!(mode('-', 0o4644), "-rwSr--r--");
    }
}
