//! A client of the gateway: it calls, waits for answers, calls again where none comes, and writes again what may be
//! lost, as an NFS client does. Nobody else works in its directory, so that it knows what every answer has to be.

use crate::compare::compare;
use crate::gateway::{Gateway, LAB, Session, Sessions, cred, home_dir};
use crate::machine::Machine;
use crate::model::{Act, Model, Obj, TOP};
use crate::network::Net;
use home::{ErrorKind, Kind};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;
use vfs::{CreateHow, Cred, Ctx, FileAttr, Mode, Oid, RetryKey, SetAttrs, SetTime, Stability};

/// How long a client waits at a barrier.
const BARRIER: Duration = Duration::from_secs(60);

/// Why a world fails.
pub type Check<T = ()> = Result<T, String>;

/// Lines that tell what happened.
pub type Trace = Arc<Mutex<Vec<String>>>;

/// A client.
pub struct Client {
    name: String,
    sessions: Arc<Sessions>,
    cred: Cred,
    rng: StdRng,
    /// What its directory should be.
    pub model: Model,
    /// The last session in which everything uncommitted was written again.
    renewed: Option<u64>,
    /// Whether times and link counts of directories are compared, too.
    pub directories: bool,
    /// Directories that were made or moved since everything was at the home, and what lost a name to another object.
    pub moved: BTreeSet<usize>,
    /// Whether the home may refuse what was accepted; that is told late, and once.
    pub may_be_refused: bool,
    /// Of which files that was told, each with the number of the process that told it.
    told: BTreeSet<(usize, u64)>,
    /// The last of them, while it is not answered otherwise.
    told_last: Option<(usize, u64)>,
    /// What is looked at there after answers.
    pub promised: Option<Promised>,
    trace: Trace,
}

/// What answers promise of the home.
#[derive(Clone)]
pub struct Promised {
    /// The home's machine.
    pub home: Arc<Machine>,
    /// The way there.
    pub net: Arc<Net>,
    /// What each answer promises.
    pub mode: Mode,
    /// Now and then a client waits until everything is there.
    pub barriers: bool,
}

/// What an answer tells.
#[derive(Default)]
struct Answer {
    made: Option<Oid>,
    verifier: Option<[u8; 8]>,
}

/// Why a call has to be made again.
enum Again {
    /// No answer.
    Died,
    /// It was told to come again.
    Later,
    /// It was told that the home refused an earlier one.
    Told,
    /// It failed.
    Failed(ErrorKind, String),
}

type Try<T> = Result<T, Again>;

impl From<home::Error> for Again {
    fn from(e: home::Error) -> Again {
        match e.kind {
            // A full home is told once, and nothing was taken of what hears of it.
            ErrorKind::Busy | ErrorKind::Full | ErrorKind::NoSpace | ErrorKind::Unreachable => Again::Later,
            _ => Again::Failed(e.kind, format!("{:?}: {e}", e.kind)),
        }
    }
}

impl Client {
    /// A client with a directory of its own, which it still has to make.
    pub fn new(name: &str, gateway: &Gateway, seed: u64, trace: Trace) -> Client {
        Client {
            name: name.to_owned(),
            sessions: gateway.sessions(),
            cred: cred(),
            rng: StdRng::seed_from_u64(seed),
            model: Model::default(),
            renewed: None,
            directories: false,
            moved: BTreeSet::new(),
            may_be_refused: false,
            told: BTreeSet::new(),
            told_last: None,
            promised: None,
            trace,
        }
    }

