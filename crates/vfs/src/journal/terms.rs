//! The words that a volume has brought to the claims of its home, the newest last. `docs/JOURNAL.md` shows their bytes.
//!
//! A home that has another one has heard of a later state of this directory than it is in; see [`home::Term`]. So a word is
//! durable here before it is sent. The file has two places, and is written in the one that is not read: it needs no new
//! space, so that what is unsent goes home also where the disk is full, and after a power cut one of them is whole.

use super::dir_of;
use crate::env::{Disk, Env, Error, File, Result};
use bytes::BufMut;
use home::limits::TERMS_MAX;
use parking_lot::Mutex;
use std::io::ErrorKind;
use std::sync::Arc;

/// Bytes of a word.
const WORD: usize = 16;
/// Bytes that tell one claim from all others.
pub type Word = [u8; WORD];

/// First bytes of a place.
const MAGIC: &[u8; 8] = b"TRLSTERM";
/// Version of the format that is written. All from 1 up to it are read.
const VERSION: u32 = 1;
/// Bytes of a place.
const PLACE: usize = 4096;
/// Bytes before the words.
const HEAD: usize = 48;
/// Where the checksum is; all behind it is in it, and all before.
const CHECK: usize = 12;

const _: () = assert!(HEAD + TERMS_MAX * WORD <= PLACE);

/// What a place holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Book {
    /// How often it was written.
    edition: u64,
    /// The last word of which it is known that the home had it; zeros where there is none.
    kept: Word,
    /// The newest ones, at most [`TERMS_MAX`].
    words: Vec<Word>,
}

/// What stands in a place.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// Nothing that is whole.
    None,
    /// What a later version wrote than this program knows.
    Newer(u32),
    /// What can be read.
    Known(Book),
}

/// The words of a volume.
pub struct Terms {
    volume: u32,
    state: Mutex<State>,
}

struct State {
    book: Book,
    file: Option<Arc<dyn File>>,
    /// One that is durable and of which it is not known whether the home has it: the next claim has the same one, so that claims
    /// without an answer do not push older ones out.
    open: Option<Word>,
}

impl Terms {
    /// Reads the words of a volume; it may have none yet, and no lane.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where both places are damaged, [`Error::Newer`] where a later program wrote; nothing is changed.
    pub fn open(env: &Env, volume: u32) -> Result<Terms> {
        let at = path(volume);
        let (book, file) = match env.disk.open(&at) {
            Err(e) if e.kind() == ErrorKind::NotFound => (Book::default(), None),
            Err(e) => return Err(Error::io(at, &e)),
            Ok(file) => (read(&*file, volume, &at)?, Some(file)),
        };
        Ok(Terms { volume, state: Mutex::new(State { book, file, open: None }) })
    }

    /// The words that the home may have of earlier claims, and the one of the next, which is durable; `None` where the disk has
    /// no room for the file, so that there was never any. May wait for the disk.
    pub fn next(&self, env: &Env) -> Result<Option<(Vec<Word>, Word)>> {
        let mut state = self.state.lock();
        if let Some(open) = state.open {
            return Ok(Some((state.book.known(open), open)));
        }
        let mut word = [0; WORD];
        env.rng.fill(&mut word);
        let book = state.book.with(word);
        match &state.file {
            Some(file) => book.write(&**file, self.volume).map_err(|e| Error::io(path(self.volume), &e))?,
            None => match make(&*env.disk, &book, self.volume) {
                Ok(file) => state.file = Some(file),
                Err(Error::Full(_)) => return Ok(None),
                Err(e) => return Err(e),
            },
        }
        (state.book, state.open) = (book, Some(word));
        Ok(Some((state.book.known(word), word)))
    }

    /// The home has the word of the last claim.
    pub fn is_kept(&self) {
        let mut state = self.state.lock();
        if let Some(word) = state.open.take() {
            state.book.kept = word;
        }
    }
}

fn path(volume: u32) -> String {
    format!("{}/terms", dir_of(volume))
}

fn read(file: &dyn File, volume: u32, at: &str) -> Result<Book> {
    let place = |nth: u64| {
        let mut bytes = vec![0; PLACE];
        let n = file.pread(&mut bytes, nth * PLACE as u64).map_err(|e| Error::io(at, &e))?;
        Ok(Book::decode(&bytes[..n], volume))
    };
    let mut newest: Option<Book> = None;
    for found in [place(0)?, place(1)?] {
        match found {
            Place::Newer(version) => {
                let text = format!("{at} has format version {version}, and this program knows {VERSION}");
                return Err(Error::Newer(text));
            }
            Place::Known(book) if newest.as_ref().is_none_or(|n| n.edition < book.edition) => {
                newest = Some(book)
            }
            _ => {}
        }
    }
    newest.ok_or_else(|| Error::Corrupt(format!("{at} holds no words of claims")))
}

