//! Words of commands that a person is told to type.

use std::fmt::Write;

/// A word as the shells take it: as it is where it is plain, else in single quotes; with what a terminal must not get
/// (control characters, marks that reorder text, bytes that are not UTF-8) as `$'…'` (POSIX.1-2024 XCU 2.2.4), so that
/// it stays one line.
pub fn shell_word(word: &[u8]) -> String {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"._-/@:+[],=%".contains(b);
    match std::str::from_utf8(word) {
        Ok(text) if !text.is_empty() && word.iter().all(plain) && !text.contains(['[', ']']) => text.into(),
        Ok(text) if !text.chars().any(is_hidden) => format!("'{}'", text.replace('\'', r"'\''")),
        _ => escaped(word),
    }
}

fn is_hidden(c: char) -> bool {
    let marks =
        ['\u{200b}'..='\u{200f}', '\u{2028}'..='\u{202e}', '\u{2060}'..='\u{206f}', '\u{feff}'..='\u{feff}'];
    c.is_control() || marks.iter().any(|m| m.contains(&c))
}

fn escaped(word: &[u8]) -> String {
    let mut out = String::from("$'");
    for chunk in word.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\n' => out.push_str("\\n"),
                '\t' => out.push_str("\\t"),
                '\\' | '\'' => out.extend(['\\', c]),
                c if is_hidden(c) => bytes(&mut out, c.encode_utf8(&mut [0; 4]).as_bytes()),
                c => out.push(c),
            }
        }
        bytes(&mut out, chunk.invalid());
    }
    out + "'"
}

/// In octal, which has three digits at most: what follows cannot be taken for a part of it.
fn bytes(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        let _ = write!(out, "\\{byte:03o}");
    }
}

#[cfg(test)]
mod tests {
    use super::shell_word;
    use std::process::Command;

    #[test]
    fn a_shell_reads_what_was_meant() {
        for word in [
            &b"ann@lab"[..],
            b"/home/ann/tree",
            b"",
            b"my tree",
            b"it's",
            b"[::1]",
            b"$HOME `id` \"x\" \\n !!",
            b"*?~",
            b"a\nb\t'\\c",
            b"\x1b[31m7",
            b"\xff1",
            "a\u{202e}b1ä".as_bytes(),
        ] {
            let quoted = shell_word(word);
            assert!(!quoted.chars().any(super::is_hidden), "{quoted:?}");
            let said = Command::new("bash").args(["-c", &format!("printf %s {quoted}")]).output().unwrap();
            assert_eq!(said.stdout, word, "{quoted}");
        }
        assert_eq!(shell_word(b"ann@lab:/x-1.5"), "ann@lab:/x-1.5");
        assert_eq!(shell_word(b"my tree"), "'my tree'");
        assert_eq!(shell_word(b"a\nb"), "$'a\\nb'");
    }
}
