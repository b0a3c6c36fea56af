//! The table against a model that has a cell for each byte; queues, turns and deadlocks.

use super::*;
use LockFamily::{Flock, Posix};
use LockKind::{Exclusive, Shared};
use std::time::Duration;

const FILE: Oid = Oid { volume: 3, id: 9 };
const OTHER: Oid = Oid { volume: 3, id: 10 };
/// The last cell stands for all bytes from there to the end.
const CELLS: usize = 20;

struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

fn who(n: u64) -> LockOwner {
    LockOwner { holder: n % 2, owner: n }
}

fn posix(n: u64, start: u64, last: u64, kind: LockKind) -> Lock {
    Lock { who: who(n), pid: n as u32, family: Posix, range: LockRange { start, last }, kind }
}

fn whole(n: u64, kind: LockKind) -> Lock {
    Lock { who: who(n), pid: n as u32, family: Flock, range: LockRange { start: 5, last: 5 }, kind }
}

type Model = Vec<[Option<LockKind>; CELLS]>;

fn cells(range: LockRange) -> std::ops::RangeInclusive<usize> {
    range.start as usize..=range.last.min(CELLS as u64 - 1) as usize
}

fn model_conflict(model: &Model, n: usize, range: LockRange, kind: LockKind) -> bool {
    let others = model.iter().enumerate().filter(|(o, _)| *o != n);
    let mut cells = others.flat_map(|(_, owner)| &owner[cells(range)]).flatten();
    cells.any(|held| *held == Exclusive || kind == Exclusive)
}

/// What the table has, in cells; fails where an owner's locks overlap or could be joined.
fn dump(locks: &Locks, owners: usize) -> Model {
    let table = locks.0.lock();
    let held = table.held(FILE);
    assert_eq!(table.locks, held.len());
    for (i, a) in held.iter().enumerate() {
        for b in &held[i + 1..] {
            let same = a.is_of(b.who, b.family);
            assert!(!(same && a.range.overlaps(&b.range)), "{a:?} {b:?}");
            assert!(!(same && a.kind == b.kind && a.range.joins(&b.range)), "{a:?} {b:?}");
        }
    }
    let mut model = vec![[None; CELLS]; owners];
    for lock in held {
        model[lock.who.owner as usize][cells(lock.range)].fill(Some(lock.kind));
    }
    model
}

#[test]
fn ranges_are_what_a_model_of_single_bytes_says() {
    const OWNERS: usize = 4;
    for seed in 1..40 {
        let mut dice = Dice(seed * 0x9e37_79b9);
        let locks = Locks::default();
        let mut model: Model = vec![[None; CELLS]; OWNERS];
        for _ in 0..400 {
            let n = dice.below(OWNERS as u64);
            let start = dice.below(CELLS as u64);
            let mut last = start + dice.below(CELLS as u64 - start);
            if last == CELLS as u64 - 1 {
                last = u64::MAX;
            }
            let kind = if dice.below(3) == 0 { Exclusive } else { Shared };
            let (range, i) = (LockRange { start, last }, n as usize);
            match dice.below(20) {
                0..9 => {
                    let free = !model_conflict(&model, i, range, kind);
                    let taken = locks.lock(FILE, posix(n, start, last, kind));
                    assert_eq!(taken.map_err(|e| e.kind), if free { Ok(()) } else { Err(ErrorKind::Locked) });
                    if free {
                        model[i][cells(range)].fill(Some(kind));
                    }
                }
                9..16 => {
                    locks.unlock(FILE, who(n), Posix, range).unwrap();
                    model[i][cells(range)].fill(None);
                }
                16..19 => {
                    let found = locks.test(FILE, posix(n, start, last, kind)).unwrap();
                    assert_eq!(found.is_some(), model_conflict(&model, i, range, kind));
                    if let Some(found) = found {
                        assert!(found.range.overlaps(&range) && found.who != who(n));
                        assert_eq!(found.pid, found.who.owner as u32);
                    }
                }
                _ if dice.below(4) == 0 => {
                    locks.release_holder(1);
                    model[1].fill(None);
                    model[3].fill(None);
                }
                _ => {
                    locks.release_owner(FILE, who(n));
                    model[i].fill(None);
                }
            }
            assert_eq!(dump(&locks, OWNERS), model);
        }
    }
}

