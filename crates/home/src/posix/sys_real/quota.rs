//! What is left of an account's quota, by quotactl_fd(2), which Linux has since 5.14. It wants no device and no rights.

use crate::posix::sys::Left;
use std::os::fd::{AsRawFd, OwnedFd};

/// `USRQUOTA` of linux/quota.h.
pub const USER: u32 = 0;
/// `GRPQUOTA` of linux/quota.h.
pub const GROUP: u32 = 1;

/// `Q_GETQUOTA` of linux/quota.h.
const GET: u32 = 0x80_0007;
/// Limits of bytes are told in these units (`QIF_DQBLKSIZE`).
const UNIT: u64 = 1 << 10;

/// `struct if_dqblk` of linux/quota.h.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
struct Quota {
    bytes_hard: u64,
    bytes_soft: u64,
    bytes_used: u64,
    files_hard: u64,
    files_soft: u64,
    files_used: u64,
    /// When the soft limits become hard ones, in seconds since 1970; 0 while they are not exceeded.
    bytes_until: u64,
    files_until: u64,
    valid: u32,
}

/// What is left for an account of this kind on a file system; `None` where it keeps no quotas, or does not tell them.
pub fn left(fd: &OwnedFd, kind: u32, id: u32) -> Option<Left> {
    let mut quota = Quota::default();
    let command = libc::c_long::from(GET << 8 | kind);
    // SAFETY: the descriptor is open, and the buffer is a whole struct if_dqblk.
    let told = unsafe {
        libc::syscall(libc::SYS_quotactl_fd, fd.as_raw_fd(), command, libc::c_long::from(id), &raw mut quota)
    };
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
    (told == 0).then(|| quota.left(now))
}

impl Quota {
    /// At this time, in seconds since 1970.
    fn left(&self, now: u64) -> Left {
        let rest = |hard: u64, soft: u64, until: u64, used: u64| {
            let over = until != 0 && until <= now && used > soft;
            match hard {
                _ if over => 0,
                0 => u64::MAX,
                hard => hard.saturating_sub(used),
            }
        };
        let (hard, soft) = (self.bytes_hard.saturating_mul(UNIT), self.bytes_soft.saturating_mul(UNIT));
        Left {
            bytes: rest(hard, soft, self.bytes_until, self.bytes_used),
            files: rest(self.files_hard, self.files_soft, self.files_until, self.files_used),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_up_to_the_hard_limit_until_the_soft_one_is_exceeded_for_too_long() {
        let quota =
            Quota { bytes_hard: 10, bytes_soft: 4, bytes_used: 5 << 10, files_used: 3, ..Quota::default() };
        assert_eq!(quota.left(100), Left { bytes: 5 << 10, files: u64::MAX }, "no limit of files");
        let quota = Quota { bytes_until: 100, files_hard: 3, ..quota };
        assert_eq!(quota.left(99), Left { bytes: 5 << 10, files: 0 });
        assert_eq!(quota.left(100), Left { bytes: 0, files: 0 });
        let soft_alone = Quota { bytes_soft: 4, bytes_used: 5 << 10, bytes_until: 100, ..Quota::default() };
        assert_eq!((soft_alone.left(99).bytes, soft_alone.left(100).bytes), (u64::MAX, 0));
    }
}
