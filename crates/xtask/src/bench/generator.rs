//! Keeps calls in flight on some connections and counts answers, in one thread.
//!
//! Calls are made beforehand; sending one means patching its xid, and for a CREATE the digits of its name.

use anyhow::{Context, Result, bail, ensure};
use oncrpc::msg::{CallHeader, Credential};
use oncrpc::nfs3;
use oncrpc::xdr::{Writer, Xdr};
use rustix::event::{PollFd, PollFlags, poll};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Width of the number that makes names differ.
pub const DIGITS: usize = 10;
/// Stands where the number goes.
pub const NUMBER: &str = "##########";

/// Connections, and calls in flight on each.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Connections.
    pub connections: usize,
    /// Calls in flight on each.
    pub depth: usize,
}

/// A call as bytes, with its record mark.
#[derive(Debug, Clone)]
pub struct Call {
    bytes: Vec<u8>,
    /// Where the number in the name is, if there is one.
    number: Option<usize>,
    /// What one answer counts.
    pub units: u64,
}

impl Call {
    /// A call of an NFS procedure; an answer to it counts `units`.
    pub fn new<A: Xdr>(proc: u32, args: &A, cred: &Credential, units: u64) -> Self {
        let mut w = Writer::new();
        let header =
            CallHeader { xid: 0, prog: nfs3::PROGRAM, vers: nfs3::VERSION, proc, cred: cred.clone() };
        header.encode(&mut w);
        args.encode(&mut w);
        let body = w.into_bytes();
        let bytes = [&(0x8000_0000 | body.len() as u32).to_be_bytes()[..], &body].concat();
        let number = bytes.windows(DIGITS).position(|w| w == NUMBER.as_bytes());
        Self { bytes, number, units }
    }

    /// Appends the call with this xid and number.
    fn append(&self, out: &mut Vec<u8>, xid: u32, number: u64) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        out[start + 4..start + 8].copy_from_slice(&xid.to_be_bytes());
        if let Some(at) = self.number {
            let digits = format!("{number:0DIGITS$}");
            out[start + at..start + at + DIGITS].copy_from_slice(digits.as_bytes());
        }
    }
}

/// What came of a run.
#[derive(Debug, Clone, Copy)]
pub struct Count {
    /// Answers.
    pub calls: u64,
    /// The sum of their units.
    pub units: u64,
    /// From the first call to the last answer.
    pub time: Duration,
}

/// Connections that stay open between runs.
pub struct Generator {
    lines: Vec<Line>,
    /// The next number for a name; never used twice.
    number: u64,
}

struct Line {
    stream: TcpStream,
    out: Vec<u8>,
    sent: usize,
    input: Vec<u8>,
    filled: usize,
    flight: usize,
    xid: u32,
}

impl Generator {
    /// Connects from privileged ports below `from_port`.
    pub fn connect(server: SocketAddr, connections: usize, from_port: &mut u16) -> Result<Self> {
        let lines = (0..connections).map(|_| Line::connect(server, from_port)).collect::<Result<_>>()?;
        Ok(Self { lines, number: 0 })
    }

    /// Sends `calls` in turn for `time`, `depth` in flight on each connection; every answer must be OK.
    pub fn run(&mut self, calls: &[Call], depth: usize, seed: u64, time: Duration) -> Result<Count> {
        self.number = self.number.max(seed);
        let began = Instant::now();
        let (mut next, mut count) = (seed as usize, Count { calls: 0, units: 0, time });
        loop {
            let over = began.elapsed() >= time;
            for line in &mut self.lines {
                while !over && line.flight < depth {
                    let call = next % calls.len();
                    // The low bits of the xid say which call an answer belongs to.
                    line.send(&calls[call], call, self.number);
                    (next, self.number) = (next + 1, self.number + 1);
                }
                line.flush()?;
            }
            if over && self.lines.iter().all(|l| l.flight == 0) {
                count.time = began.elapsed();
                return Ok(count);
            }
            self.wait()?;
            for line in &mut self.lines {
                line.receive(|call| {
                    count.calls += 1;
                    count.units += calls[call].units;
                })?;
            }
        }
    }

