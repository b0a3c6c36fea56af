//! What is said over the link: requests and their answers, in XDR.

use crate::limits::agent::TEXT_MAX;
use crate::sparse::Sparse;
use crate::{
    Believed, Changed, Chunk, Claimed, Copied, Entered, Error, ErrorKind, Hello, HomePath, Loc, Name, OpId,
    Outcome, Page, Placed, Seen, StatFs, Term, XattrName, Xattrs,
};
use bytes::Bytes;
use oncrpc::xdr::{Reader, Writer, Xdr};

/// A codec of bodies: none.
pub const CODEC_NONE: u32 = 0;
/// A codec of bodies: [`super::codec`].
pub const CODEC_LZ4: u32 = 1;

/// A feature: extended attributes, asked for by XATTRS and LISTX and changed by [`crate::Op::SetXattr`].
pub const XATTRS: u64 = 1;
/// A feature: changes of a volume are claimed by CLAIM, which ends the effect of whatever was sent before.
pub const CLAIMS: u64 = 2;
/// A feature: [`crate::Op::SetAttr`] with a base.
pub const BASES: u64 = 4;
/// A feature: directories are listed and watched by WATCH, and [`News`] tells what changes in them.
pub const WATCHES: u64 = 8;
/// A feature: CONFIRM, with WATCH.
pub const CONFIRMS: u64 = 16;
/// A feature: APPLY is executed after every STAGE that arrived before it, so that it need not wait for their answers.
pub const ORDERED: u64 = 32;
/// A feature: further pipes may lead into the agent, which answers READ and STAGE over them.
pub const JOINS: u64 = 64;
/// A feature: COPY.
pub const COPIES: u64 = 128;
/// A feature: READC and STAGEC.
pub const CHECKS: u64 = 256;
/// A feature: READK.
pub const KNOWN: u64 = 512;
/// A feature: [`Claimed`] tells which operations left their names and attributes.
pub const PROGRESS: u64 = 1024;
/// A feature: WALK, with WATCH.
pub const WALKS: u64 = 2048;
/// A feature: [`Claimed`] tells when the machine was started.
pub const BOOTS: u64 = 4096;
/// A feature: APPLYC.
pub const SUMS: u64 = 8192;
/// A feature: [`Claimed`] tells on which file system it knows which operations left their names and attributes.
pub const PLACES: u64 = 16384;
/// A feature: KEEP, with WATCH.
pub const KEEPS: u64 = 32768;
/// A feature: SPOOL and [`crate::Payload::Spooled`].
pub const SPOOLS: u64 = 65536;
/// A feature: CLAIMT.
pub const TERMS: u64 = 131_072;
/// A feature: UNSPOOL, with SPOOL.
pub const UNSPOOLS: u64 = 262_144;
/// All features that we have.
pub const FEATURES: u64 = XATTRS
    | CLAIMS
    | BASES
    | WATCHES
    | CONFIRMS
    | ORDERED
    | JOINS
    | COPIES
    | CHECKS
    | KNOWN
    | PROGRESS
    | WALKS
    | BOOTS
    | SUMS
    | PLACES
    | KEEPS
    | SPOOLS
    | TERMS
    | UNSPOOLS;

