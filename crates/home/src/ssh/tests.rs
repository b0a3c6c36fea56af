//! Tests of how ssh is called and what its complaints mean.

use super::*;
use std::os::unix::process::ExitStatusExt;

fn target() -> SshTarget {
    SshTarget::new(Some("ann"), "lab").unwrap()
}

fn farewell(code: i32, said: &str) -> Farewell {
    Farewell { status: Some(ExitStatus::from_raw(code << 8)), said: said.into() }
}

#[test]
fn names_that_could_be_options_or_code_are_refused() {
    for host in ["-oProxyCommand=x", "", "a b", "a;b", "a$(x)", "a/b", "a\n", &"x".repeat(256)] {
        assert_eq!(SshTarget::new(None, host).unwrap_err().kind, ErrorKind::Invalid, "{host:?}");
    }
    for user in ["-l", "", "a b", "a`b`", "a:b"] {
        assert_eq!(SshTarget::new(Some(user), "h").unwrap_err().kind, ErrorKind::Invalid, "{user:?}");
    }
    assert!(SshTarget::new(Some("a.b+c@realm-1_2"), "2001:db8::1").is_ok());
}

#[test]
fn every_reason_has_its_kind_and_says_what_to_do() {
    let cases = [
        (
            "ssh: Could not resolve hostname lab: Name or service not known",
            ErrorKind::UnknownHost,
            "ssh ann@lab",
        ),
        ("ssh: connect to host lab port 22: Connection refused", ErrorKind::Unreachable, "tried again"),
        ("ssh: connect to host lab port 22: Connection timed out", ErrorKind::Unreachable, "tried again"),
        ("ann@lab: Permission denied (publickey,password).", ErrorKind::Login, "`trellis login ann@lab`"),
        (
            "No ED25519 host key is known for lab\nHost key verification failed.",
            ErrorKind::Login,
            "accept it",
        ),
        (
            "@@@@\n@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.",
            ErrorKind::Login,
            "ssh-keygen -R",
        ),
        ("Received disconnect: 2: Too many authentication failures", ErrorKind::Login, "IdentitiesOnly"),
    ];
    let cases = cases.into_iter().chain([
        (
            "ann@gw: Permission denied (keyboard-interactive).\nConnection closed by UNKNOWN port 65535",
            ErrorKind::Login,
            "`trellis login ann@lab`",
        ),
        ("Shared connection to lab closed.", ErrorKind::Unreachable, "tried again"),
        (
            "ssh: Could not resolve hostname lab: Temporary failure in name resolution",
            ErrorKind::NameServer,
            "no name server answers",
        ),
        (
            "f: line 1: Bad configuration option: x\nf: terminating, 1 bad",
            ErrorKind::Setup,
            "its configuration",
        ),
        ("Unable to negotiate with ::1 port 22: no matching cipher found.", ErrorKind::Setup, "no algorithm"),
    ]);
    for (said, kind, advice) in cases {
        let error = classify(&target(), &farewell(255, said)).unwrap();
        assert_eq!(error.kind, kind, "{said}");
        assert!(error.detail.contains(advice), "{}", error.detail);
    }
}

#[test]
fn the_login_command_is_exact() {
    assert_eq!(target().login_command(), "trellis login ann@lab");
    let words = ["trellis", "login", "--state", "/s"].map(String::from).to_vec();
    let far = SshTarget::new(None, "2001:db8::1").unwrap().with_login_words(words);
    assert_eq!(far.login_command(), "trellis login --state /s '[2001:db8::1]'");
}

#[test]
fn what_ssh_said_is_quoted_in_whole_lines_without_its_name() {
    assert_eq!(super::quote("ssh: no such host\n\n@@@@\n  bye \n"), "no such host; bye");
    let long = format!("{}\nHost key verification failed.\n", "word ".repeat(100));
    assert_eq!(super::quote(&long), "Host key verification failed.");
}

#[test]
fn a_command_that_prints_an_error_is_no_failure_of_ssh() {
    assert!(classify(&target(), &farewell(1, "Permission denied (publickey).")).is_none());
    assert!(classify(&target(), &farewell(255, "welcome")).is_none());
}

#[test]
fn the_account_comes_from_ssh() {
    let facts = Facts::parse("user ann\nhostname Lab.Example\nport 2222\nhostkeyalias x\n").unwrap();
    let account = Account { user: "ann".into(), hostname: "lab.example".into(), port: 2222, via: None };
    assert_eq!(facts.account, account);
    assert!(Facts::parse("user ann\n").is_none());
}

