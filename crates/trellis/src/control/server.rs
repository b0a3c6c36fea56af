//! The server's end of the control socket.

use super::prefetch::Begun;
use super::proto::{self, Attr, Entry, Id, LoginWay, Object, Page, Raw, Reply, Request, When};
use super::report::{ParkedReport, StatusReport, UnsentReport};
use super::wire;
use crate::attach::Attached;
use crate::attach::server::{Attachments, Seat};
use crate::limits;
use crate::login::Logins;
use crate::login::watch::Watch;
use crate::mount::{Mounted, Mounts};
use crate::state::StateDir;
use bytes::Bytes;
use home::io_text;
use home::{Error, ErrorKind, HomePath, Loc, Name, Result};
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use vfs::{
    CreateHow, Cred, Ctx, FileAttr, Mode, Namespace, Oid, RenameHow, SetAttrs, SetTime, Stability, Time, Vfs,
};

/// A wish to end the server.
#[derive(Debug)]
pub struct StopRequest {
    /// How long unsent changes may go home before that.
    pub drain: Duration,
    /// Told what is left over when nothing is accepted any more.
    pub done: oneshot::Sender<Vec<UnsentReport>>,
}

/// What the control connections work on.
pub struct Control {
    /// The engine.
    pub vfs: Arc<Vfs>,
    /// The names of the root directory.
    pub namespace: Arc<dyn Namespace>,
    /// The server's own user, in whose name commands act.
    pub cred: Cred,
    /// Where NFS is served.
    pub nfs: Vec<SocketAddr>,
    /// The FUSE mounts.
    pub mounts: Arc<Mounts>,
    /// Mounts of other machines.
    pub attachments: Arc<Attachments>,
    /// Where wishes to end the server go.
    pub stop: mpsc::Sender<StopRequest>,
    /// Which account a name stands for, and how it is reached.
    pub logins: Arc<Logins>,
    /// What lets us in, and until when.
    pub watch: Arc<Watch>,
}

/// Makes the socket. Whoever holds the lock of the directory may remove one that was left behind.
pub fn bind(state: &StateDir) -> std::result::Result<UnixListener, String> {
    let (path, _open) = state.socket_path()?;
    let fail =
        |e: std::io::Error| format!("control socket in {}: {e}", state.path().display(), e = io_text(&e));
    match std::fs::remove_file(&path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(fail(e)),
        _ => {}
    }
    let listener = UnixListener::bind(&path).map_err(fail)?;
    crate::state::make_private(&path).map_err(fail)?;
    Ok(listener)
}

/// Serves for ever.
pub async fn serve(control: Arc<Control>, listener: UnixListener) {
    let places = Arc::new(Semaphore::new(limits::CONTROL_CLIENTS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(e) => {
                tracing::warn!("control socket: {}", io_text(&e));
                tokio::time::sleep(limits::RETRY_PAUSE).await;
                continue;
            }
        };
        let control = Arc::clone(&control);
        tokio::spawn(async move {
            let ended = greet(&control, stream).await;
            drop(place);
            match ended {
                Ok(None) => {}
                Ok(Some((seat, stream))) => {
                    let (reader, writer) = tokio::io::split(stream);
                    control.attachments.carry(seat, reader, writer).await;
                }
                Err(e) => tracing::debug!("control connection: {e}"),
            }
        });
    }
}

/// Serves one connection if its other end is the server's user or root. Answers what it was turned into.
async fn greet(control: &Control, stream: UnixStream) -> std::io::Result<Option<Turned<UnixStream>>> {
    let peer = stream.peer_cred()?.uid();
    if peer != 0 && peer != control.cred.uid {
        tracing::warn!("control connection by user {peer} refused");
        return Ok(None);
    }
    converse(control, stream).await
}

/// A connection that carries a session of another machine's mount from now on.
pub(super) type Turned<S> = (Seat, BufReader<S>);

