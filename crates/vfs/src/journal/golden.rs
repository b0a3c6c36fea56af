//! The file `golden/v1.log`: the records of a journal segment of format version 1, of each kind, without the zeros
//! behind them.
//!
//! It stays as it is. Whatever version is written one day, this one is still read. `data/golden/v1.seg` has the bytes
//! of the extent that it names.

use super::segment::{HEADER_LEN, Head, Header};
use super::tests::{Process, SMALL, start, wait};
use super::*;
use crate::data::golden::{self as data, of_version, put_file, same_bytes};
use crate::env::testing::SimDisk;
use bytes::Bytes;
use home::{
    Access, Attr, ErrorKind, HomeId, Kind, Name, New, Op, Piece, SetAttr, SetTime, Time, Version, Writable,
    XattrHow, XattrName,
};

const SEGMENT: &[u8] = include_bytes!("golden/v1.log");
const AT: &str = "journal/00000007/0000000000000001.log";
const LIMITS: Limits = Limits { segment: 16 << 10, ..SMALL };

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn attribute(text: &str) -> XattrName {
    XattrName::new(text.as_bytes()).unwrap()
}

fn time(n: i64) -> Time {
    Time { sec: n, nsec: 123_456_789 }
}

fn version(n: u64) -> Version {
    let id = HomeId { fs: 0xf5, ino: n, generation: n + 1 };
    Version { id, size: n + 2, mtime: time(-1), ctime: time(3) }
}

fn attr() -> Attr {
    Attr {
        id: HomeId { fs: 1, ino: 2, generation: 3 },
        kind: Kind::File,
        mode: 0o6751,
        nlink: 4,
        uid: 5,
        gid: 6,
        size: 7,
        used: 8,
        atime: time(9),
        mtime: time(10),
        ctime: time(11),
        access: Access { read: true, write: Writable::ReadOnly, exec: false },
    }
}

fn full_binding() -> Binding {
    Binding {
        object: 21,
        parent: 22,
        name: Some(name("a name")),
        id: HomeId { fs: 23, ino: 24, generation: 25 },
        kind: Kind::Socket,
        version: Some(version(26)),
        fileid: 27,
        ctime_shown: Some(time(28)),
        verifier: Some(*b"verifier"),
        more: vec![Place { parent: 29, name: name("another") }],
    }
}

fn bare_binding() -> Binding {
    Binding {
        object: 31,
        parent: 0,
        name: None,
        id: HomeId::default(),
        kind: Kind::Dir,
        version: None,
        fileid: 32,
        ctime_shown: None,
        verifier: None,
        more: Vec::new(),
    }
}

fn change(object: u64, op: Op<u64, Stored>) -> Change {
    Change { time: time(1000), object, after: None, op, retry: None, verifier: None, plain: false }
}

/// All kinds of changes; the fields that a reply is made of are in the first one.
fn changes() -> Vec<Change> {
    let create = |text: &str, new| Op::Create { dir: 40, name: name(text), new, mode: 0o4640 };
    let first = change(41, create("file", New::File));
    let reply =
        Change { after: Some(attr()), retry: Some(*b"client and xid !"), verifier: Some([7; 8]), ..first };
    let write = |base, pieces| Op::Write { file: 41, base, pieces };
    let inline = Stored::Inline(Bytes::from_static(b"in the record"));
    let all = SetAttr {
        mode: Some(0o1777),
        uid: Some(50),
        gid: Some(51),
        atime: Some(SetTime::Now),
        mtime: Some(SetTime::At(time(52))),
    };
    let remove = |is_dir, base| Op::Remove { dir: 40, name: name("old"), object: 60, is_dir, base };
    let rename = |replaced| Op::Rename {
        from: 40,
        name: name("from"),
        object: 41,
        to: 61,
        new_name: name("to"),
        replaced,
    };
    let xattr = |value, how| Op::SetXattr { object: 41, name: attribute("user.key"), value, how };
    let value = Some(Bytes::from_static(b"value"));
    let ops = [
        create("dir", New::Dir),
        create("link", New::Symlink(Bytes::from_static(b"../target"))),
        create("pipe", New::Fifo),
        create("socket", New::Socket),
        write(Some(version(43)), vec![Piece::Data(5, inline)]),
        write(None, vec![Piece::Truncate(1 << 40), Piece::Data(8192, Stored::Extent(data::DIRTY))]),
        write(None, vec![Piece::Truncate(0)]),
        Op::SetAttr { object: 41, base: None, set: all },
        Op::SetAttr { object: 41, base: Some(version(53)), set: SetAttr::default() },
        remove(false, Some(version(60))),
        remove(true, None),
        rename(None),
        rename(Some((62, None))),
        rename(Some((62, Some(version(63))))),
        Op::Link { object: 41, dir: 61, name: name("second") },
        xattr(value.clone(), XattrHow::Any),
        xattr(value.clone(), XattrHow::Create),
        xattr(value, XattrHow::Replace),
        xattr(None, XattrHow::Any),
    ];
    let rest = ops.into_iter().map(|op| change(41, op));
    let plain = Change { plain: true, ..change(41, write(None, vec![Piece::Truncate(9)])) };
    [reply].into_iter().chain(rest).chain([plain]).collect()
}

