//! What is done, on every mount and by every tool: scripts of bash, with these variables.
//!
//! `$M` is the mounted folder, `$H` the same folder at its home, where no script but `prepare`, `arrived` and `check`
//! may look; `$L` holds what is written, `$O` is an empty folder for what is read. `$R` is the account, for tools that
//! are given `$C`, the configuration of ssh. `$N` is the number of entries of the large tree. `$T` is our program, with `$S`, the
//! state directory of its server.

use crate::wan_link::link::Way;

/// Steps on the same mount, one after the other.
pub struct Work {
    /// Run at the home before each mount or tool, as the account.
    pub prepare: &'static str,
    /// Whether Trellis does all of it over a wire without delay or limit, too.
    pub near: bool,
    pub steps: &'static [Step],
}

/// A line of the table.
pub struct Step {
    pub name: &'static str,
    /// What Trellis is to reach.
    pub target: &'static str,
    /// What is timed on a mount.
    pub script: &'static str,
    /// The same by tools that keep no mount, each with its name.
    pub tools: &'static [(&'static str, &'static str)],
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

const WORK: Work = Work { prepare: "true", near: false, steps: &[] };

const STEP: Step = Step {
    name: "",
    target: "",
    script: "",
    tools: &[],
    arrived: "",
    check: "true",
    raw: None,
    before: Before::Nothing,
    ours: false,
};

pub const ALL: &[Work] =
    &[READ, WRITE, FIND, MANY, COPIED, AHEAD, AHEAD_NAMES, UNTAR, CLONE, MAKE, GIT, UNEQUAL, EDIT];

const READ: Work = Work {
    steps: &[Step {
        name: "read a large file",
        target: "95 % of raw TCP, less 6 RTT",
        script: "cat $M/big >$O/big",
        tools: &[
            ("scp", "scp -q -F $C $R:$H/big $O/big"),
            ("sftp", "echo get $H/big $O/big | sftp -q -F $C -b - $R"),
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
    prepare: "rm -f $H/out",
    steps: &[Step {
        name: "write it, until it is durable at the home",
        target: "95 % of raw TCP, less 6 RTT",
        script: "dd if=$L/source of=$M/out bs=1M conv=fsync status=none",
        tools: &[
            ("scp", "scp -q -F $C $L/source $R:$H/out"),
            ("sftp", "echo put $L/source $H/out | sftp -q -F $C -b - $R"),
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

const FIND: Work = Work {
    steps: &[
        Step {
            name: "find -ls, cold",
            target: "as warm, 3 RTT, 1 s",
            script: "find $M/tree -ls >$O/list",
            tools: &[("find over ssh", "ssh -F $C $R find $H/tree -ls >$O/list")],
            check: "test $(wc -l <$O/list) = $N",
            ..STEP
        },
        Step {
            name: "find -ls, warm",
            target: "0 RTT",
            script: "find $M/tree -ls >$O/list",
            check: "test $(wc -l <$O/list) = $N",
            before: Before::ColdKernel,
            ..STEP
        },
        Step {
            name: "find -ls, after a restart of the server",
            target: "1 RTT, 1 s",
            script: "find $M/tree -ls >$O/list",
            check: "test $(wc -l <$O/list) = $N",
            before: Before::Restart,
            ..STEP
        },
    ],
    ..WORK
};

const MANY: Work = Work {
    steps: &[Step {
        name: "read 1,000 files of 64 KiB by tar",
        target: "4 RTT, bytes at 90 % of the link",
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
    steps: &[Step {
        name: "copy 1,000 files of 64 KiB by cp -r",
        target: "4 RTT, bytes at 90 % of the link",
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
            target: "bytes at 90 % of the link",
            script: "$T prefetch --state $S $M/many",
            ours: true,
            ..STEP
        },
        Step {
            name: "cp -r of what was prefetched",
            target: "0 RTT",
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
            target: "",
            script: "$T prefetch --metadata --state $S $M/tree",
            ours: true,
            ..STEP
        },
        Step {
            name: "find -ls of what was prefetched",
            target: "0 RTT",
            script: "find $M/tree -ls >$O/list",
            check: "test $(wc -l <$O/list) = $N",
            ours: true,
            ..STEP
        },
    ],
    ..WORK
};

const UNTAR: Work = Work {
    prepare: "rm -rf $H/new; mkdir $H/new",
    near: true,
    steps: &[Step {
        name: "untar 2,000 files, until they are durable at the home",
        target: "4 s; returns within 1.1 of 0 ms",
        script: "tar xf $L/small.tar -C $M/new",
        tools: &[
            ("tar over ssh", "ssh -F $C $R \"tar xf - -C $H/new; sync -f $H/new\" <$L/small.tar"),
            ("rsync", "rsync -re \"ssh -F $C\" $L/small $R:$H/new"),
        ],
        arrived: "test $(find $H/new -type f | wc -l) = 2000",
        check: "diff -r $L/small $H/new/small",
        ..STEP
    }],
};

const CLONE: Work = Work {
    prepare: "rm -rf $H/new; mkdir $H/new",
    near: true,
    steps: &[Step {
        name: "git clone of 5,000 files, until it is durable at the home",
        target: "returns within 1.1 of 0 ms",
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
};

const MAKE: Work = Work {
    prepare: "rm -rf $H/new; cp -r $L/program $H/new; \
              test -e $L/built/prog || { cp -r $L/program $L/built; make -s -C $L/built; }",
    near: true,
    steps: &[
        Step {
            name: "make of 151 C files, until it is durable at the home",
            target: "returns within 1.1 of 0 ms",
            script: "make -s -C $M/new",
            tools: &[("make there", "ssh -F $C $R \"make -s -C $H/new; sync -f $H/new\"")],
            arrived: "diff -rq $L/built $H/new",
            check: "diff -r $L/built $H/new",
            ..STEP
        },
        Step {
            name: "make -B after it",
            target: "returns within 1.1 of 0 ms",
            script: "make -s -B -C $M/new",
            arrived: "diff -rq $L/built $H/new",
            check: "diff -r $L/built $H/new",
            ..STEP
        },
    ],
};

const GIT: Work = Work {
    prepare: "cat $L/index >$H/repo/.git/index",
    steps: &[
        Step {
            name: "git status of 5,000 files, cold; equal uid",
            target: "2 s more than there",
            script: "git -C $M/repo status --porcelain >$O/status",
            tools: &[("git there", "ssh -F $C $R git -C $H/repo status --porcelain >$O/status")],
            check: "test ! -s $O/status",
            ..STEP
        },
        Step {
            name: "git status, warm",
            target: "0.15 s more than there",
            script: "git -C $M/repo status --porcelain >$O/status",
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
        target: "2 s and the bytes more than there",
        script: "git -C $M/repo status --porcelain >$O/status",
        tools: &[("git there", "ssh -F $C $R git -C $H/repo status --porcelain >$O/status")],
        check: "test ! -s $O/status",
        ..STEP
    }],
    ..WORK
};

const EDIT: Work = Work {
    // What the copy left to be written is not the work's.
    prepare: "cp $H/big $H/edit; sync $H/edit",
    steps: &[Step {
        name: "change 1 MiB of the large file, until it is durable at the home",
        target: "1.2 MiB sent, 2 RTT",
        script: "dd if=$L/patch of=$M/edit bs=1M seek=40 conv=notrunc,fsync status=none",
        tools: &[("rsync", "rsync --inplace --no-W -e \"ssh -F $C\" $L/edited $R:$H/edit")],
        arrived: "cmp -s $L/edited $H/edit",
        check: "cmp $L/edited $H/edit",
        ..STEP
    }],
    ..WORK
};
