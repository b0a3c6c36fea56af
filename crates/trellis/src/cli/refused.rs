//! What to do about changes that a home refused: `retry`, `export`, `discard`.

use super::control::{By, Server, reach};
use super::output::stdout;
use super::reach::tree_path;
use super::transfer::{interruptible, shared};
use super::{Done, Failure, StateArg, named};
use crate::control::client::{Client, unexpected};
use crate::control::proto::{Raw, Reply, Request};
use crate::control::report::ParkedReport;
use crate::limits;
use crate::options::Seconds;
use crate::serve::unsent_line;
use crate::show;
use crate::tree::copy::{Copy, Goal, Manner, Trouble};
use crate::tree::served::{Served, node};
use crate::tree::{Attr, Node, Tree, follow, list_all, local};
use clap::Args;
use home::io_text;
use home::{Error, ErrorKind};
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;

/// Arguments of `retry`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trellis retry                       everything that any home refused
  trellis retry ann@lab               what that home refused

It ends when all that was refused is at its home (exit code 0) or was refused again (1). What is refused for want of
space or permission is tried again every half minute without being asked.")]
pub struct RetryArgs {
    #[command(flatten)]
    state: StateArg,

    /// Only the home that this path belongs to
    path: Option<OsString>,

    /// Longest wait [default: 10m]
    #[arg(long, value_name = "S")]
    timeout: Option<Seconds>,
}

/// Arguments of `export`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trellis export saved                what waits here of the one home that has refused something
  trellis export saved ann@lab        of this one: saved/data/x is what ann@lab/data/x is here

Files, directories and symbolic links whose changes wait because the home refused one are copied as they are here,
with times and permission bits. Directories on the way there of which no change waits are made for you alone (0700).
Nothing is taken back: `trellis discard` does that.")]
pub struct ExportArgs {
    #[command(flatten)]
    state: StateArg,

    /// A new or empty directory of this machine
    #[arg(value_name = "DIR")]
    into: OsString,

    /// The home, or any path of it [default: the only one that has refused something]
    path: Option<OsString>,
}

/// Arguments of `discard`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trellis status                      shows the numbers
  trellis discard ann@lab 17 18
  trellis discard ann@lab --all

What is given up is printed, with what means nothing without it: later writes to the same file, and what was done in
a directory that is not made now. The tree shows what the home has again. `trellis export` saves the files first.")]
pub struct DiscardArgs {
    #[command(flatten)]
    state: StateArg,

    /// The home, or any path of it
    path: OsString,

    /// Numbers of refused changes
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    numbers: Vec<u64>,

    /// All that the home refused
    #[arg(long)]
    all: bool,

    /// Print JSON: a list as `parked` of `trellis status --json`
    #[arg(long)]
    json: bool,
}

pub(super) async fn retry(args: RetryArgs) -> Done {
    let mut server = reach(&args.state).await?;
    let path = match &args.path {
        Some(path) => Some(Raw(tree_path(&mut server, path).await?)),
        None => None,
    };
    let Server { mut client, by } = server;
    let of_path = |e: Error| args.path.as_ref().map_or_else(|| e.clone().into(), |p| named(p.as_bytes(), &e));
    let Reply::Count(refused) = client.ask(Request::Retry(path.clone())).await.map_err(of_path)? else {
        return Err(unexpected().into());
    };
    if refused == 0 {
        return Ok(writeln!(stdout(), "no home has refused anything")?);
    }
    let timeout_s = args.timeout.map_or(limits::SYNC_TIMEOUT, |t| t.0).as_secs_f64();
    match super::waiting::sync(&mut client, &by, path, timeout_s).await? {
        Reply::Done => Ok(()),
        Reply::Unsent(unsent) => {
            unsent.iter().for_each(|home| super::complain(&unsent_line(home)));
            let advice = "`trellis export` saves the files, `trellis discard` gives the changes up";
            Err(format!("not everything is at its home; {advice}").into())
        }
        _ => Err(unexpected().into()),
    }
}

