//! What is done, on every mount and by every tool: scripts of bash, with these variables.
//!
//! `$M` is the mounted folder, `$H` the same folder at its home, where no script but `prepare`, `at_home`, `arrived` and
//! `check` may look; `new` in it is gone before each `prepare`. `$L` holds what is written, `$O` is an empty folder for what
//! is read, in memory. `$R` is the account, for tools that are given `$C`, the configuration of ssh. `$N` is the number of
//! entries of the large tree, `$K` how many names are asked for while the large file passes. `$T` is our program, with
//! `$S`, the state directory of its server. `$P` is a program that makes system calls ([`super::calls`]). What a script
//! writes to `$O/seconds` counts instead of the clock, and `$O/calls` is how many calls it made.

use super::files::MANY_BYTES;
use super::targets::Target;
use crate::wan_link::link::Way;

/// Steps on the same mount, one after the other.
pub struct Work {
    /// Run at the home before each mount or tool, as the account.
    pub prepare: &'static str,
    /// Whether Trellis does all of it over a wire without delay or limit, too.
    pub near: bool,
    /// Whether it is done at an account that allows nothing but SFTP, too.
    pub by_sftp: bool,
    /// Options of Trellis's server.
    pub options: &'static [&'static str],
    pub steps: &'static [Step],
}

/// A line of the table.
pub struct Step {
    pub name: &'static str,
    /// What Trellis is to reach.
    pub targets: &'static [Target],
    /// What is timed on a mount.
    pub script: &'static str,
    /// The same by tools that keep no mount, each with its name.
    pub tools: &'static [(&'static str, &'static str)],
    /// The same where the files are, without a login. Empty where nothing is compared with that.
    pub at_home: &'static str,
    /// Holds when what was written is at the home; timed as well. Empty where nothing is written.
    pub arrived: &'static str,
    /// What must hold then.
    pub check: &'static str,
    /// Bytes in one direction, whose raw TCP stream is measured beside.
    pub raw: Option<Way>,
    /// What the mount knows is from before.
    pub before: Before,
    /// Whether it is for Trellis alone.
    pub ours: bool,
    /// Whether the seconds are shown as round trips of the wire, too.
    pub in_trips: bool,
}

/// What happens before a step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// Nothing.
    Nothing,
    /// The kernel here forgets what it knows of the mount.
    ColdKernel,
    /// The server of Trellis stops and comes back; peers are not asked.
    Restart,
}

const WORK: Work = Work { prepare: "true", near: false, by_sftp: false, options: &[], steps: &[] };

const STEP: Step = Step {
    name: "",
    targets: &[],
    script: "",
    tools: &[],
    at_home: "",
    arrived: "",
    check: "true",
    raw: None,
    before: Before::Nothing,
    ours: false,
    in_trips: false,
};

pub const ALL: &[Work] = &[
    READ,
    WRITE,
    WRITE_STRICT,
    FIND,
    MANY,
    COPIED,
    AHEAD,
    AHEAD_NAMES,
    UNTAR,
    CLONE,
    MAKE,
    GIT,
    UNEQUAL,
    EDIT,
    SAVE,
    CALLS,
    CALLS_CTO,
    CALLS_STRICT,
    STAT,
    STAT_READ,
    STAT_WRITE,
    STAT_BOTH,
    SMALL,
    SMALL_READ,
];

const READ: Work = Work {
    by_sftp: true,
    steps: &[Step {
        name: "read a large file",
        targets: &[Target::Raw],
        script: "cat $M/big >$O/big",
        tools: &[
            ("scp", "scp -q -F $C $R:$H/big $O/big"),
            ("sftp", "echo get $H/big $O/big | sftp -q -R 128 -B 261120 -F $C -b - $R"),
            ("rsync", "rsync -e \"ssh -F $C\" $R:$H/big $O/big"),
            ("cat over ssh", "ssh -F $C $R cat $H/big >$O/big"),
        ],
        check: "cmp $H/big $O/big",
        raw: Some(Way::Down),
        ..STEP
    }],
    ..WORK
};

