//! What this machine must have.

use super::{Finding, Level};
use crate::mount::probe::{self, Server};
use crate::state::StateDir;
use crate::{limits, login, mount, mounts, show};
use home::io_text;
use home::ssh::credentials::agent_trouble;
use rustix::fs::Access;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tokio::process::Command;

/// The type of fusectl (statfs(2), linux/magic.h).
const FUSECTL_MAGIC: u64 = 0x6573_5543;

/// Whether an ordinary user can mount, and then, whether programs that hang in the mounts of a killed server can be freed.
pub fn fuse() -> Vec<Finding> {
    let without =
        "install the package fuse3, or ask your site; mounts by NFS and all other commands work without";
    let helper = match mount::helper::find() {
        Ok(helper) => helper,
        Err(why) => return vec![Finding::warn("fuse", why, without)],
    };
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let setuid = helper.metadata().is_ok_and(|m| m.uid() == 0 && m.mode() & 0o4000 != 0);
    let root = rustix::process::geteuid().is_root();
    let mut found = vec![of_fuse(&helper, setuid, device.err().map(|e| io_text(&e)), root)];
    if found[0].level == Level::Ok {
        let mounted = rustix::fs::statfs(mounts::FUSECTL).is_ok_and(|fs| fs.f_type as u64 == FUSECTL_MAGIC);
        found.push(of_fusectl(mounted));
    }
    found
}

/// The mounts whose server has gone, and those that nobody answers for in time.
pub async fn dead_mounts() -> Vec<Finding> {
    let mut found = Vec::new();
    for dir in mounts::fuse_points() {
        match probe::ask(&dir, limits::DOCTOR_MOUNT).await {
            Ok(Server::Gone) => found.push(dead_mount(&dir)),
            Ok(Server::Silent) => found.push(Finding::fail(
                "mount",
                format!("{}: its server does not answer", shown(&dir)),
                "what is found about the server says why; programs that use the mount wait for it",
            )),
            // What else may be wrong there is nothing about its server.
            Ok(Server::Alive) | Err(_) => {}
        }
    }
    found
}

fn dead_mount(dir: &Path) -> Finding {
    let word = show::path_word(dir);
    let advice = match mounts::relayed_points().iter().any(|point| point == dir) {
        true => format!("`trellis umount {word}`, then mount it again with `trellis mount --at HOST {word}`"),
        false => format!("`trellis mount {word}` serves it again, `trellis umount {word}` takes it away"),
    };
    Finding::fail("mount", format!("{}: its server has gone", shown(dir)), advice)
}

fn of_fusectl(mounted: bool) -> Finding {
    let dir = mounts::FUSECTL;
    match mounted {
        true => {
            Finding::ok("fuse", "programs that a killed server leaves hanging in its mounts can be freed")
        }
        false => Finding::warn(
            "fuse",
            format!("{dir} is not mounted: programs may hang in the mounts of a server that was killed"),
            format!("as root: mount -t fusectl fusectl {dir}"),
        ),
    }
}

fn of_fuse(helper: &Path, setuid: bool, device: Option<String>, root: bool) -> Finding {
    let helper = shown(helper);
    match (setuid || root, device) {
        (_, Some(why)) => Finding::warn(
            "fuse",
            format!("/dev/fuse: {why}"),
            "load the module (`modprobe fuse` as root), or in a container let the device in; NFS works without",
        ),
        (false, None) => Finding::warn(
            "fuse",
            format!("{helper} is not set-uid root, so that only root can mount"),
            format!("as root: chmod u+s {helper}"),
        ),
        (true, None) => Finding::ok("fuse", format!("{helper} and /dev/fuse can be used")),
    }
}

/// The ssh client, the agent, and the folder for logins.
pub async fn ssh(state: Option<&StateDir>) -> Vec<Finding> {
    let mut found = Vec::new();
    let output = Command::new("ssh").arg("-V").output().await;
    found.push(match output {
        Ok(out) if out.status.success() => {
            let said = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
            Finding::ok("ssh", show::text(said.trim().as_bytes()))
        }
        Ok(out) => Finding::fail("ssh", format!("`ssh -V`: {}", out.status), "install an OpenSSH client"),
        Err(e) => Finding::fail("ssh", format!("ssh: {}", io_text(&e)), "install an OpenSSH client"),
    });
    found.push(agent(std::env::var_os("SSH_AUTH_SOCK").filter(|s| !s.is_empty()).map(PathBuf::from)));
    if let Some(state) = state {
        found.push(match login::folder::of(state) {
            Ok(folder) => Finding::ok("ssh", format!("logins are kept in {}", shown(&folder))),
            Err(why) => {
                Finding::warn("ssh", why, "without it `trellis login` works only where your ControlPath does")
            }
        });
    }
    found
}

