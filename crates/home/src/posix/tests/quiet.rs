//! What another program changes without changing the length, and gives its old time again.

use super::meddler::{Event, Meddler};
use super::*;
use crate::op::SetAttr;
use crate::op::SetTime;

/// Makes a file that the gateway has seen, with this content.
fn seen(place: &Place, home: &Posix<Linux>) -> Version {
    place.write("w/f", b"base content");
    version(home, "w/f")
}

/// Another program writes to it quietly.
fn write_quietly(place: &Place, base: &Version) {
    pause();
    let path = place.path("w/f");
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_at(&file, b"BASE", 0).unwrap();
    drop(file);
    place.set_mtime("w/f", base.mtime);
}

/// So long that a ctime moves.
fn pause() {
    std::thread::sleep(std::time::Duration::from_millis(20));
}

/// Executes an operation, and once more for a gateway that finds nothing but another ctime.
pub(super) fn looked_at<S: Sys>(home: &Posix<S>, mut placed: Placed) -> Outcome {
    let outcome = one(home, placed.clone());
    let base = match &mut placed.op {
        Op::Write { base, .. } | Op::Remove { base, .. } | Op::Rename { replaced: Some((_, base)), .. } => {
            base
        }
        _ => return outcome,
    };
    match (&outcome, &base) {
        (Outcome::Conflict(Some(there)), Some(seen)) if seen.same_content(&there.version()) => {
            *base = Some(there.version());
            one(home, placed)
        }
        _ => outcome,
    }
}

/// Each way to destroy what the file has.
fn destroying(base: Version, home: &Posix<Linux>) -> Vec<Op<Loc, Payload>> {
    let rename = Op::Rename {
        from: at("w"),
        name: name("other"),
        object: Loc { id: Some(version(home, "w/other").id), ..at("w/other") },
        to: at("w"),
        new_name: name("f"),
        replaced: Some((at("w/f"), Some(base))),
    };
    let set = SetAttr { mtime: Some(SetTime::At(Time { sec: 5, nsec: 0 })), ..SetAttr::default() };
    let times = Op::SetAttr { object: at("w/f"), base: Some(base), set };
    vec![write("w/f", Some(base), 0, b"ours"), remove("w", "f", Some(base)), rename, times]
}

#[test]
fn what_was_changed_under_its_old_length_and_time_is_no_base() {
    for n in 0..4 {
        let place = Place::new();
        let home = place.open(Linux::default());
        place.write("w/other", b"ours");
        let base = seen(&place, &home);
        let op = destroying(base, &home).remove(n);
        write_quietly(&place, &base);
        let outcome = one(&home, placed(op));
        let Outcome::Conflict(Some(there)) = outcome else { panic!("{n}: {outcome:?}") };
        assert!(there.version().same_content(&base) && there.ctime > base.ctime);
        assert_eq!(place.read("w/f"), b"BASE content", "{n}");
        assert_eq!(place.names("w"), ["f", "other"], "{n}");
        // Whoever has looked at it says so.
        done(&home, destroying(there.version(), &home).remove(n));
    }
}

/// Nobody is asked about what our own operations have moved, however many.
#[test]
fn our_own_operations_leave_the_base_that_it_was() {
    for n in 0..4 {
        let place = Place::new();
        let home = place.open(Linux::default());
        place.write("w/other", b"ours");
        let base = seen(&place, &home);
        pause();
        let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        let told = done(&home, Op::SetAttr { object: at("w/f"), base: None, set: mode });
        assert_eq!(told.since(), Some(base.ctime));
        done(&home, Op::Link { object: at("w/f"), dir: at("w"), name: name("second") });
        let told = done(&home, remove("w", "second", None));
        assert_eq!(told.since(), Some(base.ctime));
        assert!(version(&home, "w/f").ctime > base.ctime);
        done(&home, destroying(base, &home).remove(n));
    }
}

/// The outcome tells that somebody else was there before.
#[test]
fn a_change_of_attributes_does_not_vouch_for_what_it_did_not_see() {
    let place = Place::new();
    let home = place.open(Linux::default());
    let base = seen(&place, &home);
    write_quietly(&place, &base);
    pause();
    let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    let told = done(&home, Op::SetAttr { object: at("w/f"), base: None, set: mode });
    assert!(told.since() > Some(base.ctime));
    assert!(matches!(one(&home, placed(remove("w", "f", Some(base)))), Outcome::Conflict(Some(_))));
}

/// What may have been done before meets what it left itself.
#[test]
fn an_operation_that_comes_again_goes_by_length_and_time() {
    let place = Place::new();
    let home = place.open(Linux::default());
    let base = seen(&place, &home);
    pause();
    place.chmod("w/f");
    let again = Placed { resent: true, ..placed(remove("w", "f", Some(base))) };
    assert!(matches!(one(&home, again), Outcome::Done(_)));
}

/// Nor does anybody wait for it afterwards.
#[test]
fn what_is_held_while_it_is_taken_away_is_given_back() {
    for n in 0..3 {
        let place = Place::new();
        place.write("w/other", b"ours");
        place.write("w/f", b"base content");
        let home = place.open(Meddler::new(Lacks::default()));
        let base = version(&home, "w/f");
        let op = destroying(base, &place.open(Linux::default())).remove(n);
        assert!(matches!(one(&home, placed(op)), Outcome::Done(_)), "{n}");
        // Nothing holds it any more.
        let left = place.path(if n == 1 { "w/other" } else { "w/f" });
        assert!(std::fs::OpenOptions::new().write(true).open(left).is_ok());
    }
}

/// Our copy had the name for a moment, in which somebody came to open it: he waits until it has not, and writes to it then.
#[test]
fn what_is_written_to_our_copy_by_who_waited_for_it_is_kept() {
    let mut met = 0;
    for calls in 0.. {
        let place = Place::new();
        place.write("w/f", b"base content");
        let home = place.open(Meddler::new(Lacks::default()));
        let (base, path) = (version(&home, "w/f"), place.path("w/f"));
        let _writer = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let write_quietly = move || {
            let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
            let mut there = [0; 12];
            std::os::unix::fs::FileExt::read_exact_at(&file, &mut there, 0).unwrap();
            let is_copy = &there == b"OURS content";
            if is_copy {
                let time = file.metadata().unwrap().modified().unwrap();
                std::os::unix::fs::FileExt::write_at(&file, b"THEM", 0).unwrap();
                file.set_modified(time).unwrap();
            }
            tell.send(is_copy).unwrap();
        };
        let come = || {
            std::thread::spawn(write_quietly);
            pause();
        };
        home.sys.after(calls, Event::Beside(Box::new(come)));
        let outcome = one(&home, placed(write("w/f", Some(base), 0, b"OURS")));
        if !home.sys.happened() {
            break;
        }
        assert_eq!(place.read("w/f"), b"base content", "{outcome:?} after {calls} calls");
        if told.recv().unwrap() {
            met += 1;
            let all = place.names("w").into_iter().map(|name| place.read(&format!("w/{name}")));
            assert_eq!(all.filter(|content| content == b"THEM content").count(), 1, "after {calls} calls");
        }
    }
    assert!(met > 0);
}
