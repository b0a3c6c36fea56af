//! Packets of the SSH File Transfer Protocol, version 3 (draft-ietf-secsh-filexfer-02), and the extensions of
//! OpenSSH that we use (its file PROTOCOL, section 4).
//!
//! `length u32 | type u8 | id u32 | body`. Strings are counted bytes without padding. A packet is bounded before
//! any of it is kept, and counts inside it are checked against its length.

use bytes::Bytes;
use oncrpc::xdr::{Reader, Writer, XdrError};

/// Bytes of data in a packet where the server names no limit: what every server takes.
pub(super) const DATA_DEFAULT: u32 = 32 << 10;

/// Types of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Ask {
    Open = 3,
    Close = 4,
    Read = 5,
    Write = 6,
    Lstat = 7,
    Fstat = 8,
    Setstat = 9,
    Fsetstat = 10,
    Opendir = 11,
    Readdir = 12,
    Remove = 13,
    Mkdir = 14,
    Rmdir = 15,
    Realpath = 16,
    Rename = 18,
    Readlink = 19,
    Symlink = 20,
    Extended = 200,
}

pub(super) const INIT: u8 = 1;
pub(super) const VERSION: u8 = 2;

/// Flags of OPEN.
pub(super) const READ: u32 = 0x01;
pub(super) const WRITE: u32 = 0x02;
pub(super) const CREAT: u32 = 0x08;
pub(super) const EXCL: u32 = 0x20;

/// Codes of STATUS; those above 8 belong to later versions, but some servers send them.
pub(super) const OK: u32 = 0;
pub(super) const EOF: u32 = 1;
pub(super) const NO_SUCH_FILE: u32 = 2;
pub(super) const PERMISSION_DENIED: u32 = 3;
pub(super) const BAD_MESSAGE: u32 = 5;
pub(super) const OP_UNSUPPORTED: u32 = 8;
pub(super) const FILE_ALREADY_EXISTS: u32 = 11;
pub(super) const WRITE_PROTECT: u32 = 12;
pub(super) const NO_SPACE: u32 = 14;
pub(super) const QUOTA: u32 = 15;
pub(super) const DIR_NOT_EMPTY: u32 = 18;

const HAS_SIZE: u32 = 1;
const HAS_IDS: u32 = 2;
const HAS_MODE: u32 = 4;
const HAS_TIMES: u32 = 8;
const HAS_EXTENDED: u32 = 1 << 31;

/// Attributes; what is `None` is not told, or not to be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Attrs {
    pub size: Option<u64>,
    pub ids: Option<(u32, u32)>,
    /// With the type of the file, as st_mode.
    pub mode: Option<u32>,
    /// Last access and last change, in seconds since 1970.
    pub times: Option<(u32, u32)>,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Status {
        code: u32,
        text: Bytes,
    },
    Handle(Bytes),
    Data(Bytes),
    Names(Vec<(Bytes, Attrs)>),
    Attrs(Attrs),
    /// The body of an extension's answer.
    Extended(Bytes),
}

type Result<T> = std::result::Result<T, XdrError>;

/// A counted string.
pub(super) fn put_string(w: &mut Writer, bytes: &[u8]) {
    w.u32(bytes.len() as u32);
    w.raw(bytes);
}

pub(super) fn string(r: &mut Reader) -> Result<Bytes> {
    let len = r.u32()? as usize;
    r.take(len)
}

impl Attrs {
    pub fn encode(&self, w: &mut Writer) {
        let flag = |has: bool, bit: u32| if has { bit } else { 0 };
        w.u32(
            flag(self.size.is_some(), HAS_SIZE)
                | flag(self.ids.is_some(), HAS_IDS)
                | flag(self.mode.is_some(), HAS_MODE)
                | flag(self.times.is_some(), HAS_TIMES),
        );
        if let Some(size) = self.size {
            w.u64(size);
        }
        if let Some((a, b)) = self.ids {
            w.u32(a);
            w.u32(b);
        }
        if let Some(mode) = self.mode {
            w.u32(mode);
        }
        if let Some((atime, mtime)) = self.times {
            w.u32(atime);
            w.u32(mtime);
        }
    }

