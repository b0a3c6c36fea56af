//! What traces at a home prove.

use super::cut::{believe, disbelieve, disown, last_begun, show_by_other_names, torn_behind};
use super::*;
use crate::inode::tests::attr;
use home::Piece;

fn trace(seq: u64, op: Op<u64, crate::journal::Stored>, at: &str, mark: Option<Attr>) -> Trace {
    let change = Change {
        time: Default::default(),
        object: 7,
        after: None,
        op,
        retry: None,
        verifier: None,
        plain: false,
    };
    let place = Some(HomePath::parse(at.as_bytes()).unwrap());
    let (there, at_old_name, old_place, replaced) = (mark, None, None, None);
    let (late, half, moot, durable) = (false, false, false, false);
    Trace { seq, change, late, mark, there, at_old_name, place, old_place, half, replaced, moot, durable }
}

fn rename(seq: u64, object: u64, (from, to): (&str, &str)) -> Trace {
    let name = |path: &str| HomePath::parse(path.as_bytes()).unwrap().split().unwrap().1;
    let (name, new_name) = (name(from), name(to));
    let op = Op::Rename { from: 1, name, object, to: 2, new_name, replaced: None };
    let mut t = trace(seq, op, to, None);
    t.change.object = object;
    t.old_place = Some(HomePath::parse(from.as_bytes()).unwrap());
    t
}

fn ends(traces: &[Trace]) -> HashMap<u64, u64> {
    run_ends(traces.iter().map(|t| (t.seq, &t.change)), &HashSet::new())
}

#[test]
fn what_is_in_a_directory_that_was_not_moved_is_somewhere() {
    let mut traces = [rename(3, 5, ("old", "new")), rename(4, 7, ("new/f", "g"))];
    let known = |id| Some(home::HomeId { fs: 1, ino: id, generation: 0 });
    let nowhere =
        |traces: &[Trace], last| nowhere(traces, last, &led_astray(traces, last), known, |_, _| false);
    assert!(!nowhere(&traces, 0).contains(&7), "it may still be old/f");
    assert!(nowhere(&traces, 3).contains(&7), "it would be new/f");
    traces[0].late = true;
    assert!(!nowhere(&traces, 3).contains(&7), "later ones may have passed the move");
    traces[0].mark = Some(attr(Kind::Dir, 9));
    assert!(nowhere(&traces, 3).contains(&7), "the move was done");
    traces[0].mark = None;
    traces[1].old_place = HomePath::parse(b"new").ok();
    assert!(nowhere(&traces, 0).contains(&7), "the directory itself is no place in it");
}

#[test]
fn what_got_another_identity_by_a_write_is_somewhere() {
    let write = Op::Write { file: 7, base: None, pieces: vec![] };
    let known = |id| Some(home::HomeId { fs: 1, ino: id, generation: 0 });
    let mut traces = [trace(3, write, "f", None), rename(4, 7, ("f", "g"))];
    assert!(nowhere(&traces, 0, &HashSet::new(), known, |_, _| false).contains(&7));
    let copied = attr(Kind::File, 9);
    (traces[0].mark, traces[0].there, traces[1].at_old_name) = (Some(copied), Some(copied), Some(copied));
    assert_ne!(known(7), Some(copied.id));
    assert!(!nowhere(&traces, 0, &HashSet::new(), known, |_, _| false).contains(&7));
}

#[test]
fn a_write_shows_itself_by_a_name_that_is_left_of_its_file() {
    let write = |file| Op::Write { file, base: None, pieces: vec![] };
    let path = |at: &str| HomePath::parse(at.as_bytes()).unwrap();
    let mut traces = [trace(3, write(7), "gone", None), trace(4, write(8), "gone", None)];
    traces[1].change.object = 8;
    let names = HashMap::from([(7, vec![path("gone"), path("left")]), (8, vec![path("gone")])]);
    let there = attr(Kind::File, 9);
    let found = Found::from([(path("gone"), None), (path("left"), Some(there))]);
    show_by_other_names(&mut traces, &names, &found, |_, _| false);
    assert!(traces.iter().all(|t| t.mark.is_none()), "it is not what they leave");
    show_by_other_names(&mut traces, &names, &found, |_, there| there.id.ino == 9);
    assert_eq!(traces.each_ref().map(|t| t.mark), [Some(there), None]);
}

