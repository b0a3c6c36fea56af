//! Another program acts between any two system calls of ours. Whatever it wrote is there afterwards.

use super::meddler::{Event, Meddler};
use super::*;
use rustix::io::Errno;
use std::fs::OpenOptions;
use std::io::Write;

const THEIRS: &[u8] = b"theirs, and longer";

/// Runs `op` again and again on a file `w/f`, with `act` before each of its system calls in turn.
fn at_every_call(
    lacks: Lacks,
    op: impl Fn(Version) -> Op<Loc, Payload>,
    act: impl Fn(PathBuf) + Send + Copy + 'static,
    check: impl Fn(&Place, &Outcome, usize),
) {
    for calls in 0.. {
        let place = Place::new();
        let home = place.open(Meddler::new(lacks));
        place.write("w/f", b"base content");
        place.write("w/other", b"ours");
        std::fs::create_dir_all(place.path(".cache/trellis")).unwrap();
        let base = version(&home, "w/f");
        let path = place.path("w/f");
        home.sys.after(calls, Event::Outside(Box::new(move || act(path))));
        let outcome = one(&home, placed(op(base)));
        if !home.sys.happened() {
            assert!(calls > 20, "the operation makes more than {calls} calls");
            return;
        }
        check(&place, &outcome, calls);
        assert_eq!(place.names(".cache/trellis"), Vec::<String>::new(), "after {calls} calls");
    }
}

fn overwrite(path: PathBuf) {
    std::fs::write(path, THEIRS).unwrap();
}

fn replace(path: PathBuf) {
    let temp = path.with_extension("temp");
    std::fs::write(&temp, THEIRS).unwrap();
    std::fs::rename(&temp, path).unwrap();
}

/// Where there is a file by then.
fn append(path: PathBuf) {
    let file = OpenOptions::new().append(true).open(path);
    file.into_iter().for_each(|mut file| file.write_all(THEIRS).unwrap());
}

fn theirs_is_there(place: &Place, outcome: &Outcome, calls: usize) {
    assert_eq!(place.read("w/f"), THEIRS, "{outcome:?} after {calls} calls");
}

const WEAK: Lacks = Lacks { openat2: false, rename_flags: true };

#[test]
fn an_overwrite_during_a_write_survives() {
    for lacks in [Lacks::default(), WEAK] {
        at_every_call(lacks, |base| write("w/f", Some(base), 0, b"ours"), overwrite, theirs_is_there);
    }
}

#[test]
fn a_replacement_during_a_write_survives() {
    for lacks in [Lacks::default(), WEAK] {
        at_every_call(lacks, |base| write("w/f", Some(base), 0, b"ours"), replace, theirs_is_there);
    }
}

#[test]
fn an_overwrite_during_an_append_survives() {
    for lacks in [Lacks::default(), WEAK] {
        at_every_call(lacks, |base| write("w/f", Some(base), 12, b"ours"), overwrite, theirs_is_there);
    }
}

/// What others do to a file that an earlier operation of the batch made is not overwritten by a later one, which cannot
/// know its version.
#[test]
fn what_others_do_to_a_new_file_survives() {
    for act in [overwrite, replace] {
        for calls in 0.. {
            let place = Place::new();
            let home = place.open(Meddler::new(Lacks::default()));
            std::fs::create_dir_all(place.path(".cache/trellis")).unwrap();
            let path = place.path("w/f");
            home.sys.after(calls, Event::Outside(Box::new(move || act(path))));
            let batch = [create("w", "f", 0o644), write("w/f", None, 0, b"ours")].map(placed);
            let outcomes = home.apply(batch.to_vec()).unwrap();
            if !home.sys.happened() {
                assert!(calls > 20, "the batch makes more than {calls} calls");
                break;
            }
            theirs_is_there(&place, outcomes.last().unwrap(), calls);
        }
    }
}

