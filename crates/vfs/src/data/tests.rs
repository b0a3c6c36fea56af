//! The log against a plain model, through evictions, restarts and power cuts.

use super::*;
use crate::env::testing::{SimDisk, env};
use home::HomeId;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::HashMap;

const OBJECTS: u64 = 3;
const SIZE: u64 = 6000;

fn open(disk: &SimDisk, budget: &Arc<Budget>) -> Arc<DataLog> {
    let log = DataLog::open(&env(disk, 1), 7, budget.clone()).unwrap();
    log.allow_eviction();
    log
}

fn version(n: u64) -> Version {
    let time = home::Time { sec: n as i64, nsec: 0 };
    Version { id: HomeId { fs: 1, ino: n, generation: 0 }, size: n, mtime: time, ctime: time }
}

fn settle(log: &DataLog) {
    log.commit_begins();
    log.commit_ends();
}

/// One file: what its home holds, and what the log was told.
struct Model {
    /// The home's bytes; clean bytes are always these.
    home: Vec<u8>,
    /// By byte: the value, and whether it is dirty, where the log was given one.
    local: Vec<Option<(u8, bool)>>,
    pins: Vec<(u64, Extent)>,
    version: Option<Version>,
    /// No two states of the home have the same version.
    versions: u64,
}

impl Model {
    fn new(id: u64) -> Model {
        let home = (0..SIZE).map(|at| (at * 31 + id) as u8).collect();
        Model { home, local: vec![None; SIZE as usize], pins: Vec::new(), version: None, versions: 0 }
    }

    fn put(&mut self, at: u64, data: &[u8], dirty: bool) {
        for (place, value) in self.local[at as usize..].iter_mut().zip(data) {
            // What was fetched never hides what is dirty.
            if dirty || !matches!(place, Some((_, true))) {
                *place = Some((*value, dirty));
            }
        }
    }

    fn forget(&mut self, from: u64) {
        self.local[from as usize..].fill(None);
    }

    /// The home takes over what is dirty.
    fn retire(&mut self) {
        for (home, local) in self.home.iter_mut().zip(&mut self.local) {
            if let Some((value, dirty)) = local {
                (*home, *dirty) = (*value, false);
            }
        }
        self.versions += 1;
        self.version = Some(version(self.versions));
    }

    /// Compares an answer: no byte may be wrong, dirty ones must be there, and all that was put if `complete`.
    fn check(&self, at: u64, len: u32, parts: &[Part], complete: bool) {
        let mut next = at as usize;
        for part in parts {
            match part {
                Part::Have(bytes) => {
                    for b in bytes {
                        let local = self.local[next];
                        assert_eq!(*b, local.map_or(self.home[next], |l| l.0), "byte {next}");
                        assert!(!complete || local.is_some(), "byte {next} was forgotten");
                        next += 1;
                    }
                }
                Part::Gap { at, len } => {
                    assert_eq!(*at as usize, next);
                    for place in next..next + *len as usize {
                        let local = self.local[place];
                        assert!(!matches!(local, Some((_, true))), "byte {place} is dirty and missing");
                        assert!(!complete || local.is_none(), "byte {place} is missing");
                    }
                    next += *len as usize;
                }
                Part::Lost { at, .. } => panic!("lost at {at}"),
            }
        }
        assert_eq!(next as u64, at + u64::from(len), "the parts cover the range");
    }
}

fn put(log: &DataLog, m: &mut Model, id: u64, at: u64, len: u64, rng: &mut StdRng) {
    let dirty = rng.random_bool(0.3);
    let data = match dirty {
        true => vec![rng.random::<u8>(); len as usize],
        false => m.home[at as usize..(at + len) as usize].to_vec(),
    };
    let cut = rng.random_range(0..=data.len());
    let parts = [Bytes::copy_from_slice(&data[..cut]), Bytes::copy_from_slice(&data[cut..])];
    match log.put(id, at, &parts, if dirty { Pin::Dirty } else { Pin::Clean }) {
        Ok(e) => {
            assert_eq!(log.read_extent(&e).unwrap(), data);
            m.put(at, &data, dirty);
            m.pins.extend(dirty.then_some((at, e)));
        }
        Err(e) => assert!(matches!(e, Error::Full(_)), "{e}"),
    }
}

