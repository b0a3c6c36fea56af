//! Power cuts at every point, damage, failing and full disks, on a simulated disk.

use super::*;
use crate::data::{Budget, Pin};
use crate::env::testing::{SimDisk, env};
use bytes::Bytes;
use home::{Name, Op, Piece, SetAttr};
use oncrpc::xdr::Xdr;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::future::Future;

pub(super) const SMALL: Limits = Limits {
    segment: 8 << 10,
    buffer: 256 << 10,
    eager: 64 << 10,
    outcome: 64,
    lazy: Duration::from_millis(5),
};
const DIR: &str = "journal/00000007";

pub(super) fn wait<T>(f: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(f)
}

/// A process: the log, the journal and its one lane.
pub(super) struct Process {
    pub(super) data: Arc<DataLog>,
    pub(super) journal: Arc<Journal>,
    pub(super) lane: Arc<Lane>,
    pub(super) found: Vec<(u64, Body)>,
}

pub(super) fn start(disk: &SimDisk, limits: Limits) -> Result<Process> {
    let env = env(disk, 1);
    let data = DataLog::open(&env, 7, Budget::new(1 << 30))?;
    let journal = Journal::start_with(&env, limits);
    let (lane, found) = journal.open_lane(7, data.clone())?;
    Ok(Process { data, journal, lane, found })
}

fn change(object: u64, op: Op<u64, Stored>) -> Body {
    Body::Change(Change {
        time: home::Time { sec: object as i64, nsec: 1 },
        object,
        plain: false,
        after: None,
        op,
        retry: Some([7; 16]),
        verifier: None,
    })
}

fn write(object: u64, data: Stored) -> Body {
    change(object, Op::Write { file: object, base: None, pieces: vec![Piece::Data(0, data)] })
}

/// A record that says `n`, with up to 2 KiB of data, inline or in the data log.
fn body(n: u64, data: &DataLog, rng: &mut StdRng) -> Result<Body> {
    let bytes = Bytes::from(vec![n as u8; rng.random_range(0..2000)]);
    Ok(match rng.random_range(0..4) {
        0 => Body::Retire(Retire { seq: 0, how: Fate::Dropped }),
        1 => change(
            n,
            Op::SetAttr {
                object: n,
                base: None,
                set: SetAttr { mode: Some(n as u32), ..SetAttr::default() },
            },
        ),
        2 => write(n, Stored::Inline(bytes)),
        _ => write(n, Stored::Extent(data.put(n, 0, &[bytes], Pin::Dirty)?)),
    })
}

/// Appends and waits at random until the disk dies or enough is done. `model` holds all records ever appended, by
/// number; answers up to where they were promised.
fn work(p: &Process, model: &mut Vec<Body>, rng: &mut StdRng) -> u64 {
    let mut promised = 0;
    for _ in 0..rng.random_range(1..60) {
        let Ok(body) = body(model.len() as u64 + 1, &p.data, rng) else { break };
        let Ok(seq) = p.lane.append(body.clone()) else { break };
        model.push(body);
        assert_eq!(seq, model.len() as u64);
        if rng.random_bool(0.3) {
            match wait(p.lane.synced(seq)) {
                Ok(()) => promised = seq,
                Err(_) => break,
            }
        }
    }
    promised
}

#[test]
fn what_was_promised_survives_any_power_cut() {
    for seed in 0..300 {
        let mut rng = StdRng::seed_from_u64(seed);
        let disk = SimDisk::new();
        let mut model: Vec<Body> = Vec::new();
        let mut promised = 0;
        for life in 0..5 {
            if rng.random_bool(0.2) {
                // Recovery itself is cut short.
                disk.crash_after(rng.random_range(0..12), rng.random());
                let _ = start(&disk, SMALL);
                disk.crash(rng.random());
            }
            let p = start(&disk, SMALL).unwrap_or_else(|e| panic!("seed {seed}, life {life}: {e}"));
            let first = p.found.first().map_or(1, |(seq, _)| *seq);
            assert_eq!(first, 1, "seed {seed}");
            let found: Vec<Body> = p.found.iter().map(|(_, b)| b.clone()).collect();
            assert!(
                found.len() as u64 >= promised,
                "seed {seed}, life {life}: {} of {promised}",
                found.len()
            );
            assert_eq!(found[..], model[..found.len()], "seed {seed}, life {life}");
            assert_eq!(p.lane.last(), found.len() as u64);
            for body in &found {
                let Body::Change(c) = body else { continue };
                c.extents().for_each(|e| assert_eq!(p.data.read_extent(e).unwrap().len(), e.len as usize));
            }
            model.truncate(found.len());
            promised = found.len() as u64;
            disk.crash_after(rng.random_range(0..60), rng.random());
            promised = promised.max(work(&p, &mut model, &mut rng));
            disk.crash(rng.random());
            p.journal.stop();
        }
    }
}

