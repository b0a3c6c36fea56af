//! What has to hold at the end of a run.

use super::gateway::{Gateway, TOP};
use super::outside::{Outside, process};
use super::tree::{Change, Sort, Tree, XATTR};
use crate::ledger::{Tokens, tokens, tokens_in};
use crate::machine::fs::{Fs, Ino, Inode, ROOT};
use crate::machine::{Cut, Luck, Machine};
use home::posix::Posix;
use home::posix::sys::FileType;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// What a run has left.
pub struct Facts<'a> {
    /// The machine.
    pub machine: &'a Arc<Machine>,
    /// The gateways.
    pub gateways: &'a [Gateway],
    /// The other program.
    pub outside: &'a Outside,
    /// What power cuts left.
    pub images: &'a [Fs],
    /// Whether the power failed.
    pub crashed: bool,
}

type Check = Result<(), String>;

fn sort(kind: FileType) -> Option<Sort> {
    match kind {
        FileType::File => Some(Sort::File),
        FileType::Dir => Some(Sort::Dir),
        FileType::Symlink => Some(Sort::Symlink),
        _ => None,
    }
}

/// The folder of the model, path by path.
fn shown(image: &Fs) -> BTreeMap<String, (Ino, &Inode)> {
    let mut at = ROOT;
    for name in TOP.split('/') {
        let Some(next) = image.child(at, name.as_bytes()) else { return BTreeMap::new() };
        at = next;
    }
    let all = image.walk(at).into_iter();
    all.filter_map(|(path, ino)| Some((path[1..].to_owned(), (ino, image.get(ino)?)))).collect()
}

/// Feeds an image to a hasher; `all`: with everything that the future may depend on.
pub fn digest(image: &Fs, all: bool, hasher: &mut impl Hasher) {
    for (path, (_, node)) in shown(image) {
        (path, node.kind as u8, &node.data, node.mode, &node.xattrs).hash(hasher);
    }
    if !all {
        return;
    }
    for (ino, node) in &image.nodes {
        (ino, node.generation, node.kind as u8, node.mode, node.nlink, &node.data, &node.names).hash(hasher);
        for time in [node.mtime, node.ctime, node.atime] {
            (time.sec, time.nsec).hash(hasher);
        }
        node.xattrs.hash(hasher);
    }
}

/// Every promise; the digest of the tree.
pub fn all(facts: &Facts) -> Result<u64, String> {
    if facts.crashed {
        // A day has passed: what a power cut left in the cache directory is swept.
        let home = Posix::over(process(facts.machine), b"/").and_then(|home| home.hello().map(drop));
        home.map_err(|e| format!("no home: {e}"))?;
    }
    let image = facts.machine.image();
    let alone = match facts.gateways {
        [gateway] if facts.outside.acts.is_empty() => Some(gateway),
        _ => None,
    };
    if let Some(gateway) = alone {
        facts.images.iter().try_for_each(|image| whole(gateway, image))?;
        as_wanted(&gateway.tree(), &image).map_err(|e| format!("I2: {e}"))?;
    }
    theirs(facts, &image)?;
    facts.gateways.iter().try_for_each(|gateway| ours(facts, gateway, &image, alone.is_some()))?;
    durable(facts, &image, alone)?;
    leftovers(facts, &image, alone.is_some())?;
    let mut hasher = std::hash::DefaultHasher::new();
    digest(&image, false, &mut hasher);
    Ok(hasher.finish())
}

/// The tree is what was asked for.
fn as_wanted(tree: &Tree, image: &Fs) -> Check {
    let have = shown(image);
    let wanted: Vec<&String> = tree.names.keys().filter(|p| !p.is_empty()).collect();
    let names: Vec<&String> = have.keys().collect();
    if names != wanted {
        return Err(format!("there are {names:?}, and should be {wanted:?}"));
    }
    let mut inos: HashMap<usize, Ino> = HashMap::new();
    for (path, (ino, node)) in &have {
        let Some(obj) = tree.at(path) else { continue };
        let want = &tree.nodes[obj];
        if *inos.entry(obj).or_insert(*ino) != *ino {
            return Err(format!("{path} is not the object that it should be"));
        }
        if sort(node.kind) != Some(want.sort) || (want.sort != Sort::Dir && *node.data != want.data) {
            let (have, want) = (node.data.escape_ascii(), want.data.escape_ascii());
            return Err(format!("{path} is {:?} '{have}', and should be '{want}'", node.kind));
        }
        if want.sort != Sort::Symlink && node.mode != want.mode {
            return Err(format!("{path} has mode {:o}, and should have {:o}", node.mode, want.mode));
        }
        let mtime = want.mtime.filter(|_| want.sort == Sort::File);
        if mtime.is_some_and(|t| t != node.mtime) {
            return Err(format!("{path} is of {:?}, and should be of {mtime:?}", node.mtime));
        }
        if node.xattrs.get(XATTR.as_bytes()) != want.xattr.as_ref() {
            return Err(format!("{path} has {:?}, and should have {:?}", node.xattrs, want.xattr));
        }
        if want.sort == Sort::File && node.nlink as usize != tree.links(obj) {
            return Err(format!("{path} has {} names, and should have {}", node.nlink, tree.links(obj)));
        }
    }
    Ok(())
}

