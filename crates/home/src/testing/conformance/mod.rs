//! What every home must do, as many small cases. A new home is right when these pass.
//!
//! ```text
//! conformance(|| async { Subject { home, outside, base, class } }).await;
//! ```

mod batches;
mod changes;
mod conflicts;
mod reading;
mod xattrs;

use crate::attr::{Attr, Time, Version};
use crate::op::{Done, New, Op, OpId, Outcome, Payload, Piece, Placed, SetAttr};
use crate::{Class, ErrorKind, Home, HomePath, Loc, Name, XattrHow, XattrName};
use bytes::Bytes;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A home under test.
#[derive(Clone)]
pub struct Subject {
    /// The home.
    pub home: Arc<dyn Home>,
    /// Another program at the home.
    pub outside: Arc<dyn Outside>,
    /// An empty directory, as the home and `outside` know it.
    pub base: HomePath,
    /// How strong the home has to be.
    pub class: Class,
}

/// What other programs do at a home. Panics if it cannot.
pub trait Outside: Send + Sync {
    /// Makes or overwrites a file; keeps its inode.
    fn write(&self, path: &HomePath, data: &[u8]);
    /// The bytes of a file; `None` if there is none.
    fn read(&self, path: &HomePath) -> Option<Vec<u8>>;
    /// Makes a directory.
    fn mkdir(&self, path: &HomePath);
    /// Makes a symbolic link.
    fn symlink(&self, path: &HomePath, target: &[u8]);
    /// Removes a file, a link or an empty directory.
    fn remove(&self, path: &HomePath);
    /// Moves a name, replacing what is there.
    fn rename(&self, from: &HomePath, to: &HomePath);
    /// All names in a directory, whatever they are, sorted.
    fn names(&self, path: &HomePath) -> Vec<Vec<u8>>;
    /// Sets an extended attribute, or removes it. Answers false where the file system has none.
    fn set_xattr(&self, path: &HomePath, name: &str, value: Option<&[u8]>) -> bool;
    /// The value of an extended attribute.
    fn xattr(&self, path: &HomePath, name: &str) -> Option<Vec<u8>>;
}

/// Programs on this machine, for homes whose path `/` is the directory `root`.
#[derive(Debug, Clone)]
pub struct DirOutside {
    /// Where the home's root is here.
    pub root: PathBuf,
}

impl DirOutside {
    fn path(&self, path: &HomePath) -> PathBuf {
        use std::os::unix::ffi::OsStrExt;
        self.root.join(std::ffi::OsStr::from_bytes(path.as_bytes()))
    }
}

impl Outside for DirOutside {
    fn write(&self, path: &HomePath, data: &[u8]) {
        std::fs::write(self.path(path), data).unwrap();
    }
    fn read(&self, path: &HomePath) -> Option<Vec<u8>> {
        std::fs::read(self.path(path)).ok()
    }
    fn mkdir(&self, path: &HomePath) {
        std::fs::create_dir(self.path(path)).unwrap();
    }
    fn symlink(&self, path: &HomePath, target: &[u8]) {
        use std::os::unix::ffi::OsStrExt;
        std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(target), self.path(path)).unwrap();
    }
    fn remove(&self, path: &HomePath) {
        let path = self.path(path);
        match std::fs::symlink_metadata(&path).unwrap().is_dir() {
            true => std::fs::remove_dir(path).unwrap(),
            false => std::fs::remove_file(path).unwrap(),
        }
    }
    fn rename(&self, from: &HomePath, to: &HomePath) {
        std::fs::rename(self.path(from), self.path(to)).unwrap();
    }
    fn names(&self, path: &HomePath) -> Vec<Vec<u8>> {
        use std::os::unix::ffi::OsStringExt;
        let entries = std::fs::read_dir(self.path(path)).unwrap();
        let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_vec()).collect();
        names.sort();
        names
    }
    fn set_xattr(&self, path: &HomePath, name: &str, value: Option<&[u8]>) -> bool {
        let path = self.path(path);
        let set = match value {
            Some(value) => rustix::fs::lsetxattr(path, name, value, rustix::fs::XattrFlags::empty()),
            None => rustix::fs::lremovexattr(path, name),
        };
        match set {
            Err(rustix::io::Errno::OPNOTSUPP) => return false,
            set => set.unwrap(),
        }
        true
    }
    fn xattr(&self, path: &HomePath, name: &str) -> Option<Vec<u8>> {
        let mut value = vec![0; crate::limits::XATTR_VALUE_MAX];
        let len = rustix::fs::lgetxattr(self.path(path), name, &mut value[..]).ok()?;
        Some(value[..len].to_vec())
    }
}

