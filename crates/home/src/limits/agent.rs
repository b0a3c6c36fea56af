//! Every bound of the agent link. Nothing that a peer says makes either side hold more than this.

use std::time::Duration;

/// Longest body of a message in bytes, all its parts together.
pub const BODY_MAX: usize = 2 << 20;
/// A body longer than this many bytes is sent in parts, so that a short message can go between them.
pub const PART_MAX: usize = 128 << 10;
/// Bodies of fewer bytes are not packed: a frame and its ride cost more than they could save.
pub const PACK_MIN: usize = 512;
/// The shortest time of an answer from which on bodies are packed: nearer machines are reached about as fast as one
/// processor packs (a few hundred MB/s), so that it would only cost time.
pub const PACK_FROM: Duration = Duration::from_millis(1);
/// Bodies of files that go as they are before one is tried again, when those before did not become shorter.
pub const PACK_PAUSE_MAX: u32 = 32;
/// Bytes of answers of which the last part has not arrived, over all requests.
pub const PARTS_MAX: usize = 64 << 20;
/// Most bytes that one READ answers.
pub const READ_MAX: u32 = 1 << 20;
/// Most bytes that one STAGE carries; longer data is split by the client.
pub const STAGE_MAX: usize = 128 << 10;
/// Most chunks that one READK names: those of some 16 MiB.
pub const KNOWN_MAX: usize = 2048;
/// Most parts of one COPY.
pub const COPY_PARTS: usize = 256;
/// Most bytes that one COPY stages; longer lists are split by the client.
pub const COPY_BYTES: u64 = 16 << 20;
/// Most places of its file.
pub const COPY_PLACES: usize = 4;
/// Most bytes of operations in one APPLY; longer lists are split by the client.
pub const APPLY_MAX: usize = 1 << 20;
/// Most entries of a page of LIST.
pub const LIST_ENTRIES_MAX: u32 = 4096;
/// Most bytes of a page of LIST; one entry is always given.
pub const LIST_BYTES_MAX: usize = 1 << 20;
/// Most directories of one CONFIRM: a thread of the server is busy with them for some ten milliseconds.
pub const CONFIRM_MAX: usize = 64;
/// Most directories that one WALK begins with.
pub const WALK_FROM: usize = 64;
/// Most bytes of pages that one WALK answers.
pub const WALK_BYTES: usize = 1 << 20;
/// A WALK that has told of a directory comes to no other one after this long: what was found is already of use.
pub const WALK_TIME: Duration = Duration::from_millis(250);
/// Most objects of one STAT.
pub const STATS_MAX: usize = 512;
/// Pieces of memory that one system call writes: what Linux takes (`IOV_MAX`).
pub const SLICES_MAX: usize = 1024;
/// Requests that a client may have unanswered; the server reads no further when it has so many.
pub const IN_FLIGHT_MAX: usize = 256;
/// Bytes of answers of one class, and of those that go before them, that the server holds for a slow reader before its
/// workers wait.
pub const ANSWERS_MAX: usize = 8 << 20;
/// Bytes of questions, and as many of changes, that the client holds for a slow writer before its callers wait.
pub const REQUESTS_MAX: usize = 8 << 20;
/// How much longer than the fastest answer those of many bytes may take: so long does what is asked meanwhile wait
/// behind them, and shorter than the noise of schedulers and disks it cannot be.
pub const QUEUE: Duration = Duration::from_millis(40);
/// Bytes of one class under way at first: about what a wire of 100 Mbit/s carries in a round trip of 60 ms.
pub const WINDOW_FIRST: usize = 1 << 20;
/// The same at least.
pub const WINDOW_MIN: usize = 256 << 10;
/// Bytes of one class under way at most.
pub const WINDOW_MAX: usize = 16 << 20;
/// How many times as great as before it is made at most in a round trip.
pub const WINDOW_LEAP: f64 = 4.0;
/// How many times as great as what answers have shown it is made at most: they come a little later than they might.
pub const WINDOW_OVER: f64 = 1.2;
/// Bytes of answers, one after the other, that tell how many the wire carries.
pub const TRAIN: usize = 512 << 10;
/// Bytes that a listing is taken for, of those for which nobody waits.
pub const LISTING: usize = 16 << 10;
/// Connections for reads that are made besides the first. One channel of ssh carries 2 MiB in a round trip, and a
/// host usually lets ten of a login be open at a time (`MaxSessions` of sshd_config(5)).
pub const CHANNELS_MORE: usize = 4;
/// Longer reads go as several of so many bytes, which may go over different ones.
pub const READ_PART: u32 = 256 << 10;
/// Further pipes that an agent serves at a time.
pub const JOINED_MAX: usize = 16;
/// Bytes in each round trip from which on they are made: as many as one channel hardly carries.
pub const CHANNEL_FULL: usize = 5 << 18;
/// Bytes under way from which on they are made where it is not known yet what the wire carries: making them takes some
/// round trips.
pub const CHANNEL_LIKELY: u64 = 512 << 10;
/// How far a home is for that: nearer, one channel carries 100 MB in a second.
pub const CHANNEL_FAR: Duration = Duration::from_millis(20);
/// Bytes of one kind that a pipe is given at a time: what a channel carries in a round trip, and half of that again.
pub const CHANNEL_GIVEN: u64 = 3 << 20;
/// They are closed when nothing was read or staged for this long.
pub const CHANNEL_IDLE: Duration = Duration::from_secs(30);
/// How long it is not tried again where none could be made.
pub const CHANNELS_PAUSE: Duration = Duration::from_secs(300);
/// Threads of the server that answer reads and metadata.
pub const WORKERS: usize = 8;
/// Of these, those that are left to the classes Control and Metadata.
pub const WORKERS_SPARED: usize = 2;
/// A thread that has executed a read for this long is replaced by a further one if others wait: it may be at a dead mount.
pub const STUCK: Duration = Duration::from_secs(1);
/// Such further threads that a process has, whatever it serves: each takes 2 MiB for its stack and as much for its answer.
pub const WORKERS_MORE: usize = 56;
/// Bytes of noise that may come before a preamble (messages of the day, output of start-up files).
pub const NOISE_MAX: usize = 256 << 10;
/// Longest text of an error in bytes.
pub const TEXT_MAX: usize = 1024;

