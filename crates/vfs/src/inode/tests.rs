//! Identity: what survives eviction and restart.

use super::*;
use crate::store::MemStore;
use home::Access;

/// Attributes of a small file or another object.
pub fn attr(kind: Kind, ino: u64) -> Attr {
    let id = HomeId { fs: 7, ino, generation: 1 };
    let time = Time { sec: 1, nsec: 2 };
    let access = Access::ALL;
    Attr {
        id,
        kind,
        mode: 0o644,
        nlink: 1,
        uid: 1,
        gid: 1,
        size: 3,
        used: 3,
        atime: time,
        mtime: time,
        ctime: time,
        access,
    }
}

fn name(n: u64) -> Name {
    Name::new(format!("n{n}").as_bytes()).unwrap()
}

#[test]
fn an_object_that_was_dropped_from_memory_keeps_its_identity() {
    let store = Arc::new(MemStore::new());
    let mut tree = Tree::open(1, store.clone()).unwrap();
    let ids: Vec<u64> =
        (0..100).map(|n| tree.bind(ROOT_ID, &name(n), &attr(Kind::File, 50 + n), None).unwrap()).collect();
    tree.shrink(10);
    assert_eq!(tree.len(), 101, "what the store does not have stays");
    store.commit(tree.checkpoint(0).1).unwrap();
    tree.get(ids[3]).unwrap().pending = 1;
    tree.shrink(10);
    assert_eq!(tree.len(), 2, "what is unsent stays");
    for (n, id) in ids.iter().enumerate() {
        let again = tree.bind(ROOT_ID, &name(n as u64), &attr(Kind::File, 50 + n as u64), None).unwrap();
        assert_eq!(again, *id);
        assert_eq!(tree.get(again).unwrap().fileid, 50 + n as u64);
    }
}

/// The home may show two objects by one identity: what stands for it is the one that was found last, also after a restart.
#[test]
fn of_two_objects_of_one_identity_the_same_is_known_by_it_after_a_restart() {
    let store = Arc::new(MemStore::new());
    let mut tree = Tree::open(1, store.clone()).unwrap();
    let pairs: Vec<(u64, HomeId)> = (0..10)
        .map(|n| {
            let file = |name_of, ino| (name(name_of), attr(Kind::File, ino));
            let ((first, shown), (second, other)) = (file(2 * n, 50 + n), file(2 * n + 1, 150 + n));
            let found = tree.bind(ROOT_ID, &first, &shown, None).unwrap();
            let twin = tree.bind(ROOT_ID, &second, &other, None).unwrap();
            tree.rebind(twin, shown.id, Some((ROOT_ID, second)));
            tree.rebind(found, shown.id, Some((ROOT_ID, first)));
            (found, shown.id)
        })
        .collect();
    store.commit(tree.checkpoint(1).1).unwrap();
    let mut tree = Tree::open(1, store).unwrap();
    for (found, id) in pairs {
        assert_eq!(tree.find_home(&id), Some(found));
    }
}

#[test]
fn without_identities_what_the_home_has_stays_itself_and_what_is_unsent_is_another() {
    let mut tree = Tree::open(1, Arc::new(MemStore::new())).unwrap();
    let there = |kind| Attr { id: HomeId::default(), ..attr(kind, 0) };
    let dir = tree.bind(ROOT_ID, &name(1), &there(Kind::Dir), None).unwrap();
    tree.get(dir).unwrap().pending = 3;
    assert_eq!(tree.bind(ROOT_ID, &name(1), &there(Kind::Dir), Some(dir)).unwrap(), dir);
    let unsent = tree.new_id().unwrap();
    tree.insert_new(unsent, there(Kind::File));
    tree.get(unsent).unwrap().pending = 1;
    assert_ne!(tree.bind(ROOT_ID, &name(2), &there(Kind::File), Some(unsent)).unwrap(), unsent);
}

#[test]
fn an_object_of_many_names_is_told_in_few_words() {
    let mut tree = Tree::open(1, Arc::new(MemStore::new())).unwrap();
    tree.nameless.gateway = 7;
    let object = tree.bind(ROOT_ID, &name(0), &attr(Kind::File, 50), None).unwrap();
    let hidden = hidden_name(7, object);
    tree.get(object).unwrap().add_binding((ROOT_ID, hidden.clone()));
    for n in 1..40_000 {
        tree.get(object).unwrap().more_bindings.push((ROOT_ID, name(n)));
    }
    let told = tree.binding(object).unwrap();
    let size = told.to_bytes().len();
    assert!(size < 8192, "an outcome of {size} bytes");
    for kept in [hidden, name(39_999)] {
        assert!(told.more.iter().any(|place| place.name == kept), "{kept}");
    }
}

