//! `trellis rm`.

use super::output::stdout;
use super::reach::{Each, PATHS, TreeArgs, below};
use super::{Done, Failure};
use crate::tree::{Node, Tree, bare, check_path, follow, list_all, look, split, wants_directory};
use crate::{limits, show};
use clap::Args;
use home::{Error, ErrorKind, Result};
use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;

/// Arguments of `rm`.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  trellis rm ann@lab/data/old.log
  trellis rm -r scp:lab:build         a directory with all that is in it
  trellis rm -rf ann@lab/data/tmp     nothing to say if it is not there

Nothing is asked, whatever the modes are. A whole home (/ann@lab, scp:lab:.) is refused without
--no-preserve-root.

{PATHS}"))]
pub struct RmArgs {
    #[command(flatten)]
    tree: TreeArgs,

    /// Directories with all that is in them
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,

    /// What is not there is no failure
    #[arg(short, long)]
    force: bool,

    /// Empty directories too
    #[arg(short = 'd', long = "dir")]
    empty: bool,

    /// Say what is removed
    #[arg(short, long)]
    verbose: bool,

    /// Let a whole home be emptied
    #[arg(long)]
    no_preserve_root: bool,

    /// What to remove
    #[arg(required_unless_present = "force")]
    paths: Vec<OsString>,
}

pub(super) async fn rm(args: RmArgs) -> Done {
    let mut reach = args.tree.reach().await?;
    let trees = reach.changed_paths(&args.paths)?;
    let mut each = Each::new();
    for (arg, path) in args.paths.iter().zip(&trees) {
        let arg = arg.as_bytes();
        let refused = if path.is_empty() { None } else { refusal(path, arg, &args) };
        let done = match refused {
            Some(why) => Err(why.into()),
            None => rm_one(&mut *reach.tree, path, arg, &args, &mut each).await.map_err(Failure::from),
        };
        each.note(arg, done)?;
    }
    each.end()
}

/// Why a path is not removed, whatever it leads to.
fn refusal(path: &[u8], arg: &[u8], args: &RmArgs) -> Option<String> {
    let last = |path: &[u8]| path.split(|b| *b == b'/').rfind(|p| !p.is_empty()).map(<[u8]>::to_vec);
    // A locator has its path behind a colon.
    let ends = [last(arg), last(path)].into_iter().flatten();
    let is_dots = |end: Vec<u8>| {
        let path = end.rsplit(|b| *b == b':').next().unwrap_or_default();
        path == b".." || end == b"."
    };
    if ends.into_iter().any(is_dots) {
        return Some("neither `.` nor `..` is removed: name the directory".into());
    }
    let parts = path.split(|b| *b == b'/').filter(|p| !p.is_empty() && *p != b".").count();
    match parts {
        0 => Some("the root of the tree is not removed".into()),
        1 if !args.no_preserve_root => Some(
            "is a whole home: name what is in it, or, if everything in it is meant, say --no-preserve-root"
                .into(),
        ),
        _ => None,
    }
}

async fn rm_one(tree: &mut dyn Tree, path: &[u8], arg: &[u8], args: &RmArgs, each: &mut Each) -> Result<()> {
    let (dir, name) = split(path);
    let found = async {
        check_path(path)?;
        let dir = follow(tree, &dir).await?;
        // What has the name is meant, never what a link of that name leads to.
        let node = look(tree, bare(path)).await?;
        match wants_directory(path) && !node.attr.is_dir() && !node.attr.is_symlink() {
            true => Err(ErrorKind::NotDir.into()),
            false => Ok::<_, Error>((dir, node)),
        }
    };
    let (dir, node) = match found.await {
        Err(e) if args.force && matches!(e.kind, ErrorKind::NotFound | ErrorKind::NotDir) => return Ok(()),
        found => found?,
    };
    if wants_directory(path) && !node.attr.is_dir() {
        return Err(Error::new(ErrorKind::NotDir, "is a link: write it without a slash at its end"));
    }
    let mut removal = Removal { tree, verbose: args.verbose, each };
    let emptied = match node.attr.is_dir() {
        true if args.recursive => removal.directory(&node, &mut arg.to_vec(), 0).await,
        true if !args.empty => return Err(Error::new(ErrorKind::IsDir, "is a directory: remove it with -r")),
        _ => Ok(true),
    };
    // A home has no directory above it that could lose its name.
    let gone = match dir.attr.is_dir() && split(path).0 != b"/" {
        true => removal.emptied(emptied, (&dir, &name), &node, arg).await,
        false => emptied,
    };
    gone.map(drop)
}