#[test]
fn a_killed_process_loses_only_what_was_not_committed() {
    for seed in 0..100 {
        let mut rng = StdRng::seed_from_u64(seed);
        let disk = SimDisk::new();
        let p = start(&disk, SMALL).unwrap();
        let mut model = Vec::new();
        disk.kill_after(rng.random_range(0..40));
        let promised = work(&p, &mut model, &mut rng);
        disk.kill();
        let found = start(&disk, SMALL).unwrap().found.len();
        assert!(found as u64 >= promised);
        // What was found is durable now, even where the first process had not synced it.
        disk.crash(rng.random());
        assert_eq!(start(&disk, SMALL).unwrap().found.len(), found, "seed {seed}");
    }
}

/// Ten records of which each was promised before the next, and where they begin and end in their segment.
fn ten(disk: &SimDisk) -> (String, Vec<u64>) {
    let p = start(disk, SMALL).unwrap();
    for n in 1..=10 {
        let seq = p.lane.append(write(n, Stored::Inline(Bytes::from(vec![n as u8; 100])))).unwrap();
        wait(p.lane.synced(seq)).unwrap();
    }
    disk.kill();
    let at = format!("{DIR}/{:016x}.log", 1);
    let bytes = Bytes::from(disk.content(&at).unwrap());
    let mut ends = vec![segment::HEADER_LEN];
    while let Some(raw) = segment::read_at(&bytes, *ends.last().unwrap()) {
        ends.push(raw.end);
    }
    assert_eq!(ends.len(), 11);
    (at, ends)
}

#[test]
fn damage_to_a_promised_record_is_told_from_a_torn_tail() {
    for n in 0..10 {
        let disk = SimDisk::new();
        let (at, ends) = ten(&disk);
        disk.flip_bit(&at, ends[n] + 40);
        match (n, start(&disk, SMALL)) {
            // Nothing behind the last one says that it was promised.
            (9, Ok(p)) => assert_eq!(p.found.len(), 9),
            (9, Err(e)) => panic!("{e}"),
            (_, Ok(p)) => panic!("record {} is damaged and {} were found", n + 1, p.found.len()),
            (_, Err(e)) => assert!(matches!(e, Error::Corrupt(_)), "{e}"),
        }
    }
}

#[test]
fn a_damaged_header_is_told_from_a_fresh_segment() {
    let disk = SimDisk::new();
    let (at, _) = ten(&disk);
    disk.flip_bit(&at, 20);
    assert!(matches!(start(&disk, SMALL), Err(Error::Corrupt(_))));
}

/// Of the oldest one that is left nothing tells with which number it begins.
#[test]
fn a_damaged_header_of_the_oldest_segment_is_told_whatever_its_records_numbers_are() {
    for first in [1, 1_000, 20_000_000, 1 << 40] {
        let disk = SimDisk::new();
        let (at, ends) = ten(&disk);
        let bytes = Bytes::from(disk.content(&at).unwrap());
        let segment::Head::Known(header) = segment::Header::decode(&bytes) else { panic!("no header") };
        let mut later = segment::Header { first, ..header }.encode();
        for (n, start) in ends[..10].iter().enumerate() {
            let raw = segment::read_at(&bytes, *start).unwrap();
            let seq = first + n as u64;
            segment::frame(&mut later, seq, seq - 1, &[raw.body]);
        }
        let file = crate::env::Disk::open(&disk.clone(), &at).unwrap();
        file.pwrite_all(&[&later], 0).unwrap();
        let untouched = start(&disk, SMALL).unwrap();
        assert_eq!(untouched.found.first().map(|(seq, _)| *seq), Some(first));
        assert_eq!(untouched.found.len(), 10);
        drop(untouched);
        disk.flip_bit(&at, 20);
        assert!(matches!(start(&disk, SMALL), Err(Error::Corrupt(_))), "records from {first} on");
    }
}

