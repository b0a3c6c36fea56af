//! What a home refuses: for a while it lets nobody change some object. As long as that is so, everything that a client was
//! answered is at the home, or the gateway says that it is not, and why; and nothing is there that depends on what is not.

use super::{Trouble, World};
use crate::client::{Check, Client};
use crate::compare::{compare_one, home_of};
use crate::machine::fs::{Fs, Ino};
use crate::model::TOP;
use home::{ErrorKind, Kind};
use rand::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::sleep;
use vfs::{Oid, Parked, Vfs};

/// What the gateway says of an object of which the home has everything.
const CLEAN: &str = "clean";
/// How long everything may take to go home.
const SYNC: Duration = Duration::from_secs(600);

impl World {
    /// From now on the home lets nobody change some file or directory of a client. Not in the middle of an operation, nor what an
    /// agent that ended there left to the next one: what was done of it by then could be neither finished nor taken back.
    pub(super) fn refuse_something(&mut self) {
        if self.net.is_at_work() {
            return;
        }
        let image = self.machine.image();
        let midway = midway(&image);
        let tops = home_of(&image).and_then(|home| image.get(home)).into_iter().flat_map(|home| &home.names);
        let tops = tops.filter(|(name, _)| name.starts_with(b"c"));
        let all: Vec<(String, Ino)> = tops
            .flat_map(|(name, top)| {
                let below = image.walk(*top).into_iter();
                let client = String::from_utf8_lossy(name).into_owned();
                [(String::new(), *top)]
                    .into_iter()
                    .chain(below)
                    .map(move |(at, ino)| (client.clone() + &at, ino))
            })
            .filter(|(_, ino)| !midway.contains(ino))
            .collect();
        if !all.is_empty() {
            let (path, ino) = &all[self.rng.random_range(0..all.len())];
            self.say(format!("the home refuses to change {path}"));
            self.machine.refuse(Some(*ino));
        }
    }

    pub(super) fn refuse_nothing(&mut self) {
        if self.plan.has(Trouble::Refusals) {
            self.say("the home refuses nothing");
            self.machine.refuse(None);
        }
    }

    /// While the home refuses what it refuses: nothing of that is hidden, and all that does not depend on it is there.
    pub(super) async fn stays_honest(&mut self, clients: &mut [Client]) -> Check {
        self.calm_down(clients).await?;
        let vfs = self.gateway.sessions().last().ok_or("no gateway")?.vfs;
        let mut synced = vfs.sync(None, SYNC).await;
        // What it refuses no more goes home.
        if vfs.retry_refused(None) > 0 {
            synced = vfs.sync(None, SYNC).await;
        }
        let before = parked(&vfs);
        if synced.is_ok() != before.is_empty() {
            return Err(format!("I14: a sync says {synced:?}, and what is refused is {before:?}"));
        }
        let shown = numbers(&before);
        if !shown.is_empty() {
            self.say(format!("refused are {shown:?}"));
        }
        self.all_is_shown(&vfs, &shown).await?;
        if let Some((earlier, later)) = self.net.refusals.passed(&shown) {
            return Err(format!("I14: {later} was done, and {earlier}, on which it depends, is refused"));
        }
        let held = held(&vfs)?;
        for client in clients {
            let name = client.name().to_owned();
            let told = |why| format!("{name}: {why}");
            let states = client.states().await.map_err(&told)?;
            // What is told of a full disk is not told again when the reason is another one.
            let writes = match self.plan.has(Trouble::FullDisks) {
                true => BTreeSet::new(),
                false => refused_writes(client, &states, &before),
            };
            for id in writes {
                client.hears_of(id).await.map_err(&told)?;
            }
            is_true(client, &states, &self.machine.image()).map_err(|why| format!("I14: {why}"))?;
            let waits = |(id, state): &(&usize, &String)| {
                client.model.objs[**id].kind == Kind::File
                    && **state != CLEAN
                    && !client.moved.contains(id)
                    && !held.contains(&client.oid(**id))
            };
            if let Some((id, state)) = states.iter().find(waits) {
                return Err(format!("I14: object {id} is {state}, and depends on nothing that is refused"));
            }
        }
        Ok(())
    }

