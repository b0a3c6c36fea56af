//! Commands beside their Unix twins: the same words on a directory of this machine and on one of the tree must end with the
//! same exit code, print the same text and leave the same tree.

use crate::place::{Place, stderr, stdout};
use std::path::Path;
use std::process::{Command, Output};

/// `R` is the directory, in which `a` is a file, `d` a directory, `ld` a link to it, `dl` one that leads nowhere and `loop`
/// one to itself.
const LINES: &[&str] = &[
    "ls R/dl",
    "ls R/ld",
    "ls -d R/ld",
    "ls -d R/ld/",
    "ls R/a/",
    "ls R/dl/",
    "ls R/a R/d R/dl",
    "ls -A R",
    "ls -r R",
    "ls -S R/d R/a",
    "ls -t R/d",
    "ls -tr R/d",
    "ls -R R",
    "ls -AR R/d R/a",
    "ls -R R/none",
    "stat R/a/",
    "stat R/none/",
    "cat",
    "cat -n",
    "cat R/a/",
    "cat -n R/a R/d/x",
    "cat -n R/d/x R/a",
    "find R/a/",
    "find R/ld/ -name x",
    "find R/ld -name x",
    "find R/dl/",
    "find R -maxdepth 1 -type d -size +0",
    "du R/a/",
    "du -s -d 1 R",
    "du -d x R",
    "du -d -1 R",
    "chmod 600 R/a/",
    "chmod 600 R/dl",
    "chmod 666 R/a",
    "chmod -w R/a",
    "chmod -r,u+w R/a",
    "chmod 666 R/a",
    "chmod a-w R/a",
    "chmod 644 R/a",
    "chmod -R -w R/d/sub",
    "chmod 755 R/d/sub",
    "cp R/a/../a R/up",
    "cp R/d/x/../x R/up",
    "ls R/a/..",
    "touch R/d/x/../y",
    "mkdir R/dl",
    "mkdir -p R/dl",
    "mkdir -p R/dl/x",
    "mkdir -p R/a",
    "mkdir -p R/a/x",
    "mkdir -p R/d/x R/ld/new/y",
    "mkdir R/slash/",
    "mkdir -m -w R/less",
    "mkdir -m a-w,u+w R/more",
    "touch R/a/",
    "touch R/none/",
    "touch R/ld/",
    "touch R/loop",
    "touch -c R/dl",
    "touch -d @1000000000 R/dl",
    "touch -d @1200000000 -r R/a R/b R/none",
    "touch -r R/dl R/b",
    "touch -r R/none R/c",
    "touch -t 202611210841 -r R/dl R/b",
    "ln -s t R/dangling/",
    "ln -s t R/a/",
    "ln R/a/ R/hard",
    "ln -sfn d/x R/ld",
    "ln -sfn d R/ld",
    "ln -sn d R/ld",
    "ln -s a R/ld",
    "cp R/a/ R/copy",
    "cp R/a R/d/x/",
    "cp -r R/ld/ R/copied",
    "cp -n R/a R/b",
    "mv R/a/ R/moved",
    "mv R/ld/ R/moved",
    "mv R/dl/ R/moved",
    "mv R/a R/moved/",
    "mv R/b R/d/x/",
    "mv R/d/. R/moved",
    "mv R/d/./ R/moved",
    "mv R/d/sub/.. R/moved",
    "mv R/d/. R/none/x",
    "mv -n R/d/. R/moved",
    "mv R/a/. R/moved",
    "mv -n R/b R/a",
    "mv -n R/d R/a",
    "mv -n R/b R/moved",
    "mv -n R/moved R/d",
    "mv -f -n R/dl R/a",
    "touch R/f",
    "ln -s f R/lf",
    "mv R/lf R/f",
    "mv -n R/f R/lf",
    "mv R/f R/lf",
    "ln -s lf R/llf",
    "ln -s ../lf R/d/lf",
    "mv R/lf R/d",
    "ln -s none R/nowhere",
    "mv R/a R/nowhere",
    "mv R/nowhere R/a",
    "rm R/a/",
    "rm -f R/a/",
    "rm R/ld/",
    "rm -r R/dl/",
    "rm R/dl R/loop",
];

/// Lines of which only the exit code is compared: sizes and attributes are of different places.
fn is_shown(line: &str) -> bool {
    line.starts_with("ls") || line.starts_with("cat") || line.starts_with("find")
}

fn prepare(dir: &Path) {
    let script = "mkdir -p \"$0/d/sub\" && cd \"$0\" && echo text > a && printf 'one\\n\\nthree' > d/x && touch -d @1000 d/x \
                  && touch -d @2000 d/sub && touch -d @3000 d/.hidden && ln -s d ld && ln -s none dl && ln -s loop loop";
    assert!(Command::new("bash").arg("-c").arg(script).arg(dir).status().unwrap().success());
}

fn words<'a>(line: &'a str, dir: &str) -> Vec<String> {
    let word = |w: &'a str| match w.strip_prefix('R') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("{dir}{rest}"),
        _ => w.to_owned(),
    };
    line.split(' ').map(word).collect()
}

/// What was printed, in an order that does not depend on the disk where find(1) says none.
fn shown(output: &Output, dir: &str, line: &str) -> Vec<String> {
    let text = stdout(output).replace(dir, "R");
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    if line.starts_with("find") {
        lines.sort();
    }
    lines
}

