//! Which crate may use which, and which module of the engine may name which. The arrows of
//! ARCHITECTURE.md are this table.

use super::source::Source;
use serde_json::Value;

/// Each crate of ours, and those of ours that it may use.
const CRATES: &[(&str, &[&str])] = &[
    ("oncrpc", &[]),
    ("home", &["oncrpc"]),
    ("vfs", &["oncrpc", "home"]),
    ("frontend", &["oncrpc", "home", "vfs"]),
    ("agent", &["home"]),
    ("trellis", &["oncrpc", "home", "vfs", "frontend"]),
    ("sim", &["home", "vfs"]),
    ("xtask", &["oncrpc", "home", "vfs", "frontend"]),
];

/// What asks, changes or sends: nothing that only holds data names these.
const ACTIVE: &[&str] = &["ops", "fetch", "mutate", "sync", "volume", "root", "perm"];

/// Modules of the engine, and those of the engine that they must not name. `sync::queue` is passive, so it
/// does not count as `sync`.
const ENGINE: &[(&str, &[&str])] = &[
    ("ops", &["sync"]),
    ("mutate", &["ops", "sync", "root"]),
    ("fetch", &["ops", "sync", "mutate", "root"]),
    ("sync", &["ops", "root"]),
    ("perm", &["ops", "fetch", "mutate", "sync", "journal", "data", "store"]),
    ("inode", ACTIVE),
    ("freshness", ACTIVE),
    ("meta", ACTIVE),
    ("overlay", ACTIVE),
    ("replies", ACTIVE),
    ("data", ACTIVE),
    ("alike", ACTIVE),
    ("earlier", ACTIVE),
    ("journal", ACTIVE),
    ("store", ACTIVE),
    ("locks", ACTIVE),
    ("watch", ACTIVE),
    ("conflict", PURE),
    ("folders", PURE),
    ("mode", PURE),
    ("env", PURE),
];

/// What a module without state and questions does not name.
const PURE: &[&str] = &[
    "ops", "fetch", "mutate", "sync", "volume", "root", "perm", "inode", "meta", "overlay", "replies",
    "data", "journal", "store", "locks", "watch",
];

/// Passive modules of the engine: they hold what others fetched, so they never name the trait `Home`.
const CACHES: &[&str] = &[
    "inode",
    "freshness",
    "meta",
    "overlay",
    "replies",
    "data",
    "alike",
    "earlier",
    "journal",
    "store",
    "locks",
    "watch",
];

/// What no module of the engine names: protocols, sockets, other programs, error numbers.
const FOREIGN: &[&str] = &[
    "oncrpc::nfs3",
    "oncrpc::mount",
    "oncrpc::server",
    "oncrpc::client",
    "oncrpc::msg",
    "oncrpc::record",
    "nfsstat3",
    "fattr3",
    "NFS3ERR",
    "std::net",
    "tokio::net",
    "std::process::Command",
    "tokio::process",
    "socket2",
    "clap",
    "home::ssh",
    "home::sftp",
    "home::agent",
];

/// Which module may turn error numbers of the local disk into words.
const DISK: &str = "env";

/// Appends dependencies between our crates that point the wrong way.
pub fn check_crates(metadata: &Value, found: &mut Vec<String>) {
    for package in list(&metadata["packages"]) {
        let name = package["name"].as_str().unwrap_or_default();
        let Some((_, allowed)) = CRATES.iter().find(|(c, _)| *c == name) else {
            found.push(format!(
                "crates/{name}: no line in the table of crates (crates/xtask/src/tidy/layers.rs)"
            ));
            continue;
        };
        for dep in list(&package["dependencies"]) {
            let used = dep["name"].as_str().unwrap_or_default();
            let ours = CRATES.iter().any(|(c, _)| *c == used);
            if ours && used != name && !allowed.contains(&used) {
                found.push(format!("crates/{name}/Cargo.toml: `{name}` must not use `{used}`"));
            }
        }
    }
}

/// Appends words in the engine's modules that point the wrong way.
pub fn check_modules(file: &Source, found: &mut Vec<String>) {
    let Some(module) = file.name.strip_prefix("crates/vfs/src/").map(module_of) else { return };
    let banned = ENGINE.iter().find(|(m, _)| *m == module).map_or(&[][..], |(_, banned)| banned);
    for (number, line) in file.code.iter().enumerate().take(file.tests_from) {
        let mut say = |what: String| found.push(format!("{}:{}: {what}", file.name, number + 1));
        for other in banned.iter().filter(|other| names_module(line, other)) {
            say(format!("`{module}` must not name `{other}`"));
        }
        if CACHES.contains(&module)
            && ["dyn Home", "impl Home", ": Home", "home::Home"].iter().any(|w| words(line, w))
        {
            say(format!("`{module}` is passive and must not name `Home`"));
        }
        for word in FOREIGN.iter().filter(|w| words(line, w)) {
            say(format!("the engine must not name `{word}`"));
        }
        if module != DISK && ["Errno", "errno", "raw_os_error"].iter().any(|w| words(line, w)) {
            say("only `env` knows error numbers".into());
        }
    }
}

/// `ops/dir.rs` and `ops.rs` both belong to `ops`.
fn module_of(path: &str) -> &str {
    path.split(['/', '.']).next().unwrap_or(path)
}

/// Whether the line names a module of this crate: `crate::m`, or `m` in a list of `use crate::{…}`.
fn names_module(line: &str, module: &str) -> bool {
    let line = &line.replace("sync::queue", "queue");
    let listed = line.trim_start().starts_with("use crate::{")
        && line.split(['{', ',', '}']).any(|part| part.trim().split("::").next() == Some(module));
    listed || words(line, &format!("crate::{module}"))
}

/// Whether `what` stands in the line, not as a part of longer words.
fn words(line: &str, what: &str) -> bool {
    let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(what)
        .any(|(at, _)| !part(line[..at].chars().next_back()) && !part(line[at + what.len()..].chars().next()))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
