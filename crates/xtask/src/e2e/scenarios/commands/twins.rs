//! The commands beside their Unix twins: the same words on a directory of this machine and on one at a home must end
//! with the same exit codes and leave the same trees.

use crate::e2e::accounts::ANN;
use crate::e2e::server::Server;
use crate::e2e::world::World;
use crate::run;
use anyhow::{Result, ensure};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

/// `R` is the directory. Of commands that print, standard output is compared too.
const LINES: &[&str] = &[
    "mkdir R/d",
    "mkdir R/d",
    "mkdir R/none/x",
    "mkdir -p R/d/e/f R/d/e/f",
    "mkdir R/d/..",
    "mkdir R/none/..",
    "mkdir -p R/p/..",
    "mkdir ",
    "mkdir -p ",
    "mkdir -m 700 R/private",
    "find R -type d -size +0",
    "find R -size -1",
    "du -d x R",
    "du -d -1 R",
    "mkdir R/locked",
    "touch R/locked/f R/locked/closed",
    "chmod 444 R/locked/closed",
    "chmod 555 R/locked",
    "cp R/locked/f R/locked/new",
    "cp /etc/passwd R/locked/f",
    "cp -r /etc/passwd R/locked/f",
    "cp -p /etc/group R/locked/f",
    "cp /etc/group R/locked/closed",
    "cp -n /etc/passwd R/locked/f",
    "mv R/locked/f R/elsewhere",
    "cat R/locked/f",
    "chmod 755 R/locked",
    "mkdir -m u=rwx,g=rx,o= R/team",
    "touch R/a R/b R/-dash",
    "touch -c R/none",
    "touch R/none/x",
    "touch -d @1000000000.25 R/a",
    "touch -d @99999999999999 R/far",
    "touch -d @2000000000 R/far",
    "touch ",
    "touch -c ",
    "chmod 640 R/a",
    "chmod u+x,o=r R/b",
    "chmod 9 R/a",
    "chmod 644 R/none",
    "chmod -R go-rwx R/d",
    "chmod a=rX R/d R/a",
    "chmod u+w R/d R/a",
    // Somebody else's, which has that mode.
    "ln -s /etc/passwd R/foreign",
    "chmod 644 R/foreign",
    "rm R/foreign",
    "mkdir R/shut",
    "touch R/shut/f",
    "chmod 600 R/shut",
    "chmod 640 R/shut/f",
    "chmod -R g+w R/shut",
    "chmod 700 R/shut",
    "mv R/shut/. R/other",
    "ln R/a R/hard",
    "ln R/a R/hard",
    "ln -f R/b R/hard",
    "ln R/d R/dirlink",
    "ln -s a R/soft",
    "ln -s a R/soft",
    "ln -sf d R/dlink",
    "ln -s none R/dangling",
    "ln -s a ''",
    "ln R/none R/x",
    "ls R/dangling",
    "mkdir -p R/dangling",
    "mkdir -p R/dangling/x",
    "touch R/a/",
    "touch R/nothing/",
    "ln -s made R/tomade",
    "touch -d @1000000000 R/tomade",
    "touch -r R/a R/tomade",
    "ln -sfn d R/dlink",
    "ls R/a/",
    "cat R/a/",
    "stat R/a/",
    "find R/dlink/ -name e",
    "cp R/a/ R/x",
    "mv R/a/ R/x",
    "mv R/dlink/ R/x",
    "mv -n R/a R/b",
    "rm R/a/",
    "rm -f R/a/",
    "ls -R R/d",
    "cat -n R/a R/b",
    "cat R/none",
    "cat R/d",
    "cp R/a R/copy",
    "cp R/d R/dcopy",
    "cp -r R/d R/dcopy",
    "cp -r R/d R/dcopy",
    "cp R/none R/x",
    "cp R/a R/b R/copy",
    "cp R/a R/b R/d",
    "cp R/a R/nodir/x",
    "cp R/a R/nodir/",
    "cp R/a R/a",
    // How much is copied before that is noticed depends on the order of names on the disk.
    "cp -r R/d R/d/e",
    "rm -r R/d/e/d",
    "cp R/a",
    "cp -p R/a R/kept",
    "touch R/protected R/open",
    "chmod 444 R/protected",
    "chmod 600 R/open",
    "cp /etc/group R/protected",
    "cp -f /etc/group R/protected",
    "cp -f /etc/group R/open",
    "cp - R/stdin",
    "cp -r R/soft R/softcopy",
    "cp R/soft R/softfile",
    "mv R/copy R/moved",
    "mv R/none R/x",
    "mv R/moved R/d",
    "mv R/d R/a",
    "mv R/a R/a",
    "mv R/dcopy R/d",
    "mv R/d R/d/e/x",
    "mv R/soft R/renamed",
    "mv R/a R/b R/none",
    "mv",
    "cp  R/x",
    "cp R/a ",
    "mv R/a ",
    "ls ",
    "ls R/none",
    "ls R",
    "ls --nonsense R",
    "ls -a R/d/e",
    "stat R/none",
    "find R/d -name e -type d",
    "find R/none",
    "find R -maxdepth 1 -type l",
    "find R -size +0 -nonsense",
    "find R -type x",
    "find R -maxdepth -1",
    "find R -exec",
    "find ",
    "du -s R/none",
    "du ",
    "df R/none",
    "df ",
    "stat ",
    "cat ",
    "chmod 644 ",
    "rm R/none",
    "rm -f R/none",
    "rm R/d",
    "rm -d R/d",
    "rm R/dlink/",
    "rm R/renamed R/none R/dangling",
    "rm -r R/.",
    "rm -r R/d/dcopy",
    "rm -d R/private",
    "mkdir -m 0 R/unread",
    "rm -r R/unread",
    "mkdir R/unread",
    "touch R/unread/x",
    "chmod 0 R/unread",
    "rm -r R/unread",
    "rm -rf R/unread",
    "chmod 755 R/unread",
    "rm ",
    "rm -rf ",
    "rm",
    "rm -f",
];

