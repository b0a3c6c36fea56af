//! What becomes of a change whose base is no longer what the home has. Pure: a table, no questions.

mod policy;

pub use policy::{Policies, Policy};

use home::{Attr, Name, New, Op, Piece, Time};

/// What an operation of ours wants, as far as a conflict goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ours {
    /// Another content of a file.
    Store,
    /// Bytes behind the end that the file had.
    Append,
    /// A name for something new that is no directory.
    Create,
    /// A name for a new directory.
    Mkdir,
    /// That a name of what is no directory goes.
    Remove,
    /// That the name of an empty directory goes.
    Rmdir,
    /// Another name.
    Rename,
    /// A further name.
    Link,
    /// Other attributes, extended ones too.
    SetAttr,
}

impl Ours {
    /// What an operation wants of a file whose base is `size` bytes long.
    pub fn of<R, D>(op: &Op<R, D>, size: u64) -> Ours {
        let behind = |piece: &Piece<D>| match piece {
            Piece::Truncate(at) | Piece::Data(at, _) => *at >= size,
        };
        match op {
            Op::Write { pieces, .. } if pieces.iter().all(behind) => Ours::Append,
            Op::Write { .. } => Ours::Store,
            Op::Create { new: New::Dir, .. } => Ours::Mkdir,
            Op::Create { .. } => Ours::Create,
            Op::Remove { is_dir: true, .. } => Ours::Rmdir,
            Op::Remove { .. } => Ours::Remove,
            Op::Rename { .. } => Ours::Rename,
            Op::Link { .. } => Ours::Link,
            Op::SetAttr { .. } | Op::SetXattr { .. } => Ours::SetAttr,
        }
    }
}

/// What the home has where we expected the base. Of a rename, `Other` and `Dir` are what has the new name, and the rest is
/// said of what moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Theirs {
    /// The base.
    Unchanged,
    /// What a send of ours left there whose answer was lost.
    Own,
    /// What ours comes to: the same bytes.
    Equal,
    /// The same object with another content; of a directory, with names that we have not seen.
    Modified,
    /// Nothing.
    Gone,
    /// Another object, a directory.
    Dir,
    /// Another object, no directory or nothing that is shown.
    Other,
}

/// What to do. Neither side's bytes are ever lost, but where the policy wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// It is no conflict: ours is made of what the home has.
    Apply,
    /// It is no conflict: both wanted the same.
    Merge,
    /// Theirs keeps the name; ours becomes a copy beside it, and its object follows the copy.
    KeepBoth,
    /// Ours is made anew under its name.
    Recreate,
    /// Ours is dropped, because it would have destroyed what we have not seen, or because there is nothing left to change.
    Drop,
    /// Ours stays here until a person decides.
    Wait,
    /// Ours stays here until a person decides, and so does all later work in the folder.
    Stop,
    /// Ours keeps the name; theirs becomes a copy beside it.
    TakeName,
    /// Ours goes over theirs, which is lost.
    Overwrite,
    /// Ours goes behind theirs, in the same file.
    Append,
}

impl Resolution {
    /// Whether a person should hear of it.
    pub fn is_conflict(self) -> bool {
        !matches!(self, Resolution::Apply | Resolution::Merge)
    }
}

/// What became of a change that was stopped at a conflict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// Ours has its name.
    Mine,
    /// Ours is that the name goes, and it does.
    Removed,
    /// What the home has stays, and ours was given up.
    Theirs,
    /// What the home has keeps its name, and ours has this one beside it.
    Both(Name),
}

/// Decides for an operation that met `theirs`.
pub fn resolve(ours: Ours, theirs: Theirs, policy: Policy) -> Resolution {
    use {Ours as O, Resolution as R, Theirs as T};
    let usual = usual(ours, theirs);
    match (policy, usual) {
        (_, R::Apply | R::Merge) | (Policy::KeepBoth, _) => usual,
        (Policy::Stop, _) => R::Stop,
        (Policy::PreferLocal, R::KeepBoth) => R::TakeName,
        // A directory is never written over, nor does one go over anything else.
        (Policy::LastWriter, R::KeepBoth) if theirs != T::Dir && ours != O::Mkdir => R::Overwrite,
        (Policy::LastWriter, R::Drop) if ours == O::Remove && theirs == T::Modified => R::Overwrite,
        (Policy::AppendMerge, R::KeepBoth) => match (ours, theirs) {
            (O::Append, T::Modified) | (O::Create, T::Other) => R::Append,
            _ => usual,
        },
        _ => usual,
    }
}

