//! A volume by itself: who waits for whom.

use super::*;
use crate::env::testing::{SimDisk, env};
use crate::mode::Mode;
use crate::store::MemStore;
use crate::sync::queue::{Group, names};
use home::Done;
use home::memory::MemoryHome;
use std::sync::mpsc;

fn volume(disk: &SimDisk, home: Arc<dyn Home>) -> Arc<Volume> {
    let env = env(disk, 1);
    let shared = Shared {
        journal: Journal::start(&env),
        budget: Budget::new(1 << 30),
        env,
        store: Arc::new(MemStore::new()),
        stats: Arc::default(),
        replies: Arc::default(),
        watchers: Arc::default(),
        gateway: 1,
        stagings: Arc::default(),
        server_uid: 4000,
        server_gid: 4000,
        staleness: Duration::ZERO,
        spool_from: None,
        batch_bytes: crate::BATCH_BYTES,
    };
    let options = MountOptions::default();
    let modes = RwLock::new(Modes::new(Mode::Wb, Vec::new()).unwrap());
    let policy = Policy { modes, conflicts: Policies::default(), share: false, options };
    Volume::open(&shared, 7, "ann@lab:22".into(), home, policy).unwrap()
}

#[tokio::test]
async fn a_home_is_greeted_while_somebody_looks_at_its_state() {
    let home = MemoryHome::new();
    let volume = volume(&SimDisk::new(), Arc::new(home.clone()));
    let hello = home.attach().await.unwrap();
    let (ended, ends) = mpsc::channel();
    let start = |work: fn(&Volume, &Hello)| {
        let (volume, hello, ended) = (volume.clone(), hello.clone(), ended.clone());
        std::thread::spawn(move || {
            (0..50_000).for_each(|_| work(&volume, &hello));
            ended.send(()).unwrap();
        });
    };
    start(|volume, hello| volume.recognise(hello).unwrap());
    start(|volume, _| drop(volume.status()));
    for _ in 0..2 {
        ends.recv_timeout(Duration::from_secs(30)).expect("they wait for each other");
    }
}

#[tokio::test]
async fn a_checkpoint_that_is_given_up_loses_no_identity() {
    let disk = SimDisk::new();
    let volume = volume(&disk, Arc::new(MemoryHome::new()));
    let saved = || {
        let key = [&b"b"[..], &7u32.to_be_bytes(), &crate::inode::ROOT_ID.to_be_bytes()].concat();
        volume.shared.store.get(&key).unwrap().is_some()
    };
    volume.tree.lock().note(crate::inode::ROOT_ID);
    disk.slow_syncs(Duration::from_secs(1));
    let given_up = tokio::time::timeout(Duration::from_millis(200), volume.checkpoint(true)).await;
    assert!(given_up.is_err() && !saved());
    disk.slow_syncs(Duration::ZERO);
    volume.checkpoint(true).await.unwrap();
    assert!(saved());
}

#[tokio::test]
async fn a_checkpoint_that_is_given_up_loses_no_copy_of_a_conflict() {
    use crate::inode::{ROOT_ID, tests::attr};
    let disk = SimDisk::new();
    let volume = volume(&disk, Arc::new(MemoryHome::new()));
    let lost = Name::new(b"f").unwrap();
    let copy = crate::conflict::copy_name(&lost, 1, home::Time { sec: 5, nsec: 0 }, 9);
    volume.tree.lock().bind(ROOT_ID, &copy, &attr(home::Kind::File, 50), None).unwrap();
    disk.slow_syncs(Duration::from_secs(1));
    let given_up = tokio::time::timeout(Duration::from_millis(200), volume.checkpoint(true)).await;
    assert!(given_up.is_err());
    disk.slow_syncs(Duration::ZERO);
    volume.checkpoint(true).await.unwrap();
    let mut next = Tree::open(volume.id, volume.shared.store.clone()).unwrap();
    next.nameless.gateway = 1;
    assert_eq!(next.copies.ids().len(), 1);
}

