//! Moves that are sent again where another program has moved the same names meanwhile.

use super::claims::{begin, object};
use super::*;
use crate::posix::sys_real::Lacks;
use std::fs::File;

/// What has the old name is not what the move replaces, whoever wrote it last: that is nothing, or gone.
#[test]
fn what_got_the_old_name_of_a_move_that_others_made_too_stays() {
    let lacking = [Lacks::default(), Lacks { rename_flags: true, ..Lacks::default() }];
    let all = [(false, false), (false, true), (true, false), (true, true)];
    for ((replaces, is_open), lacks) in all.into_iter().flat_map(|how| lacking.map(|lacks| (how, lacks))) {
        let place = begin();
        let home = place.open(Linux::without(lacks));
        let rename = Op::Rename {
            from: at("w"),
            name: name("moves"),
            object: object(&home, "w/moves"),
            to: at("w"),
            new_name: name("over"),
            replaced: replaces.then(|| (object(&home, "w/over"), None)),
        };
        done(&home, write("w/f", Some(version(&home, "w/f")), 0, b"ours"));
        std::fs::rename(place.path("w/moves"), place.path("w/over")).unwrap();
        std::fs::rename(place.path("w/f"), place.path("w/moves")).unwrap();
        let writer = is_open.then(|| File::options().append(true).open(place.path("w/moves")).unwrap());
        let outcome = one(&home, Placed { resent: true, ..placed(rename) });
        let when = format!("{outcome:?}, {lacks:?}, replaces: {replaces}, open: {is_open}");
        assert!(matches!(outcome, Outcome::Done(_)), "{when}");
        assert_eq!(place.read("w/over"), b"moves", "{when}");
        assert_eq!(std::fs::read(place.path("w/moves")).ok(), Some(b"ours content".to_vec()), "{when}");
        drop(writer);
    }
}
