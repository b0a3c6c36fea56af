//! What documents name as proof exists: tests, files of tests and scenarios.
//!
//! A reference is a run of code spans: behind `Scenario`, or behind `Test` or before "in `CRATE`". A code span with three
//! underscores or more names a test wherever it stands. `name…` is any test whose name begins so.

use super::source::Source;
use std::collections::BTreeSet;
use std::path::Path;

/// Documents that name tests.
pub const DOCUMENTS: &[&str] = &["docs/SEMANTICS.md", "docs/LIMITS.md", "CONTRIBUTING.md"];
/// The document whose lists of promises name a proof for each.
const PROMISES: &str = "docs/SEMANTICS.md";
/// Its sections with such lists.
const SECTIONS: &[&str] = &[
    "# What Trellis promises",
    "## Modes",
    "## Policies of conflicts",
    "## By FUSE",
    "### From another machine",
    "### Extended attributes",
];

/// What can be named.
#[derive(Default)]
pub struct Proofs {
    /// Test functions, each with its crate.
    tests: BTreeSet<(String, String)>,
    /// Files with tests, without their ending, each with its crate: `src/mode`, `tests/engine`.
    files: BTreeSet<(String, String)>,
    /// Names of crates.
    crates: BTreeSet<String>,
    /// Names of scenarios.
    scenarios: BTreeSet<String>,
}

impl Proofs {
    /// Proofs with these scenarios and no tests yet.
    pub fn of_scenarios(scenarios: impl IntoIterator<Item = &'static str>) -> Proofs {
        Proofs { scenarios: scenarios.into_iter().map(String::from).collect(), ..Proofs::default() }
    }

    /// Takes the tests of a file in.
    pub fn add(&mut self, file: &Source) {
        let Some((name, path)) = file.name.strip_prefix("crates/").and_then(|rest| rest.split_once('/'))
        else {
            return;
        };
        self.crates.insert(name.into());
        // Each home runs the functions of the conformance suite.
        let suite = path.contains("/conformance/");
        let is_test = |first: usize| {
            let above = file.code[..first].iter().rev().take_while(|l| l.trim_start().starts_with("#["));
            above.into_iter().any(|l| l.contains("test]") || l.contains("test("))
        };
        let before = self.tests.len();
        let found = file.functions().into_iter().filter(|f| suite || is_test(f.first));
        self.tests.extend(found.map(|f| (name.to_string(), f.name)));
        if self.tests.len() > before || path.starts_with("tests/") {
            self.files
                .insert((name.into(), Path::new(path).with_extension("").to_string_lossy().into_owned()));
        }
    }

    /// Whether there is such a test, or a file or folder of tests, in the crate, or in any.
    fn has_test(&self, name: &str, of: Option<&str>) -> bool {
        let here = |c: &str| of.is_none_or(|of| of == c);
        let is = |test: &str| name.strip_suffix('…').map_or(test == name, |start| test.starts_with(start));
        // Tests inside a module's file have no file of their own.
        let name = name.strip_suffix("::tests").unwrap_or(name);
        let path = format!("/{}/", name.replace("::", "/"));
        let holds = |file: &str| format!("/{file}/").contains(&path);
        self.tests.iter().any(|(c, test)| here(c) && is(test))
            || self.files.iter().any(|(c, file)| here(c) && holds(file))
    }
}

/// A piece of a paragraph: the code spans are the odd ones.
fn pieces(text: &str) -> Vec<&str> {
    text.split('`').collect()
}

/// A run of code spans with nothing but commas and the like between them.
struct Run<'a> {
    before: &'a str,
    names: Vec<&'a str>,
    /// The crate that stands behind it.
    of: Option<&'a str>,
}

/// Whether text stands between names of one run.
fn joins(text: &str) -> bool {
    let mut depth = 0;
    let outside: String = text
        .chars()
        .filter(|c| {
            depth += i32::from(*c == '(');
            let out = depth == 0;
            depth -= i32::from(*c == ')');
            out
        })
        .collect();
    let words: Vec<&str> =
        outside.split(|c: char| c.is_whitespace() || c == ',').filter(|w| !w.is_empty()).collect();
    words.iter().all(|w| matches!(*w, "and" | "or"))
        && (outside.contains(',') || !words.is_empty() || depth > 0)
}

