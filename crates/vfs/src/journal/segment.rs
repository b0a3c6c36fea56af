//! The bytes of a segment: a header, then records until the first place where none begins.
//!
//! A record carries, besides its own number, how much of the lane was promised (known to be durable) when
//! it was written. That tells two kinds of damage apart after a power cut: behind a record that never
//! reached the disk there may be others of the same unsynced batch, which were promised to nobody; but a
//! record that vouches for a missing one shows that the disk lost what it had confirmed.

use bytes::{BufMut, Bytes};

/// First bytes of every segment.
const MAGIC: &[u8; 8] = b"TRLSJRNL";
/// Version of the format that is written. All from 1 up to it are read.
const VERSION: u32 = 1;
/// Bytes before the first record.
pub const HEADER_LEN: u64 = 64;
/// Bytes of a record before its body.
pub const RECORD_HEADER_LEN: usize = 24;

/// What a segment says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The volume.
    pub volume: u32,
    /// Its place among the segments of the lane.
    pub number: u64,
    /// Which life of the lane wrote it; increases with every opening.
    pub epoch: u64,
    /// The number of its first record.
    pub first: u64,
}

/// What stands where the header of a segment should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Head {
    /// No intact one.
    None,
    /// One of a later version than this program knows.
    Newer(u32),
    /// One that can be read.
    Known(Header),
}

impl Header {
    /// The header in bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_LEN as usize);
        out.put_slice(MAGIC);
        out.put_u32(VERSION);
        out.put_u32(self.volume);
        out.put_u64(self.number);
        out.put_u64(self.epoch);
        out.put_u64(self.first);
        out.put_u32(crc32c::crc32c(&out));
        out.resize(HEADER_LEN as usize, 0);
        out
    }

    /// Reads a header.
    pub fn decode(segment: &[u8]) -> Head {
        Header::decode_up_to(segment, VERSION)
    }

    /// The same for a program that knows the versions up to `newest`. Magic, version and checksum have the same places
    /// in all versions, so that a later one is told from damage.
    pub(super) fn decode_up_to(segment: &[u8], newest: u32) -> Head {
        let read = || {
            let head = segment.get(..HEADER_LEN as usize)?;
            let intact = u32_at(head, 40)? == crc32c::crc32c(&head[..40]) && &head[..8] == MAGIC;
            Some(match u32_at(head, 8)? {
                _ if !intact => Head::None,
                0 => Head::None,
                version if version > newest => Head::Newer(version),
                _ => Head::Known(Header {
                    volume: u32_at(head, 12)?,
                    number: u64_at(head, 16)?,
                    epoch: u64_at(head, 24)?,
                    first: u64_at(head, 32)?,
                }),
            })
        };
        read().unwrap_or(Head::None)
    }

    /// What to say of a segment of a later version.
    pub fn newer(at: &str, version: u32) -> String {
        format!("{at} has format version {version}, and this program knows {VERSION}")
    }
}

/// A record as it stands in a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raw {
    /// Its number.
    pub seq: u64,
    /// All records up to this number were durable when it was written.
    pub promised: u64,
    /// Its body.
    pub body: Bytes,
    /// Where the next record begins.
    pub end: u64,
}

/// How many bytes a record with a body of `len` bytes takes.
pub fn footprint(len: usize) -> u64 {
    (RECORD_HEADER_LEN + len).next_multiple_of(8) as u64
}

/// Appends a record to `out`.
pub fn frame(out: &mut Vec<u8>, seq: u64, promised: u64, body: &[Bytes]) {
    let start = out.len();
    let len: usize = body.iter().map(Bytes::len).sum();
    out.put_u32(len as u32);
    out.put_u32(0);
    out.put_u64(seq);
    out.put_u64(promised);
    body.iter().for_each(|part| out.put_slice(part));
    let crc = checksum(&out[start..]);
    out[start + 4..start + 8].copy_from_slice(&crc.to_be_bytes());
    out.resize(start + footprint(len) as usize, 0);
}

/// The checksum of a record: everything but the checksum and the padding.
fn checksum(record: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&record[..4]), &record[8..])
}

/// The record that begins at `at`, if an intact one does.
pub fn read_at(segment: &Bytes, at: u64) -> Option<Raw> {
    let at = usize::try_from(at).ok()?;
    let head = segment.get(at..at.checked_add(RECORD_HEADER_LEN)?)?;
    let len = u32_at(head, 0)? as usize;
    let whole = segment.get(at..at.checked_add(RECORD_HEADER_LEN)?.checked_add(len)?)?;
    if len == 0 || u32_at(head, 4)? != checksum(whole) {
        return None;
    }
    Some(Raw {
        seq: u64_at(head, 8)?,
        promised: u64_at(head, 16)?,
        body: segment.slice(at + RECORD_HEADER_LEN..at + RECORD_HEADER_LEN + len),
        end: at as u64 + footprint(len),
    })
}

/// Looks behind `from` for an intact record that vouches for record `missing`, and answers its number. Where nobody knows the
/// number of what is missing, each one does that says of any that it was durable.
pub fn witness(segment: &Bytes, from: u64, missing: Option<u64>) -> Option<u64> {
    let is_near = |seq: u64| missing.is_none_or(|m| seq > m && seq - m < segment.len() as u64);
    let first = missing.unwrap_or(1);
    let mut at = from;
    while at + RECORD_HEADER_LEN as u64 <= segment.len() as u64 {
        // The cheap test first: nearly every place fails it, and then no checksum is computed.
        let vouches = u64_at(segment, at as usize + 16).is_some_and(|promised| promised >= first)
            && u64_at(segment, at as usize + 8).is_some_and(is_near);
        match vouches.then(|| read_at(segment, at)).flatten() {
            Some(raw) => return Some(raw.seq),
            None => at += 8,
        }
    }
    None
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}
