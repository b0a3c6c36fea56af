//! Runs calls against an engine and a model, with faults and restarts between them, and compares.

use crate::common::clock::FastClock;
use crate::common::{Engine, OneHome, UID, World};
use crate::posix::{Act, Model, OWNER, Obj, ROOT};
use bytes::Bytes;
use home::testing::conformance::Outside;
use home::testing::fault::{Fault, FaultHome};
use home::{ErrorKind, Home, HomePath, Kind, Loc, Time};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use vfs::env::Env;
use vfs::env::testing::SeededRng;
use vfs::{Config, Cred, FileAttr, Mode, Oid, SetAttrs, SetTime, Stability, Vfs};

/// What a run may do.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub mode: Mode,
    pub steps: u32,
    /// Large writes, and a cache that is too small for them.
    pub big: bool,
    /// The process may be killed and the power cut.
    pub restarts: bool,
    /// The way to the home may fail, and the agent there be restarted.
    pub faults: bool,
}

/// Why a run fails.
pub type Check = Result<(), String>;

macro_rules! ensure {
    ($what:expr, $($text:tt)*) => { if !$what { return Err(format!($($text)*)); } };
}

pub(crate) use ensure;

pub struct Run {
    pub world: World,
    pub clock: FastClock,
    pub rng: StdRng,
    pub plan: Plan,
    pub model: Model,
    pub e: Engine,
    /// States that a power cut may lead to, oldest first; the present one is not among them.
    earlier: Vec<Model>,
    /// What the state may be as well, because a call had no answer.
    maybe: Option<Model>,
    ctimes: HashMap<Oid, Time>,
    fault_ends: Option<tokio::task::JoinHandle<()>>,
    pub trace: Vec<String>,
}

/// Starts an engine on what is left of a world.
pub async fn start(world: &World, clock: &FastClock, seed: u64) -> Engine {
    let vfs = Vfs::open(Config {
        env: Env {
            disk: Arc::new(world.disk.clone()),
            clock: Arc::new(clock.clone()),
            rng: Arc::new(SeededRng::new(seed)),
            work: Arc::new(vfs::env::Threads),
        },
        store: world.store.clone(),
        namespace: Arc::new(OneHome {
            home: world.fault.clone(),
            protect: vec![],
            modes: Vec::new(),
            conflicts: Vec::new(),
        }),
        server_uid: UID,
        server_gid: UID,
        mode: world.mode,
        share: false,
        cache_bytes: world.cache,
        spool_from: None,
        batch_bytes: vfs::BATCH_BYTES,
        staleness: world.staleness,
    })
    .await
    .unwrap();
    Engine { vfs, cred: Cred { uid: UID, gid: UID, groups: vec![] } }
}

impl Run {
    pub async fn new(seed: u64, plan: Plan) -> Run {
        let mut rng = StdRng::seed_from_u64(seed);
        // The home's clock is behind ours or ahead.
        let behind = plan.mode == Mode::Wb && rng.random_bool(0.5);
        let clock = FastClock::new(if behind { 1_750_000_000 } else { 1_650_000_000 });
        tokio::spawn(clock.clone().run());
        let mut world = World::new(plan.mode);
        world.staleness =
            Duration::from_millis(*[0, 300, 5_000, 100_000].get(rng.random_range(0..4)).unwrap());
        world.memory.set_keeps_log(rng.random_bool(0.5));
        if plan.big {
            world.cache = 10 << 20;
        }
        world.mkdir("a");
        world.write("a/b", b"was here before");
        world.write("c", &vec![b'x'; rng.random_range(1..100_000)]);
        let e = start(&world, &clock, seed).await;
        let mut model = Model::new();
        let a = model.add(Kind::Dir, 0o755);
        model.enter(ROOT, "a", a);
        for (dir, name, path) in [(a, "b", "a/b"), (ROOT, "c", "c")] {
            let f = model.add(Kind::File, 0o644);
            model.enter(dir, name, f);
            model.objs[f].data = Arc::new(world.at_home(path).await.unwrap());
        }
        let (ctimes, trace) = (HashMap::new(), Vec::new());
        let mut run = Run {
            world,
            clock,
            rng,
            plan,
            model,
            e,
            earlier: vec![],
            maybe: None,
            ctimes,
            fault_ends: None,
            trace,
        };
        run.model.objs[ROOT].oid = Some(run.e.lab().await);
        run.model.objs[ROOT].anchored = true;
        run
    }

