//! Tests of the agent's server over a pipe.

use super::super::verbs::{CLAIMS, CODEC_NONE, CheckedStage, ClaimtArgs, CopyArgs, StageArgs};
use super::*;
use crate::{Access, Attr, Claimed, Copied, HomeId, HomePath, Kind, Time};
use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex};

/// A home whose changes wait at a gate, as does who asks for what is called `hung`.
#[derive(Default)]
pub(crate) struct Gated {
    open: Mutex<bool>,
    moved: Condvar,
    /// Directories that were watched, whether or not there are such.
    watched: AtomicU64,
    /// What each of them takes by the home's clock, and what for the caller.
    takes: Duration,
    sleeps: Duration,
}

impl Gated {
    pub(crate) fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.moved.notify_all();
    }

    fn pass(&self) {
        let open = self.open.lock().unwrap();
        drop(self.moved.wait_while(open, |open| !*open).unwrap());
    }
}

pub(crate) fn attr(size: u64) -> Attr {
    Attr {
        id: HomeId { fs: 1, ino: size, generation: 0 },
        kind: Kind::File,
        mode: 0o644,
        nlink: 1,
        uid: 1,
        gid: 1,
        size,
        used: size,
        atime: Time::default(),
        mtime: Time::default(),
        ctime: Time::default(),
        access: Access { exec: false, ..Access::ALL },
    }
}

impl Serve for Gated {
    fn copy(&self, op: OpId, _: &[Loc], parts: &[Copied]) -> Result<u64> {
        parts
            .iter()
            .map(|part| self.stage(op, part.at, vec![b'c'; part.len as usize].into()))
            .last()
            .unwrap_or(Ok(0))
    }
    fn claim(&self, _: u64, _: u32, unknown: Vec<u64>) -> Result<Option<Claimed>> {
        Ok(Some(Claimed {
            begun: vec![],
            unknown,
            torn: vec![],
            ran: 7,
            ran_on: Some(3),
            restarted: true,
            booted: Some(Time { sec: 5, nsec: 0 }),
        }))
    }
    fn claim_in(&self, gateway: u64, volume: u32, lost: Vec<u64>, _: &Term) -> Result<Entered> {
        Ok(Entered { kept: true, known: self.claim(gateway, volume, lost)? })
    }
    fn hello(&self) -> Result<Hello> {
        Ok(Hello {
            class: crate::Class::Posix,
            stages: true,
            uid: 7,
            gid: 7,
            groups: vec![7],
            home_dir: HomePath::parse(b"/home/ann").unwrap(),
            token: None,
            token_is_new: false,
            boot_id: Bytes::from_static(b"boot"),
            clock: Time { sec: 1, nsec: 0 },
            place: None,
        })
    }
    fn instant(&self) -> Duration {
        self.takes * self.watched.load(Ordering::Relaxed) as u32
    }
    /// The size is the length of the path.
    fn stat(&self, at: &Loc) -> Result<Seen> {
        match at.path.as_bytes() {
            b"missing" => Err(ErrorKind::NotFound.into()),
            path => {
                if path == b"hung" {
                    self.pass();
                }
                Ok(Seen { applied: 0, attr: attr(path.len() as u64) })
            }
        }
    }
    /// Endless, with long link targets; what is called `small` has one entry.
    fn list(&self, dir: &Loc, _: Option<&Name>, max: u32) -> Result<Page> {
        let max = if dir.path.as_bytes() == b"small" { 1 } else { max };
        let entry = |i: u32| crate::Entry {
            name: Name::new(format!("{i:08}").as_bytes()).unwrap(),
            attr: Some(attr(1)),
            target: Some(vec![b'x'; 4000].into()),
            bare: i.is_multiple_of(3),
        };
        Ok(Page { applied: 0, dir: attr(0), entries: (0..max).map(entry).collect(), more: false })
    }
    fn watch(&self, dir: &Loc, max: u32, _: Option<u64>) -> Result<(Page, bool)> {
        self.watched.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(self.sleeps);
        self.stat(dir)?;
        Ok((self.list(dir, None, max)?, false))
    }
    fn changes(&self) -> Result<crate::posix::watch::News> {
        Err(ErrorKind::Unsupported.into())
    }
    fn read(&self, _: &Loc, at: u64, len: u32) -> Result<Chunk> {
        Ok(Chunk { attr: attr(i64::MAX as u64), data: vec![at as u8; len as usize].into() })
    }
    fn readlink(&self, _: &Loc) -> Result<Bytes> {
        Ok(Bytes::from_static(b"target"))
    }
    fn statfs(&self, _: &Loc) -> Result<StatFs> {
        Err(ErrorKind::Io.into())
    }
    /// Names ascend, and there are too many bytes for one part.
    fn xattrs(&self, _: &Loc, want: Option<&XattrName>) -> Result<Xattrs> {
        let value = Some(Bytes::from(vec![b'v'; crate::limits::XATTR_VALUE_MAX]));
        let xattr = |name: XattrName| crate::Xattr { name, value: value.clone() };
        Ok(Xattrs { applied: 3, attr: attr(1), list: want.cloned().map(xattr).into_iter().collect() })
    }
    fn stage(&self, _: OpId, at: u64, data: Bytes) -> Result<u64> {
        Ok(at + data.len() as u64)
    }
    fn apply(&self, ops: Vec<Placed>) -> Result<Vec<Outcome>> {
        self.pass();
        Ok(ops.iter().map(|_| Outcome::Refused(ErrorKind::Busy)).collect())
    }
}