const WRITE: Work = Work {
    by_sftp: true,
    prepare: "rm -f $H/out",
    steps: &[Step {
        name: "write it, until it is durable at the home",
        targets: &[Target::Raw],
        script: "dd if=$L/source of=$M/out bs=1M conv=fsync status=none",
        tools: &[
            ("scp", "scp -q -F $C $L/source $R:$H/out"),
            ("sftp", "echo put $L/source $H/out | sftp -q -R 128 -B 261120 -F $C -b - $R"),
            ("rsync", "rsync -e \"ssh -F $C\" $L/source $R:$H/out"),
            ("cat over ssh", "ssh -F $C $R \"cat >$H/out; sync $H/out\" <$L/source"),
        ],
        arrived: "test $(stat -c %s $H/out) = $(stat -c %s $L/source)",
        check: "cmp $L/source $H/out",
        raw: Some(Way::Up),
        ..STEP
    }],
    ..WORK
};

/// Who commits there has waited for the home.
const WRITE_STRICT: Work = Work {
    prepare: "rm -f $H/out",
    options: &["--mode", "strict"],
    steps: &[Step {
        name: "write it in mode strict, until COMMIT",
        targets: &[Target::Raw],
        script: "dd if=$L/source of=$M/out bs=1M conv=fsync status=none",
        check: "cmp $L/source $H/out",
        raw: Some(Way::Up),
        ours: true,
        ..STEP
    }],
    ..WORK
};

/// A row with which others are compared.
const WARM: &str = "find -ls, warm";

const FIND: Work = Work {
    by_sftp: true,
    steps: &[
        Step {
            name: "find -ls, cold",
            targets: &[Target::After { row: WARM, trips: 3.0, seconds: 1.0 }],
            script: "find $M/tree -ls >$O/list",
            tools: &[("find over ssh", "ssh -F $C $R find $H/tree -ls >$O/list")],
            check: "test $(wc -l <$O/list) = $N",
            ..STEP
        },
        Step {
            name: WARM,
            targets: &[Target::Waits(0)],
            script: "find $M/tree -ls >$O/list",
            check: "test $(wc -l <$O/list) = $N",
            before: Before::ColdKernel,
            ..STEP
        },
        Step {
            name: "find -ls, after a restart of the server",
            targets: &[Target::After { row: WARM, trips: 1.0, seconds: 1.0 }],
            script: "find $M/tree -ls >$O/list",
            check: "test $(wc -l <$O/list) = $N",
            before: Before::Restart,
            ..STEP
        },
    ],
    ..WORK
};

const MANY: Work = Work {
    by_sftp: true,
    steps: &[Step {
        name: "read 1,000 files of 64 KiB by tar",
        targets: &[Target::Link { trips: 4.0, bytes: MANY_BYTES }],
        script: "tar cf - -C $M many | tar xf - -C $O",
        tools: &[
            ("tar over ssh", "ssh -F $C $R tar cf - -C $H many | tar xf - -C $O"),
            ("rsync", "rsync -re \"ssh -F $C\" $R:$H/many $O"),
        ],
        check: "diff -r $H/many $O/many",
        ..STEP
    }],
    ..WORK
};

const COPIED: Work = Work {
    by_sftp: true,
    steps: &[Step {
        name: "copy 1,000 files of 64 KiB by cp -r",
        targets: &[Target::Link { trips: 4.0, bytes: MANY_BYTES }],
        script: "cp -r $M/many $O/many",
        check: "diff -r $H/many $O/many",
        ..STEP
    }],
    ..WORK
};

const AHEAD: Work = Work {
    steps: &[
        Step {
            name: "prefetch of 1,000 files of 64 KiB",
            targets: &[Target::Link { trips: 0.0, bytes: MANY_BYTES }],
            script: "$T prefetch --state $S $M/many",
            ours: true,
            ..STEP
        },
        Step {
            name: "cp -r of what was prefetched",
            targets: &[Target::Waits(0)],
            script: "cp -r $M/many $O/many",
            check: "diff -r $H/many $O/many",
            ours: true,
            ..STEP
        },
    ],
    ..WORK
};