/// The same under the usual policy.
fn usual(ours: Ours, theirs: Theirs) -> Resolution {
    use {Ours as O, Resolution as R, Theirs as T};
    match (ours, theirs) {
        (_, T::Unchanged) => R::Apply,
        // What was begun is gone on with, as what it is.
        (O::Store | O::Append, T::Own) => R::Apply,
        (_, T::Own) => R::Merge,
        // Those bytes were seen: they may go.
        (O::Remove | O::Rmdir | O::Rename, T::Equal) => R::Apply,
        (_, T::Equal) => R::Merge,
        (O::Store | O::Append, T::Gone) => R::Recreate,
        (O::Store | O::Append, T::Modified | T::Dir | T::Other) => R::KeepBoth,
        (O::Mkdir, T::Dir) => R::Merge,
        // Its directory is gone.
        (O::Create | O::Mkdir, T::Gone) => R::Wait,
        (O::Create | O::Mkdir, T::Modified | T::Dir | T::Other) => R::KeepBoth,
        (O::Remove | O::Rmdir, T::Gone) => R::Merge,
        (O::Remove | O::Rmdir, T::Modified | T::Dir | T::Other) => R::Drop,
        // It moves, or is named or marked, as what it is now.
        (O::Rename | O::Link | O::SetAttr, T::Modified) => R::Apply,
        (O::Rename | O::Link | O::SetAttr, T::Gone) => R::Drop,
        // The name that it is known by so far may be taken away next.
        (O::Rename | O::Link, T::Dir | T::Other) => R::KeepBoth,
        (O::SetAttr, T::Dir | T::Other) => R::Drop,
    }
}

/// What stands between the name that was lost and who gave the copy its name.
const MARK: &[u8] = b".trellis-conflict-";
/// What ends the name of a copy of theirs.
const THEIRS: &str = "-theirs";

/// The name of a copy: `NAME.trellis-conflict-GATEWAY-SECONDS-SEQ`, at most 255 bytes; the original is cut where it
/// must be.
pub fn copy_name(original: &Name, gateway: u64, time: Time, seq: u64) -> Name {
    with_suffix(original, &format!(".trellis-conflict-{:08x}-{}-{seq}", gateway as u32, time.sec))
}

/// The same for theirs, where ours has the name: `…-theirs`.
pub fn their_copy_name(original: &Name, gateway: u64, time: Time, seq: u64) -> Name {
    let suffix = format!(".trellis-conflict-{:08x}-{}-{seq}{THEIRS}", gateway as u32, time.sec);
    with_suffix(original, &suffix)
}

/// An ordinary name for a copy that is kept, the `n`th of those to try: `NAME.mine`, `NAME.mine2`…
pub fn settled_name(original: &Name, n: u32) -> Name {
    let number = if n > 1 { n.to_string() } else { String::new() };
    with_suffix(original, &format!(".mine{number}"))
}

fn with_suffix(original: &Name, suffix: &str) -> Name {
    let keep = home::name::NAME_MAX - suffix.len();
    let original = original.as_bytes();
    let bytes = [&original[..original.len().min(keep)], suffix.as_bytes()].concat();
    Name::new(&bytes).unwrap_or_else(|_| unreachable!("a cut name with a suffix is a name"))
}

/// What the name of a copy says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyOf {
    /// The name that was lost; `None` where it may have been cut.
    pub original: Option<Name>,
    /// Which gateway changed it: the lower half of its number.
    pub gateway: u32,
    /// When the change was made there, in seconds since 1970.
    pub written: i64,
    /// It is what the home had: ours has the name.
    pub is_theirs: bool,
}