#[test]
fn families_do_not_meet_and_the_whole_file_is_one_lock() {
    let locks = Locks::default();
    locks.lock(FILE, posix(1, 0, 9, Exclusive)).unwrap();
    locks.lock(FILE, whole(2, Exclusive)).unwrap();
    assert_eq!(locks.lock(FILE, whole(3, Shared)).unwrap_err().kind, ErrorKind::Locked);
    locks.lock(FILE, whole(2, Shared)).unwrap();
    locks.lock(FILE, whole(3, Shared)).unwrap();
    assert_eq!(locks.lock(FILE, whole(2, Exclusive)).unwrap_err().kind, ErrorKind::Locked);
    locks.unlock(FILE, who(3), Flock, LockRange { start: 0, last: 0 }).unwrap();
    locks.lock(FILE, whole(2, Exclusive)).unwrap();
    assert_eq!(locks.test(FILE, posix(2, 5, 5, Shared)).unwrap(), Some(posix(1, 0, 9, Exclusive)));
    assert_eq!(locks.lock(FILE, posix(2, 5, 4, Shared)).unwrap_err().kind, ErrorKind::Invalid);
}

#[test]
fn there_are_only_so_many() {
    let locks = Locks::default();
    let mut taken = 0u64;
    while locks.lock(FILE, posix(1, taken * 10, taken * 10 + 4, Shared)).is_ok() {
        taken += 1;
        if taken.is_multiple_of(200) {
            // Another file, so that no list grows long enough to make this test slow.
            let mut table = locks.0.lock();
            let held = table.held.remove(&FILE).unwrap();
            table.held.insert(Oid { volume: 4, id: taken }, held);
        }
    }
    assert!(taken as usize >= limits::LOCKS - 2 && (taken as usize) < limits::LOCKS);
    locks.release_holder(1);
    locks.lock(FILE, posix(1, 0, 0, Shared)).unwrap();
    assert_eq!(locks.0.lock().locks, 1);
}

/// A request in a task of its own, once it stands in the queue.
async fn ask(locks: &Arc<Locks>, oid: Oid, lock: Lock) -> tokio::task::JoinHandle<Result<()>> {
    let next = locks.0.lock().next_waiter;
    let (locks, asker) = (locks.clone(), locks.clone());
    let task = tokio::spawn(async move { asker.lock_wait(oid, lock).await });
    while !task.is_finished() && locks.0.lock().next_waiter == next {
        tokio::task::yield_now().await;
    }
    task
}

async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_queue_is_fair_and_whoever_leaves_makes_room() {
    let locks: Arc<Locks> = Arc::default();
    locks.lock(FILE, posix(1, 0, 9, Exclusive)).unwrap();
    let first = ask(&locks, FILE, posix(2, 0, 4, Shared)).await;
    let second = ask(&locks, FILE, posix(3, 0, 9, Exclusive)).await;
    let third = ask(&locks, FILE, posix(4, 0, 4, Shared)).await;
    let beside = ask(&locks, FILE, posix(5, 20, 29, Exclusive)).await;
    beside.await.unwrap().unwrap();
    locks.unlock(FILE, who(1), Posix, LockRange::ALL).unwrap();
    first.await.unwrap().unwrap();
    settle().await;
    assert!(!second.is_finished() && !third.is_finished(), "the third waits for the turn of the second");
    second.abort();
    third.await.unwrap().unwrap();
    assert!(second.await.is_err());
    let table = locks.0.lock();
    assert_eq!((table.locks, table.waiters, table.waiting.len()), (3, 0, 0));
}

#[tokio::test]
async fn who_is_released_waits_no_more() {
    let locks: Arc<Locks> = Arc::default();
    locks.lock(FILE, posix(2, 0, 9, Exclusive)).unwrap();
    let gone = ask(&locks, FILE, posix(1, 0, 9, Shared)).await;
    let stays = ask(&locks, FILE, posix(4, 0, 9, Shared)).await;
    locks.release_holder(1);
    assert_eq!(gone.await.unwrap().unwrap_err().kind, ErrorKind::Stale);
    locks.release_owner(FILE, who(2));
    stays.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_process_that_closes_a_file_in_one_thread_goes_on_waiting_in_another() {
    let locks: Arc<Locks> = Arc::default();
    locks.lock(FILE, posix(1, 0, 0, Exclusive)).unwrap();
    locks.lock(FILE, posix(2, 9, 9, Exclusive)).unwrap();
    let waits = ask(&locks, FILE, posix(2, 0, 0, Exclusive)).await;
    locks.release_owner(FILE, who(2));
    locks.lock(FILE, posix(3, 9, 9, Exclusive)).unwrap();
    settle().await;
    assert!(!waits.is_finished());
    locks.release_owner(FILE, who(1));
    waits.await.unwrap().unwrap();
}

#[tokio::test]
async fn who_finds_no_place_in_the_table_keeps_nobody_waiting() {
    let locks: Arc<Locks> = Arc::default();
    locks.lock(FILE, posix(1, 0, 9, Exclusive)).unwrap();
    let first = ask(&locks, FILE, posix(2, 0, 9, Exclusive)).await;
    let second = ask(&locks, FILE, posix(3, 0, 9, Exclusive)).await;
    // As if all places were taken by locks on other files.
    locks.0.lock().locks = limits::LOCKS;
    locks.release_owner(FILE, who(1));
    assert_eq!(first.await.unwrap().unwrap_err().kind, ErrorKind::NoLocks);
    let second = tokio::time::timeout(Duration::from_secs(5), second).await;
    assert_eq!(second.unwrap().unwrap().unwrap_err().kind, ErrorKind::NoLocks);
}

#[tokio::test]
async fn owners_that_would_wait_for_each_other_are_told() {
    let locks: Arc<Locks> = Arc::default();
    for n in 0..3 {
        locks.lock(FILE, posix(n, n * 10, n * 10, Exclusive)).unwrap();
    }
    let a = ask(&locks, FILE, posix(0, 10, 10, Shared)).await;
    let b = ask(&locks, FILE, posix(1, 20, 20, Exclusive)).await;
    let refused = locks.lock_wait(FILE, posix(2, 0, 0, Shared)).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Deadlock);
    locks.unlock(FILE, who(2), Posix, LockRange::ALL).unwrap();
    b.await.unwrap().unwrap();
    locks.release_owner(FILE, who(1));
    a.await.unwrap().unwrap();
}

