//! Standard output that takes nothing: as the Unix twins, commands fail, and never panic.

use crate::place::{Place, stderr};
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};

fn full() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

/// Commands of files in the current directory, which holds `file` and `dir`.
const TWINS: &[&str] = &[
    "ls",
    "ls -l .",
    "ls -d file dir",
    "cat file",
    "cat file file",
    "stat file dir",
    "find .",
    "find . -type f -print0",
    "du -a .",
    "df .",
    "rm -rv dir",
];

#[test]
fn a_full_disk_behind_standard_output_is_an_error_as_with_the_twins() {
    let place = Place::new();
    for here in ["twin", "srv"] {
        fs::create_dir_all(place.path(here).join("dir/sub")).unwrap();
        fs::write(place.path(here).join("file"), "no end of line").unwrap();
    }
    for line in TWINS {
        let words: Vec<&str> = line.split(' ').collect();
        let mut twin = Command::new(words[0]);
        twin.args(&words[1..]).current_dir(place.path("twin")).env("LC_ALL", "C").stdout(full());
        let twin = twin.output().unwrap();
        let ours: Vec<String> = words.iter().map(|w| in_the_tree(w)).collect();
        let ours: Vec<&str> = ours.iter().map(String::as_str).collect();
        // Where nothing is named, the current directory is meant, which is none of the tree.
        let ours = if *line == "ls" { vec!["ls", "/here"] } else { ours };
        let output = place.files_command(&ours).stdout(full()).output().unwrap();
        assert_eq!(output.status.code(), twin.status.code(), "{line}: {}", stderr(&output));
        assert!(twin.status.code().is_some_and(|code| code > 0), "{line}: the twin does not fail");
        let said = stderr(&output);
        assert_eq!(said.matches("No space left on device").count(), 1, "{line}: {said}");
        assert!(!said.contains("panicked"), "{line}: {said}");
    }
    assert!(!place.path("srv/dir").exists(), "what is not said is done");
}

fn in_the_tree(word: &str) -> String {
    match word {
        "." => "/here".into(),
        "file" | "dir" => format!("/here/{word}"),
        other => other.into(),
    }
}

/// The runtime hides that a descriptor was closed; the twins tell whoever lost the output of it.
#[test]
fn a_closed_standard_output_is_an_error_as_with_the_twins() {
    let place = Place::new();
    fs::write(place.path("srv/file"), "no end of line").unwrap();
    fs::write(place.path("file"), "no end of line").unwrap();
    let closed = |command: &Command| {
        let mut shell = Command::new("bash");
        shell.arg("-c").arg("exec \"$0\" \"$@\" >&-").arg(command.get_program()).args(command.get_args());
        shell.current_dir(place.path(".")).envs(command.get_envs().filter_map(|(k, v)| Some((k, v?))));
        shell.output().unwrap()
    };
    for line in
        ["ls file", "stat file", "cat file", "cat -n file", "find file", "du file", "df file", "touch file"]
    {
        let words: Vec<&str> = line.split(' ').collect();
        let mut twin = Command::new(words[0]);
        let twin = closed(twin.args(&words[1..]).env("LC_ALL", "C"));
        let ours: Vec<String> = words.iter().map(|w| in_the_tree(w)).collect();
        let output = closed(&place.files_command(&ours.iter().map(String::as_str).collect::<Vec<_>>()));
        assert_eq!(output.status.code(), twin.status.code(), "{line}: {}", stderr(&output));
        let complaints = |output: &Output| stderr(output).contains("Bad file descriptor");
        assert_eq!(complaints(&output), complaints(&twin), "{line}: {}", stderr(&output));
    }
    for line in ["--help", "--version", "man ls", "completions bash", "ls --help"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trellis"));
        let output = closed(command.args(line.split(' ')));
        assert!(output.status.code() > Some(0), "{line}");
        assert!(stderr(&output).contains("Bad file descriptor"), "{line}: {}", stderr(&output));
    }
}

/// What cannot be read of standard input is an error of the input, as with cat(1).
#[test]
fn an_input_that_cannot_be_read_is_an_error() {
    let place = Place::new();
    for (script, why) in
        [("exec \"$0\" \"$@\" <&-", "Bad file descriptor"), ("exec \"$0\" \"$@\" </", "Is a directory")]
    {
        let cat = place.files_command(&["cat", "-"]);
        let mut shell = Command::new("bash");
        shell.arg("-c").arg(script).arg(cat.get_program()).args(cat.get_args());
        let output = shell.envs(cat.get_envs().filter_map(|(k, v)| Some((k, v?)))).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{script}: {}", stderr(&output));
        assert!(stderr(&output).starts_with(&format!("trellis: -: {why}")), "{}", stderr(&output));
    }
}

#[test]
fn where_nobody_listens_commands_end_without_a_word() {
    let place = Place::new();
    fs::write(place.path("srv/file"), "text").unwrap();
    for args in [&["ls", "/here"][..], &["cat", "/here/file"], &["find", "/here"], &["--help"], &["man"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let command = |out: Stdio, err: Stdio| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_trellis"));
            if args[0].starts_with(['l', 'c', 'f']) {
                command = place.files_command(args);
            } else {
                command.args(args);
            }
            command.stdout(out).stderr(err).output().unwrap()
        };
        let output = command(writer.try_clone().unwrap().into(), Stdio::piped());
        assert_eq!((output.status.signal(), stderr(&output).as_str()), (Some(libc::SIGPIPE), ""), "{args:?}");
        // Nor does an error that cannot be said end them otherwise.
        let output = command(full().into(), full().into());
        assert_eq!(output.status.code(), Some(if args[0] == "ls" { 2 } else { 1 }), "{args:?}");
    }
}
