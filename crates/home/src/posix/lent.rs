//! Reading what the mode forbids its owner to open.
//!
//! Permission is asked once, when a program opens a file at the gateway; the mode may forbid it since. Such a file of our own is
//! lent the permission for as long as it takes to open it, and stays open, so that its ctime moves once and not with each read.

use super::resolve::Found;
use super::sys::{Mode, Sys, Sysult};
use super::{Posix, lock};
use crate::attr::HomeId;
use crate::limits;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::sync::Arc;

/// Files that were opened so, the last one first.
pub(super) struct Lent<S: Sys>(VecDeque<(HomeId, Arc<S::Fd>)>);

impl<S: Sys> Default for Lent<S> {
    fn default() -> Self {
        Lent(VecDeque::new())
    }
}

#[cfg(test)]
impl<S: Sys> Lent<S> {
    /// How many files are open.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Opens a file for reading, also where its mode forbids that to us as its owner.
pub(super) fn open<S: Sys>(home: &Posix<S>, file: &Found<S>) -> Sysult<Arc<S::Fd>> {
    match home.sys.reopen(&file.fd, Mode::Read) {
        Err(Errno::ACCESS) if file.attr.uid == home.account.uid => lend(home, file),
        opened => opened.map(Arc::new),
    }
}

fn lend<S: Sys>(home: &Posix<S>, file: &Found<S>) -> Sysult<Arc<S::Fd>> {
    // Held until it is open, so that it is lent once.
    let lent = &mut lock(&home.lent).0;
    if let Some((_, fd)) = lent.iter().find(|(id, _)| *id == file.attr.id) {
        return Ok(fd.clone());
    }
    // A batch may set the mode that is put back here.
    let _no_batch_runs = lock(&home.applying);
    let mode = home.attr_of(&file.fd).map_err(|_| Errno::STALE)?.mode;
    let fd = Arc::new(reopen(&home.sys, &file.fd, mode, Mode::Read)?);
    lent.push_front((file.attr.id, fd.clone()));
    lent.truncate(limits::LENT_KEPT);
    Ok(fd)
}

/// Opens a file of our own of this mode, which is lent what it lacks for that. Its mode must not be changed by others of ours
/// meanwhile.
pub(super) fn reopen<S: Sys>(sys: &S, fd: &S::Fd, mode: u32, how: Mode) -> Sysult<S::Fd> {
    let mode = mode & 0o7777;
    sys.chmod(fd, mode | if how == Mode::Read { 0o400 } else { 0o600 })?;
    let opened = sys.reopen(fd, how);
    sys.chmod(fd, mode)?;
    opened
}

/// Closes those whose last name is gone: they would keep their space.
pub(super) fn close_removed<S: Sys>(home: &Posix<S>) {
    lock(&home.lent).0.retain(|(_, fd)| home.attr_of(fd).is_ok_and(|attr| attr.nlink > 0));
}
