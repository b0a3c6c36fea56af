//! What is staged on the home's disk, and how it becomes the content of a file.

use super::meddler::{Event, Meddler};
use super::*;
use crate::op::{Spooled, Staged};
use std::os::unix::fs::MetadataExt;

const OLD: &[u8] = b"what was there before";

fn content() -> Vec<u8> {
    (0..40_000u32).flat_map(u32::to_le_bytes).collect()
}

fn staging(seq: u64) -> OpId {
    OpId { gateway: 7, volume: 1, seq }
}

fn part(op: OpId, at: u64, bytes: &[u8]) -> Payload {
    let range = Staged { op, at, len: bytes.len() as u64 };
    Payload::Spooled(Spooled { range, hash: *blake3::hash(bytes).as_bytes() })
}

/// Writes a file anew with what is staged as `op`.
fn anew(base: Option<Version>, op: OpId, content: &[u8]) -> Op<Loc, Payload> {
    let pieces = vec![Piece::Truncate(0), Piece::Data(0, part(op, 0, content))];
    Op::Write { file: at("w/f"), base, pieces }
}

fn stage_all<S: Sys>(home: &Posix<S>, op: OpId, content: &[u8]) {
    let held = home.spool(op).unwrap();
    for from in (held as usize..content.len()).step_by(30_000) {
        let part = &content[from..content.len().min(from + 30_000)];
        home.stage(op, from as u64, Bytes::copy_from_slice(part)).unwrap();
    }
}

/// The files below the folder of the volume.
fn spools(place: &Place) -> Vec<String> {
    let all = place.names(".cache/trellis/volumes/0000000000000007-00000001");
    all.into_iter().filter(|name| name.starts_with(".trellis-spool-")).collect()
}

#[test]
fn what_lies_there_whole_changes_places_with_the_file() {
    let place = Place::new();
    place.write("w/f", OLD);
    let (home, content, op) = (place.open(Linux::default()), content(), staging(1));
    let (base, reader) = (version(&home, "w/f"), std::fs::File::open(place.path("w/f")).unwrap());
    assert_eq!(home.spool(op).unwrap(), 0);
    // What comes ahead of its turn waits for it.
    assert_eq!(home.stage(op, 100_000, Bytes::copy_from_slice(&content[100_000..])).unwrap(), 0);
    assert_eq!(home.stage(op, 0, Bytes::copy_from_slice(&content[..100_000])).unwrap(), 160_000);
    assert_eq!(home.spool(op).unwrap(), 160_000);
    let volume = ".cache/trellis/volumes/0000000000000007-00000001";
    let spool = std::fs::metadata(place.path(volume).join(&spools(&place)[0])).unwrap().ino();
    // Nobody takes it for a file of a user, which it is about to become.
    let seq = format!("{volume}/{}", spools(&place)[0]);
    assert_eq!(home.stat(&at(&seq)).unwrap_err().kind, ErrorKind::NotFound);
    assert!(home.list(&at(volume), None, 9).unwrap().entries.is_empty());
    let answer = done(&home, anew(Some(base), op, &content));
    assert_eq!((place.read("w/f"), answer.attr.unwrap().size), (content, 160_000));
    assert_eq!(std::fs::metadata(place.path("w/f")).unwrap().ino(), spool, "it was copied");
    assert_eq!((place.names("w"), spools(&place)), (vec!["f".to_owned()], Vec::new()));
    // Nobody who had it open sees a part.
    let mut old = Vec::new();
    std::io::Read::read_to_end(&mut &reader, &mut old).unwrap();
    assert_eq!(old, OLD);
}

/// Also where something is laid over it that came later, or behind what it has.
#[test]
fn what_lies_there_in_part_is_completed() {
    let (content, op) = (content(), staging(1));
    for over in [Payload::Inline(Bytes::from_static(b"head")), part(op, 160_000, b"head")] {
        let place = Place::new();
        place.write("w/f", OLD);
        let home = place.open(Linux::default());
        stage_all(&home, op, &[&content[..], b"head"].concat());
        let rest = part(op, 4, &content[4..]);
        let pieces = vec![Piece::Truncate(0), Piece::Data(0, over), Piece::Data(4, rest)];
        done(&home, Op::Write { file: at("w/f"), base: Some(version(&home, "w/f")), pieces });
        assert_eq!(place.read("w/f"), [b"head", &content[4..]].concat());
        assert!(spools(&place).is_empty());
    }
}