/// What somebody adds after our last look at the bytes bears the time that we set, and must not be taken for ours.
#[test]
fn what_others_add_to_a_file_that_is_written_is_nothings_base() {
    for calls in 0.. {
        let place = Place::new();
        let home = place.open(Meddler::new(Lacks::default()));
        place.write("w/f", b"");
        std::fs::create_dir_all(place.path(".cache/trellis")).unwrap();
        let mut theirs = OpenOptions::new().append(true).open(place.path("w/f")).unwrap();
        let op = write("w/f", Some(version(&home, "w/f")), 0, b"ours");
        home.sys.after(calls, Event::Outside(Box::new(move || theirs.write_all(THEIRS).unwrap())));
        let outcome = one(&home, placed(op));
        if !home.sys.happened() {
            assert!(calls > 10, "the operation makes more than {calls} calls");
            return;
        }
        if let Outcome::Done(Done { attr: Some(attr), .. }) = &outcome {
            one(&home, placed(write("w/f", Some(attr.version()), 4, b"over theirs")));
        }
        let now = place.read("w/f");
        assert!(now.windows(THEIRS.len()).any(|part| part == THEIRS), "{outcome:?} after {calls} calls");
    }
}

/// A file with two names is written in place. Who opens it for writing before that finds it as it was, and keeps it so.
#[test]
fn who_opens_a_file_with_two_names_is_a_conflict() {
    let mut before = 0;
    for calls in 0.. {
        let place = Place::new();
        let home = place.open(Meddler::new(Lacks::default()));
        place.write("w/f", b"base content");
        std::fs::hard_link(place.path("w/f"), place.path("w/g")).unwrap();
        std::fs::create_dir_all(place.path(".cache/trellis")).unwrap();
        let op = write("w/f", Some(version(&home, "w/f")), 0, b"ours");
        let (path, (tell, opened)) = (place.path("w/f"), std::sync::mpsc::channel());
        let open = move || {
            let file = OpenOptions::new().write(true).open(&path).unwrap();
            tell.send((file, std::fs::read(path).unwrap())).unwrap();
        };
        home.sys.after(calls, Event::Outside(Box::new(open)));
        let outcome = one(&home, placed(op));
        if !home.sys.happened() {
            break;
        }
        let (mut file, found) = opened.recv().unwrap();
        if found == b"base content" {
            before += 1;
            assert!(matches!(outcome, Outcome::Conflict(Some(_))), "{outcome:?} after {calls} calls");
            assert_eq!(place.read("w/g"), found, "after {calls} calls");
        }
        file.write_all(b"this").unwrap();
    }
    assert!(before > 8, "only {before} times");
}

#[test]
fn who_reads_a_file_with_two_names_does_not_keep_it_from_being_written() {
    let place = Place::new();
    let home = place.open(Linux::default());
    place.write("w/f", b"base content");
    std::fs::hard_link(place.path("w/f"), place.path("w/g")).unwrap();
    let _reader = std::fs::File::open(place.path("w/f")).unwrap();
    done(&home, write("w/f", Some(version(&home, "w/f")), 0, b"ours"));
    assert_eq!(place.read("w/g"), b"ours content");
    let batch = [write("w/f", None, 0, b"more"), write("w/f", None, 5, b"of it")].map(placed);
    let outcomes = home.apply(batch.to_vec()).unwrap();
    assert!(outcomes.iter().all(|o| matches!(o, Outcome::Done(_))), "{outcomes:?}");
    assert_eq!(place.read("w/g"), b"more of itnt");
}

#[test]
fn who_reads_a_file_does_not_keep_it_from_growing() {
    let place = Place::new();
    let home = place.open(Linux::default());
    place.write("w/f", b"base content");
    let reader = std::fs::File::open(place.path("w/f")).unwrap();
    let base = version(&home, "w/f");
    done(&home, write("w/f", Some(base), 12, b"ours"));
    let mut seen = String::new();
    std::io::Read::read_to_string(&mut { reader }, &mut seen).unwrap();
    assert_eq!(seen, "base contentours");
}

#[test]
fn an_overwrite_during_a_removal_survives() {
    for lacks in [Lacks::default(), WEAK] {
        at_every_call(lacks, |base| remove("w", "f", Some(base)), overwrite, theirs_is_there);
    }
}