    pub fn say(&mut self, what: String) {
        self.trace.push(what);
    }

    /// All steps, then quiescence.
    pub async fn go(&mut self) -> Check {
        self.compare().await?;
        for step in 0..self.plan.steps {
            self.step(step).await?;
        }
        self.clear().await;
        self.sync().await?;
        self.compare().await?;
        self.at_rest().await
    }

    async fn step(&mut self, step: u32) -> Check {
        let roll = self.rng.random_range(0..1000);
        match roll {
            0..40 => {
                let pause = Duration::from_millis(self.rng.random_range(1..1500));
                self.say(format!("{step}: pause {pause:?}"));
                tokio::time::sleep(pause).await;
            }
            40..60 if self.plan.faults => self.fault(step).await,
            60..65 if self.plan.faults => {
                self.say(format!("{step}: agent restarts"));
                self.world.memory.restart();
            }
            65..85 if self.plan.restarts => return self.restart(step).await,
            85..105 => {
                self.clear().await;
                self.say(format!("{step}: sync"));
                self.sync().await?;
            }
            105..125 => {
                self.clear().await;
                self.say(format!("{step}: compare"));
                self.compare().await?;
            }
            _ => {
                let act = self.model.choose(&mut self.rng, self.plan.big);
                self.act(step, act).await?;
            }
        }
        Ok(())
    }

    /// Something goes wrong on the way to the home for a while.
    async fn fault(&mut self, step: u32) {
        let fault =
            [Fault::Unreachable, Fault::AnswersLost, Fault::Hang, Fault::Delay(Duration::from_millis(300))];
        let fault = fault[self.rng.random_range(0..4)];
        let time = Duration::from_millis(self.rng.random_range(50..6000));
        self.say(format!("{step}: {fault:?} for {time:?}"));
        self.world.fault(fault);
        let home = self.world.fault.clone();
        let ends = tokio::spawn(async move {
            tokio::time::sleep(time).await;
            home.set(Fault::None);
        });
        if let Some(earlier) = self.fault_ends.replace(ends) {
            earlier.abort();
        }
    }

    async fn clear(&mut self) {
        self.world.fault(Fault::None);
    }

    /// One call on both sides.
    async fn act(&mut self, step: u32, act: Act) -> Check {
        let mut text = format!("{step}: {act:?}");
        if let Act::Write { file, at, data, stable } = &act {
            text =
                format!("{step}: Write {{ file: {file}, at: {at}, len: {}, stable: {stable} }}", data.len());
        }
        self.say(text);
        let answer = self.call(&act).await?;
        if let Err(kind) = &answer {
            self.say(format!("   => {kind:?}"));
        }
        let mut after = self.model.clone();
        let expected = after.apply(&act);
        match (answer, expected) {
            (Ok(oid), Ok(effect)) => {
                let unstable = matches!(&act, Act::Write { stable: false, data, .. } if !data.is_empty());
                match &act {
                    _ if unstable => self.earlier.push(self.model.clone()),
                    Act::Read { .. } | Act::List { .. } | Act::Lookup { .. } => {}
                    _ if effect.touched.is_empty()
                        && !matches!(
                            act,
                            Act::Commit { .. }
                                | Act::SetAttr { .. }
                                | Act::SetXattr { .. }
                                | Act::RemoveXattr { .. }
                        ) => {}
                    Act::SetAttr { mode: None, mtime: None, .. } => {}
                    Act::Commit { file } => {
                        // It promises no more than what was written to this file.
                        let now = &self.model.objs[*file];
                        let same = |o: &Obj| o.mtime == now.mtime && o.data == now.data;
                        self.earlier.retain(|m| m.objs.get(*file).is_some_and(same));
                    }
                    _ => self.earlier.clear(),
                }
                for id in &effect.touched {
                    after.objs[*id].mtime = None;
                    after.objs[*id].anchored |= !unstable;
                }
                if let (Some(id), Some(oid)) = (effect.made, oid) {
                    after.objs[id].anchored |= after.objs.len() > self.model.objs.len();
                    let known = after.objs[id].oid.replace(oid);
                    ensure!(known.is_none_or(|k| k == oid), "another object was found: {known:?} {oid:?}");
                }
                let old = std::mem::replace(&mut self.model, after);
                for id in effect.touched {
                    if self.model.objs[id].nlink > 0 {
                        self.learn(id, old.objs.get(id).and_then(|o| o.mtime)).await?;
                    }
                }
                Ok(())
            }
            (Err(kind), Err(kinds)) if kinds.contains(&kind) => Ok(()),
            (Err(ErrorKind::Busy | ErrorKind::Full | ErrorKind::Unreachable), _)
                if self.plan.faults || self.plan.big || self.plan.restarts =>
            {
                Ok(())
            }
            (answer, expected) => Err(format!("answer {answer:?}, but expected {expected:?}")),
        }
    }

