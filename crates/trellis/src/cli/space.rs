//! How much there is: `du`, `df`.

use super::files::shown;
use super::find::depth;
use super::json;
use super::output::stdout;
use super::reach::{Each, PATHS, TreeArgs, below};
use super::{Done, Failure};
use crate::control::proto::Raw;
use crate::tree::{At, Node, Space, Tree, follow, list_all, look};
use crate::{limits, show};
use clap::Args;
use home::{Error, ErrorKind, HomeId, HomePath};
use serde::Serialize;
use std::collections::HashSet;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

/// Arguments of `du`.
#[derive(Debug, Args)]
#[command(disable_help_flag = true, after_help = format!("\
Examples:
  trellis du -sh ann@lab/data/*       the shell knows the names below a mount only
  trellis du -h -d 1 scp:lab:project
  trellis du --json scp:lab:project | jq -s 'max_by(.used)'

A file with several names is counted once, and so is what several PATHs lead to. Sizes are what is allocated at the home.
With --json, a line is an object: path (a string, or a list of bytes), used and size (bytes allocated, and bytes of
the files' lengths).

{PATHS}"))]
pub struct DuArgs {
    #[command(flatten)]
    tree: TreeArgs,

    /// Only the sum for each PATH
    #[arg(short, long, conflicts_with_all = ["all", "max_depth"])]
    summarize: bool,

    /// Only the sums of what is no deeper than this below each PATH
    #[arg(short = 'd', long, value_name = "N", allow_hyphen_values = true, value_parser = depth)]
    max_depth: Option<usize>,

    /// Files too, not only directories
    #[arg(short, long)]
    all: bool,

    /// Sizes such as 1.5K, not in units of 1024 bytes
    #[arg(short = 'h', long)]
    human_readable: bool,

    /// Lengths of the files, not what is allocated for them
    #[arg(long)]
    apparent_size: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,

    /// What to sum up [default: the current directory in a mount of the tree]
    paths: Vec<OsString>,
}

/// Arguments of `df`.
#[derive(Debug, Args)]
#[command(disable_help_flag = true, after_help = format!("\
Examples:
  trellis df -h                       all homes that the server has used
  trellis df -h ann@lab/scratch       the file system that holds it

Homes that are out of reach have the figures that were seen last, or fail.
With --json, a line is an object: path (a string, or a list of bytes), total, used, free, available (bytes), files,
files_free (numbers of inodes).

{PATHS}"))]
pub struct DfArgs {
    #[command(flatten)]
    tree: TreeArgs,

    /// Sizes such as 1.5K, not in units of 1024 bytes
    #[arg(short = 'h', long)]
    human_readable: bool,

    /// Numbers of inodes
    #[arg(short, long)]
    inodes: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,

    /// What the file system holds
    paths: Vec<OsString>,
}

#[derive(Serialize)]
struct DuLine {
    path: Raw,
    used: u64,
    size: u64,
}

pub(super) async fn du(args: DuArgs) -> Done {
    let mut reach = args.tree.reach().await?;
    let mut each = Each::new();
    let mut seen = HashSet::new();
    for (arg, path) in reach.starts(&args.paths)? {
        let done = match look(&mut *reach.tree, &path).await {
            Ok(node) => {
                let mut sum = Sum { tree: &mut *reach.tree, args: &args, each: &mut each, seen: &mut seen };
                sum.object(&node, &mut arg.clone(), 0).await.map(drop)
            }
            Err(e) => Err(e.into()),
        };
        each.note(&arg, done)?;
    }
    each.end()
}

/// Sums in progress.
struct Sum<'a> {
    tree: &'a mut dyn Tree,
    args: &'a DuArgs,
    each: &'a mut Each,
    /// What was counted: files with several names, and everything where several paths are summed up.
    seen: &'a mut HashSet<Identity>,
}

/// What tells objects apart.
#[derive(PartialEq, Eq, Hash)]
enum Identity {
    Served(u32, u64),
    /// By home, and there by file system and inode number, or by path where there are none.
    Direct(usize, HomeId, Option<HomePath>),
    Local(u64),
}

fn identity(node: &Node) -> Identity {
    match &node.at {
        At::Served(id) => Identity::Served(id.volume, id.id),
        At::Direct(reached, loc) => {
            let id = loc.id.unwrap_or_default();
            let path = (id.ino == 0).then(|| loc.path.clone());
            Identity::Direct(Arc::as_ptr(&reached.home) as *const () as usize, id, path)
        }
        At::Local(_) | At::Root => Identity::Local(node.attr.fileid),
    }
}

/// Bytes allocated, and bytes of length.
#[derive(Clone, Copy, Default)]
struct Total {
    used: u64,
    size: u64,
}

impl Sum<'_> {
    async fn object(&mut self, node: &Node, path: &mut Vec<u8>, depth: usize) -> Result<Total, Failure> {
        let a = &node.attr;
        // As du(1): what another path of the command has counted is neither counted nor shown again.
        let again = self.args.paths.len() > 1 || a.nlink > 1 && !a.is_dir();
        if again && !self.seen.insert(identity(node)) {
            return Ok(Total::default());
        }
        let mut total = Total { used: a.used, size: a.size };
        if a.is_dir() {
            let below = self.entries(node, path, depth).await?;
            total = Total {
                used: total.used.saturating_add(below.used),
                size: total.size.saturating_add(below.size),
            };
        }
        let deepest = if self.args.summarize { 0 } else { self.args.max_depth.unwrap_or(usize::MAX) };
        if depth == 0 || depth <= deepest && (a.is_dir() || self.args.all) {
            self.print(path, total)?;
        }
        Ok(total)
    }

    async fn entries(&mut self, dir: &Node, path: &mut Vec<u8>, depth: usize) -> Result<Total, Failure> {
        let mut total = Total::default();
        let listed = match list_all(self.tree, dir).await {
            Err(e) => Err(e),
            Ok(_) if depth >= limits::DEPTH => {
                Err(Error::new(ErrorKind::Loop, "directories are nested too deeply"))
            }
            listed => listed,
        };
        let entries = match listed {
            Ok(entries) => entries,
            Err(e) => {
                self.each.complain(path, &e);
                return Ok(total);
            }
        };
        for (name, child) in entries {
            let len = path.len();
            *path = below(path, &name);
            let child = match child {
                Some(child) => Ok(child),
                None => self.tree.lookup(dir, &name).await,
            };
            match child {
                Ok(child) => {
                    let sum = Box::pin(self.object(&child, path, depth + 1)).await?;
                    total.used = total.used.saturating_add(sum.used);
                    total.size = total.size.saturating_add(sum.size);
                }
                Err(e) if e.kind == ErrorKind::NotFound => {}
                Err(e) => self.each.complain(path, &e),
            }
            path.truncate(len);
        }
        Ok(total)
    }

    fn print(&self, path: &[u8], total: Total) -> Done {
        if self.args.json {
            return json::line(&DuLine { path: path.into(), used: total.used, size: total.size });
        }
        let bytes = if self.args.apparent_size { total.size } else { total.used };
        let mut text = format!("{}\t", figure(bytes, self.args.human_readable)).into_bytes();
        text.extend_from_slice(&shown(path));
        text.push(b'\n');
        Ok(stdout().write_all(&text)?)
    }
}

fn figure(bytes: u64, human: bool) -> String {
    if human { show::short_size(bytes) } else { bytes.div_ceil(1024).to_string() }
}

#[derive(Serialize)]
struct DfLine {
    path: Raw,
    total: u64,
    used: u64,
    free: u64,
    available: u64,
    files: u64,
    files_free: u64,
}

pub(super) async fn df(args: DfArgs) -> Done {
    let mut reach = args.tree.reach().await?;
    let (starts, trees) = match args.paths.is_empty() {
        true => {
            let names: Vec<Vec<u8>> = reach.homes().await?.iter().map(|n| [b"/", &n[..]].concat()).collect();
            (names.iter().cloned().map(OsString::from_vec).collect(), names)
        }
        false => (args.paths.clone(), reach.tree_paths(&args.paths)?),
    };
    let mut each = Each::new();
    let mut rows = vec![head(&args)];
    for (arg, path) in starts.iter().zip(&trees) {
        let space = async {
            let node = follow(&mut *reach.tree, path).await?;
            reach.tree.space(&node).await
        };
        let done = match space.await {
            Ok(space) if args.json => json::line(&df_line(arg.as_bytes(), &space)),
            Ok(space) => {
                rows.push(row(&space, arg.as_bytes(), &args));
                Ok(())
            }
            Err(e) => Err(e.into()),
        };
        each.note(arg.as_bytes(), done)?;
    }
    if rows.len() > 1 {
        write!(stdout(), "{}", show::table(&rows))?;
    }
    each.end()
}

fn df_line(path: &[u8], s: &Space) -> DfLine {
    DfLine {
        path: path.into(),
        total: s.total,
        used: s.total.saturating_sub(s.free),
        free: s.free,
        available: s.available,
        files: s.files,
        files_free: s.files_free,
    }
}

fn head(args: &DfArgs) -> Vec<String> {
    let columns = match (args.inodes, args.human_readable) {
        (true, _) => ["INODES", "USED", "FREE", "USE%", "PATH"],
        (false, true) => ["SIZE", "USED", "AVAIL", "USE%", "PATH"],
        (false, false) => ["1K-BLOCKS", "USED", "AVAILABLE", "USE%", "PATH"],
    };
    columns.map(str::to_owned).to_vec()
}

fn row(s: &Space, path: &[u8], args: &DfArgs) -> Vec<String> {
    let (total, used, left) = match args.inodes {
        true => (s.files, s.files.saturating_sub(s.files_free), s.files_free),
        false => (s.total, s.total.saturating_sub(s.free), s.available),
    };
    let text = |n: u64| match args.inodes && !args.human_readable {
        true => n.to_string(),
        false => figure(n, args.human_readable),
    };
    // Of what the account could use, rounded up, as df(1) does it.
    let share = match u128::from(used) + u128::from(left) {
        0 => "-".to_owned(),
        all => format!("{}%", (u128::from(used) * 100).div_ceil(all)),
    };
    vec![text(total), text(used), text(left), share, show::text(path)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        df: DfArgs,
    }

    #[test]
    fn shares_are_of_what_the_account_could_use() {
        let space =
            Space { total: 1000 << 10, free: 400 << 10, available: 300 << 10, files: 10, files_free: 4 };
        let args = |line: &str| Line::parse_from(line.split(' ')).df;
        assert_eq!(row(&space, b"/lab", &args("df")), ["1000", "600", "300", "67%", "/lab"]);
        assert_eq!(row(&space, b"/lab", &args("df -h"))[..3], ["1000K", "600K", "300K"]);
        assert_eq!(row(&space, b"/lab", &args("df -i"))[..4], ["10", "6", "4", "60%"]);
        let none = Space { total: 0, free: 0, available: 0, files: 0, files_free: 0 };
        assert_eq!(row(&none, b"/", &args("df"))[3], "-");
    }
}