/// Type, mode, links, target, size and name of all that is in a directory, and times that were set.
fn tree(dir: &Path) -> String {
    let format = "%P %y %m %n %l";
    let mut find = Command::new("find");
    find.arg(dir).args(["-mindepth", "1", "-printf", format, "-type", "f", "-printf", " %s"]);
    find.args(["!", "-newermt", "2020-01-01", "-printf", " %T@", "-o", "-true", "-printf", "\\n"]);
    let text = stdout(&find.output().unwrap());
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.join("\n")
}

fn compare(place: &Place) {
    let (plain, srv) = (place.path("plain"), place.path("srv"));
    prepare(&plain);
    prepare(&srv);
    for line in LINES {
        let theirs = words(line, plain.to_str().unwrap());
        let twin = Command::new(&theirs[0]).args(&theirs[1..]).env("LC_ALL", "C").output().unwrap();
        let ours = words(line, "/here");
        let output = place.files(&ours.iter().map(String::as_str).collect::<Vec<_>>());
        let said = stderr(&output);
        assert_eq!(output.status.code(), twin.status.code(), "{line}: {said}{}", stderr(&twin));
        assert!(output.status.success() || !said.is_empty(), "{line}");
        if is_shown(line) {
            let want = shown(&twin, plain.to_str().unwrap(), line);
            assert_eq!(shown(&output, "/here", line), want, "{line}");
        }
    }
    assert_eq!(tree(&srv), tree(&plain));
}

#[test]
fn links_slashes_and_options_through_the_server() {
    let place = Place::new();
    let _server = place.serve();
    compare(&place);
}

#[test]
fn links_slashes_and_options_without_a_server() {
    compare(&Place::new());
}

/// A reader that has enough ends a command as it ends the twin; who is deaf to SIGPIPE hears why it failed.
#[test]
fn a_reader_that_has_enough_ends_commands_as_their_twins() {
    let place = Place::new();
    std::fs::write(place.path("srv/large"), vec![b'\n'; 4 << 20]).unwrap();
    for trap in ["", "trap '' PIPE;"] {
        let run = |program: &Command, path: &Path| {
            let script = format!("{trap} \"$0\" \"$@\" | head -1 >/dev/null; exit ${{PIPESTATUS[0]}}");
            let mut shell = Command::new("bash");
            shell.arg("-c").arg(script).arg(program.get_program()).args(program.get_args()).arg(path);
            shell.env("LC_ALL", "C").output().unwrap()
        };
        let twin = run(&Command::new("cat"), &place.path("srv/large"));
        let ours = run(&place.files_command(&["cat"]), Path::new("/here/large"));
        assert_eq!(ours.status.code(), twin.status.code(), "{trap}: {}", stderr(&ours));
        assert_eq!(stderr(&ours).is_empty(), stderr(&twin).is_empty(), "{trap}: {}", stderr(&ours));
    }
}

/// A server shows owners as this machine has them, by name; a home tells numbers of its own.
#[test]
fn owners_have_the_names_of_this_machine() {
    let place = Place::new();
    std::fs::write(place.path("srv/f"), "").unwrap();
    let asked = |option: &str| {
        let twin = Command::new("ls").args([option, "f"]).current_dir(place.path("srv")).output().unwrap();
        let ours = place.files(&["ls", option, "/here/f"]);
        let owners = |output: &Output| {
            let text = stdout(output);
            text.split_whitespace().skip(2).take(2).map(str::to_owned).collect::<Vec<_>>()
        };
        (owners(&ours), owners(&twin))
    };
    let (ours, numbers) = asked("-n");
    assert_eq!((&ours, &asked("-l").0), (&numbers, &numbers));
    let _server = place.serve();
    for option in ["-l", "-n"] {
        let (ours, twin) = asked(option);
        assert_eq!(ours, twin, "{option}");
    }
}

/// Where only a part of a twin's options is kept, the others are named as unknown, with where to look.
#[test]
fn an_option_that_is_not_kept_is_named() {
    let place = Place::new();
    for (line, code) in [("ls -Z /here", 2), ("cp -u /here/a /here/b", 1), ("rm --interactive /here/a", 1)] {
        let output = place.run(&line.split(' ').collect::<Vec<_>>());
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{line}: {said}");
        let (verb, option) = (&line[..2], line.split(' ').nth(1).unwrap());
        assert!(said.contains(option) && said.contains(&format!("`trellis {verb} --help`")), "{said}");
        assert!(!said.contains("tip:"), "{said}");
    }
}

/// Files get no set-id bits: that is said, and nothing else of the mode is changed; directories keep theirs.
#[test]
fn set_id_bits_of_files_are_refused_aloud() {
    let place = Place::new();
    let srv = place.path("srv");
    std::fs::create_dir(srv.join("d")).unwrap();
    std::fs::write(srv.join("f"), "").unwrap();
    let mode = |name: &str| {
        use std::os::unix::fs::PermissionsExt;
        srv.join(name).metadata().unwrap().permissions().mode() & 0o7777
    };
    let before = mode("f");
    for wanted in ["u+s", "4700", "g+s,o+w"] {
        let output = place.files(&["chmod", wanted, "/here/f"]);
        assert_eq!(output.status.code(), Some(1), "{wanted}");
        assert!(stderr(&output).contains("/here/f: files do not get set-user-id"), "{}", stderr(&output));
        assert_eq!(mode("f"), before, "{wanted}");
    }
    assert_eq!(place.files(&["chmod", "2755", "/here/d"]).status.code(), Some(0));
    assert_eq!(mode("d"), 0o2755);
}
