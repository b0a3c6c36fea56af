//! Who are we at the home. The token is random bytes in the account's own `~/.cache/trellis`: a gateway that
//! meets another token than before does not replay unsent changes there.

use super::apply::staging;
use super::sys::{Account, FileType, Make, Mode, Sys, Sysult};
use super::{Posix, ident, lock, spool};
use crate::error::Result;
use crate::{Class, Hello, HomePath};
use bytes::Bytes;
use rustix::io::Errno;

/// Length of the token.
pub(super) const TOKEN: usize = 16;

/// What a home says of itself.
pub(super) fn hello<S: Sys>(home: &Posix<S>) -> Result<Hello> {
    let token = token(home);
    *lock(&home.token) = token.ok().map(|(bytes, _)| bytes);
    Ok(Hello {
        class: Class::Posix,
        stages: true,
        uid: home.account.uid,
        gid: home.account.gid,
        groups: home.account.groups.clone(),
        home_dir: home_path(&home.account, &home.root_path),
        token_is_new: matches!(token, Ok((_, true))),
        token: token.ok().map(|(bytes, _)| bytes),
        boot_id: Bytes::from(home.sys.boot_id()),
        clock: home.sys.now(),
        place: place(home).ok().flatten(),
    })
}

/// Where the account is, as long as its machine runs. Numbers of devices, mounts and inodes are used again, and images of
/// disks are copied with all that is in them: so it takes the machine's boot, its first process (a container's is another
/// one than its host's, and another one each time), the mount, and the birth of the directory itself.
fn place<S: Sys>(home: &Posix<S>) -> Sysult<Option<[u8; 16]>> {
    let boot = home.sys.boot_id();
    let Some(first) = home.sys.first_process() else { return Ok(None) };
    let fd = home.sys.open_root(&home.account.home_dir)?;
    let stat = home.sys.stat(&fd)?;
    let Some(birth) = stat.btime else { return Ok(None) };
    if boot.is_empty() || stat.mount == 0 || stat.uid != home.account.uid {
        return Ok(None);
    }
    let numbers =
        [stat.dev, stat.mount, stat.ino, birth.sec as u64, u64::from(birth.nsec)].map(u64::to_le_bytes);
    let id = home.identify(&fd).map_err(|_| Errno::NODATA)?.id;
    let id = [id.fs, id.ino, id.generation].map(u64::to_le_bytes);
    let mut hasher = blake3::Hasher::new();
    for part in [&boot[..], &first, numbers.as_flattened(), id.as_flattened()] {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
    }
    let mut out = [0; 16];
    out.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    Ok(Some(out))
}

/// The home directory as seen from the root of the home; the root itself where it lies elsewhere.
fn home_path(account: &Account, root: &[u8]) -> HomePath {
    let root = root.strip_suffix(b"/").unwrap_or(root);
    match account.home_dir.strip_prefix(root) {
        Some(rest) if rest.is_empty() || rest.starts_with(b"/") => HomePath::parse(rest).unwrap_or_default(),
        _ => HomePath::root(),
    }
}

/// `~/.cache/trellis`, made if need be. Links below the home directory are followed, because they are the
/// account's own; the directory itself must belong to the account.
pub(super) fn cache_dir<S: Sys>(home: &Posix<S>) -> Sysult<S::Fd> {
    let mut path = home.account.home_dir.clone();
    let mut at = home.sys.open_root(&path)?;
    for name in [&b".cache"[..], b"trellis"] {
        match home.sys.make(&at, name, Make::Dir(0o700)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(e),
        }
        path.push(b'/');
        path.extend_from_slice(name);
        at = home.sys.open_root(&path)?;
    }
    if home.sys.stat(&at)?.uid == home.account.uid { Ok(at) } else { Err(Errno::PERM) }
}

/// The token and whether it was made just now. It is durable: what is told once has to be the same for ever.
fn token<S: Sys>(home: &Posix<S>) -> Sysult<([u8; TOKEN], bool)> {
    let dir = cache_dir(home)?;
    // Leftovers only take space.
    staging::sweep(home, &dir).ok();
    home.sys.open_name(&dir, b"volumes").and_then(|volumes| spool::sweep(home, &volumes)).ok();
    if let Some(old) = read_token(home, &dir)? {
        // Who made it may have been killed before its name was durable.
        home.sync_dir(&dir)?;
        return Ok((old, false));
    }
    let known = *lock(&home.token);
    let mut bytes = known.unwrap_or_default();
    if known.is_none() {
        home.sys.random(&mut bytes)?;
    }
    match make_token(home, &dir, &bytes) {
        // Somebody else was faster.
        Err(Errno::EXIST) => {
            home.sync_dir(&dir)?;
            read_token(home, &dir)?.map(|t| (t, false)).ok_or(Errno::IO)
        }
        other => other.map(|()| (bytes, known.is_none())),
    }
}

/// Puts back the token that this process has told, if it is gone: somebody has emptied `~/.cache`, and whoever meets
/// another token takes the account for another one.
pub(super) fn keep_token<S: Sys>(home: &Posix<S>) -> Sysult<()> {
    let Some(known) = *lock(&home.token) else { return Ok(()) };
    let dir = cache_dir(home)?;
    match read_token(home, &dir)? {
        Some(_) => Ok(()),
        None => make_token(home, &dir, &known),
    }
}

fn make_token<S: Sys>(home: &Posix<S>, dir: &S::Fd, bytes: &[u8]) -> Sysult<()> {
    let mut unique = [0; 8];
    home.sys.random(&mut unique)?;
    let temp = format!("token.{:016x}", ident::hash(&[&unique]));
    let made = place_token(home, dir, temp.as_bytes(), bytes);
    home.sys
        .unlink(dir, temp.as_bytes(), false)
        .or_else(|e| if e == Errno::NOENT { Ok(()) } else { Err(e) })?;
    made
}

/// Gives the token its name only when its bytes are durable, and never over another one.
fn place_token<S: Sys>(home: &Posix<S>, dir: &S::Fd, temp: &[u8], bytes: &[u8]) -> Sysult<()> {
    let fd = home.sys.create(dir, temp, 0o600)?;
    if home.sys.write(&fd, 0, bytes)? != bytes.len() {
        return Err(Errno::NOSPC);
    }
    home.sys.sync(&fd)?;
    home.sys.link(dir, temp, dir, b"token")?;
    home.sync_dir(dir)
}

fn read_token<S: Sys>(home: &Posix<S>, dir: &S::Fd) -> Sysult<Option<[u8; TOKEN]>> {
    let fd = match home.sys.open_name(dir, b"token") {
        Err(Errno::NOENT) => return Ok(None),
        opened => opened?,
    };
    let stat = home.sys.stat(&fd)?;
    if stat.kind != FileType::File || stat.uid != home.account.uid || stat.size != TOKEN as u64 {
        return Err(Errno::INVAL);
    }
    let mut bytes = [0; TOKEN];
    match home.sys.read(&home.sys.reopen(&fd, Mode::Read)?, 0, &mut bytes)? {
        TOKEN => Ok(Some(bytes)),
        _ => Err(Errno::IO),
    }
}
