//! What a home refused and what it did all the same, by its own outcomes: what the gateway tells of it is compared with that.

use home::{HomeId, HomePath, Loc, Name, Op, Outcome, Payload, Placed};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};

/// The book of one home.
#[derive(Default)]
pub struct Refusals {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Operations that were refused when they were last tried, with what depends on them.
    refused: BTreeMap<u64, Touch>,
    /// Those that were refused since somebody asked.
    lately: BTreeSet<u64>,
    /// Operations that were done while an earlier one was refused on which they depend: the earlier and the later number.
    passed: Vec<(u64, u64)>,
}

/// An object at the home.
type Object = (HomePath, Option<HomeId>);

/// What an operation works on at the home.
struct Touch {
    /// What it changes; nothing where it makes it.
    object: Option<Object>,
    /// The directories in which it changes names, each with the name.
    names: Vec<(Object, Name)>,
    /// What loses a name for good.
    destroyed: Option<Object>,
}

fn is_same(one: &Object, other: &Object) -> bool {
    match (one.1, other.1) {
        (Some(one), Some(other)) => one == other,
        _ => one.0 == other.0,
    }
}

impl Touch {
    fn of(op: &Op<Loc, Payload>) -> Touch {
        let at = |loc: &Loc| (loc.path.clone(), loc.id);
        let (object, names, destroyed) = match op {
            Op::Create { dir, name, .. } => (None, vec![(at(dir), name.clone())], None),
            Op::Write { file: object, .. } | Op::SetAttr { object, .. } | Op::SetXattr { object, .. } => {
                (Some(at(object)), vec![], None)
            }
            Op::Remove { dir, name, object, .. } => {
                (Some(at(object)), vec![(at(dir), name.clone())], Some(at(object)))
            }
            Op::Rename { from, name, object, to, new_name, replaced } => {
                let names = vec![(at(from), name.clone()), (at(to), new_name.clone())];
                (Some(at(object)), names, replaced.as_ref().map(|(old, _)| at(old)))
            }
            Op::Link { object, dir, name } => (Some(at(object)), vec![(at(dir), name.clone())], None),
        };
        Touch { object, names, destroyed }
    }

    /// Whether it means nothing, or something else, where `earlier` has not been done.
    fn depends_on(&self, earlier: &Touch) -> bool {
        let dirs = self.names.iter().map(|(dir, _)| dir);
        let mut objects = self.object.iter().chain(dirs).chain(&self.destroyed);
        let same_name =
            |(dir, name): &(Object, Name)| earlier.names.iter().any(|(d, n)| n == name && is_same(d, dir));
        earlier.object.as_ref().is_some_and(|object| objects.any(|o| is_same(o, object)))
            || self.names.iter().any(same_name)
            || self
                .destroyed
                .as_ref()
                .is_some_and(|gone| earlier.names.iter().any(|(dir, _)| is_same(dir, gone)))
    }
}

impl Refusals {
    /// A batch was executed, or the part of it that has outcomes.
    pub fn note(&self, ops: &[Placed], outcomes: &[Outcome]) {
        let state = &mut *self.state.lock();
        for (placed, outcome) in ops.iter().zip(outcomes) {
            let (seq, touch) = (placed.id.seq, Touch::of(&placed.op));
            state.refused.remove(&seq);
            match outcome {
                Outcome::Done(_) => {
                    let earlier = state.refused.range(..seq).filter(|(_, earlier)| touch.depends_on(earlier));
                    state.passed.extend(earlier.map(|(earlier, _)| (*earlier, seq)));
                }
                Outcome::Refused(_) => {
                    state.lately.insert(seq);
                    state.refused.insert(seq, touch);
                }
                Outcome::Conflict(_) => {}
            }
        }
    }

    /// The numbers of what was refused since this was asked last.
    pub fn take_lately(&self) -> BTreeSet<u64> {
        std::mem::take(&mut self.state.lock().lately)
    }

    /// An operation that was done though it depends on one of these, which are refused to this day, and that one.
    pub fn passed(&self, parked: &BTreeSet<u64>) -> Option<(u64, u64)> {
        self.state.lock().passed.iter().find(|(earlier, _)| parked.contains(earlier)).copied()
    }
}
