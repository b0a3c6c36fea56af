//! NFS version 3 and MOUNT version 3.

mod export;
pub mod handle;
pub mod retry;

pub use export::{Access, Allow, ExportPolicy};
