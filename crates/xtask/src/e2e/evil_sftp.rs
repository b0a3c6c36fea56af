//! An SFTP server that lies: it lists names that no file can have, sizes that none can have, devices, and set-uid
//! programs. For `ForceCommand` of a test's sshd.
//!
//! It speaks version 3 (draft-ietf-secsh-filexfer-02) on stdin and stdout, and knows `/` and `/dir`.

use anyhow::Result;
use oncrpc::xdr::{Reader, Writer};
use std::io::{Read, Write, stdin, stdout};

const INIT: u8 = 1;
const VERSION: u8 = 2;
const CLOSE: u8 = 4;
const LSTAT: u8 = 7;
const OPENDIR: u8 = 11;
const READDIR: u8 = 12;
const REALPATH: u8 = 16;
const STAT: u8 = 17;
const STATUS: u8 = 101;
const HANDLE: u8 = 102;
const NAME: u8 = 104;
const ATTRS: u8 = 105;

const OK: u32 = 0;
const EOF: u32 = 1;
const NO_SUCH_FILE: u32 = 2;
const UNSUPPORTED: u32 = 8;

/// Serves until the client hangs up.
pub fn serve() -> Result<()> {
    let (mut input, mut output) = (stdin().lock(), stdout().lock());
    let mut listed = false;
    let mut len = [0; 4];
    while input.read_exact(&mut len).is_ok() {
        let mut packet = vec![0; u32::from_be_bytes(len).min(1 << 18) as usize];
        input.read_exact(&mut packet)?;
        let Some((kind, body)) = packet.split_first() else { continue };
        let answer = if *kind == INIT { version() } else { answer(*kind, body, &mut listed)? };
        output.write_all(&(answer.len() as u32).to_be_bytes())?;
        output.write_all(&answer)?;
        output.flush()?;
    }
    Ok(())
}

fn version() -> Vec<u8> {
    [&[VERSION][..], &3u32.to_be_bytes()].concat()
}

fn answer(kind: u8, body: &[u8], listed: &mut bool) -> Result<Vec<u8>> {
    let mut r = Reader::new(bytes::Bytes::copy_from_slice(body));
    let id = r.u32()?;
    let len = r.u32().unwrap_or(0) as usize;
    let path = r.take(len).unwrap_or_default();
    let mut w = Writer::new();
    w.u32(id);
    let kind = match (kind, &path[..]) {
        (REALPATH, _) => {
            let real: &[u8] = if path.starts_with(b"/") { &path } else { b"/dir" };
            names(&mut w, &[real]);
            NAME
        }
        (
            STAT | LSTAT,
            b"/" | b"/dir" | b"/good" | b"/dir/dir" | b"/dir/good" | b"/dir/suid" | b"/dir/huge"
            | b"/dir/device",
        ) => {
            attributes(&mut w, &path);
            ATTRS
        }
        (STAT | LSTAT, _) => status(&mut w, NO_SUCH_FILE),
        (OPENDIR, _) => {
            *listed = false;
            string(&mut w, b"h");
            HANDLE
        }
        (READDIR, _) if *listed => status(&mut w, EOF),
        (READDIR, _) => {
            *listed = true;
            let long = [b'x'; 300];
            names(
                &mut w,
                &[
                    b".",
                    b"..",
                    b"",
                    b"a/b",
                    b"../../etc/passwd",
                    b"nul\0",
                    &long,
                    b"dir",
                    b"good",
                    b"good",
                    b"suid",
                    b"huge",
                    b"device",
                    b"\x1b[31mred\n",
                ],
            );
            NAME
        }
        (CLOSE, _) => status(&mut w, OK),
        _ => status(&mut w, UNSUPPORTED),
    };
    Ok([&[kind][..], &w.into_bytes()].concat())
}

/// SFTP strings have no padding, unlike XDR's.
fn string(w: &mut Writer, text: &[u8]) {
    w.u32(text.len() as u32);
    w.raw(text);
}

fn status(w: &mut Writer, code: u32) -> u8 {
    w.u32(code);
    string(w, b"no");
    string(w, b"");
    STATUS
}

fn names(w: &mut Writer, names: &[&[u8]]) {
    w.u32(names.len() as u32);
    for name in names {
        string(w, name);
        string(w, name);
        attributes(w, name);
    }
}

/// Size, owner, mode and times.
fn attributes(w: &mut Writer, path: &[u8]) {
    let (size, mode) = match path.rsplit(|b| *b == b'/').next().unwrap_or_default() {
        b"" | b"dir" => (4, 0o40755),
        b"suid" => (4, 0o106_755),
        b"huge" => (1 << 63, 0o100_644),
        b"device" => (4, 0o060_666),
        _ => (4, 0o100_644),
    };
    w.u32(0xf);
    w.u64(size);
    for word in [1000, 1000, mode, 1_000_000_000, 1_000_000_000] {
        w.u32(word);
    }
}
