//! Calls that come again (RFC 1813 §4.5): one effect, one answer.

mod common;

use bytes::Bytes;
use common::{Nfs, World, assert_same, at, mode, policy};
use home::testing::Fault;
use oncrpc::nfs3::*;
use oncrpc::xdr::Xdr;
use std::time::Duration;
use tokio::time::sleep;
use vfs::Mode;

/// Every call that must not run twice, in an order in which each works once, on objects made for it.
async fn calls(nfs: &Nfs) -> Vec<(u32, Bytes)> {
    let lab = nfs.mounted(b"/lab").await;
    let dir = nfs.mkdir(&lab, b"d").await;
    let file = nfs.create(&dir, b"file").await;
    let name = |n: &[u8]| at(&dir, n);
    let how = CreateHow3::Guarded(mode(0o600));
    let new_attributes = Sattr3 { size: Some(3), ..Sattr3::default() };
    let target = Bytes::from_static(b"target");
    vec![
        (procs::SETATTR, SetattrArgs { object: file, new_attributes, guard: None }.to_bytes()),
        (procs::CREATE, CreateArgs { at: name(b"new"), how }.to_bytes()),
        (procs::MKDIR, MkdirArgs { at: name(b"sub"), attributes: mode(0o700) }.to_bytes()),
        (
            procs::SYMLINK,
            SymlinkArgs { at: name(b"sym"), symlink_attributes: mode(0o777), symlink_data: target }
                .to_bytes(),
        ),
        (procs::MKNOD, MknodArgs { at: name(b"pipe"), what: MknodData3::Fifo(mode(0o600)) }.to_bytes()),
        (procs::LINK, LinkArgs { file, link: name(b"link") }.to_bytes()),
        (procs::RENAME, RenameArgs { from: name(b"link"), to: name(b"moved") }.to_bytes()),
        (procs::REMOVE, name(b"moved").to_bytes()),
        (procs::RMDIR, name(b"sub").to_bytes()),
    ]
}

/// Arguments that are encoded already.
struct Blob(Bytes);

impl Xdr for Blob {
    fn encode(&self, w: &mut oncrpc::xdr::Writer) {
        w.raw(&self.0);
    }
    fn decode(_: &mut oncrpc::xdr::Reader) -> oncrpc::xdr::Result<Self> {
        unreachable!("only sent")
    }
}

fn status(reply: &Bytes) -> NfsStat3 {
    NfsStat3::from_bytes(reply.slice(..4)).unwrap()
}

#[tokio::test]
async fn a_repeated_call_gets_its_first_answer_on_any_connection() {
    let world = World::new().await;
    let nfs = world.owner();
    let other = world.connect("127.0.0.1:999", nfs.cred.clone());
    for (n, (proc, args)) in calls(&nfs).await.into_iter().enumerate() {
        let (name, xid, args) = (procs::NAMES[proc as usize], 1000 + n as u32, Blob(args));
        let first = nfs.raw(xid, proc, &args).await.unwrap();
        assert_eq!(status(&first), NfsStat3::Ok, "{name}");
        assert_eq!(nfs.raw(xid, proc, &args).await.unwrap(), first, "{name} on the same connection");
        assert_eq!(other.raw(xid, proc, &args).await.unwrap(), first, "{name} on a new connection");
        if proc != procs::SETATTR {
            let new = nfs.raw(5000 + xid, proc, &args).await.unwrap();
            assert_ne!(status(&new), NfsStat3::Ok, "{name} as a new call finds it done");
        }
    }
}

#[tokio::test]
async fn the_engine_remembers_what_the_front_end_forgot() {
    let mut world = World::new().await;
    let nfs = world.owner();
    for (n, (proc, args)) in calls(&nfs).await.into_iter().enumerate() {
        let (name, xid, args) = (procs::NAMES[proc as usize], 1000 + n as u32, Blob(args));
        let first = world.owner().raw(xid, proc, &args).await.unwrap();
        assert_eq!(status(&first), NfsStat3::Ok, "{name}");
        world.amnesia();
        let again = world.owner().raw(xid, proc, &args).await.unwrap();
        assert_eq!(status(&again), NfsStat3::Ok, "{name}");
        if (procs::CREATE..=procs::MKNOD).contains(&proc) {
            let (first, again) =
                (CreateRes::from_bytes(first).unwrap(), CreateRes::from_bytes(again).unwrap());
            let (first, again) = (first.into_result().unwrap(), again.into_result().unwrap());
            assert_eq!(first.obj, again.obj, "{name}");
            assert_same(first.obj_attributes, again.obj_attributes.unwrap());
            assert_same(first.dir_wcc.after, again.dir_wcc.after.unwrap());
        }
    }
}

