//! Homes that are reached by SFTP alone: in how few round trips, and that nothing is lost by it.

use bytes::Bytes;
use home::testing::sshd::{Options, Sshd};
use home::{AgentBinaries, ErrorKind, Home, HomePath, Loc, Name, New, Op, OpId, Outcome, Payload, Piece};
use home::{Placed, RemoteHome, SetAttr, SetTime, Time, connect};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

const GATEWAY: u64 = 0xabc;
const THEN: Time = Time { sec: 1_000_000_000, nsec: 0 };

struct Bench {
    _sshd: Sshd,
    home: Arc<RemoteHome>,
    dir: PathBuf,
    _kept: tempfile::TempDir,
}

fn loc(path: &Path) -> Loc {
    Loc { path: HomePath::parse(path.as_os_str().as_encoded_bytes()).unwrap(), id: None }
}

fn placed(seq: u64, op: Op<Loc, Payload>) -> Placed {
    Placed { id: OpId { gateway: GATEWAY, volume: 1, seq }, time: THEN, plain: false, resent: false, op }
}

impl Bench {
    async fn new() -> Bench {
        let sshd = Sshd::start(&Options::default()).unwrap();
        let home = connect(sshd.target(), AgentBinaries::none());
        home.attach().await.unwrap();
        let kept = tempfile::tempdir().unwrap();
        let dir = kept.path().canonicalize().unwrap();
        Bench { _sshd: sshd, home, dir, _kept: kept }
    }

    fn create(&self, name: &str) -> Op<Loc, Payload> {
        let name = Name::new(name.as_bytes()).unwrap();
        Op::Create { dir: loc(&self.dir), name, new: New::File, mode: 0o640 }
    }

    fn write(&self, name: &str, at: u64, data: Vec<u8>) -> Op<Loc, Payload> {
        let pieces = vec![Piece::Data(at, Payload::Inline(Bytes::from(data)))];
        Op::Write { file: loc(&self.dir.join(name)), base: None, pieces }
    }

    fn date(&self, name: &str, sec: i64) -> Op<Loc, Payload> {
        let mtime = Some(SetTime::At(Time { sec, nsec: 0 }));
        let set = SetAttr { mtime, mode: Some(0o600), ..SetAttr::default() };
        Op::SetAttr { object: loc(&self.dir.join(name)), base: None, set }
    }

    async fn apply(&self, ops: Vec<Op<Loc, Payload>>) -> Vec<Outcome> {
        let ops = ops.into_iter().enumerate().map(|(i, op)| placed(1 + i as u64, op)).collect();
        self.home.apply(ops).await.unwrap()
    }