/// What has no content may have given its name to a file that has.
#[test]
fn a_file_in_the_place_of_a_removed_link_survives() {
    for lacks in [Lacks::default(), WEAK] {
        for calls in 0.. {
            let place = Place::new();
            let home = place.open(Meddler::new(lacks));
            std::os::unix::fs::symlink("elsewhere", place.path("w/f")).unwrap();
            std::fs::create_dir_all(place.path(".cache/trellis")).unwrap();
            let path = place.path("w/f");
            let link = home.stat(&at("w/f")).unwrap().attr.id;
            let op = match remove("w", "f", None) {
                Op::Remove { dir, name, object, is_dir, base } => {
                    Op::Remove { dir, name, object: Loc { id: Some(link), ..object }, is_dir, base }
                }
                op => op,
            };
            home.sys.after(calls, Event::Outside(Box::new(move || replace(path))));
            let outcome = one(&home, placed(op));
            if !home.sys.happened() {
                assert_eq!(place.names("w"), Vec::<String>::new(), "{outcome:?}");
                break;
            }
            theirs_is_there(&place, &outcome, calls);
            assert_eq!(place.names(".cache/trellis"), Vec::<String>::new(), "after {calls} calls");
        }
    }
}

/// A rename takes the object under the name, also when it changes meanwhile; nothing else may be lost.
#[test]
fn an_overwrite_of_what_is_replaced_survives() {
    let op = |base| rename_over(base, None);
    at_every_call(Lacks::default(), op, replace, |place, outcome, calls| {
        let kept = place.read("w/f") == THEIRS;
        assert!(kept, "{outcome:?} after {calls} calls: {:?}", place.names("w"));
        if matches!(outcome, Outcome::Conflict(_)) {
            assert_eq!(place.read("w/other"), b"ours");
        }
    });
}

#[test]
fn an_open_writer_is_a_conflict() {
    for lacks in [Lacks::default(), WEAK] {
        let place = Place::new();
        let home = place.open(Linux::without(lacks));
        place.write("w/f", b"base content");
        let base = version(&home, "w/f");
        let mut writer = OpenOptions::new().write(true).open(place.path("w/f")).unwrap();
        for offset in [0, 12] {
            let outcome = one(&home, placed(write("w/f", Some(base), offset, b"ours")));
            assert!(matches!(outcome, Outcome::Conflict(Some(_))), "{outcome:?}");
        }
        writer.write_all(THEIRS).unwrap();
        assert_eq!(place.read("w/f"), THEIRS);
        assert_eq!(place.names("w"), ["f"]);
    }
}

/// The source's name is free for others from the moment of the rename on.
#[test]
fn a_new_object_under_the_old_name_survives() {
    let op = |base| rename_over(base, None);
    let act = |path: PathBuf| replace(path.with_file_name("other"));
    at_every_call(Lacks::default(), op, act, |place, outcome, calls| {
        let all: Vec<_> = place.names("w").iter().map(|n| place.read(&format!("w/{n}"))).collect();
        assert!(all.iter().any(|data| data == THEIRS), "{outcome:?} after {calls} calls");
    });
}

fn rename_over(base: Version, source: Option<crate::HomeId>) -> Op<Loc, Payload> {
    Op::Rename {
        from: at("w"),
        name: name("other"),
        object: Loc { id: source, ..at("w/other") },
        to: at("w"),
        new_name: name("f"),
        replaced: Some((at("w/f"), Some(base))),
    }
}

/// Killed anywhere and sent again, an operation is done once and is no conflict with itself.
fn survives_death(op: impl Fn(&Posix<Meddler>) -> Op<Loc, Payload>, check: impl Fn(&Place)) {
    for calls in 0.. {
        let place = Place::new();
        let home = place.open(Meddler::new(Lacks::default()));
        place.write("w/f", b"base content");
        place.write("w/other", b"ours");
        let mut op = placed(op(&home));
        home.sys.after(calls, Event::Death);
        let outcome = one(&home, op.clone());
        if !home.sys.happened() {
            assert!(matches!(outcome, Outcome::Done(_)) && calls > 15);
            return;
        }
        op.resent = true;
        let outcome = one(&place.open(Linux::default()), op);
        assert!(matches!(outcome, Outcome::Done(_)), "after {calls} calls: {outcome:?}");
        check(&place);
    }
}

