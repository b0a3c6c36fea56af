//! The home agent: the posix home of this machine, served on standard input and output.
//!
//! Trellis copies this program to a host that it reaches by ssh and starts it there as an ordinary user.
//! It opens no port, writes nothing but what it is asked to, and leaves when its input ends.
//!
//! - `trellis-agent` serves the whole tree, as far as the account may see it.
//! - `trellis-agent --root DIR` serves one directory, for a key that is restricted to it.
//! - `trellis-agent --probe` prints one line with protocol, platform and BLAKE3 of the program, and leaves.

use home::agent::server::{self, Program};
use home::posix::Posix;
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::sync::Arc;

/// How much we step back behind other programs of the machine, as nice(1) counts.
const NICENESS: i32 = 5;

const USAGE: &str = "usage: trellis-agent [--probe | --root DIR]";

fn main() -> ExitCode {
    let program = Program::myself();
    let mut args = std::env::args_os().skip(1);
    let root = match (args.next(), args.next(), args.next()) {
        (None, ..) => OsString::from("/"),
        (Some(flag), None, None) if flag == "--probe" => {
            println!("{}", program.probe_line());
            return ExitCode::SUCCESS;
        }
        (Some(flag), Some(root), None) if flag == "--root" => root,
        _ => return fail(2, USAGE),
    };
    let home = match Posix::open(root.as_bytes()) {
        Ok(home) => Arc::new(home),
        Err(e) => return fail(1, &e.detail),
    };
    // Refused only where we are slower than that already.
    let _ = rustix::process::nice(NICENESS);
    // The descriptor itself: the standard library would look for line ends in what goes out.
    let served = std::io::stdout()
        .as_fd()
        .try_clone_to_owned()
        .and_then(|output| server::serve(home, program, std::io::stdin().lock(), File::from(output)));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => fail(1, &e.to_string()),
    }
}

fn fail(code: u8, text: &str) -> ExitCode {
    eprintln!("trellis-agent: {text}");
    ExitCode::from(code)
}
