//! Whether a channel of an SFTP session is full: its requests are bound by their number and their bytes, not by windows
//! that would tell.

use crate::limits::remote::SFTP_PACE;
use std::time::Duration;
use tokio::time::Instant;

/// What was carried since some time.
pub(super) struct Pace {
    since: Instant,
    bytes: u64,
    /// Whether it was enough in the time before that.
    was_enough: bool,
}

impl Pace {
    /// Whether enough is carried in each round trip, and in the one before: what was held up somewhere comes all at once.
    pub fn fills(pace: &mut Option<Pace>, bytes: u64, round_trip: Duration, enough: u64) -> bool {
        let now = Instant::now();
        let Some(current) = pace else {
            // What this answer brought was under way before.
            *pace = Some(Pace { since: now, bytes: 0, was_enough: false });
            return false;
        };
        current.bytes += bytes;
        let elapsed = now - current.since;
        if elapsed < round_trip.max(SFTP_PACE) {
            return false;
        }
        let flow = current.bytes as f64 * round_trip.as_secs_f64() / elapsed.as_secs_f64();
        let is_enough = flow >= enough as f64;
        let fills = is_enough && current.was_enough;
        *pace = Some(Pace { since: now, bytes: 0, was_enough: is_enough });
        fills
    }
}
