//! Bodies that are packed, by LZ4: which ones, and what is believed of those that arrive.
//!
//! Each frame's body is packed by itself, so nothing is kept from one to the next, any thread may pack, and a frame that
//! is lost or cancelled costs no other. Whether the link is far enough for that is known to the client, which says so with
//! each request. What packs badly is noticed and left alone for a while: files are often packed already.
//!
//! ```text
//! packed body:  length before u32 | LZ4 block
//! ```

use super::frame::{Frame, FrameError, Header, Type};
use super::verbs::{CODEC_LZ4, CODEC_NONE};
use crate::limits::agent::{BODY_MAX, PACK_MIN, PACK_PAUSE_MAX};
use bytes::{Buf, Bytes};
use lz4_flex::block::{compress_into, decompress_into, get_maximum_output_size};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// A flag of frames: the body is packed.
pub const PACKED: u16 = 1;
/// A flag of requests: the answer may be packed.
pub const PACK_ANSWER: u16 = 2;
/// Codecs that we know, the best first.
pub const CODECS: [u32; 2] = [CODEC_LZ4, CODEC_NONE];

/// Length of what goes before the block.
const PREFIX: usize = 4;
/// One byte of a block stands for at most so many.
const DENSEST: usize = 255;

/// What a body consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Names, attributes, numbers: always worth it.
    Words,
    /// Bytes of files, which may be anything.
    Bytes,
}

/// One end of a connection: what it has agreed on, and how well packing went.
#[derive(Debug, Default)]
pub struct Packer {
    agreed: AtomicBool,
    /// Bodies of files that go as they are before the next one is tried.
    rest: AtomicU32,
    /// How many went so the last time.
    pause: AtomicU32,
}

impl Packer {
    /// The codec that both ends know was chosen.
    pub fn agree(&self, codec: u32) {
        self.agreed.store(codec == CODEC_LZ4, Relaxed);
    }

    /// What the client sends. `far`: the link is worth it, which the other end is to know.
    pub fn outgoing(&self, mut frame: Frame, content: Content, far: bool) -> Frame {
        if !far || !self.agreed.load(Relaxed) {
            return frame;
        }
        if frame.header.kind == Type::Request {
            frame.header.flags |= PACK_ANSWER;
        }
        self.pack(frame, content)
    }

    /// Whether the answer to a request may be packed.
    pub fn may_answer_packed(&self, request: &Header) -> bool {
        request.flags & PACK_ANSWER != 0 && self.agreed.load(Relaxed)
    }

    /// The frame with its body packed, if that makes it shorter by a twentieth.
    pub fn pack(&self, mut frame: Frame, content: Content) -> Frame {
        let before = frame.header.length as usize;
        if before < PACK_MIN || content == Content::Bytes && !self.is_worth_a_try() {
            return frame;
        }
        let packed = packed(&frame.body, before);
        let is_shorter = packed.len() + before / 20 < before;
        if content == Content::Bytes {
            self.learn(is_shorter);
        }
        if is_shorter {
            frame.header.flags |= PACKED;
            frame.header.length = packed.len() as u32;
            frame.body = vec![packed];
        }
        frame
    }

    /// The body as it was before it was packed, if it was.
    pub fn unpack(&self, header: &Header, body: Bytes) -> Result<Bytes, FrameError> {
        if header.flags & PACKED == 0 || !self.agreed.load(Relaxed) {
            return Ok(body);
        }
        unpacked(body).ok_or(FrameError::Packed)
    }

    fn is_worth_a_try(&self) -> bool {
        self.rest.fetch_update(Relaxed, Relaxed, |rest| rest.checked_sub(1)).is_err()
    }

    /// Each failure is followed by about twice as many bodies that are not tried.
    fn learn(&self, is_shorter: bool) {
        let pause = if is_shorter { 0 } else { (2 * self.pause.load(Relaxed) + 1).min(PACK_PAUSE_MAX) };
        self.pause.store(pause, Relaxed);
        self.rest.store(pause, Relaxed);
    }
}

/// `body` has `length` bytes, which are few enough for a `u32`.
fn packed(body: &[Bytes], length: usize) -> Bytes {
    let joined;
    let input = match body {
        [one] => &one[..],
        many => {
            joined = many.concat();
            &joined[..]
        }
    };
    let mut out = vec![0; PREFIX + get_maximum_output_size(length)];
    out[..PREFIX].copy_from_slice(&(length as u32).to_be_bytes());
    // There is room for the worst, so this fails never; unpacked is right in any case.
    let used = compress_into(input, &mut out[PREFIX..]).unwrap_or(length);
    out.truncate(PREFIX + used);
    out.shrink_to_fit();
    out.into()
}

/// `None` if it is nonsense. Memory is taken only for what can be in it, and for no more than a body may have.
fn unpacked(mut body: Bytes) -> Option<Bytes> {
    if body.len() < PREFIX {
        return None;
    }
    let length = body.get_u32() as usize;
    if length > BODY_MAX || length > body.len() * DENSEST {
        return None;
    }
    let mut out = vec![0; length];
    let used = decompress_into(&body, &mut out).ok()?;
    (used == length).then(|| out.into())
}