oncrpc::xdr! {
    /// What the client asks.
    #[derive(Debug, Clone, PartialEq)]
    pub union Request {
        /// Must be the first one.
        Hello(Offer) = 1,
        /// Attributes of several objects.
        Stat(Vec<Loc>) = 2,
        /// A page of a directory.
        List(ListArgs) = 3,
        /// Bytes of a file.
        Read(ReadArgs) = 4,
        /// Where a symbolic link points.
        Readlink(Loc) = 5,
        /// Space of a file system.
        Statfs(Loc) = 6,
        /// Bytes for an operation that comes later.
        Stage(StageArgs) = 7,
        /// Operations to execute in order.
        Apply(Vec<Placed>) = 8,
        /// Extended attributes of an object; where the feature [`XATTRS`] is agreed on.
        Xattrs(XattrsArgs) = 9,
        /// A page of a directory that also tells which objects have no extended attributes; with the same feature.
        Listx(ListArgs) = 10,
        /// Take over the changes of a volume; where the feature [`CLAIMS`] is agreed on.
        Claim(ClaimArgs) = 11,
        /// The first page of a directory, which is watched from then on; where the feature [`WATCHES`] is agreed on.
        Watch(WatchArgs) = 12,
        /// As WATCH of several directories whose pages may be known; where the feature [`CONFIRMS`] is agreed on.
        Confirm(Vec<Believed>) = 13,
        /// As STAGE, with bytes of a file that is there; where the feature [`COPIES`] is agreed on.
        Copy(CopyArgs) = 14,
        /// As READ, with a check of the bytes; where the feature [`CHECKS`] is agreed on.
        Readc(ReadArgs) = 15,
        /// As STAGE, with a check of the bytes; with the same feature.
        Stagec(CheckedStage) = 16,
        /// As READ, without what is known; where the feature [`KNOWN`] is agreed on.
        Readk(KnownArgs) = 17,
        /// As WATCH of several directories and those below them; where the feature [`WALKS`] is agreed on.
        Walk(WalkArgs) = 18,
        /// As APPLY, with a check; where the feature [`SUMS`] is agreed on.
        Applyc(CheckedOps) = 19,
        /// Watches are to outlive the connection; where the feature [`KEEPS`] is agreed on.
        Keep(KeepArgs) = 20,
        /// What is staged under this name is held on disk; where the feature [`SPOOLS`] is agreed on.
        Spool(OpId) = 21,
        /// As CLAIM, in a term; where the features [`CLAIMS`] and [`TERMS`] are agreed on.
        Claimt(ClaimtArgs) = 22,
        /// What was held on disk under this name is not needed any more; where the feature [`UNSPOOLS`] is agreed on.
        Unspool(OpId) = 23,
    }

    /// What the server answers.
    #[derive(Debug, Clone, PartialEq)]
    pub union Reply {
        /// Nothing happened, and why.
        Failed(Failure) = 0,
        /// The greeting.
        Hello(Accept) = 1,
        /// In the order of the request.
        Stat(Vec<StatResult>) = 2,
        /// The page.
        List(Page) = 3,
        /// The bytes.
        Read(Chunk) = 4,
        /// The target.
        Readlink(Bytes) = 5,
        /// The space.
        Statfs(StatFs) = 6,
        /// How many bytes are held from the start without a gap.
        Stage(u64) = 7,
        /// A prefix of the request's operations.
        Apply(Vec<Outcome>) = 8,
        /// The attributes.
        Xattrs(Xattrs) = 9,
        /// The page and its bare objects.
        Listx(BarePage) = 10,
        /// What is known of operations whose outcomes were lost, if anything is.
        Claim(Option<Claimed>) = 11,
        /// The page.
        Watch(WatchedPage) = 12,
        /// In the order of the request.
        Confirm(Vec<ConfirmResult>) = 13,
        /// As for STAGE.
        Copy(u64) = 14,
        /// The bytes and their check.
        Readc(CheckedChunk) = 15,
        /// As for STAGE.
        Stagec(u64) = 16,
        /// The bytes that are not known.
        Readk(Sparse) = 17,
        /// The directories that it came to.
        Walk(WalkedPages) = 18,
        /// As for APPLY.
        Applyc(Vec<Outcome>) = 19,
        /// Whether all changes are told that followed those of the request, and those to come will be.
        Keep(bool) = 20,
        /// How many bytes are held from the start without a gap.
        Spool(u64) = 21,
        /// As for CLAIM, and whether the word of the term is kept.
        Claimt(Entered) = 22,
        /// Whether there was anything.
        Unspool(bool) = 23,
    }

    /// What the server says without having been asked.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub union News {
        /// Changes were missed: whatever is watched may have changed, and is watched no more.
        Lost = 0,
        /// Changes in watched directories: at most [`CHANGES_MAX`](crate::limits::agent::CHANGES_MAX), each with at most
        /// [`WATCH_NAMES`](crate::limits::agent::WATCH_NAMES) names.
        Changed(Vec<Changed>) = 1,
    }

    /// One object of a STAT.
    #[derive(Debug, Clone, PartialEq)]
    pub union StatResult {
        /// Its attributes.
        Seen(Seen) = 0,
        /// Why there are none.
        Failed(Failure) = 1,
    }

    /// One directory of a CONFIRM.
    #[derive(Debug, Clone, PartialEq)]
    pub union ConfirmResult {
        /// Its page is not the one that was believed to be, and too long for this answer, or not the whole directory.
        Unlike = 0,
        /// It is.
        Same(Confirmed) = 1,
        /// It is not; this one is the whole directory.
        Page(WatchedPage) = 2,
        /// Why there is none.
        Failed(Failure) = 3,
    }

    /// A page that is known.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Confirmed {
        /// As in the page: [`Page::applied`].
        pub applied: u64,
        /// Whether the directory is watched since before the page was taken.
        pub watched: bool,
        /// As [`BarePage::bare`].
        pub bare: Bytes,
    }

    /// Arguments of CLAIM: see [`crate::Home::claim`].
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ClaimArgs {
        /// The state directory of the gateway, as in [`OpId`].
        pub gateway: u64,
        /// The volume in it.
        pub volume: u32,
        /// Operations whose outcomes are not known, ascending.
        pub lost: Vec<u64>,
    }

    /// Arguments of CLAIMT: see [`crate::Home::claim_in`].
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ClaimtArgs {
        /// As for CLAIM.
        pub claim: ClaimArgs,
        /// What shows that the state directory is not behind the home.
        pub term: Term,
    }

    /// Arguments of KEEP.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct KeepArgs {
        /// The name of the watches, which nobody else can guess.
        pub name: [u8; 16],
        /// How many changes the client has heard under this name; an overflow counts as one.
        pub heard: u64,
    }

    /// What the client can do.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Offer {
        /// Codecs of bodies, the best first.
        pub codecs: Vec<u32>,
        /// One bit for each feature: [`FEATURES`].
        pub features: u64,
    }

    /// What the server chose, and who it is.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Accept {
        /// One of the offered codecs.
        pub codec: u32,
        /// The features that both have.
        pub features: u64,
        /// Requests that may be unanswered at a time.
        pub window: u32,
        /// BLAKE3 of the running program; zero where it cannot be read.
        pub program: [u8; 32],
        /// Process id of the server.
        pub pid: u32,
        /// Operating system and processor, as `linux-x86_64`.
        pub platform: Bytes,
        /// The home.
        pub home: Hello,
    }

    /// Arguments of LIST.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ListArgs {
        /// The directory.
        pub dir: Loc,
        /// The page follows this name.
        pub after: Option<Name>,
        /// Most entries.
        pub max: u32,
    }

    /// Arguments of WATCH.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct WatchArgs {
        /// The directory.
        pub dir: Loc,
        /// Most entries.
        pub max: u32,
        /// Under which number its changes are told.
        pub mark: u64,
    }

    /// Arguments of WALK: see [`crate::Home::walk`].
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct WalkArgs {
        /// Where to begin; at most [`WALK_FROM`](crate::limits::agent::WALK_FROM).
        pub from: Vec<Loc>,
        /// Most bytes of pages; at most [`WALK_BYTES`](crate::limits::agent::WALK_BYTES).
        pub bytes: u32,
    }

    /// The answer of WALK: see [`crate::Walked`].
    #[derive(Debug, Clone, PartialEq)]
    pub struct WalkedPages {
        /// How many of those that it began with it came to.
        pub came: u32,
        /// Whole directories.
        pub pages: Vec<WalkedPage>,
    }

    /// A directory that a walk came to.
    #[derive(Debug, Clone, PartialEq)]
    pub struct WalkedPage {
        /// Where it lies.
        pub path: HomePath,
        /// All of it.
        pub page: WatchedPage,
    }

    /// A page, and whether its directory is watched.
    #[derive(Debug, Clone, PartialEq)]
    pub struct WatchedPage {
        /// The page.
        pub page: BarePage,
        /// Since before the page was taken.
        pub watched: bool,
    }

    /// A page, and what of it has no extended attributes.
    #[derive(Debug, Clone, PartialEq)]
    pub struct BarePage {
        /// The page.
        pub page: Page,
        /// One bit for each entry, the first one the lowest of the first byte: [`crate::Entry::bare`].
        pub bare: Bytes,
    }

    /// Arguments of XATTRS.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct XattrsArgs {
        /// The object.
        pub at: Loc,
        /// The attribute whose value is wanted, however long.
        pub want: Option<XattrName>,
    }

    /// Arguments of READ.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ReadArgs {
        /// The file.
        pub file: Loc,
        /// Offset in bytes.
        pub at: u64,
        /// Most bytes.
        pub len: u32,
    }

    /// Arguments of READK: see [`crate::Home::read_known`].
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct KnownArgs {
        /// What to read.
        pub read: ReadArgs,
        /// Names of chunks; at most [`KNOWN_MAX`](crate::limits::agent::KNOWN_MAX).
        pub known: Vec<u64>,
    }

    /// Arguments of STAGE.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct StageArgs {
        /// For which operation.
        pub op: OpId,
        /// Position in its staged data.
        pub at: u64,
        /// The bytes.
        pub data: Bytes,
    }

    /// The answer of READC.
    #[derive(Debug, Clone, PartialEq)]
    pub struct CheckedChunk {
        /// The bytes.
        pub chunk: Chunk,
        /// [`check`] of them.
        pub check: [u8; 16],
    }

    /// Arguments of STAGEC.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct CheckedStage {
        /// The bytes.
        pub stage: StageArgs,
        /// [`check`] of them.
        pub check: [u8; 16],
    }

    /// Arguments of COPY: see [`crate::Home::copy`].
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct CopyArgs {
        /// For which operation.
        pub op: OpId,
        /// Where the file may be; at most [`COPY_PLACES`](crate::limits::agent::COPY_PLACES).
        pub places: Vec<Loc>,
        /// At most [`COPY_PARTS`](crate::limits::agent::COPY_PARTS), and
        /// [`COPY_BYTES`](crate::limits::agent::COPY_BYTES) together.
        pub parts: Vec<Copied>,
    }
}

