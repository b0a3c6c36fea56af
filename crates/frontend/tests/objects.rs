//! Procedures on objects: attributes, bytes, and what the server says of itself.

mod common;

use bytes::Bytes;
use common::{Nfs, World, assert_same, mode};
use oncrpc::nfs3::*;

const MIB: usize = 1 << 20;

async fn file() -> (World, Nfs, NfsFh3) {
    let world = World::new().await;
    let nfs = world.owner();
    let lab = nfs.mounted(b"/lab").await;
    let file = nfs.create(&lab, b"file").await;
    (world, nfs, file)
}

async fn text(nfs: &Nfs, file: &NfsFh3, offset: u64, count: u32) -> (Vec<u8>, bool) {
    let ok = nfs.read(file, offset, count).await.into_result().unwrap();
    assert_same(ok.file_attributes, nfs.getattr(file).await.unwrap());
    (ok.data.concat(), ok.eof)
}

#[tokio::test]
async fn reading_around_the_end() {
    let (_world, nfs, file) = file().await;
    let content: Vec<u8> = (0..3000).map(|n| n as u8).collect();
    nfs.write(&file, 0, &content, StableHow::FileSync).await.into_result().unwrap();
    assert_eq!(text(&nfs, &file, 0, 3000).await, (content.clone(), true));
    assert_eq!(text(&nfs, &file, 0, 2999).await, (content[..2999].to_vec(), false));
    assert_eq!(text(&nfs, &file, 1000, 1 << 30).await, (content[1000..].to_vec(), true));
    for beyond in [3000, 3001, 1 << 63, u64::MAX] {
        assert_eq!(text(&nfs, &file, beyond, 10).await, (vec![], true), "{beyond}");
    }
    assert_eq!(text(&nfs, &file, 0, 0).await, (vec![], false));
    let lab = nfs.mounted(b"/lab").await;
    assert!(matches!(nfs.read(&lab, 0, 10).await.status(), NfsStat3::IsDir | NfsStat3::Inval));
}

#[tokio::test]
async fn one_call_moves_a_mebibyte_at_most() {
    let (_world, nfs, file) = file().await;
    let content: Vec<u8> = (0..MIB + 4096).map(|n| (n / 7) as u8).collect();
    let ok = nfs.write(&file, 0, &content, StableHow::Unstable).await.into_result().unwrap();
    assert_eq!(ok.count as usize, MIB, "the rest is for the client to send");
    let rest = nfs.write(&file, MIB as u64, &content[MIB..], StableHow::Unstable).await;
    assert_eq!(rest.into_result().unwrap().count, 4096);
    let (read, eof) = text(&nfs, &file, 0, 2 * MIB as u32).await;
    assert!(read == content[..MIB] && !eof);
    assert_eq!(text(&nfs, &file, MIB as u64, 2 * MIB as u32).await, (content[MIB..].to_vec(), true));
}

#[tokio::test]
async fn writing_says_what_it_did() {
    let (_world, nfs, file) = file().await;
    let mut verifiers = Vec::new();
    for (n, stable) in [StableHow::Unstable, StableHow::DataSync, StableHow::FileSync].into_iter().enumerate()
    {
        let before = nfs.getattr(&file).await.unwrap();
        let ok = nfs.write(&file, n as u64 * 4, b"data", stable).await.into_result().unwrap();
        assert!(ok.committed >= stable);
        assert_eq!(ok.count, 4);
        assert_eq!(ok.file_wcc.before, Some(before.wcc()), "else the client drops its own pages");
        let after = ok.file_wcc.after.unwrap();
        assert_same(Some(after), nfs.getattr(&file).await.unwrap());
        assert!(after.ctime > before.ctime && after.size == before.size + 4);
        verifiers.push(ok.verf);
    }
    let args = CommitArgs { file, offset: 0, count: 0 };
    let done = nfs.call::<CommitRes>(procs::COMMIT, &args).await.into_result().unwrap();
    assert!(verifiers.iter().all(|v| *v == done.verf), "{verifiers:?} {:?}", done.verf);
    assert_same(done.file_wcc.after, nfs.getattr(&file).await.unwrap());
}

#[tokio::test]
async fn writes_that_make_no_sense() {
    let (_world, nfs, file) = file().await;
    let data = Bytes::from_static(b"data");
    let args = WriteArgs { file, offset: 0, count: 5, stable: StableHow::FileSync, data };
    assert_eq!(nfs.call::<WriteRes>(procs::WRITE, &args).await.status(), NfsStat3::Inval);
    let end = i64::MAX as u64;
    for offset in [end - 3, end, u64::MAX] {
        let res = nfs.write(&file, offset, b"data", StableHow::FileSync).await;
        assert_eq!(res.status(), NfsStat3::Fbig, "{offset}");
    }
    assert_eq!(nfs.getattr(&file).await.unwrap().size, 0);
    let empty = nfs.write(&file, 10, b"", StableHow::FileSync).await.into_result().unwrap();
    assert_eq!((empty.count, nfs.getattr(&file).await.unwrap().size), (0, 0));
}

