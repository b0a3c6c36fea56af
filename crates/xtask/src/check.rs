//! `check` and `test`: everything that must hold before a change goes in.

use crate::{e2e, packages, run, tidy};
use anyhow::{Result, bail};

/// A part of a check: what it is called, and what does it.
type Step = (&'static str, fn() -> Result<()>);

const CHECK: &[Step] = &[
    ("format", || run::run(&mut run::cargo(&["fmt", "--all", "--check"]))),
    ("clippy", clippy),
    ("licences and advisories", cargo_deny),
    ("tidy", tidy::command),
    ("the crates' tests", || {
        run::run(&mut run::cargo(&["test", "--workspace", "--exclude", "sim", "--quiet"]))
    }),
    // Worlds and models are nothing but computing, and `test` builds them so anyway.
    ("the simulation's tests", || {
        run::run(&mut run::cargo(&["test", "--release", "--package", "sim", "--quiet"]))
    }),
];

/// Format, clippy, licences, tidy and the crates' tests.
pub fn check() -> Result<()> {
    all(CHECK)
}

/// [`check`], then the end-to-end scenarios that CI runs. Installs what is missing where it can.
pub fn test() -> Result<()> {
    let installed = packages::ensure(packages::E2E);
    if run::in_ci() {
        installed?;
    } else if let Err(e) = installed {
        // The scenarios that need it say so again, each for itself.
        eprintln!("{e:#}");
    }
    all(&[CHECK, &[("simulated worlds", simulated), ("end-to-end scenarios", e2e::ci_part)]].concat())
}

/// Takes every step, even after a failed one, so that one run tells all that is wrong.
fn all(steps: &[Step]) -> Result<()> {
    let mut failed = Vec::new();
    for (name, step) in steps {
        if let Err(e) = step() {
            eprintln!("FAILED {name}: {e:#}");
            failed.push(*name);
        }
    }
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

/// What the simulation must always live through, in a few minutes: the usual troubles, also in long worlds with small caches, at
/// a home without exchange, among other programs' links, in batches of a few bytes, and others.
fn simulated() -> Result<()> {
    let usual = "gateway-kill,gateway-cut,lost,hangup,slow,agent-kill,old-agents,home-cut";
    let lived = |seeds: &str, ops: &str, troubles: &str| {
        sim(&["--seeds", seeds, "--ops", ops, "--only", troubles].map(str::to_owned))
    };
    lived("2000", "100", usual)?;
    lived("4", "10000", &format!("{usual},small-cache"))?;
    lived("500", "100", &format!("{usual},barriers,chain,no-exchange"))?;
    lived("500", "100", &format!("{usual},outsider,links,refusals,neighbour"))?;
    lived("300", "100", &format!("{usual},short-batches"))?;
    lived("500", "60", "outsider")?;
    lived("500", "60", "outsider,moves")?;
    lived("500", "60", "refusals,neighbour,lost,slow")
}

/// Lives through simulated worlds, in release mode.
pub fn sim(args: &[String]) -> Result<()> {
    let mut cmd = run::cargo(&["run", "--release", "--quiet", "--package", "sim", "--"]);
    run::run(cmd.args(args))
}

/// Explores what can become of small batches at a home, in release mode.
pub fn model(args: &[String]) -> Result<()> {
    let program = ["run", "--release", "--quiet", "--package", "sim", "--bin", "model", "--"];
    run::run(run::cargo(&program).args(args))
}

fn clippy() -> Result<()> {
    run::run(&mut run::cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]))
}

/// Runs cargo-deny where it is installed. Without it the tidy rules still check licences, sources and
/// native libraries; advisories are what only cargo-deny knows.
fn cargo_deny() -> Result<()> {
    let found = run::cargo(&["deny", "--version"]).output().is_ok_and(|o| o.status.success());
    if !found {
        eprintln!(
            "cargo-deny is not installed, so advisories stay unchecked (cargo install --locked cargo-deny)"
        );
        return Ok(());
    }
    run::run(&mut run::cargo(&["deny", "--all-features", "check"]))
}