#[test]
fn a_missing_segment_is_damage() {
    let disk = SimDisk::new();
    let p = start(&disk, SMALL).unwrap();
    for n in 0..30 {
        let seq = p.lane.append(write(n, Stored::Inline(Bytes::from(vec![1; 1000])))).unwrap();
        wait(p.lane.synced(seq)).unwrap();
    }
    disk.kill();
    crate::env::Disk::remove(&disk.clone(), &format!("{DIR}/{:016x}.log", 2)).unwrap();
    assert!(matches!(start(&disk, SMALL), Err(Error::Corrupt(_))));
}

#[test]
fn an_extent_that_did_not_reach_the_disk_ends_the_tail() {
    let disk = SimDisk::new();
    let p = start(&disk, SMALL).unwrap();
    let bytes = Bytes::from(vec![9; 100]);
    let good = p.data.put(1, 0, std::slice::from_ref(&bytes), Pin::Dirty).unwrap();
    wait(p.lane.synced(p.lane.append(write(1, Stored::Extent(good))).unwrap())).unwrap();
    let bad = p.data.put(1, 100, &[bytes], Pin::Dirty).unwrap();
    wait(p.lane.synced(p.lane.append(write(1, Stored::Extent(bad))).unwrap())).unwrap();
    disk.kill();
    disk.flip_bit(&format!("data/00000007/{:016x}.seg", bad.segment), bad.pos);
    let p = start(&disk, SMALL).unwrap();
    assert_eq!(p.found.len(), 1);
    assert_eq!(p.lane.last(), 1);
    assert_eq!(p.data.usage().dirty_bytes, 100, "held for its record");
    // The number is given out again, and the given-up record does not come back.
    wait(p.lane.synced(p.lane.append(write(5, Stored::Inline(Bytes::new()))).unwrap())).unwrap();
    disk.crash(1);
    let found = start(&disk, SMALL).unwrap().found;
    assert_eq!(found[1], (2, write(5, Stored::Inline(Bytes::new()))));
}

#[test]
fn a_failed_sync_ends_the_lane() {
    let disk = SimDisk::new();
    let p = start(&disk, SMALL).unwrap();
    let record = || write(1, Stored::Inline(Bytes::from_static(b"x")));
    wait(p.lane.synced(p.lane.append(record()).unwrap())).unwrap();
    disk.fail_syncs(1);
    let seq = p.lane.append(record()).unwrap();
    assert!(matches!(wait(p.lane.synced(seq)), Err(Error::Poisoned(_))));
    assert!(matches!(wait(p.lane.synced(seq)), Err(Error::Poisoned(_))), "for ever");
    assert!(matches!(p.lane.append(record()), Err(Error::Poisoned(_))));
    assert!(p.lane.poisoned().is_some_and(|why| why.contains("simulated sync error")));
    assert!(p.lane.is_synced(1) && !p.lane.is_synced(2));
    disk.crash(0);
    assert!(!start(&disk, SMALL).unwrap().found.is_empty());
}

#[test]
fn a_failed_write_ends_the_lane() {
    let disk = SimDisk::new();
    let p = start(&disk, SMALL).unwrap();
    wait(p.lane.synced(p.lane.append(write(1, Stored::Inline(Bytes::new()))).unwrap())).unwrap();
    disk.fail_writes(1);
    let seq = p.lane.append(write(2, Stored::Inline(Bytes::new()))).unwrap();
    assert!(matches!(wait(p.lane.synced(seq)), Err(Error::Poisoned(_))));
    disk.kill();
    assert_eq!(start(&disk, SMALL).unwrap().found.len(), 1);
}

/// Waits for what the commit thread does on its own.
fn eventually(mut done: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("it never happened");
}

