//! What a promise costs: small files that are durable, and a large one, as parts of what the disk does alone, beside a
//! server on a file system that syncs each change.

use super::report::{self, machine, median};
use super::servers::{self, Target};
use crate::e2e::World;
use crate::nfs::{Client, at, mode};
use anyhow::{Result, ensure};
use bytes::Bytes;
use oncrpc::nfs3::*;
use rustix::fs::{FallocateFlags, fallocate, fdatasync};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Bytes of a small file.
const SMALL: usize = 4 << 10;
/// What a journal holds of a small file besides: the records of its name and of its bytes.
const RECORDS: usize = 512;
/// Bytes of a large file, and of each WRITE to it.
const LARGE: usize = 1 << 30;
const WRITE: usize = 1 << 20;
/// WRITEs under way at a time.
const IN_FLIGHT: usize = 8;
/// Those who make small files at once.
const MANY: usize = 64;

/// Something that is measured, in units per second.
struct Work {
    name: &'static str,
    unit: &'static str,
    alone: fn(&Path, Duration) -> Result<f64>,
    served: fn(&Target, Duration) -> Result<f64>,
}

const ALL: &[Work] = &[
    Work {
        name: "small files, 1 writer",
        unit: "files",
        // Its name is durable before its bytes come: two syncs for each.
        alone: |dir, time| Ok(appends(dir, time, (SMALL + RECORDS) / 2)? / 2.0),
        served: |target, time| small_files(target, 1, time),
    },
    Work {
        name: "small files, 64 writers",
        unit: "files",
        // One sync for all names, and one for all bytes.
        alone: |dir, time| Ok(appends(dir, time, MANY * (SMALL + RECORDS) / 2)? / 2.0 * MANY as f64),
        served: |target, time| small_files(target, MANY, time),
    },
    Work {
        name: "1 GiB and COMMIT",
        unit: "MiB",
        alone: |dir, _| large_file_alone(dir),
        served: |target, _| large_file(target),
    },
];

/// The table, of the medians of `runs` runs in which all take turns.
pub fn measure(world: &World, runs: usize, time: Duration, only: &str) -> Result<String> {
    let servers = servers::start_for_changes(world)?;
    let mut out = format!(
        "Made by `cargo xtask bench cost --runs {runs} --seconds {}` on {}, {}.\nMedians of {runs} runs in turn.\n\n\
         | durable work | the disk alone | {} | ÷ the disk | {} | Trellis ÷ ganesha |\n|---|---|---|---|---|---|\n",
        time.as_secs(),
        machine()?,
        report::ganesha_version()?,
        servers[0].name,
        servers[1].name,
    );
    for work in ALL.iter().filter(|w| w.name.contains(only)) {
        let mut rates: [Vec<f64>; 3] = Default::default();
        for _ in 0..runs {
            rates[0].push((work.alone)(&world.dir, time)?);
            for (server, rates) in servers.iter().zip(&mut rates[1..]) {
                rates.push((work.served)(server, time)?);
            }
        }
        let [disk, ours, theirs] = rates.map(median);
        let line = format!(
            "| {} ({}/s) | {disk:.0} | {ours:.0} | {:.2} | {theirs:.0} | {:.2} |\n",
            work.name,
            work.unit,
            ours / disk,
            ours / theirs
        );
        eprint!("{line}");
        out += &line;
    }
    Ok(out)
}

/// How often in a second so many bytes can be added to a file that has the room, and synced.
fn appends(dir: &Path, time: Duration, bytes: usize) -> Result<f64> {
    let room = (bytes as u64 * 200_000).min(1 << 30);
    let (path, file) = with_room(dir, room)?;
    let (data, began, mut at, mut count) = (vec![7; bytes], Instant::now(), 0, 0);
    while began.elapsed() < time {
        file.write_all_at(&data, at)?;
        fdatasync(&file)?;
        (at, count) = ((at + bytes as u64) % (room - bytes as u64), count + 1);
    }
    let rate = f64::from(count) / began.elapsed().as_secs_f64();
    fs::remove_file(path)?;
    Ok(rate)
}

