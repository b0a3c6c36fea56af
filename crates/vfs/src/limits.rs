//! Every bound of the engine, in one place.

use std::time::Duration;

/// Largest read or write of one call, in bytes.
pub const IO_MAX: u32 = 1 << 20;
/// Largest file: sizes beyond do not fit the signed 64-bit offsets of clients.
pub const FILE_MAX: u64 = i64::MAX as u64;
/// Hard links that one object may have.
pub const LINK_MAX: u32 = 65_000;
/// Longest target of a symbolic link, in bytes: what Linux takes.
pub const TARGET_MAX: usize = 4095;
/// Fetched at once and cached as one piece, in bytes.
pub const FETCH_CHUNK: u64 = 1 << 20;
/// Fetched at least, in bytes.
pub const FETCH_MIN: u64 = 4 << 10;
/// How far from where the last read in order ended another one may begin or end to be in order, too, in bytes: as much as
/// a kernel asks for at once.
pub const READ_NEAR: u64 = FETCH_CHUNK;
/// How many times as much as somebody has read in order is worth asking for ahead of him.
pub const READ_AHEAD_GROWTH: u64 = 4;
/// Chunks that read-ahead keeps under way for one file at most.
pub const READ_AHEAD_CHUNKS: u64 = 16;
/// Chunks that it keeps under way beyond what the way to the home carries, so that this is never idle and tells where it
/// carries more.
pub const READ_AHEAD_MORE: u64 = 2;
/// Entries asked for in one page of a listing.
pub const LIST_PAGE: u32 = 4096;
/// A directory of at most this many entries is listed whole where one name or attribute is wanted.
pub const SMALL_DIR_ENTRIES: u32 = 1024;
/// A directory whose own size is at most this may be small.
pub const SMALL_DIR_BYTES: u64 = 128 << 10;
/// What a directory says of its size until its home says it: one that says nothing is taken for an automounter's.
pub const NEW_DIR_SIZE: u64 = 4096;
/// Listings that are asked for ahead of somebody who walks through a tree.
pub const LISTS_AHEAD: usize = 128;
/// What these directories may take together by their own sizes, in bytes.
pub const LISTS_AHEAD_BYTES: u64 = 1 << 20;
/// Names of a directory up to which it is looked in which order its files are read.
pub const AHEAD_SORTED: usize = 4096;
/// Directories whose own ones are asked for before somebody who walks through a tree comes to them.
pub const WALKS_AHEAD: usize = 4;
/// Listings that are asked for ahead of somebody who has gone down two directories one after the other.
pub const DOWN_AHEAD: usize = 16;
/// Names of a path that are asked for ahead of the look-ups, where each call asks the home.
pub const PATH_AHEAD: usize = 32;
/// By how much more is asked ahead of somebody each time that he has used half of it: each time costs a round trip.
pub const WALK_GROWTH: usize = 4;
/// Where what was asked for was of no use so often in a row, it is not asked for less often still; a power of two.
pub const WALK_FAILURES: u32 = 6;
/// One of so many directories that are asked for ahead is to be of use; else fewer are, and at last only now and then.
pub const GUESSES_USED: usize = 8;
/// Where that was not so, how many halvings fewer they are each time.
pub const GUESS_SHRINKS: u32 = 4;
/// Where it was so often in a row not so, it is not tried less often still; a power of two.
pub const GUESS_FAILURES: u32 = 4;
/// The same as [`LISTS_AHEAD`] where the home walks by itself.
pub const WALKED_AHEAD: usize = 512;
/// The same as [`LISTS_AHEAD_BYTES`] there.
pub const WALKED_AHEAD_BYTES: u64 = 4 << 20;
/// Such walks at a time: less than an agent has threads.
pub const WALKS_AT_ONCE: usize = 4;
/// Who wants nothing ahead for this long is done with the tree.
pub const CRAWL_OVER: Duration = Duration::from_secs(5);
/// Bytes of names and attributes that a walk brings for each directory that it begins with.
pub const WALK_BYTES_EACH: usize = 8 << 10;
/// The same of the walk for somebody who follows a path, or who looks into a new directory.
pub const DOWN_BYTES: u32 = 32 << 10;
/// How long it is waited for that walk when the root is known: a folder on the way may not answer.
pub const WAY_WAIT: Duration = Duration::from_millis(500);
/// Directories of which something was told during a walk before it had come to them; with more nothing it brings is believed.
pub const WALKS_TOLD: usize = 1024;
/// Directories with their names that are asked for together because what is known of them is from before.
pub const CONFIRM_NAMES: usize = 1 << 18;
/// A file of at most this many bytes is asked for ahead when its neighbours are read one after another.
pub const SMALL_FILE: u64 = 64 << 10;
/// Such files that are on their way at once.
pub const FILES_AHEAD: usize = 512;
/// Their bytes together, where it is not known what the wire carries.
pub const FILES_AHEAD_BYTES: u64 = 8 << 20;
/// Their bytes together at most, on a wire that carries half of them in a round trip.
pub const FILES_AHEAD_MOST: u64 = 16 << 20;
/// Bytes of small files that come with the first one that somebody reads: a hundredth of a second at 100 Mbit/s.
pub const FILES_BESIDE: u64 = 128 << 10;
/// Further directories that they are in at most.
pub const DIRS_AHEAD: usize = 16;
/// Directories above a file in which somebody's walk is known.
pub const WALK_LEVELS: usize = 4;
/// Names of a directory that are looked at for what to ask for ahead.
pub const AHEAD_SCAN: usize = 512;
/// Paths of one prefetch that are looked at at once.
pub const PREFETCH_PATHS: usize = 64;
/// Symbolic links that it follows in one path.
pub const PREFETCH_LINKS: usize = 40;
/// Directories that it lists at once, or walks where the home does that.
pub const PREFETCH_LISTS: usize = 64;
/// Such walks at once, each from as many directories as may be: so many that the agent has threads left for others.
pub const PREFETCH_WALKS: usize = 4;
/// Parts of files that it asks for at once: half of what an agent takes, so that others find room.
pub const PREFETCH_PARTS: usize = 128;
/// Their bytes together, about: twice what a home 60 ms away sends at 1 Gbit/s in a round trip.
pub const PREFETCH_BYTES: u64 = 16 << 20;
/// Files that wait for their turn before no more directories are listed.
pub const PREFETCH_FILES: usize = 4096;
/// Failures of a prefetch that are held for whoever looks at it; further ones are counted.
pub const PREFETCH_FAILURES: usize = 1000;
/// What was used in the cache for so long before a prefetch began, or since, does not go out for it.
pub const PREFETCH_SPARES: Duration = Duration::from_secs(3600);
/// Objects in memory of one volume before all clean ones are dropped.
pub const INODES_MAX: usize = 4_000_000;
/// Names of one directory.
pub const DIR_ENTRIES_MAX: usize = 16_000_000;
/// How often a look-up asks for a name whose object is taken away or replaced each time before it was looked at.
pub const LOOKUP_TRIES: usize = 16;
/// Further names of an object that a record of it tells; the others are found when their folders are listed. With
/// [`BINDINGS_PER_RECORD`] no record is larger than the journal takes.
pub const NAMES_TOLD: usize = 16;
/// Bindings in one journal record.
pub const BINDINGS_PER_RECORD: usize = 1000;
/// Object ids reserved in the store at once.
pub const IDS_RESERVED: u64 = 1 << 20;
/// Records that one batch stands for. Writes that later ones undo do not travel, but have their outcome with them.
pub const BATCH_RECORDS: usize = 4096;
/// The same with those of files that are staged on the home's disk. A claim asks about all of a batch whose answer was lost, and a
/// home answers about 16,384.
pub const BATCH_RECORDS_ALL: usize = 8192;
/// Operations of the queue that are looked at together for what later ones of them undo.
pub const VANISHING: usize = 4 * BATCH_RECORDS;
/// Promises about the queue that are told apart.
pub const PROMISES: usize = 1024;
/// Questions at a time about operations whose answers were lost.
pub const LOOKS: usize = 256;
/// Files that are read at a time at a home with whole seconds to find out which of several records left them there.
pub const COMPARED_AT_ONCE: usize = 32;
/// How often what an operation met is compared with its base, where only its ctime is another one, before that is taken for
/// somebody who has it open.
pub const LOOKED_AT_MAX: u32 = 4;
/// Bytes that are compared at a time where the home has what may be half of a write of ours.
pub const COMPARED_PART: usize = 128 << 10;
/// Bytes of writes that may have been executed which are laid over one file for that, or to find out whether it is whole; where
/// there are more, what is there counts as none of ours.
pub const COMPARED_WORK: u64 = 4 << 30;
/// Pieces of such writes that are kept in memory at a time for that, of one file.
pub const COMPARED_PIECES: usize = 1 << 16;
/// Bytes that a home which is written in steps writes in one step at least, and what longer steps are a multiple of.
pub const PACKET: u64 = 32 << 10;
/// See [`PACKET`].
pub const PACKET_UNIT: u64 = 1 << 10;
/// Pieces of a file that are remembered to be at the home where unsent ones are laid over them.
pub const BEFORE_PIECES: usize = 1 << 13;
/// Operations in one batch that goes home; of writes to one file, the parts that are left.
pub const BATCH_OPS: usize = 512;
/// Bytes in one batch that goes home.
pub const BATCH_BYTES: u64 = 16 << 20;
/// How often they are halved at most, where connections are lost before a batch has got through.
pub const BATCH_HALVINGS: u32 = 5;
/// Batches for which bytes are staged before it is their turn. With the one that is under way they fit in what a home holds.
pub const BATCHES_AHEAD: u32 = 2;
/// A file that is written anew with so many bytes is staged on the home's disk, where that can be, and goes as one operation.
pub const SPOOL_FROM: u64 = 4 << 20;
/// Bytes that are staged there for one batch at most; and a part of the cache.
pub const SPOOL_MOST: u64 = 4 << 30;
/// The part: unsent bytes keep their room until they are at the home.
pub const SPOOL_SHARE: u64 = 8;
/// Files that are staged there for one batch at most, and before it is their turn.
pub const SPOOL_FILES: usize = 8;
/// Bytes that are loaded at a time to be staged there.
pub const SPOOL_WINDOW: u64 = 8 << 20;
/// How many of these are on their way.
pub const SPOOL_WINDOWS: usize = 4;
/// How long nothing is staged there where it could not be.
pub const SPOOL_PAUSE: Duration = Duration::from_secs(300);
/// How often an operation is put together anew because the home has other bytes than were staged there.
pub const SPOOL_ATTEMPTS: u32 = 3;
/// How long a file that is written anew waits for more of it.
pub const WRITING_QUIET: Duration = Duration::from_secs(1);
/// The same when what was written so far was made stable.
pub const WRITING_COMMITTED: Duration = Duration::from_millis(100);
/// How long it waits at most.
pub const WRITING_MAX: Duration = Duration::from_secs(30);
/// Payloads up to this size travel in the operation, longer ones are staged before it.
pub const INLINE_PAYLOAD: u64 = 64 << 10;
/// Bytes that travel in one operation at most; what its further payloads hold is staged, however short each is.
pub const INLINE_OP: u64 = 256 << 10;
/// Bytes that are staged at a time.
pub const STAGE_BYTES: usize = 1 << 20;
/// Bytes that are staged for one operation from which on it is looked which of them the home has already; and the shortest
/// file that is looked through for that.
pub const ALIKE_MIN: u64 = 128 << 10;
/// Bytes that the home copies by itself at least: for fewer it is not worth to name them.
pub const ALIKE_RUN: usize = 4 << 10;
/// Files that are looked through for bytes that the home has: those that were used last.
pub const ALIKE_FILES: usize = 16;
/// Parts of one of them, of [`FETCH_CHUNK`], that are looked through.
pub const ALIKE_PARTS: u64 = 1 << 14;
/// Bytes of them that are looked through for each byte that is to be sent.
pub const ALIKE_LOOKED: u64 = 16;
/// Places of them that are remembered, one for 32 KiB.
pub const ALIKE_ANCHORS: usize = 1 << 18;
/// Files of which it is remembered which bytes they had before.
pub const EARLIER_FILES: usize = 32;
/// Parts of one of them, of 1 MiB, whose chunks are remembered at a time.
pub const EARLIER_PARTS: usize = 4096;
/// How far from where bytes may be expected those are named that a file had before, in bytes.
pub const EARLIER_AROUND: u64 = 2 << 20;
/// The same where the last answer was as expected.
pub const EARLIER_NEAR: u64 = 128 << 10;
/// After so many answers in which little of that was, one after the other, it is not named any more.
pub const EARLIER_USELESS: u32 = 4;
/// Pieces of one of them.
pub const EARLIER_PIECES: usize = 1 << 13;
/// Unsent operations of one volume; more are made to wait.
pub const QUEUE_OPS: usize = 1_000_000;
/// Bytes of extended attributes that are cached of one volume.
pub const XATTR_CACHE: usize = 16 << 20;
/// Bytes of cached attributes of one object of which earlier answers are joined with a new one.
pub const XATTR_TOGETHER: usize = 1 << 20;
/// Bytes of unsent attributes of one volume; more are made to wait.
pub const XATTR_UNSENT: usize = 64 << 20;
/// File systems of one volume of which it is remembered whether they keep extended attributes.
pub const FILE_SYSTEMS: usize = 256;
/// Longest value of an extended attribute that is accepted before the home has it, in bytes: others may not fit there.
pub const XATTR_SMALL: usize = 1 << 10;
/// Bytes of all extended attributes of an object up to which further ones are accepted so: ext4 has room for 4 KiB.
pub const XATTR_ROOM: usize = 3 << 10;
/// How long it is believed that a file system keeps none.
pub const NO_XATTRS: Duration = Duration::from_secs(60);
/// Changes that make a new object: itself, its length, its other attributes.
pub const CHANGES_OF_NEW: usize = 3;
/// Bytes that the records of those take at most, with the target of a symbolic link and what they say of the folder.
pub const BYTES_OF_NEW: u64 = 16 << 10;
/// Events that one watcher may leave unread before they become one that says so.
pub const WATCH_EVENTS: usize = 65_536;
/// How long an answer is good of which the home has told no change: what its kernel does not tell is seen then.
pub const TOLD_MAX: Duration = Duration::from_secs(600);
/// How long after an answer what had happened before it may still be told.
pub const TOLD_LATE: Duration = Duration::from_millis(500);
/// Names of one directory of which it is known that they were told to have changed; with more everything has.
pub const TOLD_NAMES: usize = 256;
/// A directory of at most this many names is listed anew for one of them that was told to have changed, so that it is told of
/// again. In a larger one that name alone is asked for.
pub const TOLD_LISTED: usize = 128;
/// Told changes that are taken in under one lock.
pub const TOLD_AT_ONCE: usize = 256;
/// Locks on files, of all owners.
pub const LOCKS: usize = 65_536;
/// Requests that wait for locks.
pub const LOCK_WAITERS: usize = 4096;
/// Keys of executed calls that are remembered.
pub const REPLIES_MAX: usize = 262_144;
/// A change waits at most this long for company before it goes home.
pub const AGING: Duration = Duration::from_millis(500);
/// Unsent bytes that end the aging.
pub const AGING_BYTES: u64 = 4 << 20;
/// How old what is known may be that denies a call what it asks for: permission may have been given meanwhile.
pub const DENIED: Duration = Duration::from_secs(1);
/// A revalidation that takes longer is answered from the cache.
pub const REVALIDATE_WAIT: Duration = Duration::from_secs(2);
/// How often a question is asked again because our own operations moved what it was about.
pub const QUESTIONS: usize = 10;
/// Longest pause between two attempts to ask for what a call waits for.
pub const ASK_AGAIN: Duration = Duration::from_millis(250);
/// How long a home gives nothing before calls that wait for it make room for others.
pub const CROWD_PATIENCE: Duration = Duration::from_secs(1);
/// How often a call that may have to make room for others looks whether what it waits for may still come.
pub const CROWD_TICK: Duration = Duration::from_millis(100);
/// A call that has nothing in the cache waits this long before it is told to come again.
pub const HOLD: Duration = Duration::from_secs(10);
/// Longest write that needs no turn while there is any room that writers may take.
pub const SMALL_WRITE: u64 = 16 << 10;
/// How many times as much as is left after it a volume's unsent bytes may take of what all volumes may hold for their homes:
/// seven eighths of what the others leave.
pub const SHARE: u64 = 7;
/// Segments of the data log that this is enough for, unless they would be too short.
pub const SHARE_SEGMENTS: u64 = 4;
/// By how much they are shorter then at most, so that there are not too many of them.
pub const SEGMENT_SHRINKS: u64 = 16;
/// Per cent of what a volume may hold for its home from which on writers are slowed.
pub const SLOW_FROM: u64 = 90;
/// Bytes per second to which one writer is slowed at most while there is room.
pub const PACE_MIN: u64 = 512 << 10;
/// What slowing costs one call at most.
pub const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Time over which it is measured how fast bytes go home.
pub const DRAIN_WINDOW: Duration = Duration::from_millis(500);
/// How often whoever waits for room looks for it without being told.
pub const ROOM_TICK: Duration = Duration::from_millis(100);
/// Turns for room that pass over a file whose writer was told to come again, before it loses its place.
pub const ROOM_MISSED: u32 = 256;
/// Files that keep such a place.
pub const ROOM_TURNS: usize = 4096;
/// A home that was out of reach for this long fails calls that have nothing in the cache.
pub const GIVE_UP: Duration = Duration::from_secs(60);
/// How often somebody who waits for an outcome looks whether the home is out of reach for [`GIVE_UP`].
pub const OUTCOME_PATIENCE: Duration = Duration::from_secs(1);
/// How long a name of the root directory that could not be reached is remembered.
pub const FAILED_NAME: Duration = Duration::from_secs(30);
/// How long it is not tried again where its home may come back, or nobody there was asked.
pub const FAILED_AWAY: Duration = Duration::from_secs(1);
/// How often a volume is tried again that could not be opened when the process started.
pub const REOPEN: Duration = Duration::from_secs(30);
/// Names that could not be reached and that a status tells of.
pub const UNREACHED_SHOWN: usize = 100;
/// Names of hosts that the root directory remembers.
pub const HOSTS_MAX: usize = 10_000;
/// Names of hosts that are being reached at the same time.
pub const OPENINGS_MAX: usize = 256;
/// How long the space of a file system is good that the home has told, as long as attributes by default. Whoever writes
/// there, or looks again and again as the build of a program does, does not wait for it each time.
pub const SPACE_FRESH: Duration = Duration::from_secs(5);
/// How old it may be where a program asks by the way. What is not fresh is asked for meanwhile, so that the next one hears it.
pub const SPACE_SHOWN: Duration = Duration::from_secs(60);
/// What may be unsent, in bytes, before the home has told its space.
pub const SPACE_UNTOLD: u64 = 1 << 20;
/// A file system gives space in such blocks, in bytes.
pub const BLOCK: u64 = 4 << 10;
/// Between two notes of a home's free space in the store.
pub const SPACE_KEPT: Duration = Duration::from_secs(60);
/// By how much the time of a change that was answered before its record was durable is after that of a durable one at most:
/// longer than records take to become durable while something is written.
pub const CTIME_AHEAD: Duration = Duration::from_secs(5);
/// What such changes may have added to a ctime, a nanosecond each.
pub const CTIMES_COUNTED: Duration = Duration::from_millis(1);
/// By how much a clock is believed to be behind what was recorded before a restart; else what was recorded is taken to be
/// wrong.
pub const CLOCK_BEHIND: Duration = Duration::from_secs(7 * 86_400);
/// Between two checkpoints of identities.
pub const CHECKPOINT: Duration = Duration::from_secs(1);
/// How often an operation is sent again at once because its directory was moved at that moment.
pub const ASTRAY_TRIES: u32 = 3;
/// Pause before an operation is tried again that the home refused for a reason that may pass.
pub const REFUSED_PAUSE: Duration = Duration::from_secs(30);
/// Longest pause before an operation is tried again that the home refused for a reason that hardly passes by itself.
pub const REFUSED_PAUSE_MAX: Duration = Duration::from_secs(900);
/// Names in a path that a person is shown.
pub const PATH_NAMES: usize = 1000;
/// Characters of a path in what is said of a change.
pub const PATH_SHOWN: usize = 200;
/// Refused operations that a status tells of.
pub const PARKED_SHOWN: usize = 100;
/// Objects of operations that wait for a decision which are told at a time.
pub const HELD_AT_ONCE: usize = 1000;
/// Copies of conflicts of one home that are told.
pub const COPIES_SHOWN: usize = 1000;
/// Ordinary names that are tried for a copy that is kept.
pub const COPY_NAMES: u32 = 100;
/// Pause before a change that found the local disk full is tried again.
pub const FULL_PAUSE: Duration = Duration::from_millis(250);
/// Longest pause between two attempts to send changes.
pub const PUSH_BACKOFF: Duration = Duration::from_secs(5);

/// Bytes before the end of the base that are compared before something is appended behind what the home has.
pub const TAIL: u64 = 64 << 10;

/// How long a person who settles a conflict waits for the home.
pub const SETTLE_PATIENCE: Duration = Duration::from_secs(30);
