//! A home without an agent: files in one directory, written packet by packet, without identities, in whole seconds, and a
//! connection that ends in the middle.

use bytes::Bytes;
use home::{
    Access, Attr, Changed, Chunk, Claimed, Class, Done, Entry, Error, ErrorKind, Hello, Home, HomeId,
};
use home::{HomePath, Kind, Link, Loc, Name, New, Op, OpId, Outcome, Page, Payload, Piece, Placed, Result};
use home::{Seen, SetTime, StatFs, Status, Time, Version, Watched};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard};
use std::time::SystemTime;

/// Bytes of one packet.
pub const PACKET: usize = 48 << 10;

#[derive(Default)]
struct File {
    bytes: Vec<u8>,
    sec: i64,
}

#[derive(Default)]
struct State {
    files: BTreeMap<HomePath, File>,
    /// How many packets of bytes get through before each end of the connection; then it stays away.
    lives: VecDeque<usize>,
    away: bool,
    /// Its clock shows the second of what it does.
    prompt: bool,
}

/// The home.
#[derive(Default)]
pub struct StepsHome(Mutex<State>);

fn now() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as i64
}

fn lost() -> Error {
    Error::new(ErrorKind::Unreachable, "the connection is cut (injected)")
}

fn attr(kind: Kind, file: &File) -> Attr {
    let time = Time { sec: file.sec, nsec: 0 };
    Attr {
        id: HomeId::default(),
        kind,
        mode: 0o755,
        nlink: 1,
        uid: super::UID,
        gid: super::UID,
        size: file.bytes.len() as u64,
        used: 0,
        atime: time,
        mtime: time,
        ctime: Time { sec: file.sec + 3, nsec: 0 },
        access: Access { read: true, write: true.into(), exec: true },
    }
}

impl StepsHome {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn there(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.state();
        if state.away { Err(lost()) } else { Ok(state) }
    }

    /// The connection ends after so many packets, and comes back when it is told to.
    pub fn cut_after(&self, packets: usize) {
        self.state().lives.push_back(packets);
    }

    pub fn is_away(&self) -> bool {
        self.state().away
    }

    pub fn come_back(&self) {
        self.state().away = false;
    }

    /// From now on all is done in the second in which it was accepted.
    pub fn be_prompt(&self) {
        self.state().prompt = true;
    }

    pub fn bytes(&self, name: &str) -> Vec<u8> {
        self.state().files[&path(name)].bytes.clone()
    }

    pub fn names(&self) -> Vec<String> {
        self.state().files.keys().map(|at| at.split().unwrap().1.to_string()).collect()
    }

    /// Another program writes a file.
    pub fn write(&self, name: &str, bytes: Vec<u8>, sec: i64) {
        self.state().files.insert(path(name), File { bytes, sec });
    }
}

fn path(name: &str) -> HomePath {
    HomePath::parse(name.as_bytes()).unwrap()
}

impl State {
    fn attr(&self, at: &HomePath) -> Result<Attr> {
        match self.files.get(at) {
            _ if at.is_root() => Ok(attr(Kind::Dir, &File::default())),
            Some(file) => Ok(attr(Kind::File, file)),
            None => Err(ErrorKind::NotFound.into()),
        }
    }

