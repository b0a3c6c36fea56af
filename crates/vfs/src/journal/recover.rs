//! Reading a lane after a restart: which records are there, where the tail ends, and whether the disk lied.
//!
//! A later life of the lane goes on right behind the last record it found, in the same segment: what an earlier tail
//! holds beyond it is overwritten with zeros. Nothing that is allocated is given back, and nothing new is needed, so
//! that a full disk does not keep a lane from working after a restart.

use super::record::{self, Body};
use super::segment::{self, HEADER_LEN, Head, Header};
use crate::data::DataLog;
use crate::env::{Disk, Env, Error, File, Result};
use bytes::Bytes;
use oncrpc::xdr::Xdr;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

/// A segment whose records count.
pub struct Kept {
    /// Its number.
    pub number: u64,
    /// The number of its last record.
    pub last: u64,
    /// Where that ends.
    pub end: u64,
    /// Bytes on disk.
    pub bytes: u64,
}

/// What was found.
pub struct Found {
    /// Segments with records, oldest first. The last one can be gone on with.
    pub segments: Vec<Kept>,
    /// The numbers of segments without a record, all zeros, that come after those, oldest first.
    pub spares: Vec<u64>,
    /// The records, oldest first, without a gap in their numbers.
    pub records: Vec<(u64, Body)>,
    /// The number of the last record ever given out, so far as is known.
    pub last: u64,
    /// The epoch that the next life writes.
    pub epoch: u64,
    /// The number of the next segment.
    pub next_number: u64,
}

/// Path of a segment.
pub fn path(dir: &str, number: u64) -> String {
    format!("{dir}/{number:016x}.log")
}

/// Reads the lane in `dir`, wipes its tail, and makes what is left durable. Segments have `segment_len` bytes.
pub fn recover(env: &Env, volume: u32, dir: &str, segment_len: u64, data: &DataLog) -> Result<Found> {
    let disk = &*env.disk;
    disk.create_dir_all(dir).map_err(|e| Error::io(dir, &e))?;
    let (mut scan, next_number) = Scan::over(disk, volume, dir)?;
    scan.end_at_lost_extent(data)?;
    let spares = scan.settle(disk, segment_len)?;
    let last = scan.last.unwrap_or(0);
    Ok(Found {
        segments: scan.kept(),
        spares,
        last,
        epoch: scan.epoch + 1,
        next_number,
        records: scan.numbered(),
    })
}

/// The records of the lane in `dir`, oldest first, and nothing else: those of which the data log has lost bytes are among them.
pub fn read(env: &Env, volume: u32, dir: &str) -> Result<Vec<(u64, Body)>> {
    Ok(Scan::over(&*env.disk, volume, dir)?.0.numbered())
}

fn load(disk: &dyn Disk, path: &str) -> Result<(Arc<dyn File>, Bytes)> {
    let read = || {
        let file = disk.open(path)?;
        let mut buf = vec![0; file.len()? as usize];
        let n = file.pread(&mut buf, 0)?;
        buf.truncate(n);
        Ok((file, Bytes::from(buf)))
    };
    read().map_err(|e| Error::io(path, &e))
}

struct Record {
    seq: u64,
    /// Index in `Scan::segments`.
    segment: usize,
    /// Where it ends there.
    end: u64,
    body: Body,
}

struct Scanned {
    number: u64,
    file: Arc<dyn File>,
    bytes: Bytes,
    /// Where the last record ends that was promised.
    promised: u64,
}

struct Scan<'a> {
    volume: u32,
    dir: &'a str,
    /// The last record that counts; `None` before the first segment.
    last: Option<u64>,
    epoch: u64,
    /// The first record of the newest epoch.
    first: u64,
    promised: u64,
    segments: Vec<Scanned>,
    records: Vec<Record>,
}

impl<'a> Scan<'a> {
    /// Reads all segments; answers the number of the next one as well.
    fn over(disk: &dyn Disk, volume: u32, dir: &'a str) -> Result<(Scan<'a>, u64)> {
        let names = disk.list(dir).map_err(|e| Error::io(dir, &e))?;
        let mut scan = Scan {
            volume,
            dir,
            last: None,
            epoch: 0,
            first: 1,
            promised: 0,
            segments: Vec::new(),
            records: Vec::new(),
        };
        let mut next_number = 1;
        let numbers = names.iter().filter_map(|n| u64::from_str_radix(n.strip_suffix(".log")?, 16).ok());
        for number in numbers {
            next_number = number + 1;
            let (file, bytes) = load(disk, &path(dir, number))?;
            scan.segment(number, file, bytes)?;
        }
        Ok((scan, next_number))
    }

    fn numbered(self) -> Vec<(u64, Body)> {
        self.records.into_iter().map(|r| (r.seq, r.body)).collect()
    }

    fn segment(&mut self, number: u64, file: Arc<dyn File>, bytes: Bytes) -> Result<()> {
        let index = self.segments.len();
        self.segments.push(Scanned { number, file, bytes: bytes.clone(), promised: HEADER_LEN });
        let follows = match Header::decode(&bytes) {
            Head::Known(h) => self.follows(number, &h)?,
            Head::Newer(version) => {
                return Err(Error::Newer(Header::newer(&path(self.dir, number), version)));
            }
            Head::None => false,
        };
        if !follows {
            return self.refuse_witness(number, &bytes, HEADER_LEN);
        }
        let mut at = HEADER_LEN;
        while let Some(raw) = segment::read_at(&bytes, at).filter(|r| Some(r.seq) == self.last.map(|l| l + 1))
        {
            // It is intact, so that whoever wrote it knows more kinds than this program.
            let body = Body::from_bytes(raw.body).map_err(|e| {
                Error::Newer(format!(
                    "{}: record {} is of an unknown kind ({e})",
                    path(self.dir, number),
                    raw.seq
                ))
            })?;
            at = raw.end;
            self.last = Some(raw.seq);
            self.promised = self.promised.max(raw.promised);
            self.records.push(Record { seq: raw.seq, segment: index, end: at, body });
        }
        self.refuse_witness(number, &bytes, at)
    }

