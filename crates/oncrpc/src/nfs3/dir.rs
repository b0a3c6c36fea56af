//! READDIR and READDIRPLUS (RFC 1813 sections 3.3.16 and 3.3.17).
//!
//! A server writes entries straight into the reply with a [`DirWriter`], which knows the client's byte
//! budget. The list types are what a client decodes, and what a small server may encode at once.

use super::{CookieVerf3, NfsFh3, NfsStat3, PostOpAttr, Res, post_op_attr_len};
use crate::xdr::{Reader, Result, Writer, Xdr, padding};
use bytes::Bytes;

/// `READDIR3res`; the directory's attributes on failure.
pub type ReaddirRes = Res<ReaddirOk, PostOpAttr>;
/// `READDIRPLUS3res`; the directory's attributes on failure.
pub type ReaddirplusRes = Res<ReaddirplusOk, PostOpAttr>;

crate::xdr! {
    /// `READDIR3args`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ReaddirArgs {
        /// The directory.
        pub dir: NfsFh3,
        /// The last entry that the client has; 0 for none.
        pub cookie: u64,
        /// The verifier that came with the cookie.
        pub cookieverf: CookieVerf3,
        /// The longest `READDIR3resok` in bytes.
        pub count: u32,
    }

    /// `READDIRPLUS3args`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ReaddirplusArgs {
        /// The directory.
        pub dir: NfsFh3,
        /// The last entry that the client has; 0 for none.
        pub cookie: u64,
        /// The verifier that came with the cookie.
        pub cookieverf: CookieVerf3,
        /// A hint: the most bytes of fileids, names and cookies.
        pub dircount: u32,
        /// The longest `READDIRPLUS3resok` in bytes.
        pub maxcount: u32,
    }

    /// `READDIR3resok`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ReaddirOk {
        /// Attributes of the directory.
        pub dir_attributes: PostOpAttr,
        /// Goes with the cookies.
        pub cookieverf: CookieVerf3,
        /// Entries.
        pub entries: Chain<Entry3>,
        /// Whether the last entry of the directory is among them.
        pub eof: bool,
    }

    /// `READDIRPLUS3resok`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ReaddirplusOk {
        /// Attributes of the directory.
        pub dir_attributes: PostOpAttr,
        /// Goes with the cookies.
        pub cookieverf: CookieVerf3,
        /// Entries.
        pub entries: Chain<EntryPlus3>,
        /// Whether the last entry of the directory is among them.
        pub eof: bool,
    }

    /// `entry3`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Entry3 {
        /// The object in its file system.
        pub fileid: u64,
        /// The name.
        pub name: Bytes,
        /// Where to go on after this entry.
        pub cookie: u64,
    }

    /// `entryplus3`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct EntryPlus3 {
        /// The object in its file system.
        pub fileid: u64,
        /// The name.
        pub name: Bytes,
        /// Where to go on after this entry.
        pub cookie: u64,
        /// Attributes, if the server has them at hand.
        pub name_attributes: PostOpAttr,
        /// The handle, if the server has it at hand.
        pub name_handle: Option<NfsFh3>,
    }
}

/// A linked list of XDR: each item is announced by `true`, the end by `false`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain<T>(pub Vec<T>);

impl<T: Xdr> Xdr for Chain<T> {
    fn encode(&self, w: &mut Writer) {
        for item in &self.0 {
            w.u32(1);
            item.encode(w);
        }
        w.u32(0);
    }

    fn decode(r: &mut Reader) -> Result<Self> {
        let mut items = Vec::new();
        while bool::decode(r)? {
            items.push(T::decode(r)?);
        }
        Ok(Self(items))
    }
}

/// One entry on its way into a reply.
#[derive(Debug, Clone, Copy)]
pub struct DirEntry<'a> {
    /// The object in its file system.
    pub fileid: u64,
    /// The name.
    pub name: &'a [u8],
    /// Where to go on after this entry.
    pub cookie: u64,
}

/// Attributes and handle of an entry of READDIRPLUS.
#[derive(Debug, Clone, Copy, Default)]
pub struct EntryPlus<'a> {
    /// Attributes, if at hand.
    pub attributes: Option<&'a super::Fattr3>,
    /// The handle, if at hand.
    pub handle: Option<&'a NfsFh3>,
}

/// The reply did not begin or an entry was not written, because the budget is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the reply has no room for the entry")]
pub struct Full;

