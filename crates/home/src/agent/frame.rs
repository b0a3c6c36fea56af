//! Frames: a fixed header, then a body in XDR.
//!
//! ```text
//! preamble, once per direction:  magic 8 | lowest version u32 | highest version u32
//! frame:  length u32 | type u8 | class u8 | flags u16 | id u64 | credit u32 | body (length bytes)
//! ```
//! All integers are big-endian. The header has the fields that later versions need; what is unused is zero.
//! Noise before the magic is skipped: remote shells print things, and a start by a forced command skips the
//! shell that would have told where the noise ends.

use crate::limits::agent::{BODY_MAX, NOISE_MAX};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::fmt;

/// Begins each direction. The bytes are no valid UTF-8 and no line that a shell would print.
pub const MAGIC: [u8; 8] = *b"\x89TRLS\r\n\x1a";
/// The lowest version of the protocol that we speak.
pub const VERSION_MIN: u32 = 1;
/// The highest version of the protocol that we speak.
pub const VERSION_MAX: u32 = 1;
/// Length of the preamble in bytes.
pub const PREAMBLE_LEN: usize = 16;
/// Length of a frame's header in bytes.
pub const HEADER_LEN: usize = 20;

/// Why a byte stream is not what we speak.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The body would be longer than [`BODY_MAX`].
    #[error("a frame of {0} bytes is longer than allowed")]
    TooLong(u32),
    /// A type or class that does not exist.
    #[error("a frame of unknown type {0} or class {1}")]
    Unknown(u8, u8),
    /// The body is said to be packed and cannot be unpacked.
    #[error("a packed frame that makes no sense")]
    Packed,
    /// No magic in the first [`NOISE_MAX`] bytes.
    #[error("the other side does not speak the agent protocol")]
    NoMagic,
    /// No version in common.
    #[error(
        "the other side speaks versions {min} to {max} of the agent protocol, we speak {VERSION_MIN} to {VERSION_MAX}"
    )]
    Version {
        /// Its lowest.
        min: u32,
        /// Its highest.
        max: u32,
    },
}

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Type {
    /// Asks; the body is a [`super::verbs::Request`].
    Request = 1,
    /// The last or only part of an answer; all parts together are a [`super::verbs::Reply`].
    Reply = 2,
    /// A part of an answer that goes on.
    ReplyPart = 3,
    /// The request with this id is no longer wanted; it may be answered all the same.
    Cancel = 4,
    /// Reserved: permission to send `credit` more bytes.
    Credit = 5,
    /// A sign of life; one with a nonzero id is sent back with id 0.
    Notice = 6,
    /// Tells what nobody asked for; the body is a [`super::verbs::News`]. Only where that is agreed on.
    News = 7,
}

/// What goes first when several frames wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Class {
    /// Greeting, cancel, signs of life.
    Control = 0,
    /// Metadata: short and waited for.
    Metadata = 1,
    /// Reads and changes that somebody waits for.
    Data = 2,
    /// Staged bytes.
    Bulk = 3,
}

/// The number of classes.
pub const CLASSES: usize = 4;

/// The fixed part of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Length of the body in bytes.
    pub length: u32,
    /// What it is.
    pub kind: Type,
    /// What goes first.
    pub class: Class,
    /// [`PACKED`](super::codec::PACKED) and [`PACK_ANSWER`](super::codec::PACK_ANSWER); others are ignored.
    pub flags: u16,
    /// Chosen by the client, never 0 for a request; the answer has the same.
    pub id: u64,
    /// Not used yet.
    pub credit: u32,
}

impl Header {
    /// A header with no flags and no credit.
    pub fn new(kind: Type, class: Class, id: u64, length: usize) -> Header {
        Header { length: length as u32, kind, class, flags: 0, id, credit: 0 }
    }

