//! Patterns of names: `*`, `?`, `[...]` and `\`, over bytes (POSIX.1-2024 XCU 2.14 without classes by name).

/// Whether the pattern fits the whole text. One `*` is remembered, so that no pattern takes more than pattern × text
/// steps.
pub(super) fn fits(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p, t));
            p += 1;
            continue;
        }
        match one(&pattern[p..], text[t]) {
            Some(len) => {
                p += len;
                t += 1;
            }
            None => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    (p, t) = (at + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

/// The length of the first part of the pattern, if it fits the byte.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match *pattern.first()? {
        b'?' => Some(1),
        b'\\' if pattern.len() > 1 => (pattern[1] == byte).then_some(2),
        b'[' => match set(pattern, byte) {
            Some((fits, len)) => fits.then_some(len),
            None => (byte == b'[').then_some(1),
        },
        c => (c == byte).then_some(1),
    }
}

/// Whether a set holds the byte, and its length; `None` where it has no end.
fn set(pattern: &[u8], byte: u8) -> Option<(bool, usize)> {
    let negated = matches!(pattern.get(1), Some(b'!' | b'^'));
    let first = 1 + usize::from(negated);
    let mut at = first;
    let mut found = false;
    loop {
        let low = *pattern.get(at)?;
        if low == b']' && at > first {
            return Some((found != negated, at + 1));
        }
        let high = match (pattern.get(at + 1), pattern.get(at + 2)) {
            (Some(b'-'), Some(high)) if *high != b']' => {
                at += 2;
                *high
            }
            _ => low,
        };
        found |= (low..=high).contains(&byte);
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn patterns() {
        for (pattern, text, want) in [
            ("*", "", true),
            ("*.c", "a.c", true),
            ("*.c", "a.cc", false),
            ("a*b*c", "aXbXbXc", true),
            ("a*b*c", "aXbXbX", false),
            ("?", "", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[^a]", "b", true),
            ("[]x]", "]", true),
            ("[a-]", "-", true),
            ("[", "[", true),
            ("[ab", "[ab", true),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("", "", true),
            ("*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
        ] {
            assert_eq!(fits(pattern.as_bytes(), text.as_bytes()), want, "{pattern} {text}");
        }
    }
}
