//! `trellis prefetch`: what somebody is going to want is in the cache before he asks.

use super::control::{Server, reach};
use super::output::{check_input, stdout};
use super::reach::Here;
use super::{Done, Failure, StateArg, complain};
use crate::control::client::unexpected;
use crate::control::prefetch::PrefetchReport;
use crate::control::proto::{Raw, Reply, Request};
use crate::tree::copy::progress::Progress;
use crate::{limits, show};
use clap::Args;
use serde::Serialize;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Arguments of `prefetch`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trellis prefetch ann@lab/data/set               files with all their bytes, directories with all that is in them
  trellis prefetch --metadata ann@lab/src         names and attributes alone: for find, ls -lR, make
  trellis prefetch --list inputs.txt              one path in each line
  find -name '*.h' -print0 | trellis prefetch -0 --list -

Whatever programs ask for meanwhile goes first. What is in the cache and still true is not fetched again. Nothing goes
out of the cache for it that is unsent, or was used in the last hour: where no room is left it ends and says so. Symbolic links are
followed in a path that is named, and not below it.")]
pub struct PrefetchArgs {
    #[command(flatten)]
    state: StateArg,

    /// Names and attributes only, no content
    #[arg(long)]
    metadata: bool,

    /// More paths: one in each line of this file, - is standard input
    #[arg(long, value_name = "FILE")]
    list: Option<OsString>,

    /// Paths in the list end with a zero byte, not with a line
    #[arg(short = '0', long, requires = "list")]
    null: bool,

    /// Print JSON: what was done; docs/STATUS.md lists the fields
    #[arg(long)]
    json: bool,

    /// Show how far it is where standard error is no terminal
    #[arg(long)]
    progress: bool,

    /// Directories and files, as `trellis ls` takes them
    #[arg(required_unless_present = "list")]
    path: Vec<OsString>,
}

/// What was done, for programs.
#[derive(Serialize)]
struct Summary {
    directories: u64,
    names: u64,
    files: u64,
    bytes: u64,
    files_found: u64,
    bytes_found: u64,
    fetched: u64,
    failed: Vec<Missed>,
    more_failed: u64,
    full: Option<String>,
}

#[derive(Serialize)]
struct Missed {
    path: Raw,
    why: String,
}

type Lines = Box<dyn BufRead + Send>;

/// Paths as they were typed, then those of the list.
struct Paths {
    typed: std::vec::IntoIter<OsString>,
    list: Option<Lines>,
    end: u8,
}

struct Run {
    server: Server,
    here: Here,
    metadata: bool,
    progress: Progress,
    missed: Vec<Missed>,
    more_missed: u64,
    last: PrefetchReport,
}

pub(super) async fn prefetch(args: PrefetchArgs) -> Done {
    let list: Option<Lines> = match &args.list {
        None => None,
        Some(name) if name == "-" => {
            check_input().map_err(|e| format!("standard input: {e}"))?;
            Some(Box::new(BufReader::new(std::io::stdin())))
        }
        Some(name) => {
            let file = std::fs::File::open(name);
            let file = file.map_err(|e| format!("{}: {}", show::text(name.as_bytes()), home::io_text(&e)))?;
            Some(Box::new(BufReader::new(file)))
        }
    };
    let end = if args.null { 0 } else { b'\n' };
    let mut server = reach(&args.state).await?;
    let mut run = Run {
        here: Here::of_any(&mut server).await?,
        server,
        metadata: args.metadata,
        progress: Progress::new(args.progress),
        missed: Vec::new(),
        more_missed: 0,
        last: PrefetchReport::default(),
    };
    let done = tokio::select! {
        done = run.all(Paths { typed: args.path.into_iter(), list, end }) => done,
        _ = tokio::signal::ctrl_c() => {
            run.progress.clear();
            let text = format!("interrupted; {}: run the same command again to go on", run.sum());
            return Err(Failure::Interrupted(text));
        }
    };
    done?;
    run.end(args.json)
}

/// Some of the paths, as they were written; none at the end. A list may come slowly.
async fn next(mut paths: Paths) -> Result<(Paths, Vec<OsString>), Failure> {
    let work = tokio::task::spawn_blocking(move || {
        let some = paths.some()?;
        Ok((paths, some))
    });
    work.await.map_err(|e| e.to_string())?
}

