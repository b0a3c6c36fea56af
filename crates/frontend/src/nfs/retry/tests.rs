//! Tests of the duplicate request cache.

use super::*;

fn key(n: u64) -> RetryKey {
    RetryKey(u128::from(n).to_be_bytes())
}

fn run(begin: Begin) -> Running {
    match begin {
        Begin::Run(running) => running,
        _ => panic!("the call was seen before"),
    }
}

#[test]
fn a_key_depends_on_everything_but_the_port() {
    let keys = Keys::new([1; 16]);
    let addr: IpAddr = "192.0.2.1".parse().unwrap();
    let args = [7u8; 300];
    let call = CallId { xid: 1, prog: 100_003, vers: 3, proc: 12, uid: Some(5), args: &args };
    let base = keys.key(addr, &call);
    assert_eq!(base, Keys::new([1; 16]).key("::ffff:192.0.2.1".parse().unwrap(), &call));
    let mut changed_head = args;
    changed_head[255] = 8;
    let mut changed_tail = args;
    changed_tail[256] = 8;
    for other in [
        CallId { xid: 2, ..call },
        CallId { prog: 2, ..call },
        CallId { vers: 2, ..call },
        CallId { proc: 2, ..call },
        CallId { uid: Some(2), ..call },
        CallId { uid: None, ..call },
        CallId { args: &args[..299], ..call },
        CallId { args: &changed_head, ..call },
    ] {
        assert_ne!(keys.key(addr, &other), base, "{other:?}");
    }
    assert_eq!(keys.key(addr, &CallId { args: &changed_tail, ..call }), base);
    assert_ne!(keys.key("192.0.2.2".parse().unwrap(), &call), base);
    assert_ne!(Keys::new([2; 16]).key(addr, &call), base);
    let none = CallId { uid: None, ..call };
    assert_ne!(keys.key(addr, &CallId { uid: Some(0), ..call }), keys.key(addr, &none));
}

#[tokio::test]
async fn a_running_call_is_attached_to_and_a_done_one_replayed() {
    let table = Arc::new(Retries::default());
    let running = run(table.begin(key(1)));
    let Begin::Attach(attached) = table.begin(key(1)) else { panic!("not attached") };
    let waiting = tokio::spawn(attached.answer());
    running.finish(Bytes::from_static(b"done"), true);
    assert_eq!(waiting.await.unwrap().as_deref(), Some(&b"done"[..]));
    let Begin::Done(reply) = table.begin(key(1)) else { panic!("not replayed") };
    assert_eq!(&reply[..], b"done");
}

#[tokio::test]
async fn a_call_runs_once_however_often_it_comes() {
    let table = Arc::new(Retries::default());
    let runs = std::cell::Cell::new(0);
    let run = async || {
        tokio::task::yield_now().await;
        runs.set(runs.get() + 1);
        Ok::<_, ()>(Bytes::from(vec![runs.get()]))
    };
    let both =
        futures_util::future::join(table.once(key(1), run(), |_| true), table.once(key(1), run(), |_| true));
    assert_eq!(both.await, (Ok(Bytes::from_static(&[1])), Ok(Bytes::from_static(&[1]))));
    assert_eq!(table.once(key(1), run(), |_| true).await, Ok(Bytes::from_static(&[1])));
    assert_eq!(runs.get(), 1);
}

#[tokio::test]
async fn a_failed_call_leaves_its_place_to_one_that_waits() {
    let table = Arc::new(Retries::default());
    let fails = async {
        tokio::task::yield_now().await;
        Err("failed")
    };
    let works = async { Ok::<_, &str>(Bytes::from_static(b"worked")) };
    let both =
        futures_util::future::join(table.once(key(1), fails, |_| true), table.once(key(1), works, |_| true));
    assert_eq!(both.await, (Err("failed"), Ok(Bytes::from_static(b"worked"))));
}

#[tokio::test]
async fn what_is_not_kept_runs_again_but_its_waiters_are_answered() {
    let table = Arc::new(Retries::default());
    let running = run(table.begin(key(1)));
    let Begin::Attach(attached) = table.begin(key(1)) else { panic!("not attached") };
    running.finish(Bytes::from_static(b"once"), false);
    assert_eq!(attached.answer().await.as_deref(), Some(&b"once"[..]));
    run(table.begin(key(1))).finish(Bytes::new(), false);
}

#[tokio::test]
async fn a_call_given_up_can_begin_anew() {
    let table = Arc::new(Retries::default());
    let running = run(table.begin(key(1)));
    let Begin::Attach(attached) = table.begin(key(1)) else { panic!("not attached") };
    drop(running);
    assert_eq!(attached.answer().await, None);
    run(table.begin(key(1))).finish(Bytes::new(), true);
}

#[test]
fn young_replies_stay_beyond_the_count_and_old_ones_up_to_it() {
    let table = Retries::default();
    let mut inner = table.inner.lock();
    let start = Instant::now();
    let many = RETRY_ENTRIES as u64 * 2;
    for n in 0..many {
        inner.keep(key(n), Bytes::from_static(b"x"), start);
    }
    assert_eq!(inner.calls.len(), many as usize);
    inner.keep(key(many), Bytes::from_static(b"x"), start + RETRY_AGE);
    assert_eq!(inner.calls.len(), RETRY_ENTRIES);
    assert!(!inner.calls.contains_key(&key(0)));
    assert!(inner.calls.contains_key(&key(many)));
}

#[test]
fn bytes_are_bounded_whatever_the_age() {
    let table = Retries::default();
    let mut inner = table.inner.lock();
    let reply = Bytes::from(vec![0; 100_000]);
    for n in 0..100 {
        inner.keep(key(n), reply.clone(), Instant::now());
    }
    assert!(inner.bytes <= RETRY_BYTES);
    assert!(inner.calls.contains_key(&key(99)));
    let counted: usize = inner.calls.len() * (reply.len() + ENTRY_OVERHEAD);
    assert_eq!(inner.bytes, counted);
}

#[test]
fn a_client_keeps_its_table_and_clients_are_bounded() {
    let clients = Clients::default();
    let first: IpAddr = "192.0.2.1".parse().unwrap();
    let held = clients.table(first);
    assert!(Arc::ptr_eq(&held, &clients.table(first)));
    for n in 0..2 * RETRY_CLIENTS as u32 {
        clients.table(std::net::Ipv4Addr::from_bits(0x0a00_0000 + n).into());
    }
    assert!(clients.tables.lock().len() <= RETRY_CLIENTS);
    assert!(Arc::ptr_eq(&held, &clients.table(first)));
}
