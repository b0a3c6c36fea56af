//! One suite for all stores.

use super::*;

fn pairs(found: Vec<(Bytes, Bytes)>) -> Vec<(Vec<u8>, Vec<u8>)> {
    found.into_iter().map(|(k, v)| (k.to_vec(), v.to_vec())).collect()
}

/// What every store must do.
fn suite(store: &dyn MetaStore) {
    assert_eq!(store.get(b"\x01a").unwrap(), None);
    let put = |k: &[u8], v: &[u8]| (k.to_vec(), Some(v.to_vec()));
    store
        .commit(vec![
            put(b"\x01b", b"2"),
            put(b"\x01a", b"1"),
            put(b"\x02a", b"other"),
            put(b"\x01\xff", b""),
        ])
        .unwrap();
    assert_eq!(store.get(b"\x01a").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(store.get(b"\x01\xff").unwrap().as_deref(), Some(&b""[..]));
    let all = vec![
        (b"\x01a".to_vec(), b"1".to_vec()),
        (b"\x01b".to_vec(), b"2".to_vec()),
        (b"\x01\xff".to_vec(), vec![]),
    ];
    assert_eq!(pairs(store.scan(b"\x01").unwrap()), all, "one keyspace, in byte order");

    store.commit(vec![(b"\x01a".to_vec(), None), put(b"\x01b", b"3"), (b"\x01none".to_vec(), None)]).unwrap();
    assert_eq!(store.get(b"\x01a").unwrap(), None);
    assert_eq!(store.scan(b"\x01b").unwrap().len(), 1);
    // Of one key in a batch, the last change counts.
    store.commit(vec![put(b"\x01c", b"x"), (b"\x01c".to_vec(), None)]).unwrap();
    assert_eq!(store.get(b"\x01c").unwrap(), None);
    store.persist().unwrap();
}

#[test]
fn memory() {
    suite(&MemStore::new());
}

#[test]
fn fjall_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let before = {
        let store = FjallStore::open(&dir.path().join("meta")).unwrap();
        suite(&store);
        pairs(store.scan(b"\x01").unwrap())
    };
    let store = FjallStore::open(&dir.path().join("meta")).unwrap();
    assert_eq!(pairs(store.scan(b"\x01").unwrap()), before, "persisted state survives a restart");
}

#[test]
fn a_crash_keeps_a_prefix_of_the_commits() {
    let store = MemStore::new();
    store.commit(vec![(b"\x01a".to_vec(), Some(b"1".to_vec()))]).unwrap();
    store.persist().unwrap();
    for n in 2..5u8 {
        store.commit(vec![(b"\x01a".to_vec(), Some(vec![n])), (vec![1, n], Some(vec![n]))]).unwrap();
    }
    assert_eq!(store.unpersisted(), 3);
    store.crash(1);
    assert_eq!(store.get(b"\x01a").unwrap().as_deref(), Some(&[2][..]));
    assert_eq!(store.scan(b"\x01").unwrap().len(), 2, "a batch is kept or lost as a whole");
    store.crash(9);
    assert_eq!(store.get(b"\x01a").unwrap().as_deref(), Some(&[2][..]), "nothing lost comes back");
}
