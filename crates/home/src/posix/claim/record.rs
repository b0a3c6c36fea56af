//! What a log says, and how: records with a length and a checksum, one behind the other. The first one that is not whole
//! ends the log.

use crate::attr::{HomeId, Version};
use crate::error::ErrorKind;
use crate::{Done, HomePath, Name, Outcome};
use bytes::Bytes;
use oncrpc::xdr::{Writer, Xdr};
use std::collections::BTreeMap;

oncrpc::xdr! {
    /// A record of a log.
    #[derive(Debug, Clone, PartialEq)]
    pub union Record {
        /// An agent took over, on the machine and in the boot that this tells.
        Taken(Bytes) = 1,
        /// An operation begins.
        Begun(u64) = 2,
        /// The operation that has begun is about to change.
        Intent(Intent) = 3,
        /// What became of it.
        Ended(Ended) = 4,
        /// All before this is durable, and nothing is left of any staging directory.
        Durable = 5,
        /// A staging directory is about to be made.
        Staged(Stage) = 6,
        /// Operations that may have been executed before the log begins.
        Unknown(Vec<Unknown>) = 7,
        /// What the operation that has begun left of a file while nobody else could write to it: of a part that will not be
        /// done, or of a copy that is about to take a name.
        Left(Version) = 8,
        /// What the log tells instead of all before it: records as they stand in a file.
        Anew(Bytes) = 9,
        /// What the operation that has begun is about to change in place.
        Image(Image) = 10,
    }

    /// What is known of a file before its content is changed in place.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Image {
        /// The operation that will change it.
        pub seq: u64,
        /// The file.
        pub file: HomeId,
        /// Where it is cut, or its length: from there on it may have zeros.
        pub cut: u64,
        /// What it has: all, or what will be overwritten.
        pub old: Vec<Run>,
        /// What it will have, but for what comes behind its end.
        pub new: Vec<Run>,
    }

    /// Bytes of a file.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Run {
        /// Their offset.
        pub at: u64,
        /// The bytes.
        pub data: Bytes,
    }

    /// An operation that may have been executed before the log begins.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Unknown {
        /// Its number.
        pub seq: u64,
        /// The file that it was about to write in place.
        pub in_place: Option<HomeId>,
    }

    /// What an operation is about to do that cannot be told afterwards from what others do.
    #[derive(Debug, Clone, PartialEq)]
    pub union Intent {
        /// A file takes a name, and what had it is taken out.
        Swap(Swap) = 1,
        /// What has a name is taken out.
        TakeOut(TakeOut) = 2,
        /// This file is written in place.
        InPlace(HomeId) = 3,
    }

    /// A file takes a name.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Swap {
        /// The file.
        pub new: HomeId,
        /// What becomes of that which has the name.
        pub old: TakeOut,
    }

    /// Something is moved from its name into a staging directory, to be removed there if it is what it should be.
    #[derive(Debug, Clone, PartialEq)]
    pub struct TakeOut {
        /// What may be removed.
        pub version: Version,
        /// The directory of its name.
        pub dir: HomePath,
        /// Its name.
        pub name: Name,
        /// Where it goes.
        pub stage: Stage,
        /// Its name there.
        pub aside: Bytes,
        /// Whether it must have no further names.
        pub sole: bool,
    }

    /// A staging directory.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Stage {
        /// The directory that it lies in; `None`: the account's own cache directory.
        pub below: Option<HomePath>,
        /// Its name.
        pub name: Bytes,
    }

    /// An operation with its outcome.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Ended {
        /// Its number.
        pub seq: u64,
        /// What became of it.
        pub outcome: Outcome,
        /// It determined the content of the file that the outcome shows.
        pub wrote: bool,
        /// It made the file.
        pub made: bool,
        /// The file that the one of the outcome took the place of, as the same object in our book.
        pub succeeds: Option<HomeId>,
    }
}

impl Image {
    /// What is known of the file after its operation was begun once more: a power cut may leave it as it was before either time.
    pub fn join(&mut self, again: Image) {
        if again.file != self.file {
            *self = again;
            return;
        }
        self.cut = self.cut.min(again.cut);
        for (runs, more) in [(&mut self.old, again.old), (&mut self.new, again.new)] {
            let new: Vec<Run> = more.into_iter().filter(|run| !runs.contains(run)).collect();
            runs.extend(new);
        }
    }
}

impl Ended {
    /// Whether it determined what this file has in it.
    pub fn has_written(&self, file: &HomeId) -> bool {
        match &self.outcome {
            Outcome::Done(Done { attr: Some(attr), .. }) if self.wrote => {
                *file == attr.id || Some(*file) == self.succeeds
            }
            _ => false,
        }
    }

