//! Carries messages between a descriptor and one connection after the other.

use super::line::{HEADER, Head, Line, bye, header, parse};
use crate::limits;
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::time::timeout;

/// Where messages come from and go to: one read is one message, one write too.
#[async_trait::async_trait]
pub trait Device: Send + Sync {
    /// The next message; `None` when there will be no more.
    async fn read(&self) -> io::Result<Option<Bytes>>;
    /// Waits until a message can be taken.
    async fn ready(&self) -> io::Result<()>;
    /// Takes a message at once; `WouldBlock` where [`Device::ready`] must be waited for again.
    fn take(&self, message: &Bytes) -> io::Result<()>;
}

/// How a connection's time ended.
#[derive(Debug)]
pub enum End {
    /// The connection; the session can go on over another one.
    Cut(io::Error),
    /// The other side ended the session.
    Bye,
    /// The descriptor: nobody is there any more.
    Device,
}

/// One end of a session.
pub struct Relay<D> {
    device: D,
    line: Mutex<Line>,
    /// There is something to send, or to say.
    outgoing: Notify,
    /// The line has room again.
    room: Notify,
}

impl<D: Device> Relay<D> {
    /// Over a descriptor.
    pub fn new(device: D) -> Relay<D> {
        Relay { device, line: Mutex::default(), outgoing: Notify::new(), room: Notify::new() }
    }

