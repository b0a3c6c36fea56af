//! Messages on a descriptor that keeps them apart: `/dev/fuse`, or a `SOCK_SEQPACKET` socket.

use super::relay::Device;
use crate::limits;
use bytes::Bytes;
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The end of a mount is an error of `/dev/fuse` (fs/fuse/dev.c `fuse_dev_poll`).
const ALL: Interest = Interest::READABLE.add(Interest::WRITABLE).add(Interest::ERROR);

/// The descriptor; never blocks.
pub struct Packets(AsyncFd<OwnedFd>);

impl Packets {
    /// Must be called inside a tokio runtime.
    pub fn new(fd: OwnedFd) -> io::Result<Packets> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        // SAFETY: an owned descriptor names the same file until it is dropped, and it is dropped with its registration.
        Ok(Packets(unsafe { AsyncFd::register_with_interest(fd, ALL)? }))
    }

    /// A further descriptor of the same.
    pub fn another(&self) -> io::Result<OwnedFd> {
        self.0.get_ref().try_clone()
    }
}

#[async_trait::async_trait]
impl Device for Packets {
    async fn read(&self) -> io::Result<Option<Bytes>> {
        // A kernel wants room for more than it ever sends.
        let mut buffer = vec![0; 2 * limits::ATTACH_MESSAGE];
        let read = self.0.async_io(Interest::READABLE | Interest::ERROR, |fd| {
            loop {
                match rustix::io::read(fd, &mut buffer[..]) {
                    // ENOENT: the kernel took the request back (fs/fuse/dev.c `fuse_dev_do_read`).
                    Err(Errno::INTR | Errno::NOENT) => {}
                    Err(Errno::NODEV) => return Ok(0),
                    read => return Ok(read?),
                }
            }
        });
        match read.await? {
            0 => Ok(None),
            n if n > limits::ATTACH_MESSAGE => {
                Err(io::Error::new(io::ErrorKind::InvalidData, format!("a message of {n} bytes")))
            }
            n => {
                buffer.truncate(n);
                buffer.shrink_to_fit();
                Ok(Some(buffer.into()))
            }
        }
    }

    async fn ready(&self) -> io::Result<()> {
        self.0.writable().await.map(drop)
    }

    fn take(&self, message: &Bytes) -> io::Result<()> {
        self.0.try_io(Interest::WRITABLE, |fd| Ok(rustix::io::write(fd, message)?)).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    #[tokio::test]
    async fn a_message_stays_whole_and_a_full_descriptor_says_so() {
        let (a, b) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let (a, b) = (Packets::new(a).unwrap(), Packets::new(b).unwrap());
        let large = Bytes::from(vec![7; limits::ATTACH_MESSAGE]);
        a.ready().await.unwrap();
        a.take(&large).expect("the system's usual bound holds one message");
        let mut sent = 1;
        while a.take(&large).is_ok() {
            sent += 1;
        }
        assert_eq!(a.take(&large).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        for _ in 0..sent {
            assert_eq!(b.read().await.unwrap().unwrap(), large);
        }
        a.ready().await.unwrap();
        drop(a);
        assert!(b.read().await.unwrap().is_none());
    }
}
