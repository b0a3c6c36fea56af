//! What the conformance suite cannot ask: other programs at the worst moment, faults of the system, and
//! accounts other than root.

mod appends;
mod claims;
mod disks;
mod meddler;
mod moves;
mod power;
mod quiet;
mod races;
mod rests;
mod spools;
mod system;
mod terms;
mod torn;
mod unfenced;
mod unknown;
mod users;
mod watches;

use super::*;
use crate::attr::{Time, Version};
use crate::op::{Done, New, Op, Payload, Piece};
use crate::{HomePath, posix::sys::Sys};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// When operations are accepted.
const THEN: Time = Time { sec: 1_600_000_000, nsec: 123_456_789 };

static SEQ: AtomicU64 = AtomicU64::new(1);

/// A tree in a temporary directory with the directory `w`, and a home directory beside it.
struct Place {
    _temp: tempfile::TempDir,
    root: PathBuf,
}

impl Place {
    fn new() -> Place {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().to_path_buf();
        std::fs::create_dir(root.join("w")).unwrap();
        Place { _temp: temp, root }
    }

    fn open<S: Sys>(&self, sys: S) -> Posix<S> {
        Posix::over(sys, bytes(&self.root)).unwrap().with_home_dir(bytes(&self.root))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn write(&self, name: &str, data: &[u8]) {
        std::fs::write(self.path(name), data).unwrap();
    }

    /// Sets the times of a file to those of another time.
    fn utimes(&self, name: &str) {
        self.set_mtime(name, Time { sec: 1_000_000, nsec: 0 });
    }

    /// Sets the permission bits to what nothing else here has.
    fn chmod(&self, name: &str) {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(self.path(name), PermissionsExt::from_mode(0o700)).unwrap();
    }

    fn set_mtime(&self, name: &str, time: Time) {
        let since = std::time::Duration::new(time.sec as u64, time.nsec);
        let file = std::fs::File::options().read(true).open(self.path(name)).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + since).unwrap();
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    fn names(&self, name: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(name)).unwrap();
        let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

fn at(path: &str) -> Loc {
    Loc { path: HomePath::parse(path.as_bytes()).unwrap(), id: None }
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn placed(op: Op<Loc, Payload>) -> Placed {
    let id = OpId { gateway: 7, volume: 1, seq: SEQ.fetch_add(1, Ordering::Relaxed) };
    Placed { id, time: THEN, plain: false, resent: false, op }
}

fn plainly(op: Op<Loc, Payload>) -> Placed {
    Placed { plain: true, ..placed(op) }
}

fn write(file: &str, base: Option<Version>, offset: u64, data: &[u8]) -> Op<Loc, Payload> {
    let data = Payload::Inline(Bytes::copy_from_slice(data));
    Op::Write { file: at(file), base, pieces: vec![Piece::Data(offset, data)] }
}

fn create(dir: &str, new: &str, mode: u32) -> Op<Loc, Payload> {
    Op::Create { dir: at(dir), name: name(new), new: New::File, mode }
}

fn remove(dir: &str, old: &str, base: Option<Version>) -> Op<Loc, Payload> {
    let object = at(&format!("{dir}/{old}"));
    Op::Remove { dir: at(dir), name: name(old), object, is_dir: false, base }
}

fn version<S: Sys>(home: &Posix<S>, path: &str) -> Version {
    home.stat(&at(path)).unwrap().attr.version()
}

fn one<S: Sys>(home: &Posix<S>, op: Placed) -> Outcome {
    let mut outcomes = home.apply(vec![op]).unwrap();
    assert_eq!(outcomes.len(), 1);
    outcomes.remove(0)
}

fn done<S: Sys>(home: &Posix<S>, op: Op<Loc, Payload>) -> Done {
    match one(home, placed(op)) {
        Outcome::Done(done) => done,
        other => panic!("not done: {other:?}"),
    }
}

/// What is made in a set-gid directory is its group's, and a file stays its owner's whoever writes to it.
#[test]
fn quotas_count_of_whom_bytes_are_charged_to() {
    let place = Place::new();
    place.write("f", b"");
    let home = place.open(sys_real::Linux::default());
    let found = home.stat(&at("f")).unwrap().attr;
    let account = sys::Account { uid: 1, gid: 2, ..home.sys.account() };
    let whom = |kind, mode| charged(&account, &Attr { kind, mode, uid: 3, gid: 4, ..found });
    assert_eq!(whom(Kind::Dir, 0o755), (1, 2));
    assert_eq!(whom(Kind::Dir, 0o2775), (1, 4));
    assert_eq!(whom(Kind::File, 0o664), (3, 4));
}