/// Serves on one end of a socket and gives the other.
pub(crate) fn start<S: Serve>(home: Arc<S>) -> (UnixStream, std::thread::JoinHandle<io::Result<()>>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let output = theirs.try_clone().unwrap();
    let program = Program { hash: [9; 32], platform: "test-cpu".into() };
    (ours, std::thread::spawn(move || serve(home, program, Beside::default(), theirs, output)))
}

fn loc(path: &[u8]) -> Loc {
    Loc { path: HomePath::parse(path).unwrap(), id: None }
}

fn send(stream: &mut UnixStream, class: Class, id: u64, request: &Request) {
    stream.write_all(&Frame::new(Type::Request, class, id, vec![request.to_bytes()]).to_vec()).unwrap();
}

fn receive(stream: &mut UnixStream) -> (Header, Bytes) {
    let header = read_header(stream).unwrap().expect("the server went away");
    let mut body = vec![0; header.length as usize];
    stream.read_exact(&mut body).unwrap();
    (header, body.into())
}

fn greet(stream: &mut UnixStream) {
    greet_with(stream, 0);
}

fn greet_with(stream: &mut UnixStream, features: u64) {
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(b"noise\n").unwrap();
    stream.write_all(&frame::preamble()).unwrap();
    let mut preamble = [0; PREAMBLE_LEN];
    stream.read_exact(&mut preamble).unwrap();
    assert_eq!(preamble, frame::preamble());
    send(stream, Class::Control, 1, &Request::Hello(Offer { codecs: vec![CODEC_NONE], features }));
    let (header, body) = receive(stream);
    assert_eq!((header.kind, header.id), (Type::Reply, 1));
    let Reply::Hello(accept) = Reply::from_bytes(body).unwrap() else { panic!("no greeting") };
    assert_eq!((accept.home.uid, accept.program, accept.window), (7, [9; 32], IN_FLIGHT_MAX as u32));
}

fn an_apply() -> Request {
    Request::Apply(vec![Placed {
        id: OpId { gateway: 1, volume: 1, seq: 1 },
        time: Time::default(),
        plain: false,
        resent: false,
        op: crate::Op::SetAttr { object: loc(b"x"), base: None, set: crate::SetAttr::default() },
    }])
}

#[test]
fn a_copy_has_its_bounds_and_comes_after_what_is_staged() {
    let (mut stream, _server) = start(Arc::new(Gated::default()));
    greet(&mut stream);
    let op = OpId { gateway: 1, volume: 1, seq: 1 };
    let part = Copied { at: 0, from: 0, len: 1 << 20, hash: [0; 32] };
    let mut ask = |id, places: usize, parts: usize| {
        let args = CopyArgs { op, places: vec![loc(b"f"); places], parts: vec![part.clone(); parts] };
        send(&mut stream, Class::Bulk, id, &Request::Copy(args));
        Reply::from_bytes(receive(&mut stream).1).unwrap()
    };
    assert_eq!(ask(2, 4, 16), Reply::Copy(1 << 20));
    for (places, parts) in [(5, 1), (1, 17), (0, 257)] {
        let Reply::Failed(failure) = ask(3, places, parts) else { panic!("too much was taken") };
        assert_eq!(failure.0.kind, ErrorKind::Invalid);
    }
}

