//! The file `golden/v1.txt`: the bodies of all requests, answers and news of the protocol, each with its name and its
//! bytes in hexadecimal.
//!
//! A line stays as it is for as long as version 1 is spoken. A new verb adds lines.

use super::verbs::*;
use crate::op::{Spooled, Staged};
use crate::sparse::{KnownPart, Sparse, SparsePart};
use crate::{
    Access, Attr, Believed, Changed, Chunk, Claimed, Class, Copied, Done, Entered, Entry, Error, ErrorKind,
    Hello, HomeId, HomePath, Kind, Loc, Mark, Name, New, Op, OpId, Outcome, Page, Payload, Piece, Placed,
    Seen, SetAttr, SetTime, StatFs, Term, Time, Version, Writable, Xattr, XattrHow, XattrName, Xattrs,
};
use bytes::Bytes;
use oncrpc::xdr::{Xdr, XdrError};
use std::collections::BTreeSet;

const KEPT: &str = include_str!("golden/v1.txt");

/// One body, and whether bytes mean the same.
struct Body {
    name: &'static str,
    bytes: Bytes,
    is_read_from: Box<dyn Fn(Bytes) -> bool>,
}

fn body<T: Xdr + PartialEq + 'static>(name: &'static str, value: T) -> Body {
    let bytes = value.to_bytes();
    Body { name, bytes, is_read_from: Box::new(move |bytes| T::from_bytes(bytes).as_ref() == Ok(&value)) }
}

fn id(n: u64) -> HomeId {
    HomeId { fs: n, ino: n + 1, generation: n + 2 }
}

fn loc(path: &[u8]) -> Loc {
    Loc { path: HomePath::parse(path).unwrap(), id: None }
}

fn known(path: &[u8]) -> Loc {
    Loc { id: Some(id(1)), ..loc(path) }
}

fn name(text: &[u8]) -> Name {
    Name::new(text).unwrap()
}

fn time(n: i64) -> Time {
    Time { sec: n, nsec: 10 }
}

fn attr(kind: Kind) -> Attr {
    Attr {
        id: id(1),
        kind,
        mode: 0o4751,
        nlink: 5,
        uid: 6,
        gid: 7,
        size: 8,
        used: 9,
        atime: time(-1),
        mtime: time(2),
        ctime: time(3),
        access: Access { read: true, write: Writable::ReadOnly, exec: false },
    }
}

fn version() -> Version {
    Version { id: id(1), size: 4, mtime: time(5), ctime: time(6) }
}

fn page() -> Page {
    let entry = |text: &[u8], attr, target| Entry { name: name(text), attr, target, bare: false };
    let target = Some(Bytes::from_static(b"to"));
    let entries = vec![entry(b"a", Some(attr(Kind::Symlink)), target), entry(b"b", None, None)];
    Page { applied: 258, dir: attr(Kind::Dir), entries, more: true }
}

fn bare_page() -> BarePage {
    BarePage { page: page(), bare: Bytes::from_static(b"\x02") }
}

fn op_id(seq: u64) -> OpId {
    OpId { gateway: 1, volume: 2, seq }
}