/// Makes the file: it is there as a whole or not at all.
fn make(disk: &dyn Disk, book: &Book, volume: u32) -> Result<Arc<dyn File>> {
    let (at, new) = (path(volume), format!("{}/terms.new", dir_of(volume)));
    let begin = || {
        match disk.remove(&new) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let file = disk.create(&new)?;
        file.allocate(2 * PLACE as u64)?;
        book.write(&*file, volume)?;
        disk.rename(&new, &at)?;
        disk.sync_dir(&dir_of(volume))?;
        Ok(file)
    };
    begin().map_err(|e| {
        // What is left of it takes room.
        disk.remove(&new).ok();
        Error::io(&at, &e)
    })
}

impl Book {
    /// What the home may have before this word is sent.
    fn known(&self, new: Word) -> Vec<Word> {
        let mut known: Vec<Word> = self.words.iter().copied().filter(|word| *word != new).collect();
        if self.kept != [0; WORD] && !known.contains(&self.kept) {
            known.push(self.kept);
        }
        known
    }

    /// The next edition, with this word.
    fn with(&self, word: Word) -> Book {
        let mut words = self.words.clone();
        words.push(word);
        let old = words.len().saturating_sub(TERMS_MAX);
        words.drain(..old);
        Book { edition: self.edition + 1, kept: self.kept, words }
    }

    /// Writes it durably. A part of it leaves the edition before as it is, and is written over by the next attempt.
    fn write(&self, file: &dyn File, volume: u32) -> std::io::Result<()> {
        file.pwrite_all(&[&self.encode(volume)], self.edition % 2 * PLACE as u64)?;
        file.sync_data()
    }

    fn encode(&self, volume: u32) -> Vec<u8> {
        let mut out = Vec::with_capacity(PLACE);
        out.put_slice(MAGIC);
        out.put_u32(VERSION);
        out.put_u32(0);
        out.put_u32(volume);
        out.put_u64(self.edition);
        out.put_slice(&self.kept);
        out.put_u32(self.words.len() as u32);
        self.words.iter().for_each(|word| out.put_slice(word));
        out.resize(PLACE, 0);
        let check = checksum(&out);
        out[CHECK..CHECK + 4].copy_from_slice(&check.to_be_bytes());
        out
    }

    fn decode(place: &[u8], volume: u32) -> Place {
        let u32_at = |at: usize| Some(u32::from_be_bytes(place.get(at..at + 4)?.try_into().ok()?));
        let read = || {
            let intact = place.len() == PLACE && &place[..8] == MAGIC && u32_at(CHECK)? == checksum(place);
            match u32_at(8)? {
                _ if !intact => return None,
                0 => return None,
                version if version > VERSION => return Some(Place::Newer(version)),
                _ => {}
            }
            let edition = u64::from_be_bytes(place[20..28].try_into().ok()?);
            let kept = place[28..44].try_into().ok()?;
            let words = place[HEAD..].chunks_exact(WORD).take(u32_at(44)? as usize);
            let words = words.filter_map(|word| word.try_into().ok()).collect();
            (u32_at(16)? == volume).then_some(Place::Known(Book { edition, kept, words }))
        };
        read().unwrap_or(Place::None)
    }
}

