//! Remote homes over a real SSH server on loopback.

use home::ssh::{Channel, Control, Far};
use home::testing::sshd::{self, Options, Sshd};
use home::testing::{DirOutside, Subject, conformance};
use home::{AgentBinaries, Class, ErrorKind, Home, HomePath, Link, Loc, RemoteHome, connect};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;

fn loc(path: &Path) -> Loc {
    let path = HomePath::parse(path.as_os_str().as_encoded_bytes()).unwrap();
    Loc { path, id: None }
}

fn start(options: Options) -> (Sshd, Arc<RemoteHome>) {
    let sshd = Sshd::start(&options).unwrap();
    let home = connect(sshd.target(), sshd::agents());
    (sshd, home)
}

fn force(command: &str) -> Options {
    Options { server: vec![format!("ForceCommand {command}")], ..Options::default() }
}

/// The agents that are kept at the account.
fn kept(sshd: &Sshd) -> Vec<String> {
    let entries = std::fs::read_dir(sshd.cache().join("trellis")).into_iter().flatten().flatten();
    let names = entries.map(|e| e.file_name().to_string_lossy().into_owned());
    names.filter(|n| n.starts_with("agent-")).collect()
}

async fn conforms(home: Arc<dyn Home>, class: Class) {
    let number = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    conformance(|| {
        let base = root.join(number.fetch_add(1, std::sync::atomic::Ordering::Relaxed).to_string());
        std::fs::create_dir(&base).unwrap();
        let outside = Arc::new(DirOutside { root: "/".into() });
        let subject = Subject { home: home.clone(), outside, base: loc(&base).path, class };
        async { subject }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_installs_itself_once_and_serves() {
    let (sshd, home) = start(Options::default());
    assert_eq!(home.status().link, Link::Idle);
    let hello = home.attach().await.unwrap();
    assert_eq!((hello.class, hello.uid), (Class::Posix, rustix::process::geteuid().as_raw()));
    assert_eq!(home.status().link, Link::Up);
    assert_eq!(kept(&sshd).len(), 1);
    let program = sshd.cache().join("trellis").join(&kept(&sshd)[0]);
    let installed = program.metadata().unwrap();

    std::fs::write(sshd.dir().join("file"), "content").unwrap();
    let chunk = home.read(&loc(&sshd.dir().join("file")), 3, 100).await.unwrap();
    assert_eq!(&chunk.data[..], b"tent");

    let again = connect(sshd.target(), sshd::agents());
    let second = again.attach().await.unwrap();
    assert_eq!((second.token, second.boot_id), (hello.token, hello.boot_id));
    use std::os::unix::fs::MetadataExt;
    assert_eq!(program.metadata().unwrap().ino(), installed.ino(), "the program was sent twice");
    assert_eq!(kept(&sshd).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_passes_the_conformance_suite() {
    let (_sshd, home) = start(Options::default());
    conforms(home, Class::Posix).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_host_a_refused_port_and_a_refused_key_have_their_errors() {
    let refused = connect(Sshd::start(&Options::default()).unwrap().target(), sshd::agents());
    // That server is gone again, and so is its configuration: ssh itself says so.
    assert_eq!(refused.attach().await.unwrap_err().kind, ErrorKind::Setup);

    let (mut sshd, home) = start(Options::default());
    sshd.stop();
    let error = home.attach().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unreachable, "{error}");
    assert!(matches!(home.status().link, Link::Down(text) if text == error.detail));

    let (_sshd, home) = start(Options { refuse_key: true, ..Options::default() });
    let error = home.attach().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Login, "{error}");
    assert!(error.detail.contains("ssh -o BatchMode=yes -F"), "{error}");

    let sshd = Sshd::start(&Options::default()).unwrap();
    let config = sshd.dir().join("plain");
    std::fs::write(&config, "").unwrap();
    let target = home::SshTarget::new(None, "no-such-host.invalid").unwrap().with_config(Some(config));
    let error = connect(target, AgentBinaries::none()).attach().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::UnknownHost, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_or_changed_host_key_is_never_accepted() {
    let (sshd, home) = start(Options { unknown_key: true, ..Options::default() });
    let error = home.attach().await.unwrap_err();
    assert!(error.kind == ErrorKind::Login && error.detail.contains("not known yet"), "{error}");
    assert_eq!(std::fs::read(sshd.known_hosts()).unwrap(), b"");

    let (mut sshd, home) = start(Options::default());
    let before = std::fs::read(sshd.known_hosts()).unwrap();
    sshd.change_host_key().unwrap();
    sshd.restart().unwrap();
    let error = home.attach().await.unwrap_err();
    assert!(error.kind == ErrorKind::Login && error.detail.contains("has changed"), "{error}");
    assert_eq!(std::fs::read(sshd.known_hosts()).unwrap(), before);
    assert!(kept(&sshd).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_agent_fails_calls_as_unreachable_and_the_next_call_reconnects() {
    let (sshd, home) = start(Options::default());
    home.attach().await.unwrap();
    let agents = sshd.sessions("trellis/agent-");
    assert_eq!(agents.len(), 1);
    // Stopped first, so that the call is under way when it dies.
    sshd::signal(agents[0], libc::SIGSTOP);
    let call = {
        let (home, at) = (home.clone(), loc(sshd.dir()));
        tokio::spawn(async move { home.stat(&at).await })
    };
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!call.is_finished());
    sshd::signal(agents[0], libc::SIGKILL);
    let error = call.await.unwrap().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unreachable, "{error}");
    let mut answer = home.stat(&loc(sshd.dir())).await;
    for _ in 0..100 {
        if answer.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        answer = home.stat(&loc(sshd.dir())).await;
    }
    assert!(answer.is_ok(), "{answer:?}");
    assert_ne!(sshd.sessions("trellis/agent-"), agents);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_carries_further_channels_without_another_login_and_leaves_no_socket() {
    let (sshd, home) = start(Options::default());
    // As ssh and its server leave it when they are killed.
    drop(std::os::unix::net::UnixListener::bind(sshd.masters().join("via-of-a-killed1")).unwrap());
    let sockets =
        || std::fs::read_dir(sshd.masters()).unwrap().map(|e| e.unwrap().path()).collect::<Vec<_>>();
    for life in 1..=2 {
        home.attach().await.unwrap();
        let [socket] = &sockets()[..] else { panic!("{:?}", sockets()) };
        let over = sshd.target().with_control(Control::Over(socket.clone()));
        let channel = Channel::open(&over, Far::Command("echo over")).unwrap();
        let mut said = String::new();
        { channel.stdout }.read_to_string(&mut said).await.unwrap();
        assert_eq!(said, "over\n");
        assert_eq!(sshd.log().matches("Accepted publickey").count(), life, "{}", sshd.log());
        sshd::signal(sshd.sessions("trellis/agent-")[0], libc::SIGKILL);
        let mut tries = 0;
        while home.attach().await.is_err() || sshd.log().matches("Accepted publickey").count() == life {
            tries += 1;
            assert!(tries < 200, "it does not come back");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    drop(home);
    let mut tries = 0;
    while !sockets().is_empty() {
        tries += 1;
        assert!(tries < 200, "{:?} stays", sockets());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_ends_with_its_home_leaves_no_process() {
    let (sshd, home) = start(Options::default());
    home.attach().await.unwrap();
    assert_eq!(sshd.sessions("trellis/agent-").len(), 1);
    drop(home);
    for _ in 0..200 {
        if sshd.sessions("trellis/agent-").is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the agent still runs");
}

#[tokio::test(flavor = "multi_thread")]
async fn noise_of_start_up_files_is_skipped() {
    let noise =
        "/bin/sh -c 'echo Welcome; head -c 100000 /dev/zero; echo oops >&2; eval \"$SSH_ORIGINAL_COMMAND\"'";
    let (_sshd, home) = start(force(noise));
    assert_eq!(home.attach().await.unwrap().class, Class::Posix);
}

/// What a start-up file complains of is not why the connection ends an hour later.
#[tokio::test(flavor = "multi_thread")]
async fn noise_of_start_up_files_is_no_reason_of_the_end() {
    let noise =
        "/bin/sh -c 'echo \"far: Permission denied (publickey).\" >&2; eval \"$SSH_ORIGINAL_COMMAND\"'";
    let (mut sshd, home) = start(force(noise));
    home.attach().await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    sshd.stop();
    for pid in sshd.sessions("trellis/agent-") {
        sshd::signal(pid, libc::SIGKILL);
    }
    let at = loc(sshd.dir());
    let ended = async {
        loop {
            match home.stat(&at).await {
                Err(e) => break e,
                Ok(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    };
    let why = tokio::time::timeout(Duration::from_secs(30), ended).await.unwrap();
    assert!(why.kind == ErrorKind::Unreachable && !why.detail.contains("publickey"), "{why}");
    assert!(!home.status().needs_person, "{:?}", home.status());
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_noise_is_an_end() {
    let (_sshd, home) = start(force("/usr/bin/yes"));
    let error = home.attach().await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Setup | ErrorKind::Unreachable), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_may_only_start_the_agent_works() {
    let agent = sshd::agent_program();
    let (sshd, home) = start(force(&agent.display().to_string()));
    let hello = home.attach().await.unwrap();
    assert_eq!(hello.class, Class::Posix);
    assert!(kept(&sshd).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_restricted_to_sftp_is_served_by_sftp_and_says_so() {
    let (sshd, home) = start(force("internal-sftp"));
    let hello = home.attach().await.unwrap();
    assert_eq!((hello.class, hello.uid), (Class::Sftp, rustix::process::geteuid().as_raw()));
    let status = home.status();
    assert_eq!((status.link, status.class), (Link::Up, Some(Class::Sftp)));
    // OpenSSH says this instead of answering our SFTP greeting.
    assert!(status.weaker[0].contains("allows sftp connections only"), "{:?}", status.weaker);
    assert!(status.weaker.iter().any(|w| w.contains("may be missed")));
    assert!(kept(&sshd).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn sftp_passes_the_conformance_suite() {
    let (_sshd, home) = start(force("internal-sftp"));
    conforms(home, Class::Sftp).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn accounts_without_a_usable_shell_or_agent_are_served_by_sftp() {
    let nologin = "/bin/sh -c 'case \"$SSH_ORIGINAL_COMMAND\" in exec*) echo no shell for you; exit 1;; \
                   *) exec /usr/lib/openssh/sftp-server;; esac'";
    let (_sshd, home) = start(force(nologin));
    assert_eq!(home.attach().await.unwrap().class, Class::Sftp);
    assert!(home.status().weaker[0].contains("no shell that runs a command"), "{:?}", home.status().weaker);

    let sshd = Sshd::start(&Options::default()).unwrap();
    let home = connect(sshd.target(), AgentBinaries::none());
    assert_eq!(home.attach().await.unwrap().class, Class::Sftp);
    assert!(home.status().weaker[0].contains("carries no agent for Linux"), "{:?}", home.status().weaker);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_with_neither_agent_nor_sftp_says_both_reasons() {
    let (_sshd, home) = start(force("/bin/false"));
    let error = home.attach().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Setup);
    assert!(error.detail.contains("no SFTP server") && error.detail.contains("no shell"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_sftp_server_fails_calls_and_the_next_call_reconnects() {
    let (sshd, home) = start(force("/usr/lib/openssh/sftp-server"));
    home.attach().await.unwrap();
    assert!(home.status().weaker[0].contains("restricted to SFTP by its server"));
    let servers = sshd.sessions("openssh/sftp-server");
    assert!(!servers.is_empty());
    servers.iter().for_each(|pid| sshd::signal(*pid, libc::SIGKILL));
    let mut answers = Vec::new();
    for _ in 0..100 {
        answers.push(home.stat(&loc(sshd.dir())).await.map_err(|e| e.kind));
        if answers.last().is_some_and(Result::is_ok) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(answers.pop().unwrap().is_ok());
    assert!(answers.iter().all(|a| *a.as_ref().unwrap_err() == ErrorKind::Unreachable), "{answers:?}");
}

/// An account of its own, with start-up files that print; making one needs root.
#[tokio::test(flavor = "multi_thread")]
async fn another_account_with_a_noisy_shell_is_served_as_itself() {
    let user = "trellis-ann";
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("CI").is_none(), "CI has to run this as root");
        eprintln!("not run: making an account needs root");
        return;
    }
    sshd::account(user, "/bin/bash").unwrap();
    let home_dir = Path::new("/home").join(user);
    std::fs::write(home_dir.join(".bashrc"), "echo hello from bashrc; printf 'no line end'\n").unwrap();
    let (sshd, home) = start(Options { user: Some(user.into()), ..Options::default() });
    let hello = home.attach().await.unwrap();
    assert_eq!((hello.class, hello.home_dir), (Class::Posix, loc(&home_dir).path));
    assert_ne!(hello.uid, 0);
    assert!(hello.token.is_some());
    let attr = home.stat(&loc(&home_dir)).await.unwrap().attr;
    assert!(attr.uid == hello.uid && attr.access.may_write());
    let hidden = sshd.dir().join("user_key");
    assert_eq!(home.read(&loc(&hidden), 0, 10).await.unwrap_err().kind, ErrorKind::Access);
    let root = home.stat(&loc(Path::new("/"))).await.unwrap().attr;
    assert!(root.access.read && !root.access.may_write());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_home_holds_its_calls_and_answers_when_it_thaws() {
    let (sshd, home) = start(Options::default());
    home.attach().await.unwrap();
    sshd.freeze();
    let at = loc(sshd.dir());
    let call = home.stat(&at);
    tokio::pin!(call);
    assert!(tokio::time::timeout(Duration::from_millis(500), &mut call).await.is_err());
    sshd.thaw();
    assert!(call.await.is_ok());
    assert_eq!(home.status().link, Link::Up);
}