    /// Its directory below the account's home directory.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn say(&self, what: impl FnOnce() -> String) {
        let line = format!("{} {}", self.name, what());
        self.trace.lock().push(line);
    }

    /// An answer, unless the process dies before.
    async fn answer<T>(&self, s: &Session, call: impl Future<Output = home::Result<T>>) -> Try<T> {
        let answer = tokio::select! {
            biased;
            answer = call => answer,
            () = self.sessions.dead(s) => return Err(Again::Died),
        };
        if !s.is_alive() {
            return Err(Again::Died);
        }
        Ok(answer?)
    }

    /// Repeats until there is an answer.
    async fn until_answered<T>(
        &mut self,
        what: &str,
        mut call: impl AsyncFnMut(&mut Client, &Session, u32) -> Try<T>,
    ) -> Check<T> {
        for attempt in 0.. {
            let session = self.sessions.living().await;
            let again = match self.renew(&session).await {
                Ok(()) => match call(self, &session, attempt).await {
                    Ok(value) => return Ok(value),
                    Err(again) => again,
                },
                Err(again) => again,
            };
            match again {
                Again::Died => {
                    self.say(|| format!("{what}: no answer"));
                    sleep(Duration::from_millis(1)).await;
                }
                Again::Later if attempt > 3000 => return Err(format!("{what}: told to come again for ever")),
                Again::Later => sleep(Duration::from_millis(300)).await,
                Again::Told => {}
                Again::Failed(_, why) => return Err(format!("{what}: {why}")),
            }
        }
        Err("never".into())
    }

    /// In a new process, writes again what was not committed in the one before.
    async fn renew(&mut self, s: &Session) -> Try<()> {
        if self.renewed.is_some_and(|n| n != s.number) {
            for id in 0..self.model.objs.len() {
                self.write_again(s, id, Stability::Unstable).await?;
            }
        }
        self.renewed = Some(s.number);
        Ok(())
    }

    async fn write_again(&mut self, s: &Session, id: usize, stability: Stability) -> Try<()> {
        let o = &self.model.objs[id];
        let (ranges, Some(oid)) = (o.dirty.clone(), o.oid) else { return Ok(()) };
        if ranges.is_empty() || self.model.is_gone(id) {
            return Ok(());
        }
        self.model.objs[id].mtime = None;
        self.model.objs[id].verifier = None;
        for (from, to) in ranges {
            let data = self.model.objs[id].data[from..to].to_vec();
            let call = s.vfs.write(self.ctx(), oid, from as u64, data.into(), stability);
            let written = self.answer(s, call).await;
            let written = self.heard(s, id, written)?;
            self.note_verifier(id, written.verifier);
        }
        self.say(|| format!("wrote {id} again"));
        Ok(())
    }

    /// What a call that writes to a file was answered. That the home refused an earlier one is told once.
    fn heard<T>(&mut self, s: &Session, id: usize, answer: Try<T>) -> Try<T> {
        let told = (id, s.number);
        match answer {
            Err(Again::Failed(ErrorKind::Access, why)) if self.may_be_refused => {
                self.say(|| format!("hears that a write to {id} was refused"));
                self.told.insert(told);
                match self.told_last.replace(told) {
                    Some(last) if last == told => {
                        let why = format!("I14: what it was told once is told again: {why}");
                        Err(Again::Failed(ErrorKind::Access, why))
                    }
                    _ => Err(Again::Told),
                }
            }
            answer => {
                self.told_last.take_if(|last| *last == told && answer.is_ok());
                answer
            }
        }
    }

    /// Somebody who writes to a file hears that the home has refused an earlier write.
    pub async fn hears_of(&mut self, id: usize) -> Check {
        let told = (id, self.sessions.living().await.number);
        if !self.told.contains(&told) {
            self.perform(Act::Commit { file: id }).await?;
        }
        let is_told = self.told.contains(&told);
        if is_told { Ok(()) } else { Err(format!("I14: nobody hears that the home refused a write to {id}")) }
    }

    /// What the gateway says of each object that has a name: whether the home has all of it.
    pub async fn states(&mut self) -> Check<BTreeMap<usize, String>> {
        let mut states = BTreeMap::new();
        for id in self.model.paths().into_values().chain([TOP]) {
            let oid = self.oid(id);
            let state = self
                .until_answered(&format!("state of {id}"), async |c, s, _| {
                    c.answer(s, s.vfs.getxattr(c.ctx(), oid, b"user.trellis.state")).await
                })
                .await?;
            states.insert(id, String::from_utf8_lossy(&state).into_owned());
        }
        Ok(states)
    }

    /// Writes with different verifiers count as lost, whatever a commit says.
    fn note_verifier(&mut self, id: usize, verifier: [u8; 8]) {
        let o = &mut self.model.objs[id];
        o.verifier = match o.verifier {
            Some(old) if old != verifier => Some([0; 8]),
            _ => Some(verifier),
        };
    }

    fn ctx(&self) -> Ctx<'_> {
        Ctx::of(&self.cred)
    }

    /// The engine's handle of an object.
    pub fn oid(&self, id: usize) -> Oid {
        self.model.objs[id].oid.unwrap_or(Oid::ROOT)
    }

    /// Makes its directory.
    pub async fn begin(&mut self) -> Check {
        let key = RetryKey(self.rng.random());
        let made = self
            .until_answered("begin", async |c, s, _| {
                let top = c.answer(s, home_dir(&s.vfs, &c.cred, LAB)).await?;
                let first = c.answer(s, async { Ok(s.vfs.first_reply(key).await) }).await?;
                if let Some(first) = first {
                    return Ok(first.oid);
                }
                let set = SetAttrs { mode: Some(0o755), ..SetAttrs::default() };
                let ctx = Ctx { retry: Some(key), ..c.ctx() };
                let made = c.answer(s, s.vfs.mkdir(ctx, top, c.name.as_bytes(), set)).await?;
                Ok(made.oid)
            })
            .await?;
        self.model.objs[TOP].oid = Some(made);
        self.learn(TOP).await
    }

    /// Makes random calls.
    pub async fn work(&mut self, calls: u64) -> Check {
        for _ in 0..calls {
            let act = self.model.choose(&mut self.rng);
            if let Some(file) = self.model.flushed_by(&act) {
                self.perform(Act::Commit { file }).await?;
            }
            let commits = matches!(act, Act::Commit { .. });
            self.perform(act).await?;
            self.is_as_promised(commits)?;
            self.pass_a_barrier().await?;
            if self.rng.random_bool(0.1) {
                let time = self.rng.random_range(0..1500);
                sleep(Duration::from_millis(time)).await;
            }
        }
        Ok(())
    }

    /// After a call that was answered: what its mode says is durable at the home is there when the power fails now. A client
    /// that has not committed everything does not know.
    fn is_as_promised(&self, commits: bool) -> Check {
        let Some(Promised { home, mode, .. }) = &self.promised else { return Ok(()) };
        let promises = mode.is_plain() || mode.commits_at_home() && commits;
        let knows = self.model.objs.iter().all(|o| o.dirty.is_empty());
        if !promises || !knows {
            return Ok(());
        }
        compare(self, &home.image_after_cut())
            .map_err(|why| format!("in mode {mode}, after a power cut: {why}"))
    }

    /// Now and then it waits until everything is at the home. When that is answered, it is there when the power fails now.
    async fn pass_a_barrier(&mut self) -> Check {
        let Some(Promised { home, barriers: true, .. }) = self.promised.clone() else { return Ok(()) };
        if self.rng.random_ratio(14, 15) {
            return Ok(());
        }
        self.flush().await?;
        let unsent = self
            .until_answered("barrier", async |c, s, _| {
                c.answer(s, async { Ok(s.vfs.sync(None, BARRIER).await.err()) }).await
            })
            .await?;
        self.say(|| format!("barrier: {unsent:?}"));
        match unsent {
            Some(_) => Ok(()),
            None => {
                compare(self, &home.image_after_cut()).map_err(|why| format!("I13, behind a barrier: {why}"))
            }
        }
    }

    /// Commits everything.
    pub async fn flush(&mut self) -> Check {
        for file in 0..self.model.objs.len() {
            if !self.model.objs[file].dirty.is_empty() && !self.model.is_gone(file) {
                self.perform(Act::Commit { file }).await?;
            }
        }
        Ok(())
    }

    /// One call, until it is answered.
    async fn perform(&mut self, act: Act) -> Check {
        let text = match &act {
            Act::Write { file, at, data, stable } => {
                let token = String::from_utf8_lossy(&data[..data.len().min(8)]);
                format!("Write {{ file: {file}, at: {at}, {token}: {}, stable: {stable} }}", data.len())
            }
            act => format!("{act:?}"),
        };
        self.say(|| text.clone());
        if let Act::Look { object } = act {
            return self.look(object).await;
        }
        let key = RetryKey(self.rng.random());
        let made = self.model.objs.len();
        let claims = self.claims();
        let answer = self
            .until_answered(&text, async |c, s, attempt| {
                let retry = matches!(
                    act,
                    Act::Create { .. }
                        | Act::Mkdir { .. }
                        | Act::Link { .. }
                        | Act::Rename { .. }
                        | Act::Remove { .. }
                        | Act::Rmdir { .. }
                );
                if retry && attempt > 0 {
                    let first = c.answer(s, async { Ok(s.vfs.first_reply(key).await) }).await?;
                    if let Some(first) = first {
                        return Ok(Answer { made: Some(first.oid), verifier: None });
                    }
                }
                match c.call(s, &act, retry.then_some(key)).await {
                    Err(Again::Failed(ErrorKind::Exists, why)) if c.claims() > claims => {
                        c.take_its_own(s, &act, why).await
                    }
                    answer => answer,
                }
            })
            .await?;
        self.note_moves(&act, made);
        let touched = self.model.apply(&act);
        if let (Some(o), Some(oid)) = (self.model.objs.get_mut(made), answer.made) {
            o.oid = Some(oid);
        }
        if let (Act::Write { file, stable: false, .. }, Some(verifier)) = (&act, answer.verifier) {
            self.note_verifier(*file, verifier);
        }
        for id in touched {
            self.model.objs[id].mtime = None;
            if !self.model.is_gone(id) {
                self.learn(id).await?;
            }
        }
        if let Act::Write { file, stable: false, .. } | Act::Commit { file } = &act
            && self.has_times_of_home()
        {
            self.model.objs[*file].mtime = None;
        }
        Ok(())
    }

    /// How often agents took over, in mode `strict`: then what the one before made without its mark is not known as ours, and
    /// the call hears that it exists.
    fn claims(&self) -> u64 {
        let plain = self.promised.as_ref().filter(|promised| promised.mode.is_plain());
        plain.map_or(0, |promised| promised.net.claims())
    }

    /// What was to be made exists. Nobody else makes anything in this directory: what is there is its own, as it was made or
    /// before it had its mode.
    async fn take_its_own(&mut self, s: &Session, act: &Act, why: String) -> Try<Answer> {
        let (dir, name, kind, mode) = match act {
            Act::Create { dir, name, .. } => (dir, name, Kind::File, 0o600),
            Act::Mkdir { dir, name } => (dir, name, Kind::Dir, 0o755),
            _ => return Err(Again::Failed(ErrorKind::Exists, why)),
        };
        let found = self.answer(s, s.vfs.lookup(self.ctx(), self.oid(*dir), name.as_bytes())).await?;
        if found.attr.kind != kind || kind == Kind::File && found.attr.size > 0 {
            return Err(Again::Failed(ErrorKind::Exists, format!("{why}, and is not what was to be made")));
        }
        let set = SetAttrs { mode: Some(mode), ..SetAttrs::default() };
        self.answer(s, s.vfs.setattr(self.ctx(), found.oid, set, None)).await?;
        self.say(|| format!("takes {name} for its own"));
        Ok(Answer { made: Some(found.oid), verifier: None })
    }

    /// Whether the home gives the times: what an unstable write shows is this clock's until it is there.
    fn has_times_of_home(&self) -> bool {
        self.promised.as_ref().is_some_and(|promised| promised.mode.is_plain())
    }

    /// Notes which directory a change makes or moves, and what it takes a name from.
    fn note_moves(&mut self, act: &Act, made: usize) {
        let child = |dir: &usize, name| self.model.objs[*dir].names.get(name).copied();
        let moved = match act {
            Act::Mkdir { .. } => [Some(made), None],
            Act::Rename { from, name, to, new } => [child(from, name), child(to, new)],
            _ => [None; 2],
        };
        self.moved.extend(moved.into_iter().flatten());
    }

    async fn call(&mut self, s: &Session, act: &Act, retry: Option<RetryKey>) -> Try<Answer> {
        let v = &s.vfs;
        let cred = self.cred.clone();
        let ctx = Ctx { retry, ..Ctx::of(&cred) };
        let none = SetAttrs::default();
        Ok(match act {
            Act::Create { dir, name, exclusive } => {
                let how = if *exclusive { CreateHow::Exclusive([7; 8]) } else { CreateHow::Guarded };
                let set = SetAttrs { mode: (!exclusive).then_some(0o600), ..none };
                let made = self.answer(s, v.create(ctx, self.oid(*dir), name.as_bytes(), how, set)).await?;
                Answer { made: Some(made.oid), verifier: None }
            }
            Act::Mkdir { dir, name } => {
                let set = SetAttrs { mode: Some(0o755), ..none };
                let made = self.answer(s, v.mkdir(ctx, self.oid(*dir), name.as_bytes(), set)).await?;
                Answer { made: Some(made.oid), verifier: None }
            }
            Act::Write { file, at, data, stable } => {
                let want = if *stable { Stability::Stable } else { Stability::Unstable };
                let call = v.write(ctx, self.oid(*file), *at as u64, data.clone().into(), want);
                let written = self.answer(s, call).await;
                Answer { made: None, verifier: Some(self.heard(s, *file, written)?.verifier) }
            }
            Act::Commit { file } => {
                let done = self.answer(s, v.commit(ctx, self.oid(*file))).await;
                let done = self.heard(s, *file, done)?;
                let o = &self.model.objs[*file];
                if !o.dirty.is_empty() && o.verifier != Some(done.verifier) {
                    self.write_again(s, *file, Stability::Stable).await?;
                    self.say(|| format!("another verifier for {file}"));
                }
                Answer::default()
            }
            Act::Truncate { file, size } => {
                let set = SetAttrs { size: Some(*size as u64), ..none };
                self.answer(s, v.setattr(ctx, self.oid(*file), set, None)).await?;
                Answer::default()
            }
            Act::SetAttr { object, mode, mtime } => {
                let set = SetAttrs { mode: *mode, mtime: mtime.map(SetTime::At), ..none };
                self.answer(s, v.setattr(ctx, self.oid(*object), set, None)).await?;
                Answer::default()
            }
            Act::Link { object, dir, name } => {
                let call = v.link(ctx, self.oid(*object), self.oid(*dir), name.as_bytes());
                self.answer(s, call).await?;
                Answer::default()
            }
            Act::Rename { from, name, to, new } => {
                let (from, to) = (self.oid(*from), self.oid(*to));
                let how = vfs::RenameHow::Replace;
                self.answer(s, v.rename(ctx, from, name.as_bytes(), to, new.as_bytes(), how)).await?;
                Answer::default()
            }
            Act::Remove { dir, name } => {
                self.answer(s, v.remove(ctx, self.oid(*dir), name.as_bytes())).await?;
                Answer::default()
            }
            Act::Rmdir { dir, name } => {
                self.answer(s, v.rmdir(ctx, self.oid(*dir), name.as_bytes())).await?;
                Answer::default()
            }
            Act::Look { .. } => Answer::default(),
        })
    }

    /// Attributes, the number of the process that showed them, and whether they may be those that an earlier one has kept.
    async fn attr(&mut self, id: usize) -> Check<(FileAttr, u64, bool)> {
        let oid = self.oid(id);
        self.until_answered(&format!("getattr {id}"), async |c, s, _| {
            let attr = c.answer(s, s.vfs.getattr(c.ctx(), oid)).await?;
            let kept = s.vfs.status().volumes.iter().any(|volume| volume.kept || volume.silent);
            Ok((attr, s.number, kept && c.model.objs[id].process < s.number))
        })
        .await
    }

    /// Attributes after a change: times move on, identity does not.
    async fn learn(&mut self, id: usize) -> Check {
        let (attr, process, kept) = self.attr(id).await?;
        let by_home = self.has_times_of_home();
        let o = &mut self.model.objs[id];
        if o.fileid.is_some_and(|known| known != attr.fileid) {
            return Err(format!("I10: object {id} had fileid {:?} and has {}", o.fileid, attr.fileid));
        }
        if o.ctime.is_some_and(|known| known >= attr.ctime) {
            // A process that ended less than a checkpoint ago may have shown what the home had: the change counts on from
            // what was kept.
            if kept {
                (o.ctime, o.mtime, o.process) = (Some(attr.ctime), Some(attr.mtime), process);
                return Ok(());
            }
            return Err(format!(
                "I11: a change of {id} moved its ctime from {:?} to {:?}",
                o.ctime, attr.ctime
            ));
        }
        // The home gives its own time to what is unstable.
        let stays = !by_home || o.dirty.is_empty();
        (o.fileid, o.ctime, o.mtime) = (Some(attr.fileid), Some(attr.ctime), stays.then_some(attr.mtime));
        o.process = process;
        Ok(())
    }

    /// Compares one object with the model.
    pub async fn look(&mut self, id: usize) -> Check {
        match self.look_once(id).await {
            Err(why) if !self.is_written_again(id).await? => Err(why),
            Err(_) => self.look_once(id).await,
            seen => seen,
        }
    }

    /// In mode `strict` an unstable write may be undone, and the verifier says so: then it is written again. Answers whether it was.
    async fn is_written_again(&mut self, id: usize) -> Check<bool> {
        let (o, is_gone) = (&self.model.objs[id], self.model.is_gone(id));
        if !self.has_times_of_home() || o.dirty.is_empty() || is_gone {
            return Ok(false);
        }
        let (oid, process) = (self.oid(id), self.renewed);
        let undone = self
            .until_answered(&format!("commit {id}"), async |c, s, _| {
                let done = c.answer(s, s.vfs.commit(c.ctx(), oid)).await?;
                let undone = c.model.objs[id].verifier != Some(done.verifier);
                if undone {
                    c.write_again(s, id, Stability::Stable).await?;
                }
                Ok(undone)
            })
            .await?;
        self.model.apply(&Act::Commit { file: id });
        self.model.objs[id].mtime = None;
        // Where the process ended meanwhile, it was written again to the next one.
        Ok(undone || self.renewed != process)
    }

    async fn look_once(&mut self, id: usize) -> Check {
        if self.model.is_gone(id) {
            return Ok(());
        }
        let (attr, process, kept) = self.attr(id).await?;
        let by_home = self.has_times_of_home();
        let o = &mut self.model.objs[id];
        let moves = by_home && o.mtime.is_none() && !o.dirty.is_empty();
        let strict = (o.kind != Kind::Dir || self.directories) && !moves;
        let mtime = if strict { *o.mtime.get_or_insert(attr.mtime) } else { attr.mtime };
        if o.ctime.is_some_and(|known| known > attr.ctime) && !kept {
            return Err(format!("I11: the ctime of {id} went from {:?} back to {:?}", o.ctime, attr.ctime));
        }
        if o.ctime.is_none_or(|known| known <= attr.ctime) {
            (o.ctime, o.process) = (Some(attr.ctime), process);
        }
        let o = &self.model.objs[id];
        let size = if o.kind == Kind::Dir { attr.size } else { o.data.len() as u64 };
        let links = if strict || moves { self.model.links(id) } else { attr.nlink };
        let want = (o.kind, o.mode, links, mtime, o.fileid, size);
        let have = (attr.kind, attr.mode, attr.nlink, attr.mtime, Some(attr.fileid), attr.size);
        if have != want {
            return Err(format!("object {id} is {have:?}, and should be {want:?}"));
        }
        match o.kind {
            Kind::Dir => self.look_at_names(id).await,
            _ => self.look_at_content(id).await,
        }
    }

    async fn look_at_names(&mut self, id: usize) -> Check {
        let dir = self.oid(id);
        let mut found = self
            .until_answered(&format!("readdir {id}"), async |c, s, _| {
                let (mut names, mut after) = (Vec::new(), 0);
                loop {
                    let page = c.answer(s, s.vfs.readdir(c.ctx(), dir, after, 100)).await?;
                    names.extend(
                        page.entries
                            .iter()
                            .map(|e| (String::from_utf8_lossy(&e.name).into_owned(), e.fileid)),
                    );
                    after = page.entries.last().map_or(after, |e| e.cookie);
                    if page.eof {
                        return Ok(names);
                    }
                }
            })
            .await?;
        found.retain(|(name, _)| name != "." && name != "..");
        found.sort();
        let fileid = |id: &usize| self.model.objs[*id].fileid.unwrap_or(0);
        let want: Vec<_> = self.model.objs[id].names.iter().map(|(n, id)| (n.clone(), fileid(id))).collect();
        if found == want {
            Ok(())
        } else {
            Err(format!("directory {id} has {found:?}, and should have {want:?}"))
        }
    }

    async fn look_at_content(&mut self, id: usize) -> Check {
        let (oid, len) = (self.oid(id), self.model.objs[id].data.len() as u32);
        let read = self
            .until_answered(&format!("read {id}"), async |c, s, _| {
                c.answer(s, s.vfs.read(c.ctx(), oid, 0, len + 10)).await
            })
            .await?;
        same_bytes(&read.data.concat(), &self.model.objs[id]).map_err(|why| format!("object {id}: {why}"))
    }

    /// Compares everything.
    pub async fn look_at_all(&mut self) -> Check {
        for id in [vec![TOP], self.model.paths().into_values().collect()].concat() {
            self.look(id).await?;
        }
        Ok(())
    }
}

/// Compares the content of a file.
pub fn same_bytes(have: &[u8], want: &Obj) -> Check {
    if have == want.data {
        return Ok(());
    }
    let from = have.iter().zip(&want.data).take_while(|(a, b)| a == b).count();
    let part = |d: &[u8]| d.get(from..d.len().min(from + 16)).unwrap_or_default().escape_ascii().to_string();
    Err(format!(
        "{} bytes that should be {}; from {from} {:?}, and should be {:?}",
        have.len(),
        want.data.len(),
        part(have),
        part(&want.data)
    ))
}