const AHEAD_NAMES: Work = Work {
    steps: &[
        Step {
            name: "prefetch --metadata of the large tree",
            script: "$T prefetch --metadata --state $S $M/tree",
            ours: true,
            ..STEP
        },
        Step {
            name: "find -ls of what was prefetched",
            targets: &[Target::Waits(0)],
            script: "find $M/tree -ls >$O/list",
            check: "test $(wc -l <$O/list) = $N",
            ours: true,
            ..STEP
        },
    ],
    ..WORK
};

const UNTAR: Work = Work {
    by_sftp: true,
    prepare: "mkdir $H/new",
    near: true,
    steps: &[Step {
        name: "untar 2,000 files, until they are durable at the home",
        targets: &[Target::TimesNear(1.1), Target::Seconds(4.0)],
        script: "tar xf $L/small.tar -C $M/new",
        tools: &[
            ("tar over ssh", "ssh -F $C $R \"tar xf - -C $H/new; sync -f $H/new\" <$L/small.tar"),
            ("rsync", "rsync -re \"ssh -F $C\" $L/small $R:$H/new"),
        ],
        arrived: "test $(find $H/new -type f | wc -l) = 2000",
        check: "diff -r $L/small $H/new/small",
        ..STEP
    }],
    ..WORK
};

const CLONE: Work = Work {
    prepare: "mkdir $H/new",
    near: true,
    steps: &[Step {
        name: "git clone of 5,000 files, until it is durable at the home",
        targets: &[Target::TimesNear(1.1)],
        script: "git clone -q file://$L/origin $M/new/clone",
        tools: &[(
            "git clone here, tar over ssh",
            "git clone -q file://$L/origin $O/clone; \
             tar cf - -C $O clone | ssh -F $C $R \"tar xf - -C $H/new; sync -f $H/new\"",
        )],
        arrived: "GIT_OPTIONAL_LOCKS=0 git -C $H/new/clone diff --quiet HEAD",
        check: "cd $H/new/clone; git fsck --strict; test -z \"$(git status --porcelain)\"; diff -r -x .git $H/repo .",
        ..STEP
    }],
    ..WORK
};

const MAKE: Work = Work {
    prepare: "cp -r $L/program $H/new; \
              test -e $L/built/prog || { cp -r $L/program $L/built; make -s -C $L/built; }",
    near: true,
    steps: &[
        Step {
            name: "make of 151 C files, until it is durable at the home",
            targets: &[Target::TimesNear(1.1)],
            script: "make -s -C $M/new",
            tools: &[("make there", "ssh -F $C $R \"make -s -C $H/new; sync -f $H/new\"")],
            arrived: "diff -rq $L/built $H/new",
            check: "diff -r $L/built $H/new",
            ..STEP
        },
        Step {
            name: "make -B after it",
            targets: &[Target::TimesNear(1.1)],
            script: "make -s -B -C $M/new",
            arrived: "diff -rq $L/built $H/new",
            check: "diff -r $L/built $H/new",
            ..STEP
        },
    ],
    ..WORK
};

const STATUS_AT_HOME: &str = "git -C $H/repo status --porcelain >$O/status";

const GIT: Work = Work {
    // Rows of an earlier run may have changed ctimes.
    prepare: "git -C $H/repo update-index -q --refresh",
    steps: &[
        Step {
            name: "git status of 5,000 files, cold; equal uid",
            targets: &[Target::AtHome { seconds: 2.0, bytes: false }],
            script: "git -C $M/repo status --porcelain >$O/status",
            tools: &[("git there", "ssh -F $C $R git -C $H/repo status --porcelain >$O/status")],
            at_home: STATUS_AT_HOME,
            check: "test ! -s $O/status",
            ..STEP
        },
        Step {
            name: "git status, warm",
            targets: &[Target::AtHome { seconds: 0.15, bytes: false }],
            script: "git -C $M/repo status --porcelain >$O/status",
            at_home: STATUS_AT_HOME,
            check: "test ! -s $O/status",
            before: Before::ColdKernel,
            ..STEP
        },
    ],
    ..WORK
};