#[test]
fn a_full_disk_refuses_changes_but_takes_retirements_and_recovers() {
    let disk = SimDisk::new();
    let p = start(&disk, SMALL).unwrap();
    disk.set_capacity(Some(4 * SMALL.segment + (1 << 10)));
    let record = || write(1, Stored::Inline(Bytes::from(vec![1; 1000])));
    let mut promised = 0;
    let refused = loop {
        match p.lane.append(record()).and_then(|seq| wait(p.lane.synced(seq)).map(|()| seq)) {
            Ok(seq) => promised = seq,
            Err(e) => break e,
        }
        assert!(promised < 100, "the disk is never full");
    };
    assert!(matches!(refused, Error::Full(_)), "{refused}");
    assert!(promised >= 20, "{promised}");
    let retired = (1..=promised).map(|seq| p.lane.append(retire(seq)).unwrap()).max().unwrap();
    // What the home has may be forgotten; that makes room for the rest.
    p.lane.forget_below(promised);
    eventually(|| wait(p.lane.synced(retired)).is_ok());
    eventually(|| p.lane.append(record()).is_ok_and(|seq| wait(p.lane.synced(seq)).is_ok()));
    let last = p.lane.last();
    disk.crash(9);
    let found = start(&disk, SMALL).unwrap().found;
    assert_eq!(found.last().unwrap().0, last);
}

fn retire(seq: u64) -> Body {
    Body::Retire(Retire { seq, how: Fate::Done(Vec::new()) })
}

/// Appends changes until one is refused or enough are there, and waits for some; answers the last that is durable.
fn fill(p: &Process, rng: &mut StdRng) -> u64 {
    let mut promised = 0;
    for n in 0..rng.random_range(1..150) {
        let bytes = Bytes::from(vec![n as u8 | 1; rng.random_range(0..2000)]);
        let Ok(seq) = p.lane.append(write(n, Stored::Inline(bytes))) else { break };
        if rng.random_bool(0.2) && wait(p.lane.synced(seq)).is_ok() {
            promised = seq;
        }
    }
    promised
}

#[test]
fn outcomes_of_accepted_changes_find_their_space_on_a_full_disk_whenever_it_dies() {
    let (mut refused, mut lives) = (0, 0);
    for seed in 0..150 {
        let mut rng = StdRng::seed_from_u64(seed);
        let disk = SimDisk::new();
        disk.set_capacity(Some(rng.random_range(2..12) * SMALL.segment + rng.random_range(0..SMALL.segment)));
        let p = start(&disk, SMALL).unwrap();
        let promised = fill(&p, &mut rng);
        // Space that was not durable may be lost with the power, and others take it; kill -9 leaves us all of it.
        let kills = rng.random();
        disk.fill_up(kills);
        refused += usize::from(p.lane.append(write(1, Stored::Inline(vec![1; 3000].into()))).is_err());
        let die = |rng: &mut StdRng| if kills { disk.kill() } else { disk.crash(rng.random()) };
        die(&mut rng);
        let mut last_life = false;
        while !last_life {
            lives += 1;
            last_life = rng.random_bool(0.2);
            match rng.random_range(0..3) {
                _ if last_life => {}
                0 if !kills => disk.crash_after(rng.random_range(0..40), rng.random()),
                0 | 1 => disk.kill_after(rng.random_range(0..40)),
                _ => {}
            }
            let Ok(p) = start(&disk, SMALL) else {
                assert!(!last_life, "seed {seed}: not opened");
                die(&mut rng);
                continue;
            };
            let gone = record::retired(p.found.iter().map(|(_, body)| body));
            let found = p.found.iter().filter(|(_, body)| matches!(body, Body::Change(_)));
            let open: Vec<u64> = found.map(|(seq, _)| *seq).filter(|seq| !gone.contains(seq)).collect();
            assert!(
                (1..=promised).all(|seq| gone.contains(&seq) || open.contains(&seq)),
                "seed {seed}: lost"
            );
            let some = if last_life { open.len() } else { rng.random_range(0..=open.len()) };
            let retired = open[..some].iter().map_while(|seq| p.lane.append(retire(*seq)).ok()).max();
            match wait(p.lane.synced(retired.unwrap_or(0))) {
                Err(Error::Full(why)) => panic!("seed {seed}: an outcome has no place: {why}"),
                Err(e) if last_life => panic!("seed {seed}: {e}"),
                _ => {}
            }
            disk.kill();
        }
    }
    assert!(refused > 50, "the disk was hardly ever full: {refused}");
    assert!(lives > 300, "{lives}");
}

