//! The bytes of a data segment: a header, then entries, each with a header of its own.
//!
//! A segment's header says where the one before ended. So a scan notices that entries are missing, in the
//! middle or at the end of a segment, and does not take what is left for the whole story.

use bytes::BufMut;

const SEGMENT_MAGIC: &[u8; 8] = b"TRLSDATA";
const ENTRY_MAGIC: u32 = 0x5452_4c45;
/// Version of the format that is written. All from 1 up to it are read.
const VERSION: u32 = 1;
/// Bytes before the first entry of a segment.
pub const SEGMENT_HEADER_LEN: u64 = 64;
/// Bytes of an entry before its payload.
pub const ENTRY_HEADER_LEN: usize = 48;

/// What a segment says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The volume.
    pub volume: u32,
    /// Its place among the segments of the log.
    pub number: u64,
    /// When it was begun.
    pub made: home::Time,
    /// The number of the segment before; 0 if there was none.
    pub prev: u64,
    /// Where the last entry of the segment before ended.
    pub prev_end: u64,
}

/// The version of a segment that a later program wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Newer(pub u32);

impl Newer {
    /// What to say of it.
    pub fn text(self, at: &str) -> String {
        format!("{at} has format version {}, and this program knows {VERSION}", self.0)
    }
}

impl SegmentHeader {
    /// The header in bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(SEGMENT_HEADER_LEN as usize);
        out.put_slice(SEGMENT_MAGIC);
        out.put_u32(VERSION);
        out.put_u32(self.volume);
        out.put_u64(self.number);
        out.put_i64(self.made.sec);
        out.put_u32(self.made.nsec);
        out.put_u64(self.prev);
        out.put_u64(self.prev_end);
        out.put_u32(crc32c::crc32c(&out));
        out.resize(SEGMENT_HEADER_LEN as usize, 0);
        out
    }

    /// Reads a header; `None` if there is no intact one, [`Newer`] where a later program wrote it.
    pub fn decode(bytes: &[u8]) -> Option<Result<SegmentHeader, Newer>> {
        SegmentHeader::decode_up_to(bytes, VERSION)
    }

    /// The same for a program that knows the versions up to `newest`. Magic, version and checksum have the same places
    /// in all versions.
    pub(crate) fn decode_up_to(bytes: &[u8], newest: u32) -> Option<Result<SegmentHeader, Newer>> {
        let head = bytes.get(..SEGMENT_HEADER_LEN as usize)?;
        let mut r = Ints(head.get(8..)?);
        let (version, volume, number) = (r.u32()?, r.u32()?, r.u64()?);
        let made = home::Time { sec: r.u64()? as i64, nsec: r.u32()? };
        let (prev, prev_end) = (r.u64()?, r.u64()?);
        let intact = r.u32()? == crc32c::crc32c(&head[..52]) && &head[..8] == SEGMENT_MAGIC && version > 0;
        let known = SegmentHeader { volume, number, made, prev, prev_end };
        intact.then_some(if version > newest { Err(Newer(version)) } else { Ok(known) })
    }
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Bytes that the home has too.
    Clean = 1,
    /// Bytes that are ours until a [`Kind::Retired`] names them.
    Dirty = 2,
    /// Payload: a version (XDR). All that is indexed of the object, and not dirty, is this version.
    Version = 3,
    /// What is beyond `offset` is no longer indexed.
    Truncate = 4,
    /// Nothing of the object is indexed any more.
    Drop = 5,
    /// Payload: an extent (XDR) that was laid at `offset` and became clean.
    Retired = 6,
    /// Payload: an extent (XDR) of an earlier entry that a journal record laid at `offset` after a restart; dirty.
    Laid = 7,
}

/// The header of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// What it is.
    pub kind: Kind,
    /// The object.
    pub object: u64,
    /// Entries of an object with a lower epoch than another one's are void.
    pub epoch: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Bytes of the payload.
    pub len: u32,
    /// CRC-32C of the payload.
    pub crc: u32,
}

impl Entry {
    /// The header in bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(ENTRY_HEADER_LEN);
        out.put_u32(ENTRY_MAGIC);
        out.put_u32(self.kind as u32);
        out.put_u64(self.object);
        out.put_u64(self.epoch);
        out.put_u64(self.offset);
        out.put_u32(self.len);
        out.put_u32(self.crc);
        out.put_u32(crc32c::crc32c(&out));
        out.resize(ENTRY_HEADER_LEN, 0);
        out
    }

    /// Reads a header; `None` if there is no intact one.
    pub fn decode(bytes: &[u8]) -> Option<Entry> {
        let head = bytes.get(..ENTRY_HEADER_LEN)?;
        let mut r = Ints(head);
        let magic = r.u32()?;
        let kind = kind_of(r.u32()?);
        let (object, epoch, offset, len, crc) = (r.u64()?, r.u64()?, r.u64()?, r.u32()?, r.u32()?);
        let intact = magic == ENTRY_MAGIC && r.u32()? == crc32c::crc32c(&head[..40]);
        if !intact {
            return None;
        }
        Some(Entry { kind: kind?, object, epoch, offset, len, crc })
    }

    /// Bytes that the entry takes.
    pub fn footprint(&self) -> u64 {
        footprint(self.len as u64)
    }
}

/// Bytes that an entry with a payload of `len` bytes takes.
pub fn footprint(len: u64) -> u64 {
    ENTRY_HEADER_LEN as u64 + len.next_multiple_of(8)
}

fn kind_of(n: u32) -> Option<Kind> {
    [Kind::Clean, Kind::Dirty, Kind::Version, Kind::Truncate, Kind::Drop, Kind::Retired, Kind::Laid]
        .into_iter()
        .find(|k| *k as u32 == n)
}

/// Reads big-endian numbers.
struct Ints<'a>(&'a [u8]);

impl Ints<'_> {
    fn u32(&mut self) -> Option<u32> {
        let (head, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*head))
    }
    fn u64(&mut self) -> Option<u64> {
        let (head, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_be_bytes(*head))
    }
}