/// What tells whether bytes are those that were sent: the first 16 bytes of the BLAKE3 of all parts together.
pub fn check<T: AsRef<[u8]>>(parts: &[T]) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(part.as_ref());
    }
    let mut check = [0; 16];
    check.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    check
}

/// Arguments of APPLYC: a [`check`] of all bytes behind it, then those of APPLY. `None` once they have arrived as other ones
/// than were sent.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckedOps(pub Option<Vec<Placed>>);

impl Xdr for CheckedOps {
    /// Long payloads are not copied.
    fn encode(&self, w: &mut Writer) {
        let mut ops = Writer::new();
        if let Some(all) = &self.0 {
            all.encode(&mut ops);
        }
        let parts = ops.into_segments();
        w.raw(&check(&parts));
        parts.into_iter().for_each(|part| w.segment(part));
    }

    /// Nothing is decoded of what was not sent, so that damage is told from what is not understood.
    fn decode(r: &mut Reader) -> oncrpc::xdr::Result<Self> {
        let sent = r.array()?;
        let ops = r.take(r.remaining())?;
        let is_sent = check(&[&ops]) == sent;
        let ops = is_sent.then(|| Vec::from_bytes(ops));
        Ok(CheckedOps(ops.transpose()?))
    }
}

impl CheckedChunk {
    /// Bytes as they go over the wire.
    pub fn of(chunk: Chunk) -> CheckedChunk {
        let check = check(&[&chunk.data]);
        CheckedChunk { chunk, check }
    }

