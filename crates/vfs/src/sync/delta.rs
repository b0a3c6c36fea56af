//! What is to be sent and the home has already does not travel: the home is told where it has it, and copies it by itself.
//! It looks whether these are the bytes that are meant; where they are not, what is staged has a gap, the operation is not
//! executed, and all of it travels. So a file that has changed meanwhile, or is another one, does no harm.

use crate::alike::{Anchor, Anchors, WINDOW, next_anchor};
use crate::data::When;
use crate::limits;
use crate::volume::Volume;
use bytes::Bytes;
use home::op::OpId;
use home::{Copied, Loc, Result};
use std::collections::{BTreeMap, HashMap};

/// Bytes that are compared at once.
const LINE: usize = 256;
/// Behind a place that leads nowhere the next one is at least so far.
const NEAR: usize = 256;
/// Bytes of the log that are compared at a time.
const STEP: usize = 256 << 10;

/// What is staged for an operation.
#[derive(Debug, Default)]
struct Plan {
    /// What travels, by its position.
    literal: Vec<(u64, Bytes)>,
    /// What the home has, by its file.
    copied: BTreeMap<u64, (Vec<Loc>, Vec<Copied>)>,
}

/// Bytes that are alike: from `at` on in what is to be sent, and from `anchor.at` on in a file.
#[derive(Debug, Clone, Copy)]
struct Run {
    at: usize,
    anchor: Anchor,
    len: usize,
}

impl Volume {
    /// Stages the payloads of an operation on `object` as `id`, from position `from` on. Answers the files of which the home
    /// copies.
    pub(super) async fn stage(
        &self,
        (id, from): (OpId, u64),
        object: u64,
        payloads: Vec<Bytes>,
    ) -> Result<Vec<u64>> {
        let bytes: u64 = payloads.iter().map(|part| part.len() as u64).sum();
        let plan = match bytes >= limits::ALIKE_MIN && self.home.copies() {
            true => self.plan(object, &payloads.concat().into()).await,
            false => None,
        };
        let Some(plan) = plan.map(|plan| plan.behind(from)) else {
            return super::push::stage(&*self.home, (id, from), payloads).await.map(|()| Vec::new());
        };
        let files = plan.copied.keys().copied().collect();
        let copies = plan.copied.into_values().map(|(places, parts)| self.home.copy(id, places, parts));
        let stages = plan.literal.into_iter().map(|(at, part)| self.home.stage(id, at, part));
        futures_util::future::try_join(
            futures_util::future::try_join_all(copies),
            futures_util::future::try_join_all(stages),
        )
        .await?;
        Ok(files)
    }

    /// `None` where the home has too little of it.
    async fn plan(&self, object: u64, data: &Bytes) -> Option<Plan> {
        let mut anchors = self.alike.look(object).await?;
        let files = self.alike.files(object);
        let mut places: HashMap<(u64, usize), Option<Vec<Loc>>> = HashMap::new();
        let most = anchors.worth_looking_through(data.len() as u64);
        anchors.learn(&self.data, &files, most).await;
        let runs = self.runs(&anchors, object, data, &mut places).await;
        let alike: usize = runs.iter().map(|run| run.len).sum();
        let enough = alike >= data.len() / 8;
        self.alike.looked(object, anchors, enough);
        if !enough {
            return None;
        }
        let mut plan = Plan::default();
        let mut next = 0;
        for run in runs {
            plan.literal(data, next, run.at);
            let places = places.remove(&(run.anchor.id, run.anchor.when as usize)).flatten();
            plan.copied.entry(run.anchor.id).or_insert_with(|| (places.unwrap_or_default(), Vec::new()));
            plan.copied(data, &run).await;
            next = run.at + run.len;
        }
        plan.literal(data, next, data.len());
        Some(plan)
    }

