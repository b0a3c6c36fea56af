//! Where a mount may be: an empty directory of the user's own, outside of our own tree, on a machine that lets users
//! mount.

use super::helper::{self, Unmount};
use super::probe::{self, Server};
use super::{blocking, shown};
use crate::{limits, mounts, show};
use home::io_text;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The device through which file systems are served.
const DEVICE: &str = "/dev/fuse";

/// A directory that is ready, or mounted already.
#[derive(Debug)]
pub struct Place {
    /// Its path without symbolic links.
    pub dir: PathBuf,
    /// A living server serves it.
    pub mounted: bool,
    /// A dead mount was taken away from it.
    pub recovered: bool,
}

/// What is at a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// No mount of ours.
    Free,
    /// A mount that a server answers for.
    Alive,
    /// A mount whose server has gone.
    Dead,
}

/// The path without symbolic links. A mount at its end is not looked at, because its server may be dead or hang; what
/// is above it can be.
pub fn canonical(dir: &Path) -> Result<PathBuf, String> {
    let fail = |e: std::io::Error| no_way(dir, &e);
    if !dir.is_absolute() {
        return Err(format!("{}: not an absolute path", shown(dir)));
    }
    let (Some(parent), Some(name)) = (dir.parent(), dir.file_name()) else {
        return dir.canonicalize().map_err(fail);
    };
    let at = parent.canonicalize().map_err(fail)?.join(name);
    if mounts::fuse_points().contains(&at) || !at.symlink_metadata().is_ok_and(|m| m.is_symlink()) {
        return Ok(at);
    }
    at.canonicalize().map_err(fail)
}

/// What is at this directory, whose path has no symbolic links.
pub async fn look(dir: &Path) -> Result<Look, String> {
    if !mounts::fuse_points().iter().any(|point| point == dir) {
        return Ok(Look::Free);
    }
    match probe::ask(dir, limits::LOOK_PATIENCE).await? {
        Server::Alive => Ok(Look::Alive),
        Server::Gone => Ok(Look::Dead),
        Server::Silent => Err(format!(
            "{} does not answer: its server hangs, or was killed and is still held by the kernel. `fusermount3 -uz {}` \
             takes the mount away",
            shown(dir),
            show::path_word(dir)
        )),
    }
}

/// Makes a directory ready to be mounted on, or says what is in the way. `make`: it is made if it does not exist.
pub async fn prepare(dir: &Path, make: bool) -> Result<Place, String> {
    let wanted = dir.to_owned();
    let at = blocking(move || canonical(&wanted)).await?;
    let recovered = match look(&at).await? {
        Look::Alive => return Ok(Place { dir: at, mounted: true, recovered: false }),
        Look::Dead => {
            let gone = helper::unmount(&at, Unmount::Lazy).await;
            gone.map_err(|why| format!("a dead mount cannot be taken away: {why}"))?;
            true
        }
        Look::Free => false,
    };
    blocking(move || ready(at, make, recovered)).await
}

fn ready(dir: PathBuf, make: bool, recovered: bool) -> Result<Place, String> {
    check_machine()?;
    check_surroundings(&dir)?;
    if make {
        // While nothing is mounted there, programs are not to write what would be hidden afterwards.
        let made = std::fs::DirBuilder::new().mode(0o500).create(&dir);
        if let Err(e) = made.or_else(|e| match e.kind() {
            std::io::ErrorKind::AlreadyExists => Ok(()),
            _ => Err(e),
        }) {
            return Err(format!(
                "{}: {e}: choose another directory with `trellis mount DIR`",
                shown(&dir),
                e = io_text(&e)
            ));
        }
    }
    check_directory(&dir)?;
    Ok(Place { dir, mounted: false, recovered })
}

/// Whether users can mount here at all.
fn check_machine() -> Result<(), String> {
    helper::find()?;
    match std::fs::File::options().read(true).write(true).open(DEVICE) {
        Ok(_) => Ok(()),
        Err(e) => Err(device_error(&e)),
    }
}

fn device_error(e: &std::io::Error) -> String {
    let what = match e.kind() {
        std::io::ErrorKind::PermissionDenied => {
            "you may not use it: let the administrator run `chmod 666 /dev/fuse`, or add you to the group that owns it"
        }
        _ => {
            "the kernel offers no FUSE here: let the administrator run `modprobe fuse`; a container needs \
              `--device /dev/fuse`"
        }
    };
    format!("{DEVICE}: {}: {what}", io_text(e))
}

/// The helper's words, with what to do where that is known.
pub fn explained(said: &str) -> String {
    match said {
        s if s.contains("/dev/fuse") => device_error(&std::io::Error::other(s.to_owned())),
        s if s.contains("Operation not permitted") => {
            format!("{s}: this system lets no ordinary user mount (a container without the right to mount?)")
        }
        "" => "fusermount3 ended without a word".into(),
        s => s.into(),
    }
}

/// A mount of our tree inside our tree would be walked into without end.
pub fn check_surroundings(dir: &Path) -> Result<(), String> {
    match mounts::fuse_points().iter().find(|point| dir.starts_with(point)) {
        Some(outer) => Err(format!(
            "{} is inside {}, where the tree is mounted already: choose a directory outside of it",
            shown(dir),
            shown(outer)
        )),
        None => Ok(()),
    }
}

