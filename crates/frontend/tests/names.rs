//! Procedures on names, and what clients learn of directories.

mod common;

use bytes::Bytes;
use common::{Nfs, OWNER, World, assert_same, at, mode};
use oncrpc::nfs3::*;
use std::collections::HashSet;

async fn lab() -> (World, Nfs, NfsFh3) {
    let world = World::new().await;
    let nfs = world.owner();
    let lab = nfs.mounted(b"/lab").await;
    (world, nfs, lab)
}

#[tokio::test]
async fn lookup_and_its_errors() {
    let (_world, nfs, lab) = lab().await;
    let dir = nfs.mkdir(&lab, b"dir").await;
    let file = nfs.create(&dir, b"\xff\xfe not utf-8").await;
    let found = nfs.lookup(&dir, b"\xff\xfe not utf-8").await.into_result().unwrap();
    assert_eq!(found.object, file);
    assert_same(found.obj_attributes, nfs.getattr(&file).await.unwrap());
    assert_same(found.dir_attributes, nfs.getattr(&dir).await.unwrap());
    assert_eq!(nfs.lookup(&dir, b".").await.into_result().unwrap().object, dir);
    assert_eq!(nfs.lookup(&dir, b"..").await.into_result().unwrap().object, lab);
    let root = nfs.mounted(b"/").await;
    assert_eq!(nfs.lookup(&lab, b"..").await.into_result().unwrap().object, root);
    nfs.create(&dir, &[b'n'; 255]).await;
    let Res::Fail(NfsStat3::NoEnt, seen) = nfs.lookup(&dir, b"none").await else { panic!("found") };
    assert_same(seen, nfs.getattr(&dir).await.unwrap());
    assert_eq!(nfs.lookup(&dir, &[b'n'; 256]).await.status(), NfsStat3::NameTooLong);
    for bad in [&b""[..], b"a/b", b"a\0b"] {
        assert_eq!(nfs.lookup(&dir, bad).await.status(), NfsStat3::Inval, "{bad:?}");
    }
    assert_eq!(nfs.lookup(&file, b"x").await.status(), NfsStat3::NotDir);
}

#[tokio::test]
async fn names_in_the_root_are_homes_and_nothing_can_be_made_there() {
    let (_world, nfs, _) = lab().await;
    let root = nfs.mounted(b"/").await;
    assert_eq!(nfs.lookup(&root, b"unknown").await.status(), NfsStat3::NoEnt);
    assert_eq!(nfs.lookup(&root, b"nothing").await.status(), NfsStat3::NoEnt);
    assert_eq!(nfs.lookup(&root, b"refused").await.status(), NfsStat3::Acces);
    let how = CreateHow3::Guarded(mode(0o644));
    assert_eq!(nfs.create_how(&root, b"file", how).await.status(), NfsStat3::Rofs);
    assert_eq!(nfs.remove(&root, b"lab").await.status(), NfsStat3::Rofs);
    let (lab, far) = (nfs.mounted(b"/lab").await, nfs.mounted(b"/far").await);
    let (lab, far) = (nfs.getattr(&lab).await.unwrap(), nfs.getattr(&far).await.unwrap());
    assert_ne!(lab.fsid, far.fsid);
    assert_ne!(lab.fsid, nfs.getattr(&root).await.unwrap().fsid);
}

#[tokio::test]
async fn the_three_ways_to_create() {
    let (_world, nfs, lab) = lab().await;
    let made = nfs.create_how(&lab, b"f", CreateHow3::Guarded(mode(0o640))).await.into_result().unwrap();
    let (file, attr) = (made.obj.unwrap(), made.obj_attributes.unwrap());
    assert_eq!((attr.ftype, attr.mode, attr.uid, attr.nlink, attr.size), (Ftype3::Reg, 0o640, OWNER, 1, 0));
    assert_same(made.dir_wcc.after, nfs.getattr(&lab).await.unwrap());
    let Res::Fail(status, wcc) = nfs.create_how(&lab, b"f", CreateHow3::Guarded(mode(0o640))).await else {
        panic!("made twice")
    };
    assert_eq!(status, NfsStat3::Exist);
    assert_same(wcc.after, nfs.getattr(&lab).await.unwrap());

    nfs.write(&file, 0, b"text", StableHow::FileSync).await.into_result().unwrap();
    let cut = Sattr3 { size: Some(0), ..mode(0o777) };
    let opened = nfs.create_how(&lab, b"f", CreateHow3::Unchecked(cut)).await.into_result().unwrap();
    let attr = opened.obj_attributes.unwrap();
    assert_eq!((opened.obj, attr.size, attr.mode), (Some(file), 0, 0o640), "only the size is applied");

    let once = nfs.create_how(&lab, b"x", CreateHow3::Exclusive(*b"verifier")).await.into_result().unwrap();
    let again = nfs.create_how(&lab, b"x", CreateHow3::Exclusive(*b"verifier")).await.into_result().unwrap();
    assert_eq!(once.obj, again.obj);
    let other = nfs.create_how(&lab, b"x", CreateHow3::Exclusive(*b"another.")).await;
    assert_eq!(other.status(), NfsStat3::Exist);
    nfs.mkdir(&lab, b"d").await;
    let on_dir = nfs.create_how(&lab, b"d", CreateHow3::Unchecked(mode(0o644))).await;
    assert!(matches!(on_dir.status(), NfsStat3::Exist | NfsStat3::IsDir), "{on_dir:?}");
}