    async fn call(&mut self, act: &Act) -> Result<Result<Option<Oid>, ErrorKind>, String> {
        // tidy: long because it is one match, a few lines for each kind of call.
        let oid = |id: &usize| self.model.objs[*id].oid.unwrap_or(Oid { volume: 0, id: 0 });
        let (v, ctx) = (&self.e.vfs, self.e.ctx());
        let set = |mode: Option<u32>| SetAttrs { mode, ..SetAttrs::default() };
        let answer = match act {
            Act::Create { dir, name, how, mode, size } => {
                let set = SetAttrs { size: *size, ..set(*mode) };
                v.create(ctx, oid(dir), name.as_bytes(), *how, set).await.map(|m| Some(m.oid))
            }
            Act::Mkdir { dir, name, mode } => {
                v.mkdir(ctx, oid(dir), name.as_bytes(), set(Some(*mode))).await.map(|m| Some(m.oid))
            }
            Act::Symlink { dir, name, target } => {
                let target = Bytes::from(target.clone());
                v.symlink(ctx, oid(dir), name.as_bytes(), target, set(None)).await.map(|m| Some(m.oid))
            }
            Act::Mknod { dir, name, kind } => {
                v.mknod(ctx, oid(dir), name.as_bytes(), *kind, set(None)).await.map(|m| Some(m.oid))
            }
            Act::Write { file, at, data, stable } => {
                let want = if *stable { Stability::Stable } else { Stability::Unstable };
                v.write(ctx, oid(file), *at, data.clone().into(), want).await.map(|_| None)
            }
            Act::Truncate { file, size } => {
                let set = SetAttrs { size: Some(*size), ..SetAttrs::default() };
                v.setattr(ctx, oid(file), set, None).await.map(|_| None)
            }
            Act::SetAttr { object, mode, mtime } => {
                let set = SetAttrs { mtime: mtime.map(SetTime::At), ..set(*mode) };
                v.setattr(ctx, oid(object), set, None).await.map(|_| None)
            }
            Act::Link { object, dir, name } => {
                v.link(ctx, oid(object), oid(dir), name.as_bytes()).await.map(|_| None)
            }
            Act::Rename { from, name, to, new_name } => v
                .rename(
                    ctx,
                    oid(from),
                    name.as_bytes(),
                    oid(to),
                    new_name.as_bytes(),
                    vfs::RenameHow::Replace,
                )
                .await
                .map(|_| None),
            Act::Remove { dir, name } => v.remove(ctx, oid(dir), name.as_bytes()).await.map(|_| None),
            Act::Rmdir { dir, name } => v.rmdir(ctx, oid(dir), name.as_bytes()).await.map(|_| None),
            Act::Read { file, at, len } => match v.read(ctx, oid(file), *at, *len).await {
                Ok(read) => {
                    let got: Vec<u8> = read.data.concat();
                    let data = &self.model.objs[*file].data;
                    let from = (*at as usize).min(data.len());
                    let to = (from + *len as usize).min(data.len());
                    ensure2(got == data[from..to], || {
                        format!("read of {file} at {at}: {}", differ(&got, &data[from..to]))
                    })?;
                    ensure2(read.eof == (to == data.len()), || format!("eof {}", read.eof))?;
                    Ok(None)
                }
                Err(e) => Err(e),
            },
            Act::Commit { file } => v.commit(ctx, oid(file)).await.map(|_| None),
            Act::SetXattr { object, name, value, how } => {
                let value = Bytes::from(value.clone());
                v.setxattr(ctx, oid(object), name.as_bytes(), value, *how).await.map(|_| None)
            }
            Act::RemoveXattr { object, name } => {
                v.removexattr(ctx, oid(object), name.as_bytes()).await.map(|_| None)
            }
            Act::GetXattr { object, name } => match v.getxattr(ctx, oid(object), name.as_bytes()).await {
                Ok(value) => {
                    let want = self.model.objs[*object].xattrs.get(name);
                    ensure2(want.is_some_and(|w| value == w[..]), || format!("{name} is {value:?}"))?;
                    Ok(None)
                }
                Err(e) => Err(e),
            },
            Act::ListXattr { object } => match v.listxattr(ctx, oid(object)).await {
                Ok(names) => {
                    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
                    let want: Vec<String> = self.model.objs[*object].xattrs.keys().cloned().collect();
                    ensure2(names == want, || format!("attributes {names:?}, but expected {want:?}"))?;
                    Ok(None)
                }
                Err(e) => Err(e),
            },
            Act::List { dir } => match self.list(*dir).await {
                Ok(names) => {
                    let want: Vec<String> = self.model.objs[*dir].names.keys().cloned().collect();
                    ensure2(names == want, || format!("listing of {dir}: {names:?}, but expected {want:?}"))?;
                    Ok(None)
                }
                Err(e) => Err(e),
            },
            Act::Lookup { dir, name } => match v.lookup(ctx, oid(dir), name.as_bytes()).await {
                Ok(found) => {
                    let want = self.model.child(*dir, name).and_then(|id| self.model.objs[id].oid);
                    ensure2(want.is_none_or(|w| w == found.oid), || {
                        format!("{name} is {:?}, but expected {want:?}", found.oid)
                    })?;
                    Ok(None)
                }
                Err(e) => Err(e),
            },
        };
        if let Err(e) = &answer
            && !e.detail.is_empty()
        {
            self.trace.push(format!("   {e}"));
        }
        Ok(answer.map_err(|e| e.kind))
    }