/// A removal in progress.
struct Removal<'a> {
    tree: &'a mut dyn Tree,
    verbose: bool,
    each: &'a mut Each,
}

impl Removal<'_> {
    /// Empties a directory as far as that can be done, and answers whether it is empty; what is left was told. Links are
    /// removed, not followed.
    async fn directory(&mut self, dir: &Node, path: &mut Vec<u8>, depth: usize) -> Result<bool> {
        if depth >= limits::DEPTH {
            return Err(Error::new(ErrorKind::Loop, "directories are nested too deeply"));
        }
        let mut empty = true;
        for (name, node) in list_all(self.tree, dir).await? {
            let len = path.len();
            *path = below(path, &name);
            empty &= Box::pin(self.entry(dir, &name, node, path, depth)).await.unwrap_or_else(|e| {
                self.each.complain(path, &e);
                false
            });
            path.truncate(len);
        }
        Ok(empty)
    }

    async fn entry(
        &mut self,
        dir: &Node,
        name: &[u8],
        node: Option<Node>,
        path: &mut Vec<u8>,
        depth: usize,
    ) -> Result<bool> {
        let node = match node {
            Some(node) => node,
            None => self.tree.lookup(dir, name).await?,
        };
        let emptied = match node.attr.is_dir() {
            true => self.directory(&node, path, depth + 1).await,
            false => Ok(true),
        };
        self.emptied(emptied, (dir, name), &node, path).await
    }

    /// Removes the name of what was to be emptied; answers whether it is gone.
    async fn emptied(
        &mut self,
        emptied: Result<bool>,
        (dir, name): (&Node, &[u8]),
        node: &Node,
        path: &[u8],
    ) -> Result<bool> {
        match emptied {
            Ok(true) => self.name(dir, name, node, path).await.map(|()| true),
            // It may be empty, although nobody may look.
            Err(denied) if denied.kind == ErrorKind::Access => {
                self.name(dir, name, node, path).await.map(|()| true).map_err(|_| denied)
            }
            left => left,
        }
    }

    async fn name(&mut self, dir: &Node, name: &[u8], node: &Node, path: &[u8]) -> Result<()> {
        match self.tree.remove(dir, name, node.attr.is_dir()).await {
            // Somebody else was quicker.
            Err(e) if e.kind == ErrorKind::NotFound => return Ok(()),
            done => done?,
        }
        if self.verbose {
            self.each.output(writeln!(stdout(), "removed {}", show::text(path)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        rm: RmArgs,
    }

    #[test]
    fn a_whole_home_is_not_removed_by_a_slip() {
        let args = |line: &str| Line::parse_from(line.split(' ')).rm;
        let (plain, insists) = (args("rm -rf x"), args("rm -rf --no-preserve-root x"));
        for (path, arg) in
            [("/ann@lab", "/ann@lab"), ("/scp:lab:.", "lab:."), ("/scp:lab:.", "lab:./"), ("/lab/.", "lab/.")]
                .into_iter()
                .chain([
                    ("/scp:lab:..", "lab:.."),
                    ("/scp:lab:./..", "lab:.."),
                    ("/scp:lab:../", "scp:lab:../"),
                ])
        {
            assert!(refusal(path.as_bytes(), arg.as_bytes(), &plain).is_some(), "{path}");
        }
        assert!(refusal(b"/scp:lab:", b"lab:/", &plain).unwrap().contains("--no-preserve-root"));
        assert!(refusal(b"/scp:lab:", b"lab:/", &insists).is_none());
        assert!(refusal(b"/", b"/", &insists).is_some());
        assert!(refusal(b"/lab/x/..", b"lab/x/..", &insists).is_some());
        assert!(refusal(b"/lab/x", b"lab:/x", &plain).is_none());
    }
}