/// An index that was made under another uid is as good as one with other times.
const UNEQUAL: Work = Work {
    prepare: "cat $L/index >$H/repo/.git/index; find $H/repo -name '*.c' -exec chmod 644 {} +",
    steps: &[Step {
        name: "git status of 5,000 files that it has to read, as with another uid",
        targets: &[Target::AtHome { seconds: 2.0, bytes: true }],
        script: "git -C $M/repo status --porcelain >$O/status",
        tools: &[("git there", "ssh -F $C $R git -C $H/repo status --porcelain >$O/status")],
        at_home: STATUS_AT_HOME,
        check: "test ! -s $O/status",
        ..STEP
    }],
    ..WORK
};

/// Whether the patch is in its place. Not more: to read the whole file, perhaps from the disk, is none of the work.
const PATCHED: &str = "cmp -s -n 1M $L/patch $H/edit 0 40M";

const EDIT: Work = Work {
    // What the copy left to be written is not the work's.
    prepare: "cp $H/big $H/edit; sync $H/edit",
    steps: &[
        // The first change over a connection also claims the volume.
        Step {
            name: "change 1 MiB of the large file, until it is durable at the home",
            targets: &[Target::Sent(1.2), Target::Counted(2)],
            script: "dd if=$L/patch of=$M/edit bs=1M seek=40 conv=notrunc,fsync status=none",
            tools: &[("rsync", "rsync --inplace --no-W -e \"ssh -F $C\" $L/edited $R:$H/edit")],
            arrived: PATCHED,
            check: "cmp $L/edited $H/edit",
            ..STEP
        },
        Step {
            name: "change another 1 MiB of it",
            targets: &[Target::Sent(1.2), Target::Counted(2)],
            script: "dd if=$L/patch of=$M/edit bs=1M seek=10 conv=notrunc,fsync status=none",
            arrived: "cmp -s -n 1M $L/patch $H/edit 0 10M",
            check: "cmp $L/edited2 $H/edit",
            ..STEP
        },
    ],
    ..WORK
};

const SAVE: Work = Work {
    prepare: "rm -f $H/edit.tmp; cp $H/big $H/edit; sync $H/edit",
    steps: &[
        Step {
            name: "read the large file before it is rewritten",
            script: "cat $M/edit >$O/edit",
            check: "cmp $H/edit $O/edit",
            ..STEP
        },
        Step {
            name: "rewrite the large file with 1 MiB changed, by a temporary file and rename",
            targets: &[Target::Sent(1.2)],
            script: "dd if=$L/edited of=$M/edit.tmp bs=1M conv=fsync status=none; mv -f $M/edit.tmp $M/edit",
            tools: &[("rsync", "rsync --no-W -e \"ssh -F $C\" $L/edited $R:$H/edit")],
            arrived: PATCHED,
            check: "cmp $L/edited $H/edit",
            ..STEP
        },
        Step {
            name: "the same with 1 MiB inserted in the middle, 20 single bytes elsewhere",
            targets: &[Target::Sent(1.2)],
            script: "dd if=$L/inserted of=$M/edit.tmp bs=1M conv=fsync status=none; mv -f $M/edit.tmp $M/edit",
            tools: &[("rsync", "cp $L/edited $H/edit; rsync --no-W -e \"ssh -F $C\" $L/inserted $R:$H/edit")],
            arrived: "test $(stat -c %s $H/edit) = $(stat -c %s $L/inserted)",
            check: "cmp $L/inserted $H/edit",
            ..STEP
        },
    ],
    ..WORK
};

/// What holds when the same calls on a local disk leave the same.
macro_rules! same {
    ($how:literal) => {
        concat!(
            "rm -rf $L/replay; mkdir $L/replay; $P bench-calls replay ",
            $how,
            " $L/replay /dev/null; \
             list() { cd $1; find . -type d -printf '%P %m\\n' -o -printf '%P %y %m %n %s %l\\n' | sort; }; \
             cmp <(list $L/replay) <(list $H/new)"
        )
    };
}