/// The records, the first of which has number 1.
fn bodies() -> Vec<Body> {
    let mut all = vec![Body::Bind(vec![full_binding(), bare_binding()]), Body::Bind(Vec::new())];
    all.extend(changes().into_iter().map(Body::Change));
    let amended = Op::Create { dir: 40, name: name("file.copy"), new: New::File, mode: 0o600 };
    all.push(Body::Amend(Amend { seq: 3, op: amended }));
    all.push(Body::Late(5));
    let fates = [
        Fate::Done(vec![full_binding(), bare_binding()]),
        Fate::Refused(ErrorKind::Quota),
        Fate::Conflict,
        Fate::Dropped,
    ];
    all.extend(fates.into_iter().zip(3..).map(|(how, seq)| Body::Retire(Retire { seq, how })));
    all.push(Body::Vanish(vec![7, 8]));
    all
}

/// A disk with the segment as it was when its lane was full of zeros, and the data log's.
fn disk_with(segment: &[u8]) -> SimDisk {
    let disk = data::disk_with(data::SEGMENT);
    let mut whole = segment.to_vec();
    whole.resize(LIMITS.segment as usize, 0);
    put_file(&disk, AT, &whole);
    disk
}

#[test]
fn the_golden_segment_is_read_field_by_field() {
    let header = Header { volume: 7, number: 1, epoch: 1, first: 1 };
    assert_eq!(Header::decode(SEGMENT), Head::Known(header));
    let whole = Bytes::from_static(SEGMENT);
    let mut at = HEADER_LEN;
    for (body, seq) in bodies().into_iter().zip(1..) {
        let raw = segment::read_at(&whole, at).unwrap_or_else(|| panic!("no record {seq}"));
        assert_eq!((raw.seq, raw.promised), (seq, seq - 1));
        assert_eq!(oncrpc::xdr::Xdr::from_bytes(raw.body), Ok(body), "record {seq}");
        at = raw.end;
    }
    assert_eq!(at, whole.len() as u64, "no more records");
}

#[test]
fn a_lane_goes_on_behind_the_golden_segment() {
    let disk = disk_with(SEGMENT);
    let p = start(&disk, LIMITS).unwrap();
    let wanted: Vec<(u64, Body)> = (1..).zip(bodies()).collect();
    assert_eq!(p.found, wanted);
    assert_eq!(p.data.read_extent(&data::DIRTY).unwrap(), &b"hello"[..]);
    assert_eq!(p.data.usage().dirty_bytes, 5, "the change with the extent has no outcome");
    let next = p.lane.append(Body::Late(9)).unwrap();
    wait(p.lane.synced(next)).unwrap();
    disk.crash(1);
    let found = start(&disk, LIMITS).unwrap().found;
    assert_eq!(found.last(), Some(&(wanted.len() as u64 + 1, Body::Late(9))));
}

#[test]
fn what_is_written_today_are_the_bytes_of_the_golden_segment() {
    let disk = data::disk_with(data::SEGMENT);
    let Process { lane, journal: _journal, .. } = start(&disk, LIMITS).unwrap();
    for body in bodies() {
        // One commit each: a record tells what was promised before it.
        wait(lane.synced(lane.append(body).unwrap())).unwrap();
    }
    let made = Bytes::from(disk.content(AT).unwrap());
    assert_eq!(made.len() as u64, LIMITS.segment);
    let mut end = HEADER_LEN;
    while let Some(raw) = segment::read_at(&made, end) {
        end = raw.end;
    }
    let (records, rest) = made.split_at(end as usize);
    assert!(rest.iter().all(|b| *b == 0), "only zeros behind the records");
    same_bytes(records, SEGMENT);
}

#[test]
fn a_program_of_the_next_version_reads_this_one_and_not_the_other_way_round() {
    assert!(matches!(Header::decode_up_to(SEGMENT, 2), Head::Known(h) if h.number == 1));
    let next = of_version(SEGMENT, 2, 40);
    assert_eq!(Header::decode(&next), Head::Newer(2));
    assert!(matches!(Header::decode_up_to(&next, 2), Head::Known(_)));
    let disk = disk_with(&next);
    let before = disk.content(AT);
    let Err(e) = start(&disk, LIMITS) else { panic!("it was opened") };
    assert!(matches!(e, Error::Newer(_)));
    for part in
        [AT, "has format version 2, and this program knows 1", "start the version of trellis that wrote it"]
    {
        assert!(e.to_string().contains(part), "{e}");
    }
    assert_eq!(disk.content(AT), before, "nothing was changed");
    // A version that is damaged is damage.
    let mut torn = next;
    torn[11] = 9;
    assert_eq!(Header::decode(&torn), Head::None);
    assert!(matches!(start(&disk_with(&torn), LIMITS), Err(Error::Corrupt(_))));
}

#[test]
fn an_unknown_kind_of_record_is_of_a_later_version_too() {
    let mut bytes = SEGMENT.to_vec();
    segment::frame(&mut bytes, bodies().len() as u64 + 1, 0, &[Bytes::from_static(&[0, 0, 0, 99])]);
    let disk = disk_with(&bytes);
    let before = disk.content(AT);
    let Err(e) = start(&disk, LIMITS) else { panic!("it was opened") };
    assert!(matches!(&e, Error::Newer(why) if why.contains("record 31 is of an unknown kind")), "{e}");
    assert_eq!(disk.content(AT), before, "nothing was changed");
}
