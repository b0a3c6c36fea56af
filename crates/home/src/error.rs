//! One neutral set of reasons; each protocol maps it to its own numbers at its edge.

use std::fmt;

oncrpc::xdr! {
    /// Why something did not happen.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum ErrorKind {
        /// No such object.
        NotFound = 1,
        /// The name is taken.
        Exists = 2,
        /// Not a directory.
        NotDir = 3,
        /// A directory where none may be.
        IsDir = 4,
        /// The directory is not empty.
        NotEmpty = 5,
        /// Permission bits or policy forbid it.
        Access = 6,
        /// Only the owner or a privileged user may.
        Perm = 7,
        /// The object is gone, or another one is in its place.
        Stale = 8,
        /// A name or path is too long.
        NameTooLong = 9,
        /// An argument makes no sense.
        Invalid = 10,
        /// No space.
        NoSpace = 11,
        /// Quota exceeded.
        Quota = 12,
        /// Read-only file system.
        ReadOnly = 13,
        /// The file would become too large.
        TooBig = 14,
        /// Too many symbolic links.
        Loop = 15,
        /// Different file systems.
        CrossDevice = 16,
        /// Too many hard links.
        TooManyLinks = 17,
        /// The home cannot do that.
        Unsupported = 18,
        /// Input or output failed.
        Io = 19,
        /// Not yet; nothing happened, try again.
        Busy = 20,
        /// No connection; whether it happened is unknown.
        Unreachable = 21,
        /// The home does not let us in unasked; `trellis login` answers its questions.
        Login = 22,
        /// No such host.
        UnknownHost = 23,
        /// Staged data is no longer held.
        NotStaged = 24,
        /// A setattr's guard did not match.
        NotSync = 25,
        /// The file is being executed or is in use at the home.
        TextBusy = 26,
        /// Another owner's lock is in the way.
        Locked = 27,
        /// Waiting for the lock would never end.
        Deadlock = 28,
        /// Too many locks.
        NoLocks = 29,
        /// The object has no extended attribute of that name.
        NoAttribute = 30,
        /// Another agent writes for the volume; nothing happened, claim it first.
        NotClaimed = 31,
        /// No room here until the home has what is unsent; nothing happened, try again.
        Full = 32,
        /// No login gets there before a person has put something else right; the text says what.
        Setup = 33,
        /// Whether there is such a host cannot be found out now: no name server answers.
        NameServer = 34,
        /// Bytes did not arrive as they were sent; nothing happened, send them again.
        Damaged = 35,
        /// The home has later changes of the state directory than that knows of: it is a copy, or was put back. Nothing happened.
        Superseded = 36,
    }
}

impl ErrorKind {
    /// Whether it lasts until a person has done something, at which nobody should knock often meanwhile.
    pub fn needs_person(self) -> bool {
        matches!(self, ErrorKind::Login | ErrorKind::Setup)
    }

    /// Whether it says more about the way to the home than about the home.
    pub fn is_of_the_way(self) -> bool {
        let lost = matches!(self, ErrorKind::Unreachable | ErrorKind::UnknownHost | ErrorKind::NameServer);
        lost || self.needs_person()
    }

    /// Whether nothing happened, and may happen if it is tried again.
    pub fn may_pass(self) -> bool {
        matches!(self, ErrorKind::Busy | ErrorKind::Full)
    }
}

/// A reason with a sentence for a person.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Error {
    /// The reason.
    pub kind: ErrorKind,
    /// What happened to what, and what to do about it.
    pub detail: String,
}

/// The result of everything that asks a home.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A reason with its sentence.
    pub fn new(kind: ErrorKind, detail: impl Into<String>) -> Error {
        Error { kind, detail: detail.into() }
    }

    /// From a number of errno(3).
    pub fn from_errno(errno: i32, doing: &str) -> Error {
        let io = std::io::Error::from_raw_os_error(errno);
        Error::new(kind_of_errno(errno), format!("{doing}: {}", io_text(&io)))
    }
}

