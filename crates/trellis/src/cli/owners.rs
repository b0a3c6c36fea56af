//! Names of owners and groups, as this machine knows them.

use crate::show;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int};
use std::mem::MaybeUninit;
use std::ptr::null_mut;

/// Bytes for one entry of the databases of users and groups; a larger one, of a group with many members, has no name here.
const ENTRY: usize = 64 << 10;

/// The names that were asked for.
#[derive(Default)]
pub(super) struct Owners {
    users: HashMap<u32, String>,
    groups: HashMap<u32, String>,
}

impl Owners {
    /// The name of a user, fit for a terminal; his number where he has none.
    pub(super) fn user(&mut self, uid: u32) -> String {
        self.users.entry(uid).or_insert_with(|| shown(uid, user_name(uid))).clone()
    }

    /// The same of a group.
    pub(super) fn group(&mut self, gid: u32) -> String {
        self.groups.entry(gid).or_insert_with(|| shown(gid, group_name(gid))).clone()
    }
}

fn shown(number: u32, name: Option<Vec<u8>>) -> String {
    name.map_or_else(|| number.to_string(), |name| show::text(&name))
}

fn user_name(uid: u32) -> Option<Vec<u8>> {
    // SAFETY: as getpwuid_r(3) wants it: `entry` and `buffer` are written, and `found` points to `entry` or nowhere.
    lookup::<libc::passwd>(
        |entry, buffer, len, found| unsafe { libc::getpwuid_r(uid, entry, buffer, len, found) },
        |e| e.pw_name,
    )
}

fn group_name(gid: u32) -> Option<Vec<u8>> {
    // SAFETY: the same (getgrgid_r(3)).
    lookup::<libc::group>(
        |entry, buffer, len, found| unsafe { libc::getgrgid_r(gid, entry, buffer, len, found) },
        |e| e.gr_name,
    )
}

/// The name in an entry that `ask` finds.
fn lookup<T>(
    ask: impl FnOnce(*mut T, *mut c_char, usize, *mut *mut T) -> c_int,
    name: impl FnOnce(&T) -> *mut c_char,
) -> Option<Vec<u8>> {
    let mut entry = MaybeUninit::<T>::uninit();
    let mut buffer: Vec<c_char> = vec![0; ENTRY];
    let mut found: *mut T = null_mut();
    let failed = ask(entry.as_mut_ptr(), buffer.as_mut_ptr(), buffer.len(), &raw mut found);
    if failed != 0 || found.is_null() {
        return None;
    }
    // SAFETY: the entry was found, and with it filled; its name is a string in `buffer`, which lives on.
    let name = unsafe { CStr::from_ptr(name(entry.assume_init_ref())) };
    Some(name.to_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_known_has_a_name() {
        let mut owners = Owners::default();
        assert_eq!([owners.user(0), owners.group(0)], ["root", "root"]);
        let unknown = 4_000_000_123;
        assert_eq!([owners.user(unknown), owners.group(unknown)], ["4000000123", "4000000123"]);
    }
}
