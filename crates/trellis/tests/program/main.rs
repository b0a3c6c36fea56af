//! The real program: it serves, tells so, answers commands, keeps a second server out, and ends in order.

mod commands;
mod doctor;
mod output;
mod place;
mod repaired;
mod ssh;
mod twins;

use place::{Place, stderr, stdout};
use std::net::TcpStream;
use std::path::Path;

#[test]
fn serve_status_stop() {
    let place = Place::new();
    let mut server = place.serve();
    assert!(server.nfs.ip().is_loopback() && TcpStream::connect(server.nfs).is_ok());

    let status = place.run(&["status", "--json"]);
    assert_eq!(status.status.code(), Some(0), "{}", stderr(&status));
    let json: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(json["nfs"][0], server.nfs.to_string());
    assert_eq!(json["pid"], server.child.id());
    assert!(stdout(&place.run(&["status"])).contains(&server.nfs.to_string()));

    let mut second = place.serve_command();
    let second = second.output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    let said = stderr(&second);
    assert!(said.contains("already uses") && said.contains(&server.child.id().to_string()), "{said}");

    assert_eq!(place.run(&["sync"]).status.code(), Some(0));
    let stop = place.run(&["stop"]);
    assert_eq!(stop.status.code(), Some(0), "{}", stderr(&stop));
    let (code, said) = server.exit();
    assert_eq!(code, Some(0));
    let port = server.nfs.port();
    let line = format!(
        "mount -t nfs -o vers=3,tcp,port={port},mountport={port},nolock,nosuid,nodev 127.0.0.1:/ /trellis"
    );
    assert!(said.contains(&line), "{said}");

    let mut again = place.serve();
    assert_eq!(again.nfs, server.nfs, "the port is kept");
    again.signal();
    assert_eq!(again.exit().0, Some(0));
}