/// What the system says of an error, without its number: that is for programs.
pub fn io_text(e: &std::io::Error) -> String {
    let text = e.to_string();
    let number = e.raw_os_error().map(|errno| format!(" (os error {errno})"));
    number.and_then(|number| text.strip_suffix(&number)).unwrap_or(&text).to_owned()
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Error {
        Error::new(kind, kind.to_string())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ErrorKind::NotFound => "no such file or directory",
            ErrorKind::Exists => "already exists",
            ErrorKind::NotDir => "not a directory",
            ErrorKind::IsDir => "is a directory",
            ErrorKind::NotEmpty => "directory not empty",
            ErrorKind::Access => "permission denied",
            ErrorKind::Perm => "operation not permitted",
            ErrorKind::Stale => "stale file handle",
            ErrorKind::NameTooLong => "name too long",
            ErrorKind::Invalid => "invalid argument",
            ErrorKind::NoSpace => "no space left",
            ErrorKind::Quota => "quota exceeded",
            ErrorKind::ReadOnly => "read-only file system",
            ErrorKind::TooBig => "file too large",
            ErrorKind::Loop => "too many symbolic links",
            ErrorKind::CrossDevice => "different file systems",
            ErrorKind::TooManyLinks => "too many links",
            ErrorKind::Unsupported => "not supported by the home",
            ErrorKind::Io => "input/output error",
            ErrorKind::Busy => "not yet, try again",
            ErrorKind::Unreachable => "the home does not answer",
            ErrorKind::Login => "the home does not let us in",
            ErrorKind::UnknownHost => "unknown host",
            ErrorKind::NotStaged => "staged data is no longer held",
            ErrorKind::NotSync => "attributes changed meanwhile",
            ErrorKind::TextBusy => "file is in use at the home",
            ErrorKind::Locked => "locked by another owner",
            ErrorKind::Deadlock => "waiting for the lock would be a deadlock",
            ErrorKind::NoLocks => "too many locks",
            ErrorKind::NoAttribute => "no such extended attribute",
            ErrorKind::NotClaimed => "another agent writes for the volume",
            ErrorKind::Setup => "the way to the home has to be put right",
            ErrorKind::NameServer => "no name server answers",
            ErrorKind::Damaged => "bytes are damaged",
            ErrorKind::Superseded => "the state directory is an earlier one",
            ErrorKind::Full => "no room here until the home has what is unsent",
        })
    }
}

fn kind_of_errno(errno: i32) -> ErrorKind {
    match errno {
        libc::ENOENT => ErrorKind::NotFound,
        libc::EEXIST => ErrorKind::Exists,
        libc::ENOTDIR => ErrorKind::NotDir,
        libc::EISDIR => ErrorKind::IsDir,
        libc::ENOTEMPTY => ErrorKind::NotEmpty,
        libc::EACCES => ErrorKind::Access,
        libc::EPERM => ErrorKind::Perm,
        libc::ESTALE => ErrorKind::Stale,
        libc::ENAMETOOLONG => ErrorKind::NameTooLong,
        libc::EINVAL => ErrorKind::Invalid,
        libc::ENOSPC => ErrorKind::NoSpace,
        libc::EDQUOT => ErrorKind::Quota,
        libc::EROFS => ErrorKind::ReadOnly,
        libc::EFBIG => ErrorKind::TooBig,
        libc::ELOOP => ErrorKind::Loop,
        libc::EXDEV => ErrorKind::CrossDevice,
        libc::EMLINK => ErrorKind::TooManyLinks,
        libc::ENOSYS | libc::EOPNOTSUPP => ErrorKind::Unsupported,
        libc::EAGAIN | libc::EBUSY => ErrorKind::Busy,
        libc::ENODATA => ErrorKind::NoAttribute,
        libc::E2BIG => ErrorKind::TooBig,
        libc::ETXTBSY => ErrorKind::TextBusy,
        _ => ErrorKind::Io,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_of_an_error_reaches_a_person() {
        let e = Error::from_errno(libc::EACCES, "/x");
        assert_eq!((e.kind, e.detail.as_str()), (ErrorKind::Access, "/x: Permission denied"));
        assert_eq!(io_text(&std::io::Error::other("why (os error 5)")), "why (os error 5)");
    }
}
