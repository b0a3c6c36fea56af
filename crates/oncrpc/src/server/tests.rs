//! A connection over mocks and in-process pipes: batches, order, bounds, bad peers.

use super::*;
use crate::client::{CallError, Client};
use crate::msg::{CallHeader, decode_reply};
use crate::record::{LAST_FRAGMENT, Records};
use bytes::BytesMut;
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadBuf, duplex};
use tokio::sync::Semaphore;

const PROG: u32 = 400_000;
const NULL: u32 = 0;
/// Answers its arguments.
const ECHO: u32 = 1;
/// Answers its arguments once the gate lets it through.
const WAIT: u32 = 2;
const PANIC: u32 = 3;
/// Wants one u64 and nothing else.
const NUMBER: u32 = 4;
/// Answers so many bytes, 1 MiB at most.
const BIG: u32 = 5;

struct Tester {
    gate: Semaphore,
    started: AtomicUsize,
    finished: AtomicUsize,
}

impl Tester {
    fn new() -> Arc<Self> {
        let zero = || AtomicUsize::new(0);
        Arc::new(Self { gate: Semaphore::new(0), started: zero(), finished: zero() })
    }

    fn started(&self) -> usize {
        self.started.load(SeqCst)
    }
}

impl Service for Tester {
    async fn call(&self, mut call: Call) -> Reply {
        route(&[Program { prog: PROG, vers: 1, procs: 6 }], call.prog, call.vers, call.proc)?;
        self.started.fetch_add(1, SeqCst);
        let mut w = Writer::new();
        match call.proc {
            ECHO => w.raw(&call.raw),
            WAIT => {
                self.gate.acquire().await.map_err(|_| Refusal::SystemErr)?.forget();
                w.raw(&call.raw);
            }
            PANIC => panic!("as the test wants it"),
            NUMBER => {
                u64::decode(&mut call.args)?;
                call.args.finish()?;
            }
            BIG => w.payload(&Bytes::from(vec![7; call.args.u32()?.min(1 << 20) as usize])),
            _ => (),
        }
        self.finished.fetch_add(1, SeqCst);
        Ok(w)
    }

    fn reply_hint(&self, call: &Call) -> usize {
        // WAIT tells in its first word how much it counts for.
        if call.proc == WAIT { call.args.clone().u32().unwrap_or(0) as usize } else { 0 }
    }
}

fn record(body: &[u8]) -> Vec<u8> {
    [&(LAST_FRAGMENT | body.len() as u32).to_be_bytes()[..], body].concat()
}

fn request(xid: u32, proc: u32, args: &[u8]) -> Vec<u8> {
    let mut w = Writer::new();
    CallHeader { xid, prog: PROG, vers: 1, proc, cred: Credential::None }.encode(&mut w);
    w.raw(args);
    record(&w.into_bytes())
}

/// All xids in a stream of replies, in order.
fn xids(stream: &[u8]) -> Vec<u32> {
    let mut records = Records::new(1 << 20);
    records.buffer().extend_from_slice(stream);
    std::iter::from_fn(|| records.next_record().unwrap())
        .map(|reply| decode_reply(reply).unwrap().0)
        .collect()
}

/// A stream that gives one entry of `reads` to each read and notes each vectored write.
struct Mock {
    reads: VecDeque<Vec<u8>>,
    writes: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl AsyncRead for Mock {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(bytes) = self.reads.pop_front() {
            buf.put_slice(&bytes);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Mock {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(buf)])
    }
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let bytes: Vec<u8> = bufs.iter().flat_map(|buf| buf.to_vec()).collect();
        let len = bytes.len();
        self.writes.lock().unwrap().push(bytes);
        Poll::Ready(Ok(len))
    }
    fn is_write_vectored(&self) -> bool {
        true
    }
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Serves these reads to their end; the xids of each write, and how it ended.
async fn served(service: &Arc<Tester>, reads: &[Vec<u8>]) -> (Vec<Vec<u32>>, io::Result<()>) {
    let writes = Arc::new(Mutex::new(Vec::new()));
    let mock = Mock { reads: reads.iter().cloned().collect(), writes: writes.clone() };
    let ended = serve(mock, Peer::default(), service.clone(), Limits::default()).await;
    let writes = writes.lock().unwrap();
    (writes.iter().map(|bytes| xids(bytes)).collect(), ended)
}

/// Lets every task go on until none can.
async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

