//! Permission bits as chmod(1) takes them: octal, or symbolic such as `u+rw,go-w,a=rX`.

use std::str::FromStr;

/// A change of permission bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mode {
    /// These bits.
    Octal(u32),
    /// One step after the other.
    Symbolic(Vec<Step>),
}

/// A step of a symbolic change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    /// Whose bits, as a mask; `None`: everybody's, as far as the umask leaves them.
    who: Option<u32>,
    op: char,
    what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    /// `rwxXst`.
    Letters(String),
    /// The bits that one of `ugo` has.
    CopyOf(u32),
}

const USER: u32 = 0o4700;
const GROUP: u32 = 0o2070;
const OTHERS: u32 = 0o1007;

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Mode, String> {
        if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
            let bits = u32::from_str_radix(text, 8).ok().filter(|m| *m <= 0o7777);
            return bits.map(Mode::Octal).ok_or_else(|| "octal modes go from 0 to 7777".into());
        }
        let mut steps = Vec::new();
        for clause in text.split(',') {
            parse_clause(clause, &mut steps)
                .ok_or("write octal digits, or [ugoa][+-=][rwxXst], such as u+rw,go-w")?;
        }
        Ok(Mode::Symbolic(steps))
    }
}

fn parse_clause(clause: &str, steps: &mut Vec<Step>) -> Option<()> {
    let ops = |c: char| matches!(c, '+' | '-' | '=');
    let (names, mut rest) = clause.split_at(clause.find(ops)?);
    let mut who = None;
    for name in names.chars() {
        let bits = match name {
            'a' => USER | GROUP | OTHERS,
            name => whose(name)?,
        };
        who = Some(who.unwrap_or(0) | bits);
    }
    while let Some(op) = rest.chars().next() {
        let letters = &rest[1..];
        let end = letters.find(ops).unwrap_or(letters.len());
        let (letters, next) = letters.split_at(end);
        let mut one = letters.chars();
        let what = match (one.next().and_then(whose), one.next()) {
            (Some(mask), None) => What::CopyOf(mask),
            _ if letters.chars().all(|c| "rwxXst".contains(c)) => What::Letters(letters.into()),
            _ => return None,
        };
        steps.push(Step { who, op, what });
        rest = next;
    }
    Some(())
}

fn whose(name: char) -> Option<u32> {
    Some(match name {
        'u' => USER,
        'g' => GROUP,
        'o' => OTHERS,
        _ => return None,
    })
}

impl Mode {
    /// The bits after the change.
    pub(super) fn apply(&self, old: u32, is_dir: bool, umask: u32) -> u32 {
        match self {
            // A directory keeps its set-id bits, unless they are named with a fifth digit or by letters.
            Mode::Octal(bits) if is_dir => bits | old & 0o6000,
            Mode::Octal(bits) => *bits,
            Mode::Symbolic(steps) => steps.iter().fold(old, |mode, step| step.apply(mode, is_dir, umask)),
        }
    }
}

impl Mode {
    /// Bits that a change such as `-w`, which names nobody, leaves because the umask has them (chmod(1) calls that an
    /// error, too, after it has made the change).
    pub(super) fn left_by_umask(&self, old: u32, is_dir: bool, umask: u32) -> u32 {
        match self {
            Mode::Symbolic(steps) if steps.first().is_some_and(|s| s.who.is_none() && s.op == '-') => {
                self.apply(old, is_dir, umask) & !self.apply(old, is_dir, 0)
            }
            _ => 0,
        }
    }
}

impl Step {
    fn apply(&self, mode: u32, is_dir: bool, umask: u32) -> u32 {
        let mask = self.who.unwrap_or(USER | GROUP | OTHERS);
        let allowed = if self.who.is_some() { mask } else { mask & !umask };
        let bits = match &self.what {
            What::CopyOf(whose) => {
                let bits = mode & whose & 0o777;
                let one = (bits >> 6 | bits >> 3 | bits) & 7;
                one * 0o111
            }
            What::Letters(letters) => {
                letters.chars().fold(0, |bits, letter| bits | self.letter(letter, mode, is_dir))
            }
        } & allowed;
        match self.op {
            '+' => mode | bits,
            '-' => mode & !bits,
            // As chmod(1) does it, set-id bits of directories stay where they are not named.
            _ => mode & !(mask & if is_dir { 0o1777 } else { 0o7777 }) | bits,
        }
    }

    fn letter(&self, letter: char, mode: u32, is_dir: bool) -> u32 {
        match letter {
            'r' => 0o444,
            'w' => 0o222,
            'x' => 0o111,
            'X' if is_dir || mode & 0o111 != 0 => 0o111,
            's' => 0o6000,
            't' => 0o1000,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_change_as_chmod_changes_them() {
        for (text, old, is_dir, want) in [
            ("644", 0o7777, false, 0o644),
            ("755", 0o2700, true, 0o2755),
            ("u+x", 0o644, false, 0o744),
            ("go-r,u+w", 0o444, false, 0o600),
            ("a=rX", 0o640, false, 0o444),
            ("a=rX", 0o740, false, 0o555),
            ("a=rX", 0o640, true, 0o555),
            ("+w", 0o444, false, 0o644),
            ("a+w", 0o444, false, 0o666),
            ("g=u", 0o640, false, 0o660),
            ("o=", 0o777, false, 0o770),
            ("u=rwx,g+s", 0o040, true, 0o2740),
            ("+t", 0o777, true, 0o1777),
            ("u+r-w", 0o200, false, 0o400),
        ] {
            let mode: Mode = text.parse().unwrap();
            assert_eq!(mode.apply(old, is_dir, 0o022), want, "{text} of {old:o}");
        }
        for bad in ["", "8", "10000", "u", "u+q", "z+r", "u+r,", "ug"] {
            assert!(bad.parse::<Mode>().is_err(), "{bad}");
        }
    }
}