fn agent(socket: Option<PathBuf>) -> Finding {
    let Some(socket) = socket else {
        return Finding::ok(
            "ssh",
            "no ssh-agent (SSH_AUTH_SOCK is not set); keys in files and logins are used",
        );
    };
    match agent_trouble(&socket) {
        None => Finding::ok("ssh", format!("ssh-agent at {} answers", shown(&socket))),
        Some(why) => Finding::warn(
            "ssh",
            why,
            "log in anew, or `ssh-agent` and `ssh-add`; then start the server again",
        ),
    }
}

/// The ports that were chosen and that clients expect, and what low ports are worth here. `served`: where a server that
/// runs serves NFS.
pub fn ports(state: Option<&StateDir>, served: Option<&[String]>) -> Vec<Finding> {
    let mut found: Vec<Finding> = match served {
        Some([]) => vec![Finding::ok("ports", "the server serves no NFS, mounts by FUSE alone")],
        Some(some) => some.iter().map(|a| Finding::ok("ports", format!("NFS is served on {a}"))).collect(),
        None => state.map(StateDir::chosen).unwrap_or_default().into_iter().map(port).collect(),
    };
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap_or_default();
    found.push(low_ports(text.trim().parse().unwrap_or(1024)));
    found
}

fn port(address: SocketAddr) -> Finding {
    match TcpListener::bind(address) {
        Ok(_) => Finding::ok("ports", format!("{address}, which clients expect, is free")),
        Err(e) => Finding::fail(
            "ports",
            format!("{address}, which clients expect: {}", io_text(&e)),
            format!(
                "end what uses it (`ss -ltnp` shows it), or `trellis serve --listen {}:PORT`",
                address.ip()
            ),
        ),
    }
}

fn low_ports(first_open: u32) -> Finding {
    match first_open < 1024 {
        false => Finding::ok("ports", "only root may use low ports, which NFS relies on"),
        true => Finding::warn(
            "ports",
            format!(
                "every user of this machine may use ports from {first_open} up, and could act as you by NFS"
            ),
            "as root: sysctl -w net.ipv4.ip_unprivileged_port_start=1024; or mount by FUSE; `serve` refuses unless \
             --insecure says that you accept it",
        ),
    }
}

/// What has to be allowed in a directory so that something can be made there.
const MAY: Access = Access::WRITE_OK.union(Access::EXEC_OK);

/// What to do about a state directory that cannot be used.
const CHOOSE: &str = "choose another with --state DIR";

/// A state directory that is there: where it lies, how much space is left. `cache`: what the cache may take, and has.
pub fn disk(state: &StateDir, cache: Option<(u64, u64)>) -> Finding {
    let dir = shown(state.path());
    if state.is_on_network() {
        let advice =
            "choose a directory on a local disk with --state DIR: locks may not hold between machines there";
        return Finding::warn("disk", format!("{dir} is on a network file system"), advice);
    }
    if let Err(e) = rustix::fs::access(state.path(), MAY) {
        let advice =
            format!("`chmod u+rwx {}`, or choose another with --state DIR", show::path_word(state.path()));
        return Finding::fail("disk", format!("{dir} cannot be written: {}", io_text(&e.into())), advice);
    }
    match rustix::fs::statvfs(state.path()) {
        Ok(fs) => space(&dir, fs.f_bavail.saturating_mul(fs.f_frsize), cache),
        Err(e) => bad_disk(&format!("{dir}: {}", io_text(&e.into()))),
    }
}

/// A state directory that cannot be used.
pub fn bad_disk(why: &str) -> Finding {
    Finding::fail("disk", why, CHOOSE)
}

/// A state directory that is not there yet: whether it could be made.
pub fn no_disk(wanted: &Path) -> Finding {
    let above = wanted.ancestors().find(|dir| dir.symlink_metadata().is_ok()).unwrap_or(Path::new("/"));
    match rustix::fs::access(above, MAY) {
        Ok(()) => {
            Finding::ok("disk", format!("no state directory yet; the first server makes {}", shown(wanted)))
        }
        Err(e) => Finding::fail(
            "disk",
            format!("{} cannot be made: {}: {e}", shown(wanted), shown(above), e = io_text(&e.into())),
            "make it writable, or choose another directory with --state DIR",
        ),
    }
}

