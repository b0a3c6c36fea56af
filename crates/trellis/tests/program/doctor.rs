//! `trellis doctor`, and what messages tell a person to run.

use crate::place::{Place, stderr, stdout};
use serde_json::Value;
use std::os::unix::net::UnixListener;
use std::process::{Command, Output};

fn findings(output: &Output) -> Vec<Value> {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", stderr(output)))
}

fn about<'a>(found: &'a [Value], what: &str) -> Vec<&'a Value> {
    found.iter().filter(|f| f["about"] == what).collect()
}

/// A configuration with a slip is one finding, and everything else is checked all the same.
#[test]
fn a_broken_configuration_is_one_finding_of_many() {
    let place = Place::new();
    std::fs::write(place.path("config.toml"), "share = true\nprotcet = []\n").unwrap();
    let output = place.run(&["doctor", "--json", "--config", place.path("config.toml").to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let found = findings(&output);
    let config = about(&found, "config");
    assert!(config.len() == 1 && config[0]["level"] == "fail", "{found:?}");
    assert!(config[0]["found"].as_str().unwrap().contains("line 2"), "{config:?}");
    for what in ["fuse", "ssh", "ports", "disk", "limits", "server"] {
        assert!(!about(&found, what).is_empty(), "{what} is not checked: {found:?}");
    }
}

/// Where no home directory is known, that is a finding, and no reason to say nothing else.
#[test]
fn no_home_directory_is_a_finding() {
    for home in [None, Some("nowhere")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trellis"));
        command.args(["doctor", "--json"]).env_remove("XDG_STATE_HOME").env_remove("XDG_CONFIG_HOME");
        match home {
            Some(home) => command.env("HOME", home),
            None => command.env_remove("HOME"),
        };
        let found = findings(&command.output().unwrap());
        let disk = about(&found, "disk");
        assert!(disk.len() == 1 && !about(&found, "limits").is_empty(), "{home:?}: {found:?}");
        if home.is_some() {
            assert!(disk[0]["found"].as_str().unwrap().contains("no home directory is known"), "{disk:?}");
        }
    }
}

/// A socket that is no server's is told among the findings.
#[test]
fn a_server_that_answers_nonsense_is_a_finding() {
    use std::os::unix::fs::DirBuilderExt;
    let place = Place::new();
    std::fs::DirBuilder::new().mode(0o700).create(place.path("state")).unwrap();
    let listener = UnixListener::bind(place.path("state/control")).unwrap();
    let closing = std::thread::spawn(move || drop(listener.accept().unwrap()));
    let output = place.run(&["doctor", "--json"]);
    closing.join().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let found = findings(&output);
    let server = about(&found, "server");
    assert!(server.len() == 1 && server[0]["level"] == "fail", "{found:?}");
}

/// Whoever named a state directory is told commands that name it.
#[test]
fn commands_in_messages_name_the_state_directory() {
    let place = Place::new();
    let state = place.path("state").display().to_string();
    for args in [&["status"][..], &["sync"], &["conflicts"]] {
        let said = stderr(&place.run(args));
        for command in ["mount", "serve"] {
            assert!(said.contains(&format!("`trellis {command} --state {state}`")), "{args:?}: {said}");
        }
    }
    let said = stdout(&place.run(&["doctor"]));
    assert!(said.contains(&format!("`trellis mount --state {state}`")), "{said}");
    let said = stdout(&place.run(&["service", "status"]));
    assert!(said.contains(&format!("`trellis service start --state {state}`")), "{said}");
    let mut unnamed = Command::new(env!("CARGO_BIN_EXE_trellis"));
    let unnamed = unnamed.arg("status").env("XDG_STATE_HOME", place.path("none")).output().unwrap();
    assert!(stderr(&unnamed).contains("`trellis mount`"), "{}", stderr(&unnamed));
}