/// Answers the requests of one connection, one after the other, until it ends or becomes something else.
pub(super) async fn converse<S: AsyncRead + AsyncWrite + Unpin>(
    control: &Control,
    stream: S,
) -> std::io::Result<Option<Turned<S>>> {
    let mut stream = BufReader::new(stream);
    let mut begun = Begun::default();
    while let Some((request, payload)) = wire::receive::<Request>(&mut stream).await? {
        if let Request::Attach { session, received, owner } = &request {
            let (reply, seat) = match control.attachments.attach(session, *received, *owner).await {
                Ok((Attached { received, fresh }, seat)) => (Reply::Attached { received, fresh }, Some(seat)),
                Err(detail) => (Reply::Failed { kind: ErrorKind::Invalid, detail }, None),
            };
            wire::send(&mut stream, reply, b"").await?;
            match seat {
                Some(seat) => return Ok(Some((seat, stream))),
                None => continue,
            }
        }
        let answered = match request {
            Request::Prefetch { paths, names_only } => {
                Ok((control.prefetch(&mut begun, paths, names_only).await, Bytes::new()))
            }
            Request::Prefetched => Ok((begun.report().await, Bytes::new())),
            request => answer(control, request, payload).await,
        };
        let (reply, bytes) = match answered {
            Ok(answer) => answer,
            Err(Error { kind, detail }) => (Reply::Failed { kind, detail }, Bytes::new()),
        };
        wire::send(&mut stream, reply, &bytes).await?;
    }
    Ok(None)
}

/// Answers what does not belong to the connection.
async fn answer(control: &Control, request: Request, payload: Bytes) -> Result<(Reply, Bytes)> {
    let reply = match request {
        Request::Read { file, at, len } => return control.read(file, at, len).await,
        Request::Status => Reply::Status(Box::new(control.status().await)),
        Request::Way(name) => Reply::Way(control.way(&name)?),
        Request::LoggedIn(name) => control.logged_in(&name).await?,
        Request::SameAccount { home, token } => control.same_account(&home, token).await?,
        Request::Attach { .. } | Request::Prefetch { .. } | Request::Prefetched => {
            return Err(ErrorKind::Invalid.into());
        }
        Request::Mount { dir, make } => control.mount(&dir, make).await?,
        Request::Umount { dir, lazy } => {
            let dir = dir.as_ref().map(path);
            let done = control.mounts.unmount(dir, lazy).await;
            let dir = done.map_err(|why| Error::new(ErrorKind::Io, why))?;
            Reply::Unmounted(dir.as_os_str().as_bytes().into())
        }
        Request::Sync { path, timeout_s } => control.sync(path, timeout_s).await?,
        Request::Retry(path) => control.retry(path).await?,
        Request::Discard { path, numbers } => control.discard(path, numbers).await?,
        Request::Held { path, after } => control.held(path, after).await?,
        Request::Conflicts(path) => control.conflicts(path).await?,
        Request::Settle { path, keep } => control.settle(path, keep).await?,
        Request::Mode { path, mode } => control.set_mode(path, &mode).await?,
        Request::Stop { drain_s } => control.stop(drain_s).await?,
        Request::Names => control.names(),
        Request::Resolve(path) => {
            let (oid, attr) = control.resolve(&path.0).await?;
            Reply::Object(object(oid, &attr))
        }
        Request::Lookup(Entry { dir, name }) => {
            let found = control.vfs.lookup(control.ctx(), dir.into(), &name.0).await?;
            Reply::Object(object(found.oid, &found.attr))
        }
        Request::List { dir, after } => Reply::Page(control.list(dir, after).await?),
        Request::Readlink(link) => {
            let (target, _) = control.vfs.readlink(control.ctx(), link.into()).await?;
            Reply::Target(Raw(target.to_vec()))
        }
        Request::Create { entry, mode, new } => control.create(entry, mode, new).await?,
        Request::Mkdir { entry, mode } => {
            let set = SetAttrs { mode: Some(mode), ..SetAttrs::default() };
            control
                .made(control.vfs.mkdir(control.ctx(), entry.dir.into(), &entry.name.0, set).await?)
                .await?
        }
        Request::Symlink { entry, target } => {
            let (dir, set) = (entry.dir.into(), SetAttrs::default());
            let made = control.vfs.symlink(control.ctx(), dir, &entry.name.0, target.0.into(), set).await?;
            control.made(made).await?
        }
        Request::Write { file, at } => control.write(file, at, payload).await?,
        Request::Set { object, set } => control.set(object, set).await?,
        Request::Remove { entry, is_dir } => control.remove(entry, is_dir).await?,
        Request::Rename { from, to } => control.rename(from, to).await?,
        Request::Link { object, entry } => {
            control.vfs.link(control.ctx(), object.into(), entry.dir.into(), &entry.name.0).await?;
            Reply::Done
        }
        Request::StatFs(object) => {
            Reply::Space(control.vfs.space(control.ctx(), object.into()).await?.into())
        }
        Request::SyncHome { object, timeout_s } => {
            let volume = Some(object.volume).filter(|v| *v != Oid::ROOT_VOLUME);
            control.sync_volume(volume, seconds(timeout_s)?).await
        }
    };
    Ok((reply, Bytes::new()))
}