#[test]
fn what_was_renamed_over_another_is_known_by_its_new_name() {
    let name = |n: &str| Name::new(n.as_bytes()).unwrap();
    let create = Op::Create { dir: 1, name: name("new"), new: New::File, mode: 0 };
    let write = Op::Write { file: 7, base: None, pieces: vec![] };
    let rename = Op::Rename {
        from: 1,
        name: name("new"),
        object: 7,
        to: 1,
        new_name: name("old"),
        replaced: Some((6, None)),
    };
    let there = attr(Kind::File, 9);
    let mut traces =
        [trace(1, create, "new", None), trace(2, write, "new", None), trace(3, rename, "old", Some(there))];
    for (half, last) in [(true, 2), (false, 3)] {
        traces[2].half = half;
        let proven: Vec<_> =
            proven(&traces, &[], &ends(&traces), 0).into_iter().map(|(t, mark)| (t.seq, mark)).collect();
        assert_eq!(proven, (1..=last).map(|seq| (seq, Some(there))).collect::<Vec<_>>());
    }
}

#[test]
fn a_later_record_with_the_same_mark_does_not_prove_a_half_done_rename() {
    let there = Some(attr(Kind::File, 9));
    let mut over = rename(3, 7, ("new", "old"));
    (over.mark, over.half) = (there, true);
    let name = home::Name::new(b"old").unwrap();
    let remove = Op::Remove { dir: 2, name: name.clone(), object: 7, is_dir: false, base: None };
    let link = trace(5, Op::Link { object: 7, dir: 2, name }, "old", there);
    let mut traces = [over, trace(4, remove, "old", None), link];
    assert_eq!(last_shown(&traces, 0), 2);
    traces[0].half = false;
    assert_eq!(last_shown(&traces, 0), 3, "the first of them");
}

#[test]
fn a_record_after_which_there_would_be_a_name_that_is_gone_is_not_the_last() {
    let there = Some(attr(Kind::File, 9));
    let name = home::Name::new(b"d").unwrap();
    let link = trace(3, Op::Link { object: 7, dir: 2, name: name.clone() }, "d", there);
    let mut remove = trace(4, Op::Remove { dir: 2, name, object: 7, is_dir: false, base: None }, "d", None);
    (remove.place, remove.old_place) = (None, remove.place);
    let mut away = rename(5, 7, ("x/b", "d"));
    away.mark = there;
    let mut traces = vec![link, remove, away];
    assert_eq!(last_shown(&traces, 0), 5, "x/b would be there after the link");
    traces.insert(2, rename(4, 8, ("y", "x")));
    assert_eq!(last_shown(&traces, 0), 3, "it would be y/b");
    traces.remove(2);
    traces[2].at_old_name = there;
    assert_eq!(last_shown(&traces, 0), 3, "it is there");
    traces[2].at_old_name = None;
    traces.insert(2, rename(4, 8, ("x/b", "c")));
    assert_eq!(last_shown(&traces, 0), 4, "another one that had it was moved away");
}

#[test]
fn what_a_durable_move_left_is_no_mark_of_a_later_one_though_its_old_name_was_given_again() {
    let (there, other) = (Some(attr(Kind::File, 9)), Some(attr(Kind::File, 8)));
    let mut first = rename(3, 7, ("a", "b"));
    (first.late, first.there, first.at_old_name) = (true, there, there);
    let mut again = rename(6, 7, ("f", "b"));
    (again.mark, again.there, again.at_old_name) = (there, there, other);
    let mut traces = [first, rename(4, 7, ("e", "a")), rename(5, 7, ("b", "f")), again];
    assert_eq!(last_shown(&traces, 4), 6, "the first may be half done");
    traces[0].durable = true;
    assert_eq!(last_shown(&traces, 4), 4);
}

#[test]
fn a_move_to_a_name_that_its_object_had_before_is_known_by_the_name_that_is_gone() {
    let there = Some(attr(Kind::File, 9));
    let known = |id| (id == 7).then_some(there?.id);
    let link = Op::Link { object: 7, dir: 2, name: Name::new(b"d").unwrap() };
    let mut back = rename(6, 7, ("d", "e"));
    back.there = there;
    let mut traces = [rename(4, 7, ("e", "a")), trace(5, link, "d", None), back];
    let shows = |id, there: &Attr| known(id) == Some(there.id) || id == 8 && there.id.ino == 28;
    believe(&mut traces, 4..=u64::MAX, known, shows);
    assert_eq!(last_shown(&traces, 4), 4, "d may not have been made");
    believe(&mut traces, 5..=u64::MAX, |_| None, shows);
    assert_eq!(last_shown(&traces, 5), 5, "e may be another object");
    believe(&mut traces, 5..=u64::MAX, known, shows);
    assert_eq!(last_shown(&traces, 5), 6);
    let half = &mut traces[2];
    (half.mark, half.half, half.at_old_name) = (None, true, Some(attr(Kind::File, 28)));
    if let Op::Rename { replaced, .. } = &mut half.change.op {
        *replaced = Some((8, None));
    }
    believe(&mut traces, 5..=u64::MAX, known, shows);
    assert_eq!(traces[2].replaced.map(|old| old.id.ino), Some(28), "each has the other's name");
    assert_eq!(last_shown(&traces, 5), 5);
}

