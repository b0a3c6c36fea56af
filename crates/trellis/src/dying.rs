//! A server that was killed and has not ended yet. As long as a thread of it lives it holds the lock and the socket of its
//! state directory. One that was telling the kernel of a name may live for ever: it waits for a directory that a program
//! has locked, which waits for an answer of the server. The kernel ends that when the connection of the mount is aborted,
//! which the user who mounted may do (fusectl, Documentation/filesystems/fuse.rst of Linux).

use crate::{limits, mounts};
use rustix::process::Signal;
use std::time::Instant;

/// `PF_EXITING` among the flags of proc(5) `stat`.
const EXITING: u64 = 0x4;

/// Whether a process of this machine has been killed, or is ending.
pub fn is_dying(pid: i32) -> bool {
    let read = |name| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    is_ending(&read("stat")) || is_killed(&read("status"))
}

/// Whether a process of this machine has ended, or is about to.
pub fn is_over(pid: i32) -> bool {
    is_dying(pid) || !std::path::Path::new(&format!("/proc/{pid}")).exists()
}

/// By proc(5) `stat`.
fn is_ending(stat: &str) -> bool {
    // The name before it may have any character.
    let Some((_, rest)) = stat.rsplit_once(") ") else { return false };
    let mut fields = rest.split(' ');
    let state = fields.next();
    // The flags are field 9 of the whole line, the state is field 3.
    let flags = fields.nth(5).and_then(|f| f.parse::<u64>().ok()).unwrap_or(0);
    matches!(state, Some("Z" | "X")) || flags & EXITING != 0
}

/// By proc(5) `status`: SIGKILL is on its way.
fn is_killed(status: &str) -> bool {
    let pending = |name| {
        let set = status.lines().find_map(|l| l.strip_prefix(name)).unwrap_or_default();
        u64::from_str_radix(set.trim(), 16).unwrap_or(0) & 1 << (Signal::KILL.as_raw() - 1) != 0
    };
    pending("SigPnd:") || pending("ShdPnd:")
}

/// Waits until nothing is left of a dying process but what its parent may still read. After a while the mounts of
/// this source are aborted.
pub fn wait_for_end(pid: i32, source: &str) -> Result<(), String> {
    let begun = Instant::now();
    let mut aborted = false;
    while is_left(pid) {
        if begun.elapsed() > limits::DYING_FOR {
            return Err(format!(
                "the server was killed, but a thread of it hangs in the kernel (process {pid}): mount fusectl at \
                 /sys/fs/fuse/connections, or let the administrator restart this machine"
            ));
        }
        if begun.elapsed() > limits::DYING_PATIENCE && !aborted {
            aborted = true;
            mounts::abort(source);
        }
        std::thread::sleep(limits::DYING_PAUSE);
    }
    Ok(())
}

/// Whether anything of a dying process may still hold what it had open: more than a zombie without further threads.
fn is_left(pid: i32) -> bool {
    is_dying(pid) && is_there(pid)
}

/// Whether a process is more than a zombie without further threads.
pub fn is_there(pid: i32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    threads > 1 || !is_zombie(pid)
}

fn is_zombie(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dying_are_told_from_the_living() {
        let me = std::process::id().cast_signed();
        assert!(!is_dying(me) && !is_dying(i32::MAX));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id().cast_signed();
        assert!(!is_dying(pid));
        child.kill().unwrap();
        assert!(is_dying(pid), "at once, whatever it has come to");
        assert_eq!(wait_for_end(pid, "no such source"), Ok(()));
        child.wait().unwrap();
        assert!(!is_dying(pid) && is_over(pid) && !is_over(me));
    }

    #[test]
    fn states_and_signals() {
        assert!(is_ending("7 (a) b) Z 1 1 1 0 -1 4227084 0"));
        assert!(is_ending("7 (a) R 1 1 1 0 -1 4 0") && !is_ending("7 (a) S 1 1 1 0 -1 4194304 0"));
        assert!(is_killed("SigPnd:\t0000000000000100\n") && is_killed("ShdPnd:\t0000000000000100\n"));
        assert!(!is_killed("SigPnd:\t0000000000000200\nSigBlk:\t0000000000000100\n"));
    }
}
