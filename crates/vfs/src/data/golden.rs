//! The file `golden/v1.seg`: a data segment of format version 1 with entries of each kind.
//!
//! It stays as it is. Whatever version is written one day, this one is still read.

use super::entry::{ENTRY_HEADER_LEN, Newer};
use super::*;
use crate::env::testing::{SimDisk, env};
use home::HomeId;

pub(crate) const SEGMENT: &[u8] = include_bytes!("golden/v1.seg");
const AT: &str = "data/00000007/0000000000000001.seg";

/// What the entry of object 4 holds: the journal's golden file names it.
pub(crate) const DIRTY: Extent = Extent { segment: 1, pos: 288, len: 5, crc: 0x9a71_bb4c };

/// A disk on which a segment of volume 7 lies.
pub(crate) fn disk_with(segment: &[u8]) -> SimDisk {
    let disk = SimDisk::new();
    put_file(&disk, AT, segment);
    disk
}

/// Makes a durable file.
pub(crate) fn put_file(disk: &SimDisk, path: &str, bytes: &[u8]) {
    use crate::env::Disk as _;
    let dir = path.rsplit_once('/').unwrap().0;
    disk.create_dir_all(dir).unwrap();
    let file = disk.create(path).unwrap();
    file.pwrite_all(&[bytes], 0).and_then(|()| file.sync_data()).unwrap();
    disk.sync_dir(dir).unwrap();
}

fn open(disk: &SimDisk) -> Result<Arc<DataLog>> {
    DataLog::open(&env(disk, 1), 7, Budget::new(1 << 30))
}

fn version() -> Version {
    Version {
        id: HomeId { fs: 1, ino: 2, generation: 3 },
        size: 17,
        mtime: Time { sec: -4, nsec: 5 },
        ctime: Time { sec: 6, nsec: 7 },
    }
}

#[test]
fn the_golden_segment_is_read_field_by_field() {
    let header = SegmentHeader {
        volume: 7,
        number: 1,
        made: Time { sec: 1_700_000_000, nsec: 0 },
        prev: 0,
        prev_end: 0,
    };
    assert_eq!(SegmentHeader::decode(SEGMENT), Some(Ok(header)));
    let retired = Extent { segment: 1, pos: 344, len: 3, crc: crc32c::crc32c(b"two") };
    let wanted: [(Kind, u64, u64, u64, Bytes); 9] = [
        (Kind::Clean, 3, 1, 0, Bytes::from_static(b"what the home has")),
        (Kind::Version, 3, 1, 0, version().to_bytes()),
        (Kind::Dirty, 4, 2, 8192, Bytes::from_static(b"hello")),
        (Kind::Dirty, 5, 3, 1, Bytes::from_static(b"two")),
        (Kind::Retired, 5, 3, 1, retired.to_bytes()),
        (Kind::Laid, 4, 2, 8192, DIRTY.to_bytes()),
        (Kind::Truncate, 3, 1, 4, Bytes::new()),
        (Kind::Clean, 6, 4, 0, Bytes::from_static(b"gone")),
        (Kind::Drop, 6, 4, 0, Bytes::new()),
    ];
    let mut at = SEGMENT_HEADER_LEN as usize;
    for (kind, object, epoch, offset, payload) in wanted {
        let (len, crc) = (payload.len() as u32, crc32c::crc32c(&payload));
        let entry = Entry { kind, object, epoch, offset, len, crc };
        assert_eq!(Entry::decode(&SEGMENT[at..]), Some(entry), "at {at}");
        let from = at + ENTRY_HEADER_LEN;
        assert_eq!(SEGMENT[from..from + payload.len()], payload, "at {at}");
        at += entry.footprint() as usize;
    }
    assert_eq!(at, SEGMENT.len());
}

#[test]
fn the_golden_segment_is_a_cache_after_a_restart() {
    let log = open(&disk_with(SEGMENT)).unwrap();
    assert!(matches!(&log.get(3, 0, 4)[..], [Part::Have(b)] if &b[..] == b"what"));
    assert_eq!(log.gaps(3, 0, 17), [(4, 13)]);
    assert_eq!(log.version(3), Some(version()));
    assert_eq!(log.read_extent(&DIRTY).unwrap(), &b"hello"[..]);
    for without_version in [4, 5, 6] {
        assert_eq!(log.gaps(without_version, 0, 1 << 20), [(0, 1 << 20)]);
    }
}

#[test]
fn what_is_written_today_are_the_bytes_of_the_golden_segment() {
    let disk = SimDisk::new();
    let log = open(&disk).unwrap();
    let data = |text: &'static [u8]| [Bytes::from_static(text)];
    log.put(3, 0, &data(b"what the home has"), Pin::Clean).unwrap();
    log.set_version(3, version());
    let dirty = log.put(4, 8192, &data(b"hello"), Pin::Dirty).unwrap();
    let two = log.put(5, 1, &data(b"two"), Pin::Dirty).unwrap();
    log.unpin(&two);
    log.insert(4, 8192, dirty);
    log.truncate(3, 4);
    log.put(6, 0, &data(b"gone"), Pin::Clean).unwrap();
    log.drop_object(6);
    same_bytes(&disk.content(AT).unwrap(), SEGMENT);
    assert_eq!(dirty, DIRTY);
}

/// Compares a file that was made with the one that is kept.
pub(crate) fn same_bytes(made: &[u8], kept: &[u8]) {
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let differs = made.iter().zip(kept).position(|(a, b)| a != b);
    assert!(made == kept, "differs at {differs:?}; made:\n{}", hex(made));
}

/// The bytes of a segment whose header says another version, intact: `at` is the place of its checksum.
pub(crate) fn of_version(segment: &[u8], version: u32, at: usize) -> Vec<u8> {
    let mut bytes = segment.to_vec();
    bytes[8..12].copy_from_slice(&version.to_be_bytes());
    let crc = crc32c::crc32c(&bytes[..at]);
    bytes[at..at + 4].copy_from_slice(&crc.to_be_bytes());
    bytes
}

#[test]
fn a_program_of_the_next_version_reads_this_one_and_not_the_other_way_round() {
    assert!(matches!(SegmentHeader::decode_up_to(SEGMENT, 2), Some(Ok(h)) if h.number == 1));
    let next = of_version(SEGMENT, 2, 52);
    assert_eq!(SegmentHeader::decode(&next), Some(Err(Newer(2))));
    assert!(matches!(SegmentHeader::decode_up_to(&next, 2), Some(Ok(_))));
    let disk = disk_with(&next);
    let Err(e) = open(&disk) else { panic!("it was opened") };
    assert!(matches!(e, Error::Newer(_)));
    assert!(e.to_string().contains("has format version 2, and this program knows 1"), "{e}");
    assert!(e.to_string().contains("start the version of trellis that wrote it"), "{e}");
    assert_eq!(disk.content(AT).unwrap(), next, "nothing was changed");
    // A version that is damaged is damage.
    let mut torn = next;
    torn[11] = 9;
    assert_eq!(SegmentHeader::decode(&torn), None);
}