#[tokio::test]
async fn directories_links_and_special_files() {
    let (_world, nfs, lab) = lab().await;
    let args = MkdirArgs { at: at(&lab, b"d"), attributes: mode(0o750) };
    let made = nfs.call::<MkdirRes>(procs::MKDIR, &args).await.into_result().unwrap();
    let attr = made.obj_attributes.unwrap();
    assert_eq!((attr.ftype, attr.mode), (Ftype3::Dir, 0o750));
    assert_eq!(nfs.call::<MkdirRes>(procs::MKDIR, &args).await.status(), NfsStat3::Exist);

    let symlink_data = Bytes::from_static(b"/no/where\xff");
    let (place, symlink_attributes) = (at(&lab, b"s"), mode(0o777));
    let args = SymlinkArgs { at: place, symlink_attributes, symlink_data: symlink_data.clone() };
    let made = nfs.call::<SymlinkRes>(procs::SYMLINK, &args).await.into_result().unwrap();
    let link = made.obj.unwrap();
    assert_eq!(made.obj_attributes.unwrap().ftype, Ftype3::Lnk);
    let read: ReadlinkRes = nfs.call(procs::READLINK, &GetattrArgs { object: link }).await;
    assert_eq!(read.into_result().unwrap().data, symlink_data);
    let not: ReadlinkRes = nfs.call(procs::READLINK, &GetattrArgs { object: lab }).await;
    assert_eq!(not.status(), NfsStat3::Inval);

    let device = DeviceData3 { dev_attributes: mode(0o600), spec: Specdata3::default() };
    for (name, what, status) in [
        (b"fifo", MknodData3::Fifo(mode(0o600)), NfsStat3::Ok),
        (b"sock", MknodData3::Sock(mode(0o600)), NfsStat3::Ok),
        (b"devb", MknodData3::Blk(device), NfsStat3::Perm),
        (b"devc", MknodData3::Chr(device), NfsStat3::Perm),
        (b"file", MknodData3::Reg, NfsStat3::BadType),
    ] {
        let res: MknodRes = nfs.call(procs::MKNOD, &MknodArgs { at: at(&lab, name), what }).await;
        assert_eq!(res.status(), status, "{}", name.escape_ascii());
    }
    let fifo = nfs.lookup(&lab, b"fifo").await.into_result().unwrap();
    assert_eq!(fifo.obj_attributes.unwrap().ftype, Ftype3::Fifo);
    for dots in [&b"."[..], b".."] {
        let args = MkdirArgs { at: at(&lab, dots), attributes: mode(0o750) };
        assert_eq!(nfs.call::<MkdirRes>(procs::MKDIR, &args).await.status(), NfsStat3::Exist);
        let file = CreateHow3::Unchecked(mode(0o644));
        assert_eq!(nfs.create_how(&lab, dots, file).await.status(), NfsStat3::Exist);
    }
}

