//! What may have been executed, and what goes next.

use super::*;
use crate::journal::{Extent, Stored};
use home::New;

fn created(object: u64) -> Pending {
    let name = Name::new(b"n").unwrap();
    let op = Op::Create { dir: 1, name, new: New::Dir, mode: 0 };
    let time = Default::default();
    let change = Change { time, object, after: None, op, retry: None, verifier: None, plain: false };
    Pending {
        change,
        origin: 0,
        bytes: 0,
        demand: Demand::default(),
        fs: 0,
        since: Duration::ZERO,
        resent: false,
        parked: None,
        again: None,
        rebuilt: false,
        looked_at: 0,
        recovered: false,
        refusals: 0,
        late: false,
        stopped: None,
        frozen: false,
        said: None,
        overlaid: true,
        waiter: None,
    }
}

fn write(object: u64) -> Pending {
    let mut write = created(object);
    write.change.op = Op::Write { file: object, base: None, pieces: Vec::new() };
    write
}

#[test]
fn a_write_may_have_been_executed_from_when_it_is_sent_until_it_has_an_outcome() {
    let mut queue = Queue::default();
    queue.push(1, write(7));
    assert!(!queue.is_writing(7), "it has not been sent");
    queue.begin([1]);
    assert!(queue.is_writing(7) && !queue.is_writing(8));
    queue.end(true);
    assert!(queue.is_writing(7), "its answer is lost");
    queue.remove(1);
    assert!(!queue.is_writing(7));
}

/// Else what the home has of an object was counted as what is left of it after a change that it refused.
#[test]
fn an_answer_does_not_contain_what_was_refused_before_later_changes_were_done() {
    let mut queue = Queue::default();
    let late = Pending { late: true, ..created(2) };
    let parked = Pending { parked: Some(ErrorKind::Access), ..created(3) };
    for (seq, op) in [(1, created(1)), (2, late), (3, parked)] {
        queue.push(seq, op);
    }
    let contained = |queue: &Queue, applied| {
        let found = queue.iter().filter(|(seq, op)| queue.is_contained(*seq, op, applied));
        found.map(|(seq, _)| seq).collect::<Vec<_>>()
    };
    assert_eq!(contained(&queue, 0), Vec::<u64>::new());
    assert_eq!(contained(&queue, 4), [1]);
    queue.begin([2]);
    assert_eq!(contained(&queue, 4), [1, 2], "it may have been done");
}

#[test]
fn a_claim_asks_again_for_what_was_looked_for_and_not_found() {
    let mut queue = Queue::default();
    (1..=3).for_each(|seq| queue.push(seq, created(seq)));
    queue.begin([1, 2]);
    queue.end(true);
    assert_eq!(queue.in_question(), [1, 2]);
    queue.told(&Claimed { begun: vec![2], unknown: vec![1], restarted: true, ..Claimed::default() });
    queue.looked_for();
    assert!(queue.lost().next().is_none(), "no answer is lost that is not known to be");
    assert_eq!(queue.in_question(), [1, 2]);
    queue.remove(2);
    assert_eq!(queue.in_question(), [1]);
}

#[test]
fn what_may_have_been_executed_does_not_travel_with_what_was_never_sent() {
    let mut queue = Queue::default();
    (1..=2).for_each(|seq| queue.push(seq, write(7)));
    let unknown = vec![1, 2];
    queue.begin(unknown.clone());
    queue.end(true);
    queue.told(&Claimed { unknown, restarted: true, ..Claimed::default() });
    queue.looked_for();
    (3..=4).for_each(|seq| queue.push(seq, write(7)));
    let next = |queue: &Queue| -> Vec<Vec<u64>> {
        queue.select(Duration::MAX, u64::MAX).into_iter().map(|group| group.seqs).collect()
    };
    assert_eq!(next(&queue), [[1, 2]]);
    [1, 2].into_iter().for_each(|seq| drop(queue.remove(seq)));
    assert_eq!(next(&queue), [[3, 4]]);
}

