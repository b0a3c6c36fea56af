//! Every bound of this crate, in one place.

use std::time::Duration;

/// Attempts to connect that may be made at once after a quiet time.
pub const CONNECT_BURST: u32 = 10;
/// Time after which one more attempt is allowed.
pub const CONNECT_EVERY: Duration = Duration::from_secs(1);
/// Attempts of the burst that are left to hosts whose last attempt did not fail.
pub const CONNECT_KEPT: u32 = 5;
/// Longest that a call waits for its turn to connect; it is told to come again after that.
pub const CONNECT_WAIT: Duration = Duration::from_secs(30);
/// Names of the root directory that are kept.
pub const NAMES_KNOWN: usize = 10_000;
/// Homes that are connected at the same time.
pub const HOMES_CONNECTED: usize = 128;
/// A connection that nobody needed for this long is closed; the agent at its end leaves.
pub const HOME_IDLE: Duration = Duration::from_secs(3600);
/// How often connections are looked at for that.
pub const HOME_IDLE_LOOK: Duration = Duration::from_secs(60);
/// Processes that tell which account a name means, at the same time.
pub const SSH_ASKS: usize = 8;
/// How long what ssh says of a name is believed.
pub const SSH_CONFIG_AGE: Duration = Duration::from_secs(60);
/// The same where nobody answers at the account.
pub const SSH_CONFIG_AGE_AWAY: Duration = Duration::from_secs(1);
/// How long the table of mounts of this machine is believed.
pub const MOUNTS_AGE: Duration = Duration::from_secs(1);

/// Longest line of the control protocol in bytes.
pub const CONTROL_LINE: usize = 4 << 20;
/// Bytes of a file that travel in one control message.
pub const CONTROL_CHUNK: usize = 1 << 20;
/// Control connections that are served at the same time.
pub const CONTROL_CLIENTS: usize = 64;
/// Entries of a directory in one control message.
pub const CONTROL_ENTRIES: usize = 1000;
/// Longest wait for the whole of a message that has begun.
pub const CONTROL_PATIENCE: Duration = Duration::from_secs(60);
/// How long a server may take to answer what costs it nothing, or be unable to answer at all.
pub const CONTROL_ANSWER: Duration = Duration::from_secs(10);
/// How long it may take for work that waits for no home, but for programs of this machine.
pub const CONTROL_WORK: Duration = Duration::from_secs(30);
/// How often a command that waits looks at the server's process.
pub const CONTROL_LOOK: Duration = Duration::from_secs(1);
/// How long a name of the root directory may take that is only wanted for showing a path.
pub const NAME_PATIENCE: Duration = Duration::from_secs(2);

/// How long a call that may be repeated is repeated before it fails.
pub const RETRY_FOR: Duration = Duration::from_secs(60);
/// Pause between repetitions.
pub const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// Symbolic links followed in one path.
pub const SYMLINKS: usize = 40;
/// Depth of directories that commands follow.
pub const DEPTH: usize = 1000;
/// Files that `cp` copies at the same time.
pub const COPY_WORKERS: usize = 8;
/// Files that wait for their turn.
pub const COPY_QUEUE: usize = 64;
/// A file with a hole is written in blocks of this size, those of zeros left out.
pub const COPY_BLOCK: usize = 64 << 10;
/// Smallest file of which a part is looked for, to go on with.
pub const COPY_RESUMES: u64 = 1 << 20;
/// Files whose copy is remembered, so that an interrupted command goes on.
pub const COPY_NOTES: usize = 4 << 20;
/// How long such a note is believed.
pub const COPY_NOTE_AGE: Duration = Duration::from_secs(7 * 86_400);
/// How often progress is shown.
pub const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// How long the master of `trellis login` lives without use, if nobody says otherwise.
pub const LOGIN_STAYS: Duration = Duration::from_secs(12 * 3600);
/// Longest time that a server's attempt right after a login may take.
pub const LOGIN_TRY: Duration = Duration::from_secs(90);
/// Logins that are known at the same time.
pub const LOGINS: usize = 1000;
/// Bytes of what is kept of one login.
pub const LOGIN_RECORD: u64 = 16 << 10;
/// How long before the end of a certificate, ticket or login `status` and the log tell of it.
pub const EXPIRY_AHEAD: Duration = Duration::from_secs(3600);
/// How often the ends are looked at.
pub const EXPIRY_CHECK: Duration = Duration::from_secs(60);
/// Homes whose login `status` looks at by itself, because nobody has yet.
pub const LOOKS_AT_ONCE: usize = 8;

/// Free bytes of the state directory's file system below which `doctor` warns.
pub const DISK_LOW: u64 = 1 << 30;
/// Open files below which `doctor` warns: each home and each client takes some.
pub const OPEN_FILES: u64 = 4096;
/// Seconds that clocks may differ before `doctor` warns: builds compare times of files.
pub const CLOCK_SKEW_S: f64 = 2.0;
/// Longest time that `doctor` gives one home to answer.
pub const DOCTOR_PATIENCE: Duration = Duration::from_secs(40);
/// Homes that `doctor` lets a server try.
pub const DOCTOR_TRIES: usize = 32;
/// How long the server of a mount may take to answer for it.
pub const DOCTOR_MOUNT: Duration = Duration::from_secs(3);