/// One random operation on one object, on the log and on the model.
fn step(log: &DataLog, m: &mut Model, id: u64, rng: &mut StdRng, complete: bool) {
    let at = rng.random_range(0..SIZE - 1);
    let len = rng.random_range(1..=(SIZE - at).min(1500));
    match rng.random_range(0..100) {
        0..40 => put(log, m, id, at, len, rng),
        40..80 => m.check(at, len as u32, &log.get(id, at, len as u32), complete),
        80..86 => {
            log.truncate(id, at);
            m.forget(at);
        }
        86..88 => {
            log.drop_object(id);
            m.forget(0);
            m.version = None;
        }
        88..96 => {
            m.pins.drain(..).for_each(|(_, e)| log.unpin(&e));
            m.retire();
            log.set_version(id, m.version.unwrap());
        }
        _ => settle(log),
    }
    let gaps: u64 = log.gaps(id, 0, SIZE).iter().map(|g| g.1).sum();
    let parts = log.get(id, 0, SIZE as u32);
    let missing: u64 = parts.iter().map(|p| if let Part::Gap { len, .. } = p { *len } else { 0 }).sum();
    assert_eq!(gaps, missing);
}

fn dirty(models: &HashMap<u64, Model>) -> u64 {
    models.values().flat_map(|m| &m.pins).map(|(_, e)| u64::from(e.len)).sum()
}

/// What the engine does after a restart: compares versions with the home, and lays the extents of unretired records
/// over the index.
fn recover(log: &DataLog, models: &mut HashMap<u64, Model>) {
    for (id, m) in models {
        // With the end of the log a version note may be lost; then the bytes are an older version's.
        if log.version(*id) != m.version {
            log.drop_object(*id);
        }
        m.version = log.version(*id);
        m.forget(0);
        for (at, e) in &m.pins.clone() {
            let data = log.read_extent(e).unwrap();
            log.insert(*id, *at, *e);
            m.put(*at, &data, true);
        }
    }
}

fn models() -> HashMap<u64, Model> {
    (1..=OBJECTS).map(|id| (id, Model::new(id))).collect()
}

#[test]
fn like_a_plain_file_while_there_is_room() {
    for seed in 0..60 {
        let mut rng = StdRng::seed_from_u64(seed);
        let disk = SimDisk::new();
        let log = open(&disk, &Budget::with_segments(64 << 20, 16 << 10));
        let mut models = models();
        for _ in 0..200 {
            let id = rng.random_range(1..=OBJECTS);
            step(&log, models.get_mut(&id).unwrap(), id, &mut rng, true);
            assert_eq!(log.usage().dirty_bytes, dirty(&models));
        }
    }
}

#[test]
fn never_wrong_through_evictions_kills_and_power_cuts() {
    for seed in 0..150 {
        let mut rng = StdRng::seed_from_u64(seed);
        let disk = SimDisk::new();
        let mut models = models();
        for life in 0..4 {
            let budget = Budget::with_segments(100 << 10, 16 << 10);
            let log = DataLog::open(&env(&disk, life), 7, budget.clone()).unwrap();
            recover(&log, &mut models);
            log.allow_eviction();
            for (id, m) in &models {
                let parts = log.get(*id, 0, SIZE as u32);
                m.check(0, SIZE as u32, &parts, false);
            }
            for _ in 0..80 {
                let id = rng.random_range(1..=OBJECTS);
                step(&log, models.get_mut(&id).unwrap(), id, &mut rng, false);
                assert!(budget.used() <= budget.cap() + (16 << 10), "{} used", budget.used());
                let index = log.index.lock();
                let pinned = index.segments.values().filter(|s| s.pins > 0);
                assert_eq!(index.held, pinned.map(|s| s.len).sum::<u64>());
            }
            let records = models.values().flat_map(|m| &m.pins);
            records.for_each(|(_, e)| log.require_sync(e.segment));
            log.sync().unwrap();
            if rng.random_bool(0.5) { disk.kill() } else { disk.crash(rng.random()) }
        }
    }
}