const CALLS: Work = Work {
    prepare: "mkdir $H/new",
    near: true,
    steps: &[Step {
        name: "7,400 calls on names and attributes",
        targets: &[Target::TimesNear(1.2)],
        script: "$P bench-calls replay $M/new $O/calls",
        arrived: "test -h $H/new/symlinks/link9",
        check: same!(""),
        ..STEP
    }],
    ..WORK
};

const CALLS_CTO: Work = Work {
    prepare: "mkdir $H/new",
    near: true,
    options: &["--mode", "cto"],
    steps: &[Step {
        name: "the same in mode cto",
        targets: &[Target::TripsPastNear(60.0)],
        script: "$P bench-calls replay $M/new $O/calls",
        arrived: "test -h $H/new/symlinks/link9",
        check: same!(""),
        ours: true,
        ..STEP
    }],
    ..WORK
};

const CALLS_STRICT: Work = Work {
    prepare: "mkdir $H/new",
    near: true,
    options: &["--mode", "strict"],
    steps: &[Step {
        name: "a few of them in mode strict",
        targets: &[Target::TripsForEachWait(1.05)],
        script: "$P bench-calls replay --few $M/new $O/calls",
        check: same!("--few"),
        ours: true,
        ..STEP
    }],
    ..WORK
};

const STAT: Work = Work {
    by_sftp: true,
    steps: &[Step {
        name: "stat of a name not seen before, 95th percentile",
        script: "$P bench-calls stat $M/ask $K $O/seconds",
        in_trips: true,
        ..STEP
    }],
    ..WORK
};

const STAT_READ: Work = Work {
    by_sftp: true,
    steps: &[Step {
        name: "stat, while a large file is read",
        targets: &[Target::Trips(2.5)],
        script: "cat $M/big >$O/big & reader=$!; sleep 1; $P bench-calls stat $M/ask $K $O/seconds; wait $reader",
        check: "cmp $H/big $O/big",
        in_trips: true,
        ..STEP
    }],
    ..WORK
};

const STAT_WRITE: Work = Work {
    prepare: "rm -f $H/out",
    steps: &[Step {
        name: "stat, while one is written",
        targets: &[Target::Trips(2.5)],
        script: "dd if=$L/source of=$M/out bs=1M status=none & writer=$!; sleep 1; \
                 $P bench-calls stat $M/ask $K $O/seconds; wait $writer",
        arrived: "cmp -s $L/source $H/out",
        in_trips: true,
        ..STEP
    }],
    ..WORK
};

const STAT_BOTH: Work = Work {
    prepare: "rm -f $H/out",
    steps: &[Step {
        name: "stat, while one is read and one is written",
        targets: &[Target::Trips(2.5)],
        script: "cat $M/big >$O/big & reader=$!; dd if=$L/source of=$M/out bs=1M status=none & writer=$!; \
                 sleep 1; $P bench-calls stat $M/ask $K $O/seconds; wait $reader; wait $writer",
        arrived: "cmp -s $L/source $H/out",
        check: "cmp $H/big $O/big",
        in_trips: true,
        ..STEP
    }],
    ..WORK
};

const SMALL: Work = Work {
    by_sftp: true,
    steps: &[Step {
        name: "read of a small file not seen before, 95th percentile",
        script: "$P bench-calls stat --read $M/ask $((K / 2)) $O/seconds",
        in_trips: true,
        ..STEP
    }],
    ..WORK
};

const SMALL_READ: Work = Work {
    by_sftp: true,
    steps: &[Step {
        name: "read of a small file, while a large one is read",
        script: "cat $M/big >$O/big & reader=$!; sleep 1; \
                 $P bench-calls stat --read $M/ask $((K / 2)) $O/seconds; wait $reader",
        check: "cmp $H/big $O/big",
        in_trips: true,
        ..STEP
    }],
    ..WORK
};
