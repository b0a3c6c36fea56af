//! Small changes: `mkdir`, `ln`, `touch`, `chmod`.

use super::mode::Mode;
use super::reach::{Each, PATHS, Reach, TreeArgs, below, umask};
use super::{Done, Failure};
use crate::limits;
use crate::scl::Place;
use crate::tree::{
    Node, Set, Taken, Tree, When, check_path, follow, goal, list_all, look, same, split, wants_directory,
};
use clap::Args;
use home::{Error, ErrorKind};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::str::FromStr;

/// Set-user-id and set-group-id: homes take them off files.
const SET_ID: u32 = 0o6000;

/// Arguments of `mkdir`.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  trellis mkdir ann@lab/data/new
  trellis mkdir -p scp:lab:a/b/c      what is missing above it too
  trellis mkdir -m 700 scp:lab:mine

{PATHS}"))]
pub struct MkdirArgs {
    #[command(flatten)]
    tree: TreeArgs,

    /// What is missing above them too; what is there is no failure
    #[arg(short, long)]
    parents: bool,

    /// Permission bits, as chmod takes them [default: 777 without the umask]
    #[arg(short, long, value_name = "MODE", allow_hyphen_values = true)]
    mode: Option<Mode>,

    /// Directories to make
    #[arg(required = true)]
    paths: Vec<OsString>,
}

/// Arguments of `ln`.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  trellis ln ann@lab/data/x ann@lab/data/y      a second name, on the same file system
  trellis ln -s ../x scp:lab:dir/link           a link that leads to ../x, seen from dir
  trellis ln -sfn v2 scp:lab:current            instead of the link that is there, also if it leads to a directory

The TARGET of a symbolic link is text that the home understands: a path there, never a locator.

{PATHS}"))]
pub struct LnArgs {
    #[command(flatten)]
    tree: TreeArgs,

    /// Symbolic links
    #[arg(short, long)]
    symbolic: bool,

    /// Replace what has the name
    #[arg(short, long)]
    force: bool,

    /// A link to a directory at NAME is not gone into: it is what has the name
    #[arg(short = 'n', long)]
    no_dereference: bool,

    /// A directory at NAME is not gone into
    #[arg(short = 'T', long)]
    no_target_directory: bool,

    /// What to link, and the new name or the directory for the new names [default: the current directory]
    #[arg(required = true, value_names = ["TARGET", "NAME"])]
    paths: Vec<OsString>,
}

/// Arguments of `touch`.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  trellis touch ann@lab/data/stamp
  trellis touch -c -d '2026-11-21 08:41' scp:lab:x
  trellis touch -r scp:lab:old scp:lab:new      the times of old

{PATHS}"))]
pub struct TouchArgs {
    #[command(flatten)]
    tree: TreeArgs,

    /// Make no files
    #[arg(short = 'c', long)]
    no_create: bool,

    /// The access time only
    #[arg(short)]
    access: bool,

    /// The modification time only
    #[arg(short)]
    modification: bool,

    /// This time instead of now: YYYY-MM-DD[ HH:MM[:SS[.N]]][+HH:MM] (UTC where no offset is given), or @SECONDS[.N]
    #[arg(short, long, value_name = "TIME", allow_hyphen_values = true)]
    date: Option<Moment>,

    /// The same as digits: [[CC]YY]MMDDhhmm[.ss], UTC
    #[arg(short = 't', value_name = "STAMP", value_parser = stamp, conflicts_with = "date")]
    stamp: Option<Moment>,

    /// The times of this file instead of now; with -d, which says all of a time here, they are not used
    #[arg(short, long, value_name = "FILE", conflicts_with = "stamp")]
    reference: Option<OsString>,

    /// Files to touch
    #[arg(required = true)]
    paths: Vec<OsString>,
}

/// Arguments of `chmod`.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  trellis chmod 640 ann@lab/data/x
  trellis chmod -R u+rwX,go-w scp:lab:dir

Symbolic links below a directory are left alone; one that is named is followed. Directories keep set-group-id bits, files
get no set-id bits: that is an error.