#[test]
fn a_move_back_is_known_also_where_a_write_gave_its_object_another_identity() {
    let [before, written] = [9, 28].map(|ino| attr(Kind::File, ino));
    let last = |known: Option<home::HomeId>, shown: u64| {
        let mut back = rename(3, 7, ("n", "f"));
        back.there = Some(written);
        let mut traces = [rename(2, 7, ("f", "n")), back];
        believe(&mut traces, 2..=3, |_| known, |id, there| id == 7 && there.id.ino == shown);
        last_shown(&traces, 2)
    };
    assert_eq!(last(Some(before.id), written.id.ino), 3, "it is what the write left");
    assert_eq!(last(Some(before.id), before.id.ino), 2, "another file has the name");
    assert_eq!(last(None, written.id.ino), 2, "it was not there before");
}

/// What was refused once, and what waited for it, may have been passed by all that is known to have been executed.
#[test]
fn a_move_of_what_may_never_have_come_there_is_not_known_by_the_name_that_is_gone() {
    let there = Some(attr(Kind::File, 9));
    let known = |id| (id == 7).then_some(there?.id);
    let traces = || {
        let link = Op::Link { object: 7, dir: 1, name: Name::new(b"c").unwrap() };
        let remove =
            Op::Remove { dir: 2, name: Name::new(b"e").unwrap(), object: 7, is_dir: false, base: None };
        let mut further = rename(89, 7, ("f/c", "f/f"));
        if let Op::Rename { to, .. } = &mut further.change.op {
            *to = 1;
        }
        let mut back = rename(107, 7, ("f/f", "e"));
        back.there = there;
        let mut all = vec![trace(60, link, "f/c", None), trace(62, remove, "e", None), further, back];
        all[..3].iter_mut().for_each(|t| t.late = true);
        all
    };
    let is_done = |mut traces: Vec<Trace>| {
        believe(&mut traces, 106..=u64::MAX, known, |id, there| known(id) == Some(there.id));
        traces.pop().unwrap().mark.is_some()
    };
    assert!(!is_done(traces()), "the link was never made");
    let mut durable = traces();
    durable[0].durable = true;
    assert!(is_done(durable));
    let further = || traces().split_off(1);
    assert!(is_done(further()), "what had the name was there before");
    let mut not_left = further();
    not_left[1].at_old_name = there;
    assert!(!is_done(not_left), "it has the old name still");
}

#[test]
fn a_write_that_others_passed_is_not_durable_for_its_place_in_the_order() {
    let write = |late| {
        let mut write = trace(75, Op::Write { file: 7, base: None, pieces: vec![] }, "f", None);
        (write.late, write.change.after) = (late, Some(attr(Kind::File, 9)));
        write
    };
    for late in [false, true] {
        let traces = [write(late)];
        let mut proven = vec![(&traces[0], None)];
        again(&mut proven, &HashSet::new(), 106, &HashSet::new());
        assert_eq!(proven.is_empty(), late);
    }
}

#[test]
fn another_directory_of_the_same_age_is_not_the_one_that_is_to_be_moved_there() {
    let [object, other] = [9, 28].map(|ino| attr(Kind::Dir, ino));
    let known = Some(object.id);
    assert!(!may_be_moved(known, &other, Some(&object)));
    assert!(may_be_moved(known, &object, Some(&other)), "each may have the other's name");
    assert!(may_be_moved(known, &other, None), "a write may have given it another identity");
    assert!(may_be_moved(None, &other, Some(&object)));
}

#[test]
fn what_a_half_done_move_left_under_its_old_name_is_no_mark_of_a_later_record() {
    let (moved, there) = (attr(Kind::File, 9), attr(Kind::File, 28));
    let mut half = rename(3, 7, ("a", "e"));
    if let Op::Rename { replaced, .. } = &mut half.change.op {
        *replaced = Some((8, None));
    }
    (half.mark, half.half, half.replaced, half.at_old_name) = (Some(moved), true, Some(there), Some(there));
    let mut between = rename(4, 8, ("f", "c"));
    between.at_old_name = Some(there);
    let mut back = rename(5, 8, ("c", "a"));
    (back.mark, back.there) = (Some(there), Some(there));
    let known = |id| (id == 8).then_some(there.id);
    let mut traces = [half, between, back];
    disbelieve(&mut traces, known);
    assert_eq!(last_shown(&traces, 0), 2, "the move is half done, and no more was");
    traces[2].mark = Some(there);
    traces[1].at_old_name = None;
    disbelieve(&mut traces, known);
    assert_eq!(last_shown(&traces, 0), 5);
}