    pub fn decode(r: &mut Reader) -> Result<Attrs> {
        let flags = r.u32()?;
        let mut attrs = Attrs::default();
        if flags & HAS_SIZE != 0 {
            attrs.size = Some(r.u64()?);
        }
        if flags & HAS_IDS != 0 {
            attrs.ids = Some((r.u32()?, r.u32()?));
        }
        if flags & HAS_MODE != 0 {
            attrs.mode = Some(r.u32()?);
        }
        if flags & HAS_TIMES != 0 {
            attrs.times = Some((r.u32()?, r.u32()?));
        }
        if flags & HAS_EXTENDED != 0 {
            for _ in 0..r.u32()? {
                string(r)?;
                string(r)?;
            }
        }
        Ok(attrs)
    }
}

/// The first packet.
pub(super) fn init() -> Bytes {
    let mut w = Writer::new();
    w.u32(5);
    w.raw(&[INIT]);
    w.u32(3);
    w.into_bytes()
}

/// The answer to it, without its length: version and extensions with their data.
pub(super) fn version(packet: Bytes) -> Result<(u32, Vec<(Bytes, Bytes)>)> {
    let mut r = Reader::new(packet);
    if r.array::<1>()? != [VERSION] {
        return Err(XdrError::OutOfRange);
    }
    let version = r.u32()?;
    let mut extensions = Vec::new();
    while r.remaining() > 0 {
        extensions.push((string(&mut r)?, string(&mut r)?));
    }
    Ok((version, extensions))
}

/// A request with its length.
pub(super) fn request(ask: Ask, id: u32, body: impl FnOnce(&mut Writer)) -> Bytes {
    let mut w = Writer::new();
    body(&mut w);
    let body = w.into_bytes();
    let mut w = Writer::new();
    w.u32(body.len() as u32 + 5);
    w.raw(&[ask as u8]);
    w.u32(id);
    w.raw(&body);
    w.into_bytes()
}

/// An answer without its length.
pub(super) fn answer(packet: Bytes) -> Result<(u32, Answer)> {
    let mut r = Reader::new(packet);
    let [kind] = r.array::<1>()?;
    let id = r.u32()?;
    let answer = match kind {
        101 => {
            let code = r.u32()?;
            // Old servers leave the text out.
            let text = if r.remaining() >= 4 { string(&mut r)? } else { Bytes::new() };
            Answer::Status { code, text }
        }
        102 => Answer::Handle(string(&mut r)?),
        103 => Answer::Data(string(&mut r)?),
        104 => Answer::Names(names(&mut r)?),
        105 => Answer::Attrs(Attrs::decode(&mut r)?),
        201 => Answer::Extended(r.into_rest()),
        _ => return Err(XdrError::OutOfRange),
    };
    Ok((id, answer))
}

fn names(r: &mut Reader) -> Result<Vec<(Bytes, Attrs)>> {
    // Name, long name and attributes take at least twelve bytes.
    r.array_of(usize::MAX, 12, |r| {
        let name = string(r)?;
        string(r)?;
        Ok((name, Attrs::decode(r)?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_its_golden_bytes() {
        let open = request(Ask::Open, 7, |w| {
            put_string(w, b"/f");
            w.u32(READ);
            Attrs { mode: Some(0o600), ..Attrs::default() }.encode(w);
        });
        let golden = b"\0\0\0\x17\x03\0\0\0\x07\0\0\0\x02/f\0\0\0\x01\0\0\0\x04\0\0\x01\x80";
        assert_eq!(&open[..], golden);
        assert_eq!(&init()[..], b"\0\0\0\x05\x01\0\0\0\x03");
    }

    #[test]
    fn attributes_come_back() {
        let all = Attrs { size: Some(1 << 40), ids: Some((1, 2)), mode: Some(0o100644), times: Some((3, 4)) };
        for attrs in [all, Attrs { ids: None, ..all }, Attrs::default()] {
            let mut w = Writer::new();
            attrs.encode(&mut w);
            assert_eq!(Attrs::decode(&mut Reader::new(w.into_bytes())), Ok(attrs));
        }
    }

    #[test]
    fn lying_counts_allocate_nothing() {
        let names = Bytes::from_static(b"\x68\0\0\0\x01\xff\xff\xff\xff");
        assert_eq!(answer(names), Err(XdrError::Truncated));
        let data = Bytes::from_static(b"\x67\0\0\0\x01\xff\xff\xff\xffabc");
        assert_eq!(answer(data), Err(XdrError::Truncated));
        let extended = Bytes::from_static(b"\x69\0\0\0\x01\x80\0\0\0\xff\xff\xff\xff");
        assert_eq!(answer(extended), Err(XdrError::Truncated));
        assert_eq!(answer(Bytes::new()), Err(XdrError::Truncated));
    }
}