{PATHS}"))]
pub struct ChmodArgs {
    #[command(flatten)]
    tree: TreeArgs,

    /// Directories with all that is in them
    #[arg(short = 'R', long)]
    recursive: bool,

    /// Octal digits, or [ugoa][+-=][rwxXst], joined by commas
    #[arg(allow_hyphen_values = true)]
    mode: Mode,

    /// What to change
    #[arg(required = true)]
    paths: Vec<OsString>,
}

pub(super) async fn mkdir(args: MkdirArgs) -> Done {
    let mut reach = args.tree.reach().await?;
    let trees = reach.changed_paths(&args.paths)?;
    let mut each = Each::new();
    for (arg, path) in args.paths.iter().zip(&trees) {
        let done = mkdir_one(&mut *reach.tree, path, &args).await;
        each.note(arg.as_bytes(), done.map_err(Failure::from))?;
    }
    each.end()
}

async fn mkdir_one(tree: &mut dyn Tree, path: &[u8], args: &MkdirArgs) -> home::Result<()> {
    let usual = 0o777 & !umask();
    let mode = args.mode.as_ref().map(|m| m.apply(0o777, true, umask()));
    check_path(path)?;
    let (dir, name) = split(path);
    if !args.parents && matches!(&name[..], b"" | b"." | b"..") {
        // These are there, if what they are in is.
        follow(tree, path).await?;
        return Err(ErrorKind::Exists.into());
    }
    let made = match args.parents {
        false => {
            let dir = follow(tree, &dir).await?;
            tree.mkdir(&dir, &name, mode.unwrap_or(usual)).await?
        }
        true => {
            // What is made on the way has to let us go on.
            match mkdir_parents(tree, path, usual | 0o300).await? {
                Some(made) => made,
                None => return Ok(()),
            }
        }
    };
    match mode.or(Some(usual)).filter(|m| made.attr.mode & 0o7777 != *m) {
        Some(mode) => tree.set(&made, Set { mode: Some(mode), ..Set::default() }).await,
        None => Ok(()),
    }
}

/// Makes a directory and what is missing above it; `None` where it was there.
async fn mkdir_parents(tree: &mut dyn Tree, path: &[u8], mode: u32) -> home::Result<Option<Node>> {
    let mut dir = follow(tree, b"/").await?;
    let mut new = false;
    let mut at = Vec::new();
    let mut parts = path.split(|b| *b == b'/').filter(|p| !p.is_empty()).peekable();
    while let Some(part) = parts.next() {
        at = [&at[..], b"/", part].concat();
        (dir, new) = match follow(tree, &at).await {
            Ok(node) if node.attr.is_dir() => (node, false),
            Ok(_) if parts.peek().is_some() => return Err(ErrorKind::NotDir.into()),
            Ok(_) => return Err(ErrorKind::Exists.into()),
            Err(e) if e.kind == ErrorKind::NotFound => match tree.mkdir(&dir, part, mode).await {
                // By somebody else just now, or a link that leads nowhere.
                Err(e) if e.kind == ErrorKind::Exists => match follow(tree, &at).await {
                    Ok(node) if node.attr.is_dir() => (node, false),
                    _ => return Err(e),
                },
                made => (made?, true),
            },
            Err(e) => return Err(e),
        };
    }
    Ok(new.then_some(dir))
}