#[test]
fn death_during_a_write_is_survived() {
    for (offset, wanted) in [(0, &b"ours content"[..]), (12, b"base contentours")] {
        let op = |home: &Posix<Meddler>| write("w/f", Some(version(home, "w/f")), offset, b"ours");
        survives_death(op, |place| assert_eq!(place.read("w/f"), wanted));
    }
}

#[test]
fn death_during_a_removal_or_a_rename_is_survived() {
    let op = |home: &Posix<Meddler>| remove("w", "f", Some(version(home, "w/f")));
    survives_death(op, |place| assert_eq!(place.names("w"), ["other"]));
    let op = |home: &Posix<Meddler>| {
        rename_over(version(home, "w/f"), Some(home.stat(&at("w/other")).unwrap().attr.id))
    };
    survives_death(op, |place| {
        assert_eq!((place.names("w"), place.read("w/f")), (vec!["f".to_string()], b"ours".to_vec()));
    });
}

/// Nothing tells that what has as many bytes as before is what an append found; but an empty file has none.
#[test]
fn what_was_written_over_a_file_to_which_nothing_was_appended_survives() {
    for (base, theirs) in [(&b"base content"[..], &b"of theirs..."[..]), (b"", b"")] {
        let mut before = 0;
        for calls in 0.. {
            let place = Place::new();
            let home = place.open(Meddler::new(Lacks::default()));
            place.write("w/f", base);
            let end = base.len() as u64;
            let append = write("w/f", Some(version(&home, "w/f")), end, b"ours");
            // It is on what the append leaves.
            let ops = [append, write("w/f", None, 0, b"OVER")].map(placed);
            home.sys.after(calls, Event::Death);
            let _ = home.apply(ops.to_vec());
            if !home.sys.happened() {
                break;
            }
            if place.read("w/f") != base {
                continue;
            }
            before += 1;
            place.write("w/f", theirs);
            let again = ops.map(|op| Placed { resent: true, ..op });
            let outcomes = place.open(Linux::default()).apply(again.to_vec()).unwrap();
            let (conflict, now) = (matches!(outcomes[0], Outcome::Conflict(Some(_))), place.read("w/f"));
            let wanted = if base.is_empty() { (false, &b"OVER"[..]) } else { (true, theirs) };
            assert_eq!((conflict, &now[..]), wanted, "{outcomes:?} after {calls} calls");
        }
        assert!(before > 8, "only {before} times");
    }
}

/// What is refused for want of room is undone, also where an agent that was killed had begun it: it may come anew, as
/// something that was never begun.
#[test]
fn a_rename_that_was_begun_and_then_refused_brings_nothing_back() {
    let mut refused = 0;
    for calls in 0.. {
        let place = Place::new();
        let dying = place.open(Meddler::new(Lacks::default()));
        place.write("w/f", b"base content");
        place.write("w/other", b"ours");
        let source = dying.stat(&at("w/other")).unwrap().attr.id;
        let op = placed(rename_over(version(&dying, "w/f"), Some(source)));
        dying.sys.after(calls, Event::Death);
        one(&dying, op.clone());
        if !dying.sys.happened() {
            break;
        }
        let full = place.open(Meddler::new(Lacks::default()));
        full.sys.refuse(Errno::NOSPC);
        let outcome = one(&full, Placed { resent: true, ..op.clone() });
        refused += usize::from(matches!(outcome, Outcome::Refused(ErrorKind::NoSpace)));
        let outcome = quiet::looked_at(&place.open(Linux::default()), op);
        assert!(matches!(outcome, Outcome::Done(_)), "after {calls} calls: {outcome:?}");
        assert_eq!(place.names("w"), ["f"], "after {calls} calls");
        assert_eq!(place.read("w/f"), b"ours", "after {calls} calls");
    }
    assert!(refused > 10, "only {refused} times");
}

#[test]
fn death_during_a_creation_is_survived() {
    survives_death(
        |_| create("w", "new", 0o640),
        |place| {
            use std::os::unix::fs::MetadataExt;
            assert_eq!(std::fs::metadata(place.path("w/new")).unwrap().mode() & 0o777, 0o640);
        },
    );
}

