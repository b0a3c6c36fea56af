//! `trellis cp`: between this machine and the tree, or within either.

use super::reach::{PATHS, TreeArgs, umask};
use super::transfer::{Links, Plan, interruptible, shared};
use super::{Done, Failure};
use crate::tree::copy::{Copy, Manner, Shared, Trouble};
use crate::tree::{follow, look};
use clap::Args;
use home::Error;
use std::ffi::OsString;

/// Arguments of `cp`.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  trellis cp ann@lab:/data/x .
  trellis cp -rp results scp:lab:project/     modes and times too
  trellis cp -r lab:/data/set bob@far:/data   from home to home, through this machine

A file is written under a temporary name (.trellis-part.*) and gets its own when it is whole; where the directory takes
no new file, what has the name is written over, and an interruption leaves it cut off. Run the same command again after
an interruption: what is whole is not copied again, and a large file goes on where it stopped.
With -p, files of the same size and time are taken for the same. Symbolic links below a directory are copied as
links, holes as holes; a second name of a file becomes a second file.

SRC and DST are local paths or places in the tree. ./x is always local.
{PATHS}"))]
pub struct CpArgs {
    #[command(flatten)]
    tree: TreeArgs,

    /// Directories with all that is in them; links are copied as links
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,

    /// Modification times and exact permission bits too
    #[arg(short, long)]
    preserve: bool,

    /// The same as -rp
    #[arg(short, long)]
    archive: bool,

    /// What has a name already stays as it is
    #[arg(short, long)]
    no_clobber: bool,

    /// What has a name already is replaced even if it is write-protected
    #[arg(short, long, conflicts_with = "no_clobber")]
    force: bool,

    /// DST is the new name, even if a directory is there
    #[arg(short = 'T', long)]
    no_target_directory: bool,

    /// Show how far it is where standard error is no terminal
    #[arg(long)]
    progress: bool,

    /// What to copy, and where to: a new name, or a directory
    #[arg(required = true, num_args = 2.., value_names = ["SRC", "DST"])]
    paths: Vec<OsString>,
}

pub(super) async fn cp(args: CpArgs) -> Done {
    let mut reach = args.tree.reach().await?;
    let mut plan = Plan::new(&mut reach, &args.paths, args.no_target_directory, Links::Followed).await?;
    let recursive = args.recursive || args.archive;
    let preserve = args.preserve || args.archive;
    let (keep, force) = (args.no_clobber, args.force);
    let manner =
        Manner { recursive, preserve, keep, force, moves: false, streams: !recursive, umask: umask() };
    let verb = if recursive { "cp" } else { "cp of files" };
    let note = plan.note(verb, recursive, &mut reach).await?;
    let shared = shared(manner, Some(note), args.progress);
    let (mut copy, which) = plan.copy(&mut reach, &shared).await?;
    let work = async {
        for (at, tree) in which.into_iter().enumerate() {
            if let Err(e) = copy_one(&mut copy, &mut plan, at, tree, recursive).await {
                shared.not_copied(&plan.sources[at].0, &e);
            }
        }
        copy.finish().await;
        end(&shared)
    };
    let done = interruptible(work, &shared).await;
    plan.doubt(&mut reach, done).await
}

fn end(shared: &Shared) -> Done {
    if shared.failed() {
        return Err(Failure::Failed(None));
    }
    if let Some(note) = shared.notes() {
        note.forget();
    }
    Ok(())
}

async fn copy_one(
    copy: &mut Copy,
    plan: &mut Plan,
    at: usize,
    tree: usize,
    recursive: bool,
) -> Result<(), Trouble> {
    let path = plan.sources[at].1.path().to_vec();
    let node = match recursive {
        true => look(copy.source(tree), &path).await,
        false => follow(copy.source(tree), &path).await,
    };
    let node = node.map_err(|e| match &path[..] {
        b"-" => Error::new(e.kind, format!("{}; standard input is /dev/stdin", e.detail)),
        _ => e,
    })?;
    let place = plan.goal(copy.target(), at, &node).await?;
    let place = match node.attr.is_dir() || node.attr.is_symlink() {
        true => place,
        false => plan.over_links(copy.target(), place).await?,
    };
    copy.object(tree, &node, place.goal(), &plan.sources[at].0).await
}