/// How long SIGTERM lets unsent changes go home.
pub const DRAIN_AT_SIGNAL: Duration = Duration::from_secs(10);
/// How long calls that were taken may still be answered when the server stops.
pub const LAST_ANSWERS: Duration = Duration::from_secs(2);
/// How long the answer to a stop request may take to leave.
pub const FAREWELL: Duration = Duration::from_millis(200);
/// How long `trellis stop` waits for the process to end after that.
pub const END_OF_PROCESS: Duration = Duration::from_secs(10);
/// Paths that `trellis prefetch` hands over at once, and lets wait.
pub const PREFETCH_LINES: usize = 1000;
/// Longest line of its list, in bytes.
pub const PREFETCH_LINE: u64 = 64 << 10;
/// Paths that it could not have and names in JSON.
pub const PREFETCH_MISSED: usize = 10_000;
/// How long `trellis sync` waits if not told otherwise.
pub const SYNC_TIMEOUT: Duration = Duration::from_secs(600);
/// How long the same text is not written to the log again.
pub const LOG_AGAIN: Duration = Duration::from_secs(60);
/// Texts of the log that are remembered for that.
pub const LOG_TEXTS: usize = 64;
/// After which time a command that waits for homes says what for.
pub const SAY_AFTER: Duration = Duration::from_secs(2);
/// How often it looks then.
pub const SAY_EVERY: Duration = Duration::from_secs(1);
/// How often it says how much is left, where that goes on.
pub const SAY_AGAIN: Duration = Duration::from_secs(10);
/// Largest configuration file in bytes.
pub const CONFIG_FILE: u64 = 1 << 20;
/// Cache size if not told otherwise: this, or a tenth of the file system where that is less.
pub const CACHE_BYTES: u64 = 20 << 30;
/// Least cache size, below which a large write could not be taken.
pub const CACHE_LEAST: u64 = 64 << 20;
/// Bound of staleness if not told otherwise.
pub const STALENESS: Duration = Duration::from_secs(5);
/// Size from which the log of a server without a terminal is put aside at the next start.
pub const LOG_BYTES: u64 = 8 << 20;
/// How long a server that was started in the background may take until it answers.
pub const START_WAIT: Duration = Duration::from_secs(60);
/// Pause between looks whether it answers.
pub const START_POLL: Duration = Duration::from_millis(20);
/// Lines of a server's log that are shown when it could not start.
pub const LAST_WORDS: usize = 10;
/// How long a helper program of the system (`systemctl`, `loginctl`) may take.
pub const SYSTEM_PROGRAM: Duration = Duration::from_secs(90);

/// Longest wait for `fusermount3 -u`, which waits while the kernel writes what it holds back.
pub const UNMOUNT: Duration = Duration::from_secs(20);

/// Largest message of a relayed mount in bytes; one packet of a unix socket holds it whatever the system's usual bound
/// (`net.core.wmem_default`).
pub const ATTACH_MESSAGE: usize = 160 << 10;
/// Most bytes that one read or write of a relayed mount carries; with its header it is one message.
pub const ATTACH_BLOCK: u32 = 128 << 10;
/// Bytes of messages that are kept for the other end of a relayed mount before no more are taken.
pub const ATTACH_KEPT: usize = 16 << 20;
/// Bytes of frames in one write.
pub const ATTACH_BATCH: usize = 512 << 10;
/// Bytes that are received before the other end is told.
pub const ATTACH_UNSAID: usize = 1 << 20;
/// How often an end that has nothing to say gives a sign of life.
pub const ATTACH_ALIVE: Duration = Duration::from_secs(5);
/// An end that says nothing for this long is cut off.
pub const ATTACH_SILENCE: Duration = Duration::from_secs(20);
/// How long a connection on which nothing can be sent any more is listened to.
pub const ATTACH_LAST_WORDS: Duration = Duration::from_secs(1);
/// How long the server keeps the session of an end that was cut off.
pub const ATTACH_GRACE: Duration = Duration::from_secs(600);
/// Relayed mounts that a server serves.
pub const ATTACH_SESSIONS: usize = 256;
/// How long a program on a relayed mount waits while there is no connection; then it hears EIO.
pub const ATTACH_PATIENCE: Duration = Duration::from_secs(60);
/// How long the far side may take until it is attached, the login included.
pub const ATTACH_START: Duration = Duration::from_secs(90);
/// First and longest pause between attempts to connect again.
pub const ATTACH_PAUSE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));
/// Bytes of noise before the far side's marker.
pub const ATTACH_NOISE: usize = 256 << 10;
/// How long a mount may take to answer when it is looked at whether anybody serves it.
pub const LOOK_PATIENCE: Duration = Duration::from_secs(10);
/// How long is waited for a server that was killed and has not ended, before its mounts are aborted, and in all.
pub const DYING_PATIENCE: Duration = Duration::from_secs(1);
/// See [`DYING_PATIENCE`].
pub const DYING_FOR: Duration = Duration::from_secs(10);
/// The same for the guard of mounts, which knows that nobody else does it.
pub const GUARD_PATIENCE: Duration = Duration::from_millis(300);
/// How often it is looked at whether the guard lives.
pub const GUARD_LOOK: Duration = Duration::from_millis(500);
/// The pause before another guard is started where one has ended soon after its start: least and most.
pub const GUARD_AGAIN: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(60));
/// Mounts that a guard knows, the last ones.
pub const GUARDED: usize = 1024;
/// The pause between two looks at it.
pub const DYING_PAUSE: Duration = Duration::from_millis(10);
/// How long a process that a killed server was starting may keep its lock.
pub const LOCK_LEFT: Duration = Duration::from_secs(2);
/// Notices to the kernel that wait because it is busy with an answer of ours.
pub const ATTACH_NOTICES: usize = 4096;