/// Whether a code span is a command.
fn is_command(name: &str) -> bool {
    name.contains(' ')
}

fn runs<'a>(text: &'a str, proofs: &Proofs) -> Vec<Run<'a>> {
    let pieces = pieces(text);
    let mut all: Vec<Run> = Vec::new();
    let mut fresh = true;
    for at in (1..pieces.len()).step_by(2) {
        let (before, name) = (pieces[at - 1], pieces[at]);
        let names_the_crate = before.trim() == "in" || before.trim_end().ends_with(") in");
        match all.last_mut() {
            Some(run) if names_the_crate && proofs.crates.contains(name) => {
                run.of = Some(name);
                fresh = true;
                continue;
            }
            Some(run) if !fresh && joins(before) => {
                run.names.push(name);
            }
            _ => all.push(Run { before, names: vec![name], of: None }),
        }
        fresh = false;
    }
    all
}

fn ends_with_word(text: &str, words: &[&str]) -> bool {
    let last = text.trim_end().rsplit(|c: char| !c.is_alphabetic()).next().unwrap_or("").to_lowercase();
    words.contains(&last.as_str()) && text.ends_with(char::is_whitespace)
}

/// How many proofs the text names; what of them does not exist is told.
fn named(text: &str, proofs: &Proofs, mut missing: impl FnMut(String)) -> usize {
    let mut count = 0;
    let mut test = |name: &str, of: Option<&str>| {
        count += 1;
        if !proofs.has_test(name, of) {
            missing(format!("no test `{name}`{}", of.map_or(String::new(), |of| format!(" in `{of}`"))));
        }
    };
    let mut scenarios = Vec::new();
    for run in runs(text, proofs) {
        if ends_with_word(run.before, &["scenario", "scenarios"]) {
            scenarios.extend(run.names[..run.names.len() - usize::from(run.of.is_some())].iter().copied());
            run.of.into_iter().for_each(|of| test(run.names.last().copied().unwrap_or(""), Some(of)));
        } else if run.of.is_some() || ends_with_word(run.before, &["test", "tests"]) {
            run.names.iter().filter(|n| !is_command(n)).for_each(|name| test(name, run.of));
        } else {
            let names = run.names.iter().filter(|n| n.matches('_').count() > 2);
            names
                .filter(|n| n.chars().all(|c| c.is_ascii_lowercase() || "_…".contains(c)))
                .for_each(|n| test(n, None));
        }
    }
    for name in scenarios {
        count += 1;
        if !proofs.scenarios.contains(name) && !is_command(name) {
            missing(format!("no scenario `{name}`"));
        }
    }
    count
}

/// Whether a line begins an item of a list.
fn is_item(line: &str) -> bool {
    let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
    line.starts_with("- ") || rest.len() < line.len() && rest.starts_with(". ")
}

/// The paragraphs and items of lists of a document, each with its first line's number and the heading above it.
fn blocks(text: &str) -> Vec<(usize, String, String)> {
    let mut all: Vec<(usize, String, String)> = Vec::new();
    let (mut heading, mut open) = (String::new(), false);
    for (number, line) in (1..).zip(text.lines()) {
        if line.starts_with('#') {
            (heading, open) = (line.to_string(), false);
        } else if line.trim().is_empty() || line.starts_with("    ") && !open {
            open = false;
        } else if let Some((_, _, block)) = all.last_mut().filter(|_| open && !is_item(line)) {
            block.push(' ');
            block.push_str(line.trim());
        } else {
            all.push((number, heading.clone(), line.to_string()));
            open = true;
        }
    }
    all
}

/// Appends what a document names and is not there, and which promises name nothing.
pub fn check(document: &str, text: &str, proofs: &Proofs, found: &mut Vec<String>) {
    for (number, heading, block) in blocks(text) {
        let count = named(&block, proofs, |what| found.push(format!("{document}:{number}: {what}")));
        if document == PROMISES && is_item(&block) && SECTIONS.contains(&heading.as_str()) && count == 0 {
            let start: String = block.chars().take(60).collect();
            found.push(format!("{document}:{number}: a promise without a test: {start}…"));
        }
    }
}
