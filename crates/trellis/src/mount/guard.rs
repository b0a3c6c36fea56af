//! A guard for the programs that use our mounts: a small process of our own that outlives a server which was killed.
//!
//! A thread that tells the kernel of a name waits there for the directory's lock. If the server is killed in that moment,
//! and a program that holds the lock waits for an answer, both wait for ever: the thread cannot end, and as long as it
//! lives the kernel keeps the connection of the mount. Only somebody outside can abort that (fusectl,
//! Documentation/filesystems/fuse.rst of Linux), and a server that was killed cannot start anybody.
//!
//! The guard is told of each mount by a line on its standard input. That it ends says little: the pipe is one of the
//! files that such a thread keeps open. So it is told of the server's end by a signal when the thread that started it
//! dies (`PR_SET_PDEATHSIG`), which nothing holds back. It is started with the first mount, in a session of its own, and
//! ends with the server. One that somebody has killed is replaced.
//!
//! - [`process`]: what it does.

pub mod process;

use crate::{limits, mounts, show};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// The command by which it is started.
pub const COMMAND: &str = "guard";
/// How it is called in the table of processes: whoever kills every process of our name leaves it alone.
const NAME: &str = "mount-guard";

/// The server's end of its guard.
#[derive(Default)]
pub struct Guard {
    tell: OnceLock<SyncSender<u32>>,
}

impl Guard {
    /// Puts the mount at this directory under guard. What fails is told to the log, because the mount can be used all the
    /// same.
    pub fn watch(&self, dir: &Path) {
        let Some(number) = mounts::connection(dir) else { return };
        let told = self.keeper().and_then(|tell| tell.try_send(number).map_err(std::io::Error::other));
        told.unwrap_or_else(|e| unguarded(&e));
    }

    fn keeper(&self) -> std::io::Result<&SyncSender<u32>> {
        if let Some(tell) = self.tell.get() {
            return Ok(tell);
        }
        let (tell, told) = sync_channel(limits::GUARDED);
        std::thread::Builder::new().name(NAME.into()).spawn(move || keep(&told))?;
        Ok(self.tell.get_or_init(|| tell))
    }
}

fn unguarded(e: &std::io::Error) {
    let why = show::message(&home::io_text(e));
    tracing::warn!(
        "no guard for mounts: {why}: if this process is killed, programs may hang until the next command"
    );
}

/// A thread for the life of the server: when it dies, so does the server.
fn keep(told: &Receiver<u32>) -> ! {
    let mut kept = Kept::default();
    loop {
        match told.recv_timeout(kept.patience()) {
            Ok(number) => kept.add(number),
            Err(RecvTimeoutError::Timeout) => kept.look(),
            // The guard lives as long as this thread.
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(limits::GUARD_AGAIN.1),
        }
    }
}

/// The guard, and what it is to know.
#[derive(Default)]
struct Kept {
    numbers: Vec<u32>,
    running: Option<Running>,
    begun: Option<Instant>,
    /// Before the next one is started, if this one ends at once.
    pause: Duration,
}

impl Kept {
    /// How long to wait for another mount before the guard is looked at.
    fn patience(&self) -> Duration {
        match (&self.running, self.numbers.is_empty()) {
            (_, true) => limits::GUARD_AGAIN.1,
            (Some(_), _) => limits::GUARD_LOOK,
            (None, _) => self.pause.saturating_sub(self.begun.map_or(Duration::MAX, |at| at.elapsed())),
        }
    }

    /// A further mount.
    fn add(&mut self, number: u32) {
        self.numbers.retain(|n| *n != number);
        self.numbers.push(number);
        let old = self.numbers.len().saturating_sub(limits::GUARDED);
        self.numbers.drain(..old);
        if self.running.as_mut().is_none_or(|guard| guard.tell(&[number]).is_err()) {
            self.start();
        }
    }

    /// Collects a guard that has ended; the next look starts another one.
    fn look(&mut self) {
        match self.running.as_mut().map(Running::has_ended) {
            Some(true) => {
                let lived = self.begun.map_or(Duration::ZERO, |at| at.elapsed());
                let longer = self.longer_pause();
                self.pause = if lived > longer { Duration::ZERO } else { longer };
                self.end();
            }
            None if !self.numbers.is_empty() => self.start(),
            _ => {}
        }
    }

    fn start(&mut self) {
        self.end();
        self.begun = Some(Instant::now());
        let new = Running::start().and_then(|mut new| match new.tell(&self.numbers) {
            Ok(()) => Ok(new),
            Err(e) => {
                new.end();
                Err(e)
            }
        });
        self.running = new.inspect_err(unguarded).ok();
        if self.running.is_none() {
            self.pause = self.longer_pause();
        }
    }

    /// Twice as long as the one before, within bounds.
    fn longer_pause(&self) -> Duration {
        let (least, most) = limits::GUARD_AGAIN;
        (self.pause * 2).clamp(least, most)
    }

    fn end(&mut self) {
        self.running.take().into_iter().for_each(Running::end);
    }
}

/// A guard that was started.
struct Running {
    child: Child,
    lines: ChildStdin,
}

impl Running {
    fn start() -> std::io::Result<Running> {
        let mut command = Command::new(super::PROGRAM);
        command.arg0(NAME).arg(COMMAND).arg(std::process::id().to_string()).current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // SAFETY: all of these are async-signal-safe and touch no memory but this stack.
        unsafe {
            command.pre_exec(|| {
                // First, so that the signal at the server's death waits until somebody looks.
                process::block_signals();
                rustix::process::setsid()?;
                Ok(rustix::process::set_parent_process_death_signal(Some(process::DEATH))?)
            });
        }
        let mut child = command.spawn()?;
        let lines = child.stdin.take().ok_or(std::io::ErrorKind::BrokenPipe)?;
        Ok(Running { child, lines })
    }

    /// Leaves nothing of one that takes no lines any more.
    fn end(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Whether it has ended; then nothing of it is left.
    fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Names connections.
    fn tell(&mut self, numbers: &[u32]) -> std::io::Result<()> {
        numbers.iter().try_for_each(|number| writeln!(self.lines, "{number}"))
    }
}