/// Changes of each kind, with bytes in the message and staged ones.
fn placed() -> Vec<Placed> {
    let create = |text: &[u8], new| Op::Create { dir: loc(b"d"), name: name(text), new, mode: 0o640 };
    let staged = Payload::Staged(Staged { op: op_id(2), at: 3, len: 4 });
    let inline = Payload::Inline(Bytes::from_static(b"xyz"));
    let set = SetAttr {
        mode: Some(1),
        uid: Some(2),
        gid: Some(3),
        atime: Some(SetTime::Now),
        mtime: Some(SetTime::At(time(4))),
    };
    let rename = |replaced| Op::Rename {
        from: loc(b"d"),
        name: name(b"old"),
        object: known(b"d/old"),
        to: loc(b"e"),
        new_name: name(b"new"),
        replaced,
    };
    let user = XattrName::new(b"user.a").unwrap();
    let xattr = |value, how| Op::SetXattr { object: loc(b"f"), name: user.clone(), value, how };
    let remove =
        |is_dir, base| Op::Remove { dir: loc(b"d"), name: name(b"x"), object: loc(b"d/x"), is_dir, base };
    let ops = [
        create(b"file", New::File),
        create(b"dir", New::Dir),
        create(b"link", New::Symlink(Bytes::from_static(b"to"))),
        create(b"pipe", New::Fifo),
        create(b"socket", New::Socket),
        Op::Write { file: known(b"f"), base: Some(version()), pieces: vec![Piece::Data(7, inline)] },
        Op::Write { file: loc(b"f"), base: None, pieces: vec![Piece::Truncate(8), Piece::Data(0, staged)] },
        Op::SetAttr { object: loc(b"f"), base: None, set },
        Op::SetAttr { object: loc(b"f"), base: Some(version()), set: SetAttr::default() },
        remove(false, Some(version())),
        remove(true, None),
        rename(None),
        rename(Some((loc(b"e/new"), Some(version())))),
        Op::Link { object: known(b"f"), dir: loc(b"d"), name: name(b"more") },
        xattr(Some(Bytes::from_static(b"v")), XattrHow::Replace),
        xattr(None, XattrHow::Any),
    ];
    let one = |(op, seq)| Placed { id: op_id(seq), time: time(5), plain: seq == 1, resent: seq == 2, op };
    ops.into_iter().zip(1..).map(one).collect()
}

/// A change with what is held on disk.
fn spooled() -> Vec<Placed> {
    let range = Staged { op: op_id(2), at: 3, len: 4 };
    let pieces = vec![Piece::Data(0, Payload::Spooled(Spooled { range, hash: [7; 32] }))];
    let op = Op::Write { file: loc(b"f"), base: None, pieces };
    vec![Placed { id: op_id(3), time: time(5), plain: false, resent: false, op }]
}

/// A check, though not of these bytes.
const CHECK: [u8; 16] = *b"0123456789abcdef";

fn stage() -> StageArgs {
    StageArgs { op: op_id(3), at: 4, data: Bytes::from_static(b"bytes") }
}

fn chunk() -> Chunk {
    Chunk { attr: attr(Kind::File), data: Bytes::from_static(b"bytes") }
}

fn requests() -> Vec<Body> {
    let list = ListArgs { dir: known(b"d"), after: Some(name(b"last")), max: 1000 };
    let first = ListArgs { dir: loc(b""), after: None, max: 1 };
    let claim = ClaimArgs { gateway: 1, volume: 2, lost: vec![3, 4] };
    let term = Term { known: vec![[0xab; 16], CHECK], new: *b"nobody can guess", next: 258 };
    let believed = Believed { dir: loc(b"d"), mark: 258, digest: *b"0123456789abcdef" };
    let want = XattrsArgs { at: loc(b"f"), want: XattrName::new(b"user.ab").ok() };
    let read = ReadArgs { file: known(b"f"), at: 1 << 40, len: 1 << 20 };
    let parts = vec![Copied { at: 258, from: 3, len: 4, hash: [0xab; 32] }];
    let copy = CopyArgs { op: op_id(3), places: vec![known(b"f"), loc(b"g")], parts };
    let walk = WalkArgs { from: vec![known(b"d"), loc(b"e")], bytes: 258 };
    let offer = Offer { codecs: vec![CODEC_LZ4, CODEC_NONE], features: 127 };
    vec![
        body("HELLO", Request::Hello(offer)),
        body("STAT", Request::Stat(vec![loc(b"a/b"), known(b"c")])),
        body("LIST", Request::List(list.clone())),
        body("LIST the first", Request::List(first)),
        body("READ", Request::Read(read.clone())),
        body("READLINK", Request::Readlink(loc(b"l"))),
        body("STATFS", Request::Statfs(known(b"f"))),
        body("STAGE", Request::Stage(stage())),
        body("APPLY", Request::Apply(placed())),
        body("XATTRS", Request::Xattrs(want)),
        body("LISTX", Request::Listx(list)),
        body("CLAIM", Request::Claim(claim.clone())),
        body("WATCH", Request::Watch(WatchArgs { dir: loc(b"d"), max: 5, mark: 258 })),
        body("CONFIRM", Request::Confirm(vec![believed])),
        body("COPY", Request::Copy(copy)),
        body("READC", Request::Readc(read.clone())),
        body("STAGEC", Request::Stagec(CheckedStage { stage: stage(), check: CHECK })),
        body("READK", Request::Readk(KnownArgs { read, known: vec![258, 3] })),
        body("WALK", Request::Walk(walk)),
        body("APPLYC", Request::Applyc(CheckedOps(Some(placed())))),
        body("SPOOL", Request::Spool(op_id(2))),
        body("UNSPOOL", Request::Unspool(op_id(2))),
        body("APPLY of what is spooled", Request::Apply(spooled())),
        body("CLAIMT", Request::Claimt(ClaimtArgs { claim, term })),
        body("KEEP", Request::Keep(KeepArgs { name: *b"nobody can guess", heard: 258 })),
    ]
}

