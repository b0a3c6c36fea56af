//! What outlives a connection, a process and a home that does not answer.

mod common;

use bytes::Bytes;
use common::{Nfs, World, assert_same, mode, policy};
use home::HomePath;
use home::testing::{Fault, Outside};
use oncrpc::nfs3::*;
use vfs::Mode;

async fn commit(nfs: &Nfs, file: &NfsFh3) -> CommitOk {
    let args = CommitArgs { file: *file, offset: 0, count: 0 };
    nfs.call::<CommitRes>(procs::COMMIT, &args).await.into_result().unwrap()
}

async fn content(nfs: &Nfs, file: &NfsFh3) -> Vec<u8> {
    nfs.read(file, 0, 1 << 20).await.into_result().unwrap().data.concat()
}

#[tokio::test]
async fn a_restart_changes_the_write_verifier_and_keeps_what_was_committed() {
    let world = World::new().await;
    let nfs = world.owner();
    let lab = nfs.mounted(b"/lab").await;
    let file = nfs.create(&lab, b"file").await;
    let wrote = nfs.write(&file, 0, b"stable ", StableHow::Unstable).await.into_result().unwrap();
    assert_eq!(commit(&nfs, &file).await.verf, wrote.verf);
    let wrote = nfs.write(&file, 7, b"and not yet", StableHow::Unstable).await.into_result().unwrap();
    drop(nfs);
    let world = world.restart().await;
    let nfs = world.owner();
    let done = commit(&nfs, &file).await;
    assert_ne!(done.verf, wrote.verf, "so that the client sends again what was not committed");
    assert!(content(&nfs, &file).await.starts_with(b"stable "));
    nfs.write(&file, 7, b"and not yet", StableHow::FileSync).await.into_result().unwrap();
    assert_eq!(content(&nfs, &file).await, b"stable and not yet");
}

#[tokio::test]
async fn one_commit_is_for_the_writes_of_all_connections() {
    let world = World::new().await;
    let (a, b, c) = (world.owner(), world.connect("[::1]:5", world.owner().cred), world.owner());
    let lab = a.mounted(b"/lab").await;
    let file = a.create(&lab, b"file").await;
    let first = a.write(&file, 0, b"one", StableHow::Unstable).await.into_result().unwrap();
    let second = b.write(&file, 3, b"two", StableHow::Unstable).await.into_result().unwrap();
    let done = commit(&c, &file).await;
    assert_eq!([first.verf, second.verf], [done.verf; 2]);
    drop((a, b, c));
    let world = world.restart().await;
    assert_eq!(content(&world.owner(), &file).await, b"onetwo");
}

#[tokio::test]
async fn an_exclusive_create_is_the_same_after_a_restart() {
    let world = World::new().await;
    let nfs = world.owner();
    let lab = nfs.mounted(b"/lab").await;
    let made = nfs.create_how(&lab, b"x", CreateHow3::Exclusive(*b"verifier")).await.into_result().unwrap();
    drop(nfs);
    let world = world.restart().await;
    let nfs = world.owner();
    let again = nfs.create_how(&lab, b"x", CreateHow3::Exclusive(*b"verifier")).await.into_result().unwrap();
    assert_eq!(made.obj, again.obj);
    let other = nfs.create_how(&lab, b"x", CreateHow3::Exclusive(*b"another.")).await;
    assert_eq!(other.status(), NfsStat3::Exist);
    let set = nfs.setattr(&again.obj.unwrap(), mode(0o640)).await.into_result().unwrap();
    assert_eq!(set.after.unwrap().mode, 0o640);
}

#[tokio::test]
async fn an_owner_uses_what_he_opened_before_the_mode_forbade_it() {
    let world = World::new().await;
    let nfs = world.owner();
    let lab = nfs.mounted(b"/lab").await;
    let file = nfs.create(&lab, b"file").await;
    nfs.setattr(&file, mode(0)).await.into_result().unwrap();
    nfs.write(&file, 0, b"text", StableHow::FileSync).await.into_result().unwrap();
    assert_eq!(content(&nfs, &file).await, b"text");
}

