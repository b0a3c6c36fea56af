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
        let (group, done) = (Group { seqs: vec![1], newborn: false }, Done { attr: None, dirs: vec![] });
        volume.done(&mut tree, &group, &done).unwrap();
        let copies: Vec<Name> =
            tree.queue.iter().flat_map(|(_, p)| names(&p.change)).map(|(_, n)| n).collect();
        let copy = crate::conflict::copy_name(&name, 1, after.mtime, 2);
        assert_eq!(copies, if written { vec![copy] } else { vec![] });
    }
}