#[test]
fn an_error_that_comes_again_is_told_once() {
    let mut trouble = Trouble::default();
    let fails = |kind: ErrorKind, why: &str| Err(Error::new(kind, why));
    assert_eq!(trouble.news(Ok(())), None);
    assert!(trouble.news(fails(ErrorKind::NoSpace, "7 bytes")).unwrap().contains("7 bytes"), "it begins");
    assert_eq!(trouble.news(fails(ErrorKind::NoSpace, "5 bytes")), None);
    assert!(trouble.news(fails(ErrorKind::Io, "broken")).unwrap().contains("broken"), "it is another");
    assert!(trouble.news(Ok(())).unwrap().contains("3 had failed"), "it is over");
    assert_eq!(trouble.news(Ok(())), None);
}

/// The store has attributes that contain the change: they must not come back when the record of its end is behind.
#[test]
fn attributes_that_are_forgotten_leave_the_store_too() {
    use crate::inode::{ROOT_ID, tests::attr};
    use home::{Kind, SetAttr};
    let store = Arc::new(MemStore::new());
    let mut tree = Tree::open(1, store.clone()).unwrap();
    let name = Name::new(b"f").unwrap();
    let id = tree.bind(ROOT_ID, &name, &attr(Kind::File, 50), None).unwrap();
    tree.get(id).unwrap().attr = Some(attr(Kind::File, 50));
    store.commit(tree.checkpoint(1).1).unwrap();
    let known = |tree: &mut Tree| tree.get(id).unwrap().attr.is_some();
    assert!(known(&mut Tree::open(1, store.clone()).unwrap()));

    let change = Change {
        time: home::Time::default(),
        object: id,
        after: None,
        op: Op::SetAttr { object: id, base: None, set: SetAttr::default() },
        retry: None,
        verifier: None,
        plain: false,
    };
    forget_attributes(&mut tree, &change);
    store.commit(tree.checkpoint(2).1).unwrap();
    assert!(!known(&mut Tree::open(1, store.clone()).unwrap()));
}

/// The home had given the file another name, and gave that to another one since: no record tells it.
#[tokio::test]
async fn what_is_written_after_a_removal_is_to_a_file_that_is_not_gone() {
    use crate::inode::{ROOT_ID, tests::attr};
    for written in [false, true] {
        let volume = volume(&SimDisk::new(), Arc::new(MemoryHome::new()));
        let mut tree = volume.tree.lock();
        let (name, after) = (Name::new(b"f").unwrap(), attr(home::Kind::File, 50));
        let object = tree.bind(ROOT_ID, &name, &after, None).unwrap();
        let change = |op| Change {
            time: after.mtime,
            object,
            after: Some(after),
            op,
            retry: None,
            verifier: None,
            plain: false,
        };
        let remove =
            change(Op::Remove { dir: ROOT_ID, name: name.clone(), object, is_dir: false, base: None });
        let write = change(Op::Write { file: object, base: None, pieces: vec![] });
        let records = [(1, remove)].into_iter().chain(written.then_some((2, write)));
        let records = records.map(|(seq, change)| (seq, Body::Change(change))).collect();
        recover(&volume.shared, 7, &mut tree, &volume.data, records).unwrap();
        assert_eq!(tree.get(object).unwrap().gone, !written);
        // What is written has a place when the home has done that.
        let (group, done) = (Group::one(1), Done { attr: None, dirs: vec![] });
        volume.done(&mut tree, &group, &done).unwrap();
        let copies: Vec<Name> =
            tree.queue.iter().flat_map(|(_, p)| names(&p.change)).map(|(_, n)| n).collect();
        let copy = crate::conflict::copy_name(&name, 1, after.mtime, 2);
        assert_eq!(copies, if written { vec![copy] } else { vec![] });
    }
}