pub(super) async fn discard(args: DiscardArgs) -> Done {
    let mut server = reach(&args.state).await?;
    let path = Raw(tree_path(&mut server, &args.path).await?);
    let mut client = server.client;
    let numbers = (!args.all).then_some(args.numbers);
    let given_up = match client.ask(Request::Discard { path, numbers }).await {
        Ok(Reply::Refused(given_up)) => given_up,
        Ok(_) => return Err(unexpected().into()),
        Err(e) => return Err(named(args.path.as_bytes(), &e)),
    };
    if args.json {
        return super::json::line(&given_up);
    }
    Ok(stdout().write_all(told(&given_up).as_bytes())?)
}

/// A line for each thing that was given up; writes to one file are one.
fn told(given_up: &[ParkedReport]) -> String {
    let mut lines: Vec<(&ParkedReport, u64)> = Vec::new();
    for one in given_up {
        match lines.iter_mut().find(|(first, _)| first.what == one.what) {
            Some((_, count)) => *count += one.count,
            None => lines.push((one, one.count)),
        }
    }
    let line = |(first, count): (&ParkedReport, u64)| {
        let more = if count > 1 { format!(", and {} more like it", count - 1) } else { String::new() };
        format!("given up: {} {}{more}\n", first.seq, show::message(&first.what))
    };
    lines.into_iter().map(line).collect()
}

/// The home that has refused something, where only one has.
async fn the_one_that_refused(client: &mut Client) -> Result<OsString, Failure> {
    let Reply::Status(report) = client.ask(Request::Status).await? else { return Err(unexpected().into()) };
    let refused = report.homes.iter().filter(|home| home.refused() > 0);
    let names: Vec<&str> = refused.filter_map(|home| home.names.first()).map(String::as_str).collect();
    match &names[..] {
        [] => Err("no home has refused anything".to_owned().into()),
        [name] => Ok(name.into()),
        several => {
            let several: Vec<_> = several.iter().map(|name| show::message(name)).collect();
            Err(format!("name one of the homes that have refused something: {}", several.join(", ")).into())
        }
    }
}

pub(super) async fn export(args: ExportArgs) -> Done {
    let mut server = reach(&args.state).await?;
    let of = match args.path {
        Some(path) => path,
        None => the_one_that_refused(&mut server.client).await?,
    };
    let path = Raw(tree_path(&mut server, &of).await?);
    let Server { client, by } = server;
    let By::Here(state) = by else {
        return Err("the server is on another machine: run this there".to_owned().into());
    };
    let mut here = local::Local::default();
    let top = new_directory(&mut here, args.into.as_bytes()).await?;
    let manner = Manner { preserve: true, force: true, umask: super::reach::umask(), ..Manner::default() };
    let shared = shared(manner, None, false);
    let served: Box<dyn Tree> = Box::new(Served::new(client, state.clone()));
    let mut copy = Copy::new(vec![served], Box::new(here), shared.clone());
    let work = async {
        let mut client = Client::connect(&state).await?.ok_or_else(|| "the server has ended".to_owned())?;
        let (mut after, mut seen, mut found) = (Some(0), HashSet::new(), 0);
        let mut dirs = Vec::new();
        while let Some(from) = after {
            let request = Request::Held { path: path.clone(), after: from };
            let (objects, next) = match client.ask(request).await {
                Ok(Reply::Held { objects, next }) => (objects, next),
                Ok(_) => return Err(unexpected().into()),
                Err(e) => return Err(named(of.as_bytes(), &e)),
            };
            for (path, object) in objects.into_iter().filter(|(path, _)| seen.insert(path.0.clone())) {
                found += 1;
                match one(&mut copy, &top, &path.0, &node(object)).await {
                    Ok(dir) => dirs.extend(dir),
                    Err(e) => shared.not_copied(&path.0, &e),
                }
            }
            after = next;
        }
        finish(copy, dirs).await;
        match (shared.failed(), found) {
            (true, _) => Err(Failure::Failed(None)),
            (_, 0) => Err(format!("{}: this home has refused nothing", show::text(of.as_bytes())).into()),
            _ => Ok(()),
        }
    };
    interruptible(work, &shared).await
}

/// The directory, which is made if need be and must be empty, so that nothing there is overwritten.
async fn new_directory(here: &mut local::Local, path: &[u8]) -> Result<Node, Failure> {
    let fail = |e: &Error| named(path, e);
    match std::fs::create_dir(OsStr::from_bytes(path)) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(format!("{}: {e}", show::text(path), e = io_text(&e)).into());
        }
        _ => {}
    }
    let dir = follow(here, path).await.map_err(|e| fail(&e))?;
    if !dir.attr.is_dir() || !list_all(here, &dir).await.map_err(|e| fail(&e))?.is_empty() {
        return Err(fail(&Error::new(ErrorKind::NotEmpty, "is there: name a new or empty directory")));
    }
    Ok(dir)
}