    /// The descriptor.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// The line, for whoever knows what its messages mean. Must not be held across a wait.
    pub fn line(&self) -> parking_lot::MutexGuard<'_, Line> {
        self.line.lock()
    }

    /// Reads from the descriptor for as long as the session lives, connected or not. Returns when it ends.
    pub async fn listen(&self) -> io::Result<()> {
        loop {
            while self.line.lock().is_full() {
                self.room.notified().await;
            }
            match self.device.read().await? {
                Some(message) => self.line.lock().push(message),
                None => return Ok(()),
            }
            self.outgoing.notify_one();
        }
    }

    /// Exchanges messages over a connection whose other end has had `received` of ours, until it ends.
    pub async fn carry(
        &self,
        received: u64,
        reader: impl AsyncRead + Unpin,
        writer: impl AsyncWrite + Unpin,
    ) -> End {
        if let Err(e) = self.line.lock().resume(received) {
            return End::Cut(e);
        }
        self.room.notify_one();
        let mut receive = std::pin::pin!(self.receive(reader));
        let cut = tokio::select! {
            e = self.send(writer) => e,
            end = &mut receive => return end,
        };
        // Nothing can be sent any more; the last that came may say that the session is over.
        match timeout(limits::ATTACH_LAST_WORDS, receive).await {
            Ok(End::Cut(_)) | Err(_) => End::Cut(cut),
            Ok(end) => end,
        }
    }

    /// Says that the session is over.
    pub async fn say_bye(&self, mut writer: impl AsyncWrite + Unpin) -> io::Result<()> {
        let frame = bye(self.line.lock().received());
        writer.write_all(&frame).await?;
        writer.flush().await
    }

    async fn send(&self, mut writer: impl AsyncWrite + Unpin) -> io::Error {
        loop {
            let mut frames = BytesMut::new();
            {
                let mut line = self.line.lock();
                let received = line.received();
                while frames.len() < limits::ATTACH_BATCH
                    && let Some(message) = line.next()
                {
                    header(message.len(), received, &mut frames);
                    frames.extend_from_slice(&message);
                }
                if frames.is_empty() {
                    header(0, received, &mut frames);
                }
            }
            let written = async {
                writer.write_all(&frames).await?;
                writer.flush().await
            };
            match timeout(limits::ATTACH_SILENCE, written).await {
                Ok(Ok(())) => {}
                Ok(Err(e)) => return e,
                Err(_) => return silent(),
            }
            if self.line.lock().has_next() {
                continue;
            }
            // A sign of life in time, if there is nothing else to say.
            let _ = timeout(limits::ATTACH_ALIVE, self.outgoing.notified()).await;
        }
    }

    async fn receive(&self, mut reader: impl AsyncRead + Unpin) -> End {
        let mut unsaid = 0;
        loop {
            let message = match timeout(limits::ATTACH_SILENCE, self.frame(&mut reader)).await {
                Err(_) => return End::Cut(silent()),
                Ok(Err(e)) => return End::Cut(e),
                Ok(Ok(None)) => return End::Bye,
                Ok(Ok(Some(message))) => message,
            };
            if message.is_empty() {
                continue;
            }
            unsaid += message.len();
            if let Err(e) = self.pass_on(&message).await {
                tracing::debug!("the device takes nothing any more: {e}");
                return End::Device;
            }
            // Otherwise the other side keeps what we have until there is an answer.
            if unsaid >= limits::ATTACH_UNSAID {
                unsaid = 0;
                self.outgoing.notify_one();
            }
        }
    }

    /// Between taking and counting nothing waits: a connection's end must not part them.
    async fn pass_on(&self, message: &Bytes) -> io::Result<()> {
        loop {
            match self.device.take(message) {
                Ok(()) => {
                    self.line.lock().count_received();
                    return Ok(());
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.device.ready().await?,
                Err(e) => return Err(e),
            }
        }
    }

    /// The next frame's message; empty for a sign of life, `None` for the end of the session.
    async fn frame(&self, reader: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Bytes>> {
        let mut head = [0; HEADER];
        reader.read_exact(&mut head).await?;
        let (head, received) = parse(&head)?;
        self.line.lock().acknowledge(received)?;
        self.room.notify_one();
        let Head::Message(length) = head else { return Ok(None) };
        let mut message = vec![0; length];
        reader.read_exact(&mut message).await?;
        Ok(Some(message.into()))
    }
}

fn silent() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the other end has fallen silent")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tokio::sync::mpsc;

    /// A descriptor whose messages the test makes and takes.
    struct Pipe {
        from: tokio::sync::Mutex<mpsc::UnboundedReceiver<Bytes>>,
        to: mpsc::UnboundedSender<Bytes>,
    }

    #[async_trait::async_trait]
    impl Device for Pipe {
        async fn read(&self) -> io::Result<Option<Bytes>> {
            Ok(self.from.lock().await.recv().await)
        }
        async fn ready(&self) -> io::Result<()> {
            Ok(())
        }
        fn take(&self, message: &Bytes) -> io::Result<()> {
            self.to.send(message.clone()).map_err(|_| io::ErrorKind::BrokenPipe.into())
        }
    }

    type Ends = (Arc<Relay<Pipe>>, mpsc::UnboundedSender<Bytes>, mpsc::UnboundedReceiver<Bytes>);

    fn end() -> Ends {
        let (to_relay, from) = mpsc::unbounded_channel();
        let (to, from_relay) = mpsc::unbounded_channel();
        let relay = Arc::new(Relay::new(Pipe { from: tokio::sync::Mutex::new(from), to }));
        let listening = Arc::clone(&relay);
        tokio::spawn(async move { listening.listen().await });
        (relay, to_relay, from_relay)
    }

    /// Every connection carries a few hundred bytes and is then cut, wherever that is in a frame.
    #[tokio::test]
    async fn messages_survive_connections_that_are_cut_anywhere() {
        let ((one, to_one, mut from_one), (other, to_other, mut from_other)) = (end(), end());
        let wanted: Vec<Bytes> = (0..200u32).map(|i| Bytes::from(vec![i as u8; 1 + i as usize])).collect();
        for message in &wanted {
            to_one.send(message.clone()).unwrap();
            to_other.send(message.clone()).unwrap();
        }
        let (mut here, mut there, mut cuts) = (Vec::new(), Vec::new(), 0u64);
        while here.len() < wanted.len() || there.len() < wanted.len() {
            let (a, b) = tokio::io::duplex(97);
            let ((ar, aw), (br, bw)) = (tokio::io::split(a), tokio::io::split(b));
            let (one_had, other_had) = (one.line().received(), other.line().received());
            // The bound on bytes is what cuts.
            let span = 300 + cuts * 37 % 211;
            let (ar, br) = (ar.take(span), br.take(span));
            let both = async { tokio::join!(one.carry(other_had, ar, aw), other.carry(one_had, br, bw)) };
            let _ = timeout(std::time::Duration::from_millis(20), both).await;
            here.extend(std::iter::from_fn(|| from_one.try_recv().ok()));
            there.extend(std::iter::from_fn(|| from_other.try_recv().ok()));
            cuts += 1;
            assert!(cuts < 5000, "{} and {} arrived", here.len(), there.len());
        }
        assert!(cuts > 10);
        assert!(here == wanted && there == wanted);
    }

    #[tokio::test]
    async fn the_end_of_a_session_is_told_apart_from_a_cut() {
        let ((one, _t1, _f1), (other, _t2, _f2)) = (end(), end());
        let (a, b) = tokio::io::duplex(1000);
        one.say_bye(a).await.unwrap();
        let (reader, writer) = tokio::io::split(b);
        assert!(matches!(other.carry(0, reader, writer).await, End::Bye));
        let (reader, writer) = tokio::io::split(tokio::io::duplex(10).0);
        assert!(matches!(other.carry(0, reader, writer).await, End::Cut(_)));
    }
}