    /// The bytes, if they are those that were sent.
    pub fn checked(self) -> Option<Chunk> {
        (check(&[&self.chunk.data]) == self.check).then_some(self.chunk)
    }
}

impl CheckedStage {
    /// Bytes as they go over the wire.
    pub fn of(stage: StageArgs) -> CheckedStage {
        let check = check(&[&stage.data]);
        CheckedStage { stage, check }
    }

    /// The bytes, if they are those that were sent.
    pub fn checked(self) -> Option<StageArgs> {
        (check(&[&self.stage.data]) == self.check).then_some(self.stage)
    }
}

impl BarePage {
    /// A page as it goes over the wire.
    pub fn of(page: Page) -> BarePage {
        let bare = page.bare_bits();
        BarePage { page, bare }
    }

    /// The page with what is told beside it.
    pub fn joined(mut self) -> Page {
        self.page.set_bare(&self.bare);
        self.page
    }
}

/// An error on the wire: a number of [`ErrorKind`] and a text of at most [`TEXT_MAX`] bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure(pub Error);

impl Xdr for Failure {
    fn encode(&self, w: &mut Writer) {
        self.0.kind.encode(w);
        let text = &self.0.detail;
        let end = (0..=text.len().min(TEXT_MAX)).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
        w.opaque(&text.as_bytes()[..end]);
    }

