//! Tests of the script that installs the agent.

use super::*;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// A program that passes for an agent: it answers `--probe` with its own hash, else prints its input.
fn fake_agent(dir: &Path) -> AgentBinaries {
    // The hash of a file cannot stand in it, so the answer is kept beside it.
    let text =
        format!("#!/bin/sh\nif [ \"$1\" = --probe ]; then cat {}/answer; else exec cat; fi\n", dir.display());
    let arch = std::env::consts::ARCH;
    let agents = AgentBinaries::none().with_linux(arch, text.into_bytes());
    let hash = agents.0[0].hash.to_hex();
    std::fs::write(dir.join("answer"), format!("trellis-agent {VERSION_MAX} linux-{arch} {hash}\n")).unwrap();
    agents
}

struct Shell {
    child: std::process::Child,
    input: std::process::ChildStdin,
    output: BufReader<std::process::ChildStdout>,
}

impl Shell {
    fn start(shell: &str, command: &str, cache: &Path) -> Shell {
        let mut child = Command::new(shell)
            .args(["-c", command])
            .env("XDG_CACHE_HOME", cache)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(SFTP_GREETING).unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Shell { child, input, output }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Talks to the program that the script became.
    fn echoes(mut self) {
        self.input.write_all(b"hello\n").unwrap();
        assert_eq!(self.line(), "hello");
        drop(self.input);
        assert!(self.child.wait().unwrap().success());
    }
}

fn shells() -> Vec<&'static str> {
    let known = ["/bin/sh", "/bin/bash", "/bin/dash", "/bin/csh", "/bin/tcsh", "/bin/zsh", "/usr/bin/fish"];
    known.into_iter().filter(|s| Path::new(s).exists()).collect()
}

#[test]
fn the_command_survives_every_shell_and_installs_once() {
    let dir = tempfile::tempdir().unwrap();
    let agents = fake_agent(dir.path());
    assert!(shells().len() >= 2);
    for shell in shells() {
        let cache = dir.path().join(shell.replace('/', "-"));
        let kept = cache.join("trellis");
        let command = command("N", &agents, Place::Cache, None);
        let mut first = Shell::start(shell, &command, &cache);
        let program = agents.0[0].bytes.clone();
        let platform = &agents.0[0].platform;
        assert_eq!(first.line(), format!("N put {platform} {}", kept.display()), "{shell}");
        first.input.write_all(&program).unwrap();
        assert_eq!(first.line(), format!("N run {}", kept.display()), "{shell}");
        first.echoes();
        let mut second = Shell::start(shell, &command, &cache);
        assert_eq!(second.line(), format!("N run {}", kept.display()), "{shell}");
        second.echoes();
        let mode = std::fs::metadata(&kept).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        assert_eq!(std::fs::read_dir(&kept).unwrap().count(), 1);
    }
}

#[test]
fn a_damaged_program_is_sent_again_and_old_ones_go() {
    let dir = tempfile::tempdir().unwrap();
    let agents = fake_agent(dir.path());
    let kept = dir.path().join("trellis");
    std::fs::create_dir(&kept).unwrap();
    for i in 0..5 {
        std::fs::write(kept.join(format!("agent-1-{}-{i:016}", agents.0[0].platform)), "old").unwrap();
    }
    let damaged = kept.join(agents.0[0].file_name());
    std::fs::write(&damaged, "#!/bin/sh\necho wrong\n").unwrap();
    std::fs::set_permissions(&damaged, std::fs::Permissions::from_mode(0o700)).unwrap();
    let mut shell = Shell::start("/bin/sh", &command("N", &agents, Place::Cache, None), dir.path());
    assert!(shell.line().starts_with("N put "));
    shell.input.write_all(&agents.0[0].bytes).unwrap();
    assert!(shell.line().starts_with("N run "));
    shell.echoes();
    assert_eq!(std::fs::read_dir(&kept).unwrap().count(), 3);
    assert_eq!(std::fs::read(&damaged).unwrap(), agents.0[0].bytes);
}

#[test]
fn a_program_that_arrives_damaged_is_not_kept() {
    let dir = tempfile::tempdir().unwrap();
    let agents = fake_agent(dir.path());
    let mut shell = Shell::start("/bin/sh", &command("N", &agents, Place::Cache, None), dir.path());
    assert!(shell.line().starts_with("N put "));
    shell.input.write_all(&vec![b'x'; agents.0[0].bytes.len()]).unwrap();
    assert_eq!(shell.line(), format!("N fail {}", dir.path().join("trellis").display()));
    assert_eq!(std::fs::read_dir(dir.path().join("trellis")).unwrap().count(), 0);
    assert!(shell.child.wait().unwrap().success());
}

#[test]
fn a_directory_that_is_a_link_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let agents = fake_agent(dir.path());
    let cache = dir.path().join("cache");
    std::fs::create_dir_all(dir.path().join("elsewhere")).unwrap();
    std::fs::create_dir(&cache).unwrap();
    std::os::unix::fs::symlink(dir.path().join("elsewhere"), cache.join("trellis")).unwrap();
    let mut shell = Shell::start("/bin/sh", &command("N", &agents, Place::Cache, None), &cache);
    let line = shell.line();
    assert!(!line.contains(&cache.display().to_string()), "{line}");
    assert_eq!(std::fs::read_dir(dir.path().join("elsewhere")).unwrap().count(), 0);
    drop(shell.input);
    shell.child.wait().unwrap();
}

#[test]
fn an_unknown_machine_is_named() {
    let agents = AgentBinaries::none().with_linux("pdp11", &b"x"[..]);
    let dir = tempfile::tempdir().unwrap();
    let mut shell = Shell::start("/bin/sh", &command("N", &agents, Place::Cache, None), dir.path());
    assert_eq!(shell.line(), format!("N none Linux {}", std::env::consts::ARCH));
    shell.child.wait().unwrap();
}

#[test]
fn the_script_has_nothing_that_a_login_shell_would_touch() {
    let agents = AgentBinaries::none().with_linux("x86_64", &b"x"[..]);
    let command = command("N", &agents, Place::Cache, None);
    let inner = command.strip_prefix("exec /bin/sh -c '").unwrap().strip_suffix('\'').unwrap();
    assert!(!inner.contains(['\'', '!', '\\', '\n']), "{inner}");
}