pub(super) async fn ln(args: LnArgs) -> Done {
    let mut reach = args.tree.reach().await?;
    let here = OsString::from(".");
    let (last, targets) = match args.paths.split_last() {
        Some((last, targets)) if !targets.is_empty() => (last, targets),
        _ if args.no_target_directory => return Err(Failure::Usage("with -T say the new name, too".into())),
        _ => (&here, &args.paths[..]),
    };
    let to = reach.changed_path(last)?;
    let found = match args.no_dereference {
        true => look(&mut *reach.tree, &to).await,
        false => follow(&mut *reach.tree, &to).await,
    };
    let into = match found {
        Ok(node) if node.attr.is_dir() && !args.no_target_directory => Some(node),
        _ if targets.len() > 1 => return Err(Failure::Usage(format!("{}: not a directory", shown(last)))),
        Err(e) if wants_directory(&to) || to.is_empty() => return Err(super::named(last.as_bytes(), &e)),
        _ => None,
    };
    if into.is_none() && split(&to).0 == b"/" {
        let text = "its first name is a host's, beside which no link is made: write HOST:PATH; on this machine `ln` makes links";
        return Err(format!("{}: {text}", shown(last)).into());
    }
    let sources = match args.symbolic {
        true => targets.iter().map(|t| link_text(t.as_bytes())).collect::<Result<Vec<_>, _>>()?,
        false => reach.changed_paths(targets)?,
    };
    let mut each = Each::new();
    for (arg, source) in targets.iter().zip(&sources) {
        let object = match args.symbolic {
            true => None,
            false => match to_be_linked(&mut *reach.tree, source).await {
                Ok(object) => Some(object),
                Err(e) => {
                    each.note(arg.as_bytes(), Err(e.into()))?;
                    continue;
                }
            },
        };
        let place = match &into {
            Some(dir) => Ok((dir.clone(), split(source).1)),
            None => follow(&mut *reach.tree, &split(&to).0).await.map(|dir| (dir, split(&to).1)),
        };
        let done = match place {
            Ok((dir, name)) => {
                let beside = if into.is_some() { to.clone() } else { split(&to).0 };
                ln_one(&mut *reach.tree, (source, object), (&dir, &beside), &name, &args).await
            }
            Err(e) => Err(e),
        };
        each.note(
            if into.is_some() { arg.as_bytes() } else { last.as_bytes() },
            done.map_err(Failure::from),
        )?;
    }
    each.end()
}

fn shown(arg: &OsString) -> String {
    crate::show::text(arg.as_bytes())
}

/// The text of a symbolic link; a locator would mean nothing at the home.
fn link_text(target: &[u8]) -> Result<Vec<u8>, Failure> {
    let scheme = target.starts_with(b"scp:") || target.starts_with(b"ssh:");
    match scheme && Place::parse_locator(target).is_some() {
        true => Err(Failure::Usage(format!(
            "{}: a symbolic link holds a path as its home sees it: write the path alone",
            crate::show::text(target)
        ))),
        false => Ok(target.to_vec()),
    }
}

/// What gets a further name.
async fn to_be_linked(tree: &mut dyn Tree, source: &[u8]) -> home::Result<Node> {
    let object = look(tree, source).await?;
    match object.attr.is_dir() {
        true => Err(Error::new(ErrorKind::Perm, "is a directory, which has one name only: use -s")),
        false => Ok(object),
    }
}

async fn ln_one(
    tree: &mut dyn Tree,
    (source, object): (&[u8], Option<Node>),
    (dir, beside): (&Node, &[u8]),
    name: &[u8],
    args: &LnArgs,
) -> home::Result<()> {
    if args.force {
        if args.symbolic && leads_to(tree, beside, source, dir, name).await {
            let text = "is what the link would lead to: nothing would be left but the link";
            return Err(Error::new(ErrorKind::Exists, text));
        }
        // The name is never missing: what is new gets another one first.
        return replace(tree, source, object.as_ref(), dir, name).await;
    }
    match &object {
        Some(object) => tree.link(object, dir, name).await.map_err(crossing),
        None => tree.symlink(dir, name, source).await,
    }
}

/// Whether the text of a symbolic link in the directory at `beside` leads to what has a name there, and that is no link.
/// Where an absolute text leads to only the home knows: the same last name is enough.
async fn leads_to(tree: &mut dyn Tree, beside: &[u8], text: &[u8], dir: &Node, name: &[u8]) -> bool {
    let Ok(old) = tree.lookup(dir, name).await else { return false };
    match text.starts_with(b"/") {
        _ if old.attr.is_symlink() => false,
        true => split(text).1 == name,
        false => follow(tree, &below(beside, text)).await.is_ok_and(|found| same(&found, &old)),
    }
}

fn crossing(e: Error) -> Error {
    match e.kind {
        ErrorKind::CrossDevice => {
            Error::new(e.kind, "a second name must be on the same file system of the same home: use -s or cp")
        }
        _ => e,
    }
}

