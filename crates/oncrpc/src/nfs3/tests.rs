//! Layouts by hand from RFC 1813, budgets of directory replies, and bytes that make no sense.

use super::*;
use crate::xdr::{Reader, Writer, Xdr};
use bytes::Bytes;
use rand::{Rng, SeedableRng, rngs::StdRng};

fn attributes() -> Fattr3 {
    let time = |seconds| NfsTime3 { seconds, nseconds: seconds + 1 };
    Fattr3 {
        ftype: Ftype3::Dir,
        mode: 0o755,
        nlink: 3,
        uid: 1000,
        gid: 100,
        size: 0x1_0000_0002,
        used: 4096,
        rdev: Specdata3 { specdata1: 8, specdata2: 9 },
        fsid: 0xa0b0_c0d0_0000_0001,
        fileid: 0x4000_0000_0000_0005,
        atime: time(0x10),
        mtime: time(0x20),
        ctime: time(0x30),
    }
}

const FATTR3: &[u8; 84] = b"\0\0\0\x02\0\0\x01\xed\0\0\0\x03\0\0\x03\xe8\0\0\0\x64\
    \0\0\0\x01\0\0\0\x02\0\0\0\0\0\0\x10\0\0\0\0\x08\0\0\0\x09\
    \xa0\xb0\xc0\xd0\0\0\0\x01\x40\0\0\0\0\0\0\x05\
    \0\0\0\x10\0\0\0\x11\0\0\0\x20\0\0\0\x21\0\0\0\x30\0\0\0\x31";

fn handle(bytes: &[u8]) -> NfsFh3 {
    NfsFh3::new(bytes).unwrap()
}

#[test]
fn fattr3_has_the_layout_of_the_rfc() {
    let bytes = attributes().to_bytes();
    assert_eq!(&bytes[..], FATTR3);
    assert_eq!(Fattr3::from_bytes(bytes).unwrap(), attributes());
}

#[test]
fn wcc_data_has_the_layout_of_the_rfc() {
    let wcc = WccData { before: Some(attributes().wcc()), after: Some(attributes()) };
    let before = b"\0\0\0\x01\0\0\0\x01\0\0\0\x02\0\0\0\x20\0\0\0\x21\0\0\0\x30\0\0\0\x31\0\0\0\x01";
    assert_eq!(wcc.to_bytes(), [&before[..], FATTR3].concat());
    assert_eq!(&WccData::default().to_bytes()[..], b"\0\0\0\0\0\0\0\0");
}

#[test]
fn a_setattr_has_the_layout_of_the_rfc() {
    let new_attributes = Sattr3 {
        mode: Some(0o644),
        size: Some(5),
        mtime: SetTime3::SetToClientTime(NfsTime3 { seconds: 7, nseconds: 8 }),
        atime: SetTime3::SetToServerTime,
        ..Sattr3::default()
    };
    let args = SetattrArgs { object: handle(b"h"), new_attributes, guard: None };
    let wire = b"\0\0\0\x01h\0\0\0\0\0\0\x01\0\0\x01\xa4\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x05\
        \0\0\0\x01\0\0\0\x02\0\0\0\x07\0\0\0\x08\0\0\0\0";
    assert_eq!(&args.to_bytes()[..], wire);
    assert_eq!(SetattrArgs::from_bytes(args.to_bytes()).unwrap(), args);
}

/// A reply with two entries: `a` with everything, `bb` with nothing.
fn readdirplus_wire() -> Vec<u8> {
    let head = b"\0\0\0\0\0\0\0\0verifier";
    let a = b"\0\0\0\x01\0\0\0\0\0\0\0\x05\0\0\0\x01a\0\0\0\0\0\0\0\0\0\0\x09\0\0\0\x01";
    let a_handle = b"\0\0\0\x01\0\0\0\x05hndl0\0\0\0";
    let b = b"\0\0\0\x01\0\0\0\0\0\0\0\x06\0\0\0\x02bb\0\0\0\0\0\0\0\0\0\x0a\0\0\0\0\0\0\0\0";
    [&head[..], a, FATTR3, a_handle, b, b"\0\0\0\0\0\0\0\x01"].concat()
}