/// Writes a successful reply of READDIR or READDIRPLUS entry by entry, from the status word on.
///
/// If the very first entry is [`Full`], the reply is to be thrown away and
/// [`NfsStat3::TooSmall`] answered.
///
/// ```
/// use oncrpc::nfs3::{DirEntry, DirWriter};
/// let mut w = oncrpc::xdr::Writer::new();
/// let mut dir = DirWriter::readdir(&mut w, &None, [0; 8], 4096).unwrap();
/// let mut eof = true;
/// for (cookie, name) in [(1, &b"."[..]), (2, b"..")] {
///     if dir.entry(&DirEntry { fileid: 7, name, cookie }).is_err() {
///         eof = false;
///         break;
///     }
/// }
/// dir.finish(eof);
/// ```
#[derive(Debug)]
pub struct DirWriter<'w> {
    w: &'w mut Writer,
    plus: bool,
    entries: usize,
    left: usize,
    names_left: usize,
}

impl<'w> DirWriter<'w> {
    /// Begins a READDIR reply whose `READDIR3resok` has at most `count` bytes.
    pub fn readdir(
        w: &'w mut Writer,
        dir_attributes: &PostOpAttr,
        cookieverf: CookieVerf3,
        count: u32,
    ) -> std::result::Result<Self, Full> {
        Self::begin(w, dir_attributes, cookieverf, count as usize, usize::MAX, false)
    }

    /// Begins a READDIRPLUS reply whose `READDIRPLUS3resok` has at most `maxcount` bytes. `dircount` is
    /// only a hint and never keeps the first entry out.
    pub fn readdirplus(
        w: &'w mut Writer,
        dir_attributes: &PostOpAttr,
        cookieverf: CookieVerf3,
        dircount: u32,
        maxcount: u32,
    ) -> std::result::Result<Self, Full> {
        Self::begin(w, dir_attributes, cookieverf, maxcount as usize, dircount as usize, true)
    }

    fn begin(
        w: &'w mut Writer,
        dir_attributes: &PostOpAttr,
        cookieverf: CookieVerf3,
        max: usize,
        names_left: usize,
        plus: bool,
    ) -> std::result::Result<Self, Full> {
        // The end of the list and eof take 8 bytes in every reply.
        let fixed = post_op_attr_len(dir_attributes) + cookieverf.len() + 8;
        let left = max.checked_sub(fixed).ok_or(Full)?;
        NfsStat3::Ok.encode(w);
        dir_attributes.encode(w);
        w.raw(&cookieverf);
        Ok(Self { w, plus, entries: 0, left, names_left })
    }

    /// Appends an entry; in a READDIRPLUS reply it has neither attributes nor a handle.
    pub fn entry(&mut self, entry: &DirEntry<'_>) -> std::result::Result<(), Full> {
        self.entry_plus(entry, &EntryPlus::default())
    }

    /// Appends an entry; `plus` is left out of a READDIR reply.
    pub fn entry_plus(
        &mut self,
        entry: &DirEntry<'_>,
        plus: &EntryPlus<'_>,
    ) -> std::result::Result<(), Full> {
        let names = 24 + entry.name.len() + padding(entry.name.len());
        let whole = if self.plus { names + plus.wire_len() } else { names };
        if whole > self.left || (names > self.names_left && self.entries > 0) {
            return Err(Full);
        }
        self.left -= whole;
        self.names_left = self.names_left.saturating_sub(names);
        self.entries += 1;
        self.w.u32(1);
        self.w.u64(entry.fileid);
        self.w.opaque(entry.name);
        self.w.u64(entry.cookie);
        if self.plus {
            plus.encode(self.w);
        }
        Ok(())
    }

    /// How many entries were written.
    pub fn entries(&self) -> usize {
        self.entries
    }

    /// Ends the reply; `eof` if the directory has no entry after the last one written.
    pub fn finish(self, eof: bool) {
        self.w.u32(0);
        eof.encode(self.w);
    }
}

impl EntryPlus<'_> {
    fn wire_len(&self) -> usize {
        let attributes = self.attributes.map_or(0, |_| super::Fattr3::WIRE_LEN);
        8 + attributes + self.handle.map_or(0, NfsFh3::wire_len)
    }

    fn encode(&self, w: &mut Writer) {
        w.u32(u32::from(self.attributes.is_some()));
        if let Some(attributes) = self.attributes {
            attributes.encode(w);
        }
        w.u32(u32::from(self.handle.is_some()));
        if let Some(handle) = self.handle {
            handle.encode(w);
        }
    }
}
