//! `trellis mode`: another promise for a home, while the server runs.

use super::control::reach;
use super::reach::tree_path;
use super::{Done, Failure, StateArg, named};
use crate::control::client::unexpected;
use crate::control::proto::{Raw, Reply, Request};
use crate::options::ModeName;
use crate::show;
use clap::Args;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// Arguments of `mode`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trellis mode ann@lab offline        serve what is known, keep what is changed, leave the home alone
  trellis mode ann@lab wb             go on, and send it

It lasts until the server ends; the configuration says what holds after that, and what holds in single folders.
`trellis status` shows the modes. strict is for the configuration alone.")]
pub struct ModeArgs {
    #[command(flatten)]
    state: StateArg,

    /// The home: its name in the tree, or scp:[user@]host:
    path: OsString,

    /// Its mode as a whole
    mode: ModeName,
}

pub(super) async fn mode(args: ModeArgs) -> Done {
    let mut server = reach(&args.state).await?;
    let path = tree_path(&mut server, &args.path).await?;
    check_whole(args.path.as_bytes(), &path)?;
    let path = Raw(path);
    let mode = vfs::Mode::from(args.mode).to_string();
    match server.client.ask(Request::Mode { path, mode }).await {
        Ok(Reply::Done) => Ok(()),
        Ok(_) => Err(unexpected().into()),
        Err(e) => Err(named(args.path.as_bytes(), &e)),
    }
}

/// Refuses a folder of a home: a home is changed as a whole, and who names a folder does not mean that.
fn check_whole(typed: &[u8], path: &[u8]) -> Done {
    let mut parts = path.split(|b| *b == b'/').filter(|part| !part.is_empty() && *part != b".");
    let home = parts.next().unwrap_or_default();
    match parts.next() {
        None => Ok(()),
        Some(_) => Err(Failure::Usage(format!(
            "{}: is in a home, which changes only as a whole: name the home, `{}`. A folder of it gets a mode of its own \
             by `modes` in the configuration",
            show::text(typed),
            show::text(home)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_does_not_stand_for_its_home() {
        for path in ["/ann@lab", "/ann@lab/", "/scp:lab:.", "/ann@lab/."] {
            assert!(check_whole(path.as_bytes(), path.as_bytes()).is_ok(), "{path}");
        }
        for path in ["/ann@lab/data", "/scp:lab:./data", "/ann@lab/.."] {
            let why = check_whole(path.as_bytes(), path.as_bytes()).unwrap_err();
            assert!(
                matches!(&why, Failure::Usage(text) if text.contains("configuration")),
                "{path}: {why:?}"
            );
        }
    }
}
