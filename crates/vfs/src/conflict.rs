//! What becomes of a change whose base is no longer what the home has. Pure: a table, no questions.

use home::{Attr, Kind, Name, Op, Time};

/// What the home has where we expected the base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Theirs {
    /// Nothing.
    Gone,
    /// An object of this type.
    There(Kind),
}

/// What to do. Neither side's bytes are ever lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// Theirs keeps the name; ours becomes a copy beside it, and its object follows the copy.
    KeepBoth,
    /// Ours is made anew under its name.
    Recreate,
    /// Ours is dropped, because it would have destroyed what we have not seen; theirs stays.
    Drop,
    /// Both wanted the same.
    Merge,
}

/// Decides for an operation that met `theirs`.
pub fn resolve<R, D>(op: &Op<R, D>, theirs: Theirs) -> Resolution {
    match (op, theirs) {
        (Op::Write { .. }, Theirs::Gone) => Resolution::Recreate,
        (Op::Write { .. }, Theirs::There(_)) => Resolution::KeepBoth,
        (Op::Create { new: home::New::Dir, .. }, Theirs::There(Kind::Dir)) => Resolution::Merge,
        (Op::Create { new: home::New::File, .. }, Theirs::There(_)) => Resolution::KeepBoth,
        (Op::Create { .. }, Theirs::There(_)) => Resolution::KeepBoth,
        (Op::Create { .. }, Theirs::Gone) => Resolution::Recreate,
        (Op::Remove { .. }, _) | (Op::SetAttr { .. }, _) => Resolution::Drop,
        (Op::Rename { .. }, Theirs::There(_)) => Resolution::KeepBoth,
        (Op::Rename { .. }, Theirs::Gone) => Resolution::Drop,
        (Op::Link { .. }, _) | (Op::SetXattr { .. }, _) => Resolution::Drop,
    }
}

/// The name of a copy: `NAME.trellis-conflict-GATEWAY-SECONDS-SEQ`, at most 255 bytes; the original is cut where it
/// must be.
pub fn copy_name(original: &Name, gateway: u64, time: Time, seq: u64) -> Name {
    let suffix = format!(".trellis-conflict-{:08x}-{}-{seq}", gateway as u32, time.sec);
    let keep = home::name::NAME_MAX - suffix.len();
    let original = original.as_bytes();
    let bytes = [&original[..original.len().min(keep)], suffix.as_bytes()].concat();
    Name::new(&bytes).unwrap_or_else(|_| unreachable!("a cut name with a suffix is a name"))
}

/// Whether what the home has is what one of our own sends left there: its size and its time, which is ours to the
/// nanosecond, are those of a record that was under way.
pub fn is_ours(theirs: &Attr, sent: impl Iterator<Item = Attr>) -> bool {
    let mut sent = sent;
    sent.any(|ours| ours.kind == theirs.kind && ours.size == theirs.size && ours.mtime == theirs.mtime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table() {
        let name = Name::new(b"n").unwrap();
        let write: Op<u64, ()> = Op::Write { file: 1, base: None, pieces: vec![] };
        let remove: Op<u64, ()> =
            Op::Remove { dir: 1, name: name.clone(), object: 2, is_dir: false, base: None };
        let mkdir: Op<u64, ()> = Op::Create { dir: 1, name: name.clone(), new: home::New::Dir, mode: 0 };
        let create: Op<u64, ()> = Op::Create { dir: 1, name, new: home::New::File, mode: 0 };
        let there = Theirs::There(Kind::File);
        assert_eq!(resolve(&write, there), Resolution::KeepBoth);
        assert_eq!(resolve(&write, Theirs::Gone), Resolution::Recreate);
        assert_eq!(resolve(&remove, there), Resolution::Drop);
        assert_eq!(resolve(&mkdir, Theirs::There(Kind::Dir)), Resolution::Merge);
        assert_eq!(resolve(&mkdir, there), Resolution::KeepBoth);
        assert_eq!(resolve(&create, there), Resolution::KeepBoth);
    }

    #[test]
    fn a_copy_of_the_longest_name_fits() {
        let long = Name::new(&[b'x'; 255]).unwrap();
        let copy = copy_name(&long, u64::MAX, Time { sec: i64::MAX, nsec: 0 }, u64::MAX);
        assert!(copy.as_bytes().len() <= 255);
        assert_ne!(copy, copy_name(&long, u64::MAX, Time { sec: 0, nsec: 0 }, 1));
    }
}
