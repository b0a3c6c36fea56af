//! A person at a terminal: a program on a pseudo-terminal of its own, what it shows, and what is typed.

use super::proc::wait_for;
use anyhow::{Context, Result, bail, ensure};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long a program may take to ask or to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program that believes it is used by a person.
pub struct Terminal {
    child: Child,
    keyboard: File,
    screen: Arc<Mutex<String>>,
    /// How much of the screen was looked at.
    read: usize,
}

impl Terminal {
    /// Starts it. The terminal is its controlling one, so that it can be asked there even if its input is elsewhere.
    pub fn start(mut cmd: Command) -> Result<Self> {
        let (ours, theirs) = pair()?;
        cmd.stdin(theirs.try_clone()?).stdout(theirs.try_clone()?).stderr(theirs);
        // SAFETY: setsid and ioctl are async-signal-safe; descriptor 0 is the terminal by then.
        unsafe {
            cmd.pre_exec(|| {
                let done = libc::setsid() != -1 && libc::ioctl(0, libc::TIOCSCTTY, 0) != -1;
                if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
            });
        }
        let child = cmd.spawn().context("cannot start a program at a terminal")?;
        // Its own copies of the other end would keep the terminal open after the program's end.
        drop(cmd);
        let screen = Arc::new(Mutex::new(String::new()));
        let (mut shown, onto) = (File::from(ours.try_clone()?), screen.clone());
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // Fails with EIO when the last program has left the terminal.
            while let Ok(n @ 1..) = shown.read(&mut buffer) {
                onto.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push_str(&String::from_utf8_lossy(&buffer[..n]));
            }
        });
        Ok(Self { child, keyboard: ours.into(), screen, read: 0 })
    }

    /// Everything that was shown so far.
    pub fn screen(&self) -> String {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until this is shown, after whatever was waited for before.
    pub fn expect(&mut self, text: &str) -> Result<()> {
        let found = wait_for(text, PATIENCE, || {
            let screen = self.screen();
            screen[self.read..].find(text).map(|at| self.read + at + text.len())
        });
        self.read = found.with_context(|| format!("the terminal shows:\n{}", self.screen()))?;
        Ok(())
    }

    /// Waits for a question, and types the answer.
    pub fn answer(&mut self, question: &str, answer: &str) -> Result<()> {
        self.expect(question)?;
        // Programs throw away what was typed before they switch the echo off.
        std::thread::sleep(Duration::from_millis(200));
        Ok(self.keyboard.write_all(format!("{answer}\n").as_bytes())?)
    }

    /// Waits for the end; answers the status and the whole screen.
    pub fn finish(mut self) -> Result<(ExitStatus, String)> {
        let ended =
            wait_for("the end of a program at a terminal", PATIENCE, || self.child.try_wait().transpose());
        match ended {
            Ok(status) => {
                std::thread::sleep(Duration::from_millis(100));
                Ok((status?, self.screen()))
            }
            Err(e) => {
                self.child.kill()?;
                bail!("{e:#}; the terminal shows:\n{}", self.screen())
            }
        }
    }
}

/// Both ends of a new pseudo-terminal (openpty(3)).
fn pair() -> Result<(OwnedFd, OwnedFd)> {
    let (mut ours, mut theirs) = (-1, -1);
    let none = std::ptr::null_mut();
    // SAFETY: the two numbers are written where there is room for them; the rest may be null.
    let done = unsafe { libc::openpty(&mut ours, &mut theirs, none, none.cast(), none.cast()) };
    ensure!(done == 0, "no pseudo-terminal: {}", std::io::Error::last_os_error());
    for fd in [ours, theirs] {
        // SAFETY: the descriptors are ours; no program that is started shall have them by accident.
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    // SAFETY: the descriptors are new, and nobody else has them.
    Ok(unsafe { (OwnedFd::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) })
}
