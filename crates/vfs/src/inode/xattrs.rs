//! What is known of the extended attributes of objects.
//!
//! What the home has is known as of a ctime: as long as the object's ctime is the same, nobody has changed them there.
//! Unsent changes are never mixed into it; they lie in the queue, and every look goes over both. While there are some
//! for an object, what was known before them counts, as with its other attributes.

use super::{Inode, Tree};
use crate::limits;
use bytes::Bytes;
use hashbrown::{HashMap, HashSet};
use home::{Result, Time, Xattr, XattrName};
use std::collections::BTreeSet;
use std::time::Duration;

/// Of one object: what the home has.
#[derive(Debug, Default)]
pub struct Xattrs {
    /// The object's ctime at the home when it was asked.
    as_of: Time,
    known: Known,
}

#[derive(Debug, Default)]
enum Known {
    /// Nothing.
    #[default]
    Unknown,
    /// That it has none.
    Bare,
    /// That it has some, as a listing of its directory tells.
    Some,
    /// All names, and values that are not too long, in the order of the names.
    Listed(Vec<Xattr>),
}

/// Of all objects of a volume.
#[derive(Debug, Default)]
pub struct AllXattrs {
    /// Objects whose attributes are listed, and bytes of those lists.
    listed: HashSet<u64>,
    bytes: usize,
    /// By file system: whether it keeps attributes, and when that was found out.
    keeps: HashMap<u64, (bool, Duration)>,
}

/// What is known of one attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup {
    /// It has this value.
    Value(Bytes),
    /// It is there; the home has to be asked for its value.
    There,
    /// It is not there.
    Absent,
    /// The home has to be asked.
    Unknown,
}

impl Xattrs {
    /// Those of an object that was made here and has none.
    pub fn newborn() -> Xattrs {
        Xattrs { as_of: Time::default(), known: Known::Bare }
    }

    /// The home shows this ctime: what is known as of another one is out of date.
    pub fn keep_as_of(&mut self, ctime: Time) {
        if self.as_of != ctime {
            *self = Xattrs::default();
        }
    }
}

fn size_of(list: &[Xattr]) -> usize {
    list.iter().map(|x| x.name.as_bytes().len() + x.value.as_ref().map_or(0, Bytes::len) + 64).sum()
}

impl Inode {
    fn at_home(&self) -> &Known {
        let current = self.pending > 0 || self.attr.is_some_and(|attr| attr.ctime == self.xattrs.as_of);
        if current { &self.xattrs.known } else { &Known::Unknown }
    }

    /// Whether not even a listing has told of its attributes.
    pub fn xattrs_unknown(&self) -> bool {
        matches!(self.at_home(), Known::Unknown)
    }

    /// A listing tells that it has attributes or not, as of a ctime.
    pub fn told_bare(&mut self, ctime: Time, bare: bool) {
        let more_known = self.xattrs.as_of == ctime && matches!(self.xattrs.known, Known::Listed(_));
        if !more_known {
            self.xattrs = Xattrs { as_of: ctime, known: if bare { Known::Bare } else { Known::Some } };
        }
    }
}

impl Tree {
    /// What the home says of the attributes of an object, as of a ctime.
    pub fn learn_xattrs(&mut self, id: u64, ctime: Time, mut list: Vec<Xattr>) -> Result<()> {
        let before = std::mem::take(&mut self.get(id)?.xattrs);
        if let (Known::Listed(old), true) = (before.known, before.as_of == ctime)
            && size_of(&old) <= limits::XATTR_TOGETHER
        {
            // A long value that was asked for earlier.
            let value_of = |name: &XattrName| old.iter().find(|x| x.name == *name)?.value.clone();
            list.iter_mut().for_each(|x| x.value = x.value.take().or_else(|| value_of(&x.name)));
        }
        let known = if list.is_empty() { Known::Bare } else { self.room_for(id, list) };
        self.get(id)?.xattrs = Xattrs { as_of: ctime, known };
        Ok(())
    }

    /// Counts a list. Where all are too many, all earlier ones are forgotten.
    fn room_for(&mut self, id: u64, list: Vec<Xattr>) -> Known {
        let size = size_of(&list);
        if self.xattrs.bytes + size > limits::XATTR_CACHE {
            for id in std::mem::take(&mut self.xattrs.listed) {
                if let Some(inode) = self.inodes.get_mut(&id)
                    && matches!(inode.xattrs.known, Known::Listed(_))
                {
                    inode.xattrs.known = Known::Some;
                }
            }
            self.xattrs.bytes = 0;
        }
        self.xattrs.listed.insert(id);
        self.xattrs.bytes += size;
        Known::Listed(list)
    }