#[test]
fn what_cannot_be_said_ends_nothing() {
    let place = Place::new();
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = place.serve_command();
    let mut server = place.serve_by(command.stdout(full()).stderr(full()).env("TRELLIS_LOG", "debug"));
    for n in 0..20 {
        let file = format!("/here/f{n}");
        assert_eq!(place.files(&["touch", &file]).status.code(), Some(0));
        assert_eq!(place.files(&["rm", &file]).status.code(), Some(0));
    }
    assert_eq!(place.run(&["sync"]).status.code(), Some(0));
    assert_eq!(place.run(&["stop"]).status.code(), Some(0));
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_killed_server_leaves_nothing_in_the_way() {
    let place = Place::new();
    drop(place.serve());
    let mut server = place.serve();
    assert_eq!(place.run(&["stop", "--drain", "1"]).status.code(), Some(0));
    assert_eq!(server.exit().0, Some(0));
}

/// Lists, copies in and out, reads, over whatever way there is to the tree.
fn files_go_in_and_out(place: &Place) {
    let source = place.path("source");
    std::fs::create_dir_all(source.join("sub")).unwrap();
    let big: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    std::fs::write(source.join("big"), &big).unwrap();
    std::fs::write(source.join("sub/small"), "small\n").unwrap();
    std::os::unix::fs::symlink("sub/small", source.join("link")).unwrap();
    let text = |path: &Path| path.to_str().unwrap().to_owned();

    let copied = place.files(&["cp", "-rp", &text(&source), "/here"]);
    assert_eq!(copied.status.code(), Some(0), "{}", stderr(&copied));
    let listed = place.files(&["ls", "/here/source"]);
    assert_eq!(stdout(&listed), "big\nlink\nsub\n", "{}", stderr(&listed));
    assert!(stdout(&place.files(&["ls", "-l", "/here/source"])).contains("link -> sub/small"));
    assert_eq!(stdout(&place.files(&["cat", "/here/source/link"])), "small\n");
    assert!(stdout(&place.files(&["stat", "/here/source/big"])).contains("Size: 3000000"));

    let back = place.path("back");
    let copied = place.files(&["cp", "-r", "/here/source", &text(&back)]);
    assert_eq!(copied.status.code(), Some(0), "{}", stderr(&copied));
    assert!(std::fs::read(back.join("big")).unwrap() == big, "other bytes came back");
    assert_eq!(std::fs::read_link(back.join("link")).unwrap(), Path::new("sub/small"));
    assert_eq!(std::fs::read_to_string(back.join("sub/small")).unwrap(), "small\n");

    let failed = place.files(&["cat", "/here/none", "/here/source/sub/small"]);
    assert_eq!((failed.status.code(), stdout(&failed)), (Some(1), "small\n".into()));
    assert!(stderr(&failed).contains("/here/none"), "{}", stderr(&failed));
    assert_eq!(place.files(&["ls", "scp:-oProxyCommand=x:/y"]).status.code(), Some(2));
    let nothing = place.files(&["cp", "one", "two"]);
    assert_eq!(nothing.status.code(), Some(1));
    assert!(stderr(&nothing).contains("one:"), "{}", stderr(&nothing));
}

#[test]
fn files_through_the_server() {
    let place = Place::new();
    let mut server = place.serve();
    assert_eq!(stdout(&place.run(&["ls", "/"])), "here\n");
    files_go_in_and_out(&place);
    let sync = place.run(&["sync", "/here"]);
    assert_eq!(sync.status.code(), Some(0), "{}", stderr(&sync));
    assert_eq!(std::fs::read_to_string(place.path("srv/source/sub/small")).unwrap(), "small\n");
    assert_eq!(place.run(&["stop"]).status.code(), Some(0));
    assert_eq!(server.exit().0, Some(0));
}

#[test]
fn files_without_a_server() {
    let place = Place::new();
    assert_eq!(stdout(&place.files(&["ls"])), "here\n");
    files_go_in_and_out(&place);
    assert_eq!(std::fs::read_to_string(place.path("srv/source/sub/small")).unwrap(), "small\n");
    assert!(!place.path("state").exists(), "reading needs no state directory");
}

#[test]
fn without_a_server_commands_say_so() {
    let place = Place::new();
    for (words, code, said) in [
        ("status", 1, "`trellis serve --state"),
        ("sync", 1, "`trellis serve --state"),
        ("stop", 1, "nothing to stop"),
        ("service stop", 0, "stopped already"),
        ("service status", 3, ""),
    ] {
        let output = place.run(&words.split(' ').collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(code), "{words}");
        let state = place.path("state").display().to_string();
        let told = stderr(&output);
        assert!(said.is_empty() || told.contains(said) && told.contains(&state), "{words}: {told}");
    }
}

/// What is on this machine is no host that a command to the server would ask for.
#[test]
fn a_path_of_this_machine_is_of_no_home() {
    let place = Place::new();
    let _server = place.serve();
    for words in [&["sync", "/tmp"][..], &["sync", "/tmp/none"], &["mode", "/usr", "ro"]] {
        let output = place.run(words);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        assert!(said.contains("not in a mount of the tree") && !said.contains("no host"), "{said}");
    }
    assert_eq!(place.run(&["sync", "/"]).status.code(), Some(0));
    assert_eq!(place.run(&["sync", "/here"]).status.code(), Some(0));
}

/// Each line of the log of servers that followed each other tells its time and its process.
#[test]
fn the_log_of_a_service_tells_when_and_who() {
    let place = Place::new();
    let config = place.path("service.toml");
    std::fs::write(&config, "no-nfs = true\nno-root-squash = true\nallow-network-state = true\n").unwrap();
    let installed = place.run(&["service", "install", "--config", config.to_str().unwrap()]);
    assert_eq!(installed.status.code(), Some(0), "{}", stderr(&installed));
    let mut pids = Vec::new();
    for _ in 0..2 {
        let started = place.run(&["service", "start"]);
        assert_eq!(started.status.code(), Some(0), "{}", stderr(&started));
        let status = place.run(&["service", "status", "--json"]);
        let json: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
        pids.push(json["pid"].as_u64().unwrap());
        assert_eq!(place.run(&["service", "stop"]).status.code(), Some(0));
    }
    let logs = stdout(&place.run(&["service", "logs"]));
    for pid in pids {
        for said in ["serves", "stopping; ", "ended"] {
            let is_it = |l: &&str| l.contains(&format!("Z [{pid}] ")) && l.contains(said);
            assert_eq!(logs.lines().filter(is_it).count(), 1, "{said} of {pid} in\n{logs}");
        }
    }
}

/// The state directory is named before the command or behind it.
#[test]
fn the_state_directory_is_named_anywhere() {
    let place = Place::new();
    let state = place.path("state").display().to_string();
    let run = |words: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_trellis"));
        command.args(words).env("HOME", place.path("")).output().unwrap()
    };
    for words in [
        &["--state", &state, "stop"][..],
        &[&format!("--state={state}"), "service", "status"],
        &["service", "--state", &state, "status"],
        &["service", "status", "--state", &state],
    ] {
        let output = run(words);
        let said = stdout(&output) + &stderr(&output);
        assert!(matches!(output.status.code(), Some(1 | 3)) && said.contains(&state), "{words:?}: {said}");
    }
    // Whatever stands before it, a command is read as it is alone.
    std::fs::write(place.path("srv/f"), "").unwrap();
    let config = place.path("config.toml").display().to_string();
    let found = run(&["--state", &state, "find", "/here", "-name", "f", "--config", &config]);
    assert_eq!(stdout(&found), "/here/f\n", "{}", stderr(&found));
    assert_eq!(run(&["--state", &state, "find", "/here", "-exec", "x"]).status.code(), Some(1));
    assert_eq!(run(&["--state", &state, "ls", "--fast"]).status.code(), Some(2));
}