struct Piped {
    client: Client,
    server: tokio::task::JoinHandle<io::Result<()>>,
    service: Arc<Tester>,
}

fn piped(limits: Limits) -> Piped {
    let (near, far) = duplex(64 << 10);
    let service = Tester::new();
    let server = tokio::spawn(serve(far, Peer::default(), service.clone(), limits));
    Piped { client: Client::with_stream(near), server, service }
}

impl Piped {
    async fn call(&self, proc: u32, args: &[u8]) -> Result<Bytes, CallError> {
        let reply = self.client.call(PROG, 1, proc, &Credential::None, |w| w.raw(args)).await;
        reply.map(Reader::into_rest)
    }

    /// Calls that wait, by number.
    fn waiting(&self, numbers: std::ops::Range<u32>) -> Vec<tokio::task::JoinHandle<u32>> {
        let one = |number: u32| {
            let client = self.client.clone();
            tokio::spawn(async move {
                let args = |w: &mut Writer| w.u32(number);
                let mut reply = client.call(PROG, 1, WAIT, &Credential::None, args).await.unwrap();
                reply.u32().unwrap()
            })
        };
        numbers.map(one).collect()
    }
}

#[tokio::test]
async fn a_batch_leaves_in_one_write() {
    let batch: Vec<u8> = (0..100).flat_map(|xid| request(xid, NULL, b"")).collect();
    let big = request(100, BIG, &8192u32.to_be_bytes());
    let (writes, ended) = served(&Tester::new(), &[[batch, big].concat(), request(101, ECHO, b"abcd")]).await;
    assert_eq!(writes, [(0..=100).collect::<Vec<_>>(), vec![101]]);
    ended.unwrap();
}

#[tokio::test]
async fn a_request_cut_into_bytes_is_answered_once() {
    let whole = request(1, ECHO, b"abcd");
    let bytes: Vec<Vec<u8>> = whole.iter().map(|byte| vec![*byte]).collect();
    let (writes, ended) = served(&Tester::new(), &bytes).await;
    assert_eq!(writes, [[1]]);
    ended.unwrap();
}

#[tokio::test]
async fn a_waiting_request_is_overtaken() {
    let service = Tester::new();
    let reads = [[request(1, WAIT, b"\0\0\0\0"), request(2, NULL, b""), request(3, ECHO, b"")].concat()];
    let opener = {
        let service = service.clone();
        async move {
            settle().await;
            service.gate.add_permits(1)
        }
    };
    let ((writes, ended), ()) = tokio::join!(served(&service, &reads), opener);
    assert_eq!(writes, [vec![2, 3], vec![1]]);
    ended.unwrap();
}

#[tokio::test]
async fn each_bad_call_gets_its_refusal() {
    let piped = piped(Limits::default());
    let refused = |prog, vers, proc, cred: Credential| {
        let client = piped.client.clone();
        async move { client.call(prog, vers, proc, &cred, |w| w.u32(1)).await.map(drop) }
    };
    let none = Credential::None;
    let expect = |refusal| Err(CallError::Refused(refusal));
    assert_eq!(refused(100_227, 1, 1, none.clone()).await, expect(Refusal::ProgUnavail));
    let mismatch = Refusal::ProgMismatch { low: 1, high: 1 };
    assert_eq!(refused(PROG, 5, 1, none.clone()).await, expect(mismatch));
    assert_eq!(refused(PROG, 1, 6, none.clone()).await, expect(Refusal::ProcUnavail));
    assert_eq!(refused(PROG, 1, NUMBER, none.clone()).await, expect(Refusal::GarbageArgs));
    assert_eq!(refused(PROG, 1, PANIC, none.clone()).await, expect(Refusal::SystemErr));
    let weak = Refusal::AuthError(crate::msg::AuthStat::TooWeak);
    assert_eq!(refused(PROG, 1, ECHO, Credential::Other(6)).await, expect(weak));
    assert_eq!(refused(PROG, 1, NULL, Credential::Other(6)).await, Ok(()));
    assert_eq!(piped.call(ECHO, b"fine").await.unwrap(), "fine");
}

#[tokio::test]
async fn another_rpc_version_is_refused_and_the_connection_lives() {
    let piped = piped(Limits::default());
    let mut w = Writer::new();
    [9, 0, 3].iter().for_each(|word| w.u32(*word));
    let answer = piped.client.send_record(9, w).await;
    assert_eq!(answer.err(), Some(CallError::Refused(Refusal::RpcMismatch { low: 2, high: 2 })));
    assert_eq!(piped.call(ECHO, b"fine").await.unwrap(), "fine");
}

