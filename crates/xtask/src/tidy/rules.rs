//! Rules for each file alone.

use super::source::Source;

/// A longer function needs a reason.
const FUNCTION_LINES_MAX: usize = 70;
/// A longer file needs a reason.
const FILE_LINES_MAX: usize = 800;
/// The reason, in a comment inside the function or anywhere in the file.
const REASON: &str = "tidy: long because ";

/// Words that mean unfinished work, in pieces so that this file passes its own rule.
const UNFINISHED: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("to", "do!("),
    concat!("unimpl", "emented!("),
    concat!("db", "g!("),
    concat!("#[", "ignore"),
];

/// Appends what breaks a rule in this file.
pub fn check(file: &Source, found: &mut Vec<String>) {
    let mut say = |line: usize, what: String| found.push(format!("{}:{}: {what}", file.name, line + 1));
    if !file.lines.first().is_some_and(|l| l.starts_with("//!")) {
        say(0, "the module does not begin with `//!`".into());
    }
    let reasons = |from: usize, to: usize| file.lines[from..=to].iter().any(|l| l.contains(REASON));
    if file.lines.len() > FILE_LINES_MAX && !reasons(0, file.lines.len() - 1) {
        say(0, format!("{} lines; split it by idea, or say `// {REASON}…`", file.lines.len()));
    }
    for f in file.functions() {
        let lines = f.last - f.first + 1;
        if lines > FUNCTION_LINES_MAX && !reasons(f.first, f.last) {
            say(f.first, format!("`{}` has {lines} lines; split it, or say `// {REASON}…`", f.name));
        }
    }
    for (number, line) in file.lines.iter().enumerate() {
        if let Some(word) = UNFINISHED.iter().find(|w| holds_word(line, w)) {
            say(number, format!("unfinished or left over: {word}"));
        }
        if names_a_private_place(line) {
            say(number, "names a place of one machine".into());
        }
    }
}

/// Whether the word stands in the line and is not part of a longer one.
fn holds_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        !part(before) && (!part(after) || word.ends_with('('))
    })
}

/// Whether a line names a folder that only the machine of one developer has.
pub fn names_a_private_place(line: &str) -> bool {
    let place = concat!("/wo", "rk/");
    line.match_indices(place).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "/.~}_-".contains(c))
    })
}
