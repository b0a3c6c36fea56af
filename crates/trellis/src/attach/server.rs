//! Sessions of mounts on other machines, in the server.

use super::Attached;
use super::packets::Packets;
use super::relay::{End, Relay};
use crate::limits;
use frontend::fuse::{self, Options};
use home::io_text;
use parking_lot::Mutex;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedMutexGuard, watch};
use tokio::task::JoinHandle;
use vfs::{Cred, Oid, Vfs};

/// The sessions.
pub struct Attachments {
    vfs: Arc<Vfs>,
    cred: Cred,
    sessions: Mutex<HashMap<String, Arc<Session>>>,
    /// The server ends.
    ending: watch::Sender<bool>,
}

struct Session {
    relay: Arc<Relay<Packets>>,
    listening: JoinHandle<()>,
    /// Counts connections: the newest one has the session.
    connection: watch::Sender<u64>,
    /// Held by the connection that carries: how much was received is only known when no other one does.
    carrying: Arc<tokio::sync::Mutex<()>>,
}

impl Drop for Session {
    /// The last copy of our end of the socket goes, and the front-end's session ends.
    fn drop(&mut self) {
        self.listening.abort();
    }
}

/// A connection's right to carry a session.
pub struct Seat {
    place: Place,
    /// How many of our messages the other end has had.
    theirs: u64,
    _carrying: OwnedMutexGuard<()>,
}

/// A session, and which of its connections is meant.
struct Place {
    id: String,
    session: Arc<Session>,
    number: u64,
}

impl Attachments {
    /// None yet.
    pub fn new(vfs: Arc<Vfs>, cred: Cred) -> Arc<Attachments> {
        Arc::new(Attachments { vfs, cred, sessions: Mutex::default(), ending: watch::Sender::new(false) })
    }

    /// Finds or makes a session for an end that has had `received` messages of it, and whose user and group there are
    /// `owner`. An earlier connection of the session loses it first.
    pub async fn attach(
        &self,
        id: &str,
        received: u64,
        owner: (u32, u32),
    ) -> Result<(Attached, Seat), String> {
        let (place, fresh) = self.place(id, owner)?;
        let carrying = Arc::clone(&place.session.carrying).lock_owned().await;
        let attached = Attached { received: place.session.relay.line().received(), fresh };
        let theirs = if fresh { 0 } else { received };
        Ok((attached, Seat { place, theirs, _carrying: carrying }))
    }

    /// Gives a session to a new connection; whether it began with it.
    fn place(&self, id: &str, owner: (u32, u32)) -> Result<(Place, bool), String> {
        if *self.ending.borrow() {
            return Err("the server is stopping".into());
        }
        if id.len() != 32 || !id.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err("a session is named by 32 hexadecimal digits".into());
        }
        let mut sessions = self.sessions.lock();
        let known = sessions.get(id).cloned();
        let fresh = known.is_none();
        let session = match known {
            Some(session) => session,
            None if sessions.len() >= limits::ATTACH_SESSIONS => {
                return Err("too many mounts of other machines: unmount some".into());
            }
            None => Arc::new(self.begin(owner).map_err(|e| format!("FUSE: {}", io_text(&e)))?),
        };
        sessions.insert(id.to_owned(), Arc::clone(&session));
        let mut number = 0;
        session.connection.send_modify(|n| {
            *n += 1;
            number = *n;
        });
        Ok((Place { id: id.to_owned(), session, number }, fresh))
    }

    /// The server ends in order: every mount is told, so that none waits for another server, or starts one. Returns when
    /// those that are connected have been told, or do not listen for too long.
    pub async fn end(&self) {
        let carried: Vec<String> = {
            let sessions = self.sessions.lock();
            let connected = sessions.iter().filter(|(_, s)| s.carrying.try_lock().is_err());
            connected.map(|(id, _)| id.clone()).collect()
        };
        self.ending.send_replace(true);
        let until = tokio::time::Instant::now() + limits::LAST_ANSWERS;
        let left = || carried.iter().any(|id| self.sessions.lock().contains_key(id));
        while left() && tokio::time::Instant::now() < until {
            tokio::time::sleep(limits::START_POLL).await;
        }
    }

    fn begin(&self, owner: (u32, u32)) -> io::Result<Session> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        for end in [&ours, &theirs] {
            // The system's bound may be lower; the messages fit its usual one.
            let _ = rustix::net::sockopt::set_socket_send_buffer_size(end, 2 * limits::ATTACH_MESSAGE);
        }
        // The front-end takes our end for a kernel.
        let relay = Arc::new(Relay::new(Packets::new(ours)?));
        let options = Options {
            root: Oid::ROOT,
            cred: self.cred.clone(),
            device: false,
            block: limits::ATTACH_BLOCK,
            owner,
        };
        let vfs = Arc::clone(&self.vfs);
        // Returns when the kernel at the other end has greeted.
        tokio::task::spawn_blocking(move || {
            if let Err(e) = fuse::serve(vfs, theirs, options) {
                tracing::warn!("a mount of another machine could not be served: {}", io_text(&e));
            }
        });
        let listener = Arc::clone(&relay);
        let listening = tokio::spawn(async move {
            if let Err(e) = listener.listen().await {
                tracing::warn!("a mount of another machine: {}", io_text(&e));
            }
        });
        Ok(Session { relay, listening, connection: watch::Sender::new(0), carrying: Arc::default() })
    }

    /// Carries a session's messages until the connection ends; then the session waits for another one.
    pub async fn carry(
        self: &Arc<Self>,
        seat: Seat,
        mut reader: impl AsyncRead + Unpin,
        mut writer: impl AsyncWrite + Unpin,
    ) {
        let Seat { place, theirs, _carrying: carrying } = seat;
        let (mut connection, mut ending) = (place.session.connection.subscribe(), self.ending.subscribe());
        let replaced = async { drop(connection.wait_for(|n| *n != place.number).await) };
        let ended = async { drop(ending.wait_for(|ending| *ending).await) };
        let end = tokio::select! {
            end = place.session.relay.carry(theirs, &mut reader, &mut writer) => end,
            () = replaced => return,
            () = ended => End::Device,
        };
        drop(carrying);
        match end {
            End::Cut(why) => {
                tracing::debug!("a mount of another machine lost its connection: {why}");
                let this = Arc::clone(self);
                tokio::spawn(async move {
                    tokio::time::sleep(limits::ATTACH_GRACE).await;
                    this.forget(&place);
                });
            }
            End::Bye => self.forget(&place),
            End::Device => {
                // The other end may be gone as well.
                let _ = place.session.relay.say_bye(&mut writer).await;
                self.forget(&place);
            }
        }
    }

    /// Ends a session unless another connection has it by now.
    fn forget(&self, place: &Place) {
        let mut sessions = self.sessions.lock();
        let same =
            |s: &Arc<Session>| Arc::ptr_eq(s, &place.session) && *s.connection.borrow() == place.number;
        if sessions.get(&place.id).is_some_and(same) {
            sessions.remove(&place.id);
        }
    }
}