/// An outcome tells that a new file is one which was found by another name, with unsent changes. Neither a crash right behind it
/// must bring back what those were made to, nor the outcome of a move of what was found.
#[tokio::test]
async fn what_is_parted_from_another_stays_so_after_a_crash() {
    use crate::inode::{ROOT_ID, tests::attr};
    use home::{Kind, New, Piece};
    for moved in [false, true] {
        let disk = SimDisk::new();
        let found = home::Attr { size: 0, ..attr(Kind::File, 50) };
        let [ours, theirs, new_name] = [b"f", b"g", b"h"].map(|name| Name::new(name).unwrap());
        let change = |object, op| Change {
            time: found.mtime,
            object,
            after: Some(found),
            op,
            retry: None,
            verifier: None,
            plain: false,
        };
        let other = {
            let volume = volume(&disk, Arc::new(MemoryHome::new()));
            let other = {
                let mut tree = volume.tree.lock();
                let object = tree.new_id().unwrap();
                let made = Op::Create { dir: ROOT_ID, name: ours, new: New::File, mode: 0o644 };
                let unseen = home::Attr { id: home::HomeId::default(), ..found };
                let create = Change { after: Some(unseen), ..change(object, made) };
                let create = volume.submit(&mut tree, 0, create).unwrap();
                let other = tree.bind(ROOT_ID, &theirs, &found, None).unwrap();
                assert_ne!(other, object);
                let inode = tree.get(other).unwrap();
                (inode.attr, inode.base) = (Some(found), Some(found.version()));
                let (from, to) = (ROOT_ID, ROOT_ID);
                let op = Op::Rename { from, name: theirs, object: other, to, new_name, replaced: None };
                let rename = volume.submit(&mut tree, 0, change(other, op)).unwrap();
                let pieces = vec![Piece::Truncate(0)];
                let write = Op::Write { file: other, base: Some(found.version()), pieces };
                volume.submit(&mut tree, 0, change(other, write)).unwrap();
                for seq in [Some(create.seq), moved.then_some(rename.seq)].into_iter().flatten() {
                    let group = Group::one(seq);
                    volume.done(&mut tree, &group, &Done { attr: Some(found), dirs: vec![] }).unwrap();
                }
                let base = tree.get(other).unwrap().base.unwrap();
                assert_eq!(base.id, home::HomeId::default(), "moved: {moved}");
                other
            };
            volume.lane.synced(volume.lane.last()).await.unwrap();
            disk.kill();
            other
        };
        let volume = volume(&disk, Arc::new(MemoryHome::new()));
        let mut tree = volume.tree.lock();
        assert_eq!(tree.get(other).unwrap().base.unwrap().id, home::HomeId::default(), "moved: {moved}");
    }
}

/// A SETATTR of size and mode takes two changes, and a power cut may leave the first one alone: only the last one says that the
/// call was executed.
#[tokio::test]
async fn the_last_change_of_a_call_alone_answers_it_again() {
    use crate::inode::{ROOT_ID, tests::attr};
    use crate::types::{Cred, Ctx, RetryKey, SetAttrs};
    let volume = volume(&SimDisk::new(), Arc::new(MemoryHome::new()));
    let cred = Cred { uid: 4000, gid: 4000, groups: Vec::new() };
    let mode_alone = SetAttrs { mode: Some(0o640), ..SetAttrs::default() };
    let size_alone = SetAttrs { size: Some(1_000), ..SetAttrs::default() };
    let both = SetAttrs { size: Some(1_000), ..mode_alone };
    let cases: [(SetAttrs, &[bool]); 3] =
        [(both, &[false, true]), (size_alone, &[true]), (mode_alone, &[true])];
    for (n, (set, keys)) in (0u8..).zip(cases) {
        let mut tree = volume.tree.lock();
        let name = Name::new(&[b'a' + n]).unwrap();
        let id = tree.bind(ROOT_ID, &name, &attr(home::Kind::File, 50 + u64::from(n)), None).unwrap();
        tree.get(id).unwrap().attr = Some(attr(home::Kind::File, 50 + u64::from(n)));
        let ctx = Ctx { retry: Some(RetryKey([n; 16])), ..Ctx::of(&cred) };
        volume.set(&mut tree, ctx, id, &set).unwrap();
        let of_it = tree.queue.iter().filter(|(_, p)| p.change.object == id);
        let have: Vec<bool> = of_it.map(|(_, p)| p.change.retry.is_some()).collect();
        assert_eq!(have, keys, "{set:?}");
    }
}
