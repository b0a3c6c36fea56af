//! One TCP stream over a wire like the one that is measured.

use crate::wan_link::link::{Options, Way};
use crate::wan_link::relay::Relay;
use anyhow::{Context, Result, ensure};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Instant;

/// Seconds from connecting until all `bytes` are on the other side, which one byte says where they go up; and what the
/// wire carried, by [`Way`].
pub fn seconds(wire: &Options, way: Way, bytes: u64) -> Result<(f64, [u64; 2])> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let relay = Relay::start("127.0.0.1:0".parse()?, listener.local_addr()?, wire.clone())?;
    let home = thread::spawn(move || -> std::io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        match way {
            Way::Down => send(&mut stream, bytes),
            Way::Up => {
                receive(&mut stream)?;
                stream.write_all(b".")
            }
        }
    });
    let began = Instant::now();
    let mut stream = TcpStream::connect(relay.addr())?;
    let expected = match way {
        Way::Down => bytes,
        Way::Up => {
            send(&mut stream, bytes)?;
            1
        }
    };
    let got = receive(&mut stream)?;
    let took = began.elapsed().as_secs_f64();
    ensure!(got == expected, "{got} of {expected} bytes arrived");
    home.join().ok().context("the other side of the raw stream")??;
    let carried = [Way::Up, Way::Down].map(|way| relay.link().count(way).bytes.load(Relaxed));
    Ok((took, carried))
}

fn send(stream: &mut TcpStream, bytes: u64) -> std::io::Result<()> {
    let block = vec![0x5a; 256 << 10];
    let mut left = bytes;
    while left > 0 {
        let part = left.min(block.len() as u64);
        stream.write_all(&block[..part as usize])?;
        left -= part;
    }
    stream.shutdown(Shutdown::Write)
}

fn receive(stream: &mut TcpStream) -> std::io::Result<u64> {
    let mut block = vec![0; 256 << 10];
    let mut sum = 0;
    loop {
        match stream.read(&mut block)? {
            0 => return Ok(sum),
            n => sum += n as u64,
        }
    }
}
