//! Where this machine has mounted our own tree.

use crate::limits;
use home::HomePath;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

/// Mount points of our own tree, read anew from the kernel when they may have changed. As long as no listener is
/// known there are none.
#[derive(Default)]
pub struct OwnMounts {
    listeners: OnceLock<Vec<SocketAddr>>,
    known: Mutex<Option<(Instant, Vec<HomePath>)>>,
}

impl OwnMounts {
    /// Tells, once, where we can be mounted from.
    pub fn listen(&self, listeners: Vec<SocketAddr>) {
        // A second call would come from a second server in this process; the first one's mounts stay known.
        let _ = self.listeners.set(listeners);
    }

    /// Whether the path is, or lies below, a mount of our own tree.
    pub fn holds(&self, path: &HomePath) -> bool {
        let Some(listeners) = self.listeners.get() else { return false };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = known.as_ref().is_some_and(|(at, _)| at.elapsed() < limits::MOUNTS_AGE);
        if !fresh {
            let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
            *known = Some((Instant::now(), own_mounts(&table, listeners)));
        }
        known.as_ref().is_some_and(|(_, mounts)| mounts.iter().any(|m| is_below(path, m)))
    }

    /// Mounts that never change.
    #[cfg(test)]
    pub fn fixed(paths: &[&str]) -> OwnMounts {
        let mounts = paths.iter().map(|p| HomePath::parse(p.as_bytes()).unwrap()).collect();
        let later = Instant::now() + std::time::Duration::from_secs(3600);
        OwnMounts { listeners: OnceLock::from(vec![]), known: Mutex::new(Some((later, mounts))) }
    }
}

fn is_below(path: &HomePath, mount: &HomePath) -> bool {
    let rest = path.as_bytes().strip_prefix(mount.as_bytes());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// Mount points in a table of proc(5) `mountinfo` whose NFS server is one of the listeners.
fn own_mounts(table: &[u8], listeners: &[SocketAddr]) -> Vec<HomePath> {
    let lines = table.split(|b| *b == b'\n');
    lines.filter_map(|line| own_mount(line, listeners)).collect()
}

fn own_mount(line: &[u8], listeners: &[SocketAddr]) -> Option<HomePath> {
    let mut fields = line.split(|b| *b == b' ');
    let point = fields.nth(4)?;
    let mut rest = fields.skip_while(|f| *f != b"-").skip(1);
    let is_nfs = rest.next()?.starts_with(b"nfs");
    let options = std::str::from_utf8(rest.nth(1)?).ok()?;
    let value = |key: &str| options.split(',').find_map(|o| o.strip_prefix(key));
    let port: u16 = value("port=").and_then(|p| p.parse().ok()).unwrap_or(2049);
    let address: IpAddr = value("addr=")?.parse().ok()?;
    let ours = |l: &SocketAddr| l.port() == port && (l.ip().is_unspecified() || l.ip() == address);
    match is_nfs && listeners.iter().any(ours) {
        true => HomePath::parse(&unescape(point)).ok(),
        false => None,
    }
}

/// Undoes the octal escapes of proc(5): `\040` is a space.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let octal = text.get(at + 1..at + 4).filter(|_| text[at] == b'\\');
        let value =
            octal.and_then(|o| std::str::from_utf8(o).ok()).and_then(|o| u8::from_str_radix(o, 8).ok());
        out.push(value.unwrap_or(text[at]));
        at += if value.is_some() { 4 } else { 1 };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"\
21 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
40 21 0:50 / /my\\040tree rw,nosuid,nodev - nfs 127.0.0.1:/ rw,vers=3,proto=tcp,port=4711,mountport=4711,addr=127.0.0.1
41 21 0:51 / /shared rw shared:5 master:2 - nfs4 127.0.0.1:/ rw,vers=4.2,port=4711,addr=127.0.0.1
42 21 0:52 / /other rw - nfs 127.0.0.1:/ rw,vers=3,port=4712,addr=127.0.0.1
43 21 0:53 / /far rw - nfs far:/ rw,vers=3,port=4711,addr=10.0.0.1
broken line
";

    fn points(listeners: &[&str]) -> Vec<String> {
        let listeners: Vec<SocketAddr> = listeners.iter().map(|l| l.parse().unwrap()).collect();
        own_mounts(TABLE, &listeners).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn our_mounts_are_told_from_others() {
        assert_eq!(points(&["127.0.0.1:4711"]), ["/my tree", "/shared"]);
        assert_eq!(points(&["0.0.0.0:4711"]), ["/my tree", "/shared", "/far"]);
        assert!(points(&["127.0.0.1:9"]).is_empty() && points(&[]).is_empty());
    }
}