#[tokio::test]
async fn requests_in_flight_are_bounded() {
    let piped = piped(Limits { in_flight_max: 4, ..Limits::default() });
    let calls = piped.waiting(0..10);
    settle().await;
    assert_eq!(piped.service.started(), 4);
    piped.service.gate.add_permits(3);
    settle().await;
    assert_eq!(piped.service.started(), 7);
    piped.service.gate.add_permits(7);
    for (number, call) in (0..10).zip(calls) {
        assert_eq!(call.await.unwrap(), number);
    }
}

#[tokio::test]
async fn bytes_in_flight_are_bounded_but_one_request_always_runs() {
    let piped = piped(Limits { in_flight_bytes_max: 2500, ..Limits::default() });
    // Each counts for its record of 44 bytes and for some 1000 that it announces.
    let calls = piped.waiting(1000..1010);
    settle().await;
    assert_eq!(piped.service.started(), 3);
    piped.service.gate.add_permits(10);
    for call in calls {
        call.await.unwrap();
    }
    let huge = piped.waiting(1_000_000..1_000_002);
    settle().await;
    assert_eq!(piped.service.started(), 11);
    piped.service.gate.add_permits(2);
    for call in huge {
        call.await.unwrap();
    }
}

#[tokio::test]
async fn a_slow_reader_holds_back_its_own_requests() {
    let (mut near, far) = duplex(4096);
    let service = Tester::new();
    let limits = Limits { reply_bytes_max: 2 << 20, ..Limits::default() };
    tokio::spawn(serve(far, Peer::default(), service.clone(), limits));
    let len = 1 << 20;
    for xid in 0..20 {
        near.write_all(&request(xid, BIG, &(len as u32).to_be_bytes())).await.unwrap();
    }
    settle().await;
    // The pipe has taken a bit of the first, so that the third still fits below the bound.
    assert_eq!(service.started(), 3);
    let mut replies = vec![0; 20 * (4 + 24 + 4 + len)];
    near.read_exact(&mut replies).await.unwrap();
    assert_eq!(service.started(), 20);
}

#[tokio::test]
async fn a_peer_that_takes_no_replies_is_cut_off() {
    let (mut near, far) = duplex(4096);
    let limits = Limits { write_stall_max: Duration::from_millis(20), ..Limits::default() };
    let server = tokio::spawn(serve(far, Peer::default(), Tester::new(), limits));
    near.write_all(&request(1, BIG, &10_000u32.to_be_bytes())).await.unwrap();
    assert_eq!(server.await.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
}

#[tokio::test]
async fn garbage_closes_the_connection() {
    let http = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec();
    let overrun = 0x7fff_ffffu32.to_be_bytes().to_vec();
    for garbage in [http, overrun, record(b""), record(b"not a call at all")] {
        let (writes, ended) = served(&Tester::new(), &[garbage]).await;
        assert_eq!(writes, [[0; 0]; 0]);
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}

#[tokio::test]
async fn damaged_requests_are_answered_or_close_the_connection() {
    let mut rng = StdRng::seed_from_u64(5531);
    let service = Tester::new();
    // A damaged procedure number may ask for a wait.
    service.gate.add_permits(1_000_000);
    let (mut closed, mut lived) = (0, 0);
    for _ in 0..5000 {
        let mut bytes: Vec<u8> = (0..3).flat_map(|xid| request(xid, NUMBER, &[0; 8])).collect();
        for _ in 0..rng.random_range(1..4) {
            let at = rng.random_range(0..bytes.len());
            bytes[at] ^= 1 << rng.random_range(0..8);
        }
        bytes.truncate(rng.random_range(0..2 * bytes.len()));
        match served(&service, &[bytes]).await.1 {
            Ok(()) => lived += 1,
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::InvalidData);
                closed += 1;
            }
        }
    }
    assert!(closed > 100 && lived > 100, "{closed} closed, {lived} lived");
}

#[tokio::test]
async fn a_request_that_has_begun_outlives_its_connection() {
    let piped = piped(Limits::default());
    let calls = piped.waiting(0..3);
    settle().await;
    calls.iter().for_each(|call| call.abort());
    let Piped { client, server, service } = piped;
    // Garbage ends the connection at once; the requests are still there.
    drop(client.send_record(0, Writer::new()).await);
    settle().await;
    assert!(!server.is_finished());
    service.gate.add_permits(3);
    assert_eq!(server.await.unwrap().unwrap_err().kind(), io::ErrorKind::InvalidData);
    assert_eq!(service.finished.load(SeqCst), 3);
}

