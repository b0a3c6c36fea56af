//! Homes that are reached by SFTP alone: in how few round trips, and that nothing is lost by it.

use bytes::Bytes;
use home::testing::sshd::{self, Options, Sshd};
use home::{
    AgentBinaries, ErrorKind, Home, HomePath, Kind, Loc, Name, New, Op, OpId, Outcome, Payload, Piece,
};
use home::{Placed, RemoteHome, SetAttr, SetTime, Time, connect};
use rustix::fs::{AtFlags, CWD, FileType, Mode, RenameFlags, linkat, makedev, mknodat, renameat_with};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
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
        Bench::with(&Options::default()).await
    }

    async fn with(options: &Options) -> Bench {
        let sshd = Sshd::start(options).unwrap();
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

/// So many that naming them all and taking names away again would not have room at the same time.
const BEHIND: usize = 400;

impl Bench {
    /// Makes a device, whose name is not shown, so that it is found to be taken only when it is given to another file.
    /// Answers whether it may.
    fn make_device(&self) -> bool {
        if !rustix::process::geteuid().is_root() {
            assert!(std::env::var_os("CI").is_none(), "CI has to run this as root");
            eprintln!("not run: making a device needs root");
            return false;
        }
        let (path, mode) = (self.dir.join("device"), Mode::from_raw_mode(0o666));
        mknodat(CWD, path, FileType::CharacterDevice, mode, makedev(1, 3)).unwrap();
        true
    }

    /// Makes two files, and many behind a name that is refused.
    async fn make_behind_device(&self) -> Vec<Outcome> {
        let behind: Vec<String> = (0..BEHIND).map(|i| format!("c{i}")).collect();
        let names = ["a", "b", "device"].into_iter().chain(behind.iter().map(String::as_str));
        let ops = names.flat_map(|n| [self.create(n), self.write(n, 0, b"ours".to_vec())]).collect();
        let outcomes = tokio::time::timeout(Duration::from_secs(60), self.apply(ops)).await;
        outcomes.expect("it hangs")
    }

    /// A program at the home that tries something over and over until it is done. Answers whether it was in time.
    fn meanwhile(
        &self,
        mut tries: impl FnMut(&Path) -> Option<bool> + Send + 'static,
    ) -> (Arc<AtomicBool>, JoinHandle<bool>) {
        let (late, dir) = (Arc::new(AtomicBool::new(false)), self.dir.clone());
        let is_late = late.clone();
        let run = move || {
            while !is_late.load(Ordering::Relaxed) {
                if let Some(in_time) = tries(&dir) {
                    return in_time;
                }
                std::thread::sleep(Duration::from_micros(50));
            }
            false
        };
        (late, std::thread::spawn(run))
    }
}

/// Whether the program was in time for its work.
fn was_in_time((late, program): (Arc<AtomicBool>, JoinHandle<bool>)) -> bool {
    late.store(true, Ordering::Relaxed);
    program.join().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_name_is_given_behind_one_that_is_refused() {
    let b = Bench::new().await;
    if !b.make_device() {
        return;
    }
    let outcomes = b.make_behind_device().await;
    assert_eq!(are_done(&outcomes), [true, true, true, true, false]);
    assert!(matches!(outcomes[4], Outcome::Refused(_)), "{:?}", outcomes[4]);
    assert_eq!(b.names(), ["a", "b", "device"]);
}

/// The first names behind the refused one are taken away last.
#[tokio::test(flavor = "multi_thread")]
async fn what_others_put_or_wrote_under_a_name_that_is_taken_away_again_stays() {
    let mut in_time = [0; 2];
    for _ in 0..20 {
        let b = Bench::new().await;
        if !b.make_device() {
            return;
        }
        for name in ["theirs", "theirs too"] {
            fs::write(b.dir.join(name), name).unwrap();
        }
        let swap = |dir: &Path| {
            let (theirs, name) = (dir.join("theirs"), dir.join("c0"));
            renameat_with(CWD, theirs, CWD, name, RenameFlags::EXCHANGE).is_ok().then_some(true)
        };
        let append = |dir: &Path| {
            let name = dir.join("c1");
            let mut file = fs::File::options().append(true).open(&name).ok()?;
            file.write_all(b" and theirs").unwrap();
            Some(fs::metadata(&name).is_ok_and(|there| there.ino() == file.metadata().unwrap().ino()))
        };
        // Once c0 was theirs, another one gets the name as soon as nothing has it.
        let link = |dir: &Path| {
            let (theirs, name) = (dir.join("theirs too"), dir.join("c0"));
            let is_swapped = fs::read(dir.join("theirs")).is_ok_and(|there| there == b"ours");
            (is_swapped && linkat(CWD, theirs, CWD, name, AtFlags::empty()).is_ok()).then_some(true)
        };
        let programs = [b.meanwhile(swap), b.meanwhile(append), b.meanwhile(link)];
        let outcomes = b.make_behind_device().await;
        let [swapped, appended, linked] = programs.map(was_in_time);
        assert_eq!(are_done(&outcomes), [true, true, true, true, false]);
        let read = |name: &str| fs::read_to_string(b.dir.join(name)).unwrap();
        let mut wanted = vec!["a", "b", "device", "theirs", "theirs too"];
        if swapped {
            wanted.push("c0");
            assert_eq!(read("theirs"), "ours", "that had the name");
            let kept = format!("trellis-kept-{GATEWAY:x}-1-7");
            match linked {
                true => assert_eq!((&*read("c0"), &*read(&kept)), ("theirs too", "theirs")),
                false => assert_eq!(read("c0"), "theirs"),
            }
        }
        if appended {
            wanted.push("c1");
            assert_eq!(read("c1"), "ours and theirs");
        }
        wanted.sort_unstable();
        // Of what was written too late nobody knows where it went.
        let known = |name: &String| !name.starts_with("trellis-kept") && (appended || name != "c1");
        let names: Vec<_> = b.names().into_iter().filter(known).collect();
        assert_eq!(names, wanted);
        for (count, was) in in_time.iter_mut().zip([appended, linked]) {
            *count += u32::from(was);
        }
        if in_time.iter().all(|count| *count > 0) {
            return;
        }
    }
    panic!("no other program was in time: {in_time:?}");
}

/// A write in place goes to the file that was looked at, however many parts it has.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_in_place_never_goes_to_another_file_that_gets_the_name() {
    const LEN: usize = 48 << 20;
    let data: Vec<u8> = (0..LEN as u32).map(|i| (i >> 8 ^ i) as u8).collect();
    for _ in 0..20 {
        let b = Bench::new().await;
        fs::write(b.dir.join("f"), "").unwrap();
        fs::write(b.dir.join("theirs"), "theirs").unwrap();
        let program = b.meanwhile(|dir| {
            let (name, theirs) = (dir.join("f"), dir.join("theirs"));
            if fs::metadata(&name).unwrap().len() < 1 << 20 {
                return None;
            }
            renameat_with(CWD, &theirs, CWD, &name, RenameFlags::EXCHANGE).unwrap();
            Some(fs::metadata(&theirs).unwrap().len() < LEN as u64)
        });
        let outcomes = b.apply(vec![b.write("f", 0, data.clone())]).await;
        if was_in_time(program) {
            assert!(fs::read(b.dir.join("theirs")).unwrap() == data, "all of it where it began");
            assert_eq!(fs::read_to_string(b.dir.join("f")).unwrap(), "theirs");
            let [Outcome::Conflict(Some(there))] = &outcomes[..] else { panic!("{outcomes:?}") };
            assert_eq!(there.size, 6, "whoever opens it does not find what was written");
            return;
        }
        assert_eq!(are_done(&outcomes), [true]);
    }
    panic!("the other program was never in time");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipe_in_the_place_of_a_known_file_stops_no_write() {
    let b = Bench::new().await;
    let path = b.dir.join("f");
    fs::write(&path, "before").unwrap();
    let base = b.home.stat(&loc(&path)).await.unwrap().attr.version();
    fs::remove_file(&path).unwrap();
    mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let mut write = b.write("f", 0, b"ours".to_vec());
    let Op::Write { base: of, .. } = &mut write else { unreachable!() };
    *of = Some(base);
    let outcomes = tokio::time::timeout(Duration::from_secs(10), b.apply(vec![write])).await;
    let outcomes = outcomes.expect("the server waits for somebody at the other end of the pipe");
    let [Outcome::Conflict(Some(there))] = &outcomes[..] else { panic!("{outcomes:?}") };
    assert_eq!(there.kind, Kind::Fifo);
}

/// An owner may write what he may not read, and what is read-only to him; making an account needs root.
#[tokio::test(flavor = "multi_thread")]
async fn what_forbids_its_owner_to_read_or_to_write_is_written() {
    let user = "trellis-ann";
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("CI").is_none(), "CI has to run this as root");
        eprintln!("not run: making an account needs root");
        return;
    }
    sshd::account(user, "/bin/bash").unwrap();
    let b = Bench::with(&Options { user: Some(user.into()), ..Options::default() }).await;
    let owner = fs::metadata(Path::new("/home").join(user)).unwrap();
    let own = |path: &Path| std::os::unix::fs::chown(path, Some(owner.uid()), Some(owner.gid())).unwrap();
    own(&b.dir);
    for mode in [0o200, 0o400] {
        let path = b.dir.join(format!("{mode:o}"));
        fs::write(&path, "before").unwrap();
        own(&path);
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        b.home.stat(&loc(&path)).await.unwrap();
        let write = placed(u64::from(mode), b.write(&format!("{mode:o}"), 0, b"ours".to_vec()));
        assert_eq!(are_done(&b.home.apply(vec![write]).await.unwrap()), [true], "{mode:o}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "oursre");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, mode);
    }
    let path = b.dir.join("theirs");
    fs::write(&path, "theirs").unwrap();
    let outcomes = b.apply(vec![b.write("theirs", 0, b"ours".to_vec())]).await;
    assert_eq!(outcomes, [Outcome::Refused(ErrorKind::Access)]);
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
    let (path, at) = (b.dir.join("f0"), loc(&b.dir.join("f0")));
    (0..5).for_each(|i| fs::write(b.dir.join(format!("f{i}")), vec![7; 1 << 20]).unwrap());
    b.home.list(&loc(&b.dir), None, 100).await.unwrap();
    // Answered behind the end of the listing, which nobody has waited for.
    b.home.stat(&loc(&b.dir)).await.unwrap();
    // On a busy machine one of them was seen to take three.
    let mut trips = Vec::new();
    for i in 0..5 {
        let before = b.home.status().round_trips;
        // It stays open.
        let chunk = b.home.read(&loc(&b.dir.join(format!("f{i}"))), 0, 4096).await.unwrap();
        assert!(chunk.data == [7; 4096][..]);
        trips.push(b.home.status().round_trips - before);
    }
    assert_eq!(trips.iter().min(), Some(&2), "{trips:?}");
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
