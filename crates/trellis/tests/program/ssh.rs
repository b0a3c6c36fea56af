//! The program and homes behind a real SSH server on loopback.

use crate::place::{Place, stderr, stdout};
use home::testing::sshd::{Options, Sshd, available};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A server of SSH and a place whose commands find it under every host name; `None`, said aloud, where this
/// machine has no such server, which CI must have.
pub fn lab(options: &Options) -> Option<(Sshd, Place, PathBuf)> {
    if let Err(missing) = available() {
        assert!(std::env::var_os("CI").is_none(), "{missing}");
        eprintln!("not tested: {missing}");
        return None;
    }
    let sshd = Sshd::start(options).unwrap();
    let mut place = Place::new();
    place.ssh_config = Some(sshd.ssh_config());
    let far = place.path("far");
    std::fs::create_dir(&far).unwrap();
    std::fs::write(far.join("hello"), "hello\n").unwrap();
    Some((sshd, place, far))
}

fn homes(place: &Place) -> Vec<Value> {
    let status = place.run(&["status", "--json"]);
    assert_eq!(status.status.code(), Some(0), "{}", stderr(&status));
    let json: Value = serde_json::from_slice(&status.stdout).unwrap();
    json["homes"].as_array().unwrap().clone()
}

/// The path as each kind of argument.
fn spelled(far: &std::path::Path, rest: &str) -> [String; 4] {
    let path = format!("{}/{rest}", far.display());
    [format!("scp:lab:{path}"), format!("lab:{path}"), format!("/lab{path}"), format!("/scp:lab:{path}")]
}

