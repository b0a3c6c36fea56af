//! Looking at objects: `stat`, `cat`.

use super::json::{self, Entry};
use super::output::{check_input, stdout};
use super::reach::{Each, PATHS, TreeArgs};
use super::{Done, Failure};
use crate::show;
use crate::tree::{Node, Tree, follow, look};
use clap::Args;
use std::ffi::OsString;
use std::io::{BufRead, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;

/// Arguments of `stat`.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  trellis stat ann@lab/data/x
  trellis stat --json scp:lab:x | jq .size

{PATHS}

{}", json::ENTRY))]
pub struct StatArgs {
    #[command(flatten)]
    tree: TreeArgs,

    /// What symbolic links lead to, not the links
    #[arg(short = 'L')]
    dereference: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// What to show
    #[arg(required = true)]
    paths: Vec<OsString>,
}

/// Arguments of `cat`.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  trellis cat ann@lab/data/log | grep error
  head -1 x | trellis cat - ann@lab/rest      - is standard input

{PATHS}"))]
pub struct CatArgs {
    #[command(flatten)]
    tree: TreeArgs,

    /// Number the lines
    #[arg(short, long)]
    number: bool,

    /// What to write; - is standard input
    #[arg(default_value = "-")]
    paths: Vec<OsString>,
}

/// A name as standard output should have it: escaped for a person, exact for a program.
pub(super) fn shown(name: &[u8]) -> Vec<u8> {
    if std::io::stdout().is_terminal() { show::text(name).into_bytes() } else { name.to_vec() }
}

/// An object for a program; a link that cannot be read has no target.
pub(super) async fn entry(tree: &mut dyn Tree, path: &[u8], node: Option<&Node>) -> Entry {
    let target = match node.filter(|n| n.attr.is_symlink()) {
        Some(link) => tree.readlink(link).await.ok(),
        None => None,
    };
    Entry::new(path, node.map(|n| &n.attr), target)
}

pub(super) async fn stat(args: StatArgs) -> Done {
    let mut reach = args.tree.reach().await?;
    let trees = reach.tree_paths(&args.paths)?;
    let mut each = Each::new();
    for (arg, path) in args.paths.iter().zip(&trees) {
        let done = stat_one(&mut *reach.tree, path, arg.as_bytes(), &args).await;
        each.note(arg.as_bytes(), done)?;
    }
    each.end()
}

async fn stat_one(tree: &mut dyn Tree, path: &[u8], arg: &[u8], args: &StatArgs) -> Done {
    let node = if args.dereference { follow(tree, path).await? } else { look(tree, path).await? };
    if args.json {
        return json::line(&entry(tree, arg, Some(&node)).await);
    }
    let a = &node.attr;
    let kind = match a.kind {
        '-' => "regular file",
        'l' => "symbolic link",
        'p' => "named pipe",
        other => json::kind_name(other),
    };
    let target = match a.is_symlink() {
        true => format!(" -> {}", show::text(&tree.readlink(&node).await?)),
        false => String::new(),
    };
    let moment = |(sec, nsec)| show::moment(sec, nsec);
    let text = format!(
        "  File: {}{target}\n  Size: {}  Allocated: {}  Type: {kind}\n  Mode: {:04o}/{}  Uid: {}  Gid: {}  Links: {}  \
         Inode: {}\nAccess: {}\nModify: {}\nChange: {}\n",
        show::text(arg),
        a.size,
        a.used,
        a.mode,
        show::mode(a.kind, a.mode),
        a.uid,
        a.gid,
        a.nlink,
        a.fileid,
        moment(a.atime),
        moment(a.mtime),
        moment(a.ctime)
    );
    Ok(stdout().write_all(text.as_bytes())?)
}

pub(super) async fn cat(args: CatArgs) -> Done {
    let mut reach = args.tree.reach().await?;
    let named: Vec<OsString> = args.paths.iter().filter(|p| *p != "-").cloned().collect();
    let mut trees = reach.tree_paths(&named)?.into_iter();
    let mut each = Each::new();
    let mut lines = args.number.then(Lines::default);
    for arg in &args.paths {
        let path = if arg == "-" { None } else { trees.next() };
        let done = match path {
            Some(path) => cat_one(&mut *reach.tree, &path, &mut lines).await,
            None => cat_input(&mut lines),
        };
        each.note(arg.as_bytes(), done)?;
    }
    each.end()
}

/// The number of the last line that began, and whether it has not ended.
#[derive(Default)]
struct Lines {
    last: u64,
    within: bool,
}

impl Lines {
    /// The bytes with a number before each line, as cat -n writes it.
    fn numbered(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut text = Vec::with_capacity(bytes.len());
        for line in bytes.split_inclusive(|b| *b == b'\n') {
            if !self.within {
                self.last += 1;
                text.extend_from_slice(format!("{:6}\t", self.last).as_bytes());
            }
            text.extend_from_slice(line);
            self.within = !line.ends_with(b"\n");
        }
        text
    }
}

fn pass_on(bytes: &[u8], lines: &mut Option<Lines>) -> Done {
    match lines {
        Some(lines) => stdout().write_all(&lines.numbered(bytes))?,
        None => stdout().write_all(bytes)?,
    }
    Ok(())
}

fn cat_input(lines: &mut Option<Lines>) -> Done {
    let failed = |e: std::io::Error| Failure::from(home::io_text(&e));
    check_input().map_err(failed)?;
    let mut input = std::io::stdin().lock();
    loop {
        let read = input.fill_buf().map_err(failed)?;
        if read.is_empty() {
            return Ok(());
        }
        let len = read.len();
        pass_on(read, lines)?;
        input.consume(len);
    }
}

async fn cat_one(tree: &mut dyn Tree, path: &[u8], lines: &mut Option<Lines>) -> Done {
    let file = follow(tree, path).await?;
    if file.attr.is_dir() {
        return Err(home::Error::from(home::ErrorKind::IsDir).into());
    }
    if !file.attr.is_file() {
        return Err(Failure::from(
            "neither a file nor a link to one; its bytes are not passed on".to_owned(),
        ));
    }
    let mut at = 0;
    loop {
        let (data, eof) = tree.read(&file, at).await?;
        pass_on(&data, lines)?;
        at += data.len() as u64;
        if eof || data.is_empty() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Lines;

    #[test]
    fn numbers_go_on_over_files_and_pieces() {
        let mut lines = Lines::default();
        assert_eq!(lines.numbered(b"a\n\nb"), b"     1\ta\n     2\t\n     3\tb");
        assert_eq!(lines.numbered(b"c\nd\n"), b"c\n     4\td\n");
        assert_eq!(lines.numbered(b""), b"");
    }
}
