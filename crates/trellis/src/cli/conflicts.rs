//! `trellis conflicts`: both sides changed something, and both are kept until a person decides.

use super::control::{Server, reach};
use super::output::stdout;
use super::reach::tree_path;
use super::{Done, Failure, StateArg, named};
use crate::control::client::unexpected;
use crate::control::proto::{Keep, Raw, Reply, Request, Settled};
use crate::control::report::{ConflictReport, Side};
use crate::{advice, show};
use clap::{Args, Subcommand, ValueEnum};
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;

/// Arguments of `conflicts`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  trellis conflicts                           all that are not settled
  trellis conflicts show ann@lab/data/x       both sides, and how to compare them
  trellis conflicts resolve --keep mine ann@lab/data/x
  trellis conflicts resolve --keep both --as x.old ann@lab/data/x

Where a file was changed here and at its home at the same time, the home's keeps the name and ours becomes a copy
beside it, NAME.trellis-conflict-… . A conflict is settled when the copy has another name or is removed, by this
command or any other. For folders the configuration may say otherwise (`conflicts`): prefer-local makes theirs the
copy, …-theirs; stop holds ours and all later work in the folder back until it is settled here, by the file's path;
strict-last-writer writes ours over theirs; append-merge puts what was added to a file behind what the home added.
Where a stopped change cannot be settled as it was said, what was done is told, and the exit code is 1: a directory is
never replaced by a file, nor a file by a directory, and of a removal there is no copy."
)]
pub struct ConflictsArgs {
    #[command(subcommand)]
    action: Option<Action>,

    #[command(flatten)]
    list: ListArgs,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the conflicts that are not settled (the same as no command)
    List(ListArgs),
    /// Show both sides of a conflict
    Show(ShowArgs),
    /// Settle conflicts
    Resolve(ResolveArgs),
}

#[derive(Debug, Args)]
struct ListArgs {
    #[command(flatten)]
    state: StateArg,

    /// Print JSON: a list of objects; docs/STATUS.md lists the fields
    #[arg(long)]
    json: bool,

    /// Only the home that this path belongs to
    path: Option<OsString>,
}

#[derive(Debug, Args)]
struct ShowArgs {
    #[command(flatten)]
    state: StateArg,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// The copy, or what it is a copy of
    path: OsString,
}

#[derive(Debug, Args)]
struct ResolveArgs {
    #[command(flatten)]
    state: StateArg,

    /// Which side is kept
    #[arg(long, value_name = "SIDE")]
    keep: Side3,

    /// With --keep both: the name of the copy from now on [default: NAME.mine, or the next that is free]
    #[arg(long = "as", value_name = "NAME")]
    name: Option<OsString>,

    /// The copies, or what they are copies of
    #[arg(required = true)]
    paths: Vec<OsString>,
}

/// A side of a conflict, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Side3 {
    /// What was changed here takes its name back; the home's version is replaced
    Mine,
    /// What the home has; the copy is removed
    Theirs,
    /// The copy gets an ordinary name
    Both,
}

pub(super) async fn conflicts(args: ConflictsArgs) -> Done {
    match args.action {
        None => list(args.list).await,
        Some(Action::List(list_args)) => list(list_args).await,
        Some(Action::Show(show_args)) => show_one(show_args).await,
        Some(Action::Resolve(resolve_args)) => resolve(resolve_args).await,
    }
}

async fn ask(server: &mut Server, path: Option<&OsStr>) -> Result<Vec<ConflictReport>, Failure> {
    let tree = match path {
        Some(path) => Some(Raw(tree_path(server, path).await?)),
        None => None,
    };
    match server.client.ask(Request::Conflicts(tree)).await {
        Ok(Reply::Conflicts(found)) => Ok(found),
        Ok(_) => Err(unexpected().into()),
        Err(e) => Err(path.map_or_else(|| e.clone().into(), |path| named(path.as_bytes(), &e))),
    }
}

async fn list(args: ListArgs) -> Done {
    let mut server = reach(&args.state).await?;
    let found = ask(&mut server, args.path.as_deref()).await?;
    let text = match args.json {
        true => serde_json::to_string(&found).map_err(|e| e.to_string())? + "\n",
        false => table(&found),
    };
    Ok(stdout().write_all(text.as_bytes())?)
}