    async fn list(&self, dir: usize) -> vfs::Result<Vec<String>> {
        let (mut names, mut cookie) = (Vec::new(), 0);
        let oid = self.model.objs[dir].oid.unwrap();
        loop {
            let page = self.e.vfs.readdir(self.e.ctx(), oid, cookie, 3).await?;
            for entry in &page.entries {
                cookie = entry.cookie;
                names.push(entry.name.escape_ascii().to_string());
            }
            if page.eof {
                names.retain(|n| n != "." && n != "..");
                names.sort();
                return Ok(names);
            }
        }
    }

    /// Takes the mtime of an object that was changed, and compares the rest.
    async fn learn(&mut self, id: usize, before: Option<Time>) -> Check {
        let oid = self.model.objs[id].oid.unwrap();
        match self.e.vfs.getattr(self.e.ctx(), oid).await {
            Ok(attr) => {
                let same = before.is_some_and(|b| b == attr.mtime);
                ensure!(!same, "mtime of {id} did not change");
                self.model.objs[id].mtime = Some(attr.mtime);
                self.attr(id, &attr)
            }
            Err(e) if e.kind.may_pass() => Ok(()),
            Err(e) => Err(format!("attributes of {id}: {e}")),
        }
    }

    fn attr(&mut self, id: usize, attr: &FileAttr) -> Check {
        let strict = self.plan.mode == Mode::Strict;
        let o = &mut self.model.objs[id];
        if strict {
            // The home's clock counts, once the home has it.
            o.mtime = None;
        }
        let mtime = *o.mtime.get_or_insert(attr.mtime);
        if o.fileid == 0 {
            o.fileid = attr.fileid;
        }
        let size = if o.kind == Kind::Dir { attr.size } else { o.data.len() as u64 };
        let want = (o.kind, o.mode, o.nlink, size, mtime, o.fileid, OWNER);
        let have = (attr.kind, attr.mode, attr.nlink, attr.size, attr.mtime, attr.fileid, attr.uid);
        ensure!(have == want, "attributes of {id}: {have:?}, but expected {want:?}");
        let oid = o.oid.unwrap();
        let last = self.ctimes.insert(oid, attr.ctime);
        ensure!(last.is_none_or(|l| l <= attr.ctime), "ctime of {id} went back: {last:?} {:?}", attr.ctime);
        Ok(())
    }