#[test]
fn clean_data_survive_a_restart_with_their_version_only() {
    let disk = SimDisk::new();
    let budget = Budget::new(1 << 30);
    let data = Bytes::from(vec![5; 3000]);
    {
        let log = open(&disk, &budget);
        for id in 1..=4 {
            log.put(id, 0, std::slice::from_ref(&data), Pin::Clean).unwrap();
        }
        log.set_version(1, version(1));
        log.set_version(3, version(3));
        log.drop_object(3);
        log.set_version(4, version(4));
        log.truncate(4, 1000);
        let e = log.put(1, 1000, &[data.slice(..500)], Pin::Dirty).unwrap();
        let kept = log.put(1, 2000, &[data.slice(..500)], Pin::Dirty).unwrap();
        assert_ne!(e, kept);
        log.unpin(&kept);
    }
    disk.kill();
    assert_eq!(budget.used(), 0, "a closed log gives its bytes back");
    let log = open(&disk, &budget);
    assert_eq!(log.version(1), Some(version(1)));
    assert_eq!(log.gaps(1, 0, 3000), vec![(1000, 500)], "dirty bytes come back through the journal only");
    assert_eq!(log.gaps(2, 0, 3000), vec![(0, 3000)], "no version");
    assert_eq!(log.gaps(3, 0, 3000), vec![(0, 3000)], "dropped");
    assert_eq!(log.gaps(4, 0, 3000), vec![(1000, 2000)], "truncated");
    let parts = log.get(1, 0, 3000);
    assert!(matches!(&parts[0], Part::Have(b) if b[..] == data[..1000]));
    assert_eq!(parts[1], Part::Gap { at: 1000, len: 500 });
}

#[test]
fn bad_bytes_of_an_earlier_process_become_a_gap_and_bad_unsent_ones_an_error() {
    let disk = SimDisk::new();
    let budget = Budget::new(1 << 30);
    let data = Bytes::from(vec![5; 1000]);
    let log = open(&disk, &budget);
    let clean = log.put(1, 0, std::slice::from_ref(&data), Pin::Clean).unwrap();
    log.set_version(1, version(1));
    let unsent = log.put(1, 1000, std::slice::from_ref(&data), Pin::Dirty).unwrap();
    let file = path(&log.dir, clean.segment);
    drop(log);
    disk.kill();
    disk.flip_bit(&file, clean.pos + 999);
    disk.flip_bit(&file, unsent.pos);
    let log = open(&disk, &budget);
    log.insert(1, 1000, unsent);
    let expected =
        [Part::Gap { at: 0, len: 10 }, Part::Gap { at: 10, len: 990 }, Part::Lost { at: 1000, len: 1000 }];
    assert_eq!(log.get(1, 0, 10), expected[..1], "the whole extent is checked");
    assert_eq!(log.get(1, 10, 1990), expected[1..]);
    assert_eq!(log.gaps(1, 0, 1000), vec![(0, 1000)]);
    assert!(matches!(log.read_extent(&unsent), Err(Error::Corrupt(_))));
}

#[test]
fn dirty_data_are_not_evicted_and_fill_the_budget() {
    let disk = SimDisk::new();
    let budget = Budget::with_segments(64 << 10, 8 << 10);
    let log = open(&disk, &budget);
    let other = DataLog::open(&env(&disk, 1), 8, budget.clone()).unwrap();
    other.allow_eviction();
    other.put(1, 0, &[Bytes::from(vec![1; 4000])], Pin::Clean).unwrap();
    let block = || [Bytes::from(vec![7; 4000])];
    let mut extents = Vec::new();
    let full = loop {
        match log.put(1, extents.len() as u64 * 4000, &block(), Pin::Dirty) {
            Ok(e) => extents.push(e),
            Err(e) => break e,
        }
    };
    assert!(matches!(full, Error::Full(_)));
    assert!(extents.len() >= 14, "{}", extents.len());
    assert_eq!(other.usage().bytes, 0, "clean data of another log went first");
    assert_eq!(log.usage().dirty_bytes, extents.len() as u64 * 4000);
    extents.iter().for_each(|e| log.unpin(e));
    assert!(log.put(1, 0, &block(), Pin::Clean).is_err(), "not before the retirement is durable");
    settle(&log);
    log.put(1, 0, &block(), Pin::Clean).unwrap();
    assert_eq!(log.usage().dirty_bytes, 0);
    assert!(log.put(1, 0, &[Bytes::from(vec![0; 9000])], Pin::Clean).is_err(), "more than a segment");
}