/// Directories that a server watches for one client.
pub const WATCHES_MAX: usize = 65_536;
/// The part of the watches that the kernel gives a user which one server may take: other programs of the user need some.
pub const WATCHES_SHARE: usize = 4;
/// A directory that was listed longer ago gives its watch to another one when there are no more, in seconds.
pub const WATCH_KEPT: i64 = 60;
/// Names of one directory that are told to have changed; with one more the whole directory has.
pub const WATCH_NAMES: usize = 32;
/// Directories in one frame that tells of changes.
pub const CHANGES_MAX: usize = 128;
/// Directories with changes that a client holds for its callers; with one more everything counts as changed.
pub const CHANGES_HELD: usize = 65_536;
/// The pause between two such frames, in which changes gather.
pub const WATCH_PAUSE: Duration = Duration::from_millis(20);
/// Directories with changes of which it is remembered what was told of them last: a client whose connection was lost may not have
/// heard it.
pub const TOLD_KEPT: usize = 8192;
/// Most bytes of what an agent is given with the watches of another one.
pub const KEPT_BYTES: u64 = 64 << 20;
/// How long watches outlive a connection that was lost.
pub const KEPT_FOR: Duration = Duration::from_secs(300);
/// How long an agent waits for the watches of another one, which only has to pass them on.
pub const KEPT_WAIT: Duration = Duration::from_secs(1);
/// Names that our own operations have left something under, of which it is remembered what.
pub const OWN_KEPT: usize = 8192;
/// Buffer for the kernel's events.
pub const EVENTS_BUFFER: usize = 64 << 10;

/// How often an idle link is asked for a sign of life.
pub const KEEPALIVE: Duration = Duration::from_secs(5);
/// A link that is asked and says nothing for this long is shown as silent.
pub const SILENT_AFTER: Duration = Duration::from_secs(10);
/// A link that says nothing for this long is closed.
pub const DEAD_AFTER: Duration = Duration::from_secs(30);
/// How long the server goes on with a running change after its peer is gone.
pub const LINGER: Duration = Duration::from_secs(30);
/// A server whose peer says nothing for this long, not even the sign of life of an idle link, leaves.
pub const LONELY_AFTER: Duration = Duration::from_secs(300);
/// Bytes of memory that the agent may have for itself, threads included; it is somebody else's machine.
pub const MEMORY: u64 = 1 << 30;