    /// The whole tree as the engine shows it.
    pub async fn compare(&mut self) -> Check {
        for (dir, _, path) in self.model.dirs() {
            let names = self.list(dir).await.map_err(|e| format!("listing of {path}: {e}"))?;
            let want: Vec<String> = self.model.objs[dir].names.keys().cloned().collect();
            ensure!(names == want, "listing of {path:?} ({dir}): {names:?}, but expected {want:?}");
            let dir_oid = self.model.objs[dir].oid.unwrap();
            for name in names {
                let id = self.model.child(dir, &name).unwrap();
                let found = self.e.vfs.lookup(self.e.ctx(), dir_oid, name.as_bytes()).await;
                let found = found.map_err(|e| format!("lookup of {path}/{name} ({id}): {e}"))?;
                let known = *self.model.objs[id].oid.get_or_insert(found.oid);
                ensure!(known == found.oid, "{path}/{name} ({id}) is {:?}, but was {known:?}", found.oid);
                self.attr(id, &found.attr).map_err(|e| format!("{path}/{name}: {e}"))?;
                self.content(id, found.oid).await.map_err(|e| format!("{path}/{name} ({id}): {e}"))?;
            }
            let attr = self.e.vfs.getattr(self.e.ctx(), dir_oid).await.map_err(|e| e.to_string())?;
            self.attr(dir, &attr)?;
            self.xattrs(dir, dir_oid).await.map_err(|e| format!("{path}: {e}"))?;
        }
        Ok(())
    }

    async fn xattrs(&self, id: usize, oid: Oid) -> Check {
        let o = &self.model.objs[id];
        let names = self.e.vfs.listxattr(self.e.ctx(), oid).await.map_err(|e| format!("attributes: {e}"))?;
        let mut have = BTreeMap::new();
        for name in names {
            let value = self.e.vfs.getxattr(self.e.ctx(), oid, name.as_bytes()).await;
            have.insert(name.to_string(), value.map_err(|e| format!("attribute {name}: {e}"))?.to_vec());
        }
        ensure!(have == o.xattrs, "attributes {have:?}, but expected {:?}", o.xattrs);
        Ok(())
    }

    async fn content(&self, id: usize, oid: Oid) -> Check {
        self.xattrs(id, oid).await?;
        let o = &self.model.objs[id];
        if o.kind == Kind::File {
            let data = self.e.read(oid).await.map_err(|e| format!("read: {e}"))?;
            ensure!(data == *o.data, "content: {}", differ(&data, &o.data));
        }
        if o.kind == Kind::Symlink {
            let (target, _) = self.e.vfs.readlink(self.e.ctx(), oid).await.map_err(|e| e.to_string())?;
            ensure!(target[..] == o.data[..], "target: {target:?}");
        }
        Ok(())
    }

    /// Everything goes home; nothing may be left over or in doubt.
    pub async fn sync(&mut self) -> Check {
        let synced = self.e.vfs.sync(None, Duration::from_secs(120)).await;
        let status = self.e.vfs.status();
        ensure!(synced.is_ok(), "not all was sent: {synced:?} {:?}", status.volumes);
        let volume = &status.volumes[0];
        ensure!(volume.conflicts == 0, "{} conflicts", volume.conflicts);
        ensure!(volume.parked.is_empty() && volume.unsent_ops == 0, "{volume:?}");
        ensure!(status.dirty_bytes == 0, "{} bytes are still pinned", status.dirty_bytes);
        for (dir, _, path) in self.model.dirs() {
            let at = HomePath::parse(path.as_bytes()).unwrap();
            let names = Outside::names(&self.world.memory, &at);
            let names: Vec<String> = names.into_iter().map(|n| String::from_utf8(n).unwrap()).collect();
            let want: Vec<String> = self.model.objs[dir].names.keys().cloned().collect();
            ensure!(names == want, "{path:?} at the home: {names:?}, but expected {want:?}");
            self.at_home(dir, &path).await.map_err(|e| format!("{path:?} at the home: {e}"))?;
            for (name, id) in &self.model.objs[dir].names {
                let path = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
                self.at_home(*id, &path).await.map_err(|e| format!("{path} at the home ({id}): {e}"))?;
            }
        }
        Ok(())
    }