/// Takes the name of a copy apart; `None` for any other name.
pub fn copy_of(name: &Name) -> Option<CopyOf> {
    let bytes = name.as_bytes();
    let at = bytes.windows(MARK.len()).rposition(|w| w == MARK).filter(|at| *at > 0)?;
    let rest = std::str::from_utf8(&bytes[at + MARK.len()..]).ok()?;
    let (rest, is_theirs) = rest.strip_suffix(THEIRS).map_or((rest, false), |rest| (rest, true));
    let (gateway, rest) = rest.split_at_checked(8)?;
    let gateway = gateway.bytes().all(|b| b"0123456789abcdef".contains(&b)).then_some(gateway)?;
    let (written, seq) = rest.strip_prefix('-')?.rsplit_once('-')?;
    seq.parse::<u64>().ok()?;
    let original = Name::new(&bytes[..at]).ok().filter(|_| bytes.len() < home::name::NAME_MAX);
    let (gateway, written) = (u32::from_str_radix(gateway, 16).ok()?, written.parse().ok()?);
    Some(CopyOf { original, gateway, written, is_theirs })
}

/// Whether what the home has is what one of our own sends left there: its size and its time, which is ours to the
/// nanosecond, are those of a record that was under way. A power cut (`half`) may have left less of it.
pub fn is_ours(theirs: &Attr, sent: impl Iterator<Item = (Attr, bool)>) -> bool {
    let mut sent = sent;
    sent.any(|(ours, half)| {
        let long_enough = theirs.size == ours.size || half && theirs.size < ours.size;
        ours.kind == theirs.kind && long_enough && ours.mtime == theirs.mtime
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One row for each of ours, one column for each of theirs: every cell of the table.
    #[test]
    fn the_table() {
        use {Ours as O, Resolution::*};
        let rows = [
            (O::Store, [Apply, Apply, Merge, KeepBoth, Recreate, KeepBoth, KeepBoth]),
            (O::Append, [Apply, Apply, Merge, KeepBoth, Recreate, KeepBoth, KeepBoth]),
            (O::Create, [Apply, Merge, Merge, KeepBoth, Wait, KeepBoth, KeepBoth]),
            (O::Mkdir, [Apply, Merge, Merge, KeepBoth, Wait, Merge, KeepBoth]),
            (O::Remove, [Apply, Merge, Apply, Drop, Merge, Drop, Drop]),
            (O::Rmdir, [Apply, Merge, Apply, Drop, Merge, Drop, Drop]),
            (O::Rename, [Apply, Merge, Apply, Apply, Drop, KeepBoth, KeepBoth]),
            (O::Link, [Apply, Merge, Merge, Apply, Drop, KeepBoth, KeepBoth]),
            (O::SetAttr, [Apply, Merge, Merge, Apply, Drop, Drop, Drop]),
        ];
        check(Policy::KeepBoth, rows);
        let resolutions = [Apply, Merge, KeepBoth, Recreate, Drop, Wait, Stop, TakeName, Overwrite, Append];
        for resolution in resolutions {
            let is_one = !matches!(resolution, Apply | Merge);
            assert_eq!(resolution.is_conflict(), is_one, "{resolution:?}");
        }
    }

    const COLUMNS: [Theirs; 7] = {
        use Theirs as T;
        [T::Unchanged, T::Own, T::Equal, T::Modified, T::Gone, T::Dir, T::Other]
    };

    fn check(policy: Policy, rows: [(Ours, [Resolution; 7]); 9]) {
        for (ours, row) in rows {
            for (theirs, want) in COLUMNS.into_iter().zip(row) {
                assert_eq!(resolve(ours, theirs, policy), want, "{policy}: {ours:?} met {theirs:?}");
            }
        }
    }

    #[test]
    fn the_table_of_prefer_local() {
        use {Ours as O, Resolution::*};
        let rows = [
            (O::Store, [Apply, Apply, Merge, TakeName, Recreate, TakeName, TakeName]),
            (O::Append, [Apply, Apply, Merge, TakeName, Recreate, TakeName, TakeName]),
            (O::Create, [Apply, Merge, Merge, TakeName, Wait, TakeName, TakeName]),
            (O::Mkdir, [Apply, Merge, Merge, TakeName, Wait, Merge, TakeName]),
            (O::Remove, [Apply, Merge, Apply, Drop, Merge, Drop, Drop]),
            (O::Rmdir, [Apply, Merge, Apply, Drop, Merge, Drop, Drop]),
            (O::Rename, [Apply, Merge, Apply, Apply, Drop, TakeName, TakeName]),
            (O::Link, [Apply, Merge, Merge, Apply, Drop, TakeName, TakeName]),
            (O::SetAttr, [Apply, Merge, Merge, Apply, Drop, Drop, Drop]),
        ];
        check(Policy::PreferLocal, rows);
    }

    #[test]
    fn the_table_of_stop() {
        use {Ours as O, Resolution::*};
        let rows = [
            (O::Store, [Apply, Apply, Merge, Stop, Stop, Stop, Stop]),
            (O::Append, [Apply, Apply, Merge, Stop, Stop, Stop, Stop]),
            (O::Create, [Apply, Merge, Merge, Stop, Stop, Stop, Stop]),
            (O::Mkdir, [Apply, Merge, Merge, Stop, Stop, Merge, Stop]),
            (O::Remove, [Apply, Merge, Apply, Stop, Merge, Stop, Stop]),
            (O::Rmdir, [Apply, Merge, Apply, Stop, Merge, Stop, Stop]),
            (O::Rename, [Apply, Merge, Apply, Apply, Stop, Stop, Stop]),
            (O::Link, [Apply, Merge, Merge, Apply, Stop, Stop, Stop]),
            (O::SetAttr, [Apply, Merge, Merge, Apply, Stop, Stop, Stop]),
        ];
        check(Policy::Stop, rows);
    }

    #[test]
    fn the_table_of_strict_last_writer() {
        use {Ours as O, Resolution::*};
        let rows = [
            (O::Store, [Apply, Apply, Merge, Overwrite, Recreate, KeepBoth, Overwrite]),
            (O::Append, [Apply, Apply, Merge, Overwrite, Recreate, KeepBoth, Overwrite]),
            (O::Create, [Apply, Merge, Merge, Overwrite, Wait, KeepBoth, Overwrite]),
            (O::Mkdir, [Apply, Merge, Merge, KeepBoth, Wait, Merge, KeepBoth]),
            (O::Remove, [Apply, Merge, Apply, Overwrite, Merge, Drop, Drop]),
            (O::Rmdir, [Apply, Merge, Apply, Drop, Merge, Drop, Drop]),
            (O::Rename, [Apply, Merge, Apply, Apply, Drop, KeepBoth, Overwrite]),
            (O::Link, [Apply, Merge, Merge, Apply, Drop, KeepBoth, Overwrite]),
            (O::SetAttr, [Apply, Merge, Merge, Apply, Drop, Drop, Drop]),
        ];
        check(Policy::LastWriter, rows);
    }

    #[test]
    fn the_table_of_append_merge() {
        use {Ours as O, Resolution::*};
        let rows = [
            (O::Store, [Apply, Apply, Merge, KeepBoth, Recreate, KeepBoth, KeepBoth]),
            (O::Append, [Apply, Apply, Merge, Append, Recreate, KeepBoth, KeepBoth]),
            (O::Create, [Apply, Merge, Merge, KeepBoth, Wait, KeepBoth, Append]),
            (O::Mkdir, [Apply, Merge, Merge, KeepBoth, Wait, Merge, KeepBoth]),
            (O::Remove, [Apply, Merge, Apply, Drop, Merge, Drop, Drop]),
            (O::Rmdir, [Apply, Merge, Apply, Drop, Merge, Drop, Drop]),
            (O::Rename, [Apply, Merge, Apply, Apply, Drop, KeepBoth, KeepBoth]),
            (O::Link, [Apply, Merge, Merge, Apply, Drop, KeepBoth, KeepBoth]),
            (O::SetAttr, [Apply, Merge, Merge, Apply, Drop, Drop, Drop]),
        ];
        check(Policy::AppendMerge, rows);
    }

    #[test]
    fn every_operation_has_its_row() {
        let name = || Name::new(b"n").unwrap();
        let write = |pieces| Op::<u64, ()>::Write { file: 1, base: None, pieces };
        let create = |new| Op::<u64, ()>::Create { dir: 1, name: name(), new, mode: 0 };
        let remove = |is_dir| Op::<u64, ()>::Remove { dir: 1, name: name(), object: 2, is_dir, base: None };
        let xattr = home::XattrName::new(b"user.x").unwrap();
        let (from, to, replaced) = (1, 1, None);
        let rows = [
            (write(vec![Piece::Data(3, ())]), Ours::Append),
            (write(vec![Piece::Data(4, ()), Piece::Truncate(9)]), Ours::Append),
            (write(vec![Piece::Data(2, ())]), Ours::Store),
            (write(vec![Piece::Truncate(2), Piece::Data(3, ())]), Ours::Store),
            (create(New::File), Ours::Create),
            (create(New::Symlink(bytes::Bytes::new())), Ours::Create),
            (create(New::Fifo), Ours::Create),
            (create(New::Dir), Ours::Mkdir),
            (remove(false), Ours::Remove),
            (remove(true), Ours::Rmdir),
            (Op::Rename { from, name: name(), object: 2, to, new_name: name(), replaced }, Ours::Rename),
            (Op::Link { object: 2, dir: 1, name: name() }, Ours::Link),
            (Op::SetAttr { object: 2, base: None, set: home::SetAttr::default() }, Ours::SetAttr),
            (Op::SetXattr { object: 2, name: xattr, value: None, how: home::XattrHow::Any }, Ours::SetAttr),
        ];
        for (op, want) in rows {
            assert_eq!(Ours::of(&op, 3), want, "{op:?}");
        }
    }

    #[test]
    fn the_name_of_a_copy_says_what_it_is_of() {
        let name = |s: &str| Name::new(s.as_bytes()).unwrap();
        for (original, sec) in [("f", 5), ("a-b.c", -1), ("f.trellis-conflict-00000007-5-9", 6)] {
            let (gateway, time) = (u64::MAX - 1, Time { sec, nsec: 3 });
            let copies = [copy_name, their_copy_name].map(|make| make(&name(original), gateway, time, 77));
            for (copy, is_theirs) in copies.into_iter().zip([false, true]) {
                let (original, gateway, written) = (Some(name(original)), 0xffff_fffe, sec);
                let of = CopyOf { original, gateway, written, is_theirs };
                assert_eq!(copy_of(&copy), Some(of), "{copy}");
            }
        }
        let long = copy_name(&name(&"x".repeat(255)), 7, Time { sec: 5, nsec: 0 }, 9);
        assert_eq!(copy_of(&long).unwrap().original, None);
        for other in [
            "f",
            ".trellis-conflict-00000007-5-9",
            "f.trellis-conflict-7-5-9",
            "f.trellis-conflict-0000000G-5-9",
            "f.trellis-conflict-00000007-5",
            "f.trellis-conflict-00000007-5-9x",
        ] {
            assert_eq!(copy_of(&name(other)), None, "{other}");
        }
        assert_eq!(
            (settled_name(&name("f"), 1), settled_name(&name("f"), 2)),
            (name("f.mine"), name("f.mine2"))
        );
    }

    #[test]
    fn a_copy_of_the_longest_name_fits() {
        let long = Name::new(&[b'x'; 255]).unwrap();
        let theirs = their_copy_name(&long, u64::MAX, Time { sec: i64::MAX, nsec: 0 }, u64::MAX);
        assert!(theirs.as_bytes().len() <= 255);
        let copy = copy_name(&long, u64::MAX, Time { sec: i64::MAX, nsec: 0 }, u64::MAX);
        assert!(copy.as_bytes().len() <= 255);
        assert_ne!(copy, copy_name(&long, u64::MAX, Time { sec: 0, nsec: 0 }, 1));
    }
}
