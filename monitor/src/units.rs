//! Numbers as people read them: with units, and with thousands set apart.

/// A number with its thousands set apart.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A number of bytes in the unit that suits it.
pub fn size(bytes: u64) -> String {
    let mut amount = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if amount < 1024.0 {
            return if unit == "B" { format!("{bytes} B") } else { format!("{amount:.1} {unit}") };
        }
        amount /= 1024.0;
    }
    format!("{amount:.1} TiB")
}

/// A time in the unit that suits it.
pub fn time(seconds: f64) -> String {
    for (unit, of) in [("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)] {
        if seconds >= of {
            let amount = seconds / of;
            return format!("{amount:.*} {unit}", usize::from(amount < 10.0));
        }
    }
    let unit = if seconds > 0.0 { "ns" } else { "s" };
    format!("{:.0} {unit}", seconds * 1e9)
}

/// The time of the day in UTC, of a moment in milliseconds since 1970.
pub fn clock(at_ms: u64) -> String {
    let seconds = at_ms / 1000 % 86_400;
    format!("{:02}:{:02}:{:02} UTC", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// A part of a whole; `none yet` of nothing.
pub fn share(part: u64, whole: u64) -> String {
    match whole {
        0 => "none yet".to_owned(),
        whole => format!("{:.0} %", 100.0 * part as f64 / whole as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(size(999), "999 B");
        assert_eq!(size(50_164_600), "47.8 MiB");
        assert_eq!(
            [2.5, 34.4, 0.0025, 0.000_262_1, 256e-9, 0.0].map(time),
            ["2.5 s", "34 s", "2.5 ms", "262 µs", "256 ns", "0 s"]
        );
        assert_eq!(clock(86_400_000 + 45_296_789), "12:34:56 UTC");
        assert_eq!((share(1, 4), share(0, 0)), ("25 %".to_owned(), "none yet".to_owned()));
    }
}
