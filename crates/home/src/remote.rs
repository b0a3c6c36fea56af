//! A home reached over the network: connected when needed, again when lost, never by two at once.
use crate::{Class, Error, Home, Link, Status};
use std::sync::atomic::{AtomicU64, Ordering};

/// One connection to a home, from greeting to end.
#[async_trait::async_trait]
pub trait Connection: Home {
    /// Waits for the end and tells its reason.
    async fn ended(&self) -> Error;
}

/// Counts over all connections to one home.
#[derive(Debug, Default)]
pub struct Meter {
    /// Sequential waits for the home.
    pub round_trips: AtomicU64,
    /// Bytes received.
    pub bytes_in: AtomicU64,
    /// Bytes sent.
    pub bytes_out: AtomicU64,
}

impl Meter {
    /// The counts, with the rest of a status.
    pub fn status(&self, link: Link, class: Option<Class>, weaker: Vec<String>) -> Status {
        Status {
            link,
            class,
            weaker,
            round_trips: self.round_trips.load(Ordering::Relaxed),
            bytes_in: self.bytes_in.load(Ordering::Relaxed),
            bytes_out: self.bytes_out.load(Ordering::Relaxed),
        }
    }
}