    /// The home has done a change of an attribute.
    pub fn confirm_xattr(&mut self, id: u64, name: &XattrName, value: Option<&Bytes>) {
        let Ok(inode) = self.get(id) else { return };
        let list = match &mut inode.xattrs.known {
            Known::Unknown | Known::Some => return,
            Known::Bare => &mut Vec::new(),
            Known::Listed(list) => list,
        };
        let mut list = std::mem::take(list);
        list.retain(|x| x.name != *name);
        if let Some(value) = value {
            let at = list.partition_point(|x| x.name < *name);
            list.insert(at, Xattr { name: name.clone(), value: Some(value.clone()) });
        }
        let known = if list.is_empty() { Known::Bare } else { self.room_for(id, list) };
        if let Ok(inode) = self.get(id) {
            inode.xattrs.known = known;
        }
    }

    /// One attribute of an object, with what is unsent.
    pub fn xattr(&mut self, id: u64, name: &XattrName) -> Result<Lookup> {
        let unsent = self.queue.xattrs(id).rev().find(|(n, _)| *n == name).map(|(_, value)| value.cloned());
        if let Some(value) = unsent {
            return Ok(value.map_or(Lookup::Absent, Lookup::Value));
        }
        Ok(match self.get(id)?.at_home() {
            Known::Unknown | Known::Some => Lookup::Unknown,
            Known::Bare => Lookup::Absent,
            Known::Listed(list) => match list.iter().find(|x| x.name == *name) {
                None => Lookup::Absent,
                Some(Xattr { value: None, .. }) => Lookup::There,
                Some(Xattr { value: Some(value), .. }) => Lookup::Value(value.clone()),
            },
        })
    }

    /// The names of all attributes of an object, with what is unsent; `None`: the home has to be asked.
    pub fn xattr_names(&mut self, id: u64) -> Result<Option<BTreeSet<XattrName>>> {
        let mut names: BTreeSet<XattrName> = match self.get(id)?.at_home() {
            Known::Unknown | Known::Some => return Ok(None),
            Known::Bare => BTreeSet::new(),
            Known::Listed(list) => list.iter().map(|x| x.name.clone()).collect(),
        };
        for (name, value) in self.queue.xattrs(id) {
            match value {
                Some(_) => names.insert(name.clone()),
                None => names.remove(name),
            };
        }
        Ok(Some(names))
    }

    /// The home has the object no more, as far as we are concerned: what it had is returned, where it is known and
    /// nothing unsent has changed it.
    pub fn take_xattrs(&mut self, id: u64) -> Result<Vec<(XattrName, Bytes)>> {
        let inode = self.get(id)?;
        let known = if let Known::Listed(list) = inode.at_home() { list.clone() } else { Vec::new() };
        inode.xattrs = Xattrs::newborn();
        let changed: HashSet<&XattrName> = self.queue.xattrs(id).map(|(name, _)| name).collect();
        let left = known.into_iter().filter(|x| !changed.contains(&x.name));
        Ok(left.filter_map(|x| Some((x.name, x.value?))).collect())
    }

    /// Bytes of the attributes of an object as far as they are known, with what is unsent; at least.
    pub fn xattr_bytes(&mut self, id: u64) -> Result<usize> {
        let unsent: usize = self.queue.xattrs(id).map(|(_, value)| value.map_or(0, Bytes::len)).sum();
        Ok(match self.get(id)?.at_home() {
            Known::Listed(list) => unsent + size_of(list),
            Known::Unknown | Known::Bare | Known::Some => unsent,
        })
    }

    /// A file system keeps attributes, or does not.
    pub fn note_xattrs(&mut self, fs: u64, keeps: bool, now: Duration) {
        if self.xattrs.keeps.len() >= limits::FILE_SYSTEMS {
            self.xattrs.keeps.clear();
        }
        self.xattrs.keeps.insert(fs, (keeps, now));
    }

    /// Whether the file system of an object keeps attributes; `None`: the home has to be asked. It may learn to.
    pub fn keeps_xattrs(&mut self, id: u64, now: Duration) -> Result<Option<bool>> {
        let fs = self.get(id)?.home_id.fs;
        let known = self.xattrs.keeps.get(&fs).copied();
        let current = |(keeps, at): &(bool, Duration)| *keeps || now.saturating_sub(*at) < limits::NO_XATTRS;
        Ok(known.filter(current).map(|(keeps, _)| keeps))
    }
}