#[test]
fn a_new_segment_is_held_again_when_there_is_space() {
    let disk = SimDisk::new();
    disk.set_capacity(Some(2 * SMALL.segment));
    let p = start(&disk, SMALL).unwrap();
    let record = || write(1, Stored::Inline(vec![1; 1000].into()));
    while p.lane.append(record()).is_ok() {}
    wait(p.lane.synced(p.lane.last())).unwrap();
    disk.kill();
    let p = start(&disk, SMALL).unwrap();
    assert!(matches!(p.lane.append(record()), Err(Error::Full(_))));
    assert!(!p.lane.has_room(1000));
    disk.set_capacity(None);
    eventually(|| p.lane.append(record()).is_ok());
    // What many open changes needed is given back when they have gone.
    for _ in 0..200 {
        p.lane.append(record()).unwrap();
    }
    wait(p.lane.synced(p.lane.last())).unwrap();
    eventually(|| p.lane.bytes() > 20 * SMALL.segment);
    let last = p.lane.last();
    for seq in 1..=last {
        p.lane.append(retire(seq)).unwrap();
    }
    p.lane.forget_below(last + 1);
    eventually(|| p.lane.bytes() <= 5 * SMALL.segment);
}

#[test]
fn segments_are_forgotten_from_the_oldest_on_and_two_stay() {
    let disk = SimDisk::new();
    let p = start(&disk, SMALL).unwrap();
    for n in 0..50 {
        p.lane.append(write(n, Stored::Inline(Bytes::from(vec![1; 1000])))).unwrap();
    }
    wait(p.lane.synced(50)).unwrap();
    // The size is counted after the waiters are told.
    eventually(|| p.lane.bytes() > 6 * SMALL.segment);
    let before = p.lane.bytes();
    p.lane.forget_below(51);
    eventually(|| p.lane.bytes() < before);
    p.journal.stop();
    disk.crash(2);
    let p = start(&disk, SMALL).unwrap();
    assert_eq!(p.lane.last(), 50);
    let found = p.found.len();
    assert!((8..=14).contains(&found), "two segments of seven records each: {found}");
    assert_eq!(p.found[0].0, 51 - found as u64);
    assert_eq!(p.lane.append(write(1, Stored::Inline(Bytes::new()))).unwrap(), 51);
}

#[test]
fn waiters_share_syncs() {
    let disk = SimDisk::new();
    let p = start(&disk, Limits { segment: 1 << 20, ..SMALL }).unwrap();
    disk.slow_syncs(Duration::from_millis(2));
    let before = disk.syncs();
    let run = async {
        let mut tasks = tokio::task::JoinSet::new();
        for n in 0..64 {
            let lane = p.lane.clone();
            tasks.spawn(async move {
                for _ in 0..10 {
                    let seq = lane.append(write(n, Stored::Inline(Bytes::from_static(b"x")))).unwrap();
                    lane.synced(seq).await.unwrap();
                }
            });
        }
        while tasks.join_next().await.is_some() {}
    };
    wait(run);
    assert_eq!(p.lane.last(), 640);
    let syncs = disk.syncs() - before;
    assert!((10..=64).contains(&syncs), "640 records in {syncs} syncs");
}

#[test]
fn records_that_nobody_waits_for_become_durable() {
    let disk = SimDisk::new();
    let p = start(&disk, SMALL).unwrap();
    let seq = p.lane.append(write(1, Stored::Inline(Bytes::new()))).unwrap();
    eventually(|| p.lane.is_synced(seq));
}

#[test]
fn what_cannot_be_held_is_refused() {
    let disk = SimDisk::new();
    let p = start(&disk, SMALL).unwrap();
    let big = write(1, Stored::Inline(Bytes::from(vec![1; 5000])));
    // It is not space that it lacks.
    assert!(p.lane.has_room(SMALL.segment));
    assert!(matches!(p.lane.append(big), Err(Error::TooBig(_))));
    assert!(matches!(wait(p.lane.synced(1)), Err(Error::Io(_))), "a record that does not exist");
    p.journal.stop();
    assert!(matches!(p.lane.append(write(1, Stored::Inline(Bytes::new()))), Err(Error::Poisoned(_))));
}