/// Bytes of which no link, however slow, carries fewer.
fn incompressible(len: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn a_home_by_the_agent() {
    let Some((sshd, place, far)) = lab(&Options::default()) else { return };
    let mut server = place.serve();
    for path in spelled(&far, "hello") {
        let cat = place.run(&["cat", &path]);
        assert_eq!(
            (cat.status.code(), stdout(&cat).as_str()),
            (Some(0), "hello\n"),
            "{path}: {}",
            stderr(&cat)
        );
    }
    let source = place.path("source");
    std::fs::create_dir(&source).unwrap();
    let big = incompressible(2_500_000);
    std::fs::write(source.join("big"), &big).unwrap();
    let to = format!("lab:{}", far.display());
    let copied = place.run(&["cp", "-rp", source.to_str().unwrap(), &to]);
    assert_eq!(copied.status.code(), Some(0), "{}", stderr(&copied));
    let sync = place.run(&["sync", &to, "--timeout", "60"]);
    assert_eq!(sync.status.code(), Some(0), "{}", stderr(&sync));
    assert!(std::fs::read(far.join("source/big")).unwrap() == big, "other bytes are at the home");
    let time = |path: PathBuf| path.metadata().unwrap().modified().unwrap();
    assert_eq!(time(far.join("source/big")), time(source.join("big")));

    let homes = homes(&place);
    assert_eq!(homes.len(), 1, "all spellings are one account: {homes:?}");
    let home = &homes[0];
    assert!(home["account"].as_str().unwrap().ends_with(&format!("@127.0.0.1:{}", sshd.port())), "{home}");
    assert_eq!((home["class"].as_str(), home["state"].as_str()), (Some("posix"), Some("up")));
    assert_eq!((home["unsent_ops"].as_u64(), home["mode"].as_str()), (Some(0), Some("wb")));
    assert!(home["round_trips"].as_u64().unwrap() > 0 && home["bytes_out"].as_u64().unwrap() > 2_000_000);
    assert_eq!(place.run(&["stop"]).status.code(), Some(0));
    assert_eq!(server.exit().0, Some(0));
}

#[test]
fn a_home_without_a_server() {
    let Some((_sshd, place, far)) = lab(&Options::default()) else { return };
    for path in spelled(&far, "hello") {
        let cat = place.files(&["cat", &path]);
        assert_eq!(
            (cat.status.code(), stdout(&cat).as_str()),
            (Some(0), "hello\n"),
            "{path}: {}",
            stderr(&cat)
        );
    }
    let big = vec![9u8; 2_500_000];
    std::fs::write(place.path("big"), &big).unwrap();
    let copied = place.files(&["cp", place.path("big").to_str().unwrap(), &format!("lab:{}", far.display())]);
    assert_eq!(copied.status.code(), Some(0), "{}", stderr(&copied));
    assert!(std::fs::read(far.join("big")).unwrap() == big, "other bytes are at the home");
}

#[test]
fn a_home_by_sftp_says_what_is_weaker() {
    let options = Options { server: vec!["ForceCommand internal-sftp".into()], ..Options::default() };
    let Some((_sshd, place, far)) = lab(&options) else { return };
    let _server = place.serve();
    let cat = place.run(&["cat", &format!("lab:{}/hello", far.display())]);
    assert_eq!(stdout(&cat), "hello\n", "{}", stderr(&cat));
    let home = &homes(&place)[0];
    assert_eq!((home["class"].as_str(), home["state"].as_str()), (Some("sftp"), Some("up")), "{home}");
    assert!(!home["weaker"].as_array().unwrap().is_empty());
    assert!(stdout(&place.run(&["status"])).contains("weaker: "));
}

/// Copies, overwrites, moves and removes on a home by SSH; `far` is the same directory, seen directly.
fn commands_at_a_home(place: &Place, far: &Path) {
    let (source, at) = (place.path("set"), |rest: &str| format!("lab:{}/{rest}", far.display()));
    std::fs::create_dir_all(source.join("sub")).unwrap();
    for n in 0..30 {
        std::fs::write(source.join(format!("sub/f{n}")), vec![n as u8; n * 1000]).unwrap();
    }
    std::fs::write(source.join("big"), vec![7u8; 2_500_000]).unwrap();
    let run = |args: &[&str]| {
        let output = place.files(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
        stdout(&output)
    };
    let text = source.to_str().unwrap();
    run(&["cp", "-rp", text, &at("set")]);
    run(&["cp", "-rp", text, &at("set"), "-T"]);
    std::fs::write(source.join("big"), vec![8u8; 100]).unwrap();
    run(&["cp", "-r", "-T", text, &at("set")]);
    assert_eq!(run(&["find", &at("set"), "-name", ".trellis*"]), "");
    run(&["mv", &at("set/sub"), &at("set/other")]);
    run(&["mkdir", "-p", &at("a/b/c")]);
    run(&["chmod", "-R", "o-rx", &at("a")]);
    run(&["ln", "-s", "b/c", &at("a/link")]);
    run(&["touch", "-d", "@1000", &at("a/link/stamp")]);
    assert!(run(&["stat", "--json", &at("a/b/c/stamp")]).contains("\"mtime\":1000,"));
    assert!(run(&["df", &at("")]).contains('%'));
    run(&["mv", &at("set"), place.path("home").to_str().unwrap()]);
    assert!(std::fs::read(place.path("home/big")).unwrap() == [8u8; 100]);
    assert!(std::fs::read(place.path("home/other/f29")).unwrap() == vec![29u8; 29_000]);
    run(&["rm", "-r", &at("a")]);
    assert_eq!(run(&["ls", "-a", &at("")]), "hello\n");
    for dir in ["set", "home"] {
        std::fs::remove_dir_all(place.path(dir)).unwrap();
    }
}

#[test]
fn commands_by_agent_and_by_sftp_with_and_without_a_server() {
    let sftp = vec!["ForceCommand internal-sftp".into()];
    for server in [vec![], sftp] {
        let Some((_sshd, place, far)) = lab(&Options { server, ..Options::default() }) else { return };
        commands_at_a_home(&place, &far);
        let _server = place.serve();
        commands_at_a_home(&place, &far);
        let sync = place.run(&["sync", "--timeout", "60"]);
        assert_eq!(sync.status.code(), Some(0), "{}", stderr(&sync));
        let left: Vec<_> = std::fs::read_dir(&far).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["hello"]);
    }
}

#[test]
fn refusals_say_what_to_do() {
    for (options, hint) in [
        (Options { refuse_key: true, ..Options::default() }, "key"),
        (Options { unknown_key: true, ..Options::default() }, "known"),
    ] {
        let Some((_sshd, place, _)) = lab(&options) else { return };
        let _server = place.serve();
        let refused = place.run(&["ls", "lab:/"]);
        assert_eq!(refused.status.code(), Some(2), "{options:?}");
        let said = stderr(&refused);
        assert!(said.contains(hint) && said.contains("ssh"), "{said}");
    }
}

#[test]
fn what_could_not_be_sent_is_told_kept_and_sent_later() {
    let Some((mut sshd, place, far)) = lab(&Options::default()) else { return };
    let mut server = place.serve();
    let to = format!("lab:{}", far.display());
    assert_eq!(stdout(&place.run(&["ls", &to])), "hello\n");
    sshd.stop();
    std::fs::write(place.path("late"), "late\n").unwrap();
    let copied = place.run(&["cp", place.path("late").to_str().unwrap(), &to]);
    assert_eq!(copied.status.code(), Some(0), "{}", stderr(&copied));
    let sync = place.run(&["sync", "--timeout", "0.2"]);
    assert_eq!(sync.status.code(), Some(1));
    assert!(stderr(&sync).contains("not sent yet"), "{}", stderr(&sync));
    assert!(homes(&place)[0]["unsent_ops"].as_u64().unwrap() > 0);
    let stop = place.run(&["stop", "--drain", "0.2"]);
    assert_eq!(stop.status.code(), Some(1));
    assert!(stderr(&stop).contains("not sent yet"), "{}", stderr(&stop));
    assert_eq!(server.exit().0, Some(0));

    sshd.restart().unwrap();
    let direct = place.files(&["cat", &format!("{to}/hello")]);
    assert_eq!(direct.status.code(), Some(1));
    assert!(stderr(&direct).contains("does not have yet"), "{}", stderr(&direct));
    assert!(!far.join("late").exists());

    let mut server = place.serve();
    let sync = place.run(&["sync", "--timeout", "60"]);
    assert_eq!(sync.status.code(), Some(0), "{}", stderr(&sync));
    assert_eq!(std::fs::read_to_string(far.join("late")).unwrap(), "late\n");
    assert_eq!(place.run(&["stop"]).status.code(), Some(0));
    assert_eq!(server.exit().0, Some(0));
    assert_eq!(stdout(&place.files(&["cat", &format!("{to}/late")])), "late\n");
}

#[test]
fn a_second_signal_ends_the_server_at_once_and_loses_nothing() {
    let Some((mut sshd, place, far)) = lab(&Options::default()) else { return };
    let mut server = place.serve();
    let to = format!("lab:{}", far.display());
    assert_eq!(stdout(&place.run(&["ls", &to])), "hello\n");
    sshd.stop();
    std::fs::write(place.path("late"), "late\n").unwrap();
    assert_eq!(place.run(&["cp", place.path("late").to_str().unwrap(), &to]).status.code(), Some(0));
    let start = Instant::now();
    server.signal();
    std::thread::sleep(Duration::from_millis(500));
    assert!(server.child.try_wait().unwrap().is_none(), "the first signal lets changes go home");
    server.signal();
    assert_eq!(server.exit().0, Some(1));
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    let direct = place.files(&["cat", &format!("{to}/hello")]);
    assert!(stderr(&direct).contains("did not end in order"), "{}", stderr(&direct));

    sshd.restart().unwrap();
    let _server = place.serve();
    assert_eq!(place.run(&["sync", "--timeout", "60"]).status.code(), Some(0));
    assert_eq!(std::fs::read_to_string(far.join("late")).unwrap(), "late\n");
}