#[tokio::test]
async fn a_restart_keeps_handles_and_answers() {
    let world = World::new().await;
    let nfs = world.owner();
    let lab = nfs.mounted(b"/lab").await;
    let file = nfs.create(&lab, b"file").await;
    let fileid = nfs.getattr(&file).await.unwrap().fileid;
    let mut answers = Vec::new();
    for (n, (proc, args)) in calls(&nfs).await.into_iter().enumerate() {
        let reply = nfs.raw(1000 + n as u32, proc, &Blob(args.clone())).await.unwrap();
        answers.push((1000 + n as u32, proc, args, status(&reply)));
    }
    drop(nfs);
    let world = world.restart().await;
    let nfs = world.owner();
    assert_eq!(nfs.getattr(&file).await.unwrap().fileid, fileid);
    for (xid, proc, args, first) in answers {
        let again = nfs.raw(xid, proc, &Blob(args)).await.unwrap();
        assert_eq!(status(&again), first, "{}", procs::NAMES[proc as usize]);
    }
}

#[tokio::test]
async fn one_xid_with_other_arguments_is_another_call() {
    let world = World::new().await;
    let nfs = world.owner();
    let lab = nfs.mounted(b"/lab").await;
    for name in [b"one", b"two"] {
        let args = CreateArgs { at: at(&lab, name), how: CreateHow3::Guarded(mode(0o644)) };
        let reply = nfs.raw(7, procs::CREATE, &args).await.unwrap();
        assert_eq!(status(&reply), NfsStat3::Ok);
        assert_eq!(nfs.lookup(&lab, name).await.status(), NfsStat3::Ok);
    }
}

#[tokio::test]
async fn a_failure_is_repeated_too() {
    let world = World::new().await;
    let nfs = world.owner();
    let lab = nfs.mounted(b"/lab").await;
    let first = nfs.raw(7, procs::REMOVE, &at(&lab, b"late")).await.unwrap();
    assert_eq!(status(&first), NfsStat3::NoEnt);
    nfs.create(&lab, b"late").await;
    assert_eq!(nfs.raw(7, procs::REMOVE, &at(&lab, b"late")).await.unwrap(), first);
    assert_eq!(nfs.lookup(&lab, b"late").await.status(), NfsStat3::Ok);
}

/// Only the first 256 bytes of the arguments tell calls apart, which is not enough to give a WRITE the answer of
/// another one.
#[tokio::test]
async fn a_write_that_is_done_may_be_done_again() {
    let world = World::new().await;
    let nfs = world.owner();
    let lab = nfs.mounted(b"/lab").await;
    let file = nfs.create(&lab, b"file").await;
    for last in [b'a', b'b'] {
        let data = Bytes::from([&[b'-'; 300][..], &[last]].concat());
        let args = WriteArgs { file, offset: 0, count: 301, stable: StableHow::FileSync, data: data.clone() };
        assert_eq!(status(&nfs.raw(7, procs::WRITE, &args).await.unwrap()), NfsStat3::Ok);
        assert_eq!(nfs.read(&file, 0, 1000).await.into_result().unwrap().data.concat(), data);
    }
}

/// A WRITE that waits for the home is joined by its repetition: one change, hence one pair of times.
#[tokio::test]
async fn a_write_that_runs_is_not_run_again() {
    let world = World::with(Mode::Strict, policy()).await;
    let (nfs, other) = (world.owner(), world.connect("127.0.0.1:701", world.owner().cred));
    let lab = nfs.mounted(b"/lab").await;
    let file = nfs.create(&lab, b"file").await;
    let data = Bytes::from_static(b"data");
    let args = WriteArgs { file, offset: 0, count: 4, stable: StableHow::FileSync, data };
    world.ground.lab.set(Fault::Hang);
    let open = async {
        sleep(Duration::from_millis(50)).await;
        world.ground.lab.set(Fault::None);
    };
    let (a, b, ()) = tokio::join!(nfs.raw(7, procs::WRITE, &args), other.raw(7, procs::WRITE, &args), open);
    let (a, b) = (a.unwrap(), b.unwrap());
    assert_eq!(status(&a), NfsStat3::Ok);
    assert_eq!(a, b);
}

/// The first call waits for the home (mode `strict`); the same call on the same and on another connection waits
/// with it, and also when the first connection is lost meanwhile.
#[tokio::test]
async fn a_call_that_runs_is_not_run_again() {
    let world = World::with(Mode::Strict, policy()).await;
    let nfs = world.owner();
    let lab = nfs.mounted(b"/lab").await;
    let (same, lost) = (world.owner(), world.owner());
    let args = CreateArgs { at: at(&lab, b"slow"), how: CreateHow3::Guarded(mode(0o644)) };
    let calls = world.ground.lab.calls();
    world.ground.lab.set(Fault::Hang);
    let twice = async {
        while world.ground.lab.calls() == calls {
            sleep(Duration::from_millis(1)).await;
        }
        let (a, b) = (same.raw(7, procs::CREATE, &args), same.raw(7, procs::CREATE, &args));
        let open = async {
            sleep(Duration::from_millis(50)).await;
            world.ground.lab.set(Fault::None);
        };
        tokio::join!(a, b, open)
    };
    let first = async {
        let give_up = sleep(Duration::from_millis(20));
        tokio::select! {
            _ = lost.raw(7, procs::CREATE, &args) => panic!("the home hangs"),
            () = give_up => drop(lost),
        }
    };
    let ((), (a, b, ())) = tokio::join!(first, twice);
    let (a, b) = (a.unwrap(), b.unwrap());
    assert_eq!(status(&a), NfsStat3::Ok, "a second run would find the name taken");
    assert_eq!(a, b);
}