/// It was more than goes otherwise in a batch, and nothing of it would go: its creation had its answer already.
#[test]
fn what_went_as_a_whole_goes_so_again_where_its_file_is_made() {
    let mut queue = Queue::default();
    for seq in 1..=24 {
        let extent = Extent { segment: 1, pos: 0, len: 1 << 20, crc: 0 };
        let mut write = write(7);
        let pieces = vec![home::Piece::Data((seq - 1) << 20, Stored::Extent(extent))];
        write.change.op = Op::Write { file: 7, base: None, pieces };
        queue.push(seq, write);
    }
    queue.told(&known(vec![24]));
    let groups = queue.select(Duration::ZERO, u64::MAX);
    let told: Vec<_> = groups.iter().map(|group| (group.seqs.len(), group.spooled)).collect();
    assert_eq!(told, [(24, true)]);
}

#[test]
fn batches_are_shorter_where_connections_do_not_live_long_enough_for_one() {
    let record = 512u32 << 10;
    let written = |at: u64| {
        let extent = Extent { segment: 1, pos: 0, len: record, crc: 0 };
        let mut write = write(7);
        let pieces = vec![home::Piece::Data(at * u64::from(record), Stored::Extent(extent))];
        write.change.op = Op::Write { file: 7, base: None, pieces };
        write
    };
    let mut queue = Queue::default();
    (1..=64).for_each(|seq| queue.push(seq, written(seq)));
    let next =
        |queue: &Queue| queue.select(Duration::ZERO, u64::MAX).iter().map(|g| g.seqs.len()).sum::<usize>();
    let whole = next(&queue);
    assert_eq!(whole as u64, limits::BATCH_BYTES / u64::from(record));
    (0..9).for_each(|_| queue.got_through(false));
    assert_eq!(next(&queue), whole >> limits::BATCH_HALVINGS, "what a short life is enough for");
    queue.got_through(true);
    assert_eq!(next(&queue), 2);
    let known = whole as u64;
    queue.told(&Claimed { begun: vec![known], ..Claimed::default() });
    assert_eq!(next(&queue), whole, "what the home knows goes as what it was");
}

#[test]
fn what_is_on_another_file_system_is_told_from_what_is_on_none() {
    let mut queue = Queue::default();
    [0, 5, 6].into_iter().zip(1..).for_each(|(fs, seq)| queue.push(seq, Pending { fs, ..created(seq) }));
    assert_eq!(queue.elsewhere(5), [3].into());
}

fn known(begun: Vec<u64>) -> Claimed {
    Claimed { begun, ..Claimed::default() }
}

fn next(queue: &Queue) -> Vec<Vec<u64>> {
    queue.select(Duration::ZERO, u64::MAX).into_iter().map(|group| group.seqs).collect()
}

/// Its place is the one that these have left: they may have moved its directory.
#[test]
fn what_was_refused_once_goes_behind_what_the_home_knows_of_later_changes() {
    let mut queue = Queue::default();
    queue.push(1, Pending { late: true, ..created(7) });
    queue.push(2, write(8));
    queue.told(&known(vec![2]));
    assert_eq!(next(&queue), [[2]]);
    queue.remove(2);
    assert_eq!(next(&queue), [[1]]);
}

