//! Bytes that are no calls, on the NFS port.

use anyhow::{Context, Result, ensure};
use oncrpc::msg::{CallHeader, Credential};
use oncrpc::nfs3::{self, GetattrArgs, NfsFh3, procs};
use oncrpc::xdr::{Writer, Xdr};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Sends each kind of garbage on a connection of its own; the server must end it or answer an error, and
/// go on.
pub fn garbage(server: SocketAddr, file: &NfsFh3) -> Result<()> {
    ends(server, "HTTP", b"GET / HTTP/1.1\r\nHost: trellis\r\n\r\n")?;
    ends(server, "TLS", &[&[0x16, 3, 1, 2, 0][..], &[0x5a; 600]].concat())?;
    ends(server, "a record of 1 GiB", &[&(0x8000_0000u32 | 1 << 30).to_be_bytes()[..], &[0; 4096]].concat())?;
    ends(
        server,
        "fragments without end",
        &[&(1u32 << 20).to_be_bytes()[..], &[0; 1 << 20]].concat().repeat(40),
    )?;

    let call = call(0, 3, Some(file));
    refused(server, "a call without its arguments", &record(&call[..call.len() - 8]))?;
    ends_or_refused(server, "a call cut in its header", &record(&call[..20]))?;
    refused(server, "a wrong version of the program", &record(&self::call(0, 9, Some(file))))?;
    refused(server, "a procedure that does not exist", &record(&self::call(90, 3, None)))?;
    // A client that never finishes its record holds nobody else.
    let _half = send(server, &record(&call)[..10])?;
    unprivileged(server, file)
}

/// A GETATTR from a port above 1023 is refused; NULL is not.
fn unprivileged(server: SocketAddr, file: &NfsFh3) -> Result<()> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    ensure!(stream.local_addr()?.port() >= 1024);
    stream.write_all(&record(&call(0, 3, Some(file))))?;
    let answer = reply(&mut stream).context("an unprivileged port")?;
    ensure!(accepted_ok(&answer).is_none_or(|nfs| nfs != 0), "a call from an unprivileged port was executed");
    let mut stream = TcpStream::connect(server)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(&record(&null_call()))?;
    ensure!(accepted_ok(&reply(&mut stream)?).is_some(), "NULL from an unprivileged port was refused");
    Ok(())
}

fn null_call() -> Vec<u8> {
    let mut w = Writer::new();
    CallHeader { xid: 77, prog: nfs3::PROGRAM, vers: 3, proc: 0, cred: Credential::None }.encode(&mut w);
    w.into_bytes().to_vec()
}

/// A call of GETATTR, or of `proc` where that is not 0.
fn call(proc: u32, vers: u32, file: Option<&NfsFh3>) -> Vec<u8> {
    let mut w = Writer::new();
    let proc = if proc == 0 { procs::GETATTR } else { proc };
    let cred = Credential::sys(crate::e2e::GATEWAY.uid, 0, &[]);
    CallHeader { xid: 77, prog: nfs3::PROGRAM, vers, proc, cred }.encode(&mut w);
    if let Some(file) = file {
        GetattrArgs { object: *file }.encode(&mut w);
    }
    w.into_bytes().to_vec()
}

fn record(body: &[u8]) -> Vec<u8> {
    [&(0x8000_0000 | body.len() as u32).to_be_bytes()[..], body].concat()
}

/// From a privileged port, as far as the server is concerned a client.
pub fn send(server: SocketAddr, bytes: &[u8]) -> Result<TcpStream> {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket, sockopt};
    for port in (400..600).rev() {
        let fd = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        sockopt::set_socket_reuseaddr(&fd, true)?;
        if bind(&fd, &SocketAddr::new(server.ip(), port)).is_err() || connect(&fd, &server).is_err() {
            continue;
        }
        let mut stream = TcpStream::from(fd);
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        stream.set_write_timeout(Some(Duration::from_secs(20)))?;
        match stream.write_all(bytes) {
            // The server may hang up before it has read everything.
            Err(e) if !matches!(e.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
                return Err(e.into());
            }
            _ => return Ok(stream),
        }
    }
    anyhow::bail!("no privileged port")
}

/// The connection, if the server did not close it at once.
pub fn begin(mut stream: TcpStream, bytes: &[u8]) -> Option<TcpStream> {
    stream.write_all(bytes).ok().map(|()| stream)
}

/// The server hangs up.
fn ends(server: SocketAddr, what: &str, bytes: &[u8]) -> Result<()> {
    let mut stream = send(server, bytes)?;
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => Ok(()),
        Err(e) if e.kind() == ErrorKind::ConnectionReset => Ok(()),
        Err(e) => Err(e).with_context(|| format!("{what}: the connection stays")),
    }
}

/// The server answers, and not with success.
fn refused(server: SocketAddr, what: &str, bytes: &[u8]) -> Result<()> {
    let answer = reply(&mut send(server, bytes)?).with_context(|| what.to_string())?;
    ensure!(accepted_ok(&answer).is_none(), "{what}: was executed");
    Ok(())
}

fn ends_or_refused(server: SocketAddr, what: &str, bytes: &[u8]) -> Result<()> {
    refused(server, what, bytes).or_else(|_| ends(server, what, bytes))
}

fn reply(stream: &mut TcpStream) -> Result<Vec<u8>> {
    let mut mark = [0; 4];
    stream.read_exact(&mut mark).context("no answer")?;
    let len = u32::from_be_bytes(mark) & 0x7fff_ffff;
    ensure!(len < 1 << 16, "an answer of {len} bytes");
    let mut body = vec![0; len as usize];
    stream.read_exact(&mut body)?;
    Ok(body)
}

/// The first word of the results, if the call was executed: xid, REPLY, MSG_ACCEPTED, an empty verifier,
/// SUCCESS (RFC 5531 section 9).
fn accepted_ok(reply: &[u8]) -> Option<u32> {
    let word = |i: usize| reply.get(i * 4..i * 4 + 4).map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]));
    let executed = word(1) == Some(1) && word(2) == Some(0) && word(5) == Some(0);
    executed.then(|| word(6).unwrap_or(0))
}