#[test]
fn what_waits_for_a_refused_operation_is_not_proven_by_its_place() {
    let name = |n: &str| Name::new(n.as_bytes()).unwrap();
    let create = Op::Create { dir: 1, name: name("new"), new: New::File, mode: 0 };
    let rename =
        |to| Op::Rename { from: 1, name: name("new"), object: 7, to: 1, new_name: name(to), replaced: None };
    let mut other = trace(3, rename("else"), "else", Some(attr(Kind::File, 9)));
    (other.change.object, other.change.op) = (8, Op::Write { file: 8, base: None, pieces: vec![] });
    let traces = [trace(2, rename("old"), "old", None), other];
    let seqs = |refused: &[_]| -> Vec<u64> {
        proven(&traces, refused, &ends(&traces), 0).into_iter().map(|(t, _)| t.seq).collect()
    };
    assert_eq!(seqs(&[]), [2, 3]);
    assert_eq!(seqs(&[(1, trace(1, create.clone(), "new", None).change)]), [3]);
    assert_eq!(seqs(&[(4, trace(4, create, "new", None).change)]), [2, 3]);
}

#[test]
fn a_write_that_travelled_with_one_that_was_not_executed_is_not_proven_by_its_place() {
    let write = |seq| trace(seq, Op::Write { file: 7, base: None, pieces: vec![] }, "f", None);
    let (traces, unsent) = ([write(1)], [write(1), write(3)]);
    assert!(proven(&traces, &[], &ends(&unsent), 2).is_empty());
    assert_eq!(proven(&traces, &[], &ends(&traces), 2).len(), 1, "it went alone");
}

