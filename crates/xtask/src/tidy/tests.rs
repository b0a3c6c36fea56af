//! The tree keeps the rules, and the rules find what breaks them.

use super::source::Source;
use super::*;

#[test]
fn this_tree_is_tidy() {
    let found = findings(&run::tree()).unwrap();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

fn rules_on(name: &str, text: &str) -> Vec<String> {
    let file = Source::parse(name.into(), text);
    let mut found = Vec::new();
    rules::check(&file, &mut found);
    layers::check_modules(&file, &mut found);
    found
}

#[test]
fn module_docs_are_missed() {
    assert_eq!(rules_on("crates/x/src/a.rs", "fn a() {}\n").len(), 1);
    assert!(rules_on("crates/x/src/a.rs", "//! A.\nfn a() {}\n").is_empty());
}

#[test]
fn long_functions_need_a_reason() {
    let body = "    let _ = '}';\n".repeat(80);
    let long = format!("//! A.\nfn a(x: [u8; 3]) {{\n{body}}}\nfn b() {{}}\n");
    let found = rules_on("crates/x/src/a.rs", &long);
    assert_eq!(found, ["crates/x/src/a.rs:2: `a` has 82 lines; split it, or say `// tidy: long because …`"]);
    let reasoned = long.replacen("    let _", "    // tidy: long because it is a table.\n    let _", 1);
    assert!(rules_on("crates/x/src/a.rs", &reasoned).is_empty());
}

#[test]
fn leftovers_are_found() {
    for word in [
        concat!("// TO", "DO later"),
        concat!("to", "do!()"),
        concat!("db", "g!(x)"),
        concat!("#[", "ignore]"),
    ] {
        assert_eq!(rules_on("crates/x/src/a.rs", &format!("//! A.\n{word}\n")).len(), 1, "{word}");
    }
    assert!(rules_on("crates/x/src/a.rs", "//! A.\nfn mastodon() {}\n").is_empty());
    let place = concat!("//! See /wo", "rk/x.\n");
    assert_eq!(rules_on("crates/x/src/a.rs", place).len(), 1);
    assert!(rules_on("crates/x/src/a.rs", concat!("//! In trellis/wo", "rk/x.\n")).is_empty());
}

#[test]
fn layers_of_the_engine_are_kept() {
    for (name, line) in [
        ("ops/io.rs", "use crate::sync::Queue;"),
        ("ops/io.rs", "use crate::{meta::Meta, sync::Queue};"),
        ("meta.rs", "use crate::fetch;"),
        ("data/ram.rs", "fn a(h: &dyn Home) {}"),
        ("mutate.rs", "use oncrpc::nfs3::Fattr3;"),
        ("volume.rs", "let e = rustix::io::Errno::NOENT;"),
    ] {
        let text = format!("//! A.\n{line}\n");
        assert_eq!(rules_on(&format!("crates/vfs/src/{name}"), &text).len(), 1, "{name}: {line}");
        assert!(rules_on(&format!("crates/frontend/src/{name}"), &text).is_empty());
        let inside_a_test = format!("//! A.\n#[cfg(test)]\nmod tests {{\n{line}\n}}\n");
        assert!(rules_on(&format!("crates/vfs/src/{name}"), &inside_a_test).is_empty());
        let inside_a_comment = format!("//! A.\n// {line}\n");
        assert!(rules_on(&format!("crates/vfs/src/{name}"), &inside_a_comment).is_empty());
    }
    assert!(rules_on("crates/vfs/src/ops/io.rs", "//! A.\nuse crate::meta::Meta;\n").is_empty());
}

#[test]
fn crates_point_one_way() {
    let of = |name: &str, dep: &str| {
        let meta = serde_json::json!({"packages": [{"name": name, "dependencies": [{"name": dep}]}]});
        let mut found = Vec::new();
        layers::check_crates(&meta, &mut found);
        found.len()
    };
    assert_eq!(of("vfs", "home"), 0);
    assert_eq!(of("vfs", "serde"), 0);
    assert_eq!(of("home", "vfs"), 1);
    assert_eq!(of("agent", "vfs"), 1);
    assert_eq!(of("frontend", "trellis"), 1);
    assert_eq!(of("utils", "serde"), 1);
}

#[test]
fn licences_are_read() {
    for good in ["MIT", "MIT OR Apache-2.0", "MIT/Apache-2.0", "(MIT OR GPL-3.0) AND BSD-3-Clause"] {
        assert!(deps::acceptable(good), "{good}");
    }
    for bad in ["", "GPL-3.0", "MIT AND GPL-3.0", "LGPL-2.1 OR MPL-2.0"] {
        assert!(!deps::acceptable(bad), "{bad}");
    }
}

#[test]
fn the_scanner_knows_text_from_code() {
    let text = "let a = \"{ // x\"; /* { /* } */ */ let b = '{'; let c: &'a str = r#\"\"{\"#; // }\nb'\\'' }";
    let code = Source::parse("a.rs".into(), text).code;
    assert_eq!(code.concat().matches(['{', '}']).collect::<String>(), "}");
    assert!(code[0].contains("let c: &'a str ="));
}

#[test]
fn a_document_names_proofs_that_exist() {
    let mut proofs = promises::Proofs::of_scenarios(["wan", "fuse"]);
    for (name, text) in [
        (
            "crates/vfs/tests/engine.rs",
            "//! A.\n#[tokio::test(flavor = \"x\")]\nasync fn a_lost_answer_is_none() {\n}\n",
        ),
        ("crates/vfs/src/mode.rs", "//! A.\nfn not_a_test_at_all() {\n}\n#[test]\nfn it() {\n}\n"),
        ("crates/home/src/posix/tests/races.rs", "//! A.\n#[test]\nfn b() {\n}\n"),
    ] {
        proofs.add(&Source::parse(name.into(), text));
    }
    let found = |text: &str| {
        let mut found = Vec::new();
        promises::check("docs/SEMANTICS.md", text, &proofs, &mut found);
        found
    };
    for good in [
        "Scenarios `wan` (60 ms: `fuse`), and `fuse`, tests `engine`,\n`mode` and `a_lost_…` (model) in `vfs`.",
        "1. **All** of `a`, `b` is so (`posix::tests::races` in `home`).",
        "Test `a_lost_answer_is_none`. It is `df` and `copy_file_range` that ask.",
    ] {
        assert_eq!(found(&format!("# What Trellis promises\n\n{good}\n")), [""; 0], "{good}");
    }
    for (bad, what) in [
        ("Scenarios `wan` and\n`fusee`.", "1: no scenario `fusee`"),
        ("Tests `engine`, `engin`.", "1: no test `engin`"),
        ("`engine` and `mode` in `home`.", "1: no test `engine` in `home`"),
        ("By `a_lost_answer_is_all`.", "1: no test `a_lost_answer_is_all`"),
        ("By `not_a_test_at_all`.", "1: no test `not_a_test_at_all`"),
    ] {
        assert_eq!(found(bad).first(), Some(&format!("docs/SEMANTICS.md:{what}")), "{bad}");
    }
    let bare = found("## By FUSE\n\n- **It** holds `always`.\n- Scenario `wan`.\n");
    assert_eq!(bare, ["docs/SEMANTICS.md:3: a promise without a test: - **It** holds `always`.…"]);
}