    /// Whether it will be tried again as it is: a refusal for what is there gives it another form.
    pub fn is_for_now(&self) -> bool {
        use ErrorKind as E;
        let Outcome::Refused(kind) = self.outcome else { return false };
        !matches!(kind, E::NotFound | E::Stale | E::Exists | E::NotDir | E::IsDir | E::NotEmpty)
    }

    /// Whether it had in it what the operation `seq` was to write to this file.
    pub fn covers(&self, seq: u64, file: &HomeId) -> bool {
        seq <= self.seq && self.has_written(file)
    }
}

/// Bytes before each record: its length and its checksum.
pub const HEAD: usize = 8;

/// A record as it stands in the file.
pub fn encode(record: &Record) -> Vec<u8> {
    let mut w = Writer::new();
    record.encode(&mut w);
    let body = w.into_bytes();
    let mut out = Vec::with_capacity(HEAD + body.len());
    out.extend_from_slice(&(body.len() as u32).to_be_bytes());
    out.extend_from_slice(&checksum(&body));
    out.extend_from_slice(&body);
    out
}

/// The records of a file, and how many of its bytes they are.
pub fn decode(mut file: Bytes) -> (Vec<Record>, u64) {
    let (mut records, mut whole) = (Vec::new(), 0);
    while let Some((record, length)) = next(&mut file) {
        whole += length;
        match record {
            Record::Anew(mut all) => records = std::iter::from_fn(|| Some(next(&mut all)?.0)).collect(),
            record => records.push(record),
        }
    }
    (records, whole)
}

/// Takes the next record, with its length, from what begins with a whole one.
fn next(file: &mut Bytes) -> Option<(Record, u64)> {
    let mut rest = file.clone();
    if rest.len() < HEAD {
        return None;
    }
    let head = rest.split_to(HEAD);
    let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
    if length > rest.len() {
        return None;
    }
    let body = rest.split_to(length);
    if checksum(&body)[..] != head[4..] {
        return None;
    }
    let record = Record::from_bytes(body).ok()?;
    *file = rest;
    Some((record, (HEAD + length) as u64))
}

fn checksum(body: &[u8]) -> [u8; 4] {
    let hash = blake3::hash(body);
    let [a, b, c, d, ..] = *hash.as_bytes();
    [a, b, c, d]
}