fn write_readdirplus(dircount: u32, maxcount: u32) -> Option<(Bytes, usize)> {
    let mut w = Writer::new();
    let mut dir = DirWriter::readdirplus(&mut w, &None, *b"verifier", dircount, maxcount).ok()?;
    let plus = EntryPlus { attributes: Some(&attributes()), handle: Some(&handle(b"hndl0")) };
    let first = dir.entry_plus(&DirEntry { fileid: 5, name: b"a", cookie: 9 }, &plus);
    let second = first.and_then(|()| dir.entry(&DirEntry { fileid: 6, name: b"bb", cookie: 10 }));
    let entries = dir.entries();
    dir.finish(second.is_ok());
    Some((w.into_bytes(), entries))
}

#[test]
fn a_readdirplus_reply_has_the_layout_of_the_rfc() {
    let (bytes, _) = write_readdirplus(4096, 4096).unwrap();
    assert_eq!(bytes, readdirplus_wire());
    let ReaddirplusRes::Ok(ok) = ReaddirplusRes::from_bytes(bytes.clone()).unwrap() else { panic!() };
    assert_eq!(ok.entries.0[0].name_attributes, Some(attributes()));
    assert_eq!(ok.entries.0[0].name_handle, Some(handle(b"hndl0")));
    assert_eq!((&ok.entries.0[1].name[..], ok.entries.0[1].cookie, ok.eof), (&b"bb"[..], 10, true));
    assert_eq!(ReaddirplusRes::Ok(ok).to_bytes(), bytes);
}

#[test]
fn a_directory_reply_keeps_to_its_budget_to_the_byte() {
    // The status word does not count.
    let whole = readdirplus_wire().len() as u32 - 4;
    let second = 4 + 8 + 8 + 8 + 8;
    assert_eq!(write_readdirplus(4096, whole).unwrap().1, 2);
    let (bytes, entries) = write_readdirplus(4096, whole - 1).unwrap();
    assert_eq!((entries, bytes.len() as u32 - 4), (1, whole - second));
    assert_eq!(write_readdirplus(4096, whole - second).unwrap().1, 1);
    assert_eq!(write_readdirplus(4096, whole - second - 1).unwrap().1, 0);
    assert_eq!(write_readdirplus(4096, 20).unwrap().1, 0);
    assert_eq!(write_readdirplus(4096, 19), None);
    // Names of 28 bytes each: dircount stops the second, never the first.
    assert_eq!([56, 55, 0].map(|dircount| write_readdirplus(dircount, whole).unwrap().1), [2, 1, 1]);
}

#[test]
fn a_readdir_reply_is_what_a_client_decodes() {
    let entry = |n: u64| Entry3 { fileid: n, name: Bytes::from(format!("file-{n}")), cookie: n + 1 };
    let entries = Chain((0..50).map(entry).collect::<Vec<_>>());
    let mut w = Writer::new();
    let mut dir = DirWriter::readdir(&mut w, &Some(attributes()), [1; 8], 1 << 16).unwrap();
    for Entry3 { fileid, name, cookie } in &entries.0 {
        dir.entry(&DirEntry { fileid: *fileid, name, cookie: *cookie }).unwrap();
    }
    dir.finish(false);
    let ok = ReaddirOk { dir_attributes: Some(attributes()), cookieverf: [1; 8], entries, eof: false };
    assert_eq!(w.into_bytes(), ReaddirRes::Ok(ok).to_bytes());
}

#[test]
fn long_names_decode_and_long_handles_do_not() {
    let args = LookupArgs { dir: handle(&[7; 64]), name: Bytes::from(vec![b'x'; 5000]) };
    assert_eq!(LookupArgs::from_bytes(args.to_bytes()).unwrap(), args);
    assert!(NfsFh3::new(&[0; 65]).is_none());
    let mut w = Writer::new();
    w.opaque(&[0; 65]);
    assert!(NfsFh3::from_bytes(w.into_bytes()).is_err());
}

