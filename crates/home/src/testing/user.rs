//! Tests that must not run as root: permission bits do not bind root.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

/// The uid and gid that root's tests are started again with.
pub const USER: u32 = 12_345;

/// Whether the rest of the test named `path` (as `--exact` takes it) shall run here, which is so for an
/// ordinary user. Root starts itself again as one, from a copy of the test binary that the user can
/// reach; panics if the test fails there.
pub fn as_user(path: &str) -> bool {
    if rustix::process::geteuid().as_raw() != 0 {
        return true;
    }
    let dir = tempfile_dir();
    let exe = dir.join("tests");
    // By another process: a program cannot be started while somebody has it open for writing, and what other tests start
    // meanwhile would have what we have open.
    let tests = std::env::current_exe().expect("a running test has a file");
    let copied = std::process::Command::new("cp").arg(tests).arg(&exe).status();
    assert!(copied.expect("cp can be started").success(), "the test binary can be copied");
    for path in [&dir, &exe] {
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(path, mode).expect("our own copy can be changed");
    }
    let output = std::process::Command::new(&exe)
        .args(["--exact", path, "--nocapture"])
        .env_clear()
        .current_dir("/")
        .uid(USER)
        .gid(USER)
        .output();
    std::fs::remove_dir_all(&dir).ok();
    let output = output.expect("the copy can be started");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "as an ordinary user: {said}");
    false
}

/// A directory of our own; its name is free because it holds the time and our pid.
fn tempfile_dir() -> std::path::PathBuf {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let thread = std::thread::current();
    let name = format!("trellis-{}-{}-{:?}", std::process::id(), now.as_nanos(), thread.id());
    let dir = std::env::temp_dir().join(name.replace(['(', ')'], ""));
    std::fs::create_dir(&dir).expect("the temporary directory can be written");
    dir
}