fn table(found: &[ConflictReport]) -> String {
    if found.is_empty() {
        return "no conflict is left to be settled\n".into();
    }
    let size = |side: &Option<Side>, gone: bool| match side {
        Some(side) => show::size(side.size),
        None if gone => "gone".into(),
        None => "?".into(),
    };
    let mut rows = vec![["WRITTEN HERE", "MINE", "THEIRS", "COPY"].map(str::to_owned).to_vec()];
    rows.extend(found.iter().map(|c| {
        let written = show::moment(c.written, 0)[..16].to_owned();
        let at = show::text(&c.copy.0) + if c.stopped { " (stopped)" } else { "" };
        let (mine_gone, theirs_gone) = (c.gone && c.theirs_is_copy, c.gone && !c.theirs_is_copy);
        vec![written, size(&c.mine, mine_gone), size(&c.theirs, theirs_gone), at]
    }));
    let advice = "`trellis conflicts show COPY` tells more, `trellis conflicts resolve` settles\n";
    show::table(&rows) + &advice::complete(advice)
}

async fn show_one(args: ShowArgs) -> Done {
    let mut server = reach(&args.state).await?;
    let wanted = tree_path(&mut server, &args.path).await?;
    // The home's own name, because the last part may not be there.
    let (above, name) = crate::tree::split(&wanted);
    let all = ask(&mut server, Some(OsStr::from_bytes(&above))).await?;
    let last = |path: &Raw| crate::tree::split(&path.0).1;
    let is_it = |c: &&ConflictReport| {
        c.copy.0 == wanted
            || c.original.as_ref().is_some_and(|o| o.0 == wanted)
            || crate::tree::split(&c.copy.0).0 == above && last(&c.copy) == name
    };
    let found: Vec<&ConflictReport> = all.iter().filter(is_it).collect();
    if found.is_empty() {
        let shown = show::text(args.path.as_bytes());
        return Err(format!("{shown}: no conflict is known here: `trellis conflicts` lists them").into());
    }
    let text = match args.json {
        true => serde_json::to_string(&found).map_err(|e| e.to_string())? + "\n",
        false => found.iter().map(|c| both_sides(c)).collect::<Vec<_>>().join("\n"),
    };
    Ok(stdout().write_all(text.as_bytes())?)
}

/// Both sides of a conflict, and what a person can do.
fn both_sides(c: &ConflictReport) -> String {
    let mut out = String::new();
    let facts = |side: &Option<Side>, gone: bool| match side {
        Some(s) => format!(
            "{}, {}, owner {}, changed {}",
            show::mode(s.kind, s.mode),
            show::count(s.size, "byte"),
            s.uid,
            &show::moment(s.mtime.0, s.mtime.1)[..19]
        ),
        None if gone => "not there any more".into(),
        None => "not known: the home does not tell".into(),
    };
    let (mine_gone, theirs_gone) = (c.gone && c.theirs_is_copy, c.gone && !c.theirs_is_copy);
    let original = c.original.as_ref().map(|o| show::text(&o.0));
    let _ = writeln!(out, "{}", original.as_deref().unwrap_or("of a name that was cut"));
    let theirs = match c.stopped {
        true => "at the home, where alone it can be seen".into(),
        false => facts(&c.theirs, theirs_gone),
    };
    let _ = writeln!(out, "  theirs   {theirs}");
    let _ = writeln!(out, "  mine     {}", facts(&c.mine, mine_gone));
    let _ = match c.stopped {
        true => writeln!(out, "  stopped  with all later work in its folder, until it is settled"),
        false => writeln!(out, "  copy     {}", show::text(&c.copy.0)),
    };
    let _ = writeln!(
        out,
        "  written  {} UTC here, for {}",
        &show::moment(c.written, 0)[..19],
        show::text(c.account.as_bytes())
    );
    let (copy, added) = (show::word(&c.copy.0), advice::addition());
    if let Some(original) = c.original.as_ref().filter(|_| !c.gone && !c.stopped) {
        let original = show::word(&original.0);
        let _ =
            writeln!(out, "  compare  diff <(trellis cat {original}{added}) <(trellis cat {copy}{added})");
    }
    let _ = writeln!(out, "  settle   trellis conflicts resolve --keep mine|theirs|both {copy}{added}");
    out
}

async fn resolve(args: ResolveArgs) -> Done {
    let name = args.name.as_ref().map(|n| Raw::from(n.as_bytes()));
    if name.is_some() && (args.keep != Side3::Both || args.paths.len() > 1) {
        return Err(Failure::Usage("--as is for --keep both, and one path".into()));
    }
    let mut server = reach(&args.state).await?;
    let mut each = super::reach::Each::new();
    for path in &args.paths {
        let keep = match args.keep {
            Side3::Mine => Keep::Mine,
            Side3::Theirs => Keep::Theirs,
            Side3::Both => Keep::Both(name.clone()),
        };
        let done = settle(&mut server, path, keep).await;
        each.note(path.as_bytes(), done)?;
    }
    each.end()
}