    /// The bytes on the pipe.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        let mut w = &mut out[..];
        w.put_u32(self.length);
        w.put_u8(self.kind as u8);
        w.put_u8(self.class as u8);
        w.put_u16(self.flags);
        w.put_u64(self.id);
        w.put_u32(self.credit);
        out
    }

    /// Checks length, type and class. Unknown flags and credit are kept, so that a later version can use them.
    pub fn decode(bytes: &[u8; HEADER_LEN]) -> Result<Header, FrameError> {
        let mut r = &bytes[..];
        let (length, kind, class) = (r.get_u32(), r.get_u8(), r.get_u8());
        if length as usize > BODY_MAX {
            return Err(FrameError::TooLong(length));
        }
        let unknown = FrameError::Unknown(kind, class);
        let kind = Type::from_number(kind).ok_or(unknown.clone())?;
        let class = Class::from_number(class).ok_or(unknown)?;
        Ok(Header { length, kind, class, flags: r.get_u16(), id: r.get_u64(), credit: r.get_u32() })
    }
}

impl Type {
    fn from_number(n: u8) -> Option<Type> {
        use Type::*;
        [Request, Reply, ReplyPart, Cancel, Credit, Notice, News].into_iter().find(|t| *t as u8 == n)
    }
}

impl Class {
    fn from_number(n: u8) -> Option<Class> {
        use Class::*;
        [Control, Metadata, Data, Bulk].into_iter().find(|c| *c as u8 == n)
    }
}

/// A frame with its body in segments, ready to be written.
#[derive(Debug, Clone)]
pub struct Frame {
    /// The fixed part; its length is that of the body.
    pub header: Header,
    /// The body, in the order of the pipe.
    pub body: Vec<Bytes>,
}

impl Frame {
    /// A frame whose length fits its body.
    pub fn new(kind: Type, class: Class, id: u64, body: Vec<Bytes>) -> Frame {
        let length = body.iter().map(Bytes::len).sum();
        Frame { header: Header::new(kind, class, id, length), body }
    }

    /// Bytes on the pipe.
    pub fn len(&self) -> usize {
        HEADER_LEN + self.header.length as usize
    }

    /// Never: a frame has a header.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The whole frame in one buffer.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len());
        out.extend_from_slice(&self.header.encode());
        self.body.iter().for_each(|s| out.extend_from_slice(s));
        out
    }
}

/// An answer as one frame, or as several whose bodies are at most `part_max` bytes long.
pub fn answer(class: Class, id: u64, body: Vec<Bytes>, part_max: usize) -> Vec<Frame> {
    let mut frames = Vec::new();
    let (mut part, mut room) = (Vec::new(), part_max);
    for mut segment in body {
        while segment.len() > room {
            part.push(segment.split_to(room));
            frames.push(Frame::new(Type::ReplyPart, class, id, std::mem::take(&mut part)));
            room = part_max;
        }
        room -= segment.len();
        part.push(segment);
    }
    frames.push(Frame::new(Type::Reply, class, id, part));
    frames
}

/// What each side sends first.
pub fn preamble() -> [u8; PREAMBLE_LEN] {
    let mut out = [0; PREAMBLE_LEN];
    let mut w = &mut out[..];
    w.put_slice(&MAGIC);
    w.put_u32(VERSION_MIN);
    w.put_u32(VERSION_MAX);
    out
}

/// Finds the other side's preamble behind noise.
#[derive(Debug, Default)]
pub struct PreambleSearch {
    seen: BytesMut,
    skipped: usize,
}

impl PreambleSearch {
    /// Takes further bytes. Answers the version to speak, and the bytes that followed the preamble, once it is there.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Option<(u32, Bytes)>, FrameError> {
        self.seen.extend_from_slice(bytes);
        let start = self.seen.windows(MAGIC.len()).position(|w| w == MAGIC);
        let skip = start.unwrap_or(self.seen.len().saturating_sub(MAGIC.len() - 1));
        self.seen.advance(skip);
        self.skipped += skip;
        if self.skipped > NOISE_MAX {
            return Err(FrameError::NoMagic);
        }
        if start.is_none() || self.seen.len() < PREAMBLE_LEN {
            return Ok(None);
        }
        let mut head = self.seen.split_to(PREAMBLE_LEN).freeze();
        head.advance(MAGIC.len());
        let version = common_version(head.get_u32(), head.get_u32())?;
        Ok(Some((version, self.seen.split().freeze())))
    }
}