fn space(dir: &str, free: u64, cache: Option<(u64, u64)>) -> Finding {
    let found = format!("{dir} is private and has {} free", show::size(free));
    let grows = cache.map_or(0, |(cap, used)| cap.saturating_sub(used));
    let advice = "make room, or let the cache have less with `trellis serve --cache SIZE`";
    match free {
        f if f < limits::CACHE_LEAST => Finding::fail("disk", found, advice),
        f if f < limits::DISK_LOW => Finding::warn("disk", found, advice),
        f if f < grows => {
            Finding::warn("disk", format!("{found}, but the cache may grow by {}", show::size(grows)), advice)
        }
        _ => Finding::ok("disk", found),
    }
}

/// How many files a server may open.
pub fn limits() -> Finding {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    open_files(limit.maximum.unwrap_or(u64::MAX))
}

fn open_files(most: u64) -> Finding {
    match most < limits::OPEN_FILES {
        false => Finding::ok("limits", "enough files can be open"),
        true => Finding::warn(
            "limits",
            format!("a process may have {most} files open"),
            format!(
                "let it have {} or more (`ulimit -Hn`, limits.conf(5), LimitNOFILE=)",
                limits::OPEN_FILES
            ),
        ),
    }
}

fn shown(path: &Path) -> String {
    show::text(path.as_os_str().as_encoded_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fusectl_frees_what_hangs() {
        assert_eq!(of_fusectl(true).level, Level::Ok);
        assert!(of_fusectl(false).advice.unwrap().contains("mount -t fusectl"));
    }

    #[test]
    fn fuse_needs_helper_and_device() {
        let helper = Path::new("/usr/bin/fusermount3");
        assert_eq!(of_fuse(helper, true, None, false).level, Level::Ok);
        assert!(
            of_fuse(helper, false, None, false).advice.unwrap().contains("chmod u+s /usr/bin/fusermount3")
        );
        assert_eq!(of_fuse(helper, false, None, true).level, Level::Ok);
        let absent = of_fuse(helper, true, Some("No such file or directory".into()), false);
        assert!(absent.level == Level::Warn && absent.advice.unwrap().contains("modprobe fuse"));
    }

    #[test]
    fn a_port_is_free_ours_or_taken() {
        let taken = TcpListener::bind("127.61.7.3:0").unwrap();
        let address = taken.local_addr().unwrap();
        let [served, none] =
            [Some(&[address.to_string()][..]), Some(&[][..])].map(|s| ports(None, s)[0].found.clone());
        assert!(served.contains(&address.to_string()) && none.contains("no NFS"), "{served} {none}");
        assert_eq!(port(address).level, Level::Fail);
        // Free at an address that nobody listens on: a closed socket may live on in a child that another test forks.
        assert_eq!(port(([127, 61, 7, 4], address.port()).into()).level, Level::Ok);
        assert_eq!((low_ports(1024).level, low_ports(0).level), (Level::Ok, Level::Warn));
    }

    #[test]
    fn space_is_compared_with_what_the_cache_may_take() {
        assert_eq!(space("/s", 1 << 20, None).level, Level::Fail);
        assert_eq!(space("/s", 500 << 20, None).level, Level::Warn);
        assert_eq!(space("/s", 5 << 30, Some((20 << 30, 1 << 30))).level, Level::Warn);
        assert_eq!(space("/s", 5 << 30, Some((20 << 30, 18 << 30))).level, Level::Ok);
        let new = tempfile::tempdir().unwrap();
        assert_eq!(no_disk(&new.path().join("a/b")).level, Level::Ok);
        // Nobody, not even root, makes a directory in what is none.
        assert_eq!(no_disk(Path::new("/dev/null/a/b")).level, Level::Fail);
        assert_eq!((open_files(1024).level, open_files(1 << 20).level), (Level::Warn, Level::Ok));
    }

    #[test]
    fn a_dead_agent_is_worth_a_look() {
        assert_eq!(agent(None).level, Level::Ok);
        assert!(agent(Some("/nowhere/agent".into())).found.contains("/nowhere/agent"));
        assert_eq!(agent(Some("/nowhere/agent".into())).level, Level::Warn);
    }
}