/// A power cut may have left a part of a write in a file that an earlier operation, which was passed, is to take a name from: to
/// what the whole of it leaves.
#[test]
fn what_was_passed_goes_behind_a_torn_write_to_what_loses_a_name_by_it() {
    let name = |n: &str| Name::new(n.as_bytes()).unwrap();
    let rename = Op::Rename {
        from: 1,
        name: name("e"),
        object: 8,
        to: 1,
        new_name: name("a"),
        replaced: Some((7, None)),
    };
    let remove = Op::Remove { dir: 1, name: name("a"), object: 7, is_dir: false, base: None };
    let passed = |op: &Op<u64, Stored>, late| {
        let mut passed = Pending { late, ..created(if matches!(op, Op::Remove { .. }) { 7 } else { 8 }) };
        passed.change.op = op.clone();
        passed
    };
    let queue = |first: Pending, parked| {
        let mut queue = Queue::default();
        queue.push(1, first);
        (2..=3).for_each(|seq| queue.push(seq, Pending { parked, ..write(7) }));
        queue.push(4, write(9));
        queue
    };
    let cut = |mut queue: Queue| {
        queue.begin([1, 2, 3]);
        queue.end(true);
        let (unknown, torn) = (vec![1, 2, 3], vec![3]);
        queue.told(&Claimed { unknown, torn, restarted: true, ..Claimed::default() });
        queue.looked_for();
        queue
    };
    let mut torn = cut(queue(passed(&rename, true), None));
    assert_eq!(next(&torn), [[2, 3]]);
    let batch = torn.select(Duration::ZERO, 1);
    assert_eq!(batch.len(), 1, "it goes though only the first is to go");
    torn.push(5, passed(&rename, false));
    torn.remove(2);
    torn.remove(3);
    assert_eq!(next(&torn), [[1], [4], [5]]);
    let by_number = [&[1][..], &[2, 3], &[4]];
    assert_eq!(next(&queue(passed(&rename, true), None)), by_number, "nothing is torn");
    assert_eq!(next(&cut(queue(passed(&rename, false), None))), by_number, "it was not passed");
    assert_eq!(next(&cut(queue(passed(&remove, true), None))), by_number, "they would have waited for it");
    let parked = Some(ErrorKind::Access);
    assert_eq!(next(&cut(queue(passed(&rename, true), parked))), [&[1][..], &[4]]);
}

/// What was not passed keeps its place before a torn write; only a write that the home knows has earlier ones in it.
#[test]
fn nothing_goes_behind_a_torn_write_that_was_not_passed() {
    let late = || {
        let [name, new_name] = ["e", "a"].map(|name| Name::new(name.as_bytes()).unwrap());
        let mut late = Pending { late: true, ..created(8) };
        late.change.op = Op::Rename { from: 1, name, object: 8, to: 1, new_name, replaced: Some((7, None)) };
        late
    };
    let cut = |ops: Vec<Pending>, begun: &[u64]| {
        let mut queue = Queue::default();
        let all: Vec<u64> = (1..=ops.len() as u64).collect();
        ops.into_iter().zip(&all).for_each(|(op, seq)| queue.push(*seq, op));
        queue.begin(all.clone());
        queue.end(true);
        queue.told(&Claimed { unknown: all, restarted: true, ..Claimed::default() });
        queue.looked_for();
        if !begun.is_empty() {
            queue.told(&known(begun.to_vec()));
        }
        queue
    };
    let send = |queue: &mut Queue| {
        let batch = queue.select(Duration::ZERO, u64::MAX);
        assert!(queue.pass(Duration::ZERO, &batch).is_empty());
        let seqs: Vec<Vec<u64>> = batch.into_iter().map(|group| group.seqs).collect();
        seqs.iter().flatten().for_each(|seq| drop(queue.remove(*seq)));
        seqs
    };
    let mut same = cut(vec![write(7), late(), write(7)], &[]);
    assert_eq!([send(&mut same), send(&mut same)], [[[1, 3].to_vec()], [vec![2]]]);
    let mut other = cut(vec![write(9), late(), write(7)], &[]);
    assert_eq!((send(&mut other), send(&mut other)), (vec![vec![1], vec![3]], vec![vec![2]]));
    let mut followed = cut(vec![late(), write(8), write(7)], &[]);
    let batch = followed.select(Duration::ZERO, u64::MAX);
    assert_eq!(batch[0].seqs, [3]);
    assert_eq!(followed.pass(Duration::ZERO, &batch), [2], "what follows what was passed is passed, too");
    assert_eq!((followed.executed_last(&[2]), followed.executed_last(&[3])), (0, 3));
    let mut told = cut(vec![write(9), created(10), late(), write(7)], &[2]);
    let all = [send(&mut told), send(&mut told), send(&mut told)];
    assert_eq!(all, [vec![vec![2]], vec![vec![1], vec![4]], vec![vec![3]]]);
}