type Case = fn(Bench) -> Pin<Box<dyn Future<Output = ()> + Send>>;

macro_rules! cases {
    ($($module:ident: $($name:ident),* $(,)?;)*) => {
        &[$($((stringify!($name), |bench| Box::pin($module::$name(bench)))),*),*]
    };
}

const CASES: &[(&str, Case)] = cases! {
    reading: stat_tells_what_is_there, absence_is_not_found, listing_comes_in_pages_and_in_order,
        listing_tells_link_targets, listing_a_file_is_refused, reading_ends_at_the_end,
        reading_what_is_no_file_is_refused, the_account_is_told, space_is_told,
        another_object_is_stale, links_are_not_followed_on_the_way;
    changes: create_every_kind, create_takes_the_mode_as_given, pieces_apply_in_order, holes_read_as_zeros,
        attributes_are_set, remove_and_rmdir, a_full_directory_stays, rename_moves_and_replaces,
        rename_of_directories, link_and_its_count, times_are_exact, plain_works_like_a_program,
        plain_keeps_the_inode, set_id_bits_do_not_reach_files;
    conflicts: a_taken_name_is_a_conflict, a_wanted_state_is_done, a_changed_file_is_not_overwritten,
        a_changed_file_is_not_removed, a_changed_file_is_not_replaced, a_removed_file_is_a_conflict,
        a_replaced_file_is_a_conflict, a_taken_destination_is_a_conflict, a_link_to_a_taken_name_is_a_conflict,
        our_own_changes_are_no_conflict, a_time_is_not_set_on_a_content_that_was_not_seen;
    batches: a_batch_stops_at_the_first_failure, a_repeated_operation_has_its_first_outcome,
        a_resent_operation_finds_itself_done, staged_bytes_are_used_once, bytes_that_are_there_are_staged_if_they_are_meant, nothing_of_ours_stays,
        the_applied_number_moves;
    xattrs: attributes_are_listed_with_their_values, attributes_are_set_and_removed, long_values_are_asked_for_alone,
        attributes_stay_with_a_changed_file, only_files_and_directories_have_attributes,
        plain_attributes_work_like_a_program, a_listing_tells_what_has_no_attributes;
};

/// Runs every case on a subject of its own. Panics with the names of those that failed.
pub async fn conformance<F, Fut>(open: F)
where
    F: Fn() -> Fut,
    Fut: Future<Output = Subject>,
{
    let mut failed = Vec::new();
    for (name, case) in CASES {
        let subject = open().await;
        let dir = subject.base.join(&Name::new(name.as_bytes()).expect("a case's name is a name"));
        subject.outside.mkdir(&dir);
        let bench = Bench { subject, dir, plain: false };
        if tokio::spawn(case(bench)).await.is_err() {
            failed.push(*name);
        }
    }
    assert!(failed.is_empty(), "{} of {} cases failed: {failed:?}", failed.len(), CASES.len());
}

/// One case at work in a directory of its own.
#[derive(Clone)]
struct Bench {
    subject: Subject,
    dir: HomePath,
    /// Whether operations are made plain.
    plain: bool,
}

static SEQ: AtomicU64 = AtomicU64::new(1);

/// When operations are accepted: recent, with nanoseconds that no clock tick has.
const THEN: Time = Time { sec: 1_600_000_000, nsec: 123_456_789 };

impl Bench {
    fn posix(&self) -> bool {
        self.subject.class == Class::Posix
    }

    /// What the home keeps of a time.
    fn kept(&self, time: Time) -> Time {
        if self.posix() { time } else { Time { sec: time.sec, nsec: 0 } }
    }

    fn path(&self, name: &str) -> HomePath {
        name.split('/').fold(self.dir.clone(), |p, n| p.join(&Name::new(n.as_bytes()).unwrap()))
    }

    /// The place of a name, whatever is there.
    fn at(&self, name: &str) -> Loc {
        let path = if name.is_empty() { self.dir.clone() } else { self.path(name) };
        Loc { path, id: None }
    }

    fn write_outside(&self, name: &str, data: &[u8]) {
        self.subject.outside.write(&self.path(name), data);
    }

    fn read_outside(&self, name: &str) -> Option<Vec<u8>> {
        self.subject.outside.read(&self.path(name))
    }

    fn names(&self) -> Vec<String> {
        let names = self.subject.outside.names(&self.dir);
        names.into_iter().map(|n| String::from_utf8(n).unwrap()).collect()
    }

