//! The compute node's end: the kernel here, the server there.

use super::packets::Packets;
use super::relay::{Device, End, Relay};
use super::requests::{self, Requests, Restart};
use super::{Attached, MARKER};
use crate::control::client::Client;
use crate::limits;
use bytes::Bytes;
use home::io_text;
use home::ssh::{Channel, Far, SshTarget, classify, quote};
use home::{Error, ErrorKind};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::UnixStream;
use tokio::process::{ChildStdin, ChildStdout};
use tokio::time::timeout;

/// Where the server is, and how its machine starts the program that leads to it.
#[derive(Debug, Clone)]
pub struct At {
    /// Its machine.
    pub target: SshTarget,
    /// This program there: a path, or a name that is looked up in `PATH`.
    pub program: String,
    /// Whether a person named it. Else `trellis` in `PATH` is taken where it is not at that path.
    pub named: bool,
    /// The server's state directory, if not the usual one.
    pub state: Option<String>,
}

/// A connection to the server.
pub struct Link {
    child: home::ssh::Child,
    reader: BufReader<ChildStdout>,
    writer: ChildStdin,
    attached: Attached,
}

impl At {
    /// Reaches the server for a session of which `received` messages came here; starts it where none runs.
    pub async fn connect(&self, session: &str, received: u64) -> home::Result<Link> {
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let verb = format!("attach --session {session} --received {received} --uid {uid} --gid {gid}");
        self.open(&verb).await
    }

    /// Reaches the server for a command, where one runs.
    pub async fn control(&self) -> home::Result<Client> {
        let Link { child, mut reader, mut writer, .. } = self.open("control").await?;
        let failed = |e: io::Error| Error::new(ErrorKind::Io, format!("a pair of sockets: {}", io_text(&e)));
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        tokio::spawn(async move {
            let (mut requests, mut replies) = theirs.into_split();
            // Whichever side ends first ends the conversation.
            tokio::select! {
                _ = tokio::io::copy(&mut requests, &mut writer) => {}
                _ = tokio::io::copy(&mut reader, &mut replies) => {}
            }
            drop(child);
        });
        Ok(Client::over(ours))
    }

    async fn open(&self, verb: &str) -> home::Result<Link> {
        let command = self.command(verb)?;
        let target = self.target.over_living_master().await?;
        let channel = Channel::open(&target, Far::Command(&command))?;
        let Channel { child, stdin, stdout } = channel;
        let mut reader = BufReader::new(stdout);
        match timeout(limits::ATTACH_START, greeting(&mut reader)).await {
            Ok(Some(attached)) => Ok(Link { child, reader, writer: stdin, attached }),
            Ok(None) => Err(self.refusal(child).await),
            Err(_) => {
                let text = format!("{} did not attach in time", self.target);
                Err(child.explain(Error::new(ErrorKind::Unreachable, text)).await)
            }
        }
    }

    /// Why nothing was attached: ssh's reason, or what the program there said.
    async fn refusal(&self, child: home::ssh::Child) -> Error {
        let farewell = child.farewell().await;
        classify(&self.target, &farewell).unwrap_or_else(|| {
            let said = quote(&farewell.said);
            // What the program there says of itself needs no more words; a shell, or nothing, speaks of its absence.
            let text = match said.strip_prefix("trellis: ") {
                Some(said) => format!("{}: {said}", self.target),
                None => {
                    let words = if said.is_empty() { String::new() } else { format!(" (it said: {said})") };
                    format!(
                        "{}: {} did not answer as trellis does: copy this program there, and name it with --program if it \
                         is not in PATH{words}",
                        self.target, self.program
                    )
                }
            };
            Error::new(ErrorKind::Unreachable, text)
        })
    }