#[tokio::test]
async fn a_half_closed_connection_gets_its_answers() {
    let (mut near, far) = duplex(4096);
    let service = Tester::new();
    let server = tokio::spawn(serve(far, Peer::default(), service.clone(), Limits::default()));
    near.write_all(&[request(1, WAIT, b""), request(2, NULL, b"")].concat()).await.unwrap();
    near.shutdown().await.unwrap();
    settle().await;
    service.gate.add_permits(1);
    let mut replies = BytesMut::new();
    while near.read_buf(&mut replies).await.unwrap() > 0 {}
    assert_eq!(xids(&replies), [2, 1]);
    server.await.unwrap().unwrap();
}

struct Listening {
    addr: SocketAddr,
    service: Arc<Tester>,
    stop: tokio::sync::oneshot::Sender<()>,
    server: tokio::task::JoinHandle<()>,
}

async fn listening(limits: Limits) -> Listening {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let service = Tester::new();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = tokio::spawn(listen(listener, service.clone(), limits, async move { drop(stopped.await) }));
    Listening { addr, service, stop, server }
}

#[tokio::test]
async fn a_listener_caps_connections_and_frees_their_places() {
    let listening = listening(Limits { connections_max: 1, ..Limits::default() }).await;
    let addr = listening.addr;
    let null = async |client: &Client| client.call(PROG, 1, NULL, &Credential::None, |_| ()).await;
    let first = Client::connect(addr).await.unwrap();
    null(&first).await.unwrap();
    let second = Client::connect(addr).await.unwrap();
    assert!(matches!(null(&second).await, Err(CallError::Closed(_))));
    null(&first).await.unwrap();
    drop(first);
    // The place is free once the server has seen the end of the first connection.
    loop {
        if null(&Client::connect(addr).await.unwrap()).await.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_listener_that_stops_answers_what_has_come() {
    let Listening { addr, service, stop, server } = listening(Limits::default()).await;
    let client = Client::connect(addr).await.unwrap();
    let call = client.call(PROG, 1, WAIT, &Credential::None, |w| w.u32(5));
    let stopper = async {
        while service.started() == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        stop.send(()).unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(!server.is_finished());
        service.gate.add_permits(1);
        server.await.unwrap();
    };
    let (reply, ()) = tokio::join!(call, stopper);
    assert_eq!(reply.unwrap().u32(), Ok(5));
    assert!(Client::connect(addr).await.is_err());
}

/// A client whose kernel waits for acknowledgements (Nagle) before it sends the last short fragment.
#[tokio::test]
async fn short_fragments_of_a_nagling_client_do_not_wait_for_delayed_acknowledgements() {
    let listening = listening(Limits::default()).await;
    let mut stream = TcpStream::connect(listening.addr).await.unwrap();
    stream.set_nodelay(false).unwrap();
    let body = request(1, ECHO, &[0; 5000])[4..].to_vec();
    let begun = std::time::Instant::now();
    for _ in 0..50 {
        for (at, part) in body.chunks(2048).enumerate() {
            let last = (at + 1) * 2048 >= body.len();
            let mark = if last { LAST_FRAGMENT } else { 0 } | part.len() as u32;
            stream.write_all(&[&mark.to_be_bytes()[..], part].concat()).await.unwrap();
        }
        let mut reply = vec![0; 4 + 24 + 5000];
        stream.read_exact(&mut reply).await.unwrap();
    }
    // With delayed acknowledgements, 50 requests take at least 50 times 40 ms.
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}

#[test]
fn a_program_in_several_versions_tells_the_lowest_and_the_highest() {
    let version = |vers| Program { prog: 1, vers, procs: 2 };
    let table = [version(3), version(2), Program { prog: 9, vers: 7, procs: 1 }, version(4)];
    assert_eq!(route(&table, 1, 4, 1), Ok(3));
    assert_eq!(route(&table, 1, 5, 0), Err(Refusal::ProgMismatch { low: 2, high: 4 }));
    assert_eq!(route(&table, 1, 4, 2), Err(Refusal::ProcUnavail));
    assert_eq!(route(&table, 2, 4, 0), Err(Refusal::ProgUnavail));
}