#[test]
fn what_the_queue_needs_to_go_on_has_room_beyond_what_is_unsent() {
    let disk = SimDisk::new();
    let budget = Budget::with_segments(64 << 10, 8 << 10);
    let log = open(&disk, &budget);
    let block = || [Bytes::from(vec![7; 4000])];
    let fill = |room, pin| (0..).take_while(|n| log.put_in(room, 1, n * 4000, &block(), pin).is_ok()).count();
    assert!(fill(Room::Within, Pin::Dirty) >= 14);
    assert!(fill(Room::Beyond, Pin::Dirty) >= 7, "half as many again");
    assert!(budget.used() <= budget.cap() * 3 / 2);
    assert_eq!(fill(Room::Within, Pin::Clean), 0);
}

/// Notes that are kept for pinned bytes may fill segments of their own, which make no room when they go.
#[test]
fn eviction_ends_where_there_is_nothing_but_notes() {
    let budget = Budget::with_segments(64 << 10, 4 << 10);
    let log = open(&SimDisk::new(), &budget);
    let dirty = |n| log.put(n, 0, &[Bytes::from(vec![n as u8; 100])], Pin::Dirty);
    let unsent: Vec<_> = (1..=200).map_while(|n| dirty(n).ok()).collect();
    assert_eq!(unsent.len(), 200);
    (1..=200).for_each(|n| log.set_version(n, version(n)));
    let (told, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let fill =
            (0..40).take_while(|n| log.put(500, n * 1000, &[Bytes::from(vec![9; 1000])], Pin::Clean).is_ok());
        told.send((fill.count(), log)).unwrap();
    });
    let (filled, log) = ended.recv_timeout(std::time::Duration::from_secs(20)).expect("it ends");
    assert!(filled > 2, "{filled}");
    assert!(unsent.iter().all(|e| log.read_extent(e).is_ok()));
}

#[test]
fn writers_leave_room_for_readers() {
    let budget = Budget::with_segments(64 << 10, 8 << 10);
    let log = open(&SimDisk::new(), &budget);
    assert!(log.share().takes_unsent(1 << 20), "whatever is the first");
    let mut extents = Vec::new();
    let block = [Bytes::from(vec![7; 4000])];
    while log.share().takes_unsent(20_000) {
        extents.push(log.put(1, extents.len() as u64 * 4000, &block, Pin::Dirty).unwrap());
    }
    assert!(extents.len() > 5 && log.share().takes_unsent(4000));
    assert!(log.share().pause(4000, Default::default()).is_zero());
    while log.share().takes_unsent(4000) {
        extents.push(log.put(1, extents.len() as u64 * 4000, &block, Pin::Dirty).unwrap());
    }
    assert!(!log.share().pause(4000, Default::default()).is_zero());
    log.put(2, 0, &block, Pin::Clean).unwrap();
    extents.iter().for_each(|e| log.unpin(e));
    assert!(!log.share().takes_unsent(4000), "not before that is durable");
    settle(&log);
    assert!(log.share().takes_unsent(40_000));
    assert!(log.share().pause(4000, Default::default()).is_zero());
}

