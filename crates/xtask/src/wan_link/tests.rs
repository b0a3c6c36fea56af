//! A wire against an echo server.

use super::control::execute;
use super::link::{Options, Way};
use super::{relay::Relay, with_rtt};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

fn echo_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
        }
    });
    addr
}

fn round_trip(stream: &mut TcpStream, len: usize) -> Duration {
    let began = Instant::now();
    let sent: Vec<u8> = (0..len).map(|i| i as u8).collect();
    let mut writer = stream.try_clone().unwrap();
    let copy = sent.clone();
    let writing = thread::spawn(move || writer.write_all(&copy).unwrap());
    let mut got = vec![0; len];
    stream.read_exact(&mut got).unwrap();
    writing.join().unwrap();
    assert_eq!(got, sent);
    began.elapsed()
}

#[test]
fn bytes_pass_after_the_delay() {
    let rtt = Duration::from_millis(60);
    let relay = with_rtt(echo_server(), rtt).unwrap();
    let mut stream = TcpStream::connect(relay.addr()).unwrap();
    round_trip(&mut stream, 1);
    let took = round_trip(&mut stream, 100_000);
    assert!(took >= rtt, "{took:?}");
    assert!(took < rtt * 5, "{took:?}");
    assert_eq!(relay.link().count(Way::Up).bytes.load(Relaxed), 100_001);
}

#[test]
fn the_rate_is_shared() {
    let options = Options { rate: [0, 1 << 20], ..Options::default() };
    let relay = Relay::start("127.0.0.1:0".parse().unwrap(), echo_server(), options).unwrap();
    let began = Instant::now();
    thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| round_trip(&mut TcpStream::connect(relay.addr()).unwrap(), 256 << 10));
        }
    });
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(450), "512 KiB at 1 MiB/s took {took:?}");
}

#[test]
fn a_window_limits_what_is_in_flight() {
    let delay = Duration::from_millis(10);
    let options = Options { delay, window: 10_000, ..Options::default() };
    let relay = Relay::start("127.0.0.1:0".parse().unwrap(), echo_server(), options).unwrap();
    let mut stream = TcpStream::connect(relay.addr()).unwrap();
    // Five windows one after another, each acknowledged a round trip later.
    let took = round_trip(&mut stream, 50_000);
    assert!(took >= delay * 2 * 4, "{took:?}");
}

#[test]
fn a_stalled_wire_keeps_its_connections_and_a_cut_one_does_not() {
    let relay = with_rtt(echo_server(), Duration::ZERO).unwrap();
    let link = relay.link();
    let mut stream = TcpStream::connect(relay.addr()).unwrap();
    round_trip(&mut stream, 10);

    assert_eq!(execute(link, "stall"), "ok");
    stream.write_all(b"x").unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut byte = [0];
    assert!(stream.read(&mut byte).is_err(), "nothing passes a stalled wire");
    assert_eq!(execute(link, "go"), "ok");
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.read_exact(&mut byte).unwrap();
    assert_eq!(&byte, b"x");

    assert_eq!(execute(link, "cut 30"), "ok");
    assert!(!matches!(stream.read(&mut byte), Ok(1)));
    let refused = TcpStream::connect(relay.addr()).and_then(|mut s| s.read(&mut byte));
    assert!(!matches!(refused, Ok(1)));
    assert_eq!(execute(link, "go"), "ok");
    round_trip(&mut TcpStream::connect(relay.addr()).unwrap(), 10);
}

#[test]
fn a_muted_connection_is_dead_and_neither_end_is_told() {
    let relay = with_rtt(echo_server(), Duration::ZERO).unwrap();
    let mut stream = TcpStream::connect(relay.addr()).unwrap();
    round_trip(&mut stream, 10);
    assert_eq!(execute(relay.link(), "mute"), "ok");
    stream.write_all(b"x").unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let silent = stream.read(&mut [0]).unwrap_err();
    assert!(
        matches!(silent.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut),
        "{silent}"
    );
    round_trip(&mut TcpStream::connect(relay.addr()).unwrap(), 10);
    drop(stream);
    std::thread::sleep(Duration::from_millis(100));
    assert!(
        execute(relay.link(), "stats").contains("accepted=2 open=1"),
        "the server must not hear of the end"
    );
}

#[test]
fn commands_are_checked() {
    let relay = with_rtt(echo_server(), Duration::ZERO).unwrap();
    for bad in ["", "delay", "delay x", "delay -1", "delay inf", "fly 3"] {
        assert!(execute(relay.link(), bad).starts_with("error"), "{bad:?}");
    }
    assert_eq!(execute(relay.link(), "rate 8"), "ok");
    assert_eq!(relay.link().cap(Way::Up) > 0, relay.link().chunk(Way::Up) < 1 << 18);
    assert!(execute(relay.link(), "stats").contains("accepted=0 open=0"));
}