async fn replace(
    tree: &mut dyn Tree,
    source: &[u8],
    object: Option<&Node>,
    dir: &Node,
    name: &[u8],
) -> home::Result<()> {
    match tree.lookup(dir, name).await {
        Ok(old) if old.attr.is_dir() => {
            return Err(Error::new(ErrorKind::IsDir, "a directory is not replaced"));
        }
        Ok(old) if object.is_some_and(|o| same(o, &old)) => {
            return Err(Error::new(ErrorKind::Exists, "is the same file already"));
        }
        _ => {}
    }
    let part = format!(".trellis-ln.{:08x}", std::process::id()).into_bytes();
    match object {
        Some(object) => tree.link(object, dir, &part).await.map_err(crossing)?,
        None => tree.symlink(dir, &part, source).await?,
    }
    let moved = tree.rename(dir, &part, dir, name).await;
    if moved.is_err() {
        tree.remove(dir, &part, false).await?;
    }
    moved
}

pub(super) async fn touch(args: TouchArgs) -> Done {
    let mut reach = args.tree.reach().await?;
    let trees = reach.changed_paths(&args.paths)?;
    let given = given_times(&mut reach, &args).await?;
    let (atime, mtime) = given.unwrap_or((When::Now, When::Now));
    let both = args.access == args.modification;
    let set = Set {
        atime: Some(atime).filter(|_| both || args.access),
        mtime: Some(mtime).filter(|_| both || args.modification),
        ..Set::default()
    };
    let mut each = Each::new();
    for (arg, path) in args.paths.iter().zip(&trees) {
        let done = touch_one(&mut *reach.tree, path, (set, given.is_some()), args.no_create).await;
        each.note(arg.as_bytes(), done.map_err(Failure::from))?;
    }
    each.end()
}

/// Access and modification time that the arguments name, if they do.
async fn given_times(reach: &mut Reach, args: &TouchArgs) -> Result<Option<(When, When)>, Failure> {
    let mut times = None;
    if let Some(reference) = &args.reference {
        let path = reach.changed_path(reference)?;
        let found = follow(&mut *reach.tree, &path).await;
        let attr = found.map_err(|e| super::named(reference.as_bytes(), &e))?.attr;
        let when = |(sec, nsec)| When::At(sec, nsec);
        times = Some((when(attr.atime), when(attr.mtime)));
    }
    let written = args.date.or(args.stamp).map(|Moment(sec, nsec)| When::At(sec, nsec));
    Ok(written.map(|when| (when, when)).or(times))
}

/// `given`: the times are not those that a new file has anyway.
async fn touch_one(
    tree: &mut dyn Tree,
    path: &[u8],
    (set, given): (Set, bool),
    no_create: bool,
) -> home::Result<()> {
    let missing = match follow(tree, path).await {
        Ok(node) => return tree.set(&node, set).await,
        Err(e) => e,
    };
    match missing.kind {
        ErrorKind::NotFound if no_create => return Ok(()),
        ErrorKind::NotFound if !wants_directory(path) => check_path(path)?,
        _ => return Err(missing),
    }
    // A link that leads nowhere leads to the new file.
    let (dir, name) = match goal(tree, path).await? {
        (_, _, Some(there)) => return tree.set(&there, set).await,
        (dir, name, None) => (dir, name),
    };
    let made = match tree.create(&dir, &name, 0o666 & !umask(), Taken::Fails).await {
        Err(e) if e.kind == ErrorKind::Exists => tree.lookup(&dir, &name).await?,
        made => made?,
    };
    if given { tree.set(&made, set).await } else { Ok(()) }
}

pub(super) async fn chmod(args: ChmodArgs) -> Done {
    let mut reach = args.tree.reach().await?;
    let trees = reach.changed_paths(&args.paths)?;
    let mut each = Each::new();
    for (arg, path) in args.paths.iter().zip(&trees) {
        let done = match follow(&mut *reach.tree, path).await {
            Ok(node) => {
                chmod_one(&mut *reach.tree, &node, &mut arg.as_bytes().to_vec(), &args, &mut each, 0).await
            }
            Err(e) => Err(e),
        };
        each.note(arg.as_bytes(), done.map_err(Failure::from))?;
    }
    each.end()
}