#[test]
fn the_first_unsent_bytes_of_a_volume_have_room_whatever_the_others_hold() {
    let disk = SimDisk::new();
    let budget = Budget::with_segments(64 << 10, 8 << 10);
    let log = open(&disk, &budget);
    let other = DataLog::open(&env(&disk, 1), 8, budget.clone()).unwrap();
    other.allow_eviction();
    let block = [Bytes::from(vec![7; 4000])];
    assert!((0..100).any(|n| log.put(1, n * 4000, &block, Pin::Dirty).is_err()));
    assert!(!log.share().takes_unsent(1) && other.share().takes_unsent(4000));
    let first = other.put(1, 0, &block, Pin::Dirty).unwrap();
    assert!(!other.share().takes_unsent(1) && other.put(1, 4000, &block, Pin::Dirty).is_err());
    other.unpin(&first);
    settle(&other);
    assert!(other.put(1, 4000, &block, Pin::Dirty).is_ok());
}

/// A segment is held as a whole where one record needs it: what was at home already must not count again.
#[test]
fn what_is_left_of_a_small_share_comes_free_again() {
    let disk = SimDisk::new();
    let budget = Budget::with_segments(8 << 20, 512 << 10);
    let logs: Vec<_> = [1, 2, 3].map(|n| DataLog::open(&env(&disk, 1), n, budget.clone()).unwrap()).into();
    logs.iter().for_each(|log| log.allow_eviction());
    let fill = |log: &DataLog| {
        let block = [Bytes::from(vec![7; 4000])];
        let taken = (0..).map_while(|n| {
            log.share().takes_unsent(4000).then(|| log.put(1, n * 4000, &block, Pin::Dirty).unwrap())
        });
        taken.collect::<Vec<_>>()
    };
    assert!(fill(&logs[0]).len() > 1500 && fill(&logs[1]).len() > 150);
    let mut before = fill(&logs[2]);
    assert!(before.len() > 20, "{}", before.len());
    for _ in 0..20 {
        before.iter().for_each(|extent| logs[2].unpin(extent));
        settle(&logs[2]);
        let again = fill(&logs[2]);
        assert!(again.len() >= 15, "{}", again.len());
        before = again;
    }
}

#[test]
fn a_version_outlives_the_eviction_of_its_note() {
    let disk = SimDisk::new();
    let budget = Budget::with_segments(32 << 10, 4 << 10);
    let log = open(&disk, &budget);
    log.put(1, 0, &[Bytes::from(vec![1; 1000])], Pin::Clean).unwrap();
    log.set_version(1, version(1));
    for n in 1..40 {
        log.put(1, n * 1000, &[Bytes::from(vec![n as u8; 1000])], Pin::Clean).unwrap();
    }
    assert!(!log.gaps(1, 0, 1000).is_empty(), "the oldest went");
    drop(log);
    disk.kill();
    let log = open(&disk, &budget);
    assert_eq!(log.version(1), Some(version(1)));
    assert!(log.gaps(1, 39_000, 1000).is_empty());
}

/// One that is stuck keeps nothing but its own segment in the cache.
#[test]
fn clean_bytes_behind_dirty_ones_are_evicted() {
    let disk = SimDisk::new();
    let budget = Budget::with_segments(32 << 10, 4 << 10);
    let log = open(&disk, &budget);
    let data = |n: u64| [Bytes::from(vec![n as u8; 1000])];
    let stuck = log.put(1, 0, &data(1), Pin::Dirty).unwrap();
    for n in 0..200 {
        log.put(2, n * 1000, &data(n), Pin::Clean).unwrap();
    }
    assert_eq!(log.read_extent(&stuck).unwrap(), data(1)[0]);
    assert_eq!(log.gaps(2, 180_000, 20_000), [], "the newest are there");
    assert!(log.gaps(2, 0, 180_000).iter().map(|gap| gap.1).sum::<u64>() > 150_000, "older ones are not");
    log.unpin(&stuck);
    settle(&log);
    for n in 0..40 {
        log.put(3, n * 1000, &data(n), Pin::Clean).unwrap();
    }
    assert!(log.read_extent(&stuck).is_err(), "the oldest goes first again");
}

