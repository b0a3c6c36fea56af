//! The packages that we build on: licences, where they come from, and native libraries.
//!
//! cargo-deny checks the same and security advisories (`deny.toml`); this needs nothing installed.

use serde_json::Value;

/// Licences under which we take a package; one of a choice (`OR`) is enough. Kept equal to `deny.toml`.
const LICENCES: &[&str] = &[
    "MIT",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "Unicode-3.0",
    "Unlicense",
    "CC0-1.0",
    "0BSD",
    "BSL-1.0",
];

/// Packages that may declare a native library: none of these compiles or links C code on Linux.
const MAY_LINK: &[&str] = &["rayon-core", "prettyplease", "wasm-bindgen-shared"];

/// Appends packages that break a rule.
pub fn check(metadata: &Value, found: &mut Vec<String>) {
    let used = used(metadata);
    for package in metadata["packages"].as_array().map_or(&[][..], Vec::as_slice) {
        let (name, id) = (text(&package["name"]), text(&package["id"]));
        if !used.contains(&id) {
            continue;
        }
        let mut say = |what: String| found.push(format!("Cargo.lock: {name}: {what}"));
        let licence = text(&package["license"]);
        if !acceptable(licence) {
            say(format!("licence {licence:?} is not on the list"));
        }
        let ours = package["source"].is_null();
        if !ours && !text(&package["source"]).starts_with("registry+") {
            say("does not come from a registry".into());
        }
        if !package["links"].is_null() && !MAY_LINK.contains(&name) {
            say(format!("links the native library {}", package["links"]));
        }
    }
}

/// The packages that this platform builds.
fn used(metadata: &Value) -> Vec<&str> {
    metadata["resolve"]["nodes"].as_array().into_iter().flatten().map(|n| text(&n["id"])).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Whether a licence expression (SPDX) lets us use the package: every part joined by `AND`, one by `OR`.
pub fn acceptable(expression: &str) -> bool {
    let plain = expression.replace(['(', ')'], " ").replace('/', " OR ");
    let name = |l: &str| LICENCES.contains(&l.split(" WITH ").next().unwrap_or(l).trim());
    plain.split(" AND ").all(|part| part.split(" OR ").any(name))
}