#[tokio::test]
async fn nobody_waits_for_a_turn_that_would_never_come() {
    let locks: Arc<Locks> = Arc::default();
    // 1 has the other file; 3 reads this one and waits for the other; 2 wants this one alone.
    locks.lock(OTHER, posix(1, 0, 9, Exclusive)).unwrap();
    locks.lock(FILE, posix(3, 0, 9, Shared)).unwrap();
    let other = ask(&locks, OTHER, posix(3, 0, 9, Shared)).await;
    let alone = ask(&locks, FILE, posix(2, 0, 9, Exclusive)).await;
    let reads = tokio::time::timeout(Duration::from_secs(5), locks.lock_wait(FILE, posix(1, 0, 9, Shared)));
    reads.await.unwrap().unwrap();
    locks.release_owner(OTHER, who(1));
    other.await.unwrap().unwrap();
    locks.release_owner(FILE, who(1));
    locks.release_owner(FILE, who(3));
    alone.await.unwrap().unwrap();
}

#[tokio::test]
async fn two_that_share_a_file_may_both_want_it_alone() {
    let locks: Arc<Locks> = Arc::default();
    locks.lock(FILE, whole(1, Shared)).unwrap();
    locks.lock(FILE, whole(2, Shared)).unwrap();
    let first = ask(&locks, FILE, whole(1, Exclusive)).await;
    let second = ask(&locks, FILE, whole(2, Exclusive)).await;
    first.await.unwrap().unwrap();
    settle().await;
    assert!(!second.is_finished());
    locks.release_owner(FILE, who(1));
    second.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn waiting_excludes_and_ends() {
    let locks: Arc<Locks> = Arc::default();
    let cells: Arc<Mutex<Model>> = Arc::new(Mutex::new(vec![[None; CELLS]; 12]));
    let tasks = (0..12u64).map(|n| {
        let (locks, cells) = (locks.clone(), cells.clone());
        tokio::spawn(async move {
            let mut dice = Dice(n + 77);
            for round in 0..200 {
                let start = dice.below(CELLS as u64 - 1);
                let last = start + dice.below(CELLS as u64 - 1 - start);
                let kind = if dice.below(2) == 0 { Exclusive } else { Shared };
                let wait = locks.lock_wait(FILE, posix(n, start, last, kind));
                if round % 5 == 0 && tokio::time::timeout(Duration::from_micros(20), wait).await.is_err() {
                    continue;
                } else if round % 5 != 0 {
                    locks.lock_wait(FILE, posix(n, start, last, kind)).await.unwrap();
                }
                let range = LockRange { start, last };
                {
                    let mut cells = cells.lock();
                    assert!(!model_conflict(&cells, n as usize, range, kind));
                    cells[n as usize][super::tests::cells(range)].fill(Some(kind));
                }
                tokio::task::yield_now().await;
                cells.lock()[n as usize].fill(None);
                locks.unlock(FILE, who(n), Posix, range).unwrap();
            }
        })
    });
    let all = futures_util::future::join_all(tasks.collect::<Vec<_>>());
    for done in tokio::time::timeout(Duration::from_secs(60), all).await.unwrap() {
        done.unwrap();
    }
    let table = locks.0.lock();
    assert_eq!((table.locks, table.waiters), (0, 0));
}