/// What a scan cannot know is what stood in a segment that is missing between others.
#[test]
fn after_a_restart_nothing_from_before_an_evicted_segment_counts_and_all_behind_it_does() {
    let disk = SimDisk::new();
    let budget = Budget::with_segments(32 << 10, 4 << 10);
    let log = open(&disk, &budget);
    let data = |n: u64| [Bytes::from(vec![n as u8; 600])];
    let stuck = log.put(1, 0, &data(1), Pin::Dirty).unwrap();
    for id in [2, 3, 4] {
        log.put(id, 0, &data(id), Pin::Clean).unwrap();
        log.set_version(id, version(id));
    }
    let first = log.tail.lock().current.as_ref().unwrap().0;
    // In the next segment: another content of 3, and that 4 was cut.
    while log.tail.lock().current.as_ref().unwrap().0 == first {
        log.put(9, 0, &data(9), Pin::Clean).unwrap();
    }
    log.drop_object(3);
    log.set_version(3, version(33));
    log.truncate(4, 100);
    let second = log.tail.lock().current.as_ref().unwrap().0;
    for n in 0..60 {
        log.put(2, n * 600, &data(2), Pin::Clean).unwrap();
        if n == 50 {
            log.put(3, 600, &data(30), Pin::Clean).unwrap();
            log.set_version(3, version(33));
        }
    }
    let there = |log: &DataLog, number: u64| log.index.lock().segments.contains_key(&number);
    assert!(there(&log, first) && !there(&log, second), "the first is held by what is stuck");
    assert_eq!(log.gaps(2, 30_000, 6000), []);
    drop(log);
    disk.kill();

    let log = open(&disk, &budget);
    assert_eq!(log.version(2), Some(version(2)), "noted again when its note was cut off");
    assert_eq!(log.gaps(2, 30_000, 6000), []);
    assert_eq!(log.version(3), Some(version(33)));
    assert_eq!(log.gaps(3, 0, 1200), [(0, 600)], "the content of before is not believed");
    assert_eq!(log.gaps(4, 0, 600), [(0, 600)], "nor what was cut");
    log.insert(1, 0, stuck);
    assert_eq!(log.get(1, 0, 600), [Part::Have(data(1)[0].clone())]);
}

#[test]
fn a_full_disk_evicts_before_it_fails() {
    let disk = SimDisk::new();
    let log = open(&disk, &Budget::with_segments(1 << 20, 8 << 10));
    disk.set_capacity(Some(32 << 10));
    for n in 0..50 {
        log.put(n, 0, &[Bytes::from(vec![n as u8; 2000])], Pin::Clean).unwrap();
    }
    assert!(log.gaps(49, 0, 2000).is_empty());
    assert!(!log.gaps(0, 0, 2000).is_empty());
}

/// What is evicted then makes no room: the segment that the write itself began.
#[test]
fn a_disk_with_room_for_a_header_alone_is_full() {
    let disk = SimDisk::new();
    let log = open(&disk, &Budget::with_segments(1 << 20, 8 << 10));
    disk.set_capacity(Some(SEGMENT_HEADER_LEN + 100));
    for _ in 0..2 {
        let put = log.put(1, 0, &[Bytes::from(vec![1; 2000])], Pin::Dirty);
        assert!(matches!(put, Err(Error::Full(_))), "{put:?}");
    }
    disk.set_capacity(None);
    log.put(1, 0, &[Bytes::from(vec![1; 2000])], Pin::Dirty).unwrap();
}