    /// What of `data` is in files that the home has, in order and without overlap.
    async fn runs(
        &self,
        anchors: &Anchors,
        object: u64,
        data: &Bytes,
        places: &mut HashMap<(u64, usize), Option<Vec<Loc>>>,
    ) -> Vec<Run> {
        let (mut runs, mut taken, mut next) = (Vec::new(), 0, 0);
        while let Some(at) = next_anchor(data, next) {
            next = at + NEAR;
            let Some(anchor) = anchors.find(&data[at..at + WINDOW]) else { continue };
            let known = places.entry((anchor.id, anchor.when as usize));
            if known.or_insert_with(|| self.places(object, anchor)).is_none() {
                continue;
            }
            let run = self.extended(data, at, taken, anchor);
            if run.len >= limits::ALIKE_RUN {
                taken = run.at + run.len;
                next = taken;
                runs.push(run);
                tokio::task::yield_now().await;
            }
        }
        runs
    }

    /// Where the home has a file, which is not to be the one that is about to be changed.
    fn places(&self, object: u64, anchor: Anchor) -> Option<Vec<Loc>> {
        if anchor.when == When::Now && anchor.id == object {
            return None;
        }
        let mut tree = self.tree.lock();
        let here = Volume::loc(&mut tree, anchor.id).ok().filter(|at| at.id.is_some())?;
        let elsewhere = tree.local_path(anchor.id).ok().filter(|path| *path != here.path);
        let elsewhere = elsewhere.map(|path| Loc { path, id: here.id });
        // While a rename is under way the home has it by either name.
        Some(std::iter::once(here).chain(elsewhere).collect())
    }

    /// How far bytes are alike around a place, from `from` on.
    fn extended(&self, data: &[u8], at: usize, from: usize, anchor: Anchor) -> Run {
        let Anchor { id, when, .. } = anchor;
        let mut len = 0;
        loop {
            let there = self.data.clean(id, anchor.at + len as u64, STEP.min(data.len() - at - len), when);
            let same = alike_from_start(&data[at + len..], &there);
            len += same;
            if same < STEP {
                break;
            }
        }
        let mut back = 0;
        loop {
            let step = (STEP / 8).min(at - from - back).min(anchor.at as usize - back);
            let there = self.data.clean(id, anchor.at - (back + step) as u64, step, when);
            let here = &data[at - back - step..at - back];
            let same = if there.len() == step { alike_to_end(here, &there) } else { 0 };
            back += same;
            if same < step || step == 0 {
                break;
            }
        }
        let anchor = Anchor { at: anchor.at - back as u64, ..anchor };
        Run { at: at - back, anchor, len: if len == 0 { 0 } else { back + len } }
    }
}

impl Plan {
    /// The same behind what was staged before.
    fn behind(mut self, from: u64) -> Plan {
        self.literal.iter_mut().for_each(|(at, _)| *at += from);
        self.copied.values_mut().flat_map(|(_, parts)| parts).for_each(|part| part.at += from);
        self
    }

    fn literal(&mut self, data: &Bytes, from: usize, to: usize) {
        let starts = (from..to).step_by(limits::STAGE_BYTES);
        self.literal.extend(starts.map(|at| (at as u64, data.slice(at..to.min(at + limits::STAGE_BYTES)))));
    }

    async fn copied(&mut self, data: &Bytes, run: &Run) {
        let Some((_, parts)) = self.copied.get_mut(&run.anchor.id) else { return };
        for i in (0..run.len).step_by(limits::STAGE_BYTES) {
            let len = limits::STAGE_BYTES.min(run.len - i);
            let at = run.at + i;
            let hash = *blake3::hash(&data[at..at + len]).as_bytes();
            parts.push(Copied { at: at as u64, from: run.anchor.at + i as u64, len: len as u32, hash });
            tokio::task::yield_now().await;
        }
    }
}

/// How many bytes are equal from the start on.
fn alike_from_start(a: &[u8], b: &[u8]) -> usize {
    let len = a.len().min(b.len());
    let (a, b) = (&a[..len], &b[..len]);
    let lines = a.chunks(LINE).zip(b.chunks(LINE)).take_while(|(a, b)| a == b).count();
    let sure = (lines * LINE).min(len);
    sure + a[sure..].iter().zip(&b[sure..]).take_while(|(a, b)| a == b).count()
}

/// How many bytes of two runs of the same length are equal up to their ends.
fn alike_to_end(a: &[u8], b: &[u8]) -> usize {
    if a == b {
        return a.len();
    }
    a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count()
}