async fn chmod_one(
    tree: &mut dyn Tree,
    node: &Node,
    path: &mut Vec<u8>,
    args: &ChmodArgs,
    each: &mut Each,
    depth: usize,
) -> home::Result<()> {
    let old = node.attr.mode & 0o7777;
    let mode = args.mode.apply(old, node.attr.is_dir(), umask());
    if !node.attr.is_dir() && mode & !old & SET_ID != 0 {
        let text = "files do not get set-user-id and set-group-id bits through the tree, whose mounts are nosuid: \
                    nothing is changed; `ssh` to the home and use its chmod";
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    // Also where it has that mode: whether it may be changed is for its owner and the home to say.
    tree.set(node, Set { mode: Some(mode), ..Set::default() }).await?;
    let left = args.mode.left_by_umask(old, node.attr.is_dir(), umask());
    if left != 0 {
        let text = format!("keeps {left:03o}, which the umask has: say whose bits go, as in a-w");
        each.complain(path, &Error::new(ErrorKind::Invalid, text));
    }
    if !args.recursive || !node.attr.is_dir() {
        return Ok(());
    }
    if depth >= limits::DEPTH {
        return Err(Error::new(ErrorKind::Loop, "directories are nested too deeply"));
    }
    for (name, child) in list_all(tree, node).await? {
        let len = path.len();
        *path = below(path, &name);
        let done = match child {
            Some(child) => Ok(child),
            None => tree.lookup(node, &name).await,
        };
        let done = match done {
            Ok(child) if child.attr.is_symlink() => Ok(()),
            Ok(child) => Box::pin(chmod_one(tree, &child, path, args, each, depth + 1)).await,
            Err(e) => Err(e),
        };
        if let Err(e) = done {
            each.complain(path, &e);
        }
        path.truncate(len);
    }
    Ok(())
}

/// A moment: seconds and nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment(i64, u32);

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Moment, String> {
        let wrong = || "write YYYY-MM-DD[ HH:MM[:SS[.N]]][Z or +HH:MM], or @SECONDS[.N]".to_owned();
        let found = match text.strip_prefix('@') {
            Some(seconds) => since_1970(seconds),
            None => calendar(text),
        };
        found.ok_or_else(wrong)
    }
}

/// `[[CC]YY]MMDDhhmm[.ss]`, as touch(1) of POSIX has it: years from 69 on without a century are of the last one.
fn stamp(text: &str) -> Result<Moment, String> {
    let parsed = || {
        let (digits, seconds) = text.split_once('.').unwrap_or((text, "00"));
        let all = [digits, seconds].iter().all(|t| t.bytes().all(|b| b.is_ascii_digit()));
        let (year, rest) = digits.split_at_checked(digits.len().checked_sub(8)?)?;
        let year = match year.len() {
            0 => crate::show::moment(now(), 0)[..4].to_owned(),
            2 => format!("{}{year}", if year < "69" { "20" } else { "19" }),
            4 => year.to_owned(),
            _ => return None,
        };
        let part = |at: usize| &rest[at..at + 2];
        let text = format!("{year}-{}-{} {}:{}:{seconds}", part(0), part(2), part(4), part(6));
        calendar(&text).filter(|_| all && seconds.len() == 2)
    };
    parsed().ok_or_else(|| "write [[CC]YY]MMDDhhmm[.ss], as 202611210841".to_owned())
}

fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |d| d.as_secs() as i64)
}

/// `123.5` and `-123.5`.
fn since_1970(text: &str) -> Option<Moment> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let (sec, nsec) = (whole.parse::<i64>().ok()?, nanoseconds(fraction)?);
    Some(match nsec > 0 && whole.starts_with('-') {
        true => Moment(sec.checked_sub(1)?, 1_000_000_000 - nsec),
        false => Moment(sec, nsec),
    })
}