/// A directory that was made, the attributes that it is to have, and its path.
type Made = (Node, Attr, Vec<u8>);

/// Copies an object to its path below `top`; answers a directory, which gets its attributes when all is in it.
async fn one(copy: &mut Copy, top: &Node, path: &[u8], node: &Node) -> Result<Option<Made>, Trouble> {
    let mut names: Vec<&[u8]> = path.split(|b| *b == b'/').filter(|name| !name.is_empty()).collect();
    let name = if node.attr.is_dir() { None } else { names.pop() };
    let mut dir = top.clone();
    for name in names {
        dir = match copy.target().lookup(&dir, name).await {
            Err(e) if e.kind == ErrorKind::NotFound => copy.target().mkdir(&dir, name, 0o700).await?,
            found => found?,
        };
    }
    match name {
        Some(name) => {
            copy.object(0, node, Goal { dir: &dir, name, path, there: None }, path).await.map(|()| None)
        }
        None => Ok(Some((dir, node.attr, path.to_vec()))),
    }
}

/// Waits until all is copied. Directories were told in the order of their changes.
async fn finish(mut copy: Copy, mut dirs: Vec<Made>) {
    dirs.sort_by(|(.., a), (.., b)| a.cmp(b));
    dirs.into_iter().for_each(|(dir, attr, path)| copy.finish_like(dir, &attr, &path));
    copy.finish().await;
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn writes_to_one_file_are_one_line() {
        let one = |seq, what: &str, count| {
            let json = serde_json::json!({"seq": seq, "what": what, "why": "", "count": count});
            serde_json::from_value::<ParkedReport>(json).unwrap()
        };
        let all = [one(3, "write to a", 1), one(4, "write to b", 1), one(5, "write to a", 2)];
        assert_eq!(told(&all), "given up: 3 write to a, and 2 more like it\ngiven up: 4 write to b\n");
    }

    /// Also where nobody may write to them, and what is in one is told later.
    #[tokio::test]
    async fn directories_are_exported_with_their_modes_and_times() {
        let tmp = tempfile::tempdir().unwrap();
        let (from, into) = (tmp.path().join("from"), tmp.path().join("into"));
        std::fs::create_dir_all(from.join("a/b")).unwrap();
        std::fs::create_dir(&into).unwrap();
        std::fs::write(from.join("a/f"), b"1").unwrap();
        let old = UNIX_EPOCH + Duration::new(978_307_200, 7);
        for (dir, mode) in [("a/b", 0o755), ("a", 0o555)] {
            std::fs::File::open(from.join(dir)).unwrap().set_modified(old).unwrap();
            std::fs::set_permissions(from.join(dir), PermissionsExt::from_mode(mode)).unwrap();
        }
        let manner = Manner { preserve: true, force: true, ..Manner::default() };
        let here = || Box::new(local::Local::default());
        let mut copy = Copy::new(vec![here()], here(), shared(manner, None, false));
        let top = follow(&mut *here(), into.as_os_str().as_bytes()).await.unwrap();
        let mut dirs = Vec::new();
        for path in ["a/b", "a", "a/f"] {
            let node = follow(&mut *here(), from.join(path).as_os_str().as_bytes()).await.unwrap();
            dirs.extend(one(&mut copy, &top, path.as_bytes(), &node).await.unwrap());
        }
        finish(copy, dirs).await;
        for (dir, mode) in [("a", 0o555), ("a/b", 0o755)] {
            let made = std::fs::metadata(into.join(dir)).unwrap();
            let seen = (made.mode() & 0o7777, made.mtime(), made.mtime_nsec());
            assert_eq!(seen, (mode, 978_307_200, 7), "{dir}");
        }
        assert_eq!(std::fs::read(into.join("a/f")).unwrap(), b"1");
        for dir in [&from, &into] {
            std::fs::set_permissions(dir.join("a"), PermissionsExt::from_mode(0o755)).unwrap();
        }
    }
}
