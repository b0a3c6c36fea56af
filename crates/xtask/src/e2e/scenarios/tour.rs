//! The tour of the documentation, as a newcomer follows it: its commands, in order, in one shell.

use crate::e2e::accounts::GATEWAY;
use crate::e2e::server::Gateway;
use crate::e2e::world::World;
use crate::run;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::PermissionsExt;

const TOUR: &str = include_str!("../../../../../docs/TOUR.md");

/// The scenario.
pub fn run(world: &World) -> Result<()> {
    let _lab = world.host("lab", "", None)?;
    let bin = world.home(GATEWAY).join("bin");
    fs::create_dir(&bin)?;
    fs::copy(&world.trellis, bin.join("trellis"))?;
    configure_ssh(world)?;
    crate::e2e::fuse::allow()?;
    let script = blocks(TOUR, "sh");
    ensure!(script.lines().count() > 20, "the tour has lost its commands:\n{script}");
    let mut shell = Gateway::new(world).shell(&format!("set -euxo pipefail\nexport HOST=lab\n{script}"));
    shell.env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", bin.display()));
    let said = run::output(&mut shell).context("the tour")?;
    for part in ["hello from where the data is not", "written before the crash", "hello.c"] {
        ensure!(said.contains(part), "{part:?} was not said:\n{said}");
    }
    ensure!(
        fs::read_dir(world.home(GATEWAY).join("trellis"))?.next().is_none(),
        "something is still mounted"
    );
    Ok(())
}

/// `ssh lab` works for the account as for a person: its configuration is where ssh looks for it.
fn configure_ssh(world: &World) -> Result<()> {
    let dir = world.home(GATEWAY).join(".ssh");
    fs::create_dir(&dir)?;
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o700))?;
    fs::copy(world.ssh_config(), dir.join("config"))?;
    GATEWAY.own(&dir)?;
    GATEWAY.own(&dir.join("config"))
}

/// What stands in the blocks of a document that have this heading.
pub fn blocks(text: &str, heading: &str) -> String {
    let start = format!("\n```{heading}\n");
    let blocks = text.split(start.as_str()).skip(1);
    blocks.filter_map(|b| b.split_once("\n```").map(|(code, _)| format!("{code}\n"))).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_blocks_of_commands_are_run() {
        let text = "a\n```sh\none\ntwo\n```\nb\n```console\nno\n```\n```sh\nthree\n```\n";
        assert_eq!(super::blocks(text, "sh"), "one\ntwo\nthree\n");
        assert_eq!(super::blocks(text, "console"), "no\n");
    }
}
