//! The scenarios. Each is a function over a fresh [`World`]; an error is a failure.

mod bad_days;
mod basic_tree;
mod big_file;
mod commands;
mod crash_loop;
mod crash_tree;
mod full_cache;
mod full_disks;
mod fuse;
mod git_objects;
mod harness;
mod hostile;
mod isolation;
mod jobs;
mod kept;
mod kerberos;
mod kill_clients;
mod kill_server;
mod login;
mod one_file;
mod outage;
mod power_cut;
mod prefetch;
mod reconnect;
mod relay;
mod service;
mod sftp_only;
mod strict;
mod tour;
mod wan;
mod watched;
mod whole;
mod xattr;

use super::world::World;
use anyhow::Result;

/// Something that the product must show.
pub struct Scenario {
    /// How it is called on the command line.
    pub name: &'static str,
    /// What it shows, in a sentence.
    pub shows: &'static str,
    /// Whether CI runs it.
    pub ci: bool,
    /// When it counts as hung.
    pub minutes: u64,
    /// Does it.
    pub run: fn(&World) -> Result<()>,
}

impl Scenario {
    /// Whether it needs less than half a processor on the average and measures no speed: it may run beside others like it.
    pub fn waits(&self) -> bool {
        WAITING.contains(&self.name)
    }
}

const WAITING: &[&str] = &["full-disks", "outage", "reconnect", "strict", "watched"];

