//! How often we knock at other machines: a token bucket over the clock that the caller hands in.

use std::time::{Duration, Instant};

/// Allows one event each `every`, and after a quiet time a burst.
#[derive(Debug)]
pub struct Bucket {
    every: Duration,
    burst: u32,
    /// When the bucket will be full again; it is full whenever this lies in the past.
    full_at: Option<Instant>,
}

impl Bucket {
    /// A full bucket.
    pub fn new(burst: u32, every: Duration) -> Bucket {
        Bucket { every, burst, full_at: None }
    }

    /// Takes a token, or tells how long to wait before asking again. At least so many tokens are left for others.
    pub fn take(&mut self, now: Instant, left: u32) -> Result<(), Duration> {
        let full_at = self.full_at.map_or(now, |at| at.max(now));
        let after = full_at + self.every;
        let room = self.every * self.burst.saturating_sub(left);
        match (after - now).checked_sub(room) {
            Some(wait) if !wait.is_zero() => Err(wait),
            _ => {
                self.full_at = Some(after);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_and_then_one_a_second() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut bucket = Bucket::new(3, Duration::from_secs(1));
        for _ in 0..3 {
            assert_eq!(bucket.take(at(0), 0), Ok(()));
        }
        assert_eq!(bucket.take(at(0), 0), Err(Duration::from_secs(1)));
        assert_eq!(bucket.take(at(400), 0), Err(Duration::from_millis(600)));
        assert_eq!(bucket.take(at(1000), 0), Ok(()));
        assert_eq!(bucket.take(at(1000), 0), Err(Duration::from_secs(1)));
    }

    #[test]
    fn some_are_kept_for_others() {
        let start = Instant::now();
        let mut bucket = Bucket::new(3, Duration::from_secs(1));
        assert_eq!(bucket.take(start, 2), Ok(()));
        assert_eq!(bucket.take(start, 2), Err(Duration::from_secs(1)));
        assert_eq!((bucket.take(start, 0), bucket.take(start, 0)), (Ok(()), Ok(())));
        assert_eq!(bucket.take(start, 0), Err(Duration::from_secs(1)));
        assert_eq!(bucket.take(start, 2), Err(Duration::from_secs(3)));
    }

    #[test]
    fn quiet_time_fills_it_to_the_brim_and_no_further() {
        let start = Instant::now();
        let mut bucket = Bucket::new(2, Duration::from_secs(1));
        let later = start + Duration::from_secs(3600);
        assert_eq!(bucket.take(start, 0), Ok(()));
        assert_eq!((bucket.take(later, 0), bucket.take(later, 0)), (Ok(()), Ok(())));
        assert!(bucket.take(later, 0).is_err());
    }
}