#[test]
fn no_system_call_may_fail_unnoticed() {
    for calls in 0.. {
        let place = Place::new();
        let home = place.open(Meddler::new(Lacks::default()));
        place.write("w/f", b"base content");
        let base = version(&home, "w/f");
        home.sys.after(calls, Event::Failure(Errno::NOSPC));
        let outcome = one(&home, placed(write("w/f", Some(base), 0, b"ours")));
        if !home.sys.happened() {
            break;
        }
        let wanted: &[u8] = match outcome {
            Outcome::Done(_) => b"ours content",
            _ => b"base content",
        };
        let have = place.read("w/f");
        // Once the names have changed places, a failure can only be told, not undone.
        let told = matches!(outcome, Outcome::Refused(_)) && have == b"ours content";
        assert!(have == wanted || told, "{outcome:?} after {calls} calls");
    }
}

/// The kernel tells once that it lost bytes; a second sync of the file is told that all is well.
#[test]
fn what_no_sync_made_durable_is_not_done() {
    let link = || Op::Link { object: at("w/f"), dir: at("w"), name: name("g") };
    let rename = || Op::Rename {
        from: at("w"),
        name: name("f"),
        object: at("w/f"),
        to: at("w"),
        new_name: name("g"),
        replaced: None,
    };
    let batches: [&dyn Fn(Version) -> [Op<Loc, Payload>; 2]; 3] = [
        &|base| [write("w/f", Some(base), 12, b"ours"), rename()],
        &|base| [write("w/f", Some(base), 12, b"ours"), link()],
        &|base| [write("w/f", Some(base), 12, b"ours"), write("w/f", None, 0, b"more")],
    ];
    for (n, batch) in batches.into_iter().enumerate() {
        let (mut failed, mut early) = (0, 0);
        for calls in 0.. {
            let place = Place::new();
            let home = place.open(Meddler::new(Lacks::default()));
            place.write("w/f", b"base content");
            std::fs::hard_link(place.path("w/f"), place.path("w/name")).unwrap();
            let _reader = std::fs::File::open(place.path("w/f")).unwrap();
            let ops = batch(version(&home, "w/f")).map(placed).to_vec();
            home.sys.after(calls, Event::Failure(Errno::IO));
            let outcomes = home.apply(ops).unwrap();
            if !home.sys.happened() {
                break;
            }
            if home.sys.failed_syncs() > 0 {
                failed += 1;
                early += i64::from(home.sys.syncs() == 1);
                assert!(
                    matches!(outcomes[..], [Outcome::Refused(ErrorKind::Io)]),
                    "{n}, {calls}: {outcomes:?}"
                );
            }
        }
        assert!(failed > 1 && early > 0, "batch {n}: {failed} syncs failed, {early} of them the first");
    }
}

/// A name that is taken when a file is to be made, and free when it is looked at, is free.
#[test]
fn a_name_that_was_taken_is_made_when_it_is_free_again() {
    let mut freed = 0;
    for calls in 0.. {
        let place = Place::new();
        let home = place.open(Meddler::new(Lacks::default()));
        place.write("w/f", b"theirs");
        let path = place.path("w/f");
        home.sys.after(calls, Event::Outside(Box::new(move || std::fs::remove_file(path).unwrap())));
        let outcome = one(&home, placed(create("w", "f", 0o644)));
        if !home.sys.happened() {
            break;
        }
        match outcome {
            Outcome::Done(_) => {
                freed += 1;
                assert_eq!(place.read("w/f"), b"", "after {calls} calls");
            }
            // It was seen there, and is gone since.
            outcome => {
                assert!(matches!(outcome, Outcome::Conflict(Some(_))), "{outcome:?} after {calls} calls")
            }
        }
    }
    assert!(freed > 1, "free in time after {freed} calls");
}

