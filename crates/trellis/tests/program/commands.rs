//! The commands that have a Unix twin: what they do to files, what they refuse, and with which exit code.

use crate::place::{Place, stderr, stdout};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

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

/// A move over a link takes the link's name, from here and in the tree, and leaves alone what it leads to.
fn moves_over_links(place: &Place) {
    let kept = place.path("srv/m/kept");
    fs::create_dir(kept.parent().unwrap()).unwrap();
    for (name, from) in [("in", "/here/m/new"), ("out", "HERE/new")] {
        fs::write(&kept, "kept").unwrap();
        fs::write(place.path("srv/m/new"), "new").unwrap();
        fs::create_dir_all(place.path("local")).unwrap();
        fs::write(place.path("local/new"), "new").unwrap();
        let link = place.path("srv/m").join(name);
        symlink("kept", &link).unwrap();
        expect(place, 0, &format!("mv {from} /here/m/{name}"));
        expect(place, 0, &format!("cat /here/m/{name}"));
        assert!(link.symlink_metadata().unwrap().is_file(), "{from}");
        assert_eq!((fs::read(&link).unwrap(), fs::read(&kept).unwrap()), (b"new".into(), b"kept".into()));
    }
}

#[test]
fn a_move_replaces_a_link_and_not_what_it_leads_to() {
    moves_over_links(&Place::new());
    let place = Place::new();
    let _server = place.serve();
    moves_over_links(&place);
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
    assert_eq!(expect(place, 0, "du -s /here /here").lines().count(), 1, "counted twice");
    let parts = expect(place, 0, "du /here/d /here");
    let names: Vec<&str> = parts.lines().filter_map(|l| l.split('\t').nth(1)).collect();
    assert_eq!(names, ["/here/d/c", "/here/d", "/here/a", "/here/private", "/here"]);
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
        (1, "mkdir /here/dir/.."),
        (1, "mkdir /here/none/.."),
        (2, "ls "),
        (1, "stat "),
        (1, "cat "),
        (1, "rm "),
        (1, "mkdir "),
        (1, "mkdir -p "),
        (1, "touch "),
        (1, "chmod 644 "),
        (1, "ln  /here/x"),
        (1, "cp  HERE/x"),
        (1, "cp /here/file "),
        (1, "mv /here/file "),
        (1, "du "),
        (1, "df "),
        (1, "find "),
        (1, "find /here -maxdepth -1"),
        (1, "find /here -exec ls {} ;"),
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
    expect(place, 0, "rm -rf ");
    expect(place, 0, "touch -c ");
    for (line, words) in [
        ("rm ", "'': no such file or directory"),
        ("cp /here/file /here/none/", "/here/none/: there is no such directory"),
        (
            "find /here -exec ls {} ;",
            "unknown predicate `-exec'; what is found is passed on by `-print0 | xargs",
        ),
        ("find /here -maxdepth -1", "invalid value '-1' for '--maxdepth <N>': write a number of levels"),
    ] {
        let said = stderr(&run(place, line));
        assert!(said.contains(words) && !said.contains("tip:"), "{line}: {said}");
    }
    let left = expect(place, 0, "find /here -mindepth 1 -maxdepth 2");
    assert_eq!(left, "/here/dir\n/here/dir/sub\n/here/file\n", "a refused command changed something");
    expect(place, 0, "rm -r /here/dir /here/file");
}

