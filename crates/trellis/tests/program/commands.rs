//! The commands that have a Unix twin: what they do to files, what they refuse, and with which exit code.

use crate::place::{Place, stderr, stdout};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Output;

/// A command that must end so; answers its standard output.
fn expect(place: &Place, code: i32, line: &str) -> String {
    let output = run(place, line);
    assert_eq!(output.status.code(), Some(code), "{line}: {}", stderr(&output));
    assert_eq!(code == 0, stderr(&output).is_empty(), "{line}: {}", stderr(&output));
    stdout(&output)
}

fn run(place: &Place, line: &str) -> Output {
    let base = place.path("local").display().to_string();
    let words: Vec<String> = line.split(' ').map(|w| w.replace("HERE", &base)).collect();
    place.files(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

fn json(text: &str) -> Vec<Value> {
    text.lines().map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{l}: {e}"))).collect()
}

fn changes(place: &Place) {
    expect(place, 0, "mkdir -p /here/a/b/c");
    expect(place, 0, "mkdir -p -m 700 /here/a/b /here/private");
    assert_eq!(json(&expect(place, 0, "stat --json /here/private"))[0]["mode"], "0700");
    expect(place, 0, "touch -d @1000.5 /here/a/f");
    let f = &json(&expect(place, 0, "stat --json /here/a/f"))[0];
    assert_eq!((&f["type"], &f["size"], &f["mtime"]), (&"file".into(), &0.into(), &1000.into()));
    assert_eq!(f["mtime_nsec"], 500_000_000);
    expect(place, 0, "touch -c /here/a/none");
    expect(place, 1, "stat /here/a/none");
    expect(place, 0, "chmod u=rw,go= /here/a/f");
    expect(place, 0, "chmod -R go+rX /here/a");
    assert_eq!(json(&expect(place, 0, "stat --json /here/a/f"))[0]["mode"], "0644");
    expect(place, 0, "ln /here/a/f /here/a/hard");
    expect(place, 0, "ln -s f /here/a/soft");
    assert_eq!(json(&expect(place, 0, "stat --json /here/a/soft"))[0]["target"], "f");
    assert_eq!(json(&expect(place, 0, "stat -L --json /here/a/soft"))[0]["nlink"], 2);
    expect(place, 0, "ln -sf hard /here/a/soft");
    assert_eq!(json(&expect(place, 0, "stat --json /here/a/soft"))[0]["target"], "hard");
    expect(place, 0, "mv /here/a/hard /here/a/b/moved");
    expect(place, 0, "mv /here/a/b /here/d");
    assert_eq!(expect(place, 0, "ls /here/d"), "c\nmoved\n");
    expect(place, 1, "find /here -newer /here/a/none");
}

fn looks(place: &Place) {
    assert_eq!(
        expect(place, 0, "find /here/a /here/d -mindepth 1"),
        "/here/a/f\n/here/a/soft\n/here/d/c\n/here/d/moved\n"
    );
    assert_eq!(expect(place, 0, "find /here -type l -print0"), "/here/a/soft\0");
    assert_eq!(expect(place, 0, "find /here/d -empty -type d"), "/here/d/c\n");
    assert_eq!(json(&expect(place, 0, "find --json /here/d -name moved"))[0]["path"], "/here/d/moved");
    let du = json(&expect(place, 0, "du -s --json /here"));
    assert!(du.len() == 1 && du[0]["used"].is_u64() && du[0]["path"] == "/here", "{du:?}");
    assert!(expect(place, 0, "du -ah /here").ends_with("/here\n"));
    let df = json(&expect(place, 0, "df --json /here"));
    assert!(df[0]["total"].as_u64() >= df[0]["available"].as_u64(), "{df:?}");
    assert!(expect(place, 0, "df -h /here").contains("USE%"));
    assert_eq!(json(&expect(place, 0, "ls -d --json /here/d"))[0]["type"], "directory");
}

fn removals(place: &Place) {
    expect(place, 1, "rm /here/d");
    expect(place, 1, "rm -r /here");
    expect(place, 1, "rm -r /here/.");
    expect(place, 1, "rm -rf /");
    expect(place, 1, "rm /here/none");
    expect(place, 0, "rm -f /here/none");
    assert!(expect(place, 0, "rm -rv /here/d").ends_with("removed /here/d\n"));
    expect(place, 0, "rm -d /here/private");
    expect(place, 0, "rm -r /here/a");
    assert_eq!(expect(place, 0, "ls -a /here"), "");
}

fn refusals(place: &Place) {
    expect(place, 0, "mkdir /here/dir /here/dir/sub");
    expect(place, 0, "touch /here/file");
    for (code, line) in [
        (2, "ls /here/none"),
        (2, "ls /nowhere@else:x"),
        (1, "stat /here/file/x"),
        (1, "cat /here/dir"),
        (1, "mkdir /here/dir"),
        (1, "mkdir /here/none/x"),
        (1, "mkdir -p /here/file/x"),
        (1, "ln /here/file /here/dir/none/x"),
        (1, "ln /here/file /here/file"),
        (1, "ln /here/dir /here/other"),
        (1, "ln -s scp:lab:/x /here/l"),
        (1, "touch /here/none/x"),
        (1, "chmod 644 /here/none"),
        (1, "mv /here/none /here/x"),
        (1, "mv /here/dir /here/file"),
        (1, "mv /here/file /here/file"),
        (1, "mv /here/dir /here/dir/sub/x"),
        (1, "mv /here HERE/x"),
        (1, "cp /here/dir HERE/x"),
        (1, "cp /here/file /here/none/"),
        (1, "cp -r /here/dir /here/dir/sub"),
        (1, "cp /here/file /here/file"),
        (1, "find /here/none"),
        (1, "du /here/none"),
        (1, "df /here/none"),
    ] {
        expect(place, code, line);
    }
    let left = expect(place, 0, "find /here -mindepth 1 -maxdepth 2");
    assert_eq!(left, "/here/dir\n/here/dir/sub\n/here/file\n", "a refused command changed something");
    expect(place, 0, "rm -r /here/dir /here/file");
}

/// Across the border of the tree a move is a copy and a removal.
fn moves(place: &Place) {
    let local = place.path("local");
    fs::create_dir_all(local.join("m/sub")).unwrap();
    fs::write(local.join("m/sub/text"), "text\n").unwrap();
    symlink("sub/text", local.join("m/link")).unwrap();
    fs::set_permissions(local.join("m/sub/text"), fs::Permissions::from_mode(0o440)).unwrap();
    let mtime = fs::metadata(local.join("m/sub/text")).unwrap().mtime();
    expect(place, 0, "mv HERE/m /here");
    assert!(!local.join("m").exists());
    assert_eq!(expect(place, 0, "cat /here/m/link"), "text\n");
    let moved = &json(&expect(place, 0, "stat --json /here/m/sub/text"))[0];
    assert_eq!((&moved["mode"], &moved["mtime"]), (&"0440".into(), &mtime.into()));
    expect(place, 0, "mv /here/m HERE/back");
    assert_eq!(fs::read_to_string(local.join("back/sub/text")).unwrap(), "text\n");
    assert_eq!(expect(place, 0, "ls -a /here"), "");
    fs::remove_dir_all(local.join("back")).unwrap();
}

/// What is whole is not copied again, what is half goes on, and nothing half has a final name.
fn copies_go_on(place: &Place) {
    let local = place.path("local");
    let big: Vec<u8> = (0..5_000_000u32).map(|n| (n % 253) as u8).collect();
    fs::create_dir_all(local.join("set/sub")).unwrap();
    fs::write(local.join("set/big"), &big).unwrap();
    fs::write(local.join("set/sub/small"), "small\n").unwrap();
    let sparse = fs::File::create(local.join("set/sparse")).unwrap();
    sparse.set_len(8 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"end", (4 << 20) + 5).unwrap();
    expect(place, 0, "cp -rp HERE/set /here");
    let first = json(&expect(place, 0, "stat --json /here/set/big"));
    expect(place, 0, "cp -rp HERE/set /here");
    assert_eq!(json(&expect(place, 0, "stat --json /here/set/big"))[0]["fileid"], first[0]["fileid"]);
    expect(place, 0, "cp -r /here/set HERE/out");
    assert!(fs::read(local.join("out/big")).unwrap() == big, "other bytes came back");
    let hole = fs::metadata(local.join("out/sparse")).unwrap();
    assert_eq!(hole.len(), 8 << 20);
    assert!(hole.blocks() * 512 < 1 << 20, "the hole is filled: {} blocks", hole.blocks());
    let names = |dir: &Path| {
        let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&local.join("out")), ["big", "sparse", "sub"]);
    expect(place, 0, "rm -r /here/set");
    fs::remove_dir_all(local.join("set")).unwrap();
    fs::remove_dir_all(local.join("out")).unwrap();
}

fn everything(place: &Place) {
    fs::create_dir_all(place.path("local")).unwrap();
    changes(place);
    looks(place);
    removals(place);
    refusals(place);
    moves(place);
    copies_go_on(place);
}

#[test]
fn twins_through_the_server() {
    let place = Place::new();
    let mut server = place.serve();
    everything(&place);
    assert_eq!(place.run(&["sync"]).status.code(), Some(0));
    assert_eq!(fs::read_dir(place.path("srv")).unwrap().count(), 0);
    assert_eq!(place.run(&["stop"]).status.code(), Some(0));
    assert_eq!(server.exit().0, Some(0));
}

#[test]
fn twins_without_a_server() {
    let place = Place::new();
    everything(&place);
    assert_eq!(fs::read_dir(place.path("srv")).unwrap().count(), 0);
}