/// Lines whose output is the same text, but for the directory's own name.
const SHOWN: [&str; 7] =
    ["find R -type d -size", "ls R", "cat R/locked/f", "ls -a R/d/e", "ls -R R/d", "cat -n", "find "];

/// Runs all lines on both sides.
pub fn run(world: &World, server: &Server) -> Result<()> {
    let (plain, home) = (world.home_dir(ANN, "plain")?, world.home_dir(ANN, "twin")?);
    let tree = format!("/ann@lab{}", home.display());
    for line in LINES {
        let unix = output(line, &plain.display().to_string(), |program, args| {
            let mut cmd = Command::new(program);
            cmd.args(args).uid(ANN.uid).gid(ANN.uid).env("LC_ALL", "C");
            cmd
        })?;
        let ours = output(line, &tree, |program, args| {
            let words: Vec<&str> = std::iter::once(program).chain(args.iter().map(String::as_str)).collect();
            server.command(&words)
        })?;
        let said = String::from_utf8_lossy(&ours.stderr);
        let theirs = String::from_utf8_lossy(&unix.stderr);
        ensure!(
            unix.status.code() == ours.status.code(),
            "{line}: {} instead of {}\n{said}{theirs}",
            ours.status,
            unix.status
        );
        ensure!(ours.status.success() == said.is_empty(), "{line}: {} and said {said:?}", ours.status);
        let shown = SHOWN.iter().any(|s| line.starts_with(s));
        if shown && sorted(&ours, &tree) != sorted(&unix, &plain.display().to_string()) {
            anyhow::bail!(
                "{line}: {:?} instead of {:?}",
                sorted(&ours, &tree),
                sorted(&unix, &plain.display().to_string())
            );
        }
    }
    server.sync()?;
    let (want, got) = (self::tree(&plain)?, self::tree(&home)?);
    ensure!(got == want, "the trees differ:\n--- coreutils\n{want}--- trellis\n{got}");
    Ok(())
}

fn output(line: &str, dir: &str, command: impl Fn(&str, &[String]) -> Command) -> Result<Output> {
    let mut words = line.split(' ').map(|w| match w.strip_prefix('R') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("{dir}{rest}"),
        _ => w.to_owned(),
    });
    let program = words.next().unwrap_or_default();
    Ok(command(&program, &words.collect::<Vec<_>>()).stdin(std::process::Stdio::null()).output()?)
}

/// Lines without the directory's name, sorted: find(1) does not say in which order it lists.
fn sorted(output: &Output, dir: &str) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout).replace(dir, "R");
    let mut lines: Vec<String> =
        text.lines().filter(|l| !matches!(*l, "." | "..")).map(str::to_owned).collect();
    lines.sort();
    lines
}

/// A tree as text: type, mode, links, size of files, target, name; times where they were set on purpose.
pub fn tree(dir: &Path) -> Result<String> {
    let mut cmd = Command::new("find");
    cmd.arg(dir).args([
        "-mindepth",
        "1",
        "-printf",
        "%P %y %m %n %l ",
        "(",
        "-type",
        "f",
        "-printf",
        "%s",
        "-newermt",
    ]);
    cmd.args(["2005-01-01", "-o", "-type", "f", "-printf", " %T@", "-o", "-true", ")", "-printf", "\\n"]);
    let text = run::output(&mut cmd)?;
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    Ok(lines.join("\n") + "\n")
}