/// A file over a link goes to what the link leads to, which must exist; what has a name may be kept.
fn onto_names(place: &Place) {
    let local = place.path("local");
    fs::write(local.join("new"), "new\n").unwrap();
    fs::write(local.join("old"), "old\n").unwrap();
    expect(place, 0, "mkdir /here/dir");
    expect(place, 0, "cp HERE/old /here/f");
    expect(place, 0, "ln -s ../f /here/dir/new");
    expect(place, 0, "cp HERE/new /here/dir");
    assert_eq!(expect(place, 0, "cat /here/f"), "new\n");
    assert_eq!(json(&expect(place, 0, "stat --json /here/dir/new"))[0]["target"], "../f");
    expect(place, 0, "rm /here/f");
    for line in ["cp HERE/new /here/dir", "cp HERE/new /here/dir/new"] {
        let said = stderr(&run(place, line));
        assert!(said.contains("/here/dir/new: is a link that leads nowhere: remove it first"), "{said}");
        expect(place, 1, line);
    }
    assert_eq!(expect(place, 0, "ls -1 /here"), "dir\n", "a refused copy made a file");
    expect(place, 0, "cp HERE/old /here/f");
    expect(place, 0, "cp -n HERE/new /here/f");
    expect(place, 0, "cp -rn HERE/old HERE/new /here/dir");
    assert_eq!(expect(place, 0, "cat /here/f /here/dir/old"), "old\nold\n");
    expect(place, 0, "touch -t 202611210841.07 /here/f");
    assert_eq!(json(&expect(place, 0, "stat --json /here/f"))[0]["mtime"], 1_795_250_467);
    expect(place, 1, "touch -t 2026 /here/f");
    let mut cat = place.files_command(&["cat", "/here/f", "-", "/here/f"]);
    let mut cat = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut cat.stdin.take().unwrap(), b"between\n").unwrap();
    assert_eq!(cat.wait_with_output().unwrap().stdout, b"old\nbetween\nold\n");
    nothing_replaces_itself(place);
    expect(place, 0, "rm -r /here/dir /here/f");
    fs::remove_file(local.join("new")).unwrap();
    fs::remove_file(local.join("old")).unwrap();
}

/// What would leave nothing but a link to itself, or replace what is protected, is refused.
fn nothing_replaces_itself(place: &Place) {
    expect(place, 0, "mkdir /here/self");
    expect(place, 0, "cp HERE/old /here/self/a");
    expect(place, 0, "ln -s a /here/self/la");
    expect(place, 1, "mv /here/self/la /here/self/a");
    expect(place, 1, "ln -sf a /here/self/a");
    expect(place, 1, "ln -sf ../self/a /here/self/a");
    expect(place, 1, "ln -sf /elsewhere/self/a /here/self/a");
    expect(place, 0, "chmod 444 /here/self/a");
    let said = stderr(&run(place, "cp HERE/new /here/self/a"));
    assert!(said.contains("say -f to replace it"), "{said}");
    assert_eq!(expect(place, 0, "cat /here/self/a /here/self/la"), "old\nold\n");
    expect(place, 0, "cp -f HERE/new /here/self/a");
    assert_eq!(expect(place, 0, "cat /here/self/la"), "new\n");
    expect(place, 0, "ln -sf ../f /here/self/a");
    assert_eq!(json(&expect(place, 0, "stat --json /here/self/a"))[0]["target"], "../f");
    expect(place, 0, "rm -r /here/self");
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
    let shown = stderr(&run(place, "cp -r --progress HERE/set/sub HERE/shown"));
    assert!(shown.contains("1 of 1 file, 6 B of 6 B"), "{shown}");
    fs::remove_dir_all(local.join("shown")).unwrap();
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
    onto_names(place);
    moves(place);
    copies_go_on(place);
}

/// The many files of a directory, as the interrupted commands below copy them.
const MANY: usize = 1200;

fn content(n: usize) -> Vec<u8> {
    format!("file {n}\n").repeat(500).into_bytes()
}

fn make_many(dir: &Path) {
    fs::create_dir_all(dir).unwrap();
    for n in 0..MANY {
        fs::write(dir.join(format!("f{n}")), content(n)).unwrap();
    }
}

/// The whole files of a directory by their inode number; fails where a name lies about its content.
fn whole(dir: &Path) -> BTreeMap<String, u64> {
    let mut whole = BTreeMap::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name().into_string().unwrap();
        if let Some(n) = name.strip_prefix('f') {
            assert!(fs::read(entry.path()).unwrap() == content(n.parse().unwrap()), "{name} is not whole");
            whole.insert(name, entry.metadata().unwrap().ino());
        }
    }
    whole
}