#[test]
fn what_was_sent_with_a_torn_write_is_done_again() {
    let write = || Op::Write { file: 7, base: None, pieces: vec![] };
    let there = Some(attr(Kind::File, 9));
    let set = Op::SetXattr {
        object: 7,
        name: home::XattrName::new(b"user.a").unwrap(),
        value: None,
        how: home::XattrHow::Any,
    };
    let traces = [
        trace(1, write(), "f", there),
        trace(2, set, "f", None),
        trace(3, write(), "f", there),
        trace(4, write(), "f", there),
        trace(5, write(), "f", there),
    ];
    assert_eq!(
        sent_with(&traces, HashSet::from([4]), &HashSet::from([1, 3])),
        HashSet::from([4]),
        "3 was durable"
    );
    let torn = sent_with(&traces, HashSet::from([4]), &HashSet::new());
    assert_eq!(torn, HashSet::from([3, 4]));
    let own = run_ends(traces.iter().map(|t| (t.seq, &t.change)), &HashSet::from([3]));
    assert_eq!([1, 3, 4, 5].map(|seq| own[&seq]), [1, 3, 5, 5]);
    let mut proven = proven(&traces, &[], &ends(&traces), 5);
    again(&mut proven, &torn, 5, &HashSet::new());
    assert_eq!(proven.into_iter().map(|(t, _)| t.seq).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn a_name_that_shows_its_object_proves_nothing_of_what_was_written_to_it() {
    let made = attr(Kind::File, 9);
    let name = |n: &str| Name::new(n.as_bytes()).unwrap();
    let create = Op::Create { dir: 1, name: name("new"), new: New::File, mode: 0 };
    let after = Attr { mtime: made.mtime.next(), size: 7, ..made };
    let mut traces = [
        trace(1, create, "new", None),
        trace(2, Op::Write { file: 7, base: None, pieces: vec![] }, "new", None),
        rename(3, 7, ("new", "old")),
    ];
    traces.iter_mut().for_each(|t| t.change.after = Some(after));
    traces[0].change.after = Some(made);
    // Nor do the time and the length that the write left.
    for there in [made, after] {
        for (synced, done) in [(&[][..], &[1, 3][..]), (&[2], &[1, 2, 3])] {
            traces[2].mark = Some(there);
            let mut proven = proven(&traces, &[], &ends(&traces), 1);
            again(&mut proven, &HashSet::new(), 1, &synced.iter().copied().collect());
            assert_eq!(proven.into_iter().map(|(t, _)| t.seq).collect::<Vec<_>>(), done);
        }
    }
}

#[test]
fn of_writes_that_leave_the_same_mark_the_first_is_proven() {
    let there = attr(Kind::File, 9);
    let write = |seq| trace(seq, Op::Write { file: 7, base: None, pieces: vec![] }, "f", Some(there));
    let mut traces = [write(1), write(2), write(3)];
    traces.iter_mut().for_each(|t| t.change.after = Some(there));
    traces[2].change.after = Some(Attr { size: there.size + 1, ..there });
    only_first(&mut traces);
    assert_eq!(traces.map(|t| t.mark), [Some(there), None, Some(there)]);
}

#[test]
fn what_a_home_had_not_begun_when_its_power_failed_is_no_move_of_ours() {
    let there = Some(attr(Kind::File, 9));
    let write = Op::Write { file: 7, base: None, pieces: vec![] };
    let link = Op::Link { object: 7, dir: 2, name: Name::new(b"d").unwrap() };
    let traces = || {
        let mut moves = [rename(4, 7, ("e", "a")), rename(5, 7, ("a", "b"))];
        moves.iter_mut().for_each(|t| t.mark = there);
        let [first, second] = moves;
        [trace(3, write.clone(), "e", None), first, second, trace(6, link.clone(), "d", there)]
    };
    let shown = |ran, late: bool| {
        let mut traces = traces();
        traces[1].late = late;
        let last = last_begun(&traces, &Executed { told: ran, ..Executed::default() });
        disown(&mut traces, last);
        last_shown(&traces, 0)
    };
    assert_eq!(shown(None, false), 6, "it does not tell");
    assert_eq!(shown(Some(2), false), 0, "no move was the first");
    assert_eq!(shown(Some(3), false), 4);
    assert_eq!(shown(Some(3), true), 5, "one that was refused may have been passed");
    assert_eq!(shown(Some(5), false), 6);
    for (time, is_shown) in [(4, false), (6, true)] {
        let mut traces = [rename(6, 7, ("e", "a")), trace(7, write.clone(), "e", there)];
        (traces[0].change.time.sec, traces[1].change.time.sec) = (5, time);
        disown(&mut traces, 6);
        assert_eq!(traces[1].mark.is_some(), is_shown, "what is written once more has an earlier time");
    }
    let known = |id| (id == 7).then_some(there?.id);
    let mut back = rename(6, 7, ("d", "e"));
    back.there = there;
    for (last, is_done) in [(5, false), (6, true)] {
        let mut traces = [trace(5, link.clone(), "d", None), back];
        believe(&mut traces, 5..=last, known, |id, there| known(id) == Some(there.id));
        back = traces.into_iter().nth(1).unwrap();
        assert_eq!(back.mark.is_some(), is_done);
    }
}

#[test]
fn what_a_home_had_begun_when_its_power_failed_was_the_first_in_order() {
    let write = |seq, object| {
        let mut t = trace(seq, Op::Write { file: object, base: None, pieces: vec![] }, "f", None);
        t.change.object = object;
        t
    };
    let traces = [write(3, 7), write(4, 8), write(6, 7), rename(7, 8, ("f", "g")), write(9, 7)];
    let last = |told, passed: &[u64]| {
        let passed = passed.iter().copied().collect();
        last_begun(&traces, &Executed { told, passed, ..Executed::default() })
    };
    assert_eq!(last(None, &[]), u64::MAX, "it does not tell");
    assert_eq!(last(Some(2), &[]), 4, "the first write may have travelled with later ones, behind this one");
    assert_eq!(last(Some(2), &[4]), 7, "that one may not have gone");
    assert_eq!(last(Some(4), &[]), 7);
    assert_eq!(last(Some(7), &[]), 9);
    assert_eq!(last(Some(9), &[]), u64::MAX);
    let astray = |told, seq| {
        last_begun(&traces, &Executed { told: Some(told), astray: [seq].into(), ..Executed::default() })
    };
    assert_eq!(
        [2, 4].map(|told| astray(told, 4)),
        [u64::MAX, 7],
        "what goes behind it is told as well as it"
    );
    assert_eq!([2, 4].map(|told| astray(told, 7)), [4, u64::MAX]);
}

#[test]
fn what_no_change_of_ours_can_have_left_is_others() {
    let write = |pieces: Vec<Piece<crate::journal::Stored>>, size| {
        let mut t = trace(3, Op::Write { file: 7, base: None, pieces }, "f", None);
        t.change.after = Some(Attr { size, ..attr(Kind::File, 9) });
        t
    };
    let data = |at| Piece::Data(at, crate::journal::Stored::Inline(vec![b'x'; 8].into()));
    let append = write(vec![data(8)], 16);
    let rewrite = write(vec![Piece::Truncate(4), data(4)], 12);
    let may = |new, begun: &[&Trace]| cut::may_leave(8, new, begun.iter().map(|t| &t.change));
    assert!(!may(8, &[]), "nothing was begun, and it has changed");
    for (len, of_append, of_rewrite) in [
        (3, false, false),
        (4, false, true),
        (8, true, true),
        (12, true, true),
        (13, true, false),
        (17, false, false),
    ] {
        assert_eq!((may(len, &[&append]), may(len, &[&rewrite])), (of_append, of_rewrite), "{len}");
        assert_eq!(may(len, &[&append, &rewrite]), of_append || of_rewrite, "{len}");
    }
}

/// It found no room at first, was done then, and its answer was lost with the home's power.
#[test]
fn what_was_refused_once_is_done_where_a_later_record_shows_itself_that_waits_for_it() {
    let there = Some(attr(Kind::File, 9));
    let create = Op::Create { dir: 1, name: Name::new(b"new").unwrap(), new: New::File, mode: 0 };
    let write = Op::Write { file: 7, base: None, pieces: vec![] };
    let shown = |object, mark| {
        let mut traces = [
            trace(3, create.clone(), "new", None),
            trace(4, write.clone(), "new", None),
            rename(5, object, ("new", "old")),
        ];
        (traces[0].late, traces[2].mark) = (true, mark);
        proven(&traces, &[], &ends(&traces), 0).into_iter().map(|(t, _)| t.seq).collect::<Vec<_>>()
    };
    assert_eq!(shown(7, there), [3, 4, 5]);
    assert!(shown(7, None).is_empty(), "nothing shows itself");
    let other = |name: &str| rename(5, 8, (name, "old"));
    let passed = [trace(3, create.clone(), "new", None), other("else")];
    let [mut first, mut second] = passed;
    (first.late, second.mark) = (true, there);
    let traces = [first, second];
    let seqs: Vec<_> = proven(&traces, &[], &ends(&traces), 0).into_iter().map(|(t, _)| t.seq).collect();
    assert_eq!(seqs, [5], "that does not wait for it");
    let mut traces = [trace(3, create.clone(), "new", there), trace(4, write, "new", None), other("else")];
    (traces[0].late, traces[2].mark) = (true, there);
    let seqs: Vec<_> = proven(&traces, &[], &ends(&traces), 5).into_iter().map(|(t, _)| t.seq).collect();
    assert_eq!(seqs, [3, 5], "what waited for it may not have been executed when a later one was");
}

/// It was done then, with all that came after it, and what it made was replaced once and again.
#[test]
fn what_was_refused_once_is_done_where_a_later_record_shows_itself_that_waits_for_what_waits_for_it() {
    let over = |seq, object, from, old| {
        let mut t = rename(seq, object, (from, "old"));
        if let Op::Rename { replaced, .. } = &mut t.change.op {
            *replaced = Some((old, None));
        }
        t
    };
    let create = Op::Create { dir: 1, name: Name::new(b"new").unwrap(), new: New::File, mode: 0 };
    let mut traces = [
        trace(3, create, "new", None),
        rename(4, 7, ("new", "old")),
        over(5, 8, "second", 7),
        rename(6, 10, ("else", "other")),
        over(7, 9, "third", 8),
    ];
    let shown = |traces: &[Trace]| {
        proven(traces, &[], &ends(traces), 0).into_iter().map(|(t, _)| t.seq).collect::<Vec<_>>()
    };
    traces[0].late = true;
    traces[3].mark = Some(attr(Kind::File, 29));
    assert_eq!(shown(&traces), [6], "it passed all of them");
    traces[4].mark = Some(attr(Kind::File, 28));
    assert_eq!(shown(&traces), [3, 4, 5, 6, 7]);
}

#[test]
fn what_waits_for_a_refused_move_is_not_gone_from_where_that_would_have_brought_it() {
    let refused = [(3, rename(3, 7, ("f", "a")).change)];
    let remove = |seq, object, name: &str| {
        let name = Name::new(name.as_bytes()).unwrap();
        let mut t = trace(seq, Op::Remove { dir: 2, name, object, is_dir: false, base: None }, "x", None);
        t.change.object = object;
        t
    };
    let mut next = rename(6, 9, ("g", "b"));
    next.change.object = 9;
    let traces = [remove(2, 7, "z"), remove(4, 7, "a"), remove(5, 8, "b"), next];
    let behind = behind_refused(&traces, &refused);
    assert_eq!(behind, HashSet::from([4]));
}

/// A power cut may have undone the moves.
#[test]
fn what_was_refused_once_is_not_done_where_an_earlier_record_leaves_the_same_mark() {
    let there = Some(attr(Kind::File, 9));
    let create = Op::Create { dir: 2, name: Name::new(b"b").unwrap(), new: New::File, mode: 0 };
    let mut traces = [trace(1, create, "b", there), rename(2, 7, ("b", "d")), rename(3, 7, ("d", "b"))];
    (traces[1].at_old_name, traces[2].mark) = (there, there);
    traces.iter_mut().for_each(|t| t.late = true);
    let shown = |traces: &[Trace]| -> Vec<u64> {
        proven(traces, &[], &ends(traces), 0).iter().map(|(t, _)| t.seq).collect()
    };
    assert_eq!(shown(&traces), [1]);
    traces[1].durable = true;
    assert_eq!(shown(&traces), [1, 2]);
    traces[2].durable = true;
    assert_eq!(shown(&traces), [1, 2, 3]);
}

/// Its mark is there before what it replaced has gone.
#[test]
fn what_was_refused_once_and_is_half_done_is_done_again() {
    let there = Some(attr(Kind::File, 9));
    let mut over = rename(4, 7, ("new", "old"));
    (over.late, over.half, over.mark) = (true, true, there);
    let mut traces = [over, rename(5, 7, ("old", "else"))];
    let shown = |traces: &[Trace]| {
        proven(traces, &[], &ends(traces), 0).into_iter().map(|(t, _)| t.seq).collect::<Vec<_>>()
    };
    assert!(shown(&traces).is_empty());
    traces[1].mark = there;
    assert_eq!(shown(&traces), [4, 5], "a later one waited for it");
    (traces[0].half, traces[1].mark) = (false, None);
    assert_eq!(shown(&traces), [4]);
}

/// What it made is gone again, so that it shows itself nowhere.
#[test]
fn what_was_refused_once_is_done_where_the_home_knows_it_or_what_waited_for_it_to_be_durable() {
    let create = |seq, name: &[u8]| {
        let op = Op::Create { dir: 1, name: Name::new(name).unwrap(), new: New::File, mode: 0 };
        trace(seq, op, std::str::from_utf8(name).unwrap(), None)
    };
    let write = || Op::Write { file: 7, base: None, pieces: vec![] };
    let mut traces = [
        create(3, b"new"),
        trace(4, write(), "new", None),
        trace(6, write(), "new", None),
        create(7, b"else"),
    ];
    (traces[0].late, traces[3].change.object) = (true, 8);
    (traces[3].mark, traces[3].late) = (Some(attr(Kind::File, 9)), false);
    let done = |traces: &[Trace]| {
        let mut proven = proven(traces, &[], &ends(traces), 0);
        let synced = traces.iter().filter(|t| t.durable).map(|t| t.seq).collect();
        again(&mut proven, &HashSet::new(), 0, &synced);
        proven.into_iter().map(|(t, _)| t.seq).collect::<Vec<_>>()
    };
    assert_eq!(done(&traces), [7]);
    (traces[1].durable, traces[2].durable) = (true, true);
    assert_eq!(done(&traces), [3, 4, 6, 7]);
}

/// A removal leaves nothing by which it would be seen, and what was written before it is where it leaves the file.
#[test]
fn a_removal_that_was_refused_once_is_done_where_the_home_knows_it() {
    let name = Name::new(b"name").unwrap();
    let remove = Op::Remove { dir: 1, name, object: 7, is_dir: false, base: None };
    let mut traces = [
        trace(4, Op::Write { file: 7, base: None, pieces: vec![] }, "name", None),
        trace(5, remove, "name", None),
    ];
    traces.iter_mut().for_each(|t| t.late = true);
    let done = |traces: &[Trace]| {
        proven(traces, &[], &ends(traces), 0).into_iter().map(|(t, _)| t.seq).collect::<Vec<_>>()
    };
    assert!(done(&traces).is_empty());
    traces[1].durable = true;
    assert_eq!(done(&traces), [4, 5]);
}

#[test]
fn what_was_written_before_two_files_changed_places_is_durable() {
    let (moved, there) = (attr(Kind::File, 9), attr(Kind::File, 28));
    let write = |seq, object, after| {
        let mut t = trace(seq, Op::Write { file: object, base: None, pieces: vec![] }, "a", None);
        (t.change.object, t.change.after) = (object, Some(after));
        t
    };
    let mut half = rename(5, 7, ("a", "e"));
    if let Op::Rename { replaced, .. } = &mut half.change.op {
        *replaced = Some((8, None));
    }
    (half.mark, half.half, half.replaced, half.at_old_name) = (Some(moved), true, Some(there), Some(there));
    let longer = Attr { size: there.size + 1, ..there };
    let writes = [write(1, 7, moved), write(2, 8, there), write(3, 8, longer), write(4, 6, moved)];
    let mut traces = writes.into_iter().chain([half, write(6, 7, moved)]).collect::<Vec<_>>();
    assert_eq!(synced_by_exchange(&traces), HashSet::from([1, 2]));
    for (synced, done) in [(HashSet::new(), &[][..]), (HashSet::from([1, 2]), &[1, 2])] {
        let mut proven: Vec<_> = traces[..4].iter().map(|t| (t, None)).collect();
        again(&mut proven, &HashSet::new(), 0, &synced);
        assert_eq!(proven.into_iter().map(|(t, _)| t.seq).collect::<Vec<_>>(), done);
    }
    traces[4].half = false;
    assert_eq!(synced_by_exchange(&traces), HashSet::new(), "it is over");
}

#[test]
fn a_name_that_was_certainly_taken_away_again_is_of_a_later_record() {
    let name = Name::new(b"b").unwrap();
    let create = Op::Create { dir: 1, name, new: New::File, mode: 0 };
    let mut traces = [
        trace(24, create, "b", None),
        rename(25, 7, ("b", "f")),
        rename(26, 7, ("f", "d")),
        rename(40, 7, ("d", "b")),
    ];
    traces[3].mark = Some(attr(Kind::File, 9));
    assert_eq!(last_shown(&traces, 27), 40);
    assert_eq!(last_shown(&traces, 24), 24, "it may still be what was made there");
}

/// All of them were refused or passed once.
#[test]
fn what_was_refused_once_is_done_where_one_that_was_passed_shows_itself_and_waits_for_it() {
    let name = || Name::new(b"c").unwrap();
    let remove = Op::Remove { dir: 2, name: name(), object: 7, is_dir: false, base: None };
    let create = Op::Create { dir: 2, name: name(), new: New::File, mode: 0 };
    let mut traces = [rename(3, 7, ("a", "c")), trace(4, remove, "c", None), trace(5, create, "c", None)];
    traces[2].change.object = 8;
    traces.iter_mut().for_each(|t| t.late = true);
    let shown = |t: &[Trace]| proven(t, &[], &ends(t), 0).iter().map(|(t, _)| t.seq).collect::<Vec<_>>();
    assert!(shown(&traces).is_empty());
    traces[2].mark = Some(attr(Kind::File, 9));
    assert_eq!(shown(&traces), [3, 4, 5]);
}

#[test]
fn what_has_the_new_name_of_a_move_may_be_what_a_torn_write_behind_it_left() {
    let write = |seq, at| trace(seq, Op::Write { file: 7, base: None, pieces: vec![] }, at, None);
    let mut traces = [write(3, "a"), rename(4, 7, ("a", "b")), write(5, "b"), write(6, "c")];
    let is_torn = |traces: &[Trace], torn| torn_behind(traces, 1, &HashSet::from([torn]));
    assert!(is_torn(&traces, 5));
    assert!(!is_torn(&traces, 3), "that was written before the move");
    assert!(!is_torn(&traces, 6), "it has another name by then");
    traces[2].change.object = 8;
    assert!(!is_torn(&traces, 5), "another file was written");
    traces[2].change.object = 7;
    traces[1].at_old_name = Some(attr(Kind::File, 9));
    assert!(!is_torn(&traces, 5), "its old name is there");
}

#[test]
fn a_move_that_has_freed_its_new_name_leaves_the_old_one() {
    let known = |id| [7, 8].contains(&id).then_some(attr(Kind::File, id + 2).id);
    let freed = |t: &Trace, last| !cut::freed(std::slice::from_ref(t), |t| t.seq <= last, known).is_empty();
    let mut over = rename(4, 7, ("a", "b"));
    over.at_old_name = Some(attr(Kind::File, 9));
    assert!(!freed(&over, 4), "nothing had that name");
    if let Op::Rename { replaced, .. } = &mut over.change.op {
        *replaced = Some((6, None));
    }
    assert!(!freed(&over, 4), "nobody has seen that anything had it");
    if let Op::Rename { replaced, .. } = &mut over.change.op {
        *replaced = Some((8, None));
    }
    assert!(freed(&over, 4));
    assert!(!freed(&over, 3), "it was not begun: another program has freed the name");
    over.there = Some(attr(Kind::File, 28));
    assert!(!freed(&over, 4), "it is not free");
    (over.there, over.at_old_name) = (None, Some(attr(Kind::File, 28)));
    assert!(!freed(&over, 4), "another file has the old name");
    over.change.object = 5;
    assert!(freed(&over, 4), "nobody knows whether that is what moves");
}

/// The directory was moved while what was to be done in it had been refused.
#[test]
fn what_was_passed_by_a_move_of_its_directory_is_where_that_is_now() {
    let known = |id| Some(home::HomeId { fs: 1, ino: id, generation: 0 });
    let nowhere =
        |traces: &[Trace], last| nowhere(traces, last, &led_astray(traces, last), known, |_, _| false);
    let mut traces = [rename(3, 7, ("old/f", "g")), rename(4, 5, ("old", "new"))];
    assert!(nowhere(&traces, 4).contains(&7), "it was moved before its directory");
    traces[0].late = true;
    assert!(!nowhere(&traces, 4).contains(&7), "it may be new/f");
    assert!(nowhere(&traces, 3).contains(&7), "it would be old/f");
    traces[1].mark = Some(attr(Kind::Dir, 5));
    assert!(!nowhere(&traces, 3).contains(&7), "its directory shows itself");
    // What waited for a refused one was passed like that.
    let mut waited =
        [rename(3, 7, ("elsewhere", "g")), rename(4, 8, ("old/f", "g")), rename(5, 5, ("old", "new"))];
    assert!(nowhere(&waited, 5).contains(&8));
    waited[0].late = true;
    assert!(!nowhere(&waited, 5).contains(&8), "it may be new/f");
}
