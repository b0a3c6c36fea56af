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
//! ends with the server.
//!
//! - [`process`]: what it does.

pub mod process;

use crate::{limits, mounts, show};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// The command by which it is started.
pub const COMMAND: &str = "guard";
/// How it is called in the table of processes: whoever kills every process of our name leaves it alone.
const NAME: &str = "mount-guard";
/// The program that this process runs, also when its file was replaced.
const PROGRAM: &str = "/proc/self/exe";

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
    let why = show::message(&e.to_string());
    tracing::warn!(
        "no guard for mounts: {why}: if this process is killed, programs may hang until the next command"
    );
}

/// A thread for the life of the server: when it dies, so does the server.
fn keep(told: &Receiver<u32>) -> ! {
    let mut numbers: Vec<u32> = Vec::new();
    let mut running: Option<Running> = None;
    for number in told {
        numbers.retain(|n| *n != number);
        numbers.push(number);
        let old = numbers.len().saturating_sub(limits::GUARDED);
        numbers.drain(..old);
        if running.as_mut().is_none_or(|guard| guard.tell(&[number]).is_err()) {
            // The first mount, or somebody has ended the guard.
            running.take().into_iter().for_each(Running::end);
            let new = Running::start().and_then(|mut new| new.tell(&numbers).map(|()| new));
            running = new.inspect_err(unguarded).ok();
        }
    }
    // It lives as long as this thread.
    loop {
        std::thread::park();
    }
}

/// A guard that was started.
struct Running {
    child: Child,
    lines: ChildStdin,
}

impl Running {
    fn start() -> std::io::Result<Running> {
        let mut command = Command::new(PROGRAM);
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

    /// Names connections.
    fn tell(&mut self, numbers: &[u32]) -> std::io::Result<()> {
        numbers.iter().try_for_each(|number| writeln!(self.lines, "{number}"))
    }
}