    /// Whether a segment's records follow those found so far.
    fn follows(&mut self, number: u64, h: &Header) -> Result<bool> {
        let at = path(self.dir, number);
        if h.volume != self.volume || h.number != number || h.first == 0 {
            return Err(Error::Corrupt(format!("{at} belongs to another volume or place")));
        }
        let Some(last) = self.last else {
            (self.last, self.epoch, self.first) = (Some(h.first - 1), h.epoch, h.first);
            return Ok(true);
        };
        if h.epoch == self.epoch {
            return Ok(h.first == last + 1);
        }
        if h.epoch < self.epoch || h.first > last + 1 {
            let missing = last + 1;
            return Err(Error::Corrupt(format!("{at} follows records from {missing} on that are not there")));
        }
        // That life gave up what is beyond its own first record.
        self.records.retain(|r| r.seq < h.first);
        (self.last, self.epoch, self.first) = (Some(h.first - 1), h.epoch, h.first);
        self.promised = self.promised.max(h.first - 1);
        Ok(true)
    }

    /// Fails if an intact record behind `from` vouches for the next one, or, in the first segment, for any.
    fn refuse_witness(&self, number: u64, bytes: &Bytes, from: u64) -> Result<()> {
        let missing = self.last.map(|l| l + 1);
        let Some(seq) = segment::witness(bytes, from, missing) else { return Ok(()) };
        let what = missing.map_or_else(|| "what stood before it".to_owned(), |m| format!("record {m}"));
        let at = path(self.dir, number);
        Err(Error::Corrupt(format!("{at}: {what} was promised (record {seq} says so) but is not intact")))
    }

    /// Ends the tail at the first record that was not promised and whose bytes did not reach the data log.
    fn end_at_lost_extent(&mut self, data: &DataLog) -> Result<()> {
        let retired = record::retired(self.records.iter().map(|r| &r.body));
        let mut used = BTreeSet::new();
        let mut end = None;
        for r in self.records.iter().filter(|r| r.seq > self.promised) {
            if r.body.change(r.seq).is_none_or(|change| retired.contains(&change)) {
                continue;
            }
            if r.body.extents().any(|e| data.read_extent(e).is_err()) {
                end = Some(r.seq);
                break;
            }
            used.extend(r.body.extents().map(|e| e.segment));
        }
        if let Some(end) = end {
            self.records.retain(|r| r.seq < end);
            self.last = Some(end - 1);
        }
        // The bytes were found, but perhaps only in memory that a power cut would lose.
        used.into_iter()
            .try_for_each(|s| data.sync_segment(s))
            .map_err(|e| Error::io("sync the data log", &e))
    }

    /// Wipes what is beyond the last record, removes older segments without records, syncs the rest. Answers the
    /// numbers of those without records that can be used.
    fn settle(&mut self, disk: &dyn Disk, segment_len: u64) -> Result<Vec<u64>> {
        let ends = self.ends();
        let newest = ends.iter().rposition(Option::is_some);
        for r in self.records.iter().filter(|r| r.seq <= self.promised) {
            self.segments[r.segment].promised = r.end;
        }
        let mut spares = Vec::new();
        for (i, (s, end)) in self.segments.iter().zip(ends).enumerate() {
            let done = match end {
                Some((_, end)) => s.wipe(s.promised, end),
                None if newest.is_none_or(|n| n < i) && s.bytes.len() as u64 == segment_len => {
                    spares.push(s.number);
                    s.wipe(0, 0)
                }
                None => disk.remove(&path(self.dir, s.number)),
            };
            done.map_err(|e| Error::io(path(self.dir, s.number), &e))?;
        }
        disk.sync_dir(self.dir).map_err(|e| Error::io(self.dir, &e))?;
        Ok(spares)
    }

    /// The number and the end of the last record of each segment.
    fn ends(&self) -> Vec<Option<(u64, u64)>> {
        let mut ends = vec![None; self.segments.len()];
        self.records.iter().for_each(|r| ends[r.segment] = Some((r.seq, r.end)));
        ends
    }

    fn kept(&self) -> Vec<Kept> {
        let with = self.segments.iter().zip(self.ends());
        let kept = |(s, end): (&Scanned, Option<(u64, u64)>)| {
            let (last, end) = end?;
            Some(Kept { number: s.number, last, end, bytes: s.bytes.len() as u64 })
        };
        with.filter_map(kept).collect()
    }
}

impl Scanned {
    /// Leaves nothing but zeros behind `end`. What stands between `promised` and `end` is written once more: an
    /// earlier process may have failed to sync it, and then the kernel has it in memory, but counts it as written.
    fn wipe(&self, promised: u64, end: u64) -> io::Result<()> {
        let end = (end as usize).min(self.bytes.len());
        let from = (promised as usize).min(end);
        let dirty = self.bytes.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
        let mut again = self.bytes[from..end].to_vec();
        again.resize(dirty.max(end) - from, 0);
        if !again.is_empty() {
            self.file.pwrite_all(&[&again], from as u64)?;
        }
        self.file.sync_data()
    }
}
