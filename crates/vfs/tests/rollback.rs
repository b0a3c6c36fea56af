//! A state directory that is put back to an earlier state, used twice, or without its journal sends nothing: its home has
//! later changes of it than it knows itself.

#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

mod common;

use common::{Engine, World, until};
use home::ErrorKind;
use home::posix::{Posix, PosixHome};
use home::testing::fault::{Fault, FaultHome};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use vfs::env::Disk;
use vfs::env::testing::SimDisk;
use vfs::store::{MemStore, MetaStore};
use vfs::{Mode, Stability};

/// A gateway of a home that is a folder. Each process has an agent of its own there.
fn world(root: &Path) -> World {
    let mut world = World::new(Mode::Wb);
    reconnect(&mut world, root);
    world
}

fn reconnect(world: &mut World, root: &Path) {
    world.fault(Fault::Unreachable);
    let root = root.as_os_str().as_bytes();
    let posix = PosixHome::new(Posix::open(root).unwrap().with_home_dir(root));
    world.fault = Arc::new(FaultHome::new(Arc::new(posix)));
}

/// The same state directory once more, as it is now, but for these folders.
fn copy(world: &World, root: &Path, without: &[&str]) -> World {
    let mut other = World { disk: SimDisk::new(), store: Arc::new(MemStore::new()), ..World::new(Mode::Wb) };
    for key in 0..=255 {
        let all = world.store.scan(&[key]).unwrap();
        let writes = all.into_iter().map(|(key, value)| (key.to_vec(), Some(value.to_vec()))).collect();
        other.store.commit(writes).unwrap();
    }
    let dirs = ["journal", "data"].into_iter().filter(|dir| !without.contains(dir));
    let disk = world.disk.clone();
    dirs.for_each(|dir| copy_dir(&disk, &other.disk, dir));
    reconnect(&mut other, root);
    other
}

fn copy_dir(from: &SimDisk, to: &SimDisk, dir: &str) {
    to.create_dir_all(dir).unwrap();
    for name in from.list(dir).unwrap() {
        let path = format!("{dir}/{name}");
        match from.content(&path) {
            Some(bytes) => to.create(&path).unwrap().pwrite_all(&[&bytes], 0).unwrap(),
            None => copy_dir(from, to, &path),
        }
    }
}

/// Starts it, and ends it in order.
async fn once(world: &mut World, root: &Path, work: impl AsyncFnOnce(&Engine)) {
    let e = world.start().await;
    work(&e).await;
    e.sync().await;
    assert_eq!(e.vfs.status().volumes[0].suspended, None);
    e.vfs.close(None).await;
    reconnect(world, root);
}

/// One that has claimed its home and runs, and a copy that was made meanwhile.
async fn copied_while_it_runs(root: &Path) -> (World, Engine, World) {
    let gateway = world(root);
    let one = gateway.start().await;
    put(&one, "f", "first").await;
    let twin = copy(&gateway, root, &[]);
    (gateway, one, twin)
}

/// Gives a file this content, which is at home then.
async fn put(e: &Engine, name: &str, text: &str) {
    let lab = e.lab().await;
    let file = match e.find(&format!("/lab/{name}")).await {
        Ok(file) => file,
        Err(_) => e.create(lab, name).await.unwrap(),
    };
    e.write(file, 0, text.as_bytes()).await.unwrap();
    e.sync().await;
}

/// Nothing of it is sent, everybody who asks hears of it, and nothing is accepted any more; what is at home is read.
async fn is_suspended(e: &Engine) {
    let suspended = || e.vfs.status().volumes.first().and_then(|volume| volume.suspended.clone());
    until("suspended", || suspended().is_some()).await;
    let why = suspended().unwrap();
    assert!(why.contains("ann@lab:22") && why.contains("with an empty one"), "{why}");
    for again in [false, true] {
        let refused = e.create(e.lab().await, "more").await.unwrap_err();
        assert!(refused.kind == ErrorKind::ReadOnly && refused.detail == why, "{refused}, {again}");
        e.vfs.retry_refused(None);
    }
    if e.vfs.status().volumes[0].unsent_ops > 0 {
        let unsent = e.vfs.sync(None, Duration::from_secs(5)).await.unwrap_err();
        assert_eq!((unsent.len(), unsent[0].may_pass, &unsent[0].why), (1, false, &why));
        let barrier = e.read(e.find("/.trellis/sync/1").await.unwrap()).await.unwrap_err();
        assert!(barrier.kind == ErrorKind::Io && barrier.detail.contains(&why), "{barrier}");
    }
}