    /// What the home refuses when all is tried again is what the gateway shows. Later writes to a file may have joined it.
    async fn all_is_shown(&self, vfs: &Vfs, shown: &BTreeSet<u64>) -> Check {
        self.net.refusals.take_lately();
        let tried = vfs.retry_refused(None);
        sleep(Duration::from_secs(10)).await;
        let refused = self.net.refusals.take_lately();
        let after = numbers(&parked(vfs));
        if tried == shown.len()
            && after.is_superset(shown)
            && refused.is_subset(&after)
            && shown.is_empty() == refused.is_empty()
        {
            return Ok(());
        }
        Err(format!(
            "I14: {tried} were refused, {refused:?} are so again, and shown are {shown:?}, later {after:?}"
        ))
    }
}

/// What lies in a staging directory.
fn midway(image: &Fs) -> BTreeSet<Ino> {
    let stages = image.nodes.values().filter(|node| node.place == "staging");
    stages.flat_map(|stage| stage.names.values().copied()).collect()
}

fn numbers(parked: &[Parked]) -> BTreeSet<u64> {
    parked.iter().flat_map(|p| &p.all).copied().collect()
}

fn parked(vfs: &Vfs) -> Vec<Parked> {
    vfs.status().volumes.into_iter().flat_map(|v| v.parked).collect()
}

/// All objects with changes that wait because something was refused.
fn held(vfs: &Vfs) -> Result<BTreeSet<Oid>, String> {
    let mut all = BTreeSet::new();
    for volume in vfs.status().volumes {
        let mut after = Some(0);
        while let Some(from) = after {
            let (held, next) = vfs.held(volume.volume, from).map_err(|e| e.to_string())?;
            all.extend(held.into_iter().map(|held| held.oid));
            after = next;
        }
    }
    Ok(all)
}

/// The files of a client to which a write was refused.
fn refused_writes(client: &Client, states: &BTreeMap<usize, String>, parked: &[Parked]) -> BTreeSet<usize> {
    let paths = client.model.paths();
    let below =
        |at: &str| Some(paths.get(at.strip_prefix("/home/ann/")?.strip_prefix(client.name())?)?.to_owned());
    let written = parked.iter().filter(|p| p.kind == ErrorKind::Access && p.what.starts_with("write to "));
    let written = written.filter_map(|p| below(&p.at.as_ref()?.to_string()));
    // Something else may have the name that the file has at the home.
    written.filter(|id| states.get(id).is_some_and(|state| state.starts_with("refused"))).collect()
}

/// Whether the home has all of what counts as clean. A directory that it may not have, or have elsewhere, is not looked into.
fn is_true(client: &Client, states: &BTreeMap<usize, String>, image: &Fs) -> Check {
    let who = client.name();
    let is_clean = |id: usize| states.get(&id).is_some_and(|state| state == CLEAN);
    let top = home_of(image).and_then(|home| image.child(home, who.as_bytes()));
    let mut dirs = vec![(TOP, top.ok_or_else(|| format!("{who} is not at the home"))?, String::new())];
    while let Some((dir, at, path)) = dirs.pop() {
        let names = &client.model.objs[dir].names;
        let there: Vec<&[u8]> = image.get(at).iter().flat_map(|d| d.names.keys()).map(|n| &n[..]).collect();
        if is_clean(dir) && there != names.keys().map(String::as_bytes).collect::<Vec<_>>() {
            let there: Vec<_> = there.iter().map(|n| n.escape_ascii().to_string()).collect();
            return Err(format!("{who}{path} counts as clean, and has {there:?} at the home"));
        }
        for (name, id) in names {
            let path = format!("{path}/{name}");
            let found = image.child(at, name.as_bytes());
            match found {
                None if is_clean(*id) => {
                    return Err(format!("{who}{path} counts as clean, and is not at the home"));
                }
                Some(ino) if is_clean(*id) => compare_one(client, image, (ino, *id), &path)
                    .map_err(|why| format!("what counts as clean is not: {why}"))?,
                _ => {}
            }
            let is_in_place = is_clean(*id) || !client.moved.contains(id);
            if let Some(ino) = found.filter(|_| is_in_place && client.model.objs[*id].kind == Kind::Dir) {
                dirs.push((*id, ino, path));
            }
        }
    }
    Ok(())
}
