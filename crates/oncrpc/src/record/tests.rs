//! Streams cut in every way, and streams that lie.

use super::*;
use bytes::BufMut;
use rand::{Rng, SeedableRng, rngs::StdRng};

fn mark(last: bool, len: usize) -> [u8; 4] {
    (if last { LAST_FRAGMENT | len as u32 } else { len as u32 }).to_be_bytes()
}

/// Feeds `stream` in pieces of `piece()` bytes and returns all records.
fn cut(stream: &[u8], max: usize, mut piece: impl FnMut() -> usize) -> Vec<Bytes> {
    let mut records = Records::new(max);
    let (mut rest, mut out) = (stream, Vec::new());
    while !rest.is_empty() {
        let buffer = records.buffer();
        let room = buffer.capacity() - buffer.len();
        assert!(room > 0, "there is always room to read");
        let (head, tail) = rest.split_at(piece().min(room).min(rest.len()));
        buffer.put_slice(head);
        rest = tail;
        while let Some(record) = records.next_record().unwrap() {
            out.push(record);
        }
    }
    assert!(!records.is_partial());
    out
}

/// One record in fragments of at most `fragment()` bytes.
fn fragmented(record: &[u8], mut fragment: impl FnMut() -> usize) -> Vec<u8> {
    let (mut rest, mut out) = (record, Vec::new());
    loop {
        let (head, tail) = rest.split_at(fragment().min(rest.len()));
        let last = tail.is_empty();
        out.extend(mark(last, head.len()));
        out.extend(head);
        if last {
            return out;
        }
        rest = tail;
    }
}

#[test]
fn any_fragments_in_any_segments_give_the_same_records() {
    for seed in 0..300 {
        let mut rng = StdRng::seed_from_u64(seed);
        let sent: Vec<Vec<u8>> = (0..rng.random_range(1..12))
            .map(|_| {
                let len = if rng.random_bool(0.2) { 100_000 } else { 300 };
                (0..rng.random_range(0..len)).map(|_| rng.random()).collect()
            })
            .collect();
        let mut stream = Vec::new();
        for record in &sent {
            let most = [1 << 20, 2048, 50][rng.random_range(0..3)];
            stream.extend(fragmented(record, || rng.random_range(0..=most)));
        }
        let most = [1, 7, 1500, 1 << 20][rng.random_range(0..4)];
        assert_eq!(cut(&stream, 100_000, || rng.random_range(1..=most)), sent, "seed {seed}");
    }
}

#[test]
fn a_request_in_2048_byte_fragments_and_one_byte_segments() {
    let record: Vec<u8> = (0..10_000u32).map(|i| i as u8).collect();
    assert_eq!(cut(&fragmented(&record, || 2048), 10_000, || 1), [record]);
}

#[test]
fn a_record_of_one_fragment_is_a_slice_of_the_buffer() {
    let mut records = Records::new(1000);
    let buffer = records.buffer();
    for byte in [b'a', b'b'] {
        buffer.put_slice(&mark(true, 600));
        buffer.put_bytes(byte, 600);
    }
    let start = buffer.as_ptr() as usize;
    let first = records.next_record().unwrap().unwrap();
    let second = records.next_record().unwrap().unwrap();
    assert_eq!((first.as_ptr() as usize, second.as_ptr() as usize), (start + 4, start + 608));
    assert_eq!((&first[..], &second[..]), (&[b'a'; 600][..], &[b'b'; 600][..]));
}

#[test]
fn a_long_record_has_room_reserved_at_once() {
    let mut records = Records::new(1 << 20);
    records.buffer().put_slice(&mark(true, 1 << 20));
    assert_eq!(records.next_record(), Ok(None));
    assert!(records.buffer().capacity() >= 4 + (1 << 20));
}

#[test]
fn an_overrun_fails_without_room_for_it() {
    for len in [1001, 0x7fff_ffff] {
        let mut records = Records::new(1000);
        records.buffer().put_slice(&mark(true, len));
        assert_eq!(records.next_record(), Err(RecordTooLong { max: 1000 }));
        assert!(records.buffer().capacity() <= 2 * READ_BUFFER);
    }
}

#[test]
fn the_bound_holds_for_the_sum_of_fragments() {
    let mut records = Records::new(1000);
    let buffer = records.buffer();
    for _ in 0..2 {
        buffer.put_slice(&mark(false, 500));
        buffer.put_bytes(0, 500);
    }
    assert_eq!(records.next_record(), Ok(None));
    records.buffer().put_slice(&mark(true, 1));
    assert_eq!(records.next_record(), Err(RecordTooLong { max: 1000 }));
}

#[test]
fn empty_fragments_are_legal() {
    let stream =
        [&mark(false, 0)[..], &mark(false, 2), b"ab", &mark(false, 0), &mark(true, 0), &mark(true, 0)];
    assert_eq!(cut(&stream.concat(), 10, || 100), [&b"ab"[..], b""]);
}

#[test]
fn buffers_whose_records_are_gone_are_used_again() {
    let mut records = Records::new(1 << 20);
    let (mut held, mut starts) = (VecDeque::new(), std::collections::BTreeSet::new());
    for byte in 0..50 {
        let mut missing = 4 + (1 << 20);
        records.buffer().put_slice(&mark(true, 1 << 20));
        missing -= 4;
        while missing > 0 {
            let buffer = records.buffer();
            let some = missing.min(buffer.capacity() - buffer.len());
            buffer.put_bytes(byte, some);
            missing -= some;
        }
        let record = records.next_record().unwrap().unwrap();
        starts.insert(record.as_ptr() as usize);
        held.push_back((byte, record));
        if held.len() > 2 {
            let (byte, record) = held.pop_front().unwrap();
            assert!(record.iter().all(|b| *b == byte), "a buffer in use was written to");
        }
    }
    assert!(starts.len() <= SPARE_BUFFERS_MAX, "{} buffers", starts.len());
}
