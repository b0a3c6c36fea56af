//! The home agent: the posix home of this machine, served on standard input and output.
//!
//! Trellis copies this program to a host that it reaches by ssh and starts it there as an ordinary user.
//! It opens no port, writes nothing but what it is asked to, and leaves when its input ends or falls silent. For five minutes a
//! process stays then that holds its watches of directories, if it had any, and does nothing else.
//!
//! - `trellis-agent` serves the whole tree, as far as the account may see it.
//! - `trellis-agent --root DIR` serves one directory, for a key that is restricted to it.
//! - `trellis-agent --join PID` passes its standard input and output on to a running one of the account.
//! - `trellis-agent --keep` is that process: an agent starts it with a socket, watches and a file as its standard descriptors.
//! - `trellis-agent --probe` prints one line with protocol, platform and BLAKE3 of the program, and leaves.

// They panic where the text cannot be written.
#![deny(clippy::print_stdout, clippy::print_stderr)]

use home::agent::join;
use home::agent::keep::{self, Keeper};
use home::agent::server::{self, Beside, Program};
use home::io_text;
use home::limits::agent::{LONELY_AFTER, MEMORY};
use home::posix::Posix;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::sync::Arc;

/// How much we step back behind other programs of the machine, as nice(1) counts.
const NICENESS: i32 = 5;

const USAGE: &str = "usage: trellis-agent [--probe | --root DIR | --join PID | --keep]";

fn main() -> ExitCode {
    let program = Program::myself();
    let mut args = std::env::args_os().skip(1);
    let root = match (args.next(), args.next(), args.next()) {
        (None, ..) => OsString::from("/"),
        (Some(flag), None, None) if flag == "--probe" => {
            return match writeln!(std::io::stdout(), "{}", program.probe_line()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(e) => fail(1, &format!("standard output: {}", io_text(&e))),
            };
        }
        (Some(flag), None, None) if flag == "--keep" => {
            return if keep::hold().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
        (Some(flag), Some(root), None) if flag == "--root" => root,
        (Some(flag), Some(pid), None) if flag == "--join" => return joined(&pid),
        _ => return fail(2, USAGE),
    };
    let home = match Posix::open(root.as_bytes()) {
        Ok(home) => Arc::new(home),
        Err(e) => return fail(1, &e.detail),
    };
    be_polite();
    match serve(home, program) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => fail(1, &e.to_string()),
    }
}

fn joined(pid: &OsStr) -> ExitCode {
    let Some(pid) = pid.to_str().and_then(|pid| pid.parse().ok()) else { return fail(2, USAGE) };
    be_polite();
    match pipe().and_then(|(input, output)| join::relay(pid, input, output)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => fail(1, &format!("agent {pid}: {}", io_text(&e))),
    }
}

/// Over the descriptors themselves: the standard library would look for line ends in what goes out, and hold what
/// came in where poll(2) does not see it.
fn serve(home: Arc<Posix>, program: Program) -> std::io::Result<()> {
    let (input, output) = pipe()?;
    // Without further pipes it only takes longer.
    let joins = join::listen(home.clone(), program.clone()).is_ok();
    let keeper = Arc::new(Keeper::default());
    let beside = Beside { joins, keeper: Some(keeper.clone()) };
    let end = server::serve(home.clone(), program, beside, BufReader::new(Patient(input)), output);
    // Without it the next agent is asked what has changed.
    let _ = keeper.rest(&*home);
    end
}

fn pipe() -> std::io::Result<(File, File)> {
    let input = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    Ok((input, File::from(std::io::stdout().as_fd().try_clone_to_owned()?)))
}

/// Steps back behind other programs, and does not take their memory whatever a peer asks for.
fn be_polite() {
    // Refused only where we are slower than that already.
    let _ = rustix::process::nice(NICENESS);
    let limit = getrlimit(Resource::Data);
    let most = limit.maximum.unwrap_or(MEMORY).min(MEMORY);
    if let Err(e) = setrlimit(Resource::Data, Rlimit { current: Some(most), maximum: limit.maximum }) {
        complain(&format!("memory stays unbounded: {}", io_text(&e.into())));
    }
}

/// Input that ends when nothing comes for [`LONELY_AFTER`]: the link of a machine that has vanished may stay open for
/// ever, and a living peer gives a sign of life every few seconds.
struct Patient<R>(R);

impl<R: Read + AsFd> Read for Patient<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let wait = Timespec { tv_sec: LONELY_AFTER.as_secs() as i64, tv_nsec: 0 };
        let mut input = [PollFd::new(&self.0, PollFlags::IN)];
        match poll(&mut input, Some(&wait)) {
            Ok(0) => Ok(0),
            Ok(_) => self.0.read(buffer),
            Err(e) => Err(e.into()),
        }
    }
}

fn fail(code: u8, text: &str) -> ExitCode {
    complain(text);
    ExitCode::from(code)
}

fn complain(text: &str) {
    // Where standard error is closed there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "trellis-agent: {text}");
}