#[test]
fn a_full_disk_cuts_an_append_back() {
    let place = Place::new();
    let home = place.open(Meddler::new(Lacks::default()));
    place.write("w/log", b"line\n");
    let old = home.stat(&at("w/log")).unwrap().attr;
    let half = |offset, data| Piece::Data(offset, Payload::Inline(Bytes::from_static(data)));
    let op = |pieces| Op::Write { file: at("w/log"), base: Some(old.version()), pieces };
    let mut refused = false;
    for calls in 0..80 {
        home.sys.after(calls, Event::Failure(Errno::NOSPC));
        match one(&home, placed(op(vec![half(5, b"first"), half(10, b"second")]))) {
            Outcome::Refused(ErrorKind::NoSpace) if place.read("w/log") == b"line\n" => {
                refused = true;
                assert_eq!(version(&home, "w/log").mtime, old.mtime);
            }
            Outcome::Done(_) => break,
            _ => {}
        }
    }
    assert!(refused);
}

#[test]
fn a_swapped_component_does_not_lead_out() {
    for openat2 in [false, true] {
        let place = Place::new();
        let root = place.path("w");
        std::fs::create_dir(place.path("secret")).unwrap();
        place.write("secret/f", b"secret");
        for dir in ["d", "d/e"] {
            std::fs::create_dir(root.join(dir)).unwrap();
        }
        place.write("w/d/e/f", b"public");
        std::os::unix::fs::symlink("../secret", root.join("evil")).unwrap();
        let sys = Linux::without(Lacks { openat2, rename_flags: false });
        let home = Posix::over(sys, bytes(&root)).unwrap().with_home_dir(bytes(&root));
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (a, b) = (root.join("d/e"), root.join("evil"));
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                while !stop.load(Ordering::Relaxed) {
                    rustix::fs::renameat_with(rustix::fs::CWD, &a, rustix::fs::CWD, &b, flags).unwrap();
                }
            });
            for n in 0..2000 {
                if let Ok(chunk) = home.read(&at("d/e/f"), 0, 100) {
                    assert_eq!(chunk.data, &b"public"[..]);
                }
                home.apply(vec![plainly(create("d/e", &format!("new-{n}"), 0o600))]).unwrap();
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(place.names("secret"), ["f"]);
    }
}

/// `w/f` moves over `w/other`.
fn over_other(base: Option<Version>) -> Op<Loc, Payload> {
    let (from, to, new_name) = (at("w"), at("w"), name("other"));
    let replaced = Some((at("w/other"), base));
    Op::Rename { from, name: name("f"), object: at("w/f"), to, new_name, replaced }
}

/// Where no rename refuses to replace, the old name goes by itself, and may be somebody else's by then.
#[test]
fn what_takes_the_old_name_of_a_file_that_is_moved_keeps_it() {
    for lacks in [Lacks::default(), WEAK] {
        for over in [false, true] {
            let op = move |_: Version| match over_other(None) {
                Op::Rename { from, name, object, to, .. } if !over => {
                    Op::Rename { from, name, object, to, new_name: self::name("new"), replaced: None }
                }
                over => over,
            };
            at_every_call(lacks, op, replace, |place, outcome, calls| {
                let names = place.names("w");
                let is_kept = names.iter().any(|name| place.read(&format!("w/{name}")) == THEIRS);
                assert!(is_kept, "{names:?}, {outcome:?} after {calls} calls, over another: {over}");
            });
        }
    }
}

/// Also where two names cannot change places.
#[test]
fn what_somebody_has_open_for_writing_is_not_replaced() {
    for lacks in [Lacks::default(), WEAK] {
        let place = Place::new();
        place.write("w/f", b"ours");
        place.write("w/other", b"not yet written to");
        let home = place.open(Meddler::new(lacks));
        let mut writer = OpenOptions::new().append(true).open(place.path("w/other")).unwrap();
        let outcome = one(&home, placed(over_other(Some(version(&home, "w/other")))));
        assert!(matches!(outcome, Outcome::Conflict(Some(_))), "{outcome:?}");
        writer.write_all(b", and now").unwrap();
        assert_eq!(place.read("w/other"), b"not yet written to, and now");
        assert_eq!(place.read("w/f"), b"ours");
    }
}