#[test]
fn write_data_is_a_slice_of_the_message() {
    let data = Bytes::from(vec![3; 8192]);
    let args = WriteArgs { file: handle(b"f"), offset: 1, count: 8192, stable: StableHow::Unstable, data };
    let message = args.to_bytes();
    let decoded = WriteArgs::from_bytes(message.clone()).unwrap();
    assert_eq!(decoded, args);
    assert_eq!(decoded.data.as_ptr(), message[message.len() - 8192..].as_ptr());
}

#[test]
fn read_data_goes_out_in_parts_without_a_copy() {
    let parts = vec![Bytes::from(vec![1; 4096]), Bytes::from(vec![2; 1001])];
    let mut w = Writer::new();
    ReadRes::Ok(ReadOk { file_attributes: None, eof: true, data: parts.clone() }).encode(&mut w);
    let segments = w.into_segments();
    assert_eq!((segments[1].as_ptr(), segments[2].as_ptr()), (parts[0].as_ptr(), parts[1].as_ptr()));
    let ReadRes::Ok(ok) = ReadRes::from_bytes(Bytes::from(segments.concat())).unwrap() else { panic!() };
    assert_eq!((ok.count(), &ok.data[0]), (5097, &Bytes::from(parts.concat())));
}

/// Decodes; what decodes must come back the same from its own encoding.
fn survives<T: Xdr + PartialEq + std::fmt::Debug>(bytes: Bytes) -> bool {
    let Ok(value) = T::decode(&mut Reader::new(bytes)) else { return false };
    assert_eq!(T::from_bytes(value.to_bytes()), Ok(value));
    true
}

/// The name of a type and its [`survives`].
type Case = (&'static str, fn(Bytes) -> bool);

macro_rules! all {
    ($($t:ty),* $(,)?) => { &[$((stringify!($t), survives::<$t> as fn(Bytes) -> bool)),*] };
}

const TYPES: &[Case] = all![
    GetattrArgs,
    SetattrArgs,
    LookupArgs,
    AccessArgs,
    ReadArgs,
    WriteArgs,
    CreateArgs,
    MkdirArgs,
    SymlinkArgs,
    MknodArgs,
    RemoveArgs,
    RenameArgs,
    LinkArgs,
    ReaddirArgs,
    ReaddirplusArgs,
    CommitArgs,
    GetattrRes,
    SetattrRes,
    LookupRes,
    AccessRes,
    ReadlinkRes,
    ReadRes,
    WriteRes,
    CreateRes,
    RenameRes,
    LinkRes,
    ReaddirRes,
    ReaddirplusRes,
    FsstatRes,
    FsinfoRes,
    PathconfRes,
    CommitRes,
    crate::mount::MountRes,
    crate::mount::DirPath,
    crate::mount::DumpRes,
    crate::mount::ExportRes,
    crate::msg::AuthSys,
];

#[test]
fn random_bytes_never_panic_and_what_decodes_is_stable() {
    let mut rng = StdRng::seed_from_u64(1813);
    let mut decoded = vec![0u32; TYPES.len()];
    for case in 0..100_000 {
        // Small words are lengths, booleans and discriminants that make sense, and lead deeper.
        let small = [0.0, 0.9, 1.0][case % 3];
        let mut w = Writer::new();
        for _ in 0..rng.random_range(0..60) {
            let word = if rng.random_bool(small) { rng.random_range(0..3) } else { rng.random() };
            w.u32(word);
        }
        w.raw(&[0; 3][..rng.random_range(0..4)]);
        let at = rng.random_range(0..TYPES.len());
        decoded[at] += u32::from(TYPES[at].1(w.into_bytes()));
    }
    for ((name, _), count) in TYPES.iter().zip(decoded) {
        assert!(count > 0, "no case of {name} ever decoded: the test does not reach it");
    }
}
