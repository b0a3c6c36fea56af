//! Tests of connecting, pausing and connecting again.

use super::*;
use std::collections::VecDeque;
use std::sync::atomic::AtomicUsize;

/// A connection that answers nothing but its greeting.
struct Fake {
    hello: Hello,
    end: watch::Sender<Option<Error>>,
    /// It has told of its change.
    told: AtomicBool,
}

impl Fake {
    fn token(&self) -> u64 {
        self.hello.token.map_or(0, |token| token[0].into())
    }
}

#[async_trait::async_trait]
impl Connection for Fake {
    async fn ended(&self) -> Error {
        let mut end = self.end.subscribe();
        let why = end.wait_for(Option::is_some).await.unwrap();
        why.clone().unwrap()
    }
}

#[async_trait::async_trait]
impl Home for Fake {
    fn status(&self) -> Status {
        Meter::default().status(Link::Up, None, Vec::new())
    }
    async fn attach(&self) -> Result<Hello> {
        Ok(self.hello.clone())
    }
    async fn stat(&self, _: &Loc) -> Result<Seen> {
        Err(ErrorKind::NotFound.into())
    }
    async fn list(&self, _: &Loc, _: Option<&Name>, _: u32) -> Result<Page> {
        Err(ErrorKind::NotFound.into())
    }
    async fn watch(&self, _: &Loc, _: u32, _: u64) -> Result<Watched> {
        Err(ErrorKind::NotFound.into())
    }
    /// One change, which bears its token.
    async fn changes(&self) -> Vec<Changed> {
        if self.told.swap(true, Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        vec![Changed { mark: self.token().into(), ..Changed::default() }]
    }
    fn epoch(&self) -> Option<u64> {
        Some(self.token())
    }
    async fn read(&self, _: &Loc, _: u64, _: u32) -> Result<Chunk> {
        Err(ErrorKind::NotFound.into())
    }
    async fn readlink(&self, _: &Loc) -> Result<Bytes> {
        Err(ErrorKind::NotFound.into())
    }
    async fn statfs(&self, _: &Loc) -> Result<StatFs> {
        Err(ErrorKind::NotFound.into())
    }
    async fn stage(&self, _: OpId, _: u64, _: Bytes) -> Result<()> {
        Ok(())
    }
    /// Only the second volume has a log.
    async fn claim(&self, _: u64, volume: u32, begun: Vec<u64>) -> Result<Option<Claimed>> {
        Ok((volume == 2).then_some(Claimed { begun, ..Claimed::default() }))
    }
    async fn apply(&self, _: Vec<Placed>) -> Result<Vec<Outcome>> {
        Ok(Vec::new())
    }
}

/// Gives out what was prepared, one thing per attempt.
#[derive(Default)]
struct Script {
    steps: Mutex<VecDeque<Result<Arc<Fake>>>>,
    attempts: AtomicUsize,
    class: Mutex<Option<Class>>,
}

#[async_trait::async_trait]
impl Connector for Script {
    async fn connect(&self, class: Option<Class>, _: &Arc<Meter>) -> Result<Arc<dyn Connection>> {
        *self.class.lock() = class;
        self.attempts.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(100)).await;
        match self.steps.lock().pop_front() {
            Some(step) => Ok(step?),
            None => Err(Error::new(ErrorKind::Unreachable, "nobody there")),
        }
    }
}

fn fake(token: u8) -> Arc<Fake> {
    let hello = Hello {
        class: Class::Posix,
        stages: true,
        uid: 1,
        gid: 1,
        groups: Vec::new(),
        home_dir: crate::HomePath::root(),
        token: Some([token; 16]),
        token_is_new: false,
        boot_id: Bytes::new(),
        clock: crate::Time::default(),
        place: None,
    };
    Arc::new(Fake { hello, end: watch::Sender::new(None), told: AtomicBool::new(false) })
}

fn home(steps: Vec<Result<Arc<Fake>>>) -> (Arc<RemoteHome>, Arc<Script>) {
    let script = Arc::new(Script { steps: Mutex::new(steps.into()), ..Script::default() });
    (RemoteHome::new(script.clone()), script)
}

fn at() -> Loc {
    Loc { path: crate::HomePath::root(), id: None }
}

fn gone() -> Error {
    Error::new(ErrorKind::Unreachable, "gone")
}

#[tokio::test(start_paused = true)]
async fn nothing_connects_by_itself_and_many_calls_connect_once() {
    let (home, script) = home(vec![Ok(fake(1))]);
    assert_eq!(home.status().link, Link::Idle);
    let at = at();
    let calls = (0..20).map(|_| home.stat(&at));
    let all = futures_util::future::join_all(calls).await;
    assert!(all.iter().all(|r| r.as_ref().is_err_and(|e| e.kind == ErrorKind::NotFound)));
    assert_eq!(script.attempts.load(Ordering::Relaxed), 1);
    assert_eq!(home.status().link, Link::Up);
}