    fn names(&self) -> Vec<String> {
        let names = fs::read_dir(&self.dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }
}

fn are_done(outcomes: &[Outcome]) -> Vec<bool> {
    outcomes.iter().map(|outcome| matches!(outcome, Outcome::Done(_))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn many_new_files_cost_few_round_trips() {
    let b = Bench::new().await;
    let names: Vec<String> = (0..100).map(|i| format!("f{i:03}")).collect();
    let ops = names
        .iter()
        .flat_map(|n| [b.create(n), b.write(n, 0, n.clone().into_bytes()), b.date(n, 900_000_000)]);
    let before = b.home.status().round_trips;
    let outcomes = b.apply(ops.collect()).await;
    let trips = b.home.status().round_trips - before;
    assert_eq!(are_done(&outcomes), [true; 300]);
    assert!(trips <= 12, "{trips} round trips");
    assert_eq!(b.names(), names);
    for (name, outcomes) in names.iter().zip(outcomes.chunks(3)) {
        assert_eq!(fs::read_to_string(b.dir.join(name)).unwrap(), *name);
        let sizes = outcomes.iter().map(|o| match o {
            Outcome::Done(done) => done.attr.map(|a| (a.size, a.mode, a.mtime.sec)),
            _ => None,
        });
        let then = THEN.sec;
        let expected = [(0, 0o640, then), (4, 0o640, then), (4, 0o600, 900_000_000)].map(Some);
        assert!(sizes.eq(expected), "{name}");
        let there = b.home.stat(&loc(&b.dir.join(name))).await.unwrap().attr;
        let Outcome::Done(done) = &outcomes[2] else { unreachable!() };
        assert_eq!(done.attr.map(|a| a.version()), Some(there.version()), "what we left is what is seen");
    }
}

/// The name of a device, which is not shown, is found to be taken only when it is given.
#[tokio::test(flavor = "multi_thread")]
async fn no_name_is_given_behind_one_that_is_refused() {
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("CI").is_none(), "CI has to run this as root");
        eprintln!("not run: making a device needs root");
        return;
    }
    let b = Bench::new().await;
    let device = rustix::fs::makedev(1, 3);
    let mode = rustix::fs::Mode::from_raw_mode(0o666);
    let made = rustix::fs::mknodat(
        rustix::fs::CWD,
        b.dir.join("device"),
        rustix::fs::FileType::CharacterDevice,
        mode,
        device,
    );
    made.unwrap();
    // So many that naming them all and taking names away again would not have room at the same time.
    let behind: Vec<String> = (0..400).map(|i| format!("c{i}")).collect();
    let names = ["a", "b", "device"].into_iter().chain(behind.iter().map(String::as_str));
    let ops = names.flat_map(|n| [b.create(n), b.write(n, 0, b"ours".to_vec())]).collect();
    let outcomes = tokio::time::timeout(Duration::from_secs(60), b.apply(ops)).await.expect("it hangs");
    assert_eq!(are_done(&outcomes), [true, true, true, true, false]);
    assert!(matches!(outcomes[4], Outcome::Refused(_)), "{:?}", outcomes[4]);
    assert_eq!(b.names(), ["a", "b", "device"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_taken_name_in_a_flight_is_a_conflict_and_nothing_behind_it_is_made() {
    let b = Bench::new().await;
    fs::write(b.dir.join("taken"), "theirs").unwrap();
    let ops = ["a", "taken", "c"].map(|n| [b.create(n), b.write(n, 0, b"ours".to_vec())]);
    let outcomes = b.apply(ops.into_iter().flatten().collect()).await;
    assert_eq!(are_done(&outcomes), [true, true, false]);
    assert!(matches!(outcomes[2], Outcome::Conflict(Some(_))), "{:?}", outcomes[2]);
    assert_eq!(b.names(), ["a", "taken"]);
    assert_eq!(fs::read_to_string(b.dir.join("taken")).unwrap(), "theirs");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_interrupted_flight_left_is_not_shown_and_goes() {
    let b = Bench::new().await;
    let left = |seq: u64| b.dir.join(format!(".trellis-new-{GATEWAY:x}-1-{seq:x}"));
    for seq in [1, 5, 7] {
        fs::write(left(seq), "half").unwrap();
    }
    let page = b.home.list(&loc(&b.dir), None, 100).await.unwrap();
    assert!(page.entries.is_empty(), "{:?}", page.entries);
    // Staged again under the same name.
    let outcomes = b.apply(vec![b.create("f"), b.write("f", 0, b"whole".to_vec())]).await;
    assert_eq!(are_done(&outcomes), [true, true]);
    assert!(!left(1).exists());
    // Sent again after a lost connection.
    let again = Placed { resent: true, ..placed(5, b.create("g")) };
    assert_eq!(are_done(&b.home.apply(vec![again]).await.unwrap()), [true]);
    let remove = |path: &Path, is_dir| {
        let (dir, name) = (path.parent().unwrap(), path.file_name().unwrap());
        let name = Name::new(name.as_encoded_bytes()).unwrap();
        Op::Remove { dir: loc(dir), name, object: loc(path), is_dir, base: None }
    };
    let gone = [remove(&b.dir.join("f"), false), remove(&b.dir.join("g"), false), remove(&b.dir, true)];
    let ops = gone.into_iter().enumerate().map(|(i, op)| placed(10 + i as u64, op)).collect();
    assert_eq!(are_done(&b.home.apply(ops).await.unwrap()), [true; 3]);
    assert!(!b.dir.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_with_what_others_have_there_is_not_removed() {
    let b = Bench::new().await;
    fs::write(b.dir.join(".trellis-new-1-1-1"), "of another gateway").unwrap();
    let (dir, name) = (b.dir.parent().unwrap(), b.dir.file_name().unwrap());
    let name = Name::new(name.as_encoded_bytes()).unwrap();
    let remove = Op::Remove { dir: loc(dir), name, object: loc(&b.dir), is_dir: true, base: None };
    assert_eq!(b.apply(vec![remove]).await, [Outcome::Refused(ErrorKind::NotEmpty)]);
    assert_eq!(b.names(), [".trellis-new-1-1-1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_kept_open_is_read_by_its_name() {
    let b = Bench::new().await;
    let (path, new) = (b.dir.join("big"), b.dir.join("new"));
    fs::write(&path, vec![1; 3 << 20]).unwrap();
    let at = loc(&path);
    let read = |from| b.home.read(&at, from, 1 << 20);
    assert!(read(0).await.unwrap().data == vec![1; 1 << 20]);
    // It is closed when nobody reads it for a while, which a busy machine may take for several reads.
    let mut trips = Vec::new();
    for _ in 0..5 {
        let before = b.home.status().round_trips;
        assert!(read(1 << 20).await.unwrap().data == vec![1; 1 << 20]);
        trips.push(b.home.status().round_trips - before);
    }
    assert!(trips.contains(&1), "it is open: {trips:?}");
    fs::write(&new, vec![2; 5 << 19]).unwrap();
    fs::rename(&new, &path).unwrap();
    let chunk = read(2 << 20).await.unwrap();
    assert_eq!(chunk.attr.size, 5 << 19);
    assert!(chunk.data == vec![2; 1 << 19]);
    fs::remove_file(&path).unwrap();
    assert_eq!(read(0).await.unwrap_err().kind, ErrorKind::NotFound);
}

/// A name that was seen to be a file is opened without another look.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_was_listed_costs_two_round_trips() {
    let b = Bench::new().await;
    let (path, at) = (b.dir.join("f"), loc(&b.dir.join("f")));
    fs::write(&path, vec![7; 1 << 20]).unwrap();
    b.home.list(&loc(&b.dir), None, 100).await.unwrap();
    // Answered behind the end of the listing, which nobody has waited for.
    b.home.stat(&loc(&b.dir)).await.unwrap();
    let before = b.home.status().round_trips;
    // It stays open.
    let chunk = b.home.read(&at, 0, 4096).await.unwrap();
    assert_eq!(b.home.status().round_trips - before, 2);
    assert!(chunk.data == [7; 4096][..]);
    // It has become something else.
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
    assert_eq!(b.home.read(&at, 0, 4096).await.unwrap_err().kind, ErrorKind::Invalid);
}

/// "Racily clean": the second of the last change is not over when the content is read.
#[tokio::test(flavor = "multi_thread")]
async fn a_content_that_may_change_within_its_second_is_not_believed_for_long() {
    let b = Bench::new().await;
    let (path, old) = (b.dir.join("young"), b.dir.join("old"));
    let second = SystemTime::now();
    let write = |path: &Path, text: &str, at: SystemTime| {
        fs::write(path, text).unwrap();
        fs::File::options().write(true).open(path).unwrap().set_modified(at).unwrap();
    };
    write(&path, "aaaa", second);
    write(&old, "aaaa", second - Duration::from_secs(60));
    let version = |path: PathBuf| {
        let home = b.home.clone();
        async move { home.stat(&loc(&path)).await.unwrap().attr.version() }
    };
    let read = b.home.read(&loc(&path), 0, 10).await.unwrap();
    let before = version(old.clone()).await;
    // Of this second, too.
    let ours = Placed { plain: true, ..placed(1, b.create("ours")) };
    let ours = b.home.apply(vec![ours]).await.unwrap();
    write(&path, "bbbb", second);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let later = b.home.read(&loc(&path), 0, 10).await.unwrap();
    assert_eq!((&read.data[..], &later.data[..]), (&b"aaaa"[..], &b"bbbb"[..]));
    assert_eq!((read.attr.size, read.attr.mtime), (later.attr.size, later.attr.mtime), "all that SFTP tells");
    assert_ne!(read.attr.version(), later.attr.version());
    assert!(read.attr.ctime < later.attr.ctime);
    assert_eq!(version(old).await, before, "what is older is believed");
    let Outcome::Done(done) = &ours[0] else { panic!("{ours:?}") };
    assert_eq!(done.attr.unwrap().version(), version(b.dir.join("ours")).await, "so is our own");
    tokio::time::sleep(Duration::from_secs(3)).await;
    let last = version(path.clone()).await;
    assert_ne!(last, later.attr.version());
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(version(path).await, last);
}