impl Control {
    pub(super) fn ctx(&self) -> Ctx<'_> {
        Ctx::of(&self.cred)
    }

    /// What a path leads to. A person asks: a home that failed before is tried again.
    async fn resolve(&self, path: &[u8]) -> Result<(Oid, FileAttr)> {
        if let Ok(name) = Name::new(first_part(path)) {
            self.vfs.asked(&name).await;
        }
        self.vfs.resolve_path(self.ctx(), path).await
    }

    fn names(&self) -> Reply {
        Reply::Names(self.namespace.configured().iter().map(|n| n.as_bytes().into()).collect())
    }

    async fn mount(&self, dir: &Raw, make: bool) -> Result<Reply> {
        let mounted = self.mounts.mount(path(dir), make).await;
        let Mounted { dir, before, recovered } = mounted.map_err(|why| Error::new(ErrorKind::Io, why))?;
        Ok(Reply::Mounted { dir: dir.as_os_str().as_bytes().into(), before, recovered })
    }

    async fn status(&self) -> StatusReport {
        let status = self.vfs.status();
        self.watch.look_at_new(&status.volumes).await;
        let mut report = StatusReport::new(&status, &self.nfs, self.mounts.report().await);
        report.homes.iter_mut().for_each(|home| self.watch.annotate(home));
        for name in &mut report.unreached {
            name.login = name.login.take().map(|_| self.logins.way.command(&name.name));
        }
        report
    }

    fn way(&self, name: &str) -> Result<LoginWay> {
        let account = self.logins.account(name)?;
        let way = self.logins.way.clone();
        Ok(LoginWay {
            user: account.user,
            host: account.host,
            ssh_config: way.ssh_config,
            masters: way.masters,
        })
    }

    /// Looks at the home once, without taking it for what it was not before.
    async fn logged_in(&self, name: &str) -> Result<Reply> {
        self.vfs.forget_failures();
        let vfs::Mount { home, account, .. } = self.namespace.resolve(&Name::new(name.as_bytes())?).await?;
        home.retry_now();
        let root = Loc { path: HomePath::root(), id: None };
        let late =
            || Error::new(ErrorKind::Unreachable, "the home does not answer in time; it is tried again");
        match tokio::time::timeout(limits::LOGIN_TRY, home.stat(&root)).await.map_err(|_| late())? {
            Err(e) if e.kind.is_of_the_way() => return Err(e),
            // Whatever it says of its root, it answers.
            _ => {}
        }
        // Whether the account is the one that it was shows when a path is asked for.
        let path = [b"/", name.as_bytes()].concat();
        let _ = tokio::time::timeout(limits::LOGIN_TRY, self.resolve(&path)).await;
        let volumes = self.vfs.status().volumes;
        match volumes.into_iter().find(|v| v.account == account).and_then(|v| v.suspended) {
            Some(why) => Err(Error::new(ErrorKind::Setup, why)),
            None => Ok(Reply::Done),
        }
    }

    /// The home with this name, if it was reached before.
    fn volume_named(&self, name: &str) -> Option<vfs::VolumeStatus> {
        let is_it = |v: &vfs::VolumeStatus| v.names.iter().any(|n| n.as_bytes() == name.as_bytes());
        self.vfs.status().volumes.into_iter().find(is_it)
    }

    async fn same_account(&self, name: &str, token: Option<[u8; 16]>) -> Result<Reply> {
        let none =
            || Error::new(ErrorKind::Invalid, "no home is called so: name one, as `trellis status` does");
        let known = self.volume_named(name).ok_or_else(none)?;
        if let Some(token) = token {
            self.vfs.same_account(known.volume, token).await?;
            return Ok(Reply::Done);
        }
        let stranger = self.vfs.in_doubt(known.volume)?.ok_or_else(|| {
            let why = "the account is not in doubt: there is nothing to confirm";
            Error::new(ErrorKind::Invalid, why)
        })?;
        let home = Box::new(super::report::HomeReport::from(&known));
        Ok(Reply::Stranger { token: stranger.token, home, compared: stranger.compared })
    }

    async fn sync(&self, path: Option<Raw>, timeout_s: f64) -> Result<Reply> {
        Ok(self.sync_volume(self.volume_of(path).await?, seconds(timeout_s)?).await)
    }

    /// The volume of a path; `None` for all: without a path, or for the root directory, which no home has.
    pub(super) async fn volume_of(&self, path: Option<Raw>) -> Result<Option<u32>> {
        let Some(path) = path else { return Ok(None) };
        let volume = self.resolve(&path.0).await?.0.volume;
        Ok(Some(volume).filter(|v| *v != Oid::ROOT_VOLUME))
    }

    /// The volume of a path that must be of a home.
    async fn home_of(&self, path: Raw) -> Result<u32> {
        let none = || Error::new(ErrorKind::Invalid, "is not of a home: name one, as `trellis status` does");
        self.volume_of(Some(path)).await?.ok_or_else(none)
    }

    /// A home that is not connected, and may not be, is found by its name.
    async fn set_mode(&self, path: Raw, mode: &str) -> Result<Reply> {
        let mode = Mode::ALL.into_iter().find(|m| m.name() == mode);
        let mode = mode.ok_or_else(|| Error::new(ErrorKind::Invalid, "the server knows no such mode"))?;
        let name = first_part(&path.0);
        let homes = self.vfs.status().volumes;
        let known = homes.iter().find(|v| v.names.iter().any(|n| n.as_bytes() == name)).map(|v| v.volume);
        let volume = match known {
            Some(volume) => volume,
            None => self.home_of(path).await?,
        };
        self.vfs.set_mode(volume, mode)?;
        Ok(Reply::Done)
    }

    async fn retry(&self, path: Option<Raw>) -> Result<Reply> {
        Ok(Reply::Count(self.vfs.retry_refused(self.volume_of(path).await?) as u64))
    }

    async fn discard(&self, path: Raw, numbers: Option<Vec<u64>>) -> Result<Reply> {
        let given_up = self.vfs.discard(self.home_of(path).await?, numbers.as_deref()).await?;
        let told = |p| ParkedReport { help: String::new(), ..ParkedReport::from(p) };
        Ok(Reply::Refused(given_up.iter().map(told).collect()))
    }

    /// A person asks: homes that failed before are tried again.
    async fn prefetch(&self, begun: &mut Begun, paths: Vec<Raw>, names_only: bool) -> Reply {
        let mut names: Vec<Name> = paths.iter().filter_map(|p| Name::new(first_part(&p.0)).ok()).collect();
        names.sort_unstable();
        names.dedup();
        for name in &names {
            self.vfs.asked(name).await;
        }
        begun.add(&self.vfs, &self.cred, paths, names_only)
    }

    async fn held(&self, path: Raw, after: u64) -> Result<Reply> {
        let (held, next) = self.vfs.held(self.home_of(path).await?, after)?;
        let mut objects = Vec::new();
        for one in held {
            // What was given up meanwhile waits no more.
            if let Ok(attr) = self.vfs.getattr(self.ctx(), one.oid).await {
                objects.push((Raw(one.path.as_bytes().to_vec()), object(one.oid, &attr)));
            }
        }
        Ok(Reply::Held { objects, next })
    }

    async fn sync_volume(&self, volume: Option<u32>, timeout: Duration) -> Reply {
        match self.vfs.sync(volume, timeout).await {
            Ok(()) => Reply::Done,
            Err(unsent) => Reply::Unsent(unsent.iter().map(UnsentReport::from).collect()),
        }
    }

    async fn stop(&self, drain_s: f64) -> Result<Reply> {
        let (done, ended) = oneshot::channel();
        let request = StopRequest { drain: seconds(drain_s)?, done };
        let stopping = || Error::new(ErrorKind::Busy, "the server is already stopping");
        self.stop.try_send(request).map_err(|_| stopping())?;
        ended.await.map(Reply::Unsent).map_err(|_| stopping())
    }

    async fn list(&self, dir: Id, after: u64) -> Result<Page> {
        let page = self.vfs.readdir(self.ctx(), dir.into(), after, limits::CONTROL_ENTRIES).await?;
        let next = page.entries.last().map(|e| e.cookie).filter(|_| !page.eof);
        let visible = page.entries.iter().filter(|e| !matches!(&e.name[..], b"." | b".."));
        let search = vfs::AccessMask { lookup: true, ..Default::default() };
        let may_search = self.vfs.access(self.ctx(), dir.into(), search).await?.0.lookup;
        let mut entries = Vec::new();
        for entry in visible {
            let attr = match entry.attr {
                // Objects have no paths: whoever was given one could change it where no path leads to it.
                _ if !may_search => None,
                Some(attr) => Some(attr),
                // The root lists names of homes that may be out of reach: looking must not connect to them.
                None if dir.volume == Oid::ROOT_VOLUME => None,
                None => self.vfs.getattr(self.ctx(), entry.oid).await.ok(),
            };
            entries.push((Raw(entry.name.to_vec()), attr.map(|a| object(entry.oid, &a))));
        }
        Ok(Page { entries, next })
    }

    async fn read(&self, file: Id, at: u64, len: u32) -> Result<(Reply, Bytes)> {
        let len = len.min(limits::CONTROL_CHUNK as u32);
        if at == 0 {
            // As open(2) would have it, at the beginning: NFS, too, lets the owner read what is closed to him.
            let read = vfs::AccessMask { read: true, ..Default::default() };
            if !self.vfs.access(self.ctx(), file.into(), read).await?.0.read {
                return Err(ErrorKind::Access.into());
            }
        }
        let read = self.vfs.read(self.ctx(), file.into(), at, len).await?;
        let bytes = match &read.data[..] {
            [one] => one.clone(),
            many => many.concat().into(),
        };
        Ok((Reply::Data { eof: read.eof }, bytes))
    }

    async fn write(&self, file: Id, at: u64, payload: Bytes) -> Result<Reply> {
        let mut done = 0;
        while done < payload.len() {
            let rest = payload.slice(done..);
            let wrote =
                self.vfs.write(self.ctx(), file.into(), at + done as u64, rest, Stability::Unstable).await?;
            if wrote.count == 0 {
                return Err(Error::new(ErrorKind::Io, "the server took no bytes"));
            }
            done += wrote.count as usize;
        }
        Ok(Reply::Done)
    }

    async fn create(&self, entry: Entry, mode: u32, new: bool) -> Result<Reply> {
        let size = (!new).then_some(0);
        let set = SetAttrs { mode: Some(mode), size, ..SetAttrs::default() };
        let how = if new { CreateHow::Guarded } else { CreateHow::Unchecked };
        self.made(self.vfs.create(self.ctx(), entry.dir.into(), &entry.name.0, how, set).await?).await
    }

    async fn remove(&self, Entry { dir, name }: Entry, is_dir: bool) -> Result<Reply> {
        match is_dir {
            true => self.vfs.rmdir(self.ctx(), dir.into(), &name.0).await?,
            false => self.vfs.remove(self.ctx(), dir.into(), &name.0).await?,
        };
        Ok(Reply::Done)
    }

    async fn rename(&self, from: Entry, to: Entry) -> Result<Reply> {
        let (dir, new_dir) = (from.dir.into(), to.dir.into());
        let how = RenameHow::Replace;
        self.vfs.rename(self.ctx(), dir, &from.name.0, new_dir, &to.name.0, how).await?;
        Ok(Reply::Done)
    }

    async fn set(&self, object: Id, set: proto::Set) -> Result<Reply> {
        let proto::Set { mode, size, atime, mtime, commit } = set;
        let wanted =
            SetAttrs { mode, size, atime: atime.map(time), mtime: mtime.map(time), uid: None, gid: None };
        if wanted != SetAttrs::default() {
            self.vfs.setattr(self.ctx(), object.into(), wanted, None).await?;
        }
        if commit {
            self.vfs.commit(self.ctx(), object.into()).await?;
        }
        Ok(Reply::Done)
    }

    async fn made(&self, made: vfs::Made) -> Result<Reply> {
        let attr = match made.attr {
            Some(attr) => attr,
            None => self.vfs.getattr(self.ctx(), made.oid).await?,
        };
        Ok(Reply::Object(object(made.oid, &attr)))
    }
}