/// What the system says is told in its words; its numbers are for programs.
#[test]
fn reasons_of_the_system_have_no_numbers() {
    let place = Place::new();
    let none = place.path("none").display().to_string();
    let file = place.path("config.toml").display().to_string();
    let long = format!("/{}", "x".repeat(300));
    for (words, said) in [
        (["ls", "/here", "--config", &none], "No such file or directory"),
        (["ls", "/here", "--config", "/"], "Is a directory"),
        (["serve", "--no-root-squash", "--state", &format!("{file}/state")], "Not a directory"),
        (["serve", "--no-root-squash", "--state", "/proc/none"], "No such file or directory"),
        (["status", "--json", "--state", &long], "File name too long"),
        (["serve", "--no-root-squash", "--ssh-config", &none], "No such file or directory"),
        (["service", "install", "--config", &none], "No such file or directory"),
    ] {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_trellis"));
        let output = command.args(words).env("HOME", place.path("")).output().unwrap();
        let told = stderr(&output);
        assert!(!output.status.success() && told.contains(said), "{words:?}: {told}");
        assert!(!told.contains("os error"), "{words:?}: {told}");
    }
}

#[test]
fn wrong_usage_is_2_or_what_the_twin_has() {
    let place = Place::new();
    for (args, code) in [
        (&["fly"][..], 2),
        (&["serve", "--listen", "x"], 2),
        (&["serve", "--mode", "fast"], 2),
        (&["sync", "--timeout", "soon"], 2),
        (&["ls", "--fast"], 2),
        (&["stat"], 1),
        (&["cp", "one"], 1),
        (&["chmod", "u+q", "/here/x"], 1),
        (&["find", "/here", "-exec", "ls"], 1),
        (&["find", "/here", "!", "-name", "x"], 1),
        (&["find", "/here", "(", "-name", "x", ")"], 1),
        (&["rm", "scp:-oProxyCommand=x:/y"], 1),
        (&["man", "fly"], 2),
    ] {
        let output = place.run(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", stderr(&output));
        assert!(!stderr(&output).is_empty() && stdout(&output).is_empty(), "{args:?}");
    }
    assert!(stderr(&place.run(&["find", "/here", "-exec", "ls"])).contains("-maxdepth"));
}

#[test]
fn a_configuration_with_a_slip_is_refused_with_its_line() {
    let place = Place::new();
    std::fs::write(place.path("config.toml"), "share = true\nprotcet = []\n").unwrap();
    let output = place.serve_command().output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("line 2"), "{}", stderr(&output));
    // Whoever cannot do anything at all ends as its twin does then.
    for (command, code) in [("ls", 2), ("cat", 1), ("du", 1), ("find", 1)] {
        let output = place.files(&[command, "/here"]);
        assert_eq!(output.status.code(), Some(code), "{command}: {}", stderr(&output));
    }
}
