//! `trellis mv`: by a new name where that can be, else copied, made durable, and only then removed.

use super::reach::{Each, PATHS, TreeArgs};
use super::transfer::{Links, Plan, interruptible, shared};
use super::{Done, Failure, complain};
use crate::show;
use crate::tree::copy::{Copy, Manner, Shared, Trouble, in_the_way, not_replaced};
use crate::tree::{Node, Tree, bare, follow, list_all, look, same, split, wants_directory};
use clap::Args;
use home::{Error, ErrorKind};
use std::ffi::OsString;

/// Arguments of `mv`.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  trellis mv ann@lab/data/x ann@lab/data/y
  trellis mv results.tar scp:lab:archive/     copied, then removed here
  trellis mv lab:/data/set far:/data          from home to home, through this machine

On one file system of one home, and of this machine, it is a change of name. Else things are copied with modes and
times, `sync` makes the copy durable at its home, and only then are the sources removed, except what has changed
meanwhile. After an interruption at any point, run the same command again.

SRC and DST are local paths or places in the tree. ./x is always local.
{PATHS}"))]
pub struct MvArgs {
    #[command(flatten)]
    tree: TreeArgs,

    /// Accepted for scripts: nothing is ever asked
    #[arg(short, long)]
    force: bool,

    /// What has a name already stays as it is, and so does what would have replaced it
    #[arg(short, long, overrides_with = "force")]
    no_clobber: bool,

    /// DST is the new name, even if a directory is there
    #[arg(short = 'T', long)]
    no_target_directory: bool,

    /// Show how far it is where standard error is no terminal
    #[arg(long)]
    progress: bool,

    /// What to move, and where to: a new name, or a directory
    #[arg(required = true, num_args = 2.., value_names = ["SRC", "DST"])]
    paths: Vec<OsString>,
}

/// What was copied and is to be removed.
struct Source {
    tree: usize,
    dir: Node,
    name: Vec<u8>,
    node: Node,
    typed: Vec<u8>,
}

pub(super) async fn mv(args: MvArgs) -> Done {
    let mut reach = args.tree.reach().await?;
    let mut plan = Plan::new(&mut reach, &args.paths, args.no_target_directory, Links::Replaced).await?;
    let note = plan.note("mv", true, &mut reach).await?;
    // A target that an earlier run of this command began is gone on with.
    let keep = args.no_clobber && !note.new_target();
    let manner = Manner { recursive: true, preserve: true, force: true, moves: true, ..Manner::default() };
    let shared = shared(manner, Some(note), args.progress);
    let (mut copy, which) = plan.copy(&mut reach, &shared).await?;
    let work = async {
        let mut copied = Vec::new();
        for (at, tree) in which.into_iter().enumerate() {
            match move_one(&mut copy, &mut plan, at, tree, keep).await {
                Ok(source) => copied.extend(source),
                Err(e) => shared.not_copied(&plan.sources[at].0, &e),
            }
        }
        let (mut from, mut to) = copy.finish().await;
        if !copied.is_empty() {
            remove(&mut from, &mut *to, &plan, &copied, &shared).await?;
        }
        match (shared.failed(), shared.notes()) {
            (true, _) => Err(Failure::Failed(None)),
            (false, note) => {
                note.into_iter().for_each(|n| n.forget());
                Ok(())
            }
        }
    };
    let done = interruptible(work, &shared).await;
    plan.doubt(&mut reach, done).await
}