async fn settle(server: &mut Server, path: &OsStr, keep: Keep) -> Done {
    let tree = Raw(tree_path(server, path).await?);
    let settled = match server.client.ask(Request::Settle { path: tree, keep: keep.clone() }).await? {
        Reply::Settled(settled) => settled,
        _ => return Err(unexpected().into()),
    };
    let text = said_of(&keep, &settled)?;
    Ok(stdout().write_all(text.as_bytes())?)
}

/// What a person is told of what was done; an error where that is not what was wanted.
fn said_of(keep: &Keep, settled: &Settled) -> Result<String, String> {
    match (keep, settled) {
        (_, Settled::Mine(kept)) => Ok(format!("mine is {} now\n", show::text(&kept.0))),
        (_, Settled::One) => Ok("only one side is kept\n".to_owned()),
        (_, Settled::Removed) => Ok("it is removed at the home, too\n".to_owned()),
        (Keep::Theirs, Settled::Theirs) => Ok("what the home has stays; mine is given up\n".to_owned()),
        (Keep::Both(_), Settled::Both(copy)) => {
            Ok(format!("both are kept: mine is {} now\n", show::text(&copy.0)))
        }
        (Keep::Both(_), Settled::Theirs) => {
            Err("what the home has stays, and mine, of which there is nothing to \
            keep beside it, is given up"
                .to_owned())
        }
        (Keep::Mine, Settled::Theirs) => {
            Err("what the home has stays, and mine is given up: nothing of a directory \
            goes that was not seen here"
                .to_owned())
        }
        (_, Settled::Both(copy)) => Err(format!(
            "theirs keeps the name, because neither a directory nor a file that a program has open there is \
             replaced; mine is {} now",
            show::text(&copy.0)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conflict() -> ConflictReport {
        let side = |size| Side { kind: '-', size, uid: 7, mode: 0o640, mtime: (75, 0) };
        ConflictReport {
            account: "ann@lab:22".into(),
            copy: Raw(b"/lab/my x.trellis-conflict-00000007-60-9".to_vec()),
            original: Some(Raw(b"/lab/my x".to_vec())),
            written: 60,
            mine: Some(side(1)),
            theirs: Some(side(2048)),
            gone: false,
            theirs_is_copy: false,
            stopped: false,
        }
    }

    #[test]
    fn what_is_said_is_what_was_done() {
        let at = || Raw(b"/lab/x".to_vec());
        let both = Keep::Both(None);
        let said = |keep: &Keep, settled| said_of(keep, &settled).unwrap();
        assert!(said(&Keep::Mine, Settled::Mine(at())).starts_with("mine is /lab/x"));
        assert!(said(&Keep::Mine, Settled::Removed).contains("removed at the home"));
        assert!(said(&both, Settled::Both(at())).starts_with("both are kept: mine is /lab/x"));
        assert!(said(&Keep::Theirs, Settled::Theirs).contains("what the home has stays"));
        let failed = |keep: &Keep, settled| said_of(keep, &settled).unwrap_err();
        assert!(failed(&Keep::Mine, Settled::Both(at())).contains("mine is /lab/x now"));
        assert!(failed(&Keep::Mine, Settled::Theirs).contains("given up"));
        assert!(failed(&both, Settled::Theirs).contains("nothing to keep beside it"));
    }

    #[test]
    fn what_is_stopped_has_no_copy() {
        let stopped = ConflictReport { theirs: None, stopped: true, ..conflict() };
        let text = both_sides(&stopped);
        assert!(text.contains("stopped  with all later work") && !text.contains("diff"), "{text}");
        assert!(table(&[stopped]).contains("-9 (stopped)"));
        let theirs = ConflictReport { theirs_is_copy: true, mine: None, gone: true, ..conflict() };
        assert!(both_sides(&theirs).contains("mine     not there any more"));
    }

    #[test]
    fn both_sides_are_shown_with_what_to_do() {
        let text = both_sides(&conflict());
        for part in [
            "theirs   -rw-r-----, 2048 bytes, owner 7, changed 1970-01-01 00:01:15",
            "mine     -rw-r-----, 1 byte,",
            "written  1970-01-01 00:01:00 UTC here, for ann@lab:22",
            "diff <(trellis cat '/lab/my x') <(trellis cat '/lab/my x.trellis-conflict-00000007-60-9')",
            "resolve --keep mine|theirs|both '/lab/my x.",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        let gone = both_sides(&ConflictReport { theirs: None, gone: true, ..conflict() });
        assert!(gone.contains("theirs   not there any more") && !gone.contains("diff"), "{gone}");
    }

    #[test]
    fn the_list_has_a_line_for_each() {
        let text = table(&[conflict(), ConflictReport { theirs: None, ..conflict() }]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].starts_with("1970-01-01 00:01  1 B   2.0 KiB"), "{text}");
        assert!(lines[2].contains(" ? "), "{text}");
        assert!(table(&[]).starts_with("no conflict"));
    }
}