/// All scenarios, the simplest first.
pub const ALL: &[Scenario] = &[
    Scenario {
        name: "harness",
        shows: "the surroundings of the scenarios: accounts, hosts, keys",
        ci: true,
        minutes: 3,
        run: harness::run,
    },
    Scenario {
        name: "commands",
        shows: "the commands, through the server and without it, beside their Unix twins; bad input; from home to home",
        ci: true,
        minutes: 5,
        run: commands::run,
    },
    Scenario {
        name: "service",
        shows: "a server in the background and as a unit of a real systemd user manager, which starts it again",
        ci: true,
        minutes: 3,
        run: service::run,
    },
    Scenario {
        name: "login",
        shows: "hosts that ask questions: trellis login, a chain of two, refused answers, revoked keys, ends told ahead",
        ci: true,
        minutes: 6,
        run: login::run,
    },
    Scenario {
        name: "kerberos",
        shows: "a host behind Kerberos: a missing ticket is told, queued for, and its end is told ahead",
        ci: true,
        minutes: 5,
        run: kerberos::run,
    },
    Scenario {
        name: "relay",
        shows: "mount --at: a compute node uses a login node's server over ssh; cut connections, a killed server",
        ci: true,
        minutes: 5,
        run: relay::run,
    },
    Scenario {
        name: "tour",
        shows: "the commands of docs/TOUR.md, in order, as a newcomer runs them",
        ci: true,
        minutes: 4,
        run: tour::run,
    },
    Scenario {
        name: "jobs",
        shows: "the prolog and epilog of docs/JOBS.md, with the program and without it; modes of folders",
        ci: true,
        minutes: 3,
        run: jobs::run,
    },
    Scenario {
        name: "git-objects",
        shows: "read-only files that are written, linked and removed, with the home at any distance behind",
        ci: true,
        minutes: 3,
        run: git_objects::run,
    },
    Scenario {
        name: "basic-tree",
        shows: "unmodified programs on a kernel mount; what arrives at the home is what was written",
        ci: true,
        minutes: 15,
        run: basic_tree::run,
    },
    Scenario {
        name: "fuse",
        shows: "a mount without root: unmodified programs on it, and the same bytes, modes and times at the home",
        ci: true,
        minutes: 10,
        run: fuse::run,
    },
    Scenario {
        name: "fuse-programs",
        shows: "sqlite, venv, exec, mmap, appends, nameless files and locks on two FUSE mounts of one server",
        ci: true,
        minutes: 8,
        run: fuse::programs,
    },
    Scenario {
        name: "fuse-nfs",
        shows: "one tree through NFS and FUSE at a time: each sees the other's changes within its attribute timeout",
        ci: true,
        minutes: 8,
        run: fuse::both::run,
    },
    Scenario {
        name: "fuse-kill",
        shows: "kill -9 of the server under mounts in use, 8 times, with all it started and alone: no hang, nothing lost",
        ci: true,
        minutes: 6,
        run: fuse::kill::run,
    },
    Scenario {
        name: "fuse-long-kill",
        shows: "the same 200 times",
        ci: false,
        minutes: 60,
        run: fuse::kill::run_long,
    },
    Scenario {
        name: "xattr",
        shows: "extended attributes on a FUSE mount and at the home: programs, copies, edits there, kill -9, SFTP",
        ci: true,
        minutes: 6,
        run: xattr::run,
    },
    Scenario {
        name: "one-file",
        shows: "a file written, cut, mapped and read at random by FUSE and by NFS: the home keeps up and is not asked",
        ci: true,
        minutes: 5,
        run: one_file::run,
    },
    Scenario {
        name: "one-file-long",
        shows: "the same for half an hour",
        ci: false,
        minutes: 40,
        run: one_file::run_long,
    },
    Scenario {
        name: "big-file",
        shows: "1 GiB in and out through a kernel mount",
        ci: true,
        minutes: 10,
        run: big_file::run,
    },
    Scenario {
        name: "sftp-only",
        shows: "an account that allows nothing but SFTP: what works, and that status says what does not",
        ci: true,
        minutes: 8,
        run: sftp_only::run,
    },
    Scenario {
        name: "kill-server",
        shows: "kill -9 of the server three times in the middle of work: the client goes on, nothing is lost",
        ci: true,
        minutes: 12,
        run: kill_server::run,
    },
    Scenario {
        name: "retransmit",
        shows: "a call that is sent again after a restart of the server has its first answer",
        ci: true,
        minutes: 5,
        run: kill_server::retransmit,
    },
    Scenario {
        name: "crash-loop",
        shows: "server, ssh and agent are killed in turn while two sides write: no stable byte of either is lost",
        ci: true,
        minutes: 4,
        run: crash_loop::run,
    },
    Scenario {
        name: "crash-long",
        shows: "the same with 500 kills",
        ci: false,
        minutes: 60,
        run: crash_loop::run_long,
    },
    Scenario {
        name: "kill-clients",
        shows: "server, ssh and agent are killed in turn under a FUSE mount and a kernel's NFS client: nothing is lost or torn",
        ci: true,
        minutes: 5,
        run: kill_clients::run,
    },
    Scenario {
        name: "kill-clients-long",
        shows: "the same with 510 kills",
        ci: false,
        minutes: 90,
        run: kill_clients::run_long,
    },
    Scenario {
        name: "bad-days",
        shows: "an account is out of quota, clocks are set, a key is withdrawn, two servers start on one state directory, disks take no writes: nothing is lost",
        ci: true,
        minutes: 8,
        run: bad_days::run,
    },
    Scenario {
        name: "power-cut",
        shows: "a disk that holds the gateway's state and a home loses its power behind any write: all that was acknowledged arrives",
        ci: true,
        minutes: 8,
        run: power_cut::run,
    },
    Scenario {
        name: "power-cut-long",
        shows: "the same behind 400 writes",
        ci: false,
        minutes: 90,
        run: power_cut::run_long,
    },
    Scenario {
        name: "power-cut-every",
        shows: "the same behind every write of a shorter piece of work",
        ci: false,
        minutes: 90,
        run: power_cut::run_every,
    },
    Scenario {
        name: "power-cut-unflushed",
        shows: "that look finds what is lost on a file system that does not flush",
        ci: false,
        minutes: 15,
        run: power_cut::run_unflushed,
    },
    Scenario {
        name: "crash-sftp",
        shows: "server and ssh are killed while a client saves files at a home without an agent: nothing is lost or a conflict",
        ci: true,
        minutes: 4,
        run: crash_loop::run_sftp,
    },
    Scenario {
        name: "crash-sftp-long",
        shows: "the same with 60 kills",
        ci: false,
        minutes: 15,
        run: crash_loop::run_sftp_long,
    },
    Scenario {
        name: "crash-tree",
        shows: "server and ssh are killed between changes to whole trees, with an agent and without: all is as acknowledged",
        ci: true,
        minutes: 4,
        run: crash_tree::run,
    },
    Scenario {
        name: "crash-tree-long",
        shows: "the same with 400 kills",
        ci: false,
        minutes: 60,
        run: crash_tree::run_long,
    },
    Scenario {
        name: "full-disks",
        shows: "no space at the home, or here, and kill -9 then: nothing acknowledged is lost, and it drains by itself",
        ci: true,
        minutes: 8,
        run: full_disks::run,
    },
    Scenario {
        name: "full-cache",
        shows: "640 MiB through a cache of 64 MiB, by several writers, with a kill -9: none fails, starves or loses a byte",
        ci: true,
        minutes: 4,
        run: full_cache::run,
    },
    Scenario {
        name: "full-log",
        shows: "state and log on a full disk, a key revoked in mid-flight, kill -9, mount again: nothing acknowledged is lost",
        ci: true,
        minutes: 5,
        run: full_disks::with_log::run,
    },
    Scenario {
        name: "strict",
        shows: "mode strict: what a call did is at the home when it returns, once; what is done there is seen at once",
        ci: true,
        minutes: 5,
        run: strict::run,
    },
    Scenario {
        name: "isolation",
        shows: "a home that hangs, dies or refuses slows no other home, and its changes arrive later",
        ci: true,
        minutes: 12,
        run: isolation::run,
    },
    Scenario {
        name: "kept",
        shows: "a server killed while a host refuses or hangs: the next one shows the host as it was, and loses nothing",
        ci: true,
        minutes: 4,
        run: kept::run,
    },
    Scenario {
        name: "prefetch",
        shows: "trellis prefetch: a tree and a list of paths are read whole by FUSE and NFS, offline and without their host",
        ci: true,
        minutes: 4,
        run: prefetch::run,
    },
    Scenario {
        name: "outage",
        shows: "a host that is down for seconds again and again: who waits goes on soon after, and it is not hammered",
        ci: true,
        minutes: 6,
        run: outage::run,
    },
    Scenario {
        name: "reconnect",
        shows: "a way that is cut, silent, half open or leads elsewhere under work: bytes right, answers true, changes made once",
        ci: true,
        minutes: 6,
        run: reconnect::run,
    },
    Scenario {
        name: "reconnect-long",
        shows: "the same with 180 cuts, and sleep for a minute",
        ci: false,
        minutes: 40,
        run: reconnect::run_long,
    },
    Scenario {
        name: "reconnect-sftp",
        shows: "the 60 cuts of that to a home without an agent: no conflict, nothing lost",
        ci: false,
        minutes: 10,
        run: reconnect::run_sftp,
    },
    Scenario {
        name: "hostile",
        shows: "hostile names, hosts, bytes and callers: the ruled error, no hang, nothing lost",
        ci: true,
        minutes: 8,
        run: hostile::run,
    },
    Scenario {
        name: "wan",
        shows: "60 ms away: warm answers cost no round trip, cold ones few, changes there are seen in time",
        ci: true,
        minutes: 8,
        run: wan::run,
    },
    Scenario {
        name: "watched",
        shows: "a home that tells what changes: warm find and git status cost nothing, edits there are seen by FUSE and NFS",
        ci: true,
        minutes: 6,
        run: watched::run,
    },
    Scenario {
        name: "whole",
        shows: "long files written anew over a way that is cut are there with the earlier content or the whole new one",
        ci: true,
        minutes: 4,
        run: whole::run,
    },
];