#[tokio::test]
async fn removing() {
    let (_world, nfs, lab) = lab().await;
    let dir = nfs.mkdir(&lab, b"dir").await;
    let file = nfs.create(&dir, b"file").await;
    assert_eq!(nfs.remove(&lab, b"dir").await.status(), NfsStat3::IsDir);
    assert_eq!(nfs.rmdir(&dir, b"file").await.status(), NfsStat3::NotDir);
    assert_eq!(nfs.rmdir(&lab, b"dir").await.status(), NfsStat3::NotEmpty);
    assert_eq!(nfs.rmdir(&lab, b".").await.status(), NfsStat3::Inval);
    assert_eq!(nfs.rmdir(&lab, b"..").await.status(), NfsStat3::Exist);
    assert_eq!(nfs.remove(&lab, b"..").await.status(), NfsStat3::IsDir);
    assert_eq!(nfs.remove(&lab, b"none").await.status(), NfsStat3::NoEnt);
    let before = nfs.getattr(&dir).await.unwrap();
    let wcc = nfs.remove(&dir, b"file").await.into_result().unwrap();
    assert_eq!(wcc.before, Some(before.wcc()), "else the client drops what it knows of the directory");
    assert!(wcc.after.unwrap().ctime > before.ctime);
    assert_eq!(nfs.getattr(&file).await, Err(NfsStat3::Stale));
    nfs.rmdir(&lab, b"dir").await.into_result().unwrap();
    assert_eq!(nfs.getattr(&dir).await, Err(NfsStat3::Stale));
}

#[tokio::test]
async fn renaming_and_linking() {
    let (_world, nfs, lab) = lab().await;
    let (a, b) = (nfs.mkdir(&lab, b"a").await, nfs.mkdir(&lab, b"b").await);
    let file = nfs.create(&a, b"one").await;
    let linked = nfs.link(&file, &b, b"two").await.into_result().unwrap();
    assert_eq!(linked.file_attributes.unwrap().nlink, 2);
    nfs.rename((&a, b"one"), (&b, b"two")).await.into_result().unwrap();
    assert_eq!(nfs.lookup(&a, b"one").await.status(), NfsStat3::Ok, "two names of one file: nothing happens");
    assert_eq!(nfs.getattr(&file).await.unwrap().nlink, 2);

    let moved = nfs.rename((&a, b"one"), (&b, b"three")).await.into_result().unwrap();
    assert_same(moved.fromdir_wcc.after, nfs.getattr(&a).await.unwrap());
    assert_same(moved.todir_wcc.after, nfs.getattr(&b).await.unwrap());
    assert_eq!(nfs.lookup(&b, b"three").await.into_result().unwrap().object, file);
    assert_eq!(nfs.lookup(&a, b"one").await.status(), NfsStat3::NoEnt);

    assert_eq!(nfs.rename((&a, b"none"), (&b, b"x")).await.status(), NfsStat3::NoEnt);
    assert_eq!(nfs.rename((&lab, b"b"), (&b, b"inside")).await.status(), NfsStat3::Inval);
    assert_eq!(nfs.rename((&lab, b"a"), (&lab, b"..")).await.status(), NfsStat3::Inval);
    let full = nfs.rename((&lab, b"a"), (&lab, b"b")).await.status();
    assert!(matches!(full, NfsStat3::NotEmpty | NfsStat3::Exist), "{full:?}");
    assert_eq!(nfs.link(&file, &b, b"two").await.status(), NfsStat3::Exist);
    let dir_link = nfs.link(&a, &b, b"dir").await.status();
    assert!(matches!(dir_link, NfsStat3::IsDir | NfsStat3::Perm), "{dir_link:?}");
    let far = nfs.mounted(b"/far").await;
    assert_eq!(nfs.link(&file, &far, b"x").await.status(), NfsStat3::Xdev);
    assert_eq!(nfs.rename((&b, b"two"), (&far, b"x")).await.status(), NfsStat3::Xdev);
}

/// Reads a directory in replies of at most `count` bytes, and calls `between` after each.
async fn list(nfs: &Nfs, dir: &NfsFh3, count: u32, mut between: impl AsyncFnMut(usize)) -> Vec<Entry3> {
    let (mut entries, mut cookie) = (Vec::<Entry3>::new(), 0);
    for replies in 1.. {
        let args = ReaddirArgs { dir: *dir, cookie, cookieverf: [0; 8], count };
        let raw = nfs.raw(nfs.rpc.next_xid(), procs::READDIR, &args).await.unwrap();
        assert!(raw.len() <= count as usize + 4, "the status is not counted");
        let page = oncrpc::xdr::Xdr::from_bytes(raw).map(|r: ReaddirRes| r.into_result().unwrap()).unwrap();
        assert!(page.eof || !page.entries.0.is_empty());
        entries.extend(page.entries.0);
        if page.eof {
            break;
        }
        cookie = entries.last().unwrap().cookie;
        between(replies).await;
    }
    entries
}

