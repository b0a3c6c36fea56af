//! Builds the agents that `trellis` carries, so that `cargo run` needs nothing beside it.
//!
//! An agent is a static program. For the processor of this machine it is built for musl if that target is
//! installed, else for the host's own target with a static C library, which every Rust toolchain can do on
//! Linux. For other processors the musl target must be installed; `rust-lld`, a part of the toolchain, links.
//! What is missing is left out: hosts of that kind are then reached by SFTP.
//!
//! The inner cargo has a target directory of its own, because the outer one holds the lock of the common one,
//! and an environment without the outer build's settings, because those are for another target.

use std::env;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Processors that agents are built for, if the toolchain can.
const PROCESSORS: &[&str] = &["x86_64", "aarch64"];
/// What an agent is made of, below the workspace.
const SOURCES: &[&str] = &["crates/agent", "crates/home", "crates/oncrpc"];

fn main() {
    let workspace = PathBuf::from(variable("CARGO_MANIFEST_DIR")).join("../..");
    let out = PathBuf::from(variable("OUT_DIR"));
    println!("cargo::rerun-if-changed=build.rs");
    for source in SOURCES {
        println!("cargo::rerun-if-changed={}", workspace.join(source).join("src").display());
        println!("cargo::rerun-if-changed={}", workspace.join(source).join("Cargo.toml").display());
    }
    let mut list = String::from("/// Processor and program.\nconst AGENTS: &[(&str, &[u8])] = &[\n");
    for processor in PROCESSORS {
        let Some(target) = target_for(processor) else {
            tell_missing(processor);
            continue;
        };
        match build(&workspace, &out, &target) {
            Ok(program) => {
                let kept = out.join(format!("agent-{processor}"));
                std::fs::copy(&program, &kept).unwrap_or_else(|e| panic!("copy {}: {e}", program.display()));
                writeln!(list, "    ({processor:?}, include_bytes!({kept:?})),").expect("a string takes all");
            }
            Err(why) if is_host(processor) => panic!("the agent for this machine cannot be built: {why}"),
            Err(why) => {
                println!("cargo::warning=no agent for {processor} hosts, they are reached by SFTP: {why}")
            }
        }
    }
    list.push_str("];\n");
    std::fs::write(out.join("agents.rs"), list).unwrap_or_else(|e| panic!("write agents.rs: {e}"));
}

/// What to build for, and how.
struct Target {
    triple: String,
    flags: &'static str,
}

fn target_for(processor: &str) -> Option<Target> {
    let musl = format!("{processor}-unknown-linux-musl");
    if library(&musl).is_dir() {
        // The C compiler of this machine links for this machine only.
        let flags = if is_host(processor) { "-Ctarget-feature=+crt-static" } else { "-Clinker=rust-lld" };
        return Some(Target { triple: musl, flags });
    }
    let host = variable("HOST");
    let own = is_host(processor) && host.contains("linux");
    own.then_some(Target { triple: host, flags: "-Ctarget-feature=+crt-static" })
}

fn is_host(processor: &str) -> bool {
    variable("HOST").split('-').next() == Some(processor)
}

/// Where the toolchain keeps the standard library for a target.
fn library(triple: &str) -> PathBuf {
    let output = Command::new(variable("RUSTC")).args(["--print", "sysroot"]).output();
    let output = output.unwrap_or_else(|e| panic!("run rustc: {e}"));
    Path::new(String::from_utf8_lossy(&output.stdout).trim()).join("lib/rustlib").join(triple).join("lib")
}

fn tell_missing(processor: &str) {
    if variable("PROFILE") == "release" {
        println!(
            "cargo::warning=no agent for {processor} hosts, they are reached by SFTP; \
             `rustup target add {processor}-unknown-linux-musl` and a new build add it"
        );
    }
}

fn build(workspace: &Path, out: &Path, target: &Target) -> Result<PathBuf, String> {
    let directory = out.join("agent-target");
    let mut cargo = Command::new(variable("CARGO"));
    for (name, _) in env::vars_os().filter(|(name, _)| is_of_outer_build(&name.to_string_lossy())) {
        cargo.env_remove(name);
    }
    cargo.current_dir(workspace).args(["build", "--quiet", "--release", "--package", "agent"]);
    cargo.args(["--target", &target.triple, "--target-dir"]).arg(&directory);
    cargo.env("CARGO_ENCODED_RUSTFLAGS", target.flags);
    let whole = variable("PROFILE") == "release";
    for (key, value) in [
        ("OPT_LEVEL", "s"),
        ("PANIC", "abort"),
        ("STRIP", "symbols"),
        ("DEBUG", "false"),
        ("LTO", if whole { "fat" } else { "off" }),
        ("CODEGEN_UNITS", if whole { "1" } else { "16" }),
    ] {
        cargo.env(format!("CARGO_PROFILE_RELEASE_{key}"), value);
    }
    let output = cargo.output().map_err(|e| format!("run cargo: {e}"))?;
    if !output.status.success() {
        return Err(format!(
            "cargo build for {}:\n{}",
            target.triple,
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    Ok(directory.join(&target.triple).join("release/trellis-agent"))
}

/// Settings that cargo gave this script for the outer build, or that were meant for it alone.
fn is_of_outer_build(name: &str) -> bool {
    const KEPT: &[&str] = &["CARGO_HOME", "CARGO_NET_", "CARGO_HTTP_", "CARGO_REGISTR", "CARGO_SOURCE_"];
    const OTHERS: &[&str] = &[
        "RUSTFLAGS",
        "RUSTDOCFLAGS",
        "RUSTC",
        "RUSTDOC",
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "MAKEFLAGS",
        "MFLAGS",
        "TARGET",
        "HOST",
        "OUT_DIR",
        "PROFILE",
        "DEBUG",
        "OPT_LEVEL",
        "NUM_JOBS",
    ];
    let cargo = name.starts_with("CARGO") && !KEPT.iter().any(|k| name.starts_with(k));
    cargo || name.starts_with("DEP_") || OTHERS.contains(&name)
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}
