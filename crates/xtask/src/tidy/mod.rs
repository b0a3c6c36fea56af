//! The rules of this tree that no other tool knows, as a test and as `cargo xtask tidy`.
//!
//! # Layout
//! - [`source`]: a file as lines of code, comment and text, which is all the parsing the rules need.
//! - [`rules`]: rules for each file: module docs, sizes, leftovers.
//! - [`layers`]: which crate and which module may name which.
//! - [`promises`]: the tests and scenarios that documents name as proof exist.
//! - [`deps`]: licences, sources and native libraries of the packages that we build on.

mod deps;
mod layers;
mod promises;
mod rules;
mod source;

use crate::{e2e, run};
use anyhow::{Context, Result, bail};
use source::Source;
use std::fs;
use std::path::{Path, PathBuf};

/// Prints what breaks a rule; an error if anything does.
pub fn command() -> Result<()> {
    let found = findings(&run::tree())?;
    found.iter().for_each(|f| eprintln!("{f}"));
    if !found.is_empty() {
        bail!("tidy: {} findings", found.len());
    }
    Ok(())
}

/// What breaks a rule, as `file:line: what`.
fn findings(tree: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut proofs = promises::Proofs::of_scenarios(e2e::names());
    for path in files(&tree.join("crates"), "rs")? {
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let name = path.strip_prefix(tree).unwrap_or(&path).to_string_lossy().into_owned();
        let file = Source::parse(name, &text);
        rules::check(&file, &mut found);
        layers::check_modules(&file, &mut found);
        proofs.add(&file);
    }
    for document in promises::DOCUMENTS {
        let text = fs::read_to_string(tree.join(document)).with_context(|| document.to_string())?;
        promises::check(document, &text, &proofs, &mut found);
    }
    layers::check_crates(&run::metadata(&["--no-deps"])?, &mut found);
    deps::check(&run::metadata(&["--locked", "--filter-platform", "x86_64-unknown-linux-gnu"])?, &mut found);
    check_documents(tree, &mut found)?;
    Ok(found)
}

/// README and ARCHITECTURE.md name every crate, and no document names a place that only one machine has.
fn check_documents(tree: &Path, found: &mut Vec<String>) -> Result<()> {
    let mut crates = Vec::new();
    for entry in fs::read_dir(tree.join("crates"))? {
        crates.push(entry?.file_name().to_string_lossy().into_owned());
    }
    for document in ["README.md", "ARCHITECTURE.md"] {
        let text = fs::read_to_string(tree.join(document)).with_context(|| document.to_string())?;
        for name in crates.iter().filter(|name| !text.contains(&format!("`{name}`"))) {
            found.push(format!("{document}: does not mention the crate `{name}`"));
        }
    }
    let mut documents = files(&tree.join("docs"), "md")?;
    documents
        .extend(["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|d| tree.join(d)));
    for path in documents {
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| rules::names_a_private_place(line)) {
            found.push(format!("{}:{number}: names a place of one machine: {}", path.display(), line.trim()));
        }
    }
    Ok(())
}

/// All files below `dir` with this ending, sorted.
fn files(dir: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            all.extend(files(&path, ending)?);
        } else if path.extension().is_some_and(|e| e == ending) {
            all.push(path);
        }
    }
    all.sort();
    Ok(all)
}

#[cfg(test)]
mod tests;