#[test]
fn a_failed_sync_is_never_taken_back() {
    let disk = SimDisk::new();
    let log = open(&disk, &Budget::new(1 << 30));
    let e = log.put(1, 0, &[Bytes::from_static(b"abc")], Pin::Dirty).unwrap();
    log.require_sync(e.segment);
    disk.fail_syncs(1);
    assert!(log.sync().is_err());
    assert!(log.sync().is_err());
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The bytes that `docs/JOURNAL.md` describes. A change here is a new format version.
#[test]
fn golden_segment() {
    let made = Time { sec: 1_700_000_000, nsec: 5 };
    let header = SegmentHeader { volume: 7, number: 2, made, prev: 1, prev_end: 4096 };
    assert_eq!(hex(&header.encode()), GOLDEN_HEADER);
    assert_eq!(SegmentHeader::decode(&header.encode()), Some(Ok(header)));
    let entry =
        Entry { kind: Kind::Dirty, object: 3, epoch: 4, offset: 8192, len: 5, crc: crc32c::crc32c(b"hello") };
    assert_eq!(hex(&entry.encode()), GOLDEN_ENTRY);
    assert_eq!(Entry::decode(&entry.encode()), Some(entry));
    assert_eq!(entry.footprint(), 56);
}

const GOLDEN_HEADER: &str = "54524c534441544100000001000000070000000000000002000000006553f1000000000500000000000000010000000000001000ca138df70000000000000000";
const GOLDEN_ENTRY: &str =
    "54524c4500000002000000000000000300000000000000040000000000002000000000059a71bb4cda351f2100000000";

#[test]
fn zeros_fill_gaps_alone_and_are_no_more_than_a_cache() {
    let disk = SimDisk::new();
    let budget = Budget::with_segments(1 << 20, 4 << 10);
    let log = open(&disk, &budget);
    let data = |text: &'static str| [Bytes::from_static(text.as_bytes())];
    let bytes = |log: &DataLog| {
        let parts = log.get(1, 0, 12).into_iter();
        parts
            .map(|p| if let Part::Have(b) = p { b } else { Bytes::from_static(b"?") })
            .collect::<Vec<_>>()
            .concat()
    };
    log.put(1, 2, &data("ab"), Pin::Clean).unwrap();
    log.fill_zeros(1, 1, 8);
    assert_eq!(bytes(&log), b"?\0ab\0\0\0\0?");
    assert_eq!(log.gaps(1, 0, 12), [(0, 1), (8, 4)]);
    assert_eq!(log.holes(1, 0, 12), [(0, 2), (4, 8)]);
    log.put(1, 5, &data("c"), Pin::Dirty).unwrap();
    log.truncate(1, 7);
    assert_eq!(bytes(&log), b"?\0ab\0c\0?");
    log.set_version(1, version(1));
    drop(log);
    let log = open(&disk, &Budget::with_segments(1 << 20, 4 << 10));
    assert_eq!(log.gaps(1, 0, 4), [(0, 2)]);
    assert_eq!(log.holes(9, 3, 4), [(3, 4)]);
}

/// What of a file the home had when what is unsent was made to that.
fn of_base(log: &DataLog) -> Vec<(u64, Vec<u8>)> {
    log.of_base(1, 0, SIZE).into_iter().map(|(at, bytes)| (at, bytes.to_vec())).collect()
}

#[test]
fn what_never_went_home_is_not_of_the_base() {
    let disk = SimDisk::new();
    let log = open(&disk, &Budget::new(1 << 30));
    let put = |bytes: &'static [u8], pin| log.put(1, 0, &[Bytes::from_static(bytes)], pin).unwrap();
    put(b"seen", Pin::Clean);
    let [first, second] = [put(b"1111", Pin::Dirty), put(b"2222", Pin::Dirty)];
    log.give_up(&first, false);
    assert_eq!(of_base(&log), [(0, b"seen".to_vec())]);
    log.give_up(&second, false);
    assert_eq!(of_base(&log), [(0, b"seen".to_vec())]);
    log.forget_before(1);

    let third = put(b"3333", Pin::Dirty);
    log.unpin(&third);
    assert_eq!(of_base(&log), [(0, b"3333".to_vec())]);
}

/// A copy that a conflict makes has of the file that it was nothing at the home.
#[test]
fn what_a_file_had_is_not_what_its_copy_has() {
    let disk = SimDisk::new();
    let log = open(&disk, &Budget::new(1 << 30));
    let put = |bytes: &'static [u8], pin| log.put(1, 0, &[Bytes::from_static(bytes)], pin).unwrap();
    put(b"seen", Pin::Clean);
    let [first, second] = [put(b"1111", Pin::Dirty), put(b"2222", Pin::Dirty)];
    log.begins_anew(1);
    assert_eq!(of_base(&log), []);
    log.unpin(&first);
    assert_eq!(of_base(&log), [(0, b"1111".to_vec())]);
    log.unpin(&second);
    assert_eq!(of_base(&log), [(0, b"2222".to_vec())]);
}