#[tokio::test]
async fn what_a_child_says_is_bounded_and_escaped() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("ssh");
    std::fs::write(
        &script,
        "#!/bin/sh\nyes 123456789 | head -c 100000 >&2\nprintf '\\033[2Jend\\n' >&2\nexit 255\n",
    )
    .unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let target = target().with_program(&script);
    let channel = Channel::open(&target, Far::Command("true")).unwrap();
    let farewell = channel.child.farewell().await;
    assert_eq!(farewell.status.and_then(|s| s.code()), Some(255));
    assert!(
        farewell.said.len() <= 2 * STDERR_BYTES && farewell.said.ends_with("\\u{1b}[2Jend"),
        "{}",
        farewell.said
    );
}

#[tokio::test]
async fn only_what_ssh_says_itself_is_for_a_person_to_change() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("ssh");
    std::fs::write(
        &script,
        "#!/bin/sh\n[ -e \"$0.bad\" ] && echo 'Bad option' >&2 && exit 255\nkill -9 $$\n",
    )
    .unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let target = target().with_program(&script);
    assert_eq!(target.facts().await.unwrap_err().kind, ErrorKind::Unreachable);
    std::fs::write(dir.path().join("ssh.bad"), "").unwrap();
    assert_eq!(target.facts().await.unwrap_err().kind, ErrorKind::Setup);
}

#[tokio::test]
async fn an_ssh_that_was_killed_does_not_say_that_there_is_no_sftp() {
    let dir = tempfile::tempdir().unwrap();
    for (how, kind) in [("kill -9 $$", ErrorKind::Unreachable), ("exit 1", ErrorKind::Unsupported)] {
        let script = dir.path().join("ssh");
        std::fs::write(&script, format!("#!/bin/sh\n{how}\n")).unwrap();
        std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let target = target().with_program(&script);
        let opened = crate::sftp::Session::start(&target, "no agent", Default::default(), None).await;
        assert_eq!(opened.err().map(|e| e.kind), Some(kind), "{how}");
    }
}

#[tokio::test]
async fn no_child_can_ask_at_a_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("ssh");
    // Field 6 of stat(5) is the session, which is its leader's pid; field 7 is the terminal.
    let text = "#!/bin/sh\nread -r pid _ _ _ _ session tty _ < /proc/self/stat\n\
                echo \"$(($$ == session)) $tty $SSH_ASKPASS_REQUIRE\" >&2\nexit 255\n";
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let channel = Channel::open(&target().with_program(&script), Far::Command("true")).unwrap();
    assert_eq!(channel.child.farewell().await.said.trim(), "1 0 never");
}

#[tokio::test]
async fn a_dropped_child_takes_its_group_along() {
    let dir = tempfile::tempdir().unwrap();
    let (script, pid) = (dir.path().join("ssh"), dir.path().join("pid"));
    let text = format!("#!/bin/sh\nsleep 1000 &\necho $! > {0}.new; mv {0}.new {0}\nwait\n", pid.display());
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let channel = Channel::open(&target().with_program(&script), Far::Command("true")).unwrap();
    while !pid.exists() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let grandchild: i32 = std::fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
    drop(channel);
    let gone = || match std::fs::read_to_string(format!("/proc/{grandchild}/stat")) {
        Ok(stat) => stat.rsplit(") ").next().is_some_and(|s| s.starts_with('Z')),
        Err(_) => true,
    };
    for _ in 0..500 {
        if gone() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the sleeping grandchild {grandchild} still runs");
}

#[test]
fn only_a_far_side_in_good_health_says_that_it_does_not_run_what_was_asked_for() {
    use std::os::unix::process::ExitStatusExt;
    let ended = |raw: i32, said: &str| {
        let status = Some(std::process::ExitStatus::from_raw(raw));
        Farewell { status, said: said.into() }.is_refusal()
    };
    assert!(ended(1 << 8, "This account is currently not available."));
    assert!(ended(127 << 8, "exec: /bin/sh: not found"));
    assert!(ended(255 << 8, "exec request failed on channel 0"));
    assert!(!ended(9, ""), "ssh was killed");
    assert!(!ended(137 << 8, ""), "the shell there was killed");
    assert!(!ended(255 << 8, ""), "ssh failed and does not say why");
    assert!(!Farewell { status: None, said: String::new() }.is_refusal());
}