/// The name in the root directory that a path begins with; nothing where it leads to the root itself.
fn first_part(path: &[u8]) -> &[u8] {
    path.split(|b| *b == b'/').find(|part| !part.is_empty()).unwrap_or_default()
}

fn path(raw: &Raw) -> &Path {
    Path::new(OsStr::from_bytes(&raw.0))
}

impl From<Id> for Oid {
    fn from(id: Id) -> Oid {
        Oid { volume: id.volume, id: id.id }
    }
}

fn object(oid: Oid, a: &FileAttr) -> Object {
    let pair = |t: Time| (t.sec, t.nsec);
    let attr = Attr {
        kind: proto::letter(a.kind),
        mode: a.mode,
        nlink: a.nlink,
        uid: a.uid,
        gid: a.gid,
        size: a.size,
        used: a.used,
        fileid: a.fileid,
        atime: pair(a.atime),
        mtime: pair(a.mtime),
        ctime: pair(a.ctime),
    };
    Object { id: Id { volume: oid.volume, id: oid.id }, attr }
}

fn time(when: When) -> SetTime {
    match when {
        When::Now => SetTime::Now,
        When::At(sec, nsec) => SetTime::At(Time { sec, nsec: nsec.min(999_999_999) }),
    }
}

fn seconds(s: f64) -> Result<Duration> {
    Duration::try_from_secs_f64(s).map_err(|_| Error::new(ErrorKind::Invalid, "not a number of seconds"))
}