fn hello() -> Accept {
    let home = Hello {
        class: Class::Posix,
        stages: true,
        uid: 1000,
        gid: 1001,
        groups: vec![1001, 27],
        home_dir: HomePath::parse(b"/home/ann").unwrap(),
        token: Some(*b"random 16 bytes!"),
        token_is_new: true,
        boot_id: Bytes::from_static(b"boot"),
        clock: time(7),
        place: Some(*b"a certain place!"),
    };
    let platform = Bytes::from_static(b"linux-x86_64");
    Accept { codec: CODEC_LZ4, features: 127, window: 64, program: [0xab; 32], pid: 99, platform, home }
}

fn replies() -> Vec<Body> {
    let failure = || Failure(Error::new(ErrorKind::Stale, "gone"));
    let seen = StatResult::Seen(Seen { applied: 3, attr: attr(Kind::File) });
    let space = StatFs { total: 1, free: 2, available: 3, files: 4, files_free: 5 };
    let done = Done { attr: Some(attr(Kind::File)), dirs: vec![attr(Kind::Dir), attr(Kind::Dir)] };
    let outcomes = vec![
        Outcome::Done(done),
        Outcome::Done(Done { attr: None, dirs: vec![] }),
        Outcome::Conflict(Some(attr(Kind::Fifo))),
        Outcome::Conflict(None),
        Outcome::Refused(ErrorKind::NoSpace),
    ];
    let xattr = |text: &[u8], value| Xattr { name: XattrName::new(text).unwrap(), value };
    let list = vec![xattr(b"user.a", Some(Bytes::from_static(b"v"))), xattr(b"user.b", None)];
    let claimed =
        Claimed { begun: vec![3], unknown: vec![4, 5], torn: vec![5], restarted: true, ..Claimed::default() };
    let progress = Claimed { ran: 3, ..claimed.clone() };
    let booted = Claimed { booted: Some(Time { sec: 1, nsec: 2 }), ..progress.clone() };
    let on = Claimed { ran_on: Some(9), ..booted.clone() };
    let watched = WatchedPage { page: bare_page(), watched: true };
    let parts = vec![
        SparsePart::Bytes(Bytes::from_static(b"ab")),
        SparsePart::Known(KnownPart { index: 1, skip: 2, len: 3 }),
    ];
    let sparse = Sparse { attr: attr(Kind::File), parts, hash: [0xab; 32] };
    let same = Confirmed { applied: 3, watched: true, bare: Bytes::from_static(b"\x05") };
    let confirmed = vec![
        ConfirmResult::Unlike,
        ConfirmResult::Same(same),
        ConfirmResult::Page(watched.clone()),
        ConfirmResult::Failed(failure()),
    ];
    let below = WalkedPage { path: HomePath::parse(b"d/e").unwrap(), page: watched.clone() };
    let walked = WalkedPages { came: 2, pages: vec![below] };
    vec![
        body("failed", Reply::Failed(failure())),
        body("HELLO's answer", Reply::Hello(hello())),
        body("STAT's answer", Reply::Stat(vec![seen, StatResult::Failed(failure())])),
        body("LIST's answer", Reply::List(page())),
        body("READ's answer", Reply::Read(chunk())),
        body("READLINK's answer", Reply::Readlink(Bytes::from_static(b"../target"))),
        body("STATFS's answer", Reply::Statfs(space)),
        body("STAGE's answer", Reply::Stage(258)),
        body("APPLY's answer", Reply::Apply(outcomes.clone())),
        body("XATTRS's answer", Reply::Xattrs(Xattrs { applied: 3, attr: attr(Kind::File), list })),
        body("LISTX's answer", Reply::Listx(bare_page())),
        body("CLAIM's answer", Reply::Claim(Some(claimed.clone()))),
        body("CLAIM's answer with progress", Reply::Claim(Some(progress))),
        body("CLAIM's answer with the machine's start", Reply::Claim(Some(booted))),
        body("CLAIM's answer with a file system", Reply::Claim(Some(on))),
        body("CLAIM's answer where nothing is known", Reply::Claim(None)),
        body("WATCH's answer", Reply::Watch(watched)),
        body("CONFIRM's answer", Reply::Confirm(confirmed)),
        body("COPY's answer", Reply::Copy(258)),
        body("READC's answer", Reply::Readc(CheckedChunk { chunk: chunk(), check: CHECK })),
        body("STAGEC's answer", Reply::Stagec(258)),
        body("READK's answer", Reply::Readk(sparse)),
        body("WALK's answer", Reply::Walk(walked)),
        body("APPLYC's answer", Reply::Applyc(outcomes)),
        body("SPOOL's answer", Reply::Spool(258)),
        body("UNSPOOL's answer", Reply::Unspool(true)),
        body("CLAIMT's answer", Reply::Claimt(Entered { kept: true, known: Some(claimed) })),
        body("KEEP's answer", Reply::Keep(true)),
    ]
}