/// Begins a command, and ends it by a signal when some files have arrived.
fn interrupt(place: &Place, args: &[&str], there: &Path, signal: Signal) -> Output {
    let mut command = place.files_command(args);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    let arrived = || fs::read_dir(there).into_iter().flatten().count();
    while arrived() < 40 {
        assert!(Instant::now() < until, "nothing arrives");
        std::thread::sleep(Duration::from_millis(5));
    }
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), signal).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn an_interrupted_copy_goes_on_under_the_same_name() {
    let place = Place::new();
    let (many, there) = (place.path("local/many"), place.path("srv/new"));
    make_many(&many);
    let args = ["cp", "-r", many.to_str().unwrap(), "/here/new"];
    let ended = interrupt(&place, &args, &there, Signal::INT);
    assert_eq!(ended.status.code(), Some(130), "{}", stderr(&ended));
    assert!(stderr(&ended).contains("run the same command again"), "{}", stderr(&ended));
    let first = whole(&there);
    assert!(!first.is_empty() && first.len() < MANY, "{} files", first.len());
    let ended = interrupt(&place, &args, &there, Signal::KILL);
    assert_eq!(ended.status.code(), None, "{}", stderr(&ended));
    let again = place.files(&args);
    assert_eq!(again.status.code(), Some(0), "{}", stderr(&again));
    let last = whole(&there);
    assert_eq!((last.len(), fs::read_dir(&there).unwrap().count()), (MANY, MANY));
    let kept = first.iter().filter(|(name, ino)| last.get(*name) == Some(*ino)).count();
    // What was whole but not noted yet when the signal came is copied again: at most one file for each worker.
    assert!(kept + 8 >= first.len(), "{kept} of {} files were kept", first.len());
    assert_eq!(place.files(&args).status.code(), Some(0), "a copy that is done is forgotten:");
    assert!(there.join("many").is_dir(), "the directory is gone into, as cp(1) does");
}

#[test]
fn an_interrupted_move_loses_nothing() {
    let place = Place::new();
    let _server = place.serve();
    let (many, there) = (place.path("local/many"), place.path("srv/many"));
    make_many(&many);
    let args = ["mv", many.to_str().unwrap(), "/here"];
    interrupt(&place, &args, &there, Signal::KILL);
    assert_eq!(whole(&many).len(), MANY, "something is missing before all is copied");
    let again = place.files(&args);
    assert_eq!(again.status.code(), Some(0), "{}", stderr(&again));
    assert!(!many.exists());
    assert_eq!((whole(&there).len(), fs::read_dir(&there).unwrap().count()), (MANY, MANY));
}

/// What nobody may write to, and was killed after it got its name and before that was noted, is the command's own.
fn protected_files_go_on(place: &Place, line: &str) {
    let local = place.path("local");
    let mode = |path: &Path, bits| fs::set_permissions(path, fs::Permissions::from_mode(bits)).unwrap();
    fs::create_dir_all(local.join("set")).unwrap();
    for (name, bits) in [("set/a", 0o444), ("set/b", 0o400), ("set/c", 0o644)] {
        fs::write(local.join(name), name).unwrap();
        mode(&local.join(name), bits);
    }
    // What cannot be copied leaves the command unfinished.
    let there = place.path("srv/goal");
    fs::create_dir_all(there.join("c")).unwrap();
    expect(place, 1, line);
    assert_eq!(fs::read_to_string(there.join("a")).unwrap(), "set/a");
    let before = fs::metadata(there.join("a")).unwrap().ino();
    let notes = place.path(".cache/trellis/copies");
    for note in fs::read_dir(notes).unwrap() {
        let path = note.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let left: Vec<&str> = text.lines().filter(|l| !l.contains("whole")).collect();
        fs::write(&path, left.join("\n") + "\n").unwrap();
    }
    // Somebody's protected file is not.
    mode(&there.join("b"), 0o600);
    fs::write(there.join("b"), "another").unwrap();
    mode(&there.join("b"), 0o444);
    fs::remove_dir(there.join("c")).unwrap();
    let said = stderr(&run(place, line));
    assert!(!said.contains("/a: "), "{said}");
    assert!(said.contains("b: is write-protected: say -f to replace it"), "{said}");
    assert_eq!(fs::read_to_string(there.join("b")).unwrap(), "another");
    let after = fs::metadata(there.join("a")).unwrap();
    assert_eq!((fs::read_to_string(there.join("a")).unwrap(), after.mode() & 0o777), ("set/a".into(), 0o444));
    assert!(after.ino() != before, "what was not noted as whole is copied again");
    fs::remove_file(there.join("b")).unwrap();
    expect(place, 0, line);
    assert_eq!(fs::read_dir(place.path(".cache/trellis/copies")).unwrap().count(), 0);
    fs::remove_dir_all(&there).unwrap();
    fs::remove_dir_all(local.join("set")).unwrap();
}

