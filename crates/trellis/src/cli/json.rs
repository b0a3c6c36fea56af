//! What commands print for programs: JSON, one object for each line. The field names are an interface.

use super::Done;
use super::output::stdout;
use crate::control::proto::{Attr, Raw};
use serde::Serialize;
use std::io::Write;

/// For the help of commands that print entries.
pub(super) const ENTRY: &str = "\
With --json, a line is an object: path (a string, or a list of bytes where it is not UTF-8), type (file, directory,
symlink, fifo, socket, or null where nothing is known), mode (octal, a string), nlink, uid, gid, size, used, fileid,
atime, mtime, ctime (seconds since 1970), atime_nsec, mtime_nsec, ctime_nsec, target (of a symlink, else null).";

/// An object of the tree.
#[derive(Serialize)]
pub(super) struct Entry {
    path: Raw,
    #[serde(rename = "type")]
    kind: Option<&'static str>,
    #[serde(flatten)]
    attr: Option<Figures>,
    target: Option<Raw>,
}

#[derive(Serialize)]
struct Figures {
    mode: String,
    nlink: u32,
    uid: u32,
    gid: u32,
    size: u64,
    used: u64,
    fileid: u64,
    atime: i64,
    atime_nsec: u32,
    mtime: i64,
    mtime_nsec: u32,
    ctime: i64,
    ctime_nsec: u32,
}

/// The word for a type, by the letter that ls(1) shows.
pub(super) fn kind_name(kind: char) -> &'static str {
    match kind {
        '-' => "file",
        'd' => "directory",
        'l' => "symlink",
        'p' => "fifo",
        _ => "socket",
    }
}

impl Entry {
    pub(super) fn new(path: &[u8], attr: Option<&Attr>, target: Option<Vec<u8>>) -> Entry {
        let figures = |a: &Attr| Figures {
            mode: format!("{:04o}", a.mode),
            nlink: a.nlink,
            uid: a.uid,
            gid: a.gid,
            size: a.size,
            used: a.used,
            fileid: a.fileid,
            atime: a.atime.0,
            atime_nsec: a.atime.1,
            mtime: a.mtime.0,
            mtime_nsec: a.mtime.1,
            ctime: a.ctime.0,
            ctime_nsec: a.ctime.1,
        };
        let kind = attr.map(|a| kind_name(a.kind));
        Entry { path: path.into(), kind, attr: attr.map(figures), target: target.map(Raw) }
    }
}

/// Prints one line.
pub(super) fn line(value: &impl Serialize) -> Done {
    let mut text = serde_json::to_vec(value).map_err(|e| e.to_string())?;
    text.push(b'\n');
    Ok(stdout().write_all(&text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shape_is_fixed() {
        let attr = Attr { kind: '-', mode: 0o644, size: 5, mtime: (7, 8), ..Attr::default() };
        let shown = |e: Entry| serde_json::to_value(e).unwrap();
        let json = shown(Entry::new(b"/lab/x", Some(&attr), None));
        assert_eq!(
            (&json["path"], &json["type"], &json["mode"]),
            (&"/lab/x".into(), &"file".into(), &"0644".into())
        );
        assert_eq!((&json["size"], &json["mtime"], &json["mtime_nsec"]), (&5.into(), &7.into(), &8.into()));
        assert!(json["target"].is_null());
        let json = shown(Entry::new(b"\xff", None, Some(b"t".to_vec())));
        assert_eq!(
            (&json["path"][0], &json["type"], &json["target"]),
            (&255.into(), &serde_json::Value::Null, &"t".into())
        );
    }
}
