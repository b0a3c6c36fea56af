//! Agents that leave out a step which they must not leave out. A simulation that lives through many worlds with one of them
//! shows nothing about the others.

use crate::world::{Plan, Trouble, run};
use home::posix::step::Step;
use vfs::Mode;

/// What such an agent does instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Variant {
    /// Puts its copy in the place of whatever is there.
    BlindRename,
    /// Compares length and time alone.
    NoCtimes,
    /// Compares what is there, and then puts its copy in its place.
    CheckThenRename,
    /// Exchanges and verifies, but does not ask who has the file open for writing.
    NoWriterTest,
    /// Tells outcomes before they are durable.
    DoneBeforeDurable,
    /// Does not know what the agent before it had begun.
    NoMarker,
    /// Goes on after another one has taken over.
    NoFence,
    /// Gives a copy the name before its content is durable.
    PreparedBeforeStaged,
}

/// A world in which a variant broke a promise.
#[derive(Debug)]
pub struct Caught {
    /// Its seed.
    pub seed: u64,
    /// Which promise.
    pub why: String,
}

impl Variant {
    /// The steps that it leaves out.
    pub fn leaves_out(self) -> &'static [Step] {
        match self {
            Variant::BlindRename => &[Step::Compare, Step::Verify, Step::AskWriters],
            Variant::NoCtimes => &[Step::CompareCtime],
            Variant::CheckThenRename => &[Step::Verify, Step::AskWriters],
            Variant::NoWriterTest => &[Step::AskWriters],
            Variant::DoneBeforeDurable => &[Step::SyncAll],
            Variant::NoMarker => &[Step::ReadLog],
            Variant::NoFence => &[Step::Fence],
            Variant::PreparedBeforeStaged => &[Step::SyncCopies],
        }
    }

    /// What has to go wrong for the step to be missed.
    pub fn troubles(self) -> Vec<Trouble> {
        match self {
            Variant::BlindRename | Variant::NoCtimes | Variant::CheckThenRename | Variant::NoWriterTest => {
                vec![Trouble::Outsider]
            }
            Variant::DoneBeforeDurable => vec![],
            Variant::PreparedBeforeStaged => vec![Trouble::Slow, Trouble::AgentKill],
            Variant::NoMarker => vec![Trouble::Lost, Trouble::AgentKill],
            Variant::NoFence => vec![Trouble::Lost, Trouble::Hangup, Trouble::Slow, Trouble::OldAgents],
        }
    }

    /// The first world that catches it, of those from seed 1 to `last`, and in which an agent that leaves nothing out
    /// breaks no promise.
    pub fn catch(self, ops: u64, last: u64, troubles: &[Trouble]) -> Option<Caught> {
        let plan = Plan {
            ops,
            troubles: troubles.to_vec(),
            directories: false,
            variant: Some(self),
            mode: Mode::Wb,
        };
        let sound = Plan { variant: None, ..plan.clone() };
        (1..=last).find_map(|seed| {
            let why = run(seed, plan.clone()).result.err()?;
            run(seed, sound.clone()).result.is_ok().then_some(Caught { seed, why })
        })
    }
}