#[test]
fn a_removed_file_that_was_found_again_is_there_after_a_restart() {
    let mut tree = Tree::open(1, Arc::new(MemStore::new())).unwrap();
    let object = tree.bind(ROOT_ID, &name(1), &attr(Kind::File, 50), None).unwrap();
    let found = tree.binding(object).unwrap();
    tree.unlink(ROOT_ID, &name(1), object);
    let removed = tree.binding(object).unwrap();
    tree.restore(&removed);
    assert!(tree.get(object).unwrap().gone);
    tree.restore(&found);
    assert!(!tree.get(object).unwrap().gone, "the home has it by the name that it had");
}

#[test]
fn ids_are_never_given_twice() {
    let store = Arc::new(MemStore::new());
    let mut tree = Tree::open(1, store.clone()).unwrap();
    let last = (0..5).map(|_| tree.new_id().unwrap()).max().unwrap();
    drop(tree);
    let mut tree = Tree::open(1, store).unwrap();
    assert!(tree.new_id().unwrap() > last);
}

#[test]
fn names_in_a_root_that_nobody_looked_at_are_known_after_a_restart() {
    let store = Arc::new(MemStore::new());
    let mut tree = Tree::open(1, store.clone()).unwrap();
    let unknown = Attr { id: HomeId::default(), ..attr(Kind::Dir, 0) };
    let dir = tree.bind(ROOT_ID, &name(1), &unknown, None).unwrap();
    tree.get(dir).unwrap().attr = Some(unknown);
    store.commit(tree.checkpoint(1).1).unwrap();
    let mut tree = Tree::open(1, store).unwrap();
    assert_eq!(tree.names(ROOT_ID).unwrap().slot(&name(1)).and_then(|slot| slot.child), Some(dir));
}

#[test]
fn two_live_files_never_share_a_fileid() {
    let mut tree = Tree::open(1, Arc::new(MemStore::new())).unwrap();
    let first = tree.bind(ROOT_ID, &name(1), &attr(Kind::File, 9), None).unwrap();
    // Written home by exchange: another inode, the same fileid; then the home gives the number to a new file.
    tree.rebind(first, HomeId { fs: 7, ino: 10, generation: 1 }, Some((ROOT_ID, name(1))));
    let reused = Attr { id: HomeId { fs: 7, ino: 9, generation: 2 }, ..attr(Kind::File, 9) };
    let second = tree.bind(ROOT_ID, &name(2), &reused, None).unwrap();
    assert_ne!(first, second);
    let fileid = tree.get(first).unwrap().fileid;
    assert_ne!(fileid, tree.get(second).unwrap().fileid);
}

#[test]
fn roots_of_file_systems_have_fileids_that_nothing_above_has() {
    let store = Arc::new(MemStore::new());
    let (mut tree, mut other) = (Tree::open(1, store.clone()).unwrap(), Tree::open(2, store).unwrap());
    let root = tree.get(ROOT_ID).unwrap();
    root.attr = Some(attr(Kind::Dir, 2));
    let above = root.fileid;
    assert_ne!(above, other.get(ROOT_ID).unwrap().fileid);
    assert!(above > OWN_FILEIDS && above >> 63 == 0);
    let inner = Attr { id: HomeId { fs: 8, ino: 2, generation: 1 }, ..attr(Kind::Dir, 2) };
    let mounted = tree.bind(ROOT_ID, &name(1), &inner, None).unwrap();
    tree.get(mounted).unwrap().attr = Some(inner);
    let mounted_fileid = tree.get(mounted).unwrap().fileid;
    let file = tree.bind(ROOT_ID, &name(2), &attr(Kind::File, 2), None).unwrap();
    assert_eq!(tree.get(file).unwrap().fileid, 2, "the number is free: the root has one of ours");
    let below = Attr { id: HomeId { fs: 8, ino: 3, generation: 1 }, ..attr(Kind::File, 3) };
    let below = tree.bind(mounted, &name(3), &below, None).unwrap();
    assert_eq!(tree.get(below).unwrap().fileid, 3);
    assert!(mounted_fileid > OWN_FILEIDS && mounted_fileid != above);
}

#[test]
fn cookies_depend_on_the_name_alone() {
    let (mut a, mut b) = (DirNode::default(), DirNode::default());
    for n in 0..1000 {
        a.slot_mut(&name(n)).child = Some(n);
        b.slot_mut(&name(999 - n)).child = Some(n);
    }
    let cookies = |d: &DirNode| d.after(0).map(|(c, n, _)| (c, n.clone())).collect::<Vec<_>>();
    assert_eq!(cookies(&a), cookies(&b));
    assert!(cookies(&a).iter().all(|(c, _)| *c >= FIRST_COOKIE && *c < 1 << 63));
}