/// What the home has, but for what is ours.
fn at_home(root: &Path) -> Vec<(String, String)> {
    let entries = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap());
    let files = entries.filter(|entry| entry.file_type().unwrap().is_file());
    let text = |path| String::from_utf8(std::fs::read(path).unwrap()).unwrap();
    let mut all: Vec<_> = files.map(|f| (f.file_name().into_string().unwrap(), text(f.path()))).collect();
    all.sort();
    all
}

fn texts(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(name, text)| (name.to_string(), text.to_string())).collect()
}

#[tokio::test]
async fn a_state_directory_that_was_put_back_sends_nothing() {
    for without in [&[][..], &["journal"], &["journal", "data"]] {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let mut gateway = world(root);
        once(&mut gateway, root, async |e| put(e, "f", "first").await).await;
        let saved = copy(&gateway, root, without);
        once(&mut gateway, root, async |e| {
            put(e, "f", "second").await;
            put(e, "g", "new").await;
        })
        .await;
        let wanted = texts(&[("f", "second"), ("g", "new")]);
        assert_eq!(at_home(root), wanted);

        let old = saved.start().await;
        let file = old.find("/lab/f").await.unwrap();
        // It may be heard of before that.
        let accepted = old.write(file, 0, b"third!").await;
        assert!(accepted.is_ok() || accepted.is_err_and(|e| e.kind == ErrorKind::ReadOnly));
        is_suspended(&old).await;
        assert_eq!(old.read(old.find("/lab/g").await.unwrap()).await.unwrap(), b"new");
        assert_eq!(at_home(root), wanted, "without {without:?}");
        old.vfs.close(None).await;

        // The newest one goes on.
        once(&mut gateway, root, async |e| put(e, "g", "newer").await).await;
        assert_eq!(at_home(root), texts(&[("f", "second"), ("g", "newer")]));
    }
}

/// What was accepted before it was heard of is not lost: it is read here, and told to be unsent, also after a restart.
#[tokio::test]
async fn what_a_state_directory_accepted_that_was_put_back_stays_there() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let mut gateway = world(root);
    once(&mut gateway, root, async |e| put(e, "f", "first").await).await;
    let mut saved = copy(&gateway, root, &[]);
    once(&mut gateway, root, async |e| put(e, "f", "second").await).await;
    saved.fault(Fault::Unreachable);
    let old = saved.start().await;
    let file = old.find("/lab/f").await.unwrap();
    old.write(file, 0, b"third").await.unwrap();
    saved.fault(Fault::None);
    for _ in 0..2 {
        old_is_kept(&saved).await;
        reconnect(&mut saved, root);
    }
    async fn old_is_kept(saved: &World) {
        let old = saved.start().await;
        is_suspended(&old).await;
        assert!(old.vfs.status().volumes[0].unsent_ops > 0);
        assert_eq!(old.read(old.find("/lab/f").await.unwrap()).await.unwrap(), b"third");
        old.vfs.close(None).await;
    }
    assert_eq!(at_home(root), texts(&[("f", "second")]));
}