/// The files that operations were about to write in place that had not become durable when the log ended. What becomes
/// durable is what was ended: an operation at which an agent died stays in doubt, whatever the next one made durable.
pub fn in_place(records: &[Record]) -> BTreeMap<u64, Option<HomeId>> {
    let (mut current, mut found): (_, BTreeMap<u64, Option<HomeId>>) = (0, BTreeMap::new());
    // What an earlier attempt at the current one was about to write.
    let mut before = None;
    let mut done: Vec<&Ended> = Vec::new();
    for record in records {
        match record {
            Record::Begun(seq) => {
                (current, before) = (*seq, found.get(seq).copied());
                done.retain(|ended| ended.seq != *seq);
            }
            Record::Intent(Intent::InPlace(file)) => drop(found.insert(current, Some(*file))),
            Record::Unknown(all) => found.extend(all.iter().map(|one| (one.seq, one.in_place))),
            Record::Ended(ended) if matches!(ended.outcome, Outcome::Done(_)) => done.push(ended),
            Record::Ended(ended) => {
                // It was not done, and the file is somebody else's to write, but for what was begun before.
                found.remove(&ended.seq);
                found.extend(before.take().filter(|_| ended.is_for_now()).map(|file| (ended.seq, file)));
            }
            Record::Durable => done.drain(..).for_each(|ended| {
                found.retain(|seq, file| *seq != ended.seq && !file.is_some_and(|f| ended.covers(*seq, &f)));
            }),
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    /// An agent died while it wrote a file in place, and the next one made other operations durable before it came to that.
    #[test]
    fn what_is_made_durable_says_nothing_of_a_write_that_was_not_ended() {
        let file = |ino| HomeId { fs: 1, ino, generation: 3 };
        let begun = |seq, ino| [Record::Begun(seq), Record::Intent(Intent::InPlace(file(ino)))];
        let ended = |seq| {
            let outcome = Outcome::Done(Done { attr: None, dirs: vec![] });
            Record::Ended(Ended { seq, outcome, wrote: true, made: false, succeeds: Some(file(seq)) })
        };
        let in_doubt = |records: &[Record]| in_place(records).into_keys().collect::<Vec<_>>();
        let died = [&begun(7, 7)[..], &[ended(7)], &begun(8, 8), &[Record::Durable]].concat();
        assert_eq!(in_doubt(&died), [8]);
        let redone = [&died[..], &[ended(8)]].concat();
        assert_eq!(in_doubt(&redone), [8], "its end is not durable");
        assert_eq!(in_doubt(&[&redone[..], &[Record::Durable]].concat()), [0; 0]);
        let taken_back = [&redone[..], &begun(8, 8), &[Record::Durable]].concat();
        assert_eq!(in_doubt(&taken_back), [8], "it could not be made durable");
        let unknown = Record::Unknown(vec![Unknown { seq: 9, in_place: Some(file(9)) }]);
        assert_eq!(in_doubt(&[unknown, ended(8), Record::Durable]), [9]);
        let refused = |kind| {
            let outcome = Outcome::Refused(kind);
            Record::Ended(Ended { seq: 8, outcome, wrote: false, made: false, succeeds: None })
        };
        for (kind, left) in [(ErrorKind::Access, &[8][..]), (ErrorKind::NotFound, &[])] {
            let again = [&died[..], &[Record::Begun(8), refused(kind)]].concat();
            assert_eq!(in_doubt(&again), left, "{kind:?}");
            assert_eq!(in_doubt(&[&begun(8, 8)[..], &[refused(kind)]].concat()), [0; 0], "{kind:?} at once");
        }
    }

    /// It is there or not, but never a part of it.
    #[test]
    fn what_a_log_tells_anew_takes_the_place_of_all_before_it() {
        let before = [Record::Taken(Bytes::from_static(b"before")), Record::Begun(7)];
        let anew = [Record::Taken(Bytes::from_static(b"boot")), Record::Begun(8)];
        let all = anew.iter().flat_map(encode).collect::<Vec<u8>>();
        let old = before.iter().flat_map(encode).collect::<Vec<u8>>();
        let file = [old.clone(), encode(&Record::Anew(all.into())), encode(&Record::Begun(9))].concat();
        let told = [&anew[..], &[Record::Begun(9)]].concat();
        assert_eq!(decode(file.clone().into()), (told, file.len() as u64));
        let end = file.len() - encode(&Record::Begun(9)).len();
        for cut in old.len()..end {
            let torn = Bytes::copy_from_slice(&file[..cut]);
            assert_eq!(decode(torn), (before.to_vec(), old.len() as u64), "after {cut} bytes");
        }
    }

    #[test]
    fn what_is_not_whole_ends_the_log() {
        let id = HomeId { fs: 1, ino: 2, generation: 3 };
        let version = Version { id, size: 4, mtime: Default::default(), ctime: Default::default() };
        let stage = Stage { below: None, name: Bytes::from_static(b"stage") };
        let (dir, name) = (HomePath::root(), Name::new(b"f").unwrap());
        let aside = Bytes::from_static(b"old-1");
        let old = TakeOut { version, dir, name, stage: stage.clone(), aside, sole: true };
        let ended = Ended {
            seq: 7,
            outcome: Outcome::Refused(ErrorKind::Quota),
            wrote: true,
            made: false,
            succeeds: Some(id),
        };
        let run = |at| Run { at, data: Bytes::from_static(b"abcd") };
        let records = [
            Record::Taken(Bytes::from_static(b"boot")),
            Record::Begun(7),
            Record::Staged(stage),
            Record::Intent(Intent::Swap(Swap { new: HomeId { ino: 9, ..id }, old })),
            Record::Intent(Intent::InPlace(id)),
            Record::Left(version),
            Record::Ended(ended),
            Record::Image(Image { seq: 7, file: id, cut: 4, old: vec![run(0)], new: vec![run(2), run(3)] }),
            Record::Durable,
        ];
        let parts: Vec<Vec<u8>> = records.iter().map(encode).collect();
        let file = parts.concat();
        assert_eq!(decode(file.clone().into()), (records.to_vec(), file.len() as u64));
        let last = (file.len() - parts[8].len()) as u64;
        for cut in 1..parts[8].len() {
            let torn = Bytes::copy_from_slice(&file[..file.len() - cut]);
            assert_eq!(decode(torn), (records[..8].to_vec(), last));
        }
        for byte in parts[0].len()..file.len() {
            let mut damaged = file.clone();
            damaged[byte] ^= 0x40;
            let (found, _) = decode(damaged.into());
            assert!(found.len() < records.len() && records.starts_with(&found), "byte {byte}");
        }
    }
}
