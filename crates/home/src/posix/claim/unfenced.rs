//! Volumes that could not be claimed: what is done for them is noted nowhere, and fenced by nothing. Where that was for want of
//! space, it is so only until there is room.

use super::super::sys::Sys;
use super::super::{Posix, is_of_space, lock};
use super::fence::Fence;
use super::{Volume, file, volume_dir};
use crate::error::{Error, ErrorKind, Result};
use rustix::io::Errno;

/// The volume is changed without a claim, for this reason.
pub fn go_on<S: Sys>(home: &Posix<S>, volume: Volume, why: Errno) {
    forget(home, volume);
    // Where there is a fence, it is not the room for one that is wanted.
    if is_of_space(why) && !is_fenced(home, volume) {
        lock(&home.unfenced).insert(volume);
    }
}

/// Fails where a volume is not claimed because there was no room for its fence, and there is room by now, or somebody else has made
/// one: who changes the home without one is not kept from it by those who come later.
pub fn enter_unfenced<S: Sys>(home: &Posix<S>, volume: Volume) -> Result<()> {
    let make = || {
        let dir = volume_dir(home, volume)?;
        Fence::make(home, &dir)?;
        file(home, &dir, b"log")
    };
    match lock(&home.unfenced).contains(&volume) && (is_fenced(home, volume) || make().is_ok()) {
        true => Err(Error::new(ErrorKind::NotClaimed, "there is room for its fence by now")),
        false => Ok(()),
    }
}

/// Whether a volume that is not claimed because there was no room for its fence has one by now: somebody else has made it.
pub fn is_fenced_since<S: Sys>(home: &Posix<S>, volume: Volume) -> bool {
    lock(&home.unfenced).contains(&volume) && is_fenced(home, volume)
}

fn is_fenced<S: Sys>(home: &Posix<S>, volume: Volume) -> bool {
    volume_dir(home, volume).is_ok_and(|dir| Fence::has_room(home, &dir))
}

/// What is done now is noted nowhere: an earlier log would deny it to whoever takes over next, and so would `ran`, by which
/// one more operation than it tells was begun at most.
fn forget<S: Sys>(home: &Posix<S>, volume: Volume) {
    let Ok(dir) = volume_dir(home, volume) else { return };
    for name in [b"log", b"ran"] {
        home.sys.unlink(&dir, name, false).ok();
    }
    // The fence may tell of the log that nothing was begun since.
    home.sync_dir(&dir).ok();
}