/// In `strict` nothing is decided any more about what was sent: nobody waits for that without end.
#[tokio::test]
async fn a_strict_home_of_a_state_directory_that_was_put_back_answers() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let mut gateway = world(root);
    gateway.mode = Mode::Strict;
    once(&mut gateway, root, async |e| put(e, "f", "first").await).await;
    let e = gateway.start().await;
    let (lab, file) = (e.lab().await, e.find("/lab/f").await.unwrap());
    gateway.fault(Fault::ChangesUnanswered);
    let unstable = e.vfs.write(e.ctx(), file, 0, "other".into(), Stability::Unstable);
    unstable.await.unwrap();
    until("sent", || at_home(root) == texts(&[("f", "other")])).await;
    gateway.disk.kill();
    drop(e);
    reconnect(&mut gateway, root);
    let mut saved = copy(&gateway, root, &[]);
    saved.mode = Mode::Strict;
    once(&mut gateway, root, async |e| put(e, "f", "second").await).await;

    let old = saved.start().await;
    is_suspended(&old).await;
    let soon = Duration::from_secs(15);
    let read = tokio::time::timeout(soon, old.read(file)).await.unwrap();
    assert!(
        read.as_ref().is_ok_and(|bytes| bytes == b"second") || read.is_err_and(|e| e.kind == ErrorKind::Io)
    );
    let made = tokio::time::timeout(soon, old.create(lab, "g")).await.unwrap();
    assert_eq!(made.unwrap_err().kind, ErrorKind::ReadOnly);
    assert_eq!(at_home(root), texts(&[("f", "second")]));
    old.vfs.close(None).await;
}

#[tokio::test]
async fn of_two_copies_that_run_at_once_one_sends() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let mut gateway = world(root);
    once(&mut gateway, root, async |e| put(e, "f", "first").await).await;
    let twin = copy(&gateway, root, &[]);
    let one = gateway.start().await;
    put(&one, "f", "of one").await;
    let two = twin.start().await;
    two.lab().await;
    is_suspended(&two).await;
    put(&one, "g", "of one").await;
    assert_eq!(at_home(root), texts(&[("f", "of one"), ("g", "of one")]));
    two.vfs.close(None).await;
    one.vfs.close(None).await;
}

/// The copy is made while the other one runs, after its last claim.
#[tokio::test]
async fn a_copy_that_was_made_within_a_claim_is_told_by_what_was_sent_since() {
    for waits in [false, true] {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let (_gateway, one, twin) = copied_while_it_runs(root).await;
        put(&one, "f", "second").await;
        put(&one, "g", "second").await;
        let two = {
            twin.fault(if waits { Fault::Unreachable } else { Fault::None });
            twin.start().await
        };
        if waits {
            // As many as the other one has sent, and more.
            let file = two.find("/lab/f").await.unwrap();
            for n in 0..20 {
                two.write(file, 0, format!("third {n}").as_bytes()).await.unwrap();
            }
            twin.fault(Fault::None);
        }
        two.lab().await;
        is_suspended(&two).await;
        put(&one, "g", "third!").await;
        assert_eq!(at_home(root), texts(&[("f", "second"), ("g", "third!")]));
        two.vfs.close(None).await;
        one.vfs.close(None).await;
    }
}

/// Of two that are the same the one that claims first is the newest. Of the other one nothing is sent any more.
#[tokio::test]
async fn who_was_overtaken_by_a_copy_of_itself_stops() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let (_gateway, one, twin) = copied_while_it_runs(root).await;
    let two = twin.start().await;
    put(&two, "f", "of two").await;
    let file = one.find("/lab/f").await.unwrap();
    one.write(file, 0, b"of one").await.unwrap();
    is_suspended(&one).await;
    assert_eq!(one.read(file).await.unwrap(), b"of one");
    put(&two, "g", "of two").await;
    assert_eq!(at_home(root), texts(&[("f", "of two"), ("g", "of two")]));
    two.vfs.close(None).await;
    one.vfs.close(None).await;
}

#[tokio::test]
async fn restarts_kills_and_lost_connections_suspend_nothing() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let mut gateway = world(root);
    for round in 0..12 {
        let e = gateway.start().await;
        put(&e, "f", &format!("round {round:02}")).await;
        if round % 3 == 1 {
            gateway.fault(Fault::ChangesUnanswered);
        }
        let file = e.find("/lab/f").await.unwrap();
        let _ = e.write(file, 0, format!("later {round:02}").as_bytes()).await;
        match round % 4 {
            0 => drop(e.vfs.close(None).await),
            1 => gateway.disk.kill(),
            2 => gateway.disk.crash(round),
            _ => {
                gateway.fault(Fault::Unreachable);
                gateway.disk.kill();
            }
        }
        drop(e);
        reconnect(&mut gateway, root);
    }
    once(&mut gateway, root, async |e| put(e, "f", "the end ").await).await;
    assert_eq!(at_home(root), texts(&[("f", "the end ")]));
}