/// They would not have been executed before it: it was given another form since.
#[test]
fn what_known_changes_depend_on_goes_before_them() {
    let mut queue = Queue::default();
    queue.push(1, Pending { late: true, ..created(7) });
    queue.push(2, write(7));
    queue.told(&known(vec![2]));
    assert_eq!(next(&queue), [[1], [2]]);
}

/// Else what is refused for long would hold back all of the rest.
#[test]
fn nothing_goes_behind_a_known_change_that_waits_for_what_is_refused() {
    let mut queue = Queue::default();
    queue.push(1, Pending { late: true, ..created(7) });
    let refused = Some(ErrorKind::Access);
    queue.push(2, Pending { parked: refused, again: Some(Duration::MAX), late: true, ..write(8) });
    queue.push(3, write(8));
    queue.push(4, write(9));
    queue.told(&known(vec![2, 3]));
    assert_eq!(next(&queue), [[1], [4]]);
}

#[test]
fn what_waited_for_a_refused_change_is_known_to_have_been_passed_also_without_that() {
    let mut queue = Queue::default();
    let parked = Some(ErrorKind::NoSpace);
    queue.push(1, Pending { parked, again: Some(Duration::MAX), late: true, ..created(7) });
    [(2, 7), (3, 8), (4, 7)].into_iter().for_each(|(seq, object)| queue.push(seq, write(object)));
    let batch = queue.select(Duration::ZERO, u64::MAX);
    assert_eq!(next(&queue), [[3]]);
    assert_eq!(queue.pass(Duration::ZERO, &batch), [2], "the fourth is behind the batch, as it was");
    assert!(queue.pass(Duration::ZERO, &batch).is_empty(), "that is known");
    queue.remove(1);
    assert_eq!((queue.executed_last(&[2]), queue.executed_last(&[2, 4])), (0, 4));
}

/// After a restart all that waits may have been sent. A write of which a part is left goes alone even so: with what overwrites
/// it, the home could not tell that part from another program's bytes.
#[test]
fn what_the_power_cut_into_is_sent_again_as_what_it_was() {
    let mut queue = Queue::default();
    (1..=4).for_each(|seq| queue.push(seq, write(7)));
    queue.begin_again();
    let unknown = vec![1, 2, 3, 4];
    queue.told(&Claimed { unknown, torn: vec![2], restarted: true, ..Claimed::default() });
    queue.looked_for();
    assert_eq!(next(&queue), [[1, 2]]);
    [1, 2].into_iter().for_each(|seq| drop(queue.remove(seq)));
    assert_eq!(next(&queue), [[3, 4]]);
}

#[test]
fn a_name_may_have_been_given_by_what_comes_behind_and_may_have_been_executed() {
    let mut queue = Queue::default();
    (1..=4).for_each(|seq| queue.push(seq, created(10 + seq)));
    queue.begin([1, 2, 3]);
    queue.end(true);
    let name = Name::new(b"n").unwrap();
    let got = |queue: &Queue, seq, dir| queue.may_have_got(seq, dir, &name).collect::<Vec<_>>();
    assert_eq!(got(&queue, 1, 1), [12, 13], "the last was not sent");
    assert_eq!(got(&queue, 1, 2), [], "it is another directory's");
}

/// A restart that did not ask about all of them would change what the home has already.
#[test]
fn no_more_is_sent_without_a_durable_outcome_than_a_restart_asks_about() {
    let most = limits::BATCH_OPS as u64;
    let filled = || {
        let mut queue = Queue::default();
        // Whatever is written to one file can go as one operation.
        (1..most).for_each(|seq| queue.push(seq, created(10 + seq)));
        (most..most + 9).for_each(|seq| queue.push(seq, write(7)));
        queue.push(most + 9, write(8));
        queue
    };
    let mut queue = filled();
    assert!((1..most).all(|seq| queue.sends(&[seq].into())));
    assert!(queue.sends(&[most].into()) && !queue.sends(&[most + 9].into()));
    queue.recorded();
    assert!(queue.sends(&(most..most + 10).collect()));

    let mut restarted = filled();
    restarted.begin_again();
    assert_eq!(restarted.in_question(), (1..=most).collect::<Vec<_>>());
}
