//! Processes that a scenario starts, and their ends.

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A child with a process group and a log of its own. Dropping it kills the group.
pub struct Daemon {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Daemon {
    /// Starts it; what it says is appended to the log.
    pub fn start(name: &str, cmd: &mut Command, log: &Path) -> Result<Self> {
        let out = File::options().create(true).append(true).open(log)?;
        cmd.process_group(0).stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
        let child = cmd.spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Self { name: name.into(), child, log: log.into() })
    }

    /// The process id.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Whether it has ended by itself, and how.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Waits for its end; an error if that takes longer.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        wait_for(&format!("the end of {}", self.name), limit, || self.child.try_wait().transpose())?
            .map_err(Into::into)
    }

    /// Ends it now, as a crash would.
    pub fn kill(&mut self) -> Result<()> {
        let _ = kill_process_group(self.pid(), Signal::KILL);
        self.child.wait()?;
        Ok(())
    }

    /// The last lines of its log.
    pub fn tail(&self) -> String {
        tail(&self.log, 40)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.kill();
    }
}

/// The last lines of a file; nothing where it cannot be read.
pub fn tail(path: &Path, lines: usize) -> String {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let all: Vec<_> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// Asks every few milliseconds until there is an answer.
pub fn wait_for<T>(what: &str, limit: Duration, mut ask: impl FnMut() -> Option<T>) -> Result<T> {
    let began = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return Ok(answer);
        }
        if began.elapsed() > limit {
            bail!("waited {limit:?} for {what} in vain");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A process and everything below it, from /proc.
pub fn family(root: Pid) -> Vec<Pid> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else { continue };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // The name in parentheses may hold anything; the parent is the second field after it.
        let parent =
            stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)?.parse::<i32>().ok());
        parents.extend(parent.map(|parent| (parent, pid)));
    }
    let mut all = vec![root];
    let mut at = 0;
    while at < all.len() {
        let parent = all[at].as_raw_nonzero().get();
        let children = parents.iter().filter(|(p, _)| *p == parent);
        all.extend(children.filter_map(|(_, child)| Pid::from_raw(*child)));
        at += 1;
    }
    all
}

/// The letter of proc_pid_stat(5) for what a process or thread, by its directory, does; none of one that is not there.
fn state(at: &Path) -> Option<String> {
    let stat = fs::read_to_string(at.join("stat")).ok()?;
    Some(stat.rsplit(')').next()?.split_whitespace().next()?.to_owned())
}

/// Whether a process has closed all its files: each thread of it that is still there has ended, and waits to be asked how.
pub fn ended(pid: Pid) -> bool {
    let threads =
        fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).into_iter().flatten().flatten();
    threads.filter_map(|thread| state(&thread.path())).all(|state| matches!(state.as_str(), "Z" | "X"))
}

/// What each process does at this moment: its number, command line, state, and what its threads wait for in the kernel.
pub fn doings(pids: &[Pid]) -> String {
    let doing = |pid: &Pid| {
        let at = Path::new("/proc").join(pid.as_raw_nonzero().to_string());
        let words = fs::read(at.join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).replace('\0', " ").chars().take(200).collect::<String>();
        let state = state(&at).unwrap_or_else(|| "gone".into());
        let threads = fs::read_dir(at.join("task")).into_iter().flatten().flatten();
        let mut waits: Vec<String> =
            threads.filter_map(|t| fs::read_to_string(t.path().join("wchan")).ok()).collect();
        waits.sort_unstable();
        waits.dedup();
        format!("{} {state} [{}] {words}\n", pid.as_raw_nonzero(), waits.join(" "))
    };
    pids.iter().map(doing).collect()
}

/// Sends a signal to each; one that has ended meanwhile does not matter.
pub fn signal_all(pids: &[Pid], signal: Signal) {
    for pid in pids {
        let _ = kill_process(*pid, signal);
    }
}

/// Every process whose directory in `/proc` shows it to be wanted.
fn processes(wanted: impl Fn(&Path) -> bool) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let found = entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw)?;
        wanted(&entry.path()).then_some(pid)
    });
    found.collect()
}

/// Every process with this variable in the environment that it was started with.
pub fn with_variable(variable: &str) -> Vec<Pid> {
    processes(|process| {
        let all = fs::read(process.join("environ")).unwrap_or_default();
        all.split(|b| *b == 0).any(|v| v == variable.as_bytes())
    })
}

/// Every process with these words in its command line.
pub fn with_command(words: &str) -> Vec<Pid> {
    processes(|process| {
        let line = fs::read(process.join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).replace('\0', " ").contains(words)
    })
}

/// Every process that runs as this user, with a name that is wanted.
pub fn of_user(uid: u32, wanted: impl Fn(&str) -> bool) -> Vec<Pid> {
    processes(|process| {
        let status = fs::read_to_string(process.join("status")).unwrap_or_default();
        let field = |name| status.lines().find_map(|l| l.strip_prefix(name)?.split_whitespace().next());
        field("Uid:") == Some(&uid.to_string()) && field("Name:").is_some_and(&wanted)
    })
}

/// Processor time of processes so far, with what they started that has ended and was waited for.
pub fn processor_time(pids: &[Pid]) -> Result<Duration> {
    let mut ticks = 0;
    for pid in pids {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
        let fields: Vec<_> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        // utime, stime, cutime, cstime (proc(5)), in 1/100 s; the first field after the name is number 3.
        let times = fields.iter().skip(11).take(4).filter_map(|f| f.parse::<u64>().ok());
        ticks += times.sum::<u64>();
    }
    Ok(Duration::from_millis(ticks * 10))
}
