//! Messages on a stream: a line of JSON and the bytes that it announces, both bounded.

use super::proto::{Envelope, PROTOCOL};
use crate::limits;
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Sends a message.
pub async fn send<T: Serialize>(
    to: &mut (impl AsyncWrite + Unpin),
    body: T,
    payload: &[u8],
) -> io::Result<()> {
    let mut line = serde_json::to_vec(&Envelope { protocol: PROTOCOL, payload: payload.len(), body })?;
    if line.len() >= limits::CONTROL_LINE || payload.len() > limits::CONTROL_CHUNK {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "control message is too long"));
    }
    line.push(b'\n');
    to.write_all(&line).await?;
    to.write_all(payload).await?;
    to.flush().await
}

/// Receives a message; `None` at the end of the stream.
pub async fn receive<T: DeserializeOwned>(
    from: &mut (impl AsyncBufRead + Unpin),
) -> io::Result<Option<(T, Bytes)>> {
    let mut line = Vec::new();
    let mut bounded = (&mut *from).take(limits::CONTROL_LINE as u64);
    if bounded.read_until(b'\n', &mut line).await? == 0 {
        return Ok(None);
    }
    if line.last() != Some(&b'\n') {
        return Err(bad("a control message is cut off or too long"));
    }
    let protocol =
        serde_json::from_slice::<Version>(&line).map_err(|e| bad(&format!("control message: {e}")))?;
    if protocol.protocol != PROTOCOL {
        return Err(bad(
            "the server and this command are of different versions: restart the server with this binary",
        ));
    }
    let envelope: Envelope<T> =
        serde_json::from_slice(&line).map_err(|e| bad(&format!("control message: {e}")))?;
    if envelope.payload > limits::CONTROL_CHUNK {
        return Err(bad("a control message announces too many bytes"));
    }
    let payload = exactly(from, envelope.payload).await?;
    Ok(Some((envelope.body, payload)))
}

/// The only field that every version has.
#[derive(serde::Deserialize)]
struct Version {
    protocol: u32,
}

async fn exactly(from: &mut (impl AsyncRead + Unpin), len: usize) -> io::Result<Bytes> {
    let mut payload = vec![0; len];
    match tokio::time::timeout(limits::CONTROL_PATIENCE, from.read_exact(&mut payload)).await {
        Ok(read) => read.map(|_| payload.into()),
        Err(_) => {
            Err(io::Error::new(io::ErrorKind::TimedOut, "a control message was begun and not finished"))
        }
    }
}

fn bad(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::super::proto::Request;
    use super::*;

    #[tokio::test]
    async fn what_was_sent_is_received() {
        let mut stream = Vec::new();
        send(&mut stream, Request::Status, b"").await.unwrap();
        send(&mut stream, Request::Names, b"raw\nbytes").await.unwrap();
        let mut from = &stream[..];
        assert_eq!(receive(&mut from).await.unwrap(), Some((Request::Status, Bytes::new())));
        assert_eq!(receive(&mut from).await.unwrap(), Some((Request::Names, Bytes::from("raw\nbytes"))));
        assert_eq!(receive::<Request>(&mut from).await.unwrap(), None);
    }

    #[tokio::test]
    async fn garbage_is_an_error_and_costs_little() {
        let endless = vec![b'x'; limits::CONTROL_LINE + 10];
        for bad in [
            &b"no json\n"[..],
            b"{\"protocol\":2",
            b"{\"protocol\":99,\"payload\":0,\"body\":\"status\"}\n",
            b"{\"protocol\":2,\"payload\":99999999999,\"body\":\"status\"}\n",
            b"{\"protocol\":2,\"payload\":5,\"body\":\"status\"}\nabc",
            b"{\"protocol\":2,\"payload\":0,\"body\":\"format\"}\n",
            &endless,
        ] {
            let mut from = bad;
            assert!(receive::<Request>(&mut from).await.is_err(), "{:?}", &bad[..bad.len().min(40)]);
        }
    }
}