fn news() -> Vec<Body> {
    let changed = |mark| Changed { mark, all: false, itself: true, names: vec![name(b"ab")] };
    vec![
        body("news", News::Changed(vec![changed(258.into())])),
        body("news lost", News::Lost),
        body("news of what a walk came to", News::Changed(vec![changed(Mark::Walked(id(1)))])),
    ]
}

#[test]
fn every_message_has_its_golden_bytes() {
    let kept: Vec<(&str, &str)> = KEPT.lines().filter_map(|line| line.split_once(": ")).collect();
    let all: Vec<Body> = requests().into_iter().chain(replies()).chain(news()).collect();
    for (i, body) in all.iter().enumerate() {
        let hex: String = body.bytes.iter().map(|b| format!("{b:02x}")).collect();
        let line = (body.name, hex.as_str());
        assert_eq!(kept.get(i), Some(&line), "line {}: {}: {}", i + 1, line.0, line.1);
        assert!((body.is_read_from)(body.bytes.clone()), "{} is read as something else", body.name);
    }
    assert_eq!(kept.len(), all.len());
}

/// The kinds of a union that are decoded, of the first hundred.
fn known_kinds<T: Xdr>() -> BTreeSet<u32> {
    // What is known wants more bytes, or none.
    let known = |kind: &u32| !matches!(T::from_bytes(kind.to_bytes()), Err(XdrError::OutOfRange));
    (0..100).filter(known).collect()
}

fn kinds(bodies: &[Body]) -> BTreeSet<u32> {
    bodies.iter().map(|body| u32::from_be_bytes(body.bytes[..4].try_into().unwrap())).collect()
}

#[test]
fn no_verb_lacks_its_golden_bytes() {
    assert_eq!(kinds(&requests()), known_kinds::<Request>());
    assert_eq!(kinds(&replies()), known_kinds::<Reply>());
    assert_eq!(kinds(&news()), known_kinds::<News>());
}