#[test]
fn records_keep_their_form() {
    let id = home::HomeId { fs: 1, ino: 2, generation: 3 };
    let binding = Binding {
        object: 4,
        parent: 5,
        name: Some(Name::new(b"name").unwrap()),
        id,
        kind: home::Kind::File,
        version: None,
        fileid: 7,
        ctime_shown: Some(home::Time { sec: 8, nsec: 9 }),
        verifier: Some([10; 8]),
        more: vec![Place { parent: 6, name: Name::new(b"other").unwrap() }],
    };
    let extent = Extent { segment: 11, pos: 12, len: 13, crc: 14 };
    let bodies = [
        write(1, Stored::Extent(extent)),
        write(1, Stored::Inline(Bytes::from_static(b"abc"))),
        Body::Bind(vec![binding.clone()]),
        Body::Retire(Retire { seq: 1, how: Fate::Done(vec![binding]) }),
        Body::Retire(Retire { seq: 2, how: Fate::Refused(home::ErrorKind::NoSpace) }),
        Body::Retire(Retire { seq: 3, how: Fate::Conflict }),
    ];
    for body in bodies {
        assert_eq!(Body::from_bytes(body.to_bytes()).unwrap(), body);
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The bytes that `docs/JOURNAL.md` describes. A change here is a new format version.
#[test]
fn golden_segment() {
    let header = segment::Header { volume: 7, number: 2, epoch: 3, first: 41 }.encode();
    assert_eq!(hex(&header), GOLDEN_HEADER);
    let mut record = Vec::new();
    let body = Body::Retire(Retire { seq: 9, how: Fate::Refused(home::ErrorKind::Exists) });
    segment::frame(&mut record, 41, 40, &[body.to_bytes()]);
    assert_eq!(hex(&record), GOLDEN_RECORD);
    let whole = Bytes::from([header, record].concat());
    let raw = segment::read_at(&whole, segment::HEADER_LEN).unwrap();
    assert_eq!((raw.seq, raw.promised, raw.end), (41, 40, whole.len() as u64));
    assert_eq!(Body::from_bytes(raw.body).unwrap(), body);
}

#[test]
fn golden_attributes() {
    let name = home::XattrName::new(b"user.ab").unwrap();
    let value = Some(Bytes::from_static(b"v"));
    let set = Op::SetXattr { object: 9, name, value, how: home::XattrHow::Any };
    let vanished = Body::Vanish(vec![9, 41]);
    let records = [(change(9, set), GOLDEN_SET), (Body::Late(41), GOLDEN_LATE), (vanished, GOLDEN_VANISHED)];
    for (body, golden) in records {
        assert_eq!(hex(&body.to_bytes()), golden);
        assert_eq!(Body::from_bytes(body.to_bytes()).unwrap(), body);
    }
}

const GOLDEN_SET: &str = "0000000100000000000000090000000100000000000000090000000000000007000000000000000900000007757365722e6162000000000100000001760000000000000000000001070707070707070707070707070707070000000000000000";
const GOLDEN_LATE: &str = "000000050000000000000029";
const GOLDEN_VANISHED: &str = "000000060000000200000000000000090000000000000029";
const GOLDEN_HEADER: &str = "54524c534a524e4c0000000100000007000000000000000200000000000000030000000000000029dd7041920000000000000000000000000000000000000000";
const GOLDEN_RECORD: &str =
    "0000001415c124a100000000000000290000000000000028000000030000000000000009000000010000000200000000";

#[test]
fn an_outcome_is_taken_however_far_behind_the_disk_is() {
    let disk = SimDisk::new();
    let p = start(&disk, Limits { buffer: 16 << 10, ..SMALL }).unwrap();
    let set = |n| change(n, Op::SetAttr { object: n, base: None, set: SetAttr::default() });
    let sent: Vec<u64> = (1..60).map(|n| p.lane.append(set(n)).unwrap()).collect();
    wait(p.lane.synced(p.lane.last())).unwrap();
    disk.slow_syncs(Duration::from_millis(300));
    let refused = (200..).map(|n| p.lane.append(set(n))).find_map(Result::err);
    assert!(matches!(refused, Some(Error::Full(_))));
    assert!(!p.lane.keeps_up());
    for seq in sent {
        p.lane.append(Body::Retire(Retire { seq, how: Fate::Dropped })).unwrap();
    }
    wait(p.lane.synced(p.lane.last())).unwrap();
    assert!(p.lane.keeps_up() && p.lane.poisoned().is_none());
}
