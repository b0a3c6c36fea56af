//! A panic ends the process, whichever task or thread it is in.
//!
//! A task of the server that is gone while the others go on would leave a home that looks up and gets nothing any more,
//! or a mount whose calls nobody answers. The journal makes the end of the process a normal event: what was acknowledged
//! is in it, a FUSE mount whose server has gone answers with errors instead of waiting, and the service manager, or the
//! next `trellis mount`, starts a server that goes on from there.

use std::io::Write as _;

/// The exit code, as that of every Rust program whose main thread panics.
pub const CODE: u8 = 101;

/// From now on a panic says where it was, and ends the process with [`CODE`].
pub fn ends_the_process() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        // The disk of the log may be full.
        let _ = writeln!(
            std::io::stderr(),
            "trellis: this is a bug of trellis, which ends here. What a server has acknowledged is in its journal: \
             `trellis mount` or `trellis serve` starts one that goes on from there"
        );
        std::process::exit(CODE.into());
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    /// Where the panic is, for the process that is to have it.
    const WHERE: &str = "TRELLIS_TEST_PANIC";

    #[tokio::test(flavor = "multi_thread")]
    async fn a_panic_anywhere_ends_the_process() {
        if let Ok(place) = std::env::var(WHERE) {
            ends_the_process();
            match place.as_str() {
                "task" => drop(tokio::spawn(async { panic!("in a {}", "task") })),
                "blocking" => drop(tokio::task::spawn_blocking(|| panic!("in a {}", "blocking"))),
                _ => drop(std::thread::spawn(|| panic!("in a {}", "thread"))),
            }
            // Whatever goes on after the panic: the test's runtime and its main thread live.
            tokio::time::sleep(Duration::from_secs(60)).await;
            return;
        }
        for place in ["task", "blocking", "thread"] {
            for log in
                [Stdio::piped(), std::fs::File::options().write(true).open("/dev/full").unwrap().into()]
            {
                let began = Instant::now();
                let mut child = Command::new(std::env::current_exe().unwrap());
                child.args(["--exact", "--nocapture", "crash::tests::a_panic_anywhere_ends_the_process"]);
                let ended = child.env(WHERE, place).stdout(Stdio::null()).stderr(log).output().unwrap();
                assert_eq!(ended.status.code(), Some(CODE.into()), "{place}");
                assert!(began.elapsed() < Duration::from_secs(30), "{place}: it went on");
                let said = String::from_utf8_lossy(&ended.stderr);
                let whole = said.contains(&format!("in a {place}")) && said.contains("crash.rs:");
                assert!(said.is_empty() || whole && said.contains("trellis mount"), "{said}");
            }
        }
    }
}
