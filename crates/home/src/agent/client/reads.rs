//! Reads of files.

use super::super::verbs::{CHECKS, ReadArgs, Reply, Request};
use super::{Session, closed, unexpected};
use crate::limits::agent::{READ_MAX, READ_PART};
use crate::{Chunk, Loc, Result, Turn};
use bytes::BytesMut;

impl Session {
    /// Reads at most [`READ_MAX`] bytes, over the pipes that there are.
    pub(super) async fn read_as(&self, turn: Turn, file: &Loc, at: u64, len: u32) -> Result<Chunk> {
        let len = len.min(READ_MAX);
        if len > READ_PART
            && let Some(chunk) = self.read_in_parts(turn, file, at, len).await?
        {
            return Ok(chunk);
        }
        self.read_part(turn, file, at, len).await
    }

    /// As several requests at once, which spread over the pipes and let short ones in between. `None` where the file
    /// changed meanwhile, so that they are not of one version.
    async fn read_in_parts(&self, turn: Turn, file: &Loc, at: u64, len: u32) -> Result<Option<Chunk>> {
        let starts = (0..len).step_by(READ_PART as usize);
        let reads =
            starts.map(|i| self.read_part(turn, file, at.saturating_add(i.into()), READ_PART.min(len - i)));
        let chunks = futures_util::future::try_join_all(reads).await?;
        let attr = chunks.first().map(|c| c.attr).ok_or_else(closed)?;
        if chunks.iter().any(|c| c.attr.version() != attr.version()) {
            return Ok(None);
        }
        let mut data = BytesMut::with_capacity(len as usize);
        for chunk in chunks {
            data.extend_from_slice(&chunk.data);
            if chunk.data.len() < READ_PART as usize {
                break;
            }
        }
        Ok(Some(Chunk { attr, data: data.freeze() }))
    }

    /// At most what one request carries.
    async fn read_part(&self, turn: Turn, file: &Loc, at: u64, len: u32) -> Result<Chunk> {
        match &self.wide {
            Some(wide) => wide.read(self, turn, file, at, len).await,
            None => self.read_once(turn, file, at, len).await,
        }
    }

    /// One request over this pipe; what it answers is checked, where the agent sends a sum.
    pub(super) async fn read_once(&self, turn: Turn, file: &Loc, at: u64, len: u32) -> Result<Chunk> {
        let args = ReadArgs { file: file.clone(), at, len };
        let checks = self.accept.features & CHECKS != 0;
        let request = if checks { Request::Readc(args) } else { Request::Read(args) };
        match self.call_in(turn, request).await? {
            Reply::Read(chunk) if chunk.data.len() <= len as usize && !checks => Ok(chunk),
            Reply::Readc(checked) if checked.chunk.data.len() <= len as usize && checks => {
                checked.checked().ok_or_else(|| self.shared.damaged("bytes of the agent arrived damaged"))
            }
            other => Err(unexpected(&other)),
        }
    }
}