    /// What the login shell there is given: a line that every shell passes on alike.
    fn command(&self, verb: &str) -> home::Result<String> {
        let plain = |text: &str| !text.is_empty() && !text.contains(['\'', '"', '!', '\\', '$', '`', '\n']);
        let words = [Some(self.program.as_str()), self.state.as_deref()];
        if let Some(bad) = words.into_iter().flatten().find(|w| !plain(w)) {
            let text = format!("{bad:?}: this path cannot be passed to a shell; choose another");
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        let state = self.state.as_ref().map(|s| format!(" --state \"{s}\"")).unwrap_or_default();
        let otherwise = match self.named {
            true => {
                "command -v \"$p\" >/dev/null || { echo \"trellis: --program $p: no such program there\" >&2; exit 127; }"
            }
            false => "[ -x \"$p\" ] || p=trellis",
        };
        Ok(format!("exec /bin/sh -c 'p=\"{}\"; {otherwise}; exec \"$p\" {verb}{state}'", self.program))
    }
}

/// Skips noise up to the marker and reads the rest of its line.
async fn greeting(reader: &mut BufReader<ChildStdout>) -> Option<Attached> {
    let mut bounded = reader.take(limits::ATTACH_NOISE as u64);
    let mut line = Vec::new();
    loop {
        line.clear();
        if bounded.read_until(b'\n', &mut line).await.ok()? == 0 {
            return None;
        }
        let text = String::from_utf8_lossy(&line);
        if let Some((_, json)) = text.split_once(MARKER) {
            return serde_json::from_str(json).ok();
        }
    }
}

/// Serves a kernel from the server until somebody unmounts; connects again whenever the connection is cut.
pub async fn serve(at: &At, session: &str, first: Link, device: OwnedFd) -> Result<(), String> {
    let fail = |e: io::Error| format!("/dev/fuse: {}", io_text(&e));
    let relay = Relay::new(Kernel::new(device).map_err(fail)?);
    let mut listening = std::pin::pin!(relay.listen());
    let mut link = Some(first);
    loop {
        let Some(Link { child, mut reader, mut writer, attached }) = link.take() else {
            let again = reconnect(at, session, &relay);
            tokio::select! {
                new = again => link = Some(new),
                done = &mut listening => return done.map_err(fail),
            }
            continue;
        };
        let carried = tokio::select! {
            end = relay.carry(attached.received, &mut reader, &mut writer) => end,
            done = &mut listening => {
                done.map_err(fail)?;
                End::Device
            }
        };
        match carried {
            End::Cut(why) => {
                let why = child.explain(Error::new(ErrorKind::Unreachable, why.to_string())).await;
                tracing::warn!("{}: connecting again: {}", at.target, why.detail);
            }
            End::Bye => return Err("the server has ended this mount".into()),
            End::Device => {
                // Should it not arrive, the server forgets the session after a while.
                let _ = relay.say_bye(&mut writer).await;
                drop(writer);
                child.farewell().await;
                return Ok(());
            }
        }
    }
}

/// Tries until there is a connection. Meanwhile programs wait, but not for ever.
async fn reconnect(at: &At, session: &str, relay: &Relay<Kernel>) -> Link {
    let trying = async {
        let mut pause = limits::ATTACH_PAUSE.0;
        loop {
            let received = relay.line().received();
            match at.connect(session, received).await {
                Ok(link) => return link,
                Err(e) => tracing::warn!("{}", e.detail),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(limits::ATTACH_PAUSE.1);
        }
    };
    let losing_patience = async {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            give_up(relay);
        }
    };
    let link: Link = tokio::select! {
        link = trying => link,
        () = losing_patience => unreachable!("a loop without an end"),
    };
    if link.attached.fresh {
        begin_anew(relay);
    }
    link
}

/// Tells programs that have waited too long that nobody answers. What never left this machine is not sent any more.
fn give_up(relay: &Relay<Kernel>) {
    let old = relay.device().requests.lock().give_up(Instant::now(), limits::ATTACH_PATIENCE);
    for (number, answer) in &old {
        relay.line().retain_unsent(|m| !requests::is(m, *number));
        relay.device().tell(answer);
    }
}

/// The server has started again and knows nothing of this session: open files are stale there.
fn begin_anew(relay: &Relay<Kernel>) {
    tracing::warn!("the server began anew: files that are open here have to be opened again");
    let Restart { again, failed } = relay.device().requests.lock().restart();
    {
        let mut line = relay.line();
        *line = super::line::Line::default();
        again.into_iter().for_each(|m| line.push(m));
    }
    failed.iter().for_each(|answer| relay.device().tell(answer));
}

/// The kernel of this machine.
struct Kernel {
    device: Packets,
    requests: Mutex<Requests>,
    notices: SyncSender<Bytes>,
}

impl Kernel {
    fn new(device: OwnedFd) -> io::Result<Kernel> {
        let device = Packets::new(device)?;
        let (notices, waiting) = sync_channel::<Bytes>(limits::ATTACH_NOTICES);
        let fd = device.another()?;
        // A notice can wait in the kernel for a lock whose holder waits for an answer that we have yet to pass on.
        std::thread::Builder::new().name("notices".into()).spawn(move || {
            for notice in waiting {
                // ENOENT: the kernel does not have what the notice is about.
                let _ = rustix::io::write(&fd, &notice);
            }
        })?;
        Ok(Kernel { device, requests: Mutex::default(), notices })
    }