#[tokio::test]
async fn setting_attributes() {
    let (_world, nfs, file) = file().await;
    let before = nfs.getattr(&file).await.unwrap();
    let wcc = nfs.setattr(&file, mode(0o4400)).await.into_result().unwrap();
    assert_eq!(wcc.before, Some(before.wcc()));
    assert_same(wcc.after, nfs.getattr(&file).await.unwrap());
    assert_eq!(wcc.after.unwrap().mode & 0o777, 0o400);
    let grown = Sattr3 { size: Some(10), ..Sattr3::default() };
    let after = nfs.setattr(&file, grown).await.into_result().unwrap().after.unwrap();
    assert_eq!(after.size, 10, "the owner may, whatever the mode");
    assert_eq!(text(&nfs, &file, 0, 100).await, (vec![0; 10], true));

    let guard = Some(NfsTime3 { seconds: 1, nseconds: 1 });
    let args = SetattrArgs { object: file, new_attributes: mode(0o777), guard };
    let Res::Fail(NfsStat3::NotSync, wcc) = nfs.call::<SetattrRes>(procs::SETATTR, &args).await else {
        panic!("the guard is another time")
    };
    assert_same(wcc.after, after);
    let args = SetattrArgs { guard: Some(after.ctime), ..args };
    assert_eq!(nfs.call::<SetattrRes>(procs::SETATTR, &args).await.status(), NfsStat3::Ok);

    let bad = SetTime3::SetToClientTime(NfsTime3 { seconds: 1, nseconds: 1_000_000_000 });
    let bad = nfs.setattr(&file, Sattr3 { mtime: bad, ..Sattr3::default() }).await;
    assert_eq!(bad.status(), NfsStat3::Inval);
    let given = Sattr3 { uid: Some(1), size: Some(1), ..Sattr3::default() };
    assert_eq!(nfs.setattr(&file, given).await.status(), NfsStat3::Perm);
    assert_eq!(nfs.getattr(&file).await.unwrap().size, 10, "all or nothing");
}

#[tokio::test]
async fn access_grants_a_part_of_what_is_asked() {
    let (_world, nfs, file) = file().await;
    for asked in [0, ACCESS3_READ, ACCESS3_EXECUTE, 0x3f, u32::MAX] {
        let ok = nfs.access(&file, asked).await.into_result().unwrap();
        assert_eq!(ok.access & !asked, 0);
        assert_same(ok.obj_attributes, nfs.getattr(&file).await.unwrap());
    }
    let granted = nfs.access(&file, 0x3f).await.into_result().unwrap().access;
    assert_eq!(granted, ACCESS3_READ | ACCESS3_MODIFY | ACCESS3_EXTEND, "the file cannot be executed");
}

#[tokio::test]
async fn what_the_server_says_of_itself() {
    let (_world, nfs, file) = file().await;
    let args = GetattrArgs { object: file };
    let attr = nfs.getattr(&file).await.unwrap();
    let info = nfs.call::<FsinfoRes>(procs::FSINFO, &args).await.into_result().unwrap();
    assert_eq!([info.rtmax, info.rtpref, info.wtmax, info.wtpref], [1 << 20; 4]);
    assert_eq!((info.rtmult, info.wtmult, info.dtpref), (4096, 4096, 65536));
    assert_eq!((info.maxfilesize, info.properties), (i64::MAX as u64, 0x1b));
    assert_eq!(info.time_delta, NfsTime3 { seconds: 0, nseconds: 1 });
    assert_same(info.obj_attributes, attr);
    let conf = nfs.call::<PathconfRes>(procs::PATHCONF, &args).await.into_result().unwrap();
    assert_eq!((conf.linkmax, conf.name_max), (65000, 255));
    assert_same(conf.obj_attributes, attr);
    let flags = (conf.no_trunc, conf.chown_restricted, conf.case_insensitive, conf.case_preserving);
    assert_eq!(flags, (true, true, false, true));
    let stat = nfs.call::<FsstatRes>(procs::FSSTAT, &args).await.into_result().unwrap();
    assert!(stat.tbytes >= stat.fbytes && stat.fbytes >= stat.abytes && stat.tbytes > 0);
    assert_eq!(stat.invarsec, 0);
    assert_same(stat.obj_attributes, attr);
}
