//! The folder of our masters' sockets: found alike by server and commands, whatever their environment says.
//!
//! It is `ssh` in the state directory, unless that path is too long for a socket or lies on a network file system;
//! then it is a folder of the user's own in `/tmp`. Whoever can enter it has our logins, so it is checked each time.

use crate::state::{SOCKET_PATH_MAX, StateDir};
use home::io_text;
use home::ssh::{SOCKET_NAME_BYTES, short_hash};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Makes the folder if need be, and checks that nobody else can enter it.
pub fn of(state: &StateDir) -> Result<PathBuf, String> {
    let path = place(state.path(), state.is_on_network());
    match std::fs::DirBuilder::new().mode(0o700).create(&path) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => Err(format!(
            "{}: {e}; make that folder possible, or choose another state directory with --state DIR",
            shown(&path),
            e = io_text(&e)
        )),
        _ => check(&path).map(|()| path),
    }
}

fn place(state: &Path, on_network: bool) -> PathBuf {
    let inside = state.join("ssh");
    if !on_network && inside.as_os_str().len() + SOCKET_NAME_BYTES <= SOCKET_PATH_MAX {
        return inside;
    }
    let uid = rustix::process::geteuid().as_raw();
    PathBuf::from(format!("/tmp/trellis-{uid}-{}", short_hash(state.as_os_str().as_encoded_bytes())))
}

fn check(path: &Path) -> Result<(), String> {
    let meta = path.symlink_metadata().map_err(|e| format!("{}: {e}", shown(path), e = io_text(&e)))?;
    let ours = meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw();
    match ours && meta.mode() & 0o077 == 0 {
        true => Ok(()),
        false => Err(format!(
            "{} is not a private folder of yours; choose another state directory with --state DIR, or remove it",
            shown(path)
        )),
    }
}

fn shown(path: &Path) -> String {
    crate::show::text(path.as_os_str().as_encoded_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn it_is_short_private_and_always_the_same() {
        assert_eq!(
            place(Path::new("/home/ann/.local/state/trellis"), false),
            Path::new("/home/ann/.local/state/trellis/ssh")
        );
        let long = PathBuf::from(format!("/home/{}", "x".repeat(90)));
        for (state, network) in [(long.as_path(), false), (Path::new("/s"), true)] {
            let folder = place(state, network);
            assert!(
                folder.starts_with("/tmp") && folder.as_os_str().len() + SOCKET_NAME_BYTES <= SOCKET_PATH_MAX
            );
            assert_eq!(folder, place(state, network));
        }
        assert_ne!(place(Path::new("/s"), true), place(Path::new("/t"), true));
    }

    #[test]
    fn an_open_folder_or_a_link_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let (folder, link) = (temp.path().join("f"), temp.path().join("l"));
        std::fs::create_dir(&folder).unwrap();
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).unwrap();
        assert!(check(&folder).unwrap_err().contains("private"));
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o700)).unwrap();
        assert!(check(&folder).is_ok());
        std::os::unix::fs::symlink(&folder, &link).unwrap();
        assert!(check(&link).is_err());
    }
}