#[test]
fn a_copy_of_protected_files_goes_on() {
    let place = Place::new();
    protected_files_go_on(&place, "cp -rT HERE/set /here/goal");
    protected_files_go_on(&place, "cp HERE/set/a HERE/set/b HERE/set/c /here/goal");
}

/// A directory that has got its mode, and not all that belongs in it, is filled by the next run.
#[test]
fn a_copy_goes_on_in_a_directory_that_nobody_may_write_to() {
    let place = Place::new();
    let (source, there) = (place.path("local/set/closed"), place.path("srv/goal/closed"));
    fs::create_dir_all(&source).unwrap();
    fs::write(source.join("a"), "text").unwrap();
    // What is no file is not copied: the command fails.
    let pipe = source.join("b");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    fs::set_permissions(&source, fs::Permissions::from_mode(0o555)).unwrap();
    let mode = || fs::metadata(&there).unwrap().mode() & 0o777;
    expect(&place, 1, "cp -r HERE/set /here/goal");
    assert_eq!((fs::read_to_string(there.join("a")).unwrap(), mode()), ("text".into(), 0o555));
    fs::remove_file(&pipe).unwrap();
    fs::write(&pipe, "more").unwrap();
    // A run that was cut off before it has given the mode.
    fs::set_permissions(&there, fs::Permissions::from_mode(0o755)).unwrap();
    expect(&place, 0, "cp -r HERE/set /here/goal");
    assert_eq!((fs::read_to_string(there.join("b")).unwrap(), mode()), ("more".into(), 0o555));
}