/// What is staged for a program that writes again what is around the end of each of its writes, and that as pieces.
fn overlapping(op: OpId, content: &[u8]) -> (Vec<u8>, Vec<Piece<Payload>>) {
    let (mut staged, mut pieces) = (Vec::new(), vec![Piece::Truncate(0)]);
    for from in (0..content.len()).step_by(40_000) {
        let to = content.len().min(from + 40_000);
        let part = part(op, staged.len() as u64, &content[from..to]);
        pieces.push(Piece::Data(from as u64, part));
        staged.extend_from_slice(&content[from..to]);
        staged.extend_from_slice(&b"again"[..]);
    }
    (staged, pieces)
}

/// There may be no room for a copy.
#[test]
fn what_lies_further_behind_than_it_will_is_moved_there() {
    let place = Place::new();
    place.write("w/f", OLD);
    let (home, content, op) = (place.open(Linux::default()), content(), staging(1));
    let (staged, pieces) = overlapping(op, &content);
    stage_all(&home, op, &staged);
    let volume = ".cache/trellis/volumes/0000000000000007-00000001";
    let spool = std::fs::metadata(place.path(volume).join(&spools(&place)[0])).unwrap().ino();
    done(&home, Op::Write { file: at("w/f"), base: Some(version(&home, "w/f")), pieces });
    assert!(place.read("w/f") == content);
    assert_eq!(std::fs::metadata(place.path("w/f")).unwrap().ino(), spool, "it was copied");
    // What lies ahead of its place would be overwritten.
    let pieces = vec![
        Piece::Truncate(0),
        Piece::Data(0, part(op, 80_000, &content[80_000..])),
        Piece::Data(80_000, part(op, 0, &content[..80_000])),
    ];
    stage_all(&home, op, &content);
    done(&home, Op::Write { file: at("w/f"), base: Some(version(&home, "w/f")), pieces });
    assert!(place.read("w/f") == [&content[80_000..], &content[..80_000]].concat());
}

#[test]
fn a_new_file_is_empty_or_whole() {
    let place = Place::new();
    let (home, content, op) = (place.open(Linux::default()), content(), staging(1));
    stage_all(&home, op, &content);
    let write =
        Op::Write { file: at("w/f"), base: None, pieces: vec![Piece::Data(0, part(op, 0, &content))] };
    let outcomes = home.apply(vec![placed(create("w", "f", 0o640)), placed(write)]).unwrap();
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Done(_))), "{outcomes:?}");
    let made = std::fs::metadata(place.path("w/f")).unwrap();
    assert_eq!((place.read("w/f"), made.mode() & 0o777), (content, 0o640));
    assert!(spools(&place).is_empty());
}

/// A copy would take the place of one name alone.
#[test]
fn a_file_with_two_names_is_written_in_its_place() {
    let place = Place::new();
    place.write("w/f", OLD);
    std::fs::hard_link(place.path("w/f"), place.path("w/g")).unwrap();
    let (home, content, op) = (place.open(Linux::default()), content(), staging(1));
    stage_all(&home, op, &content);
    done(&home, anew(Some(version(&home, "w/f")), op, &content));
    assert_eq!((place.read("w/f"), place.read("w/g")), (content.clone(), content));
    assert!(spools(&place).is_empty());
}

#[test]
fn another_agent_goes_on_where_the_first_one_ended() {
    let place = Place::new();
    place.write("w/f", OLD);
    let (content, op) = (content(), staging(1));
    let first = place.open(Linux::default());
    first.spool(op).unwrap();
    first.stage(op, 0, Bytes::copy_from_slice(&content[..70_000])).unwrap();
    // Behind a gap: it is in memory.
    first.stage(op, 90_000, Bytes::copy_from_slice(&content[90_000..])).unwrap();
    drop(first);
    let next = place.open(Linux::default());
    assert_eq!(next.spool(op).unwrap(), 70_000);
    stage_all(&next, op, &content);
    done(&next, anew(Some(version(&next, "w/f")), op, &content));
    assert_eq!(place.read("w/f"), content);
}