/// Why no directory is found by a path, and what a person can do about it.
fn no_way(dir: &Path, e: &std::io::Error) -> String {
    let advice = match e.kind() {
        std::io::ErrorKind::NotFound => return missing(dir),
        std::io::ErrorKind::PermissionDenied => "choose a directory of your own",
        std::io::ErrorKind::NotADirectory => "a file is on the way there: choose another path",
        _ => "choose another directory",
    };
    format!("{}: {}: {advice}", shown(dir), io_text(e))
}

/// Whether a path leads nowhere: nothing has the name, or a link whose target is missing.
pub fn is_missing(dir: &Path) -> bool {
    let is_none = |e: &std::io::Error| e.kind() == std::io::ErrorKind::NotFound;
    match dir.symlink_metadata() {
        Ok(meta) => meta.is_symlink() && dir.metadata().is_err_and(|e| is_none(&e)),
        Err(e) => is_none(&e),
    }
}

/// What a person can do about a directory that is not there.
pub fn missing(dir: &Path) -> String {
    let mut links = dir.ancestors().filter_map(|at| Some((at, std::fs::read_link(at).ok()?)));
    if let Some((link, target)) = links.find(|(link, _)| is_missing(link)) {
        let made = link.parent().unwrap_or(Path::new("/")).join(&target);
        return format!(
            "{} is a link to {}, which does not exist: make that with `mkdir -p {}`, or choose another directory",
            shown(link),
            shown(&target),
            show::path_word(&made)
        );
    }
    format!("{} does not exist: make it with `mkdir -p {}`", shown(dir), show::path_word(dir))
}

fn check_directory(dir: &Path) -> Result<(), String> {
    let meta = dir.symlink_metadata().map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => missing(dir),
        _ => no_way(dir, &e),
    })?;
    let me = rustix::process::geteuid().as_raw();
    if !meta.is_dir() {
        return Err(format!("{} is not a directory: choose an empty directory of your own", shown(dir)));
    }
    if meta.uid() != me {
        return Err(format!(
            "{} belongs to user {}, not to you ({me}): choose a directory of your own",
            shown(dir),
            meta.uid()
        ));
    }
    let mut entries = std::fs::read_dir(dir).map_err(|e| match e.kind() {
        std::io::ErrorKind::PermissionDenied => {
            format!(
                "{}: you may not look whether it is empty: run `chmod u+rx {}`, or choose another directory",
                shown(dir),
                show::path_word(dir)
            )
        }
        _ => no_way(dir, &e),
    })?;
    match entries.next() {
        Some(_) => Err(format!(
            "{} is not empty, and a mount would hide what is in it: choose an empty directory",
            shown(dir)
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_the_way_is_named() {
        let temp = tempfile::tempdir().unwrap();
        let error = |dir: &Path| check_directory(dir).unwrap_err();
        assert!(error(&temp.path().join("none")).contains("mkdir"));
        std::fs::write(temp.path().join("file"), "").unwrap();
        assert!(error(&temp.path().join("file")).contains("not a directory"));
        assert!(error(temp.path()).contains("not empty"));
        assert!(error(Path::new("/proc/1")).contains("belongs to") || rustix::process::geteuid().is_root());
        std::fs::remove_file(temp.path().join("file")).unwrap();
        assert_eq!(check_directory(temp.path()), Ok(()));
    }

    #[test]
    fn paths_that_lead_nowhere_say_why_and_what_to_do() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().canonicalize().unwrap().join(name);
        std::os::unix::fs::symlink("none", at("dangling")).unwrap();
        std::os::unix::fs::symlink("loop", at("loop")).unwrap();
        std::fs::write(at("file"), "").unwrap();
        let dangling = format!(
            "is a link to none, which does not exist: make that with `mkdir -p {}`",
            at("none").display()
        );
        for (name, said) in [
            ("dangling", &dangling[..]),
            ("dangling/x", &dangling),
            ("none", "none does not exist: make it with `mkdir -p "),
            ("none/x", "none/x does not exist: make it with `mkdir -p "),
            ("file/x", "a file is on the way there: choose another path"),
            ("loop", "choose another directory"),
        ] {
            let why = canonical(&at(name)).and_then(|dir| check_directory(&dir)).unwrap_err();
            assert!(why.contains(said), "{name}: {why}");
        }
        assert!(is_missing(&at("dangling")) && is_missing(&at("none")));
        assert!(!is_missing(&at("file")) && !is_missing(&at("loop")) && !is_missing(temp.path()));
    }

    #[tokio::test]
    async fn symbolic_links_are_followed_once() {
        let temp = tempfile::tempdir().unwrap();
        let real = temp.path().canonicalize().unwrap().join("real");
        std::fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, temp.path().join("link")).unwrap();
        assert_eq!(canonical(&temp.path().join("link")), Ok(real.clone()));
        assert_eq!(canonical(&temp.path().join("link/not yet")), Ok(real.join("not yet")));
        assert!(canonical(Path::new("relative")).is_err());
        assert_eq!(look(&real).await, Ok(Look::Free));
    }

    #[test]
    fn errors_of_the_machine_say_what_to_do() {
        let denied = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        assert!(device_error(&denied).contains("chmod 666 /dev/fuse"));
        assert!(
            explained("fusermount3: fuse device not found, try 'modprobe fuse' /dev/fuse")
                .contains("modprobe")
        );
        assert!(explained("fusermount3: mount failed: Operation not permitted").contains("container"));
        assert!(!explained("").is_empty());
    }
}