/// A program that was started by who has closed the file has it open until it runs.
#[test]
fn who_has_it_open_for_a_moment_is_not_in_the_way() {
    let place = Place::new();
    place.write("w/f", b"base");
    let home = place.open(Meddler::new(Lacks::default()));
    let append = |at| write("w/f", Some(version(&home, "w/f")), at, b" and ours");
    let opened = || OpenOptions::new().append(true).open(place.path("w/f")).unwrap();
    let writer = opened();
    home.sys.meanwhile(move || drop(writer));
    assert!(matches!(one(&home, placed(append(4))), Outcome::Done(_)));
    assert_eq!(place.read("w/f"), b"base and ours");
    let mut writer = opened();
    home.sys.meanwhile(move || writer.write_all(b" and theirs").unwrap());
    let outcome = one(&home, placed(append(13)));
    assert!(matches!(outcome, Outcome::Conflict(Some(_))), "{outcome:?}");
    let writer = opened();
    let outcome = one(&home, placed(append(24)));
    assert!(matches!(outcome, Outcome::Conflict(Some(_))), "{outcome:?}");
    drop(writer);
    assert_eq!(place.read("w/f"), b"base and ours and theirs");
}

/// Our copy had the name for a moment, in which somebody wrote to it, and no name is to be had beside it. Where there are leases he
/// waits until it has not.
#[test]
fn what_somebody_wrote_to_our_copy_stays_where_it_cannot_be_put_beside() {
    let mut met = 0;
    for calls in 0.. {
        let place = Place::new();
        place.write("w/f", b"base content");
        std::fs::create_dir_all(place.path(".cache/trellis")).unwrap();
        let home = place.open(Meddler::new(Lacks::default()));
        home.sys.lacks_leases.store(true, std::sync::atomic::Ordering::SeqCst);
        let (base, path) = (version(&home, "w/f"), place.path("w/f"));
        let _writer = OpenOptions::new().append(true).open(&path).unwrap();
        home.sys.refuse_in(home.stat(&at("w")).unwrap().attr.id.ino, Errno::NOSPC);
        let (tell, told) = std::sync::mpsc::channel();
        let overwrite_copy = move || {
            if std::fs::read(&path).unwrap() == b"OURS content" {
                overwrite(path);
                tell.send(()).unwrap();
            }
        };
        home.sys.after(calls, Event::Outside(Box::new(overwrite_copy)));
        let outcome = one(&home, placed(write("w/f", Some(base), 0, b"OURS")));
        if !home.sys.happened() {
            break;
        }
        assert_eq!(place.read("w/f"), b"base content", "{outcome:?} after {calls} calls");
        if told.try_recv().is_err() {
            continue;
        }
        met += 1;
        let staged = place.names(".cache/trellis").into_iter().map(|dir| format!(".cache/trellis/{dir}"));
        let all =
            staged.flat_map(|dir| place.names(&dir).into_iter().map(move |name| format!("{dir}/{name}")));
        let kept = all.filter(|file| place.read(file) == THEIRS).count();
        assert_eq!(kept, 1, "{outcome:?} after {calls} calls");
    }
    assert!(met > 0);
}

/// Nothing else would tell that it is not all ours. Where somebody has the file open, no lease keeps others out.
#[test]
fn what_is_added_to_a_file_after_we_wrote_to_it_does_not_get_our_time() {
    let mut met = 0;
    for calls in 0.. {
        let place = Place::new();
        place.write("w/f", b"base content");
        let _reader = std::fs::File::open(place.path("w/f")).unwrap();
        let home = place.open(Meddler::new(Lacks::default()));
        let (base, path) = (version(&home, "w/f"), place.path("w/f"));
        home.sys.after(calls, Event::Outside(Box::new(move || append(path))));
        let outcome = one(&home, placed(write("w/f", Some(base), 12, b" and ours")));
        if !home.sys.happened() {
            break;
        }
        let there = home.stat(&at("w/f")).unwrap().attr;
        assert_ne!(there.mtime, THEN, "{outcome:?} after {calls} calls");
        met += usize::from(matches!(outcome, Outcome::Done(_)));
    }
    assert!(met > 0);
}