fn checksum(place: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&place[..CHECK]), &place[CHECK + 4..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::testing::{SimDisk, env};

    const VOLUME: u32 = 7;

    fn disk() -> SimDisk {
        let disk = SimDisk::new();
        disk.create_dir_all(&dir_of(VOLUME)).unwrap();
        disk
    }

    fn open(disk: &SimDisk) -> Terms {
        Terms::open(&env(disk, 1), VOLUME).unwrap()
    }

    /// A claim that is answered; answers what it brings.
    fn claim(terms: &Terms, disk: &SimDisk, seed: u64) -> (Vec<Word>, Word) {
        let next = terms.next(&env(disk, seed)).unwrap().unwrap();
        terms.is_kept();
        next
    }

    #[test]
    fn each_claim_has_a_word_of_its_own_and_knows_those_before() {
        let disk = disk();
        let mut before = Vec::new();
        for seed in 0..3 {
            let terms = open(&disk);
            for more in 0..3 {
                let (known, new) = claim(&terms, &disk, seed * 10 + more);
                assert_eq!(known, before);
                assert!(!before.contains(&new));
                before.push(new);
            }
        }
    }

    #[test]
    fn a_claim_without_an_answer_has_its_word_again() {
        let disk = disk();
        let terms = open(&disk);
        let first = terms.next(&env(&disk, 1)).unwrap();
        assert_eq!(terms.next(&env(&disk, 2)).unwrap(), first);
        terms.is_kept();
        let (known, new) = terms.next(&env(&disk, 3)).unwrap().unwrap();
        assert_eq!(known, [first.unwrap().1]);
        // Another process does not know that it was sent.
        let (known, _) = open(&disk).next(&env(&disk, 4)).unwrap().unwrap();
        assert_eq!(known.last(), Some(&new));
    }

    /// The one that the home had is known for as long as it may have it.
    #[test]
    fn no_number_of_claims_without_an_answer_pushes_the_last_one_out_that_had_one() {
        let disk = disk();
        let terms = open(&disk);
        let (_, kept) = claim(&terms, &disk, 0);
        terms.next(&env(&disk, 1)).unwrap();
        for seed in 2..2 * TERMS_MAX as u64 {
            let (known, _) = open(&disk).next(&env(&disk, seed)).unwrap().unwrap();
            assert!(known.contains(&kept) && known.len() <= TERMS_MAX, "{seed}");
        }
    }

    /// Whenever the power fails, the words of all claims that may have been sent are there.
    #[test]
    fn what_was_sent_is_there_after_a_power_cut() {
        for seed in 0..400 {
            let disk = disk();
            disk.crash_after(seed % 20, seed);
            let (terms, mut sent) = (open(&disk), Vec::new());
            for n in 0..4 {
                let Ok(Some((_, new))) = terms.next(&env(&disk, n)) else { break };
                terms.is_kept();
                sent.push(new);
            }
            if disk.crash_is_due() {
                disk.crash(seed);
            }
            let next = disk.clone();
            let (known, _) = open(&next).next(&env(&next, 99)).unwrap().unwrap();
            assert!(sent.iter().all(|word| known.contains(word)), "{seed}");
        }
    }

    #[test]
    fn a_full_disk_has_room_for_every_word_but_the_first() {
        let disk = disk();
        disk.fill_up(true);
        assert_eq!(open(&disk).next(&env(&disk, 1)).unwrap(), None);
        disk.set_capacity(None);
        let terms = open(&disk);
        claim(&terms, &disk, 2);
        disk.fill_up(true);
        for seed in 3..6 {
            claim(&terms, &disk, seed);
        }
        assert_eq!(open(&disk).next(&env(&disk, 7)).unwrap().unwrap().0.len(), 4);
    }

    #[test]
    fn a_failed_write_leaves_what_is_known() {
        let disk = disk();
        let terms = open(&disk);
        let (_, first) = claim(&terms, &disk, 1);
        for fail in [SimDisk::fail_syncs, SimDisk::fail_writes] {
            fail(&disk, 1);
            assert!(terms.next(&env(&disk, 2)).is_err());
        }
        assert_eq!(terms.next(&env(&disk, 3)).unwrap().unwrap().0, [first]);
    }

    #[test]
    fn damage_and_what_a_later_program_wrote_are_told() {
        let disk = disk();
        let terms = open(&disk);
        let (_, first) = claim(&terms, &disk, 1);
        claim(&terms, &disk, 2);
        // One place is lost as it may be by a power cut.
        disk.flip_bit(&path(VOLUME), 100);
        assert_eq!(open(&disk).next(&env(&disk, 3)).unwrap().unwrap().0, [first]);
        disk.flip_bit(&path(VOLUME), 60);
        disk.flip_bit(&path(VOLUME), PLACE as u64 + 60);
        assert!(matches!(Terms::open(&env(&disk, 4), VOLUME), Err(Error::Corrupt(_))));
        let later = || {
            let mut place = Book::default().encode(VOLUME);
            place[8..12].copy_from_slice(&2u32.to_be_bytes());
            let check = checksum(&place);
            place[CHECK..CHECK + 4].copy_from_slice(&check.to_be_bytes());
            place
        };
        assert_eq!(Book::decode(&later(), VOLUME), Place::Newer(2));
        assert_eq!(Book::decode(&Book::default().encode(VOLUME), VOLUME + 1), Place::None);
        disk.open(&path(VOLUME)).unwrap().pwrite_all(&[&later()], 0).unwrap();
        assert!(matches!(Terms::open(&env(&disk, 5), VOLUME), Err(Error::Newer(_))));
    }

    /// The bytes of version 1.
    #[test]
    fn a_place_has_its_golden_bytes() {
        let book = Book { edition: 258, kept: [0xab; 16], words: vec![*b"nobody can guess", [0xcd; 16]] };
        let place = book.encode(VOLUME);
        assert_eq!(Book::decode(&place, VOLUME), Place::Known(book));
        let hex: String = place[..80].iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, GOLDEN);
        assert!(place[80..].iter().all(|b| *b == 0));
    }

    const GOLDEN: &str = concat!(
        "54524c535445524d00000001a3f5eb01000000070000000000000102abababababababababababababababab",
        "000000026e6f626f64792063616e206775657373cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd",
    );
}