/// It may add to what it has for as long as it likes.
#[test]
fn an_agent_that_was_left_behind_does_not_add_to_what_another_one_has() {
    let place = Place::new();
    place.write("w/f", OLD);
    let (content, op) = (content(), staging(1));
    let (first, next) = (place.open(Linux::default()), place.open(Linux::default()));
    first.spool(op).unwrap();
    first.stage(op, 0, Bytes::copy_from_slice(&content[..70_000])).unwrap();
    assert_eq!(next.spool(op).unwrap(), 0);
    stage_all(&next, op, &content);
    done(&next, anew(Some(version(&next, "w/f")), op, &content));
    let by_another = [b"another program's", &content[17..]].concat();
    place.write("w/f", &by_another);
    first.stage(op, 70_000, Bytes::copy_from_slice(&content[70_000..])).unwrap();
    assert_eq!(place.read("w/f"), by_another);
}

/// It does the operation that it had begun with what it has itself, though another one stages the same under the same name.
#[test]
fn an_agent_that_was_left_behind_does_not_use_what_another_one_has() {
    let place = Place::new();
    place.write("w/f", OLD);
    let (content, op) = (content(), staging(1));
    let (first, next) = (place.open(Linux::default()), place.open(Linux::default()));
    stage_all(&first, op, &content);
    assert_eq!(next.spool(op).unwrap(), 0);
    next.stage(op, 0, Bytes::copy_from_slice(&content[..70_000])).unwrap();
    done(&first, anew(Some(version(&first, "w/f")), op, &content));
    assert!(place.read("w/f") == content, "another one's are in it");
    assert_eq!((place.names("w"), spools(&place).len()), (vec!["f".to_owned()], 1));
    drop(next);
    assert_eq!(place.open(Linux::default()).spool(op).unwrap(), 70_000);
}

/// As after a power cut, which may leave zeros, and where the home lacks what it should have copied.
#[test]
fn nothing_happens_with_other_bytes_than_were_sent() {
    for short in [false, true] {
        let place = Place::new();
        place.write("w/f", OLD);
        let (home, content, op) = (place.open(Linux::default()), content(), staging(1));
        let mut other = content.clone();
        match short {
            true => other.truncate(150_000),
            false => other[77_777] ^= 1,
        }
        stage_all(&home, op, &other);
        let write = placed(anew(Some(version(&home, "w/f")), op, &content));
        assert_eq!(home.apply(vec![write.clone()]).unwrap_err().kind, ErrorKind::NotStaged);
        assert_eq!(place.read("w/f"), OLD);
        // What has others would fail for ever.
        assert_eq!(home.spool(op).unwrap(), if short { 150_000 } else { 0 });
        stage_all(&home, op, &content);
        assert!(matches!(one(&home, write), Outcome::Done(_)));
        assert_eq!(place.read("w/f"), content);
    }
}

#[test]
fn a_claim_removes_what_nobody_goes_on_with() {
    let place = Place::new();
    let first = place.open(Linux::default());
    for seq in 1..=2 {
        first.spool(staging(seq)).unwrap();
        first.stage(staging(seq), 0, Bytes::from_static(b"bytes")).unwrap();
    }
    let foreign = OpId { volume: 2, ..staging(1) };
    first.spool(foreign).unwrap();
    drop(first);
    let next = place.open(Linux::default());
    assert_eq!(next.spool(staging(2)).unwrap(), 5);
    next.claim(7, 1, Vec::new()).unwrap();
    assert_eq!(spools(&place), [".trellis-spool-0000000000000002"]);
    assert_eq!(next.spool(foreign).unwrap(), 0);
    let others = place.names(".cache/trellis/volumes/0000000000000007-00000002");
    assert_eq!(others, [".trellis-spool-0000000000000001"]);
}

#[test]
fn what_is_not_needed_any_more_is_removed() {
    let place = Place::new();
    let home = place.open(Linux::default());
    for seq in 1..=2 {
        home.spool(staging(seq)).unwrap();
        home.stage(staging(seq), 0, Bytes::from_static(b"bytes")).unwrap();
    }
    assert!(home.unspool(staging(1)));
    assert_eq!(spools(&place), [".trellis-spool-0000000000000002"]);
    assert!(!home.unspool(staging(1)));
    assert_eq!(home.spool(staging(1)).unwrap(), 0, "it begins anew");
}