#[tokio::test(start_paused = true)]
async fn a_home_that_keeps_no_log_says_so() {
    let (home, _) = home(vec![Ok(fake(1))]);
    home.claim(1, 1, vec![]).await.unwrap();
    assert_eq!(home.status().weaker, [UNFENCED]);
    home.claim(1, 2, vec![]).await.unwrap();
    assert_eq!(home.status().weaker, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_remembered_for_a_growing_pause() {
    let (home, script) = home(Vec::new());
    let mut pauses = Vec::new();
    for _ in 0..12 {
        let begin = Instant::now();
        let before = script.attempts.load(Ordering::Relaxed);
        while script.attempts.load(Ordering::Relaxed) == before {
            assert_eq!(home.stat(&at()).await.unwrap_err().detail, "nobody there");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        pauses.push(begin.elapsed());
    }
    assert!(pauses[1] < Duration::from_millis(500), "{pauses:?}");
    let last = pauses[11];
    assert!((Duration::from_secs(19)..Duration::from_secs(32)).contains(&last), "{pauses:?}");
    assert_eq!(home.status().link, Link::Down("nobody there".into()));
}

/// Calls, and attempts that they cause, in so many seconds in which somebody waits.
async fn attempts_in(home: &RemoteHome, script: &Script, seconds: u64) -> usize {
    let (begin, before) = (Instant::now(), script.attempts.load(Ordering::Relaxed));
    while begin.elapsed() < Duration::from_secs(seconds) {
        home.wanted();
        assert!(home.stat(&at()).await.is_err());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    script.attempts.load(Ordering::Relaxed) - before
}

#[tokio::test(start_paused = true)]
async fn somebody_who_waits_causes_an_attempt_a_second() {
    let (home, script) = home(Vec::new());
    for _ in 0..600 {
        assert!(home.stat(&at()).await.is_err());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(script.attempts.load(Ordering::Relaxed) < 12, "nobody waits yet");
    let attempts = attempts_in(&home, &script, 60).await;
    assert!((40..=60).contains(&attempts), "{attempts} attempts in a minute");
    assert!(home.wanted().is_some_and(|left| left <= PAUSE_WANTED));
    script.steps.lock().push_back(Ok(fake(1)));
    tokio::time::sleep(PAUSE_WANTED).await;
    assert_eq!(home.wanted(), Some(Duration::ZERO));
    assert_eq!(home.stat(&at()).await.unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(home.wanted(), None);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_refused_login_causes_no_attempt() {
    let refused = || Err(Error::new(ErrorKind::Login, "refused"));
    let (home, script) = home((0..9).map(|_| refused()).collect());
    assert!(home.stat(&at()).await.is_err());
    assert!(home.status().needs_person);
    assert_eq!(attempts_in(&home, &script, 39).await, 0);
    assert!(attempts_in(&home, &script, 60).await <= 2);
    let before = script.attempts.load(Ordering::Relaxed);
    tokio::time::sleep(PAUSE_WANTED).await;
    for _ in 0..3 {
        home.asked();
        assert!(home.stat(&at()).await.is_err());
    }
    assert_eq!(script.attempts.load(Ordering::Relaxed), before + 1, "a person's command is worth one");
}

#[tokio::test(start_paused = true)]
async fn outages_in_quick_succession_do_not_add_up() {
    let mut steps = Vec::new();
    for _ in 0..6 {
        steps.extend([Ok(fake(1)), Err(gone()), Err(gone()), Err(gone()), Err(gone())]);
    }
    steps.push(Ok(fake(1)));
    let ends: Vec<_> = steps.iter().flatten().map(|connection| connection.end.clone()).collect();
    let (home, script) = home(steps);
    for end in &ends[..6] {
        assert_eq!(home.stat(&at()).await.unwrap_err().kind, ErrorKind::NotFound);
        tokio::time::sleep(PROVEN / 2).await;
        end.send_replace(Some(gone()));
        tokio::time::sleep(Duration::from_millis(1)).await;
        let (lost, before) = (Instant::now(), script.attempts.load(Ordering::Relaxed));
        while script.attempts.load(Ordering::Relaxed) < before + 5 {
            home.wanted();
            let _ = home.stat(&at()).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(lost.elapsed() < Duration::from_secs(5), "{:?}", lost.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_known_host_whose_name_is_not_found_is_away() {
    let unknown = || Err(Error::new(ErrorKind::UnknownHost, "no such host"));
    let (home, _) = home(vec![unknown(), Ok(fake(1)), unknown()]);
    assert_eq!(home.stat(&at()).await.unwrap_err().kind, ErrorKind::UnknownHost);
    home.retry_now();
    assert_eq!(home.stat(&at()).await.unwrap_err().kind, ErrorKind::NotFound);
    home.close();
    assert_eq!(home.stat(&at()).await.unwrap_err().kind, ErrorKind::Unreachable);
}

#[tokio::test(start_paused = true)]
async fn a_refused_login_is_tried_once_a_minute_or_when_a_person_asks() {
    let refused = || Err(Error::new(ErrorKind::Login, "refused"));
    let (home, script) = home(vec![refused(), refused(), Ok(fake(1))]);
    for _ in 0..39 {
        assert_eq!(home.stat(&at()).await.unwrap_err().kind, ErrorKind::Login);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(script.attempts.load(Ordering::Relaxed), 1);
    tokio::time::sleep(Duration::from_secs(25)).await;
    assert_eq!(home.stat(&at()).await.unwrap_err().kind, ErrorKind::Login);
    home.retry_now();
    assert_eq!(home.stat(&at()).await.unwrap_err().kind, ErrorKind::NotFound);
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_is_replaced_by_the_next_call() {
    let first = fake(1);
    let (home, script) = home(vec![Ok(first.clone()), Ok(fake(1))]);
    home.attach().await.unwrap();
    tokio::time::sleep(PROVEN).await;
    first.end.send_replace(Some(gone()));
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(home.status().link, Link::Down("gone".into()));
    assert_eq!(home.stat(&at()).await.unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(script.attempts.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_changes_hears_those_of_the_next_connection() {
    let (first, second) = (fake(1), fake(1));
    let (home, script) = home(vec![Ok(first.clone()), Ok(second)]);
    let listener = home.clone();
    let mut listening = tokio::spawn(async move { listener.changes().await[0].mark });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!listening.is_finished() && script.attempts.load(Ordering::Relaxed) == 0, "it connects nowhere");
    for _ in 0..2 {
        assert_eq!(home.epoch(), None);
        assert_eq!(home.stat(&at()).await.unwrap_err().kind, ErrorKind::NotFound);
        assert_eq!((home.epoch(), listening.await.unwrap()), (Some(1), 1.into()));
        let listener = home.clone();
        listening = tokio::spawn(async move { listener.changes().await[0].mark });
        tokio::time::sleep(Duration::from_secs(11)).await;
        first.end.send_replace(Some(gone()));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(!listening.is_finished());
}

#[tokio::test(start_paused = true)]
async fn another_account_gets_nothing_until_it_is_accepted() {
    let first = fake(1);
    let (home, _) = home(vec![Ok(first.clone()), Ok(fake(2))]);
    home.attach().await.unwrap();
    tokio::time::sleep(PROVEN).await;
    first.end.send_replace(Some(gone()));
    tokio::time::sleep(Duration::from_millis(1)).await;
    let refused = home.apply(Vec::new()).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Setup);
    assert!(matches!(home.status().link, Link::Down(text) if text.contains("not the one that it was")));
    assert_eq!(home.attach().await.unwrap().token, Some([2; 16]));
    assert_eq!(home.apply(Vec::new()).await, Ok(Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn an_account_that_lost_its_token_is_known_by_its_place() {
    let placed = |token, place| {
        let mut one = Arc::into_inner(fake(token)).unwrap();
        one.hello.place = Some([place; 16]);
        Arc::new(one)
    };
    let (first, same) = (placed(1, 1), placed(2, 1));
    let (home, _) = home(vec![Ok(first.clone()), Ok(same.clone()), Ok(placed(3, 2))]);
    home.attach().await.unwrap();
    for (ended, next) in [(first, Ok(Vec::new())), (same, Err(ErrorKind::Setup))] {
        tokio::time::sleep(PROVEN).await;
        ended.end.send_replace(Some(gone()));
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(home.apply(Vec::new()).await.map_err(|e| e.kind), next);
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_does_not_stop_the_attempt_and_close_does() {
    let (home, script) = home(vec![Ok(fake(1)), Ok(fake(1))]);
    assert!(timeout(Duration::from_millis(10), home.stat(&at())).await.is_err());
    assert_eq!(home.status().link, Link::Connecting);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(home.status().link, Link::Up);
    home.close();
    assert_eq!(home.status().link, Link::Idle);
    assert_eq!(home.stat(&at()).await.unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(script.attempts.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn what_an_earlier_process_saw_is_asked_for() {
    let (home, script) = home(vec![Ok(fake(1))]);
    home.expect(Class::Posix);
    home.attach().await.unwrap();
    assert_eq!(*script.class.lock(), Some(Class::Posix));
}