#[tokio::test]
async fn a_listing_in_pieces_has_every_name_once() {
    let (_world, nfs, lab) = lab().await;
    let dir = nfs.mkdir(&lab, b"dir").await;
    for n in 0..300 {
        nfs.create(&dir, format!("kept {n}").as_bytes()).await;
        nfs.create(&dir, format!("lost {n}").as_bytes()).await;
    }
    let entries = list(&nfs, &dir, 1000, async |replies| {
        nfs.remove(&dir, format!("lost {}", replies * 7).as_bytes()).await;
        nfs.create(&dir, format!("new {replies}").as_bytes()).await;
    })
    .await;
    let names: HashSet<&[u8]> = entries.iter().map(|e| &e.name[..]).collect();
    assert_eq!(names.len(), entries.len(), "none comes twice");
    assert!((0..300).all(|n| names.contains(format!("kept {n}").as_bytes())));
    assert!(entries.windows(2).all(|w| w[0].cookie < w[1].cookie && w[1].cookie < 1 << 63));
    assert_eq!((&entries[0].name[..], &entries[1].name[..]), (&b"."[..], &b".."[..]));
    assert_eq!(entries[0].fileid, nfs.getattr(&dir).await.unwrap().fileid);
    assert_eq!(entries[1].fileid, nfs.getattr(&lab).await.unwrap().fileid);

    let whole = nfs.readdir(&dir, 0, 1 << 20).await.into_result().unwrap();
    assert!(whole.eof);
    assert_same(whole.dir_attributes, nfs.getattr(&dir).await.unwrap());
    let after_last = whole.entries.0.last().unwrap().cookie;
    let rest = nfs.readdir(&dir, after_last, 1000).await.into_result().unwrap();
    assert!(rest.eof && rest.entries.0.is_empty());
}

#[tokio::test]
async fn a_listing_with_attributes_keeps_to_its_budgets() {
    let (_world, nfs, lab) = lab().await;
    let dir = nfs.mkdir(&lab, b"dir").await;
    for n in 0..500 {
        nfs.create(&dir, format!("file {n}").as_bytes()).await;
    }
    let (mut seen, mut cookie) = (0, 0);
    loop {
        let args = ReaddirplusArgs { dir, cookie, cookieverf: [0; 8], dircount: 1 << 20, maxcount: 1 << 20 };
        let raw = nfs.raw(nfs.rpc.next_xid(), procs::READDIRPLUS, &args).await.unwrap();
        assert!(raw.len() <= (64 << 10) + 4, "the first answer comes soon, whatever is asked for");
        let page: ReaddirplusRes = oncrpc::xdr::Xdr::from_bytes(raw).unwrap();
        let page = page.into_result().unwrap();
        for entry in page.entries.0.iter().filter(|e| !matches!(&e.name[..], b"." | b"..")) {
            let handle = entry.name_handle.expect("attributes are at hand after creating the file");
            let attr = nfs.getattr(&handle).await.unwrap();
            assert_eq!(attr.fileid, entry.fileid);
            assert_same(entry.name_attributes, attr);
        }
        seen += page.entries.0.len();
        match page.eof {
            true => break,
            false => cookie = page.entries.0.last().unwrap().cookie,
        }
    }
    assert_eq!(seen, 502);
    let few = nfs.readdirplus(&dir, 0, 512, 32768).await.into_result().unwrap();
    let names: usize = few.entries.0.iter().map(|e| 24 + e.name.len().next_multiple_of(4)).sum();
    assert!(names <= 512 && !few.eof);
    assert_eq!(nfs.readdirplus(&dir, 0, 0, 32768).await.into_result().unwrap().entries.0.len(), 1);
}

#[tokio::test]
async fn what_is_too_small_for_an_entry_is_said_so() {
    let (_world, nfs, lab) = lab().await;
    let file = nfs.create(&lab, b"file").await;
    for count in [0, 50, 104, 131] {
        assert_eq!(nfs.readdir(&lab, 0, count).await.status(), NfsStat3::TooSmall, "{count}");
        assert_eq!(nfs.readdirplus(&lab, 0, 4096, count).await.status(), NfsStat3::TooSmall, "{count}");
    }
    assert_eq!(nfs.readdir(&lab, 0, 132).await.into_result().unwrap().entries.0.len(), 1);
    assert_eq!(nfs.readdir(&file, 0, 4096).await.status(), NfsStat3::NotDir);
    assert_eq!(nfs.readdirplus(&file, 0, 4096, 4096).await.status(), NfsStat3::NotDir);
}