#[tokio::test]
async fn a_home_out_of_reach_is_served_from_what_is_here() {
    let world = World::new().await;
    let nfs = world.owner();
    let lab = nfs.mounted(b"/lab").await;
    let file = nfs.create(&lab, b"file").await;
    nfs.write(&file, 0, b"text", StableHow::FileSync).await.into_result().unwrap();
    world.ground.lab.set(Fault::Unreachable);
    assert_eq!(content(&nfs, &file).await, b"text");
    nfs.write(&file, 4, b" and more", StableHow::FileSync).await.into_result().unwrap();
    let new = nfs.mkdir(&lab, b"new").await;
    assert_eq!(nfs.lookup(&lab, b"new").await.into_result().unwrap().object, new);
    nfs.remove(&lab, b"file").await.into_result().unwrap();
    assert_eq!(nfs.lookup(&lab, b"file").await.status(), NfsStat3::NoEnt);
    world.ground.lab.set(Fault::None);
    world.vfs.sync(None, std::time::Duration::from_secs(20)).await.expect("everything arrives");
    assert_eq!(nfs.lookup(&lab, b"new").await.into_result().unwrap().object, new);
}

/// In mode `strict` the same calls give the same answers.
#[tokio::test]
async fn a_strict_home_answers_alike() {
    let world = World::with(Mode::Strict, policy()).await;
    let nfs = world.owner();
    let lab = nfs.mounted(b"/lab").await;
    let dir = nfs.mkdir(&lab, b"dir").await;
    let file = nfs.create(&dir, b"file").await;
    for stable in [StableHow::Unstable, StableHow::FileSync] {
        let wrote = nfs.write(&file, 0, b"text", stable).await.into_result().unwrap();
        assert!(wrote.committed >= stable);
        assert_eq!(commit(&nfs, &file).await.verf, wrote.verf);
        assert_eq!(content(&nfs, &file).await, b"text");
    }
    let set = nfs.setattr(&file, mode(0o600)).await.into_result().unwrap();
    assert_same(set.after, nfs.getattr(&file).await.unwrap());
    let symlink_data = Bytes::from_static(b"file");
    let args = SymlinkArgs { at: common::at(&dir, b"s"), symlink_attributes: mode(0o777), symlink_data };
    nfs.call::<SymlinkRes>(procs::SYMLINK, &args).await.into_result().unwrap();
    nfs.link(&file, &dir, b"link").await.into_result().unwrap();
    nfs.rename((&dir, b"link"), (&lab, b"moved")).await.into_result().unwrap();
    assert_eq!(nfs.lookup(&lab, b"moved").await.into_result().unwrap().object, file);
    let names = nfs.readdir(&dir, 0, 8192).await.into_result().unwrap();
    assert_eq!(names.entries.0.len(), 4);
    for name in [&b"file"[..], b"s"] {
        nfs.remove(&dir, name).await.into_result().unwrap();
    }
    nfs.rmdir(&lab, b"dir").await.into_result().unwrap();
    assert_eq!(nfs.getattr(&dir).await, Err(NfsStat3::Stale));
}

/// Whoever can forge AUTH_SYS could otherwise let himself in at every home.
#[tokio::test]
async fn protected_folders_cannot_be_changed_or_moved_away() {
    let world = World::new().await;
    let path = |p: &[u8]| HomePath::parse(p).unwrap();
    world.ground.lab_tree.mkdir(&path(b".ssh"));
    world.ground.lab_tree.write(&path(b".ssh/authorized_keys"), b"mine");
    let nfs = world.owner();
    let lab = nfs.mounted(b"/lab").await;
    let ssh = nfs.mounted(b"/lab/.ssh").await;
    let keys = nfs.lookup(&ssh, b"authorized_keys").await.into_result().unwrap().object;
    let denied = NfsStat3::Acces;
    assert_eq!(content(&nfs, &keys).await, b"mine");
    assert_eq!(nfs.write(&keys, 0, b"evil", StableHow::FileSync).await.status(), denied);
    assert_eq!(nfs.setattr(&keys, mode(0o666)).await.status(), denied);
    assert_eq!(nfs.remove(&ssh, b"authorized_keys").await.status(), denied);
    let how = CreateHow3::Unchecked(mode(0o600));
    assert_eq!(nfs.create_how(&ssh, b"rc", how).await.status(), denied);
    assert_eq!(nfs.rename((&lab, b".ssh"), (&lab, b"x")).await.status(), denied);
    assert_eq!(nfs.link(&keys, &lab, b"keys").await.status(), denied);
    let own = nfs.mkdir(&lab, b"own").await;
    nfs.create(&own, b"authorized_keys").await;
    assert_eq!(nfs.rename((&own, b"authorized_keys"), (&ssh, b"authorized_keys")).await.status(), denied);
    assert_eq!(content(&nfs, &keys).await, b"mine");
}