    /// The text comes from another machine and is shown to a person: control characters are escaped here.
    fn decode(r: &mut Reader) -> oncrpc::xdr::Result<Self> {
        let kind = ErrorKind::decode(r)?;
        let text = r.opaque(TEXT_MAX)?;
        Ok(Failure(Error::new(kind, printable(&text))))
    }
}

/// Foreign text with everything escaped that could move a terminal.
pub fn printable(text: &[u8]) -> String {
    let escape = |c: char| match c {
        c if c.is_control() => c.escape_default().collect::<String>(),
        c => c.to_string(),
    };
    String::from_utf8_lossy(text).chars().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attr, HomeId, HomePath, Op, Payload, SetAttr, SetTime, Time, Version, XattrHow};

    fn loc(path: &[u8]) -> Loc {
        Loc { path: HomePath::parse(path).unwrap(), id: None }
    }

    #[test]
    fn requests_have_their_golden_bytes() {
        let stat = Request::Stat(vec![loc(b"a/b")]);
        let bytes = stat.to_bytes();
        assert_eq!(&bytes[..], b"\0\0\0\x02\0\0\0\x01\0\0\0\x03a/b\0\0\0\0\0");
        assert_eq!(Request::from_bytes(bytes).unwrap(), stat);

        let id = HomeId { fs: 1, ino: 2, generation: 3 };
        let read = Request::Read(ReadArgs { file: Loc { id: Some(id), ..loc(b"f") }, at: 4, len: 5 });
        let golden = b"\0\0\0\x04\0\0\0\x01f\0\0\0\0\0\0\x01\
            \0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x04\0\0\0\x05";
        assert_eq!(&read.to_bytes()[..], golden);

        let hello = Request::Hello(Offer { codecs: vec![CODEC_NONE], features: 0 });
        assert_eq!(&hello.to_bytes()[..], b"\0\0\0\x01\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0");
    }

    #[test]
    fn attributes_have_their_golden_bytes() {
        let name = XattrName::new(b"user.ab").unwrap();
        let asked = Request::Xattrs(XattrsArgs { at: loc(b"f"), want: Some(name.clone()) });
        let golden = b"\0\0\0\x09\0\0\0\x01f\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\x07user.ab\0";
        assert_eq!(&asked.to_bytes()[..], golden);
        let value = Some(Bytes::from_static(b"v"));
        let op: Op<Loc, Payload> = Op::SetXattr { object: loc(b"f"), name, value, how: XattrHow::Create };
        let golden =
            b"\0\0\0\x07\0\0\0\x01f\0\0\0\0\0\0\0\0\0\0\x07user.ab\0\0\0\0\x01\0\0\0\x01v\0\0\0\0\0\0\x01";
        assert_eq!(&op.to_bytes()[..], golden);
        assert_eq!(Op::from_bytes(op.to_bytes()).unwrap(), op);
    }

    #[test]
    fn times_of_a_known_content_have_their_golden_bytes() {
        let id = HomeId { fs: 1, ino: 2, generation: 3 };
        let (mtime, ctime) = (Time { sec: 5, nsec: 6 }, Time { sec: 7, nsec: 8 });
        let set = SetAttr { mtime: Some(SetTime::At(Time { sec: 9, nsec: 10 })), ..SetAttr::default() };
        let base = Some(Version { id, size: 4, mtime, ctime });
        let op: Op<Loc, Payload> = Op::SetAttr { object: loc(b"f"), base, set };
        let golden = b"\0\0\0\x08\0\0\0\x01f\0\0\0\0\0\0\0\
            \0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x04\
            \0\0\0\0\0\0\0\x05\0\0\0\x06\0\0\0\0\0\0\0\x07\0\0\0\x08\
            \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\x01\
            \0\0\0\0\0\0\0\x09\0\0\0\x0a";
        assert_eq!(&op.to_bytes()[..], golden);
        assert_eq!(Op::from_bytes(op.to_bytes()).unwrap(), op);
    }

    #[test]
    fn replies_have_their_golden_bytes() {
        let failed = Reply::Failed(Failure(Error::new(ErrorKind::Stale, "gone")));
        assert_eq!(&failed.to_bytes()[..], b"\0\0\0\0\0\0\0\x08\0\0\0\x04gone");
        let stage = Reply::Stage(258);
        assert_eq!(&stage.to_bytes()[..], b"\0\0\0\x07\0\0\0\0\0\0\x01\x02");
        let apply = Reply::Apply(vec![Outcome::Conflict(None::<Attr>), Outcome::Refused(ErrorKind::NoSpace)]);
        assert_eq!(&apply.to_bytes()[..], b"\0\0\0\x08\0\0\0\x02\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\x0b");
    }

    #[test]
    fn checked_bytes_have_their_golden_bytes() {
        let attr = super::super::server::tests::attr(3);
        let chunk = Chunk { attr, data: Bytes::from_static(b"abc") };
        let checked = CheckedChunk::of(chunk.clone());
        let answer = Reply::Readc(checked.clone()).to_bytes();
        assert_eq!(answer, [&b"\0\0\0\x0f"[..], &chunk.to_bytes(), GOLDEN_CHECK].concat());
        assert_eq!(checked.checked(), Some(chunk.clone()));
        assert_eq!(CheckedChunk { check: [0; 16], chunk }.checked(), None);
        let asked = Request::Readc(ReadArgs { file: loc(b"f"), at: 4, len: 5 });
        let golden = b"\0\0\0\x0f\0\0\0\x01f\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x04\0\0\0\x05";
        assert_eq!(&asked.to_bytes()[..], golden);
        let op = OpId { gateway: 1, volume: 2, seq: 3 };
        let stage = StageArgs { op, at: 4, data: Bytes::from_static(b"abc") };
        let asked = Request::Stagec(CheckedStage::of(stage.clone()));
        assert_eq!(asked.to_bytes(), [&b"\0\0\0\x10"[..], &stage.to_bytes(), GOLDEN_CHECK].concat());
        assert_eq!(&Reply::Stagec(258).to_bytes()[..], b"\0\0\0\x10\0\0\0\0\0\0\x01\x02");
        assert_eq!(CheckedStage::of(stage.clone()).checked(), Some(stage.clone()));
        assert_eq!(CheckedStage { check: [0; 16], stage }.checked(), None);
    }

    fn a_write(data: Bytes) -> Vec<Placed> {
        let file = Loc { path: HomePath::parse(b"f").unwrap(), id: None };
        let pieces = vec![crate::Piece::Data(0, Payload::Inline(data))];
        let id = OpId { gateway: 1, volume: 2, seq: 3 };
        let op = Op::Write { file, base: None, pieces };
        vec![Placed { id, time: Time::default(), plain: false, resent: false, op }]
    }

    #[test]
    fn operations_of_which_one_bit_is_another_are_none() {
        let ops = a_write(Bytes::from_static(b"abc"));
        let asked = Request::Applyc(CheckedOps(Some(ops.clone())));
        let (sent, plain) = (asked.to_bytes(), ops.to_bytes());
        assert_eq!(sent, [&b"\0\0\0\x13"[..], &blake3::hash(&plain).as_bytes()[..16], &plain].concat());
        assert_eq!(Request::from_bytes(sent.clone()).unwrap(), asked);
        for bit in 8 * 4..8 * sent.len() {
            let mut damaged = sent.to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Request::from_bytes(damaged.into()), Ok(Request::Applyc(CheckedOps(None))), "{bit}");
        }
        let cut = sent.slice(..sent.len() - 4);
        assert_eq!(Request::from_bytes(cut), Ok(Request::Applyc(CheckedOps(None))));
    }

    #[test]
    fn a_check_copies_no_payload() {
        let data = Bytes::from(vec![7; 64 << 10]);
        let mut w = Writer::new();
        Request::Applyc(CheckedOps(Some(a_write(data.clone())))).encode(&mut w);
        let parts = w.into_segments();
        assert!(parts.iter().any(|part| part.as_ptr() == data.as_ptr() && part.len() == data.len()));
    }

    /// The first half of the BLAKE3 of "abc".
    const GOLDEN_CHECK: &[u8] = b"\x64\x37\xb3\xac\x38\x46\x51\x33\xff\xb6\x3b\x75\x27\x3a\x8d\xb5";

    #[test]
    fn copies_have_their_golden_bytes() {
        let part = Copied { at: 258, from: 3, len: 4, hash: [0xab; 32] };
        let op = OpId { gateway: 1, volume: 2, seq: 3 };
        let asked = Request::Copy(CopyArgs { op, places: vec![loc(b"f")], parts: vec![part] });
        let golden = b"\0\0\0\x0e\0\0\0\0\0\0\0\x01\0\0\0\x02\0\0\0\0\0\0\0\x03\
            \0\0\0\x01\0\0\0\x01f\0\0\0\0\0\0\0\
            \0\0\0\x01\0\0\0\0\0\0\x01\x02\0\0\0\0\0\0\0\x03\0\0\0\x04";
        assert_eq!(asked.to_bytes(), [&golden[..], &[0xab; 32]].concat());
        assert_eq!(Request::from_bytes(asked.to_bytes()).unwrap(), asked);
        assert_eq!(&Reply::Copy(258).to_bytes()[..], b"\0\0\0\x0e\0\0\0\0\0\0\x01\x02");
    }

    #[test]
    fn watches_have_their_golden_bytes() {
        let asked = Request::Watch(WatchArgs { dir: loc(b"d"), max: 5, mark: 258 });
        let golden = b"\0\0\0\x0c\0\0\0\x01d\0\0\0\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\x01\x02";
        assert_eq!(&asked.to_bytes()[..], golden);
        let changed =
            Changed { mark: 258.into(), all: false, itself: true, names: vec![Name::new(b"ab").unwrap()] };
        let news = News::Changed(vec![changed]);
        let golden = b"\0\0\0\x01\0\0\0\x01\0\0\0\0\0\0\x01\x02\0\0\0\0\0\0\0\x01\0\0\0\x01\0\0\0\x02ab\0\0";
        assert_eq!(&news.to_bytes()[..], golden);
        assert_eq!(News::from_bytes(news.to_bytes()).unwrap(), news);
        assert_eq!(&News::Lost.to_bytes()[..], b"\0\0\0\0");
        let dir = Attr { kind: crate::Kind::Dir, ..super::super::server::tests::attr(2) };
        let page = BarePage::of(Page { applied: 0, dir, entries: vec![], more: false });
        let watched = Reply::Watch(WatchedPage { page: page.clone(), watched: true });
        let golden = [&b"\0\0\0\x0c"[..], &page.to_bytes(), b"\0\0\0\x01"].concat();
        assert_eq!(watched.to_bytes(), golden);
    }

    #[test]
    fn confirmations_have_their_golden_bytes() {
        let asked =
            Request::Confirm(vec![Believed { dir: loc(b"d"), mark: 258, digest: *b"0123456789abcdef" }]);
        let golden = b"\0\0\0\x0d\0\0\0\x01\0\0\0\x01d\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x020123456789abcdef";
        assert_eq!(&asked.to_bytes()[..], golden);
        assert_eq!(Request::from_bytes(asked.to_bytes()).unwrap(), asked);
        let same = Confirmed { applied: 3, watched: true, bare: Bytes::from_static(b"\x05") };
        let failed = ConfirmResult::Failed(Failure(Error::new(ErrorKind::Stale, "gone")));
        let answer = Reply::Confirm(vec![ConfirmResult::Unlike, ConfirmResult::Same(same), failed]);
        let golden =
            b"\0\0\0\x0d\0\0\0\x03\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x03\0\0\0\x01\0\0\0\x01\x05\0\0\0\
            \0\0\0\x03\0\0\0\x08\0\0\0\x04gone";
        assert_eq!(&answer.to_bytes()[..], golden);
        let dir = Attr { kind: crate::Kind::Dir, ..super::super::server::tests::attr(2) };
        let page = BarePage::of(Page { applied: 0, dir, entries: vec![], more: false });
        let other = ConfirmResult::Page(WatchedPage { page: page.clone(), watched: true });
        assert_eq!(other.to_bytes(), [&b"\0\0\0\x02"[..], &page.to_bytes(), b"\0\0\0\x01"].concat());
    }

    #[test]
    fn a_digest_stands_for_all_of_a_page_but_times_of_reading() {
        let attr = super::super::server::tests::attr(3);
        let entry = |attr| crate::Entry {
            name: Name::new(b"f").unwrap(),
            attr: Some(attr),
            target: None,
            bare: false,
        };
        let page = |attr, more| Page { applied: 7, dir: attr, entries: vec![entry(attr)], more };
        let digest = page(attr, false).digest().unwrap();
        assert_eq!(
            blake3::Hash::from_bytes([digest, digest].concat().try_into().unwrap()).to_hex()[..32].to_owned(),
            GOLDEN_DIGEST
        );
        let read = Attr { atime: Time { sec: 99, nsec: 9 }, ..attr };
        assert_eq!(Page { applied: 8, ..page(read, false) }.digest(), Some(digest));
        let changed = Attr { ctime: Time { sec: 99, nsec: 9 }, ..attr };
        assert_ne!(page(changed, false).digest(), Some(digest));
        assert_eq!(page(attr, true).digest(), None, "it is not all of the directory");
    }

    /// The digest of the page in the test above.
    const GOLDEN_DIGEST: &str = "21b076357e5ccf46f995f2c230087edd";

    #[test]
    fn foreign_text_cannot_move_a_terminal() {
        let mut w = Writer::new();
        ErrorKind::Io.encode(&mut w);
        w.opaque(b"a\x1b[2Jb\r\xff");
        let Failure(error) = Failure::from_bytes(w.into_bytes()).unwrap();
        assert_eq!(error.detail, "a\\u{1b}[2Jb\\r\u{fffd}");
    }

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        let long = Failure(Error::new(ErrorKind::Io, "ä".repeat(TEXT_MAX)));
        let Failure(error) = Failure::from_bytes(long.to_bytes()).unwrap();
        assert_eq!(error.detail, "ä".repeat(TEXT_MAX / 2));
    }
}