fn common_version(min: u32, max: u32) -> Result<u32, FrameError> {
    let version = max.min(VERSION_MAX);
    if min > max || version < min.max(VERSION_MIN) {
        return Err(FrameError::Version { min, max });
    }
    Ok(version)
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Class::Control => "control",
            Class::Metadata => "metadata",
            Class::Data => "data",
            Class::Bulk => "bulk",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_has_its_golden_bytes() {
        let header =
            Header { length: 5, kind: Type::Request, class: Class::Bulk, flags: 0, id: 0x0102, credit: 0 };
        let bytes = header.encode();
        assert_eq!(&bytes, b"\0\0\0\x05\x01\x03\0\0\0\0\0\0\0\0\x01\x02\0\0\0\0");
        assert_eq!(Header::decode(&bytes), Ok(header));
        assert_eq!(&preamble(), b"\x89TRLS\r\n\x1a\0\0\0\x01\0\0\0\x01");
    }

    #[test]
    fn a_lying_header_is_refused() {
        let mut bytes = Header::new(Type::Notice, Class::Control, 0, 0).encode();
        bytes[0] = 0x40;
        assert_eq!(Header::decode(&bytes), Err(FrameError::TooLong(0x4000_0000)));
        bytes[0] = 0;
        bytes[4] = 8;
        assert_eq!(Header::decode(&bytes), Err(FrameError::Unknown(8, 0)));
        bytes[4] = 6;
        bytes[5] = 4;
        assert_eq!(Header::decode(&bytes), Err(FrameError::Unknown(6, 4)));
    }

    #[test]
    fn the_preamble_is_found_behind_noise_in_any_slicing() {
        let mut stream = b"Welcome!\r\n\x89TRL no \x89".to_vec();
        stream.extend_from_slice(&preamble());
        stream.extend_from_slice(b"rest");
        for step in 1..stream.len() {
            let mut search = PreambleSearch::default();
            let mut found = None;
            let mut tail = Vec::new();
            for chunk in stream.chunks(step) {
                match found {
                    None => found = search.push(chunk).unwrap(),
                    Some(_) => tail.extend_from_slice(chunk),
                }
            }
            let (version, rest) = found.unwrap();
            assert_eq!((version, [&rest[..], &tail].concat()), (1, b"rest".to_vec()));
        }
    }

    #[test]
    fn endless_noise_and_foreign_versions_are_errors() {
        let mut search = PreambleSearch::default();
        let noise = vec![b'x'; 64 << 10];
        let error = (0..8).find_map(|_| search.push(&noise).err());
        assert_eq!(error, Some(FrameError::NoMagic));

        let mut other = preamble();
        other[11] = 7;
        other[15] = 9;
        let error = PreambleSearch::default().push(&other).unwrap_err();
        assert_eq!(error, FrameError::Version { min: 7, max: 9 });
        assert!(error.to_string().contains("versions 7 to 9"));
    }

    #[test]
    fn a_long_answer_is_cut_into_parts_that_join_to_the_same_bytes() {
        let body =
            vec![Bytes::from_static(b"abc"), Bytes::from_static(b"defghijk"), Bytes::from_static(b"l")];
        let frames = answer(Class::Data, 9, body, 4);
        assert_eq!(frames.len(), 3);
        assert!(frames[..2].iter().all(|f| f.header.kind == Type::ReplyPart && f.header.length == 4));
        assert_eq!(frames[2].header.kind, Type::Reply);
        let joined: Vec<u8> = frames.iter().flat_map(|f| f.to_vec()[HEADER_LEN..].to_vec()).collect();
        assert_eq!(joined, b"abcdefghijkl");
    }
}