impl Paths {
    fn some(&mut self) -> Result<Vec<OsString>, Failure> {
        let mut some: Vec<OsString> = self.typed.by_ref().take(limits::PREFETCH_LINES).collect();
        let Some(list) = &mut self.list else { return Ok(some) };
        while some.len() < limits::PREFETCH_LINES {
            let mut line = Vec::new();
            let read = list.take(limits::PREFETCH_LINE).read_until(self.end, &mut line);
            let read = read.map_err(|e| format!("the list of paths: {}", home::io_text(&e)))?;
            if read == 0 {
                break;
            }
            if line.last() == Some(&self.end) {
                line.pop();
            } else if read as u64 == limits::PREFETCH_LINE {
                let text = "the list of paths: a line is longer than any path: is it another kind of file?";
                return Err(Failure::Usage(text.into()));
            }
            if !line.is_empty() {
                some.push(OsString::from_vec(line));
            }
        }
        Ok(some)
    }
}

impl Run {
    async fn all(&mut self, mut paths: Paths) -> Done {
        let mut more = true;
        loop {
            if more && self.last.waiting < limits::PREFETCH_LINES {
                let some;
                (paths, some) = next(paths).await?;
                more = !some.is_empty();
                let some = self.mapped(some);
                let request = Request::Prefetch { paths: some, names_only: self.metadata };
                match self.server.client.ask(request).await? {
                    Reply::Done => {}
                    _ => return Err(unexpected().into()),
                }
            }
            let Reply::Prefetched(report) = self.server.client.ask(Request::Prefetched).await? else {
                return Err(unexpected().into());
            };
            self.take(*report);
            if self.last.over && (!more || self.last.full.is_some()) {
                return Ok(());
            }
        }
    }

    /// Paths from the root of the tree. One that cannot be such a path keeps no other from being fetched.
    fn mapped(&mut self, paths: Vec<OsString>) -> Vec<Raw> {
        let mut mapped = Vec::new();
        for path in paths {
            match self.here.tree_path(path.as_bytes()) {
                Ok(path) => mapped.push(Raw(path)),
                Err(Failure::Usage(why) | Failure::Failed(Some(why))) => {
                    self.missed(Raw(path.as_bytes().to_vec()), why);
                }
                Err(_) => self.missed(Raw(path.as_bytes().to_vec()), "is no path of the tree".into()),
            }
        }
        mapped
    }

    fn missed(&mut self, path: Raw, why: String) {
        self.progress.clear();
        let shown = show::text(&path.0);
        let line = if why.contains(&shown) { why.clone() } else { format!("{shown}: {why}") };
        complain(&show::message(&line));
        match self.missed.len() < limits::PREFETCH_MISSED {
            true => self.missed.push(Missed { path, why }),
            false => self.more_missed += 1,
        }
    }

    fn take(&mut self, mut report: PrefetchReport) {
        for (path, why) in std::mem::take(&mut report.failed) {
            self.missed(path, why);
        }
        self.last = report;
        match self.metadata {
            true => self.progress.line(&self.sum(), &self.last.last.0),
            false => {
                self.progress.now(self.last.files, self.last.bytes, self.last.fetched, &self.last.last.0)
            }
        }
    }

    fn sum(&self) -> String {
        let r = &self.last;
        let dirs = format!("{} in {} directories", show::count(r.names, "name"), r.directories);
        match self.metadata {
            true => dirs,
            false => format!(
                "{} of {} with {} in the cache, {} of it new",
                r.files.1,
                show::count(r.files.0, "file"),
                show::size(r.bytes.1),
                show::size(r.fetched)
            ),
        }
    }

    fn end(mut self, json: bool) -> Done {
        self.progress.end();
        let r = &self.last;
        let more_failed = self.more_missed + r.more_failed;
        let failed = more_failed > 0 || !self.missed.is_empty();
        let full = r.full.clone();
        if json {
            let summary = Summary {
                directories: r.directories,
                names: r.names,
                files: r.files.1,
                bytes: r.bytes.1,
                files_found: r.files.0,
                bytes_found: r.bytes.0,
                fetched: r.fetched,
                failed: self.missed,
                more_failed,
                full: r.full.clone(),
            };
            let text = serde_json::to_string(&summary).map_err(|e| e.to_string())? + "\n";
            stdout().write_all(text.as_bytes())?;
        } else {
            writeln!(stdout(), "{}", self.sum())?;
        }
        if more_failed > 0 {
            complain(&format!("{} more could not be had", show::count(more_failed, "path")));
        }
        match full {
            Some(why) => {
                let advice = "fetch less, or give the server a larger cache (`cache` in its configuration)";
                Err(format!("{}: {advice}", show::message(&why)).into())
            }
            None if failed => Err(Failure::Failed(None)),
            None => Ok(()),
        }
    }
}