/// No name that is given to whole files alone stands for a part of one.
fn whole(gateway: &Gateway, image: &Fs) -> Check {
    let mut tree = Tree::begin();
    let mut allowed: BTreeMap<String, Option<BTreeSet<Vec<u8>>>> = BTreeMap::new();
    for n in 0..=gateway.batch.len() {
        let next = gateway.batch.get(n).copied();
        let in_place = next.filter(|c| tree.is_in_place(*c)).and_then(|c| tree.object(c));
        for (path, obj) in tree.names.iter().filter(|(_, o)| tree.nodes[**o].sort == Sort::File) {
            let known = allowed.entry(path.clone()).or_insert_with(|| Some(BTreeSet::new()));
            match known {
                _ if in_place == Some(*obj) => *known = None,
                Some(known) => drop(known.insert(tree.nodes[*obj].data.clone())),
                None => {}
            }
        }
        // Between the exchange and the removal the old name shows what is replaced.
        if let Some(Change::Rename(p, q)) = next
            && let (Some(old), Some(Some(known))) = (tree.at(q), allowed.get_mut(p))
        {
            known.insert(tree.nodes[old].data.clone());
        }
        // In a folder that moves, what was written in place comes along as it is.
        if let Some(Change::Rename(p, q)) = next {
            let torn = |path: &String| allowed.get(path).is_some_and(Option::is_none);
            let inside = |path: &&String| path.strip_prefix(p).is_some_and(|rest| rest.starts_with('/'));
            let in_place = |path: &&String| {
                let obj = tree.at(path);
                tree.names.iter().any(|(other, o)| Some(*o) == obj && torn(other))
            };
            let moved: Vec<String> = tree.names.keys().filter(inside).filter(in_place).cloned().collect();
            allowed.extend(moved.iter().map(|path| (format!("{q}{}", &path[p.len()..]), None)));
        }
        if let Some(change) = next {
            let _ = tree.apply(change, gateway.first + n);
        }
    }
    for (path, (_, node)) in shown(image) {
        if let Some(Some(allowed)) = allowed.get(&path)
            && node.kind == FileType::File
            && !allowed.contains(&*node.data)
        {
            return Err(format!("I3: {path} is '{}' after a power cut", node.data.escape_ascii()));
        }
    }
    Ok(())
}

/// Nobody else's bytes are lost.
fn theirs(facts: &Facts, image: &Fs) -> Check {
    let there = tokens_in(image, true);
    let lost: Vec<&String> = facts
        .outside
        .required
        .iter()
        .filter(|t| !facts.outside.excused.contains(*t) && !there.contains(*t))
        .collect();
    if lost.is_empty() { Ok(()) } else { Err(format!("I4: {lost:?} of another program is lost")) }
}

/// What was done is there; once, where there are no copies of what others changed.
fn ours(facts: &Facts, gateway: &Gateway, image: &Fs, alone: bool) -> Check {
    let mut count: BTreeMap<String, usize> = BTreeMap::new();
    let mut inos = BTreeSet::new();
    for (_, (ino, node)) in shown(image) {
        if node.kind == FileType::File && inos.insert(ino) {
            for part in node.data.windows(8) {
                for token in tokens(part) {
                    *count.entry(token).or_default() += 1;
                }
            }
        }
    }
    if let Some((token, n)) = count.iter().find(|(_, n)| **n > 1 && alone) {
        return Err(format!("I2: {token} is there {n} times"));
    }
    let kept = gateway.tree().tokens();
    let removed = gateway.removed_by_both(|path| facts.outside.acts.iter().any(|act| act.takes(path)));
    let wanted: Tokens =
        gateway.tokens().intersection(&kept).filter(|t| !removed.contains(*t)).cloned().collect();
    let lost: Vec<&String> =
        wanted.iter().filter(|t| !count.contains_key(*t) && !facts.outside.excused.contains(*t)).collect();
    if lost.is_empty() { Ok(()) } else { Err(format!("I5: {lost:?} was acknowledged and is lost")) }
}

/// What was acknowledged survives a power cut.
fn durable(facts: &Facts, image: &Fs, alone: Option<&Gateway>) -> Check {
    for luck in [Luck::Old, Luck::Torn] {
        let cut = Cut { keep: 0, tree: luck, cache: luck };
        let left = facts.machine.image_after(cut, super::script::BLOCK);
        if let Some(gateway) = alone {
            as_wanted(&gateway.tree(), &left)
                .map_err(|e| format!("I13, after a power cut at the end: {e}"))?;
        }
        let (now, left) = (tokens_in(image, true), tokens_in(&left, true));
        let ours: Tokens = facts.gateways.iter().flat_map(Gateway::tokens).collect();
        if let Some(lost) = ours.iter().find(|t| now.contains(*t) && !left.contains(*t)) {
            return Err(format!("I13: {lost} was acknowledged and is lost by a power cut"));
        }
    }
    Ok(())
}

/// Nothing of ours is left.
fn leftovers(facts: &Facts, image: &Fs, alone: bool) -> Check {
    for path in shown(image).keys() {
        let saved = path.contains(".trellis-saved-") || path.contains(".trellis-conflict-");
        if path.contains("trellis") && (alone || !saved) {
            return Err(format!("I6: {path} is left"));
        }
    }
    for name in facts.machine.names("/home/ann/.cache/trellis") {
        if name != "volumes" && name != "token" {
            return Err(format!("I6: {name} is left in the cache directory"));
        }
    }
    Ok(())
}
