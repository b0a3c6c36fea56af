//! Running programs, and knowing where we are.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The root of the source tree, from where this program was built.
pub fn tree() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// Where Cargo puts its results: `CARGO_TARGET_DIR`, a configuration, or `target` in the tree.
pub fn target_dir() -> Result<PathBuf> {
    let meta = metadata(&["--no-deps"])?;
    let dir = meta["target_directory"].as_str().context("cargo metadata names no target directory")?;
    Ok(PathBuf::from(dir))
}

/// What `cargo metadata` says of this workspace.
pub fn metadata(args: &[&str]) -> Result<serde_json::Value> {
    let mut cmd = cargo(&["metadata", "--format-version", "1"]);
    let out = cmd.args(args).stderr(Stdio::inherit()).output().context("cargo metadata")?;
    if !out.status.success() {
        bail!("cargo metadata failed ({})", out.status);
    }
    Ok(serde_json::from_slice(&out.stdout)?)
}

/// `cargo ARGS` in the root of the tree.
pub fn cargo(args: &[&str]) -> Command {
    let mut cmd = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cmd.args(args).current_dir(tree());
    cmd
}

/// Runs to the end with our own input and output; a status other than 0 is an error.
pub fn run(cmd: &mut Command) -> Result<()> {
    let shown = show(cmd);
    eprintln!("$ {shown}");
    let status = cmd.status().with_context(|| format!("cannot run {shown}"))?;
    if !status.success() {
        bail!("{shown}: {status}");
    }
    Ok(())
}

/// Runs to the end and answers the standard output; a status other than 0 is an error that holds the
/// standard error.
pub fn output(cmd: &mut Command) -> Result<String> {
    let shown = show(cmd);
    let out = cmd.stdin(Stdio::null()).output().with_context(|| format!("cannot run {shown}"))?;
    if !out.status.success() {
        let text = String::from_utf8_lossy(&out.stderr);
        bail!("{shown}: {}\n{}", out.status, text.trim_end());
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Mounts a tmpfs with these options, or gives other ones to one that is there (`remount`).
pub fn mount_tmpfs(dir: &Path, options: &str) -> Result<()> {
    output(Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(dir)).map(drop)
}

/// A command as a person would type it, without its environment.
pub fn show(cmd: &Command) -> String {
    let words = std::iter::once(cmd.get_program()).chain(cmd.get_args());
    words.map(|w| w.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// Whether we are root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether this run guards a branch, so that nothing may be left out.
pub fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|v| v == "true" || v == "1")
}

/// Where a program is, in `PATH` or in the folders of system programs.
pub fn find_program(name: &str) -> Option<PathBuf> {
    if name.starts_with('/') {
        return Some(PathBuf::from(name)).filter(|p| p.exists());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(system).map(|d| d.join(name)).find(|p| p.is_file())
}