#[test]
fn damaged_bytes_are_not_kept() {
    let (mut stream, _server) = start(Arc::new(Gated::default()));
    greet(&mut stream);
    let op = OpId { gateway: 1, volume: 1, seq: 1 };
    let good = CheckedStage::of(StageArgs { op, at: 0, data: Bytes::from_static(b"abc") });
    let bad = CheckedStage { check: [7; 16], ..good.clone() };
    send(&mut stream, Class::Bulk, 2, &Request::Stagec(bad));
    let Reply::Failed(failure) = Reply::from_bytes(receive(&mut stream).1).unwrap() else {
        panic!("it was kept")
    };
    assert_eq!(failure.0.kind, ErrorKind::Damaged);
    send(&mut stream, Class::Bulk, 3, &Request::Stagec(good));
    assert_eq!(Reply::from_bytes(receive(&mut stream).1).unwrap(), Reply::Stagec(3));
}

/// The gate is shut: what is executed has no answer.
#[test]
fn a_damaged_change_is_not_executed() {
    let home = Arc::new(Gated::default());
    let (mut stream, _server) = start(home.clone());
    greet(&mut stream);
    let Request::Apply(ops) = an_apply() else { panic!("no APPLY") };
    let good = Request::Applyc(CheckedOps(Some(ops)));
    let mut bytes = good.to_bytes().to_vec();
    // Of the path.
    let at = bytes.iter().rposition(|b| *b == b'x').unwrap();
    bytes[at] ^= 1;
    let bad = Frame::new(Type::Request, Class::Data, 2, vec![bytes.into()]);
    stream.write_all(&bad.to_vec()).unwrap();
    let (header, body) = receive(&mut stream);
    let Reply::Failed(failure) = Reply::from_bytes(body).unwrap() else { panic!("it was executed") };
    assert_eq!((header.id, failure.0.kind), (2, ErrorKind::Damaged));
    home.open();
    send(&mut stream, Class::Data, 3, &good);
    let refused = Reply::Applyc(vec![Outcome::Refused(ErrorKind::Busy)]);
    assert_eq!(Reply::from_bytes(receive(&mut stream).1).unwrap(), refused);
}

#[test]
fn nothing_waits_behind_a_change_and_the_end_of_input_is_the_end() {
    let home = Arc::new(Gated::default());
    let (mut stream, server) = start(home.clone());
    greet(&mut stream);
    send(&mut stream, Class::Data, 2, &an_apply());
    send(&mut stream, Class::Metadata, 3, &Request::Stat(vec![loc(b"abc"), loc(b"missing")]));
    let (header, body) = receive(&mut stream);
    assert_eq!(header.id, 3, "the change went first");
    let Reply::Stat(results) = Reply::from_bytes(body).unwrap() else { panic!("no STAT") };
    assert!(matches!(&results[0], StatResult::Seen(seen) if seen.attr.size == 3));
    assert!(matches!(&results[1], StatResult::Failed(f) if f.0.kind == ErrorKind::NotFound));
    let next = OpId { gateway: 1, volume: 1, seq: 2 };
    let stage = StageArgs { op: next, at: 5, data: Bytes::from_static(b"next") };
    send(&mut stream, Class::Bulk, 4, &Request::Stage(stage));
    let (header, body) = receive(&mut stream);
    assert_eq!((header.id, Reply::from_bytes(body).unwrap()), (4, Reply::Stage(9)), "the change went first");
    home.open();
    let (header, body) = receive(&mut stream);
    assert_eq!(header.id, 2);
    assert_eq!(Reply::from_bytes(body).unwrap(), Reply::Apply(vec![Outcome::Refused(ErrorKind::Busy)]));
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    server.join().unwrap().unwrap();
}

