//! The programs of the system that tests use, and the Debian packages that bring them.

use crate::run;
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// A program or file that must be there, and the package that brings it.
type Need = (&'static str, &'static str);

/// What building and the end-to-end scenarios need.
pub const E2E: &[Need] = &[
    ("sshd", "openssh-server"),
    ("/usr/lib/openssh/sftp-server", "openssh-sftp-server"),
    ("ssh", "openssh-client"),
    ("rsync", "rsync"),
    ("cmake", "cmake"),
    ("make", "make"),
    ("gcc", "gcc"),
    ("/usr/include/stdio.h", "libc6-dev"),
    ("git", "git"),
    ("tar", "tar"),
    ("fusermount3", "fuse3"),
    ("/usr/bin/python3", "python3"),
    ("/usr/bin/linux.uml", "user-mode-linux"),
    ("mount.nfs", "nfs-common"),
    ("rpcbind", "rpcbind"),
    ("ip", "iproute2"),
    ("modprobe", "kmod"),
    ("dmsetup", "dmsetup"),
    ("mkfs.ext4", "e2fsprogs"),
    ("unshare", "util-linux"),
    ("setpriv", "util-linux"),
    ("pkill", "procps"),
    ("/lib/systemd/systemd", "systemd"),
    ("dbus-daemon", "dbus"),
    ("krb5kdc", "krb5-kdc"),
    ("kadmin.local", "krb5-admin-server"),
    ("klist", "krb5-user"),
    ("sshfs", "sshfs"),
];

/// What `bench nfs` needs besides.
pub const BENCH: &[Need] =
    &[("ganesha.nfsd", "nfs-ganesha"), ("/usr/lib/ganesha/libfsalvfs.so", "nfs-ganesha-vfs")];

/// What `bench fuse` needs besides.
pub const BENCH_FUSE: &[Need] = &[("rclone", "rclone")];

/// The packages of `needs` whose programs are absent.
pub fn missing(needs: &[Need]) -> Vec<&'static str> {
    let absent = needs.iter().filter(|(program, _)| !present(program));
    let mut packages: Vec<_> = absent.map(|(_, package)| *package).collect();
    packages.dedup();
    packages
}

fn present(program: &str) -> bool {
    run::find_program(program).is_some()
        // Debian keeps this plug-in below the folder of the architecture.
        || program.ends_with("libfsalvfs.so") && Path::new("/usr/lib/x86_64-linux-gnu/ganesha/libfsalvfs.so").exists()
}

/// Installs what is absent when we are root on Debian; else says exactly what is missing.
pub fn ensure(needs: &[Need]) -> Result<()> {
    let packages = missing(needs);
    if packages.is_empty() {
        return Ok(());
    }
    let list = packages.join(" ");
    if !run::is_root() || run::find_program("apt-get").is_none() {
        bail!("these Debian packages are missing: {list}\n  as root: apt-get install {list}");
    }
    eprintln!("installing {list}");
    let policy = StartsNothing::new()?;
    let apt = |args: &[&str]| {
        let mut cmd = Command::new("apt-get");
        cmd.args(args).env("DEBIAN_FRONTEND", "noninteractive").stdin(std::process::Stdio::null());
        run::run(&mut cmd)
    };
    apt(&["update", "-q"])?;
    apt(&[&["install", "-y", "-q", "--no-install-recommends"], &packages[..]].concat())?;
    drop(policy);
    let rest = missing(needs);
    if !rest.is_empty() {
        bail!("still missing after the installation: {}", rest.join(" "));
    }
    Ok(())
}

/// While this exists, an installed package starts no service (`invoke-rc.d` asks `policy-rc.d`).
struct StartsNothing {
    made: bool,
}

impl StartsNothing {
    const PATH: &str = "/usr/sbin/policy-rc.d";

    fn new() -> Result<Self> {
        if Path::new(Self::PATH).exists() {
            return Ok(Self { made: false });
        }
        fs::write(Self::PATH, "#!/bin/sh\nexit 101\n").context(Self::PATH)?;
        let guard = Self { made: true };
        fs::set_permissions(Self::PATH, fs::Permissions::from_mode(0o755))?;
        Ok(guard)
    }
}

impl Drop for StartsNothing {
    fn drop(&mut self) {
        if self.made {
            let _ = fs::remove_file(Self::PATH);
        }
    }
}
