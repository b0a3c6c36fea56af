//! How long a call is held for what may not come soon, before it is told to come again.
//!
//! A client's kernel sends the calls for all homes over one connection, of which only so many are taken at a time. Calls to a home
//! that does not answer must leave room for those to the others: when half of the room is taken they are let go at once.

use crate::limits;
use std::time::Duration;
use tokio::sync::watch;

/// Tells whether half of the room for calls of the connection that a call came by is taken.
pub type Crowd = watch::Receiver<bool>;

/// Ready when the call that is being answered is to make room for others, if `is_idle`: what it waits for does not come.
async fn let_go(is_idle: impl Fn() -> bool) {
    let Some(mut crowd) = crate::stats::crowd() else {
        return std::future::pending().await;
    };
    loop {
        if crowd.wait_for(|is_dense| *is_dense).await.is_err() {
            // Nobody is left who waits for the answer.
            return std::future::pending().await;
        }
        if is_idle() {
            return;
        }
        tokio::time::sleep(limits::CROWD_TICK).await;
    }
}

/// What comes of `work`, or `None` when the call has waited for it long enough. `is_idle`: see [`let_go`].
pub async fn held<T>(
    patience: Duration,
    is_idle: impl Fn() -> bool,
    work: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        biased;
        done = work => Some(done),
        () = let_go(is_idle) => None,
        () = tokio::time::sleep(patience) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Stats;
    use futures_util::FutureExt;
    use std::cell::Cell;
    use std::future::{pending, ready};

    async fn among<T>(crowd: Option<Crowd>, call: impl Future<Output = T>) -> T {
        Stats::default().request(crowd, call).await
    }

    const LONG: Duration = Duration::from_secs(10);

    async fn timed<T>(work: impl Future<Output = T>) -> (T, Duration) {
        let mut ticks = 0;
        let mut work = std::pin::pin!(work);
        loop {
            match tokio::time::timeout(limits::CROWD_TICK, &mut work).await {
                Ok(done) => return (done, ticks * limits::CROWD_TICK),
                Err(_) => ticks += 1,
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_a_silent_home_makes_room_for_others() {
        let (tell, crowd) = watch::channel(false);
        let silent = Cell::new(false);
        let call = among(Some(crowd.clone()), held(LONG, || silent.get(), pending::<()>()));
        let waited = timed(call);
        let events = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            tell.send_replace(true);
            tokio::time::sleep(Duration::from_secs(2)).await;
            silent.set(true);
        };
        let ((done, waited), ()) = tokio::join!(waited, events);
        assert_eq!(done, None);
        assert!((Duration::from_millis(2800)..Duration::from_secs(4)).contains(&waited), "{waited:?}");
        // The next one does not wait at all, unless what it wants is there.
        let next = |work| among(Some(crowd.clone()), held(LONG, || true, work)).now_or_never();
        assert_eq!(next(pending().boxed()), Some(None));
        assert_eq!(next(ready(7).boxed()), Some(Some(7)));
    }

    #[tokio::test(start_paused = true)]
    async fn where_there_is_room_each_waits_its_time() {
        let (_tell, roomy) = watch::channel(false);
        let (_, left) = watch::channel(true);
        for crowd in [None, Some(roomy), Some(left)] {
            let has_left = crowd.as_ref().is_some_and(|c| *c.borrow());
            let call = among(crowd, held(LONG, || !has_left, pending::<()>()));
            let (done, waited) = timed(call).await;
            assert!(done.is_none() && waited + limits::CROWD_TICK >= LONG, "{waited:?}");
        }
    }
}