/// An older client would not understand it.
#[test]
fn how_far_operations_came_is_told_only_to_who_asked_for_it() {
    let booted = Some(Time { sec: 5, nsec: 0 });
    let told = [
        (CLAIMS, (0, None, None)),
        (CLAIMS | PROGRESS, (7, None, None)),
        (CLAIMS | PROGRESS | BOOTS, (7, None, booted)),
        (CLAIMS | PROGRESS | BOOTS | PLACES, (7, Some(3), booted)),
    ];
    for (features, wanted) in told {
        let (mut stream, _server) = start(Arc::new(Gated::default()));
        greet_with(&mut stream, features);
        let args = ClaimArgs { gateway: 1, volume: 1, lost: vec![7, 8] };
        send(&mut stream, Class::Data, 2, &Request::Claim(args));
        let Reply::Claim(Some(claimed)) = Reply::from_bytes(receive(&mut stream).1).unwrap() else {
            panic!("no CLAIM")
        };
        assert_eq!((claimed.ran, claimed.ran_on, claimed.booted), wanted);
        let claim = ClaimArgs { gateway: 1, volume: 1, lost: vec![7, 8] };
        let args = ClaimtArgs { claim, term: Term { known: vec![[1; 16]], new: [2; 16], next: 9 } };
        send(&mut stream, Class::Data, 3, &Request::Claimt(args));
        let in_term = Reply::from_bytes(receive(&mut stream).1).unwrap();
        assert_eq!(in_term, Reply::Claimt(Entered { kept: true, known: Some(claimed.clone()) }));
        assert_eq!(claimed.unknown, [7, 8]);
    }
}

#[test]
fn a_long_read_comes_in_parts() {
    let (mut stream, _server) = start(Arc::new(Gated::default()));
    greet(&mut stream);
    let len = READ_MAX;
    let args = super::super::verbs::ReadArgs { file: loc(b"f"), at: 5, len: u32::MAX };
    send(&mut stream, Class::Data, 2, &Request::Read(args));
    let mut whole = Vec::new();
    loop {
        let (header, body) = receive(&mut stream);
        assert!(header.id == 2 && body.len() <= PART_MAX);
        whole.extend_from_slice(&body);
        if header.kind == Type::Reply {
            break;
        }
    }
    let Reply::Read(chunk) = Reply::from_bytes(whole.into()).unwrap() else { panic!("no READ") };
    assert!(chunk.data.len() == len as usize && chunk.data.iter().all(|b| *b == 5));
}

#[test]
fn a_page_is_bounded_by_bytes() {
    let page = Gated::default().list(&loc(b""), None, LIST_ENTRIES_MAX).unwrap();
    let page = bounded(page);
    assert!(page.more && page.entries.len() > 100);
    assert!(page.to_bytes().len() < LIST_BYTES_MAX + 4096);
}

#[test]
fn what_makes_no_sense_is_answered_and_what_is_no_frame_ends_the_session() {
    let (mut stream, server) = start(Arc::new(Gated::default()));
    stream.write_all(&frame::preamble()).unwrap();
    stream.read_exact(&mut [0; PREAMBLE_LEN]).unwrap();
    let failure = |stream: &mut UnixStream| match Reply::from_bytes(receive(stream).1).unwrap() {
        Reply::Failed(failure) => failure.0.kind,
        other => panic!("{other:?}"),
    };
    send(&mut stream, Class::Metadata, 1, &Request::Readlink(loc(b"x")));
    assert_eq!(failure(&mut stream), ErrorKind::Invalid);
    let garbage = Frame::new(Type::Request, Class::Metadata, 2, vec![Bytes::from_static(b"\0\0\0\x63")]);
    stream.write_all(&garbage.to_vec()).unwrap();
    assert_eq!(failure(&mut stream), ErrorKind::Unsupported);
    stream.write_all(&[0xff; HEADER_LEN]).unwrap();
    assert!(server.join().unwrap().is_err());
}

#[test]
fn a_sign_of_life_is_answered_and_a_cancelled_read_is_not() {
    let home = Arc::new(Gated::default());
    let (mut stream, _server) = start(home);
    greet(&mut stream);
    stream.write_all(&Frame::new(Type::Cancel, Class::Control, 99, Vec::new()).to_vec()).unwrap();
    stream.write_all(&Frame::new(Type::Notice, Class::Control, 1, Vec::new()).to_vec()).unwrap();
    let (header, _) = receive(&mut stream);
    assert_eq!((header.kind, header.id), (Type::Notice, 0));
}