/// Whatever call it dies at, the name has all of the old content or all of the new one.
#[test]
fn whatever_call_it_dies_at_the_file_is_whole() {
    let (content, op) = (content(), staging(1));
    dies_at_each_call(&content, &content, vec![Piece::Truncate(0), Piece::Data(0, part(op, 0, &content))]);
    let (staged, pieces) = overlapping(op, &content);
    dies_at_each_call(&content, &staged, pieces);
}

fn dies_at_each_call(content: &[u8], staged: &[u8], pieces: Vec<Piece<Payload>>) {
    let op = staging(1);
    let mut renewed = 0;
    for calls in 0.. {
        let place = Place::new();
        place.write("w/f", OLD);
        let first = place.open(Meddler::new(Lacks::default()));
        first.claim(7, 1, Vec::new()).unwrap();
        let base = version(&first, "w/f");
        let write = placed(Op::Write { file: at("w/f"), base: Some(base), pieces: pieces.clone() });
        first.sys.after(calls, Event::Death);
        let went = first.spool(op).and_then(|_| {
            for from in (0..staged.len()).step_by(40_000) {
                let part = &staged[from..staged.len().min(from + 40_000)];
                first.stage(op, from as u64, Bytes::copy_from_slice(part))?;
            }
            Ok(())
        });
        let _ = went.and_then(|()| first.apply(vec![write.clone()]));
        let died = first.sys.happened();
        drop(first);
        let there = place.read("w/f");
        assert!(there == OLD || there == content, "{} bytes at call {calls}", there.len());
        renewed += usize::from(there == content);
        let next = place.open(Linux::default());
        stage_all(&next, op, staged);
        next.claim(7, 1, vec![write.id.seq]).unwrap();
        let outcome = one(&next, Placed { resent: true, ..write });
        assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?} at call {calls}");
        assert_eq!((place.read("w/f") == content, place.names("w").len()), (true, 1), "at call {calls}");
        next.claim(7, 1, Vec::new()).unwrap();
        assert!(spools(&place).len() <= 1, "at call {calls}");
        assert_eq!(place.names(".cache/trellis"), ["volumes"], "at call {calls}");
        if !died {
            break;
        }
    }
    assert!(renewed > 2, "{renewed}");
}

#[test]
fn a_full_disk_is_told_when_it_is_asked_again() {
    let place = Place::new();
    let home = place.open(Meddler::new(Lacks::default()));
    let op = staging(1);
    home.spool(op).unwrap();
    home.sys.after(0, Event::Failure(Errno::NOSPC));
    let refused = home.stage(op, 0, Bytes::from_static(b"bytes")).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::NoSpace);
    assert_eq!(home.stage(op, 0, Bytes::from_static(b"bytes")).unwrap_err().kind, ErrorKind::NoSpace);
    assert_eq!(home.spool(op).unwrap_err().kind, ErrorKind::NoSpace);
    // Meanwhile there may be room.
    assert_eq!(home.spool(op).unwrap(), 0);
    assert_eq!(home.stage(op, 0, Bytes::from_static(b"bytes")).unwrap(), 5);
}

/// It was staged by who may send the same in parts then.
#[test]
fn what_was_refused_keeps_no_room() {
    let (content, op) = (content(), staging(1));
    let halves = [(80_000, 0), (0, 80_000)].map(|(from, to)| (from, to, &content[from..from + 80_000]));
    let mut refused = 0;
    for calls in 0.. {
        let place = Place::new();
        place.write("w/f", OLD);
        let home = place.open(Meddler::new(Lacks::default()));
        stage_all(&home, op, &content);
        // None of it lies where it will be: it is copied.
        let pieces = halves.map(|(from, to, half)| Piece::Data(to as u64, part(op, from as u64, half)));
        let pieces = std::iter::once(Piece::Truncate(0)).chain(pieces).collect();
        let write = Op::Write { file: at("w/f"), base: Some(version(&home, "w/f")), pieces };
        home.sys.after(calls, Event::Failure(Errno::NOSPC));
        let answer = home.apply(vec![placed(write)]);
        if !home.sys.happened() {
            break;
        }
        if matches!(answer.as_deref(), Ok([Outcome::Refused(ErrorKind::NoSpace)])) {
            refused += 1;
            assert!(spools(&place).is_empty(), "at call {calls}");
        }
    }
    assert!(refused > 2, "{refused}");
}
