//! Takes away what we keep at an account: agents, and on request the account's token and the logs of volumes with their
//! directories.
//!
//! An agent that runs goes on; it is installed again when the account is used again.

use super::deploy::random;
use super::verbs::printable;
use crate::limits::agent::NOISE_MAX;
use crate::limits::remote::LOGIN;
use crate::ssh::{Channel, Far, SshTarget};
use crate::{Error, ErrorKind, Result};
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

/// What to take away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Programs: those that run somewhere else are sent again when needed.
    Agents,
    /// The token too, by which the account is known again, and what is known of executed operations. Whoever has unsent
    /// changes for it must not do this.
    Everything,
}

/// Removes it by one `ssh` execution and answers the paths that are gone, escaped for a person.
pub async fn clean(target: &SshTarget, extent: Extent) -> Result<Vec<String>> {
    let nonce = format!("trellis-{:016x}{:016x}", random(), random());
    let Channel { child, stdin, stdout } = Channel::open(target, Far::Command(&command(&nonce, extent)))?;
    drop(stdin);
    let mut said = Vec::new();
    let reading = async { stdout.take(NOISE_MAX as u64).read_to_end(&mut said).await };
    let read = timeout(LOGIN, reading).await;
    let lines: Vec<String> = said
        .split(|b| *b == b'\n')
        .filter_map(|line| line.strip_prefix(nonce.as_bytes()))
        .map(|rest| printable(rest.trim_ascii()))
        .collect();
    let failed = |text: String| Error::new(ErrorKind::Unreachable, text);
    match (read, lines.split_last()) {
        (Ok(Ok(_)), Some((last, gone))) if last == "end" => Ok(gone.to_vec()),
        (Err(_), _) => Err(failed(format!("{target} did not answer in time"))),
        _ => Err(child.explain(failed(format!("{target} runs no command for us"))).await),
    }
}

/// What the login shell is given. No quote, exclamation mark, backslash or line end may stand in the script.
fn command(nonce: &str, extent: Extent) -> String {
    let names = match extent {
        Extent::Agents => "agent-* .new-*",
        Extent::Everything => "agent-* .new-* token* volumes/*/fence volumes/*/log* volumes/*/ran",
    };
    let last = if extent == Extent::Everything {
        "rmdir \"$d\"/volumes/* \"$d/volumes\" \"$d\" 2>/dev/null;"
    } else {
        ""
    };
    let script = SCRIPT.replace("@NONCE@", nonce).replace("@NAMES@", names).replace("@LAST@", last);
    format!("exec /bin/sh -c '{}'", script.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Only in directories that are ours alone; see the script that installs.
const SCRIPT: &str = r#"
m=@NONCE@; i=$(id -u);
for d in "${XDG_CACHE_HOME:-$HOME/.cache}/trellis" "/dev/shm/trellis-$i" "/var/tmp/trellis-$i"; do
    if [ -L "$d" ]; then continue; fi;
    [ -d "$d" ] && [ -O "$d" ] && cd "$d" || continue;
    for f in @NAMES@; do
        if [ -f "$f" ]; then rm -f -- "$f" && echo "$m $d/$f"; fi;
    done;
    cd /; @LAST@
done;
echo "$m end"
"#;

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn run(cache: &std::path::Path, extent: Extent) -> String {
        let shell = Command::new("/bin/sh")
            .args(["-c", &command("NONCE", extent)])
            .env("XDG_CACHE_HOME", cache)
            .output()
            .unwrap();
        String::from_utf8(shell.stdout).unwrap()
    }

    #[test]
    fn agents_go_and_the_token_stays_unless_everything_is_meant() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("trellis");
        std::fs::create_dir_all(dir.join("volumes/0-1")).unwrap();
        let ours =
            ["agent-1-linux-x86_64-0", "token", "volumes/0-1/log", "volumes/0-1/fence", "volumes/0-1/ran"];
        for name in ours.into_iter().chain(["somebody's file"]) {
            std::fs::write(dir.join(name), "x").unwrap();
        }
        let said = run(temp.path(), Extent::Agents);
        assert_eq!(said, format!("NONCE {}/agent-1-linux-x86_64-0\nNONCE end\n", dir.display()));
        assert!(dir.join("token").exists());
        let said = run(temp.path(), Extent::Everything);
        let gone = ["token", "volumes/0-1/fence", "volumes/0-1/log", "volumes/0-1/ran"];
        let gone: String = gone.iter().map(|name| format!("NONCE {}/{name}\n", dir.display())).collect();
        assert_eq!(said, format!("{gone}NONCE end\n"));
        assert!(!dir.join("volumes").exists());
        assert!(dir.join("somebody's file").exists(), "what is not ours stays, and its directory with it");
    }

    #[test]
    fn a_directory_that_is_a_link_is_left_alone() {
        let temp = tempfile::tempdir().unwrap();
        let elsewhere = temp.path().join("elsewhere");
        std::fs::create_dir(&elsewhere).unwrap();
        std::fs::write(elsewhere.join("agent-x"), "x").unwrap();
        std::os::unix::fs::symlink(&elsewhere, temp.path().join("trellis")).unwrap();
        assert_eq!(run(temp.path(), Extent::Everything), "NONCE end\n");
        assert!(elsewhere.join("agent-x").exists());
    }

    #[test]
    fn the_script_has_nothing_that_a_login_shell_would_touch() {
        let command = command("NONCE", Extent::Everything);
        let script = command.strip_prefix("exec /bin/sh -c '").unwrap().strip_suffix('\'').unwrap();
        assert!(!script.contains(['\'', '!', '\\', '\n']), "{script}");
    }
}
