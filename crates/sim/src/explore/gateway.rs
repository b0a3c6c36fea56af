//! What a gateway has accepted, and has to be held to.

use super::tree::{Change, Obj, Tree, token};
use std::collections::BTreeSet;

/// The folder of the model.
pub const TOP: &str = "home/ann/t";

/// A gateway that has accepted a batch and sent it.
pub struct Gateway {
    /// The batch, in order.
    pub batch: Vec<Change>,
    /// Its operations have other tokens and times than those of other gateways: they are counted from here on.
    pub first: usize,
    /// What each is about.
    objects: Vec<Option<Obj>>,
    /// Whether a person is told that a part was not done. Then nothing of it is looked for.
    reported: bool,
}

/// What the operations of a gateway are counted from.
pub fn first(number: u64) -> usize {
    10 * number as usize
}

/// Whether it changes what a file contains.
fn is_write(change: Change) -> bool {
    matches!(change, Change::Write(_) | Change::Save(_) | Change::Append(_))
}

impl Gateway {
    /// The gateway of this number.
    pub fn new(number: u64, batch: &[Change], reported: bool) -> Gateway {
        let (mut tree, first) = (Tree::begin(), first(number));
        let objects = batch.iter().enumerate().map(|(n, change)| {
            let object = tree.object(*change);
            let _ = tree.apply(*change, first + n);
            object
        });
        Gateway { objects: objects.collect(), batch: batch.to_vec(), first, reported }
    }

    /// The tree as the batch makes it.
    pub fn tree(&self) -> Tree {
        let mut tree = Tree::begin();
        for (n, change) in self.done() {
            let _ = tree.apply(change, self.first + n);
        }
        tree
    }

    /// What was done, each with its place in the batch.
    fn done(&self) -> impl Iterator<Item = (usize, Change)> {
        self.batch.iter().copied().enumerate().filter(|_| !self.reported)
    }

    /// The tokens that it wrote.
    pub fn tokens(&self) -> BTreeSet<String> {
        self.done().flat_map(|(n, change)| self.tokens_of(n, change)).collect()
    }

    fn tokens_of(&self, n: usize, change: Change) -> impl Iterator<Item = String> + use<> {
        let first = is_write(change).then(|| token(self.first + n, 0));
        let second = matches!(change, Change::Write(_)).then(|| token(self.first + n, 1));
        first.into_iter().chain(second)
    }

    /// The tokens in files that had several names, of which the batch took one away, and somebody else all others that there
    /// were at some moment after that: they are `taken`. On one machine they would be lost as well.
    pub fn removed_by_both(&self, taken: impl Fn(&str) -> bool) -> BTreeSet<String> {
        let (mut tree, mut removed) = (Tree::begin(), BTreeSet::new());
        // What lost a name, and by which operation.
        let mut fewer: Vec<(Obj, usize)> = Vec::new();
        for (n, change) in self.done() {
            let obj = match change {
                Change::Remove(p) | Change::Rename(_, p) => tree.at(p),
                _ => None,
            };
            let _ = tree.apply(change, self.first + n);
            fewer.extend(obj.filter(|obj| tree.links(*obj) > 0).map(|obj| (obj, n)));
            for (obj, since) in &fewer {
                if tree.names.iter().filter(|(_, o)| *o == obj).all(|(path, _)| taken(path)) {
                    let before = self.done().take(*since).filter(|(n, _)| self.objects[*n] == Some(*obj));
                    removed.extend(before.flat_map(|(n, change)| self.tokens_of(n, change)));
                }
            }
        }
        removed
    }
}