    /// An answer of our own.
    fn tell(&self, answer: &Bytes) {
        if let Err(e) = self.take(answer) {
            tracing::debug!("the kernel did not take an answer: {e}");
        }
    }
}

#[async_trait::async_trait]
impl Device for Kernel {
    async fn read(&self) -> io::Result<Option<Bytes>> {
        let message = self.device.read().await?;
        if let Some(message) = &message {
            self.requests.lock().asked(message, Instant::now());
        }
        Ok(message)
    }

    async fn ready(&self) -> io::Result<()> {
        self.device.ready().await
    }

    fn take(&self, message: &Bytes) -> io::Result<()> {
        if requests::number_of_answer(message) == Some(0) {
            // One that is left out is made up for by the short life of what the kernel caches.
            let _ = self.notices.try_send(message.clone());
            return Ok(());
        }
        if !self.requests.lock().answered(message) {
            return Ok(());
        }
        match self.device.take(message) {
            // Nobody waits for it any more, or it made no sense to the kernel; the next one may.
            Err(e)
                if [Errno::NOENT, Errno::INVAL]
                    .iter()
                    .any(|n| e.raw_os_error() == Some(n.raw_os_error())) =>
            {
                Ok(())
            }
            done => done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(program: &str, state: Option<&str>) -> At {
        let target = SshTarget::new(None, "login1").unwrap();
        At { target, program: program.into(), named: false, state: state.map(Into::into) }
    }

    #[test]
    fn a_program_that_was_named_is_that_one_or_none() {
        let said = |program: &str| {
            let at = At { named: true, ..at(program, None) };
            let output =
                std::process::Command::new("sh").args(["-c", &at.command("one two").unwrap()]).output();
            let output = output.unwrap();
            let text = [output.stdout, output.stderr].concat();
            (output.status.code(), String::from_utf8(text).unwrap())
        };
        for found in ["echo", "/bin/echo"] {
            assert_eq!(said(found), (Some(0), "one two\n".into()), "{found}");
        }
        let (code, text) = said("/no such/trellis");
        assert_eq!(code, Some(127));
        assert_eq!(text, "trellis: --program /no such/trellis: no such program there\n");
    }

    #[test]
    fn the_command_is_one_word_for_every_shell() {
        for named in [true, false] {
            let at = At { named, ..at("/opt/my tools/trellis", Some("/s t")) };
            let command = at.command("control").unwrap();
            assert!(command.ends_with(" control --state \"/s t\"'"), "{command}");
            let script = command.strip_prefix("exec /bin/sh -c '").unwrap().strip_suffix('\'').unwrap();
            assert!(!script.contains(['\'', '!', '\\', '\n']), "{script}");
        }
        for bad in ["/a'b", "/a\"b", "/$(x)", "/`x`", "/a\\b", ""] {
            assert!(at(bad, None).command("control").is_err(), "{bad}");
            assert!(at("/t", Some(bad)).command("control").is_err(), "{bad}");
        }
    }
}