#[test]
fn a_cancelled_job_leaves_the_line() {
    static MORE: AtomicUsize = AtomicUsize::new(0);
    let jobs = Jobs::new(&MORE);
    let request = || Request::Readlink(loc(b"x"));
    let job = |id| Job { id, class: Class::Metadata, pack: false, request: request(), size: 10 };
    assert!(jobs.push(job(1), For::Read) && jobs.push(job(2), For::Read));
    jobs.cancel(1);
    jobs.cancel(7);
    assert_eq!(jobs.next(For::Read, None).map(|j| j.id), Some(2));
    jobs.close();
    assert!([For::Read, For::Staged, For::Change].into_iter().all(|line| jobs.next(line, None).is_none()));
    assert!(!jobs.push(job(3), For::Change));
}

fn a_walk(from: &[&[u8]]) -> Request {
    Request::Walk(WalkArgs { from: from.iter().map(|path| loc(path)).collect(), bytes: 1 << 20 })
}

#[test]
fn a_walk_ends_when_it_took_long_and_has_told_something() {
    for (percent, came, told) in [(60, 3, 1), (30, 4, 2), (15, 6, 4)] {
        let takes = WALK_TIME * percent / 100;
        let home = Gated { takes, ..Gated::default() };
        let (mut stream, _server) = start(Arc::new(home));
        greet(&mut stream);
        send(
            &mut stream,
            Class::Data,
            2,
            &a_walk(&[b"missing", b"missing", b"small", b"small", b"small", b"small"]),
        );
        let Reply::Walk(walked) = Reply::from_bytes(receive(&mut stream).1).unwrap() else {
            panic!("no WALK")
        };
        assert_eq!((walked.came, walked.pages.len()), (came, told), "{takes:?}");
    }
}

/// Begins a long walk, and waits until it is under way.
fn begin_walk() -> (Arc<Gated>, UnixStream, std::thread::JoinHandle<io::Result<()>>) {
    let home = Arc::new(Gated { sleeps: Duration::from_millis(50), ..Gated::default() });
    let (mut stream, server) = start(home.clone());
    greet(&mut stream);
    send(&mut stream, Class::Data, 2, &a_walk(&[&b"small"[..]; WALK_FROM]));
    while home.watched.load(Ordering::Relaxed) == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    (home, stream, server)
}

#[test]
fn a_walk_that_nobody_waits_for_ends() {
    let (home, mut stream, _server) = begin_walk();
    stream.write_all(&Frame::new(Type::Cancel, Class::Control, 2, Vec::new()).to_vec()).unwrap();
    let reply = Reply::from_bytes(receive(&mut stream).1).unwrap();
    assert!(matches!(reply, Reply::Failed(_)), "it was walked to the end");
    assert!(home.watched.load(Ordering::Relaxed) < WALK_FROM as u64);

    let (home, stream, server) = begin_walk();
    drop(stream);
    server.join().unwrap().unwrap();
    let watched = home.watched.load(Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(500));
    assert!(home.watched.load(Ordering::Relaxed) <= watched + 1, "it went on");
}

#[test]
fn paths_that_hang_keep_no_answer_from_others() {
    let home = Arc::new(Gated::default());
    let (mut stream, _server) = start(home.clone());
    greet(&mut stream);
    let hung = 2 + WORKERS as u64..=2 + 2 * WORKERS as u64;
    for id in hung.clone() {
        send(&mut stream, Class::Metadata, id, &Request::Stat(vec![loc(b"hung")]));
    }
    send(&mut stream, Class::Metadata, 2, &Request::Readlink(loc(b"x")));
    let (header, body) = receive(&mut stream);
    assert_eq!((header.id, Reply::from_bytes(body).unwrap()), (2, Reply::Readlink("target".into())));
    home.open();
    let mut answered: Vec<u64> = hung.clone().map(|_| receive(&mut stream).0.id).collect();
    answered.sort_unstable();
    assert_eq!(answered, Vec::from_iter(hung));
}