    async fn at_home(&self, id: usize, path: &str) -> Check {
        let o = &self.model.objs[id];
        let loc = Loc { path: HomePath::parse(path.as_bytes()).unwrap(), id: None };
        let attr = self.world.memory.stat(&loc).await.map_err(|e| e.to_string())?.attr;
        let known = o.mtime.filter(|_| self.plan.mode == Mode::Wb);
        let mtime = known.unwrap_or(attr.mtime);
        let want = (o.kind, o.mode, o.nlink, mtime);
        let have = (attr.kind, attr.mode, attr.nlink, attr.mtime);
        ensure!(have == want, "{have:?}, but expected {want:?}");
        for name in ["user.a", "user.b", "user.c"] {
            let have = Outside::xattr(&self.world.memory, &loc.path, name);
            ensure!(
                have.as_ref() == o.xattrs.get(name),
                "{name}: {have:?}, but expected {:?}",
                o.xattrs.get(name)
            );
        }
        if o.kind == Kind::File {
            let data = Outside::read(&self.world.memory, &loc.path).unwrap();
            ensure!(data == *o.data, "content: {}", differ(&data, &o.data));
        }
        if o.kind == Kind::Symlink {
            let target = self.world.memory.readlink(&loc).await.unwrap();
            ensure!(target[..] == o.data[..], "target: {target:?}");
        }
        Ok(())
    }

    /// The journal forgets what is done.
    async fn at_rest(&mut self) -> Check {
        tokio::time::sleep(Duration::from_secs(20)).await;
        let disk: Arc<dyn vfs::env::Disk> = Arc::new(self.world.disk.clone());
        let volume = self.e.vfs.status().volumes[0].volume;
        let segments = disk.list(&format!("journal/{volume:08x}")).map_err(|e| e.to_string())?;
        ensure!(segments.len() <= 6, "the journal keeps {segments:?}");
        Ok(())
    }

    /// The process ends, or the power; another process goes on.
    async fn restart(&mut self, step: u32) -> Check {
        let power = self.rng.random_bool(0.5);
        let seed: u64 = self.rng.random();
        self.say(format!("{step}: {}", if power { "power cut" } else { "killed" }));
        // What the dead process still does must not reach the home.
        let old = self.world.fault.clone();
        self.world.fault = Arc::new(FaultHome::new(Arc::new(self.world.memory.clone())));
        self.fault_ends.take().iter().for_each(tokio::task::JoinHandle::abort);
        old.set(Fault::Unreachable);
        match power {
            true => self.world.disk.crash(seed),
            false => self.world.disk.kill(),
        }
        self.e = start(&self.world, &self.clock, seed).await;
        let mut candidates = vec![self.model.clone()];
        candidates.extend(self.maybe.take());
        candidates.extend(self.earlier.drain(..).rev());
        let unnamed = self.model.objs.iter().any(|o| o.nlink > 0 && !o.anchored);
        if candidates.len() == 1 && !unnamed {
            return Ok(());
        }
        self.clear().await;
        // Until it is known what arrived, calls may be told to come again.
        let _ = self.e.vfs.sync(None, Duration::from_secs(30)).await;
        let mut whys = Vec::new();
        for mut candidate in candidates {
            // Only handles that a change has named are promised to hold.
            candidate.objs.iter_mut().filter(|o| !o.anchored).for_each(|o| o.oid = None);
            self.model = candidate;
            match self.compare().await {
                Ok(()) => {
                    self.earlier.clear();
                    return Ok(());
                }
                Err(why) => whys.push(why),
            }
            self.ctimes.clear();
        }
        Err(format!("the state after the restart is none that may be: {whys:#?}"))
    }
}

fn ensure2(what: bool, text: impl Fn() -> String) -> Result<(), String> {
    if what { Ok(()) } else { Err(text()) }
}

/// Where two byte strings differ.
pub fn differ(have: &[u8], want: &[u8]) -> String {
    let same = have.iter().zip(want).take_while(|(a, b)| a == b).count();
    let show = |s: &[u8]| s.get(same..(same + 8).min(s.len())).map(<[u8]>::to_vec);
    format!(
        "{} bytes, but expected {}; from {same}: {:?} {:?}",
        have.len(),
        want.len(),
        show(have),
        show(want)
    )
}
