//! Bounds of connections to other machines: ssh, reconnecting, SFTP.

use std::time::Duration;

/// The first pause after a failure to connect.
pub const PAUSE_MIN: Duration = Duration::from_millis(250);
/// The longest pause after failures to connect.
pub const PAUSE_MAX: Duration = Duration::from_secs(30);
/// The longest pause after a failure to connect to a home that somebody waits for.
pub const PAUSE_WANTED: Duration = Duration::from_secs(1);
/// The pause after a refused login.
pub const PAUSE_LOGIN: Duration = Duration::from_secs(60);
/// A connection that ends before has failed, too: the pauses grow with the number of those in a row.
pub const PROVEN: Duration = Duration::from_secs(10);
/// How long login and the start of the shell may take.
pub const LOGIN: Duration = Duration::from_secs(60);
/// How long the upload of an agent may take.
pub const UPLOAD: Duration = Duration::from_secs(600);
/// How long the greeting may take once the other side runs.
pub const GREETING: Duration = Duration::from_secs(30);
/// How long an `ssh` whose pipe has ended may take to exit and to say why.
pub const FAREWELL: Duration = Duration::from_millis(500);

/// How long a program may take to tell of certificates or tickets.
pub const CREDENTIAL_PATIENCE: Duration = Duration::from_secs(5);
/// Certificates and tickets that are looked at for one host.
pub const CREDENTIALS: usize = 16;

/// Bytes of an `ssh`'s messages that are kept: the last ones.
pub const STDERR_BYTES: usize = 8 << 10;
/// Bytes of the answer of `ssh -G`.
pub const OUTPUT_BYTES: u64 = 256 << 10;
/// Bytes of ssh's messages that are quoted in a sentence.
pub const QUOTE_BYTES: usize = 400;
/// Bytes that the pipe to an ssh, and the one from it, hold; a user may have 64 MiB of such pipes.
pub const PIPE_BYTES: i32 = 256 << 10;
/// Bytes of a user or host name.
pub const HOST_BYTES: usize = 255;

/// Longest SFTP packet in bytes that either side sends: that of OpenSSH.
pub const SFTP_PACKET: usize = 256 << 10;
/// SFTP requests of one channel that may be unanswered at a time; the answer of each is one packet at most.
pub const SFTP_IN_FLIGHT: usize = 512;
/// Bytes of files, and of pages of listings, that these may ask for or bring: what a channel of ssh carries in a round
/// trip, and half of that again.
pub const SFTP_BULK: usize = 3 << 20;
/// What these bytes are counted in.
pub const SFTP_UNIT: usize = 4 << 10;
/// Bytes in each round trip from which on further channels of the connection are made, which takes no login: more than a
/// wire of 100 Mbit/s carries in 60 ms.
pub const SFTP_FULL: u64 = 7 << 17;
/// How long it is looked, twice, how much is carried: a round trip, and this at least.
pub const SFTP_PACE: Duration = Duration::from_millis(50);
/// Bytes of SFTP requests that go out in one write.
pub const SFTP_BATCH: usize = 128 << 10;
/// Symbolic links of one directory that are read at a time.
pub const SFTP_LINKS: usize = 64;
/// Files that one channel keeps open for the next read.
pub const SFTP_OPEN: usize = 16;
/// How long it keeps one open that is not read.
pub const SFTP_OPEN_IDLE: Duration = Duration::from_secs(2);
/// How many seconds our clock may be from that of an SFTP home for a change to be seen there that keeps length and second.
pub const SFTP_YOUNG: i64 = 2;
/// Paths that are remembered to have led to files.
pub const SFTP_FILES: usize = 16_384;
/// Bytes of a new file that is made whole beside its name; of a longer one more would go again after an interruption.
pub const SFTP_STAGED: usize = 1 << 20;
/// Bytes that the answer to such a request is taken for.
pub const SFTP_READDIR: usize = 32 << 10;
/// Requests for the names of one directory that are under way at a time.
pub const SFTP_READDIRS: usize = 8;
/// Directories whose sorted names are kept for the next page.
pub const SFTP_LISTINGS: usize = 4;
