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
        // The name that it is known by so far may be taken away next.
        (Op::Link { .. }, _) => Resolution::KeepBoth,
        (Op::SetXattr { .. }, _) => Resolution::Drop,
    }
}

/// What stands between the name that was lost and who gave the copy its name.
const MARK: &[u8] = b".trellis-conflict-";

/// The name of a copy: `NAME.trellis-conflict-GATEWAY-SECONDS-SEQ`, at most 255 bytes; the original is cut where it
/// must be.
pub fn copy_name(original: &Name, gateway: u64, time: Time, seq: u64) -> Name {
    with_suffix(original, &format!(".trellis-conflict-{:08x}-{}-{seq}", gateway as u32, time.sec))
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
}

/// Takes the name of a copy apart; `None` for any other name.
pub fn copy_of(name: &Name) -> Option<CopyOf> {
    let bytes = name.as_bytes();
    let at = bytes.windows(MARK.len()).rposition(|w| w == MARK).filter(|at| *at > 0)?;
    let rest = std::str::from_utf8(&bytes[at + MARK.len()..]).ok()?;
    let (gateway, rest) = rest.split_at_checked(8)?;
    let gateway = gateway.bytes().all(|b| b"0123456789abcdef".contains(&b)).then_some(gateway)?;
    let (written, seq) = rest.strip_prefix('-')?.rsplit_once('-')?;
    seq.parse::<u64>().ok()?;
    let original = Name::new(&bytes[..at]).ok().filter(|_| bytes.len() < home::name::NAME_MAX);
    Some(CopyOf { original, gateway: u32::from_str_radix(gateway, 16).ok()?, written: written.parse().ok()? })
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

    #[test]
    fn the_table() {
        let name = Name::new(b"n").unwrap();
        let write: Op<u64, ()> = Op::Write { file: 1, base: None, pieces: vec![] };
        let remove: Op<u64, ()> =
            Op::Remove { dir: 1, name: name.clone(), object: 2, is_dir: false, base: None };
        let mkdir: Op<u64, ()> = Op::Create { dir: 1, name: name.clone(), new: home::New::Dir, mode: 0 };
        let link: Op<u64, ()> = Op::Link { object: 2, dir: 1, name: name.clone() };
        let create: Op<u64, ()> = Op::Create { dir: 1, name, new: home::New::File, mode: 0 };
        let there = Theirs::There(Kind::File);
        assert_eq!(resolve(&write, there), Resolution::KeepBoth);
        assert_eq!(resolve(&write, Theirs::Gone), Resolution::Recreate);
        assert_eq!(resolve(&remove, there), Resolution::Drop);
        assert_eq!(resolve(&mkdir, Theirs::There(Kind::Dir)), Resolution::Merge);
        assert_eq!(resolve(&mkdir, there), Resolution::KeepBoth);
        assert_eq!(resolve(&create, there), Resolution::KeepBoth);
        assert_eq!(resolve(&link, there), Resolution::KeepBoth);
        assert_eq!(resolve(&link, Theirs::Gone), Resolution::KeepBoth);
    }

    #[test]
    fn the_name_of_a_copy_says_what_it_is_of() {
        let name = |s: &str| Name::new(s.as_bytes()).unwrap();
        for (original, sec) in [("f", 5), ("a-b.c", -1), ("f.trellis-conflict-00000007-5-9", 6)] {
            let copy = copy_name(&name(original), u64::MAX - 1, Time { sec, nsec: 3 }, 77);
            let of = CopyOf { original: Some(name(original)), gateway: 0xffff_fffe, written: sec };
            assert_eq!(copy_of(&copy), Some(of), "{copy}");
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
        let copy = copy_name(&long, u64::MAX, Time { sec: i64::MAX, nsec: 0 }, u64::MAX);
        assert!(copy.as_bytes().len() <= 255);
        assert_ne!(copy, copy_name(&long, u64::MAX, Time { sec: 0, nsec: 0 }, 1));
    }
}