/// What failed had written nothing, or only behind what somebody else had added.
#[test]
fn an_append_that_fails_cuts_off_nothing_of_others() {
    for plain in [false, true] {
        for calls in 0.. {
            let place = Place::new();
            place.write("w/f", b"base content");
            let home = place.open(Meddler::new(Lacks::default()));
            let base = version(&home, "w/f");
            let _reader = std::fs::File::open(place.path("w/f")).unwrap();
            let op = placed(write("w/f", Some(base), 12, b"ours"));
            let path = place.path("w/f");
            home.sys.fill_after(calls, move || append(path));
            let outcome = one(&home, Placed { plain, ..op });
            if !home.sys.happened() {
                break;
            }
            let there = place.read("w/f");
            let is_kept = there.windows(THEIRS.len()).any(|part| part == THEIRS);
            assert!(is_kept, "{outcome:?} after {calls} calls, plain: {plain}");
        }
    }
}

/// The same of one that is empty until then.
#[test]
fn what_is_written_into_a_file_that_is_just_made_does_not_get_our_time() {
    let mut met = 0;
    for calls in 0.. {
        let place = Place::new();
        place.write("w/other", b"makes the directory");
        let home = place.open(Meddler::new(Lacks::default()));
        let path = place.path("w/new");
        home.sys.after(calls, Event::Outside(Box::new(move || append(path))));
        let done = done(&home, create("w", "new", 0o644));
        if !home.sys.happened() {
            break;
        }
        let left = done.attr.unwrap();
        assert_eq!((left.size, left.mtime), (0, THEN), "after {calls} calls");
        let there = home.stat(&at("w/new")).unwrap().attr;
        assert_eq!(there.mtime != THEN, there.size != 0, "after {calls} calls");
        met += usize::from(there.size != 0);
    }
    assert!(met > 3, "{met} times");
}

#[test]
fn what_a_power_cut_left_of_a_file_that_was_cut_and_made_longer_is_done_again() {
    let place = Place::new();
    let home = place.open(Linux::default());
    place.write("w/f", b"0123456789abcdef");
    std::fs::hard_link(place.path("w/f"), place.path("w/g")).unwrap();
    let pieces = vec![
        Piece::Truncate(4),
        Piece::Truncate(10),
        Piece::Data(12, Payload::Inline(Bytes::from_static(b"new"))),
        Piece::Data(5, Payload::Inline(Bytes::from_static(b"x"))),
    ];
    let op = Op::Write { file: at("w/f"), base: Some(version(&home, "w/f")), pieces };
    done(&home, op.clone());
    let wanted = b"0123\0x\0\0\0\0\0\0new";
    assert_eq!(place.read("w/f"), wanted);
    for old in [b"01234x\0\0\0\0\0\0new", b"0123\0x6\0\0\0\0\0new", b"0123\0x\0\0\0\0\0bnew"] {
        place.write("w/f", old);
        place.set_mtime("w/f", THEN);
        let again = Placed { resent: true, ..placed(op.clone()) };
        assert!(matches!(one(&home, again), Outcome::Done(_)));
        assert_eq!(place.read("w/f"), wanted);
    }
}

/// What an agent left of which nobody asks any more. It may be another program's by now.
#[test]
fn what_nobody_comes_to_mend_goes_back_after_a_day() {
    let day = std::time::Duration::from_secs(crate::limits::STAGING_SECONDS as u64 + 60);
    for is_old in [false, true] {
        let place = Place::new();
        place.write("w/f", b"has another name");
        let stage = place.path(".cache/trellis/.trellis-stage-0123456789abcdef");
        std::fs::create_dir_all(&stage).unwrap();
        for (name, content) in [(".trellis-staging", ""), ("new-1", "a part"), ("old-1-w%sback", "theirs")] {
            std::fs::write(stage.join(name), content).unwrap();
        }
        std::fs::hard_link(place.path("w/f"), stage.join("old-2")).unwrap();
        if is_old {
            let before = std::time::SystemTime::now() - day;
            std::fs::File::open(&stage).unwrap().set_modified(before).unwrap();
        }
        place.open(Linux::default()).hello().unwrap();
        assert_eq!(stage.exists(), !is_old);
        assert_eq!(place.names("w").contains(&"back".to_owned()), is_old);
        if is_old {
            assert_eq!(place.read("w/back"), b"theirs");
        }
    }
}