    fn wait(&self) -> Result<()> {
        let wanted =
            |l: &Line| if l.sent < l.out.len() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let mut fds: Vec<_> = self.lines.iter().map(|l| PollFd::new(&l.stream, wanted(l))).collect();
        let limit = rustix::time::Timespec { tv_sec: 60, tv_nsec: 0 };
        ensure!(poll(&mut fds, Some(&limit))? > 0, "the server is silent for a minute");
        Ok(())
    }
}

/// Bits of an xid that hold the index of the call.
const CALL_BITS: u32 = 12;
/// More calls than an xid can tell apart.
pub const CALLS_MAX: usize = 1 << CALL_BITS;

impl Line {
    fn connect(server: SocketAddr, from_port: &mut u16) -> Result<Self> {
        use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
        loop {
            *from_port =
                from_port.checked_sub(1).filter(|p| *p > 100).context("no privileged port is free")?;
            let fd = socket(AddressFamily::INET, SocketType::STREAM, None)?;
            if bind(&fd, &SocketAddr::new(server.ip(), *from_port)).is_err() {
                continue;
            }
            connect(&fd, &server).with_context(|| format!("cannot connect to {server}"))?;
            let stream = TcpStream::from(fd);
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let (out, input) = (Vec::new(), vec![0; 4 << 20]);
            return Ok(Self { stream, out, sent: 0, input, filled: 0, flight: 0, xid: 0 });
        }
    }

    fn send(&mut self, call: &Call, index: usize, number: u64) {
        self.xid = self.xid.wrapping_add(1);
        call.append(&mut self.out, self.xid << CALL_BITS | index as u32, number);
        self.flight += 1;
    }

    fn flush(&mut self) -> Result<()> {
        while self.sent < self.out.len() {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(n) => self.sent += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e).context("the server hung up"),
            }
        }
        self.out.clear();
        self.sent = 0;
        Ok(())
    }

    /// Takes what has arrived; `answered` hears the index of the call of each answer.
    fn receive(&mut self, mut answered: impl FnMut(usize)) -> Result<()> {
        loop {
            match self.stream.read(&mut self.input[self.filled..]) {
                Ok(0) => bail!("the server hung up"),
                Ok(n) => self.filled += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e.into()),
            }
            let mut at = 0;
            while let Some(end) = record_end(&self.input[at..self.filled])? {
                answered(check(&self.input[at + 4..at + end])?);
                self.flight -= 1;
                at += end;
            }
            self.input.copy_within(at..self.filled, 0);
            self.filled -= at;
        }
    }
}

/// Where the first record ends, if all of it is there.
fn record_end(input: &[u8]) -> Result<Option<usize>> {
    let Some(mark) = input.first_chunk::<4>() else { return Ok(None) };
    let mark = u32::from_be_bytes(*mark);
    ensure!(mark & 0x8000_0000 != 0, "an answer in several fragments");
    let end = 4 + (mark & 0x7fff_ffff) as usize;
    Ok((input.len() >= end).then_some(end))
}

/// The index of the call that this answers; an error unless RPC and NFS both say OK.
fn check(reply: &[u8]) -> Result<usize> {
    let word = |i: usize| {
        reply.get(i * 4..i * 4 + 4).map_or(u32::MAX, |b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
    };
    // xid, REPLY, MSG_ACCEPTED, verifier (flavour, length 0), SUCCESS, nfsstat3: RFC 5531 section 9.
    let header = [word(1), word(2), word(4), word(5), word(6)];
    ensure!(header == [1, 0, 0, 0, 0], "a call failed: {header:?}");
    Ok((word(0) & (CALLS_MAX as u32 - 1)) as usize)
}