fn large_file_alone(dir: &Path) -> Result<f64> {
    let (path, file) = with_room(dir, LARGE as u64)?;
    let (data, began) = (vec![7; WRITE], Instant::now());
    for at in (0..LARGE).step_by(WRITE) {
        file.write_all_at(&data, at as u64)?;
    }
    fdatasync(&file)?;
    let rate = mib_per_second(began);
    fs::remove_file(path)?;
    Ok(rate)
}

fn with_room(dir: &Path, bytes: u64) -> Result<(PathBuf, File)> {
    let path = dir.join("alone");
    let file = File::create(&path)?;
    fallocate(&file, FallocateFlags::empty(), 0, bytes)?;
    file.sync_all()?;
    Ok((path, file))
}

fn mib_per_second(began: Instant) -> f64 {
    (LARGE >> 20) as f64 / began.elapsed().as_secs_f64()
}

/// Files that are there with their bytes, durable, when the last call for them has its answer.
fn small_files(target: &Target, writers: usize, time: Duration) -> Result<f64> {
    let (dir, addr, uid) = (new_dir(target)?, target.addr, target.uid);
    let began = Instant::now();
    let counts = together(writers, |writer| {
        let client = Client::connect(addr, uid)?;
        let data = Bytes::from(vec![7; SMALL]);
        let mut count = 0;
        while began.elapsed() < time {
            let name = format!("{writer}-{count}");
            let how = CreateHow3::Guarded(mode(0o644));
            let made: CreateOk =
                client.call::<_, _, WccData>(procs::CREATE, &CreateArgs { at: at(&dir, name), how })?;
            let file = made.obj.ok_or_else(|| anyhow::anyhow!("CREATE gives no handle"))?;
            write(&client, file, 0, &data, StableHow::FileSync)?;
            count += 1;
        }
        Ok(count)
    })?;
    Ok(f64::from(counts.into_iter().sum::<u32>()) / began.elapsed().as_secs_f64())
}

fn large_file(target: &Target) -> Result<f64> {
    let (dir, addr, uid) = (new_dir(target)?, target.addr, target.uid);
    let file = target.client.create(&dir, "large")?;
    let data = Bytes::from(vec![7; WRITE]);
    let began = Instant::now();
    let verifiers = together(IN_FLIGHT, |writer| {
        let client = Client::connect(addr, uid)?;
        let mut verifiers = Vec::new();
        for at in (writer * WRITE..LARGE).step_by(IN_FLIGHT * WRITE) {
            verifiers.push(write(&client, file, at as u64, &data, StableHow::Unstable)?);
        }
        Ok(verifiers)
    })?;
    let args = CommitArgs { file, offset: 0, count: 0 };
    let done: CommitOk = target.client.call::<_, _, WccData>(procs::COMMIT, &args)?;
    let rate = mib_per_second(began);
    ensure!(verifiers.iter().flatten().all(|v| *v == done.verf), "the server was restarted");
    target.client.remove(&dir, "large")?;
    Ok(rate)
}

fn write(client: &Client, file: NfsFh3, offset: u64, data: &Bytes, stable: StableHow) -> Result<WriteVerf3> {
    let count = data.len() as u32;
    let args = WriteArgs { file, offset, count, stable, data: data.clone() };
    let wrote: WriteOk = client.call::<_, _, WccData>(procs::WRITE, &args)?;
    ensure!(wrote.count == count, "a short WRITE");
    Ok(wrote.verf)
}

/// A directory of this run alone.
fn new_dir(target: &Target) -> Result<NfsFh3> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    target.client.mkdir(&target.dir, format!("run{}", NEXT.fetch_add(1, Relaxed)))
}

/// What each of so many threads answers.
fn together<T: Send>(threads: usize, work: impl Fn(usize) -> Result<T> + Sync) -> Result<Vec<T>> {
    std::thread::scope(|scope| {
        let work = &work;
        let all: Vec<_> = (0..threads).map(|n| scope.spawn(move || work(n))).collect();
        let panicked = |_| anyhow::anyhow!("a thread panicked");
        all.into_iter().map(|thread| thread.join().map_err(panicked)?).collect()
    })
}