    async fn attr(&self, name: &str) -> Attr {
        self.subject.home.stat(&self.at(name)).await.unwrap().attr
    }

    /// The attributes but for the access time, which looking may change.
    async fn lasting(&self, name: &str) -> Attr {
        lasting(self.attr(name).await)
    }

    async fn version(&self, name: &str) -> Version {
        self.attr(name).await.version()
    }

    /// The place of a name with the identity that is there now.
    async fn here(&self, name: &str) -> Loc {
        Loc { id: Some(self.attr(name).await.id), ..self.at(name) }
    }

    fn placed(&self, op: Op<Loc, Payload>) -> Placed {
        let seq = SEQ.fetch_add(1, Ordering::Relaxed);
        let gateway = u64::from(std::process::id());
        Placed { id: OpId { gateway, volume: 1, seq }, time: THEN, plain: self.plain, resent: false, op }
    }

    async fn apply(&self, placed: Placed) -> Outcome {
        let mut outcomes = self.subject.home.apply(vec![placed]).await.unwrap();
        assert_eq!(outcomes.len(), 1);
        outcomes.remove(0)
    }

    async fn run(&self, op: Op<Loc, Payload>) -> Outcome {
        self.apply(self.placed(op)).await
    }

    async fn done(&self, op: Op<Loc, Payload>) -> Done {
        match self.run(op).await {
            Outcome::Done(done) => done,
            other => panic!("not done: {other:?}"),
        }
    }

    async fn refused(&self, op: Op<Loc, Payload>) -> ErrorKind {
        match self.run(op).await {
            Outcome::Refused(kind) => kind,
            other => panic!("not refused: {other:?}"),
        }
    }

    async fn conflict(&self, op: Op<Loc, Payload>) -> Option<Attr> {
        match self.run(op).await {
            Outcome::Conflict(there) => there,
            other => panic!("no conflict: {other:?}"),
        }
    }

    fn create(&self, name: &str, new: New, mode: u32) -> Op<Loc, Payload> {
        Op::Create { dir: self.at(""), name: Name::new(name.as_bytes()).unwrap(), new, mode }
    }

    fn write(&self, name: &str, base: Option<Version>, at: u64, data: &[u8]) -> Op<Loc, Payload> {
        self.pieces(name, base, vec![data_piece(at, data)])
    }

    fn pieces(&self, name: &str, base: Option<Version>, pieces: Vec<Piece<Payload>>) -> Op<Loc, Payload> {
        Op::Write { file: self.at(name), base, pieces }
    }

    fn remove(&self, name: &str, base: Option<Version>) -> Op<Loc, Payload> {
        self.remove_kind(name, false, base)
    }

    fn remove_kind(&self, name: &str, is_dir: bool, base: Option<Version>) -> Op<Loc, Payload> {
        let (dir, last) = self.path(name).split().unwrap();
        Op::Remove { dir: Loc { path: dir, id: None }, name: last, object: self.at(name), is_dir, base }
    }

    /// A rename that may replace `replaced` under the new name.
    async fn rename(
        &self,
        from: &str,
        to: &str,
        replaced: Option<(Loc, Option<Version>)>,
    ) -> Op<Loc, Payload> {
        let (dir, name) = self.path(from).split().unwrap();
        let (new_dir, new_name) = self.path(to).split().unwrap();
        let object = match self.posix() {
            true => self.here(from).await,
            false => self.at(from),
        };
        let (from, to) = (Loc { path: dir, id: None }, Loc { path: new_dir, id: None });
        Op::Rename { from, name, object, to, new_name, replaced }
    }

    fn link(&self, old: &str, new: &str) -> Op<Loc, Payload> {
        Op::Link { object: self.at(old), dir: self.at(""), name: Name::new(new.as_bytes()).unwrap() }
    }

    fn xattr(&self, name: &str, attribute: &str, value: Option<&[u8]>, how: XattrHow) -> Op<Loc, Payload> {
        let value = value.map(Bytes::copy_from_slice);
        Op::SetXattr { object: self.at(name), name: xattr_name(attribute), value, how }
    }

    fn set(&self, name: &str, set: SetAttr) -> Op<Loc, Payload> {
        Op::SetAttr { object: self.at(name), base: None, set }
    }
}

fn xattr_name(name: &str) -> XattrName {
    XattrName::new(name.as_bytes()).unwrap()
}

fn lasting(attr: Attr) -> Attr {
    Attr { atime: Time::default(), ..attr }
}

fn data_piece(at: u64, data: &[u8]) -> Piece<Payload> {
    Piece::Data(at, Payload::Inline(Bytes::copy_from_slice(data)))
}
