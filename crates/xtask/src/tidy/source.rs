//! A Rust file split into what is code, what is comment and what is text.
//!
//! This is a scanner, not a parser: it knows comments, strings, characters and lifetimes, so that braces
//! and words inside text are not taken for code.

/// A file, as the rules see it.
pub struct Source {
    /// Its path from the root of the tree.
    pub name: String,
    /// The lines as written.
    pub lines: Vec<String>,
    /// The lines with comments and the content of strings blanked out.
    pub code: Vec<String>,
    /// Where the tests inside the file begin; its length if there are none.
    pub tests_from: usize,
}

/// A function with a body.
pub struct Function {
    /// Its name.
    pub name: String,
    /// The index of the line with the word `fn`.
    pub first: usize,
    /// The index of the line with the closing brace.
    pub last: usize,
}

impl Source {
    /// Scans a file.
    pub fn parse(name: String, text: &str) -> Self {
        let code: Vec<String> = blank(text).lines().map(str::to_string).collect();
        let whole = name.ends_with("/tests.rs") || name.contains("/tests/") || name.contains("/testing/");
        let inner = code.iter().position(|l| l.trim() == "#[cfg(test)]");
        let tests_from = if whole { 0 } else { inner.unwrap_or(code.len()) };
        Self { name, lines: text.lines().map(str::to_string).collect(), code, tests_from }
    }

    /// Functions with a body, nested ones too.
    pub fn functions(&self) -> Vec<Function> {
        let mut all = Vec::new();
        for (first, line) in self.code.iter().enumerate() {
            let Some(name) = function_name(line) else { continue };
            if let Some(last) = self.body_end(first, line.find("fn ").unwrap_or(0)) {
                all.push(Function { name, first, last });
            }
        }
        all
    }

    /// The line of the brace that closes the first one after the start; `None` where a `;` comes first.
    fn body_end(&self, first: usize, column: usize) -> Option<usize> {
        let (mut depth, mut parens) = (0usize, 0usize);
        for (number, line) in self.code.iter().enumerate().skip(first) {
            for c in line.chars().skip(if number == first { column } else { 0 }) {
                match c {
                    '(' | '[' => parens += 1,
                    ')' | ']' => parens = parens.saturating_sub(1),
                    ';' if depth == 0 && parens == 0 => return None,
                    '{' => depth += 1,
                    '}' if depth <= 1 => return Some(number),
                    '}' => depth -= 1,
                    _ => {}
                }
            }
        }
        None
    }
}

/// The name in `fn name(` or `fn name<`, if the line begins a function.
fn function_name(line: &str) -> Option<String> {
    let at = line.find("fn ").filter(|at| *at == 0 || line[..*at].ends_with([' ', '(']))?;
    let name: String = line[at + 3..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    let after = line[at + 3 + name.len()..].chars().next();
    (!name.is_empty() && matches!(after, Some('(' | '<'))).then_some(name)
}

/// The text with comments and the content of strings and characters replaced by blanks; lines stay.
fn blank(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let (kept, end) = token(&chars, at);
        for (i, c) in chars[at..end].iter().enumerate() {
            out.push(if i < kept || *c == '\n' { *c } else { ' ' });
        }
        at = end;
    }
    out
}

/// One step of the scanner: how many characters of the token at `at` stay, and where it ends.
fn token(chars: &[char], at: usize) -> (usize, usize) {
    let next = chars.get(at + 1).copied();
    let word_before = at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_');
    match chars[at] {
        '/' if next == Some('/') => (0, find(chars, at, |c| c == '\n')),
        '/' if next == Some('*') => (0, comment_end(chars, at)),
        'r' | 'b' | 'c' if !word_before => match raw_string_end(chars, at) {
            Some(end) => (0, end),
            None => (1, at + 1),
        },
        '"' => (0, string_end(chars, at + 1)),
        '\'' => match char_end(chars, at) {
            Some(end) => (0, end),
            None => (1, at + 1),
        },
        _ => (1, at + 1),
    }
}

fn find(chars: &[char], from: usize, stop: impl Fn(char) -> bool) -> usize {
    (from..chars.len()).find(|i| stop(chars[*i])).unwrap_or(chars.len())
}

fn comment_end(chars: &[char], from: usize) -> usize {
    let (mut depth, mut at) = (0, from);
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => (depth, at) = (depth + 1, at + 2),
            ('*', Some('/')) if depth == 1 => return at + 2,
            ('*', Some('/')) => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
    }
    at
}

fn string_end(chars: &[char], from: usize) -> usize {
    let mut at = from;
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

/// The end of `r"…"`, `r#"…"#`, `br"…"` and the like; `None` if this is no raw string.
fn raw_string_end(chars: &[char], at: usize) -> Option<usize> {
    let r = find(chars, at, |c| !matches!(c, 'r' | 'b' | 'c'));
    let hashes = find(chars, r, |c| c != '#') - r;
    let raw = chars[at..r].contains(&'r') && r - at <= 2;
    if !raw || chars.get(r + hashes) != Some(&'"') {
        return None;
    }
    let closes = |i: usize| {
        chars[i] == '"' && chars.len() > i + hashes && chars[i + 1..=i + hashes].iter().all(|c| *c == '#')
    };
    Some((r + hashes + 1..chars.len()).find(|i| closes(*i)).map_or(chars.len(), |i| i + hashes + 1))
}

/// The end of a character; `None` for a lifetime.
fn char_end(chars: &[char], at: usize) -> Option<usize> {
    match (chars.get(at + 1)?, chars.get(at + 2)) {
        ('\\', _) => Some(find(chars, at + 3, |c| c == '\'').saturating_add(1).min(chars.len())),
        (_, Some('\'')) => Some(at + 3),
        _ => None,
    }
}