/// A large file goes on at the byte where it stopped, unless what is there is something else.
#[test]
fn a_part_is_gone_on_with_if_it_is_one() {
    let place = Place::new();
    let big: Vec<u8> = (0..6_000_000u32).map(|n| (n % 249) as u8).collect();
    let source = place.path("big");
    fs::write(&source, &big).unwrap();
    let parts = || -> Vec<_> {
        let entries =
            fs::read_dir(place.path("srv")).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        entries.filter(|n| n.starts_with(".trellis-part.")).collect()
    };
    let there = place.path("srv/big");
    let args = ["cp", source.to_str().unwrap(), "/here/big"];
    // A full disk in the middle: the part stays, and nothing has the final name.
    let limited = "ulimit -f 3000; exec \"$0\" \"$@\" 2>/dev/null";
    let shown = place.files_command(&args);
    let mut command = Command::new("bash");
    command.arg("-c").arg(limited).arg(shown.get_program()).args(shown.get_args());
    for (name, value) in shown.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    assert!(!command.status().unwrap().success());
    let left = parts();
    assert!(!there.exists() && left.len() == 1, "{left:?}");
    let part = place.path("srv").join(&left[0]);
    let ino = fs::metadata(&part).unwrap().ino();
    assert!(fs::read(&part).unwrap().len() > 1 << 20, "the part is too short for the test");
    assert_eq!(place.files(&args).status.code(), Some(0));
    assert_eq!(fs::metadata(&there).unwrap().ino(), ino, "it was begun anew");
    assert!(fs::read(&there).unwrap() == big && parts().is_empty());
    // The same name with other bytes in it is no part of this file.
    fs::write(&part, vec![1; 3 << 20]).unwrap();
    assert_eq!(place.files(&args).status.code(), Some(0));
    assert!(fs::read(&there).unwrap() == big && parts().is_empty());
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

/// What fails is named: the source or the target, as it was typed, without names and numbers of ours.
fn failures_name_their_path(place: &Place) {
    expect(place, 0, "mkdir /here/dir");
    fs::write(place.path("srv/file"), "text").unwrap();
    fs::create_dir_all(place.path("local")).unwrap();
    for (line, said) in [
        // The kernel takes no file there, whoever asks.
        ("cp /here/file /proc/copy", "/proc/copy: No such file or directory"),
        ("cp /here/file HERE/none/", "HERE/none/: there is no such directory: make it first"),
        ("cp /here/file /here/none/", "/here/none/: there is no such directory: make it first"),
        ("cp HERE/none /here/x", "HERE/none: No such file or directory"),
        ("cp - /here/x", "-: No such file or directory; standard input is /dev/stdin"),
        ("ln /here/dir /here/x", "/here/dir: is a directory, which has one name only"),
        ("ln /here/none /here/x", "/here/none: "),
        ("ln /here/file x", "x: its first name is a host's"),
        (
            "cp -r /here/dir /here/file",
            "/here/file: is no directory, and the directory /here/dir does not replace it",
        ),
        (
            "mv /here/dir /here/file",
            "/here/file: is no directory, and the directory /here/dir does not replace it",
        ),
        ("mv -T /here/file /here/dir", "/here/dir: a directory is in the way: move it aside"),
        (
            "mv /here/dir /here/dir/sub",
            "/here/dir: cannot be moved to a subdirectory of itself, /here/dir/sub",
        ),
        ("mv HERE/. HERE/sub", "HERE/.: "),
    ] {
        let output = run(place, line);
        let told = stderr(&output).replace(&place.path("local").display().to_string(), "HERE");
        assert_eq!(output.status.code(), Some(1), "{line}: {told}");
        assert!(told.starts_with(&format!("trellis: {said}")), "{line}: {told}");
        assert!(!told.contains(".trellis-part") && !told.contains("os error"), "{line}: {told}");
    }
    // What begins like a name of the tree is a path of this machine for these two.
    for (line, hint) in [
        (
            "cp HERE/file here/new",
            "here/new was taken for a path of this machine; in the tree it is /here/new",
        ),
        (
            "mv here/file HERE/moved",
            "here/file was taken for a path of this machine; in the tree it is /here/file",
        ),
    ] {
        fs::write(place.path("local/file"), "text").unwrap();
        let line = line.replace("HERE", &place.path("local").display().to_string());
        let output = run(place, &line);
        let told = stderr(&output);
        assert!(output.status.code() == Some(1) && told.contains(hint), "{line}: {told}");
    }
    expect(place, 0, "rm -r /here/dir /here/file");
}

/// What comes through a pipe is copied in and out, as by the twin.
fn pipes_are_copied(place: &Place) {
    fs::create_dir_all(place.path("local")).unwrap();
    let text = "x".repeat(300_000);
    fs::write(place.path("local/long"), &text).unwrap();
    let pipe = |from: &str, words: &[&str], to: &str| {
        let script = format!("{from} \"$0\" \"$@\" {to}");
        let command = place.files_command(words);
        let mut shell = Command::new("bash");
        shell.arg("-c").arg(script).arg(command.get_program()).args(command.get_args());
        shell.current_dir(place.path("local")).env("HOME", place.path("")).output().unwrap()
    };
    let done = pipe("cat long |", &["cp", "/dev/stdin", "/here/piped"], "");
    assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
    assert!(fs::read_to_string(place.path("srv/piped")).unwrap() == text, "other bytes arrived");
    let done = pipe("", &["cp", "/here/piped", "/dev/stdout"], "| cat; exit ${PIPESTATUS[0]}");
    assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
    assert!(stdout(&done) == text, "other bytes came back");
    let refused = pipe("cat long |", &["cp", "-r", "/dev/stdin", "/here/again"], "");
    assert!(fs::symlink_metadata("/dev/stdin").unwrap().is_symlink());
    assert_eq!(refused.status.code(), Some(0), "a link is copied as one: {}", stderr(&refused));
    expect(place, 0, "rm /here/piped /here/again");
}

#[test]
fn failures_and_pipes() {
    let place = Place::new();
    failures_name_their_path(&place);
    pipes_are_copied(&place);
    let place = Place::new();
    let _server = place.serve();
    failures_name_their_path(&place);
    let sync = || assert_eq!(place.run(&["sync"]).status.code(), Some(0));
    sync();
    pipes_are_copied(&place);
}