fn nanoseconds(digits: &str) -> Option<u32> {
    let nine: String = digits.chars().chain(std::iter::repeat('0')).take(9).collect();
    nine.bytes().all(|b| b.is_ascii_digit()).then(|| nine.parse().ok())?
}

fn calendar(text: &str) -> Option<Moment> {
    let (date, rest) = text.split_at_checked(10)?;
    let number = |text: &str, range: std::ops::RangeInclusive<i64>| -> Option<i64> {
        let digits = text.bytes().all(|b| b.is_ascii_digit());
        text.parse().ok().filter(|n| digits && range.contains(n))
    };
    let mut parts = date.split('-');
    let (year, month) = (number(parts.next()?, 0..=9999)?, number(parts.next()?, 1..=12)?);
    let day = number(parts.next()?, 1..=crate::show::days_of(year, month))?;
    let rest = rest.strip_prefix([' ', 'T']).unwrap_or(rest);
    let zone = rest.find(['Z', '+', '-']).unwrap_or(rest.len());
    let (clock, zone) = rest.split_at(zone);
    let (clock, fraction) = clock.trim_end().split_once('.').unwrap_or((clock.trim_end(), ""));
    let mut parts = clock.split(':').filter(|p| !p.is_empty());
    let mut next = |most| parts.next().map_or(Some(0), |p| number(p, 0..=most));
    let (hour, minute, second) = (next(23)?, next(59)?, next(60)?);
    if parts.next().is_some() || parts_missing(clock) {
        return None;
    }
    let offset = match zone {
        "" | "Z" => 0,
        zone => {
            let (hours, minutes) = zone[1..].split_once(':')?;
            let east = (number(hours, 0..=14)? * 60 + number(minutes, 0..=59)?) * 60;
            if zone.starts_with('-') { -east } else { east }
        }
    };
    let days = crate::show::days_since_1970(year, month, day);
    Some(Moment(days * 86_400 + hour * 3600 + minute * 60 + second - offset, nanoseconds(fraction)?))
}

/// Hours alone are no time of the day.
fn parts_missing(clock: &str) -> bool {
    !clock.is_empty() && !clock.contains(':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_moments() {
        let at = |text: &str| text.parse::<Moment>().unwrap();
        assert_eq!(stamp("202611210841.07"), Ok(at("2026-11-21 08:41:07")));
        assert_eq!(stamp("2611210841"), Ok(at("2026-11-21 08:41")));
        assert_eq!(stamp("7001010000"), Ok(at("1970-01-01 00:00")));
        let this_year = &crate::show::moment(now(), 0)[..4];
        assert_eq!(stamp("11210841"), Ok(at(&format!("{this_year}-11-21 08:41"))));
        for bad in
            ["", "1121084", "202613210841", "2026112108.4", "202611210841.", "ab11210841", "202611210841.070"]
        {
            assert!(stamp(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn moments_are_understood() {
        for (text, sec, nsec) in [
            ("1970-01-01", 0, 0),
            ("2026-11-21 08:41:01", 1_795_250_461, 0),
            ("2026-11-21T08:41:01.5Z", 1_795_250_461, 500_000_000),
            ("2026-11-21 09:41:01+01:00", 1_795_250_461, 0),
            ("2026-11-21 03:41-05:00", 1_795_250_460, 0),
            ("2000-02-29", 951_782_400, 0),
            ("1969-12-31 23:59:59", -1, 0),
            ("@12.25", 12, 250_000_000),
            ("@-1.25", -2, 750_000_000),
            ("@7", 7, 0),
        ] {
            assert_eq!(text.parse::<Moment>(), Ok(Moment(sec, nsec)), "{text}");
        }
        for bad in [
            "",
            "now",
            "2026-13-01",
            "2026-02-29",
            "2026-11-21 8",
            "2026-11-21 25:00",
            "@x",
            "2026-11-21 08:41+1",
            "@1.x",
        ] {
            assert!(bad.parse::<Moment>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_link_holds_no_locator() {
        assert!(link_text(b"scp:lab:/x").is_err());
        assert_eq!(link_text(b"a:b").unwrap(), b"a:b");
        assert_eq!(link_text(b"/data/x").unwrap(), b"/data/x");
    }
}