#[cfg(test)]
mod tests {
    use super::super::frame::{Class, HEADER_LEN};
    use super::*;

    fn packer() -> Packer {
        let packer = Packer::default();
        packer.agree(CODEC_LZ4);
        packer
    }

    fn frame(body: Vec<u8>) -> Frame {
        Frame::new(Type::Request, Class::Bulk, 3, vec![body.into()])
    }

    /// Bytes that nothing can be left out of.
    fn noise(length: usize) -> Vec<u8> {
        let mut out = vec![0; length];
        blake3::Hasher::new().finalize_xof().fill(&mut out);
        out
    }

    fn claims(length: u32, block: &[u8]) -> Bytes {
        [&length.to_be_bytes()[..], block].concat().into()
    }

    #[test]
    fn a_packed_frame_has_its_golden_bytes() {
        let golden = b"\0\0\0\x10\x01\x03\0\x03\0\0\0\0\0\0\0\x03\0\0\0\0\
            \0\0\x02\0\x1fa\x01\0\xff\xe8\x50aaaaa";
        let body = vec![b'a'; PACK_MIN];
        let header = Header::decode(golden[..HEADER_LEN].try_into().unwrap()).unwrap();
        let unpacked = packer().unpack(&header, Bytes::from_static(&golden[HEADER_LEN..]));
        assert_eq!(unpacked.unwrap(), body);
        // Which matches an encoder finds is its own affair.
        let sent = packer().outgoing(frame(body.clone()), Content::Words, true);
        assert_eq!(sent.header, Header { length: sent.header.length, ..header });
        assert_eq!(packer().unpack(&sent.header, sent.body.concat().into()).unwrap(), body);
    }

    #[test]
    fn segments_are_packed_together_and_come_back_as_one_body() {
        let parts: Vec<Bytes> = (0..999_u32).map(|i| format!("name {i}").into()).collect();
        let sent = packer().pack(Frame::new(Type::Reply, Class::Data, 1, parts.clone()), Content::Bytes);
        assert!(sent.header.flags == PACKED && sent.len() < parts.concat().len());
        let body = packer().unpack(&sent.header, sent.body.concat().into()).unwrap();
        assert_eq!(body, parts.concat());
    }

    #[test]
    fn short_bodies_near_links_and_peers_that_do_not_know_it_are_left_alone() {
        let body = vec![b'a'; PACK_MIN];
        let plain = |sent: Frame| assert_eq!(sent.to_vec(), frame(sent.body.concat()).to_vec());
        plain(packer().outgoing(frame(body.clone()), Content::Words, false));
        plain(Packer::default().outgoing(frame(body.clone()), Content::Words, true));
        plain(packer().pack(frame(vec![b'a'; PACK_MIN - 1]), Content::Words));
        let flagged = Header { flags: PACKED | PACK_ANSWER, ..frame(body.clone()).header };
        assert_eq!(Packer::default().unpack(&flagged, body.clone().into()).unwrap(), body);
        assert!(!Packer::default().may_answer_packed(&flagged) && packer().may_answer_packed(&flagged));
    }

    #[test]
    fn what_does_not_pack_is_hardly_ever_tried() {
        let packer = packer();
        let tries = (0..1000).filter(|_| {
            let sent = packer.pack(frame(noise(PACK_MIN)), Content::Bytes);
            assert!(sent.header.flags == 0 && sent.body.concat() == noise(PACK_MIN));
            packer.rest.load(Relaxed) == packer.pause.load(Relaxed)
        });
        let tries = tries.count();
        assert!((10..50).contains(&tries), "{tries} of 1000");
        let words = packer.pack(frame(vec![b'a'; PACK_MIN]), Content::Words);
        assert_eq!(words.header.flags, PACKED, "names go by themselves");
        let mut bytes = (0..PACK_PAUSE_MAX + 2).map(|_| packer.pack(frame(vec![7; 9000]), Content::Bytes));
        assert!(bytes.any(|sent| sent.header.flags == PACKED));
        let again = packer.pack(frame(vec![7; 9000]), Content::Bytes);
        assert_eq!(again.header.flags, PACKED, "one success is enough");
    }

    #[test]
    fn a_lie_takes_no_memory_and_makes_no_sense() {
        let zeros = packed(&[vec![0; BODY_MAX + 1].into()], BODY_MAX + 1);
        assert!(zeros.len() < 10_000 && unpacked(zeros).is_none(), "a bomb");
        let block = &packed(&[vec![0; 1000].into()], 1000)[PREFIX..];
        assert_eq!(unpacked(claims(1000, block)).unwrap(), vec![0; 1000]);
        let lies = [
            Bytes::new(),
            Bytes::from_static(b"\0\0\0"),
            claims(u32::MAX, block),
            claims(BODY_MAX as u32, block),
            claims(1001, block),
            claims(999, block),
            claims(1000, &block[..block.len() - 1]),
            claims(1000, &noise(40)),
            // A match from before the beginning.
            claims(12, b"\x11a\xff\xff\x50aaaaa"),
        ];
        for lie in lies {
            assert_eq!(unpacked(lie.clone()), None, "{lie:?}");
        }
    }
}