/// Moves an object by its name, or copies it and answers what is to be removed.
async fn move_one(
    copy: &mut Copy,
    plan: &mut Plan,
    at: usize,
    tree: usize,
    keep: bool,
) -> Result<Option<Source>, Trouble> {
    let path = plan.sources[at].1.path().to_vec();
    let node = look(copy.source(tree), &path).await?;
    if wants_directory(&path) && look(copy.source(tree), bare(&path)).await?.attr.is_symlink() {
        return Err(Error::new(ErrorKind::NotDir, "is a link: write it without a slash at its end").into());
    }
    let typed = plan.sources[at].0.clone();
    if matches!(typed.rsplit(|b| *b == b'/').find(|part| !part.is_empty()), Some(b"." | b"..")) {
        let text = "ends with a dot, which is no name that can be changed: write the directory's own name";
        return Err(Error::new(ErrorKind::Busy, text).into());
    }
    let (above, own) = split(&path);
    if own.is_empty() || matches!(&own[..], b"." | b"..") || !plan.sources[at].1.is_local() && above == b"/" {
        let text = "is a whole home or has no name of its own: it is not moved";
        return Err(Error::new(ErrorKind::Invalid, text).into());
    }
    let from = follow(copy.source(tree), &above).await?;
    let place = plan.goal(copy.target(), at, &node).await?;
    let there = match copy.target().lookup(&place.dir, &place.name).await {
        Ok(there) => Some(there),
        Err(e) if e.kind == ErrorKind::NotFound => None,
        Err(e) => return Err(Trouble::at(&place.path, e)),
    };
    if keep && there.is_some() {
        return Ok(None);
    }
    check((&node, &typed), there.as_ref(), &place.path)?;
    if node.attr.is_symlink()
        && let (Some(there), Ok(target)) = (&there, follow(copy.source(tree), &path).await)
        && same(&target, there)
    {
        let text = "is a link to what it would replace: nothing would be left but the link";
        return Err(Error::new(ErrorKind::Invalid, text).into());
    }
    if plan.is_within(at) {
        match copy.target().rename(&from, &own, &place.dir, &place.name).await {
            Err(e) if e.kind == ErrorKind::CrossDevice => {}
            Err(e) if e.kind == ErrorKind::Invalid && node.attr.is_dir() => {
                let into = show::text(&place.path);
                let text = format!("cannot be moved to a subdirectory of itself, {into}");
                return Err(Error::new(e.kind, text).into());
            }
            done => return Ok(done.map(|()| None)?),
        }
    }
    copy.object(tree, &node, place.goal(), &typed).await?;
    Ok(Some(Source { tree, dir: from, name: own, node, typed }))
}

/// Whether an object may take the place of what is there. The paths are for a person.
fn check((node, typed): (&Node, &[u8]), there: Option<&Node>, path: &[u8]) -> Result<(), Trouble> {
    let Some(there) = there else { return Ok(()) };
    match (node.attr.is_dir(), there.attr.is_dir()) {
        _ if same(node, there) => {
            Err(Error::new(ErrorKind::Invalid, "source and target are the same").into())
        }
        (true, false) => Err(Trouble::at(path, not_replaced(typed))),
        (false, true) => Err(Trouble::at(path, in_the_way())),
        _ => Ok(()),
    }
}

/// Removes the sources once the copies are durable, and only if all of them are there.
async fn remove(
    from: &mut [Box<dyn Tree>],
    to: &mut dyn Tree,
    plan: &Plan,
    copied: &[Source],
    shared: &Shared,
) -> Done {
    if shared.failed() {
        complain("not everything was copied, so no source was removed: run the same command again");
        return Ok(());
    }
    to.sync(&plan.dir).await.map_err(|e| {
        let text = show::message(&e.detail);
        Failure::from(format!("{text}\nno source was removed: run the same command again"))
    })?;
    let mut each = Each::new();
    for source in copied {
        let mut path = source.typed.clone();
        let mut removal = Removal { tree: &mut *from[source.tree], shared, each: &mut each };
        removal.object(&source.dir, &source.name, &source.node, &mut path).await;
    }
    each.end()
}

/// A removal of what was copied.
struct Removal<'a> {
    tree: &'a mut dyn Tree,
    shared: &'a Shared,
    each: &'a mut Each,
}

impl Removal<'_> {
    async fn object(&mut self, dir: &Node, name: &[u8], node: &Node, path: &mut Vec<u8>) {
        let done = match node.attr.is_dir() {
            true => Box::pin(self.directory(dir, name, node, path)).await,
            false => self.file(dir, name, path).await,
        };
        if let Err(e) = done {
            self.each.complain(path, &e);
        }
    }

    async fn directory(
        &mut self,
        dir: &Node,
        name: &[u8],
        node: &Node,
        path: &mut Vec<u8>,
    ) -> home::Result<()> {
        for (name, child) in list_all(self.tree, node).await? {
            let child = match child {
                Some(child) => child,
                None => self.tree.lookup(node, &name).await?,
            };
            let len = path.len();
            // As the copy names it: the note knows it by this path.
            path.push(b'/');
            path.extend_from_slice(&name);
            self.object(node, &name, &child, path).await;
            path.truncate(len);
        }
        self.tree.remove(dir, name, true).await
    }

    /// Only what was copied is removed: the same object, as it was then.
    async fn file(&mut self, dir: &Node, name: &[u8], path: &[u8]) -> home::Result<()> {
        let now = self.tree.lookup(dir, name).await?;
        match self.shared.notes().is_some_and(|n| n.has(path, &now.attr)) {
            true => self.tree.remove(dir, name, false).await,
            false => Err(Error::new(
                ErrorKind::Stale,
                "has changed since it was copied, and is kept: run the same command again",
            )),
        }
    }
}