    /// A packet arrives, unless the connection ends before.
    fn packet(&mut self) -> Result<()> {
        match self.lives.front_mut() {
            Some(0) => {
                self.lives.pop_front();
                self.away = true;
                Err(lost())
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn write(&mut self, at: &HomePath, time: Time, pieces: &[Piece<Payload>]) -> Result<()> {
        let now = if self.prompt { time.sec } else { now() };
        for piece in pieces {
            let (at_byte, data) = match piece {
                Piece::Truncate(size) => {
                    self.packet()?;
                    let file = self.files.get_mut(at).unwrap();
                    file.bytes.resize(*size as usize, 0);
                    file.sec = now;
                    continue;
                }
                Piece::Data(at, Payload::Inline(data)) => (*at as usize, data),
                Piece::Data(..) => return Err(ErrorKind::NotStaged.into()),
            };
            for (i, part) in data.chunks(PACKET).enumerate() {
                self.packet()?;
                let file = self.files.get_mut(at).unwrap();
                let (from, to) = (at_byte + i * PACKET, at_byte + i * PACKET + part.len());
                file.bytes.resize(file.bytes.len().max(to), 0);
                file.bytes[from..to].copy_from_slice(part);
                file.sec = now;
            }
        }
        self.packet()?;
        self.files.get_mut(at).unwrap().sec = time.sec;
        Ok(())
    }

    fn shows(&self, at: &HomePath, base: Option<&Version>) -> bool {
        let file = &self.files[at];
        base.is_none_or(|base| (base.size, base.mtime.sec) == (file.bytes.len() as u64, file.sec))
    }

    fn execute(&mut self, placed: &Placed) -> Result<Outcome> {
        let after = |state: &State, at: &HomePath| {
            Ok(Outcome::Done(Done { attr: state.attr(at).ok(), dirs: Vec::new() }))
        };
        let met = |state: &State, at: &HomePath| Ok(Outcome::Conflict(state.attr(at).ok()));
        match &placed.op {
            Op::Create { dir, name, new: New::File, .. } => {
                let at = dir.path.join(name);
                if self.files.contains_key(&at) {
                    return met(self, &at);
                }
                self.files.insert(at.clone(), File { bytes: Vec::new(), sec: placed.time.sec });
                after(self, &at)
            }
            Op::Write { file, base, pieces } => {
                if !self.files.contains_key(&file.path) || !self.shows(&file.path, base.as_ref()) {
                    return met(self, &file.path);
                }
                self.write(&file.path, placed.time, pieces)?;
                after(self, &file.path)
            }
            Op::SetAttr { object, set, .. } => {
                if let (Some(SetTime::At(time)), Some(file)) = (set.mtime, self.files.get_mut(&object.path)) {
                    file.sec = time.sec;
                }
                after(self, &object.path)
            }
            _ => Ok(Outcome::Refused(ErrorKind::Unsupported)),
        }
    }
}

#[async_trait::async_trait]
impl Home for StepsHome {
    fn status(&self) -> Status {
        Status::new(Link::Up, Some(Class::Sftp))
    }

    async fn attach(&self) -> Result<Hello> {
        drop(self.there()?);
        Ok(Hello {
            class: Class::Sftp,
            stages: false,
            uid: super::UID,
            gid: super::UID,
            groups: vec![super::UID],
            home_dir: HomePath::root(),
            token: None,
            token_is_new: false,
            boot_id: Bytes::new(),
            clock: Time { sec: now(), nsec: 0 },
            place: None,
        })
    }

    async fn stat(&self, at: &Loc) -> Result<Seen> {
        Ok(Seen { applied: 0, attr: self.there()?.attr(&at.path)? })
    }

    async fn list(&self, dir: &Loc, _: Option<&Name>, _: u32) -> Result<Page> {
        let state = self.there()?;
        let entries = state.files.iter().map(|(at, file)| Entry {
            name: at.split().unwrap().1,
            attr: Some(attr(Kind::File, file)),
            target: None,
            bare: false,
        });
        Ok(Page { applied: 0, dir: state.attr(&dir.path)?, entries: entries.collect(), more: false })
    }

    async fn watch(&self, dir: &Loc, max: u32, _: u64) -> Result<Watched> {
        Ok(Watched::not(self.list(dir, None, max).await?))
    }

    async fn changes(&self) -> Vec<Changed> {
        std::future::pending().await
    }

    fn epoch(&self) -> Option<u64> {
        None
    }

    async fn read(&self, file: &Loc, at: u64, len: u32) -> Result<Chunk> {
        let state = self.there()?;
        let attr = state.attr(&file.path)?;
        let (from, to) = (at.min(attr.size) as usize, (at + u64::from(len)).min(attr.size) as usize);
        Ok(Chunk { attr, data: Bytes::copy_from_slice(&state.files[&file.path].bytes[from..to]) })
    }

    async fn readlink(&self, _: &Loc) -> Result<Bytes> {
        Err(ErrorKind::Invalid.into())
    }

    async fn statfs(&self, _: &Loc) -> Result<StatFs> {
        Err(ErrorKind::Unsupported.into())
    }

    async fn stage(&self, _: OpId, _: u64, _: Bytes) -> Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    async fn claim(&self, _: u64, _: u32, _: Vec<u64>) -> Result<Option<Claimed>> {
        self.there().map(|_| None)
    }

    async fn apply(&self, ops: Vec<Placed>) -> Result<Vec<Outcome>> {
        let mut state = self.there()?;
        let mut outcomes = Vec::new();
        for placed in &ops {
            outcomes.push(state.execute(placed)?);
            if !matches!(outcomes.last(), Some(Outcome::Done(_))) {
                break;
            }
        }
        Ok(outcomes)
    }
}
